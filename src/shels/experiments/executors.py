"""Where units of work are run: in this process, in others on this machine, or elsewhere (`on_ray`).

The driver decides what is to be done and is alone in adding to the records; an executor only runs units.
"""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from shels.errors import DataError, ShelsError
from shels.experiments import engine
from shels.experiments.advances import Advance, Tally
from shels.experiments.preparing import Source
from shels.experiments.records import Records
from shels.experiments.trials import Trial
from shels.experiments.units import Unit, UnitFolder, planned_units

_SHARED = 30.0  # seconds in which a file that another machine wrote must appear here
_POLL = 0.5  # seconds to wait for a unit to end before anything else is looked at
_LOOK = 2.0  # seconds between two looks at what units note of themselves


class Executor(Protocol):
    """Runs units of work somewhere."""

    def check(self, trials: Sequence[Trial]) -> list[str]:
        """Make sure that trials can be run there, before any is; give notes for people, or raise."""

    def run(self, trials: Sequence[Trial]) -> Iterator[Advance]:
        """Run trials that have no result, and report on the way; results are on disk before they are told."""


@dataclass(frozen=True)
class InProcess:
    """Runs everything in this process, in the stacks that fit its device."""

    records: Records
    source: Source
    device: str = "auto"
    most_together: int | None = None

    def check(self, trials: Sequence[Trial]) -> list[str]:
        """Nothing can be missing here that the caller has not seen."""
        return []

    def run(self, trials: Sequence[Trial]) -> Iterator[Advance]:
        """Run trials by the engine itself; each result is recorded at once."""
        return engine.run(
            trials, self.records, self.source, device=self.device, most_together=self.most_together
        )


@dataclass(frozen=True)
class Terms:
    """How units are run, whoever does it. together: trials in one stack at most."""

    data_dir: Path | None = None
    device: str = "auto"
    together: int | None = None


@dataclass(frozen=True)
class Ending:
    """A unit that came to its end. failed: by key why trials have no result."""

    unit: Unit
    failed: dict[str, str] = field(default_factory=dict)


def failed_whole(unit: Unit, message: str) -> Ending:
    """Say that no trial of a unit has a result, and why: the first line of what went wrong."""
    line = next(iter(message.strip().splitlines()), "no reason was given")
    return Ending(unit, {trial.key: line for trial in unit.trials})


def in_words(error: BaseException) -> str:
    """Write an error as the reason why a unit failed; one that nobody expected with its kind."""
    if isinstance(error, ShelsError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return f"{type(error).__name__}: {error}"


def driven(trials: Sequence[Trial], records: Records, executor: Executor) -> Iterator[Advance]:
    """Run the trials that have no result yet, wherever it is, and report on the way.

    Units that others have finished since, or before a run was cut off, are taken up first.
    """
    folder, wanted = UnitFolder(records.directory), {trial.key for trial in trials}
    for unit in folder.planned():
        if any(trial.key in wanted for trial in unit.trials):
            try:
                yield from fold(folder, unit, records, wanted)
            except DataError as error:  # it is run again
                warnings.warn(str(error), stacklevel=2)
    missing = [trial for trial in trials if records.find(trial) is None]
    if missing:
        yield from executor.run(missing)


def fold(folder: UnitFolder, unit: Unit, records: Records, wanted: Container[str]) -> Iterator[Advance]:
    """Add the results of a unit that is done to the records, of wanted trials that have none there."""
    for result in folder.results(unit) if folder.is_done(unit) else ():
        if result.trial.key in wanted and records.find(result.trial) is None:
            records.append(result)
            yield Advance("finished", (result.trial,), 1.0, result, unit=unit.id)


class Elsewhere(ABC):
    """An executor whose units run in other processes: what is the same wherever these are."""

    def __init__(self, records: Records, terms: Terms, block: int) -> None:
        self.records, self.terms, self.block = records, terms, block
        self.folder = UnitFolder(records.directory.resolve())  # the same, wherever a process stands
        self._notes: list[str] = []  # for people, not told yet

    @abstractmethod
    def check(self, trials: Sequence[Trial]) -> list[str]:
        """See `Executor`."""

    @abstractmethod
    def _start(self, unit: Unit) -> None:
        """Take a unit into work, now or when there is room."""

    @abstractmethod
    def _ended(self, seconds: float) -> list[Ending]:
        """Tell which units came to an end; wait for one so long at most."""

    @abstractmethod
    def _place(self, where: str) -> str | None:
        """Name a place for people, by what a unit noted; None where it is no more."""

    @abstractmethod
    def _stop(self) -> None:
        """End whatever is still under way."""

    def run(self, trials: Sequence[Trial]) -> Iterator[Advance]:
        """Run trials as units."""
        units = {unit.id: unit for unit in planned_units(trials, self.block)}
        self.folder.plan(units.values())
        for unit in units.values():
            self.folder.forget_note(unit)
        try:
            for unit in units.values():
                self._start(unit)
            yield from self._follow(units)
        finally:
            self._stop()

    def _follow(self, waiting: dict[str, Unit]) -> Iterator[Advance]:
        done, failed, looked = 0, 0, -_LOOK
        while waiting:
            if time.monotonic() - looked >= _LOOK:
                yield from self._under_way(waiting, done, failed)
                looked = time.monotonic()
            endings = self._ended(_POLL)
            for note in self._notes:
                yield Advance("note", (), message=note)
            self._notes.clear()
            for ending in endings:
                del waiting[ending.unit.id]
                advances = list(self._taken_up(ending))
                lost = any(advance.kind == "failed" for advance in advances)
                done, failed = done + (not lost), failed + lost
                yield from advances
        yield Advance("tally", (), tally=Tally(0, (), done, failed))

    def _under_way(self, units: dict[str, Unit], done: int, failed: int) -> Iterator[Advance]:
        """Report what units have noted of themselves, and how all of them stand."""
        places = []
        for name, note in self.folder.notes().items():
            where = self._place(note.where)
            if name in units and where:
                places.append(where)
                yield Advance(note.kind, units[name].trials, note.share, unit=name)
        tally = Tally(len(units) - len(places), tuple(places), done, failed)
        yield Advance("tally", (), tally=tally)

    def _taken_up(self, ending: Ending) -> Iterator[Advance]:
        """Record what a unit came to, and report it; what cannot be recorded stays in the unit's file."""
        unit, failed = ending.unit, dict(ending.failed)
        try:
            if len(failed) < len(unit.trials):
                self._require_file(unit)
            keys = {trial.key for trial in unit.trials}
            yield from fold(self.folder, unit, self.records, keys)
        except (ShelsError, OSError) as error:
            failed = {trial.key: in_words(error) for trial in unit.trials} | failed
        lost = {trial: failed[trial.key] for trial in unit.trials if trial.key in failed}
        for reason in dict.fromkeys(lost.values()):
            some = tuple(trial for trial in lost if lost[trial] == reason)
            without = tuple(trial for trial in some if self.records.find(trial) is None)
            if without:
                yield Advance("failed", without, message=reason, unit=unit.id)

    def _require_file(self, unit: Unit) -> None:
        """Wait for a file that another machine has written; network folders may show it late."""
        end = time.monotonic() + _SHARED
        while not self.folder.is_done(unit):
            if time.monotonic() > end:
                raise DataError(
                    f"unit {unit.id} was run, and its file is not in {self.folder.path} as this machine sees "
                    "it; --out must be a folder that is the same on all nodes"
                )
            list(self.folder.path.iterdir())  # a network folder looks again
            time.sleep(_POLL)
