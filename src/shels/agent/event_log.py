"""The log of a home: one JSON object a line, only ever added to, readable whatever ended the program."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shels.agent import events as kinds
from shels.errors import ModelFileError
from shels.files import append_whole, require_regular, unharmed


@dataclass(frozen=True)
class EventLog:
    """The events of a home, in the file that holds them."""

    path: Path

    def add(self, event: Mapping[str, Any]) -> int:
        """Add an event, on disk when this returns; its time is added where not given.

        Returns where its line ends. A line that a crash cut off before stays alone on its line, so that it
        spoils no other.
        """
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        whole = {"time": now, **event}
        try:
            line = json.dumps(whole, allow_nan=False).encode() + b"\n"
        except (TypeError, ValueError) as error:
            raise ModelFileError(f"the event {whole} cannot be written as JSON: {error}") from error
        require_regular(self.path)
        with unharmed(self.path.parent, "what it holds is"), self.path.open("a+b", buffering=0) as file:
            end = file.tell()
            if end:
                file.seek(-1, os.SEEK_END)
                line = line if file.read(1) == b"\n" else b"\n" + line
            append_whole(file, line)
            return end + len(line)

    @property
    def size(self) -> int:
        """How long the log is by now, in bytes."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def placed(self, start: int = 0) -> list[tuple[int, dict[str, Any]]]:
        """Return all events in the order in which they were added, each with where its line ends.

        start: a size that the log once had, to leave out what was in it. A line that a crash cut off is left
        out; one that is no event of its kind, which no crash leaves, is left out with a warning.
        """
        path = self.path
        require_regular(path)
        try:
            with path.open("rb") as file:
                file.seek(start)
                lines = file.read().split(b"\n")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ModelFileError(f"{path} cannot be read: {error}") from error
        found, end = [], start
        for line in lines:
            end += len(line) + 1
            event, fault = _parsed(line)
            if fault:
                warnings.warn(f"{path}: a line is left out, {fault}", UserWarning, stacklevel=2)
            elif event is not None:
                found.append((end, event))
        return found


def _parsed(line: bytes) -> tuple[dict[str, Any] | None, str]:
    """Return the event of a line, None for one that was cut off, and what is wrong with any other."""
    try:
        event = json.loads(line)
    except ValueError:  # also what is not UTF-8
        return None, ""
    except RecursionError:
        return None, "nested too deep"
    return (event, kinds.fault(event)) if isinstance(event, dict) else (None, "")
