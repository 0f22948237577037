"""Every kind of event, once: what it means, which facts it carries, whether it changes the model, its words.

A new kind is one entry of `KINDS`; the log, the command line, summaries and histories read it from there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from shels.errors import SettingsError, unknown_name

Line: TypeAlias = Mapping[str, Any]
"""An event as the log has it: kind, batch, time, version and facts on one level."""
_Check: TypeAlias = Callable[[Any], bool]
_MEMBERS = re.compile(r"([0-9]{1,15}(-[0-9]{1,15})?(,[0-9]{1,15}(-[0-9]{1,15})?)*)?")

OBSERVED, ALARM, DRIFT, UNDECIDED = "observed", "alarm", "drift", "undecided"
ACCOMMODATING, ACCOMMODATED, DECLINED, RESUMED = "accommodating", "accommodated", "declined", "resumed"
STARTED, RENAMED, MERGED, SPLIT = "started", "renamed", "merged", "split"
UNLEARNED, ROLLED_BACK, REFITTED = "unlearned", "rolled-back", "refitted"
RULE_SET, NOT_NOVEL, DISMISSED = "rule-set", "not-novel", "dismissed"
GROUP_SPLIT, GROUPS_MERGED, UNDONE = "group-split", "groups-merged", "undone"


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


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _label(value: Any) -> bool:
    return isinstance(value, str | bool) or _number(value)


def _labels(value: Any) -> bool:
    return isinstance(value, list) and all(_label(each) for each in value)


def _members(value: Any) -> bool:
    return isinstance(value, str) and _MEMBERS.fullmatch(value) is not None


def _counts(value: Any) -> bool:
    return isinstance(value, dict) and all(_count(each) for each in value.values())


def _time(value: Any) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value) is not None
    except ValueError:
        return False


def _nested(value: Any, most: int = 5) -> bool:
    """Tell whether lists or objects lie in one another deeper than any event has them."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return most == 0 or any(_nested(each, most - 1) for each in inside)


_COMMON: dict[str, _Check] = {
    "kind": _text, "batch": _text, "time": _time, "version": _count, "done": _text,
}  # fmt: skip
_FACTS: dict[str, _Check] = _COMMON | {
    "size": _count, "novel": _count, "images": _count, "seen": _count, "step": _count, "steps": _count,
    "share": lambda value: _number(value) and 0 <= value <= 1,
    "threshold": lambda value: _number(value) and value >= 0,
    "alarm": lambda value: isinstance(value, bool),
    "purity": _number, "seconds": _number, "name": _label, "from": _label, "to": _label, "classes": _labels,
    "reason": _text, "request": _text, "by": _text, "stream": _text, "learner": _text, "detector": _text,
    "key": _text, "digest": _text, "group": _text, "members": _members, "was": _counts, "undoes": _count,
}  # fmt: skip
"""What a fact may be wherever it stands, unless a kind has it otherwise."""


# The kinds ------------------------------------------------------------------------------------------------


def _by(line: Line) -> str:
    return f", by {line['by']}" if "by" in line else ""


def _in_general(line: Line) -> str:
    """Say what any event says: its kind and what it is about."""
    keys = ("name", "to", "reason", "stream", "protocol")
    said = [str(line[key]) for key in keys if line.get(key) is not None]
    return f"{line['kind']} {', '.join(said)}".strip() + _by(line)


def _share(value: float | None) -> str:
    return "what the paper's rule gives" if value is None else f"{100 * value:g} %"


def _moved(line: Line) -> str:
    to = line["to"] if isinstance(line["to"], list) else [line["to"]]
    return f"{line['from']} {line['kind']} to {' and '.join(map(str, to))}{_by(line)}"


def _reason(line: Line) -> str:
    return f"{line['kind']}: {line['reason']}"


@dataclass(frozen=True)
class Kind:
    """What the log can say.

    facts: which it must carry, beside the batch; other: what a fact may be in this kind alone. changes:
    whether another model is in use after it; makes: whether that is a new version. words: it in a few words.
    result, series: for what a batch can end in, the words for it beside the batch, and its list in the
    summary of a run.
    """

    name: str
    meaning: str
    facts: tuple[str, ...]
    words: Callable[[Line], str] = _in_general
    changes: bool = False
    makes: bool = False
    result: Callable[[Line], str] | None = None
    series: str = ""
    other: Mapping[str, _Check] = field(default_factory=dict)


