"""Records: the log of trial results, one JSON line each, whole at every moment, whatever ends the program."""

from __future__ import annotations

import errno
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import NoReturn, TypeAlias

from shels.errors import DataError, MissingDataError
from shels.experiments.trials import Trial, TrialResult
from shels.files import check_writable, locked, require_regular, unharmed

_Stamp: TypeAlias = tuple[int, int, int]  # inode, size, time of change: what tells that a file is the same

_IN_USE = "another run is writing its results there; wait until it ends, or name another directory"


class Records:
    """The results that a directory keeps in `trials.jsonl`.

    Reading needs no lock. `append` takes it for itself; a run holds it throughout, by `held`, so that no
    other run does the same trials. What was read is remembered until the file changes.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / "trials.jsonl"
        self._locked = False
        self._read: tuple[_Stamp, dict[str, TrialResult]] | None = None

    def results(self) -> list[TrialResult]:
        """Return all results in the order of writing; of a trial that was written twice, the last.

        A last line that was cut off is left out. A damaged line before it is left out with a warning.
        """
        if not self.path.exists():
            raise MissingDataError(
                f"{self.directory} holds no results of trials (no {self.path.name}); "
                f"`shels reproduce EXPERIMENT --out {self.directory}` makes them"
            )
        return list(self._by_key().values())

    def find(self, trial: Trial) -> TrialResult | None:
        """Return the result of this very trial, or None: not run yet, or run with other settings."""
        return self._by_key().get(trial.key) if self.path.exists() else None

    def append(self, result: TrialResult) -> None:
        """Add a result, on disk when this returns; where it cannot be written whole, nothing is."""
        line = _line(result)
        again = _parsed(line)  # refuses what could not be read back
        with self.held(), unharmed(self.path, "the results in it are"):
            known = self._remembered()
            with FileIO(self.path, "a+") as file:
                _write_whole_line(file, _mend(file) + line)
            if known is not None:  # what was there need not be read again
                _keep(known, again)
                self._read = self._stamp(), known

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep every other run out of this directory; the system lets go of it however this one ends.

        Raises before any work where the directory cannot be written to, or another run holds it. Within it
        the same Records may ask again, as `append` does. The directory is made if need be.
        """
        if self._locked:
            yield
            return
        check_writable(self.directory)
        with locked(self.directory, _IN_USE):
            self._locked = True
            try:
                yield
            finally:
                self._locked = False

    def _stamp(self) -> _Stamp:
        state = self.path.stat()
        return state.st_ino, state.st_size, state.st_mtime_ns

    def _remembered(self) -> dict[str, TrialResult] | None:
        """Return what was read before, or None where nothing was, or the file has changed since."""
        if self._read is None or not self.path.exists() or self._read[0] != self._stamp():
            return None
        return self._read[1]

    def _by_key(self) -> dict[str, TrialResult]:
        known = self._remembered()
        if known is None:
            require_regular(self.path, DataError)
            try:
                stamp, content = self._stamp(), self.path.read_bytes()
            except OSError as error:
                raise DataError(f"{self.path} cannot be read ({error.strerror or error})") from error
            known = self._found(content)
            self._read = stamp, known
        return known

    def _found(self, content: bytes) -> dict[str, TrialResult]:
        found: dict[str, TrialResult] = {}
        *lines, last = content.split(b"\n")
        for number, line in enumerate(lines, start=1):
            try:
                if line.strip():
                    _keep(found, _parsed(line))
            except DataError as error:
                warnings.warn(f"{self.path}, line {number} is left out: {error}", stacklevel=4)
        with suppress(DataError):  # cut off, or being written at this moment
            if last:
                _keep(found, _parsed(last))
        return found


def _keep(results: dict[str, TrialResult], result: TrialResult) -> None:
    """Add a result as the last one; an earlier one of the same trial goes."""
    results.pop(result.trial.key, None)
    results[result.trial.key] = result


def _line(result: TrialResult) -> bytes:
    try:
        return json.dumps(result.record(), allow_nan=False).encode() + b"\n"
    except (TypeError, ValueError) as error:
        name = f"{result.trial.experiment}, {result.trial.method}, seed {result.trial.seed}"
        raise DataError(f"the result of {name} cannot be written as JSON: {error}") from error


def _parsed(line: bytes) -> TrialResult:
    try:
        return TrialResult.from_record(json.loads(line, parse_constant=_refuse))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:  # DataError is a ValueError
        raise DataError(f"it is no record of a trial ({error})") from error


def _refuse(constant: str) -> NoReturn:
    raise DataError(f"{constant} is no figure")


def _mend(file: FileIO) -> bytes:
    """Drop a last line that was cut off, and return what must stand before a new one."""
    if not file.seek(0, os.SEEK_END):
        return b""
    file.seek(-1, os.SEEK_END)
    if file.read(1) == b"\n":
        return b""
    file.seek(0)
    content = file.readall() or b""
    start = content.rfind(b"\n") + 1
    try:
        _parsed(content[start:])
    except DataError:
        os.ftruncate(file.fileno(), start)
        return b""
    return b"\n"  # written to the last byte but one


def _write_whole_line(file: FileIO, line: bytes) -> None:
    """Write at the end of a file in one go, to disk; where that fails, the file is as it was."""
    end = file.seek(0, os.SEEK_END)
    try:
        if file.write(line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # noqa: TRY301
        os.fsync(file.fileno())
    except BaseException:
        os.ftruncate(file.fileno(), end)
        raise
