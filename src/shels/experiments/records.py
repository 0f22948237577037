"""Records: the log of trial results, one JSON line each, whole at every moment, whatever ends the program."""

from __future__ import annotations

import errno
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import NoReturn, TypeAlias

from shels.errors import DataError, MissingDataError
from shels.experiments.trials import Trial, TrialResult
from shels.files import check_writable, locked, require_regular, unharmed
from shels.learner.versions import is_home

_Stamp: TypeAlias = tuple[tuple[str, int, int, int], ...]  # name, inode, size, time of change of each file

_CUT = "the last"
"""Stands for the number of a line without an end."""
_IN_USE = "another run is writing its results there; wait until it ends, or name another directory"


class Records:
    """The results that a directory keeps: those of its runs in `trials.jsonl`, and those packed before.

    Packed ones (see `packing`) lie in other files, `within.jsonl` and so on, and are only read. Reading needs
    no lock. `append` takes it for itself; a run holds it throughout, by `held`, so that no other run does the
    same trials. What was read is remembered until a file changes.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / "trials.jsonl"
        self._locked = False
        self._read: tuple[_Stamp, dict[str, TrialResult]] | None = None

    def results(self) -> list[TrialResult]:
        """Return all results in the order of writing, packed ones first; of a trial with several, the last.

        A last line that was cut off is left out. A damaged line before it is left out with a warning.
        """
        if self.directory.is_file():
            raise DataError(f"{self.directory} is a file; name the directory that holds results of trials")
        if not self.any():
            raise MissingDataError(
                f"{self.directory} holds no results of trials (no {self.path.name}); "
                f"`shels reproduce EXPERIMENT --out {self.directory}` makes them"
            )
        return list(self._by_key().values())

    def any(self) -> bool:
        """Whether there is a file with results."""
        return bool(self._files())

    def packed(self) -> list[TrialResult]:
        """Return the packed results alone, whatever was run here since; none is an error.

        They were written whole, so a line that cannot be read is damage, and whoever wrote them anew without
        it would lose it: that is an error too.
        """
        found: dict[str, TrialResult] = {}
        for path in self._packed_files():
            some, damage = read_results(path)
            for number, error in damage.items():
                raise DataError(f"{path}, line {number}: {error}; mend the file, or get it back as it was")
            found |= some
        if not found:
            raise MissingDataError(
                f"{self.directory} holds no packed results; `shels report DIR --pack {self.directory}` packs "
                "those of runs"
            )
        return list(found.values())

    def check(self) -> None:
        """Raise where the directory is a model's, whose log and files are no results."""
        if (self.directory / "model.json").exists() or is_home(self.directory):
            raise DataError(f"{self.directory} holds a model; name another directory for results and report")

    def find(self, trial: Trial) -> TrialResult | None:
        """Return the result of this very trial, or None: not run yet, or run with other settings.

        A packed result knows of a file of weights no more than its name.
        """
        if not self.any():
            return None
        known = self._by_key()
        return known.get(trial.key) or known.get(without_folder(trial).key)

    def append(self, result: TrialResult) -> None:
        """Add a result, on disk when this returns; where it cannot be written whole, nothing is."""
        line = record_line(result)
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

    def _packed_files(self) -> list[Path]:
        return sorted(path for path in self.directory.glob("[!.]*.jsonl") if path != self.path)

    def _files(self) -> list[Path]:
        """List the files with results, that of runs last, so that a result of theirs counts."""
        return [*self._packed_files(), *([self.path] if self.path.exists() else [])]

    def _stamp(self) -> _Stamp:
        states = [(path.name, path.stat()) for path in self._files()]
        return tuple((name, state.st_ino, state.st_size, state.st_mtime_ns) for name, state in states)

    def _remembered(self) -> dict[str, TrialResult] | None:
        """Return what was read before, or None where nothing was, or a file has changed since."""
        if self._read is None or self._read[0] != self._stamp():
            return None
        return self._read[1]

    def _by_key(self) -> dict[str, TrialResult]:
        known = self._remembered()
        if known is None:
            stamp, known = self._stamp(), {}
            for path in self._files():
                for result in _found(path).values():
                    _keep(known, result)
            self._read = stamp, known
        return known


def without_folder(trial: Trial) -> Trial:
    """Return a trial whose file of pretrained weights, if any, is called by its name, wherever it lies."""
    network = trial.settings.network
    if network.weights is None:
        return trial
    named = replace(network, weights=Path(network.weights).name)
    return replace(trial, settings=replace(trial.settings, network=named))


def _found(path: Path) -> dict[str, TrialResult]:
    """Read the results in a file by their keys, in order; damaged lines are left out with a warning.

    Not so a last line without its end: it was cut off, or is being written at this moment.
    """
    found, damage = read_results(path)
    for number, error in damage.items():
        if number != _CUT:
            warnings.warn(f"{path}, line {number} is left out: {error}", stacklevel=4)
    return found


def read_results(path: Path) -> tuple[dict[str, TrialResult], dict[int | str, DataError]]:
    """Read the results in a file by their keys, in order, and what is wrong with lines, by their numbers."""
    require_regular(path, DataError)
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error})") from error
    found: dict[str, TrialResult] = {}
    damage: dict[int | str, DataError] = {}
    for number, line in enumerate(lines, start=1):
        try:
            if line.strip():
                _keep(found, _parsed(line))
        except DataError as error:
            damage[number if number < len(lines) else _CUT] = error
    return found, damage


def _keep(results: dict[str, TrialResult], result: TrialResult) -> None:
    """Add a result as the last one; an earlier one of the same trial goes."""
    results.pop(result.trial.key, None)
    results[result.trial.key] = result


def record_line(result: TrialResult, *, dense: bool = False) -> bytes:
    """Write a result as a line of a log. dense: without spaces."""
    separators = (",", ":") if dense else None
    try:
        return json.dumps(result.record(), allow_nan=False, separators=separators).encode() + b"\n"
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