def _ending(name: str, meaning: str, facts: tuple[str, ...], result: Callable[[Line], str] = _reason) -> Kind:
    return Kind(name, meaning, facts, result=result, series=name)


def _change(name: str, meaning: str, facts: tuple[str, ...], **more: Any) -> Kind:
    return Kind(name, meaning, (*facts, "version"), **{"changes": True, "makes": True} | more)


_TABLE = (
    Kind(STARTED, "a run began on a stream", ("stream",), other={"known": _labels, "novel": _labels}),
    Kind(
        OBSERVED,
        "a batch was judged; with `done` that was all",
        ("size", "novel", "share", "threshold", "alarm"),
        words=lambda line: f"{line['size']} samples, {100 * line['share']:.1f} % novel",
    ),
    Kind(ALARM, "more of a batch is novel than chance explains", ("share", "threshold")),
    Kind(
        ACCOMMODATING,
        "a class is being learned; of its steps only the first is in the log",
        ("request", "seen", "purity", "name", "images", "by", "step", "steps"),
    ),
    _change(
        ACCOMMODATED,
        "a class was learned",
        ("name", "images", "by"),
        words=lambda line: f"{line['name']} taken in from {line['images']} images{_by(line)}",
        result=lambda line: f"{line['name']} taken in, {line['images']} images by {line['by']}",
        series="taken_in",
    ),
    _ending(
        DECLINED,
        "a proposed class was not learned",
        ("name", "reason"),
        lambda line: f"{line['name']} {_reason(line)}",
    ),
    _ending(DRIFT, "what looked novel is known classes seen through a change", ("reason", "images")),
    _ending(UNDECIDED, "what is novel is no class yet, and waits for more", ("reason", "images")),
    Kind(RESUMED, "an alarm was dealt with, and watching goes on", ("classes",)),
    _change(RENAMED, "a class got another name", ("from", "to", "by"), words=_moved),
    _change(MERGED, "a class was declared to be another", ("from", "to", "by"), words=_moved),
    _change(SPLIT, "a class was divided in two", ("from", "to", "by"), words=_moved, other={"to": _labels}),
    _change(UNLEARNED, "a class was forgotten", ("name", "by")),
    _change(ROLLED_BACK, "an earlier version is in use again", ("to", "by"), makes=False),
    _change(
        REFITTED,
        "the model got another learner or detector",
        ("learner", "detector"),
        words=lambda line: f"refitted with learner {line['learner']} and detector {line['detector']}",
    ),
    _change(
        RULE_SET,
        "another share of known samples is to be accepted",
        ("from", "to", "by"),
        words=lambda line: f"accepts {_share(line['to'])} instead of {_share(line['from'])}{_by(line)}",
        other={"from": lambda value: value is None or _number(value), "to": _number},
    ),
    _change(
        NOT_NOVEL,
        "a person said that images called novel are of known classes; thresholds were set with them anew",
        ("images", "members", "by"),
        words=lambda line: f"{line['images']} images are not novel{_by(line)}",
    ),
    Kind(
        DISMISSED,
        "a person said that images called novel are rubbish",
        ("images", "members", "by"),
        words=lambda line: f"{line['images']} images are rubbish{_by(line)}",
    ),
    Kind(
        GROUP_SPLIT,
        "a group of novel images was divided in two",
        ("group", "to", "members", "by"),
        words=lambda line: f"group {line['group']} divided, {line['to']} new{_by(line)}",
    ),
    Kind(
        GROUPS_MERGED,
        "groups of novel images were put together",
        ("group", "to", "members", "by"),
        words=lambda line: f"group {line['group']} is part of {line['to']}{_by(line)}",
    ),
    Kind(
        UNDONE,
        "what a person said of images was taken back",
        ("undoes", "by"),
        words=lambda line: f"taken back{_by(line)}",
    ),
)
KINDS: dict[str, Kind] = {kind.name: kind for kind in _TABLE}


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
    if _nested(line):
        return "it is nested too deep"
    kind = KINDS.get(line["kind"])
    for name in () if kind is None else ("batch", *kind.facts):
        if name not in line:
            return f"it lacks {name}"
    checks = _COMMON if kind is None else {**_FACTS, **kind.other}
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
