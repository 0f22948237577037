"""What is written down before it is done, so that a run that is cut off goes on as if it had not been.

A change of the model is finished or undone whole; what is new in a batch is decided once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shels.agent.events import fault
from shels.errors import ModelFileError
from shels.files import require_regular

if TYPE_CHECKING:
    from shels.agent.home import Home


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
            raise damaged(path, error, "to go on without the change that was under way") from error

    def is_in(self, events: Iterable[Mapping[str, Any]]) -> bool:
        """Tell whether the log has the event."""
        return any({**event, **self.event} == event for event in events)


@dataclass(frozen=True)
class Group:
    """A class that is proposed.

    request: the id of the question about it. name: provisional. rows: which of the waiting images it is.
    """

    request: str
    name: str
    purity: float
    rows: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """What a batch that looked new was found to hold; images: how many were judged. drift: why it is."""

    images: int
    drift: str | None = None
    groups: tuple[Group, ...] = ()


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

    def write(self, home: Home) -> None:
        """Put it into a home, whole."""
        home.write_batch_note(json.dumps(asdict(self)))

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


def damaged_plan(home: Home, why: object) -> ModelFileError:
    """Say that the note on the batch under way cannot be used."""
    return damaged(home.batch_note, why, "to look at that batch anew")


def damaged(path: Path, why: object, what_for: str) -> ModelFileError:
    """Say that a note cannot be used, and what deleting it is for."""
    return ModelFileError(f"{path} is damaged ({why}); delete it {what_for}")


def _event(found: Any) -> dict[str, Any]:
    event: dict[str, Any] = _is(found, dict)
    if fault(event):
        raise TypeError(fault(event))
    return event


def _plan(found: dict[str, Any]) -> Plan:
    groups = tuple(
        Group(
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
