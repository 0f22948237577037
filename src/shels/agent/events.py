"""Every kind of event, once: what it means, which facts it carries, whether it changes the model, its words.

A new kind is one entry of `KINDS`; the log, the command line, summaries and histories read it from there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from shels.errors import SettingsError, unknown_name

Line: TypeAlias = Mapping[str, Any]
"""An event as the log has it: kind, batch, time, version and facts on one level."""
_Check: TypeAlias = Callable[[Any], bool]

OBSERVED, ALARM, DRIFT, UNDECIDED = "observed", "alarm", "drift", "undecided"
ACCOMMODATING, ACCOMMODATED, DECLINED, RESUMED = "accommodating", "accommodated", "declined", "resumed"
STARTED, RENAMED, MERGED, SPLIT = "started", "renamed", "merged", "split"
UNLEARNED, ROLLED_BACK, REFITTED = "unlearned", "rolled-back", "refitted"


@dataclass(frozen=True)
class Event:
    """One thing that happened, with the batch that it happened on and plain facts about it.

    >>> Event("alarm", "0001.npz", {"share": 0.5, "threshold": 0.1})["share"]
    0.5
    """

    kind: str
    batch: str
    facts: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.facts[name]


# What a fact may be ---------------------------------------------------------------------------------------


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _share(value: Any) -> bool:
    return _number(value) and 0 <= value <= 1


def _limit(value: Any) -> bool:
    return _number(value) and value >= 0


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _label(value: Any) -> bool:
    return isinstance(value, str | bool) or _number(value)


def _labels(value: Any) -> bool:
    return isinstance(value, list) and all(_label(each) for each in value)


def _names(value: Any) -> bool:
    return isinstance(value, list) and all(_text(each) for each in value)


def _time(value: Any) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value) is not None
    except ValueError:
        return False


_COMMON: dict[str, _Check] = {"kind": _text, "batch": _text, "time": _time, "version": _count, "done": _text}
_OPTIONAL = _COMMON | {"by": _text, "request": _text, "seconds": _number}

_FACTS: dict[str, _Check] = {
    "size": _count, "novel": _count, "share": _share, "threshold": _limit, "alarm": _flag, "reason": _text,
    "images": _count, "seen": _count, "purity": _share, "request": _text, "step": _count, "steps": _count,
    "name": _label, "from": _label, "to": _label, "by": _text, "version": _count, "classes": _labels,
    "stream": _text, "learner": _text, "detector": _text,
}  # fmt: skip


def _facts(*names: str, **other: _Check) -> dict[str, _Check]:
    return {name: _FACTS[name] for name in names} | other


# The kinds ------------------------------------------------------------------------------------------------


def _by(line: Line) -> str:
    return f", by {line['by']}" if "by" in line else ""


def _in_general(line: Line) -> str:
    """Say what any event says: its kind and what it is about."""
    keys = ("name", "to", "reason", "stream", "protocol")
    said = [str(line[key]) for key in keys if line.get(key) is not None]
    return f"{line['kind']} {', '.join(said)}".strip() + _by(line)


def _moved(line: Line) -> str:
    to = line["to"]
    return f"{line['from']} {line['kind']} to {' and '.join(to) if isinstance(to, list) else to}{_by(line)}"


def _reason(line: Line) -> str:
    return f"{line['kind']}: {line['reason']}"


@dataclass(frozen=True)
class Kind:
    """What the log can say.

    facts: which it must carry, and what each may be; optional: the same of others. changes: whether another
    model is in use after it; makes: whether that is a new version. words: it in a few words. result, series:
    for what a batch can end in, the words for it beside the batch, and its list in the summary of a run.
    """

    name: str
    meaning: str
    facts: Mapping[str, _Check]
    words: Callable[[Line], str] = _in_general
    changes: bool = False
    makes: bool = False
    result: Callable[[Line], str] | None = None
    series: str = ""
    optional: Mapping[str, _Check] = field(default_factory=dict)


def _change(name: str, meaning: str, facts: Mapping[str, _Check], **more: Any) -> Kind:
    return Kind(name, meaning, {**facts, "version": _count}, **{"changes": True, "makes": True} | more)


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            STARTED,
            "a run began on a stream",
            _facts("stream"),
            optional={"known": _labels, "novel": _labels},
        ),
        Kind(
            OBSERVED,
            "a batch was judged; with `done` that was all",
            _facts("size", "novel", "share", "threshold", "alarm"),
            words=lambda line: f"{line['size']} samples, {100 * line['share']:.1f} % novel",
        ),
        Kind(ALARM, "more of a batch is novel than chance explains", _facts("share", "threshold")),
        Kind(
            ACCOMMODATING,
            "a class is being learned; of its steps only the first is in the log",
            _facts("request", "seen", "purity", "name", "images", "by", "step", "steps"),
        ),
        _change(
            ACCOMMODATED,
            "a class was learned",
            _facts("name", "images", "by"),
            words=lambda line: f"{line['name']} taken in from {line['images']} images{_by(line)}",
            result=lambda line: f"{line['name']} taken in, {line['images']} images by {line['by']}",
            series="taken_in",
        ),
        Kind(
            DECLINED,
            "a proposed class was not learned",
            _facts("name", "reason"),
            result=lambda line: f"{line['name']} {_reason(line)}",
            series="declined",
        ),
        Kind(
            DRIFT,
            "what looked novel is known classes seen through a change",
            _facts("reason", "images"),
            result=_reason,
            series="drift",
        ),
        Kind(
            UNDECIDED,
            "what is novel is no class yet, and waits for more",
            _facts("reason", "images"),
            result=_reason,
            series="undecided",
        ),
        Kind(RESUMED, "an alarm was dealt with, and watching goes on", _facts("classes")),
        _change(RENAMED, "a class got another name", _facts("from", "to", "by"), words=_moved),
        _change(MERGED, "a class was declared to be another", _facts("from", "to", "by"), words=_moved),
        _change(SPLIT, "a class was divided in two", _facts("from", "by", to=_names), words=_moved),
        _change(UNLEARNED, "a class was forgotten", _facts("name", "by")),
        _change(ROLLED_BACK, "an earlier version is in use again", _facts("by", to=_count), makes=False),
        _change(
            REFITTED,
            "the model got another learner or detector",
            _facts("learner", "detector"),
            words=lambda line: f"refitted with learner {line['learner']} and detector {line['detector']}",
        ),
    )
}


def kind_of(name: str) -> Kind:
    """Give a kind by its name; one that is not in the table is refused.

    >>> kind_of("merged").changes, kind_of("alarm").changes
    (True, False)
    """
    if name not in KINDS:
        raise SettingsError(unknown_name("kind of event", name, KINDS))
    return KINDS[name]


def in_words(line: Line) -> str:
    """Say a line of the log in a few words; a kind that is not in the table is said as it is.

    >>> in_words({"kind": "renamed", "from": "novel-1", "to": "cow", "by": "Ada"})
    'novel-1 renamed to cow, by Ada'
    """
    return KINDS[line["kind"]].words(line) if line["kind"] in KINDS else _in_general(line)


def fault(line: Line) -> str:
    """Say what keeps a line of the log from being an event of its kind, nothing where it is one.

    >>> fault({"kind": "alarm", "batch": "b", "share": 2, "threshold": 0.1})
    'its share is 2'
    """
    if not _text(line.get("kind")):
        return "it has no kind"
    kind = KINDS.get(line["kind"])
    needed = {} if kind is None else {"batch": _text, **kind.facts}
    for name in needed:
        if name not in line:
            return f"it lacks {name}"
    checks = _COMMON if kind is None else {**_OPTIONAL, **kind.optional, **needed}
    wrong = (name for name, check in checks.items() if name in line and not check(line[name]))
    return next((f"its {name} is {str(line[name])[:40]}" for name in wrong), "")


def changes_model(line: Line) -> bool:
    """Tell whether another model is in use after an event of the log."""
    return line["kind"] in KINDS and KINDS[line["kind"]].changes


def makes_version(line: Line) -> bool:
    """Tell whether an event of the log made the version that it names."""
    return line["kind"] in KINDS and KINDS[line["kind"]].makes


def names_in(line: Line) -> list[Any]:
    """List every name of a class that an event speaks of."""
    found = [line.get(key) for key in ("name", "provisional", "from", "to")]
    return [name for each in found for name in (each if isinstance(each, list) else [each])]
