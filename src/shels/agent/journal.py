"""What is written down before it is done, so that a run that is cut off goes on as if it had not been.

A change of the model is finished or undone whole (`Pending`). What is new in a batch is decided once
(`BatchNote`), and each event of the batch under way is in the log once (`Journal`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shels.agent import events
from shels.agent.events import Event, Line
from shels.errors import ModelFileError
from shels.files import require_regular

if TYPE_CHECKING:
    from shels.agent.home import Home
    from shels.agent.versioned import VersionedLearner

_ADDED = ("kind", "batch", "time", "done", "provisional")  # what the log has beside an event's own facts


@dataclass(frozen=True)
class Pending:
    """What a change of a home's model will have done in the end.

    version: in use then. event: in the log then. log: how long the log was before. hold, drop: names of novel
    samples that come into place, and that go.
    """

    version: int
    event: dict[str, Any]
    log: int
    hold: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Give it as the text of a file."""
        try:
            return json.dumps(asdict(self), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ModelFileError(f"the event {self.event} cannot be written as JSON: {error}") from error

    @staticmethod
    def read(path: Path) -> Pending:
        """Read it from a file; what is damaged is refused."""
        try:
            found = _document(path, ("version", "event", "log", "hold", "drop"))
            event = _event(found["event"])
            names = [tuple(_is(name, str) for name in _is(found[each], list)) for each in ("hold", "drop")]
            return Pending(_is(found["version"], int), event, _is(found["log"], int), *names)
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise _damaged(path, error, "to go on without the change that was under way") from error

    def is_in(self, log: Iterable[Line]) -> bool:
        """Tell whether the log has the event."""
        return any({**line, **self.event} == line for line in log)


@dataclass(frozen=True)
class ProposedClass:
    """A new class; request: the question about it. name: provisional. rows: which of the waiting images."""

    request: str
    name: str
    purity: float
    rows: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """What a batch that looked new was found to hold; images: how many were judged. drift: why it is."""

    images: int
    drift: str | None = None
    groups: tuple[ProposedClass, ...] = ()


@dataclass(frozen=True)
class BatchNote:
    """The batch under way.

    key: which it is. settings: under which the agent watches. log: how long the log was before. last: the
    last number of a provisional name that was given.
    """

    key: str
    settings: str
    log: int
    last: int
    plan: Plan | None = None

    @staticmethod
    def read(home: Home) -> BatchNote | None:
        """Read what a home has; a note that is damaged is refused."""
        try:
            found = _document(home.batch_note, ("key", "settings", "log", "last", "plan"))
            texts = _is(found["key"], str), _is(found["settings"], str)
            plan = None if found["plan"] is None else _plan(_is(found["plan"], dict))
            return BatchNote(*texts, _is(found["log"], int), _is(found["last"], int), plan)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, LookupError, RecursionError) as error:
            raise damaged_plan(home, error) from error


class Journal:
    """What a batch came to so far, in the log and in the note on it.

    Where a run was cut off in this very batch, under the same settings, and nobody changed the model since,
    events that are in the log are given again instead of being recorded twice, and the plan stands.
    """

    def __init__(self, model: VersionedLearner, batch: str, key: str, settings: str) -> None:
        self.model = model
        self.batch = batch
        self.note = BatchNote(key, settings, 0, model.last_number)
        self._written = False
        self._logged: list[dict[str, Any]] = []
        if model.home is not None:
            self._take_up(model.home)

    def begin(self) -> None:
        """Write down that the batch is under way."""
        if not self._written:
            self._write(self.note)

    def decide(self, plan: Plan) -> Plan:
        """Write down what is new in the batch, once for all."""
        self._write(replace(self.note, plan=plan, last=self.model.last_number))
        return plan

    def record(self, kind: str, facts: dict[str, Any], *, done: bool = False) -> Event:
        """Give an event that is in the log; where it is there already, it is not recorded again."""
        found = next((line for line in self._logged if _same(line, kind, facts)), None)
        if found is not None:
            self._logged.remove(found)
            return self._again(found)
        self.model.record(kind, self.batch, facts | ({"done": self.note.key} if done else {}))
        return Event(kind, self.batch, facts)

    def given(self, *kinds: str) -> list[Event]:
        """Give again those events of these kinds that are in the log."""
        return [self._again(line) for line in self._logged if line["kind"] in kinds]

    def decided(self, request: str) -> list[Event]:
        """Give the events of a proposed class that is learned or declined already; none where it is not."""
        lines = [line for line in self._logged if line.get("request") == request]
        if not lines or lines[-1]["kind"] not in (events.ACCOMMODATED, events.DECLINED):
            return []
        return [self._again(line) for line in lines]

    def close(self) -> None:
        """Remove the note on a batch that is done, unless it alone knows which numbers were given."""
        if self._written and self.model.home is not None and self.model.log_has_all_numbers:
            self.model.home.write_batch_note(None)

    def _take_up(self, home: Home) -> None:
        found = BatchNote.read(home)
        if found is not None and (found.key, found.settings) == (self.note.key, self.note.settings):
            since = home.events(found.log)
            done = any(line.get("done") == found.key for line in since)
            changed = any(events.changes_model(line) and line["batch"] != self.batch for line in since)
            if not done and not changed:
                self.note, self._written = found, True
                self._logged = [line for line in since if line.get("batch") == self.batch]
                return
        self.note = replace(self.note, log=home.log.size)

    def _write(self, note: BatchNote) -> None:
        self.note, self._written = note, True
        if self.model.home is not None:
            self.model.home.write_batch_note(json.dumps(asdict(note)))

    def _again(self, line: Line) -> Event:
        added = _ADDED if events.makes_version(line) else (*_ADDED, "version")
        return Event(line["kind"], self.batch, {name: line[name] for name in line if name not in added})


def damaged_plan(home: Home, why: object) -> ModelFileError:
    """Say that the note on the batch under way cannot be used."""
    return _damaged(home.batch_note, why, "to look at that batch anew")


def _damaged(path: Path, why: object, what_for: str) -> ModelFileError:
    return ModelFileError(f"{path} is damaged ({why}); delete it {what_for}")


def _same(line: Line, kind: str, facts: Line) -> bool:
    """Tell whether a line of the log is this event; a person may have answered otherwise meanwhile."""
    if kind == events.ACCOMMODATING:
        return line["kind"] == kind and {**line, **facts} == line
    return line["kind"] == kind and line.get("request") == facts.get("request")


def _event(found: Any) -> dict[str, Any]:
    event: dict[str, Any] = _is(found, dict)
    if why := events.fault(event):
        raise TypeError(why)
    return event


def _plan(found: dict[str, Any]) -> Plan:
    groups = tuple(
        ProposedClass(
            _is(each["request"], str),
            _is(each["name"], str),
            _is(each["purity"], float),
            tuple(_is(row, int) for row in _is(each["rows"], list)),
        )
        for each in _is(found["groups"], list)
    )
    return Plan(_is(found["images"], int), found["drift"] and _is(found["drift"], str), groups)


def _document(path: Path, names: tuple[str, ...]) -> dict[str, Any]:
    require_regular(path)
    found: dict[str, Any] = _is(json.loads(path.read_bytes()), dict)
    if sorted(found) != sorted(names):
        raise ValueError(f"it must hold {', '.join(names)} alone")
    return found


def _is(value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool) or (isinstance(value, int) and value < 0):
        raise TypeError(f"{str(value)[:40]} is no {kind.__name__} that may stand there")
    return value
