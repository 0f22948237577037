"""What is written about the batch under way: what is new in it is decided once, also across a stop."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shels.agent.home import Home


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
    """What a batch that looked new was found to hold; images: how many were looked at. drift: why it is."""

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
        text = home.read_batch_note()
        if text is None:
            return None
        try:
            found = json.loads(text)
            plan = found.pop("plan")
            note = BatchNote(**found, plan=None if plan is None else _plan(plan))
            _require(note.key, str), _require(note.settings, str)
            _require(note.log, int), _require(note.last, int)
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            raise home.damaged_batch_note(error) from error
        return note


def _plan(found: dict[str, Any]) -> Plan:
    groups = tuple(
        Group(
            _require(each["request"], str),
            _require(each["name"], str),
            _require(each["purity"], float),
            tuple(_require(row, int) for row in _require(each["rows"], list)),
        )
        for each in _require(found["groups"], list)
    )
    drift = None if found["drift"] is None else _require(found["drift"], str)
    return Plan(_require(found["images"], int), drift, groups)


def _require(value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool) or (isinstance(value, int) and value < 0):
        raise TypeError(f"{str(value)[:40]} is no {kind.__name__} that may stand there")
    return value
