"""The change under way, written down before it begins: a run that is cut off finishes or undoes it whole."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shels.agent.events import fault
from shels.errors import ModelFileError
from shels.files import require_regular


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
        require_regular(path)
        try:
            found = Pending(**json.loads(path.read_bytes()))
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise _damaged(path, error) from error
        found._check(path)
        return Pending(found.version, found.event, found.log, tuple(found.hold), tuple(found.drop))

    def is_in(self, events: Iterable[Mapping[str, Any]]) -> bool:
        """Tell whether the event is among those of the log."""
        return any({**event, **self.event} == event for event in events)

    def _check(self, path: Path) -> None:
        counts = all(isinstance(each, int) and each >= 0 for each in (self.version, self.log))
        names = all(
            isinstance(each, list) and all(isinstance(name, str) for name in each)
            for each in (self.hold, self.drop)
        )
        if not counts or not names or not isinstance(self.event, dict) or fault(self.event):
            raise _damaged(path, "its parts are not what they must be")


def _damaged(path: Path, why: object) -> ModelFileError:
    return ModelFileError(
        f"{path} is damaged ({why}); delete it to go on without the change that was under way"
    )
