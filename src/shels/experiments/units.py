"""Units of work: trials that are trained together, run anywhere, each leaving one whole file behind.

A folder `units` beside the records holds what every machine of a run sees, for the unit of id ID:

    ID.json      what it is: trials and code version, written by whoever planned it
    ID.running   where it is worked on now, and how far it is; for people
    ID.jsonl     its results, written whole when it is done: a unit whose file exists is done
    .ID/         checkpoints of a training that may be cut off, gone when it is done

Only the driver, who holds the records, adds results to them: `executors.fold`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, get_args

from shels import __version__, runtime
from shels.errors import DataError, MissingDataError
from shels.experiments import engine
from shels.experiments.advances import Advance
from shels.experiments.preparing import groups
from shels.experiments.records import read_results, record_line
from shels.experiments.selection import named_data
from shels.experiments.trials import Trial, TrialResult
from shels.files import write_whole

_EVERY = 2.0  # seconds between two notes of how far a unit is


@dataclass(frozen=True)
class Unit:
    """Trials that are run together: some methods of an experiment on networks of a block of seeds.

    code: the version that runs them, as `code_version` gives it.
    """

    trials: tuple[Trial, ...]
    code: str

    @cached_property
    def id(self) -> str:
        """A digest of all that decides its figures: its trials with their settings, and the code."""
        text = json.dumps([self.code, sorted(trial.key for trial in self.trials)])
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


Doing: TypeAlias = Literal["loading", "training", "measuring", "learning"]


class Note(NamedTuple):
    """Where a unit is worked on, what is done with it, and how much of that is done, 0-1."""

    where: str
    kind: Doing
    share: float


@cache
def code_version() -> str:
    """Give the version of this package and a digest of its files: a changed line is another version."""
    digest = hashlib.blake2b(digest_size=4)
    root = Path(str(files("shels")))
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return f"{__version__}+{digest.hexdigest()}"


def planned_units(trials: Sequence[Trial], block: int) -> list[Unit]:
    """Part trials into units: those that can be stacked, with seeds 0 to block - 1, and so on.

    Trials that share a trained network are never parted.

    >>> from shels.experiments.selection import select_trials
    >>> chosen = select_trials(["within/digits"], ["shels", "msp"], 3, {}).trials
    >>> [len(unit.trials) for unit in planned_units(chosen, block=2)]
    [2, 1, 2, 1]
    """
    units = []
    for group in groups(trials):
        blocks: dict[int, list[Trial]] = {}
        for training in group:
            blocks.setdefault(training[0].seed // block, []).extend(training)
        units += [Unit(tuple(some), code_version()) for some in blocks.values()]
    return units


class UnitFolder:
    """The units of a run on disk, in a folder that all who run them see."""

    def __init__(self, records: Path) -> None:
        self.path = records / "units"

    def plan(self, units: Iterable[Unit]) -> None:
        """Write down what units are, for those who know nothing but an id."""
        for unit in units:
            path = self._of(unit.id, ".json")
            if not path.exists():
                trials = [trial.identity() for trial in unit.trials]
                write_whole(path, json.dumps({"code": unit.code, "trials": trials}))

    def planned(self) -> list[Unit]:
        """Read all units that were planned by this version of the code; those of others are none."""
        found = [self.unit(path.stem) for path in sorted(self.path.glob("[!.]*.json"))]
        return [unit for unit in found if unit.code == code_version()]

    def unit(self, name: str) -> Unit:
        """Read what the unit of an id is."""
        path = self._of(name, ".json")
        try:
            told = json.loads(path.read_bytes())
            return Unit(tuple(map(Trial.from_identity, told["trials"])), str(told["code"]))
        except FileNotFoundError as error:
            raise MissingDataError(
                f"{self.path} has no unit {name!r}; `shels reproduce EXPERIMENT --plan --out "
                f"{self.path.parent}` plans units and prints their ids"
            ) from error
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path} is no unit ({error}); remove it, and plan again") from error

    def is_done(self, unit: Unit) -> bool:
        """Tell whether a unit's results are here."""
        return self._of(unit.id, ".jsonl").exists()

    def results(self, unit: Unit) -> list[TrialResult]:
        """Read the results of a unit that is done; a file that is not whole is removed, and is an error."""
        path = self._of(unit.id, ".jsonl")
        found, damage = read_results(path)
        if damage:
            path.unlink(missing_ok=True)
            raise DataError(f"{path} was damaged and is removed; the same command runs the unit again")
        wanted = {trial.key for trial in unit.trials}
        return [result for key, result in found.items() if key in wanted]

    def note(self, unit: Unit, where: str, now: Advance | None = None) -> None:
        """Note where a unit is worked on, and how far it is; only for people, so that a failure is none."""
        told = (where, now.kind, now.share) if now else (where, "loading", 0.0)
        with suppress(OSError):
            write_whole(self._of(unit.id, ".running"), json.dumps(told))

    def notes(self) -> dict[str, Note]:
        """Read what was noted last of all units under way, by id."""
        found: dict[str, Note] = {}
        for path in self.path.glob("[!.]*.running"):
            with suppress(OSError, ValueError, TypeError):
                note = Note(*json.loads(path.read_bytes()))
                found |= {path.stem: note} if note.kind in get_args(Doing) else {}
        return found

    def keep(self, unit: Unit, results: Sequence[TrialResult]) -> None:
        """Write the results of a unit, whole or not at all."""
        write_whole(self._of(unit.id, ".jsonl"), b"".join(map(record_line, results)))

    def scratch(self, unit: Unit) -> Path:
        """Name the place for checkpoints of a unit."""
        return self.path / f".{unit.id}"

    def forget_note(self, unit: Unit) -> None:
        """Remove the note of a unit that is not under way."""
        with suppress(OSError):
            self._of(unit.id, ".running").unlink(missing_ok=True)

    def _of(self, name: str, ending: str) -> Path:
        return self.path / f"{name}{ending}"


class _Collected:
    """The results of a unit, until all are there."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.results = directory, list[TrialResult]()

    def append(self, result: TrialResult) -> None:
        self.results.append(result)


def run_unit(
    folder: UnitFolder,
    name: str,
    where: str,
    data_dir: Path | None = None,
    device: str = "auto",
    together: int | None = None,
) -> dict[str, str]:
    """Run a unit in this process and write its file; return by key why trials have no result.

    A unit whose file is there is not run. One that was cut off, here or elsewhere, goes on from its last
    checkpoint. Where every trial fails there is no file, so that the next run tries again.
    """
    unit = folder.unit(name)
    if folder.is_done(unit):
        return {}
    if unit.code != code_version():
        raise DataError(f"unit {name} is of version {unit.code}, and {code_version()} runs here; plan again")
    folder.note(unit, where)
    taken = _Collected(folder.scratch(unit))
    try:
        work = engine.run_all(unit.trials, taken, named_data(data_dir), runtime.device(device), together)
        failed = _followed(work, lambda now: folder.note(unit, where, now))
        if taken.results:
            folder.keep(unit, taken.results)
    finally:
        folder.forget_note(unit)
    shutil.rmtree(taken.directory, ignore_errors=True)
    return failed


def _followed(work: Iterator[Advance], note: Callable[[Advance], None]) -> dict[str, str]:
    """Run work to its end, noting now and then how far it is; return by key why trials failed."""
    failed, last = dict[str, str](), time.monotonic()
    for advance in work:
        if advance.kind == "failed":
            failed |= {trial.key: advance.message for trial in advance.trials}
        elif time.monotonic() - last > _EVERY:
            note(advance)
            last = time.monotonic()
    return failed
