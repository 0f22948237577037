"""What a trained stack comes to: its trials judged, or taken on class by class, and written down at once."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import torch
from torch import Tensor

from shels import __version__
from shels.data.samples import DataSet
from shels.errors import ShelsError
from shels.experiments.incremental import Work, by_method, learn_classes
from shels.experiments.measuring import Figures, measure
from shels.experiments.methods import METHODS
from shels.experiments.preparing import Training
from shels.experiments.records import Records
from shels.experiments.trials import Trial, TrialResult
from shels.training.courses import Fit
from shels.training.tasks import following


@dataclass(frozen=True)
class Advance:
    """What a watcher of a run is told.

    trials: those that are trained together now. share: how much of their work is done, 0-1.
    result: kind "finished" comes once for each trial, with its result, after the result is on disk.
    message: kind "failed" says why these trials have no result; the run goes on with others.
    """

    kind: Literal["loading", "training", "measuring", "learning", "finished", "failed"]
    trials: tuple[Trial, ...]
    share: float = 0.0
    result: TrialResult | None = None
    message: str = ""


class Loaded(Protocol):
    """Data of trials: the set of the known classes, all sets by name, test inputs where networks compute."""

    device: torch.device
    known: DataSet
    sets: dict[str, DataSet]
    tests: dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Trained:
    """A stack after its training: what all of its results have in common.

    pairs: trainings that went well, and how. spent: seconds of each trial so far, by stage.
    """

    pairs: Sequence[tuple[Training, Fit]]
    trials: tuple[Trial, ...]
    data: Loaded
    records: Records
    spent: dict[str, float]

    def with_task(self, task: str) -> list[Work]:
        """Return the trials that have this task."""
        return [
            (trial, training, fit)
            for training, fit in self.pairs
            for trial in training.trials
            if METHODS[trial.method].task == task
        ]

    def recorded(
        self,
        work: Sequence[Work],
        figures: Mapping[str, Figures | ShelsError],
        clock: Clock,
        share: float = 1.0,
    ) -> Iterator[Advance]:
        """Write the results of some trials, and tell of each. share: how much of all the work is done."""
        spent = self.spent | {name: value / len(work) for name, value in clock.seconds.items()}
        for trial, _, fit in work:
            found = figures[trial.key]
            if isinstance(found, ShelsError):
                yield Advance("failed", (trial,), message=str(found))
                continue
            result = _result(trial, found, fit, spent, self.data.device)
            self.records.append(result)
            yield Advance("finished", self.trials, share, result)


def detection(trained: Trained) -> Iterator[Advance]:
    """Measure and record the trials that tell novel samples from known ones."""
    work, clock = trained.with_task("detection"), Clock()
    if not work:
        return
    yield Advance("measuring", trained.trials, 1.0)
    asked = {trial.key for trial, _, _ in work}
    mine = [(each, [t for t in each.trials if t.key in asked]) for each, _ in trained.pairs]
    try:
        figures = _measured([replace(each, trials=ts) for each, ts in mine if ts], trained.data, clock)
    except (ShelsError, torch.OutOfMemoryError) as error:
        yield Advance("failed", tuple(trial for trial, _, _ in work), message=reason(error))
        return
    yield from trained.recorded(work, figures, clock)


def learning(trained: Trained) -> Iterator[Advance]:
    """Let the other trials learn class by class, one method after another, each recorded when it is done.

    Trials that do not fit into memory together are parted.
    """
    groups = by_method(trained.with_task("learning"))
    done, every = 0, sum(map(len, groups))
    while groups:
        group, clock = groups.pop(0), Clock()
        learn = _Learning(group, trained.data)
        try:
            for share in following(learn):
                yield Advance("learning", trained.trials, (done + share * len(group)) / every)
        except (ShelsError, torch.OutOfMemoryError) as error:
            if isinstance(error, torch.OutOfMemoryError) and len(group) > 1:
                half = len(group) // 2
                groups[:0] = [group[:half], group[half:]]
                continue
            yield Advance("failed", tuple(trial for trial, _, _ in group), message=reason(error))
        else:
            clock.lap("learning class by class")
            yield from trained.recorded(group, learn.figures, clock, (done + len(group)) / every)
        done += len(group)


class _Learning:
    """Trials of one method that learn class by class when it is called; `figures` then holds what came."""

    def __init__(self, group: Sequence[Work], data: Loaded) -> None:
        self.group, self.data = group, data
        self.figures: dict[str, Figures | ShelsError] = {}

    def __call__(self, tell: Callable[[float], None]) -> None:
        known = self.data.known
        self.figures = learn_classes(self.group, known, self.data.tests[known.name], tell)


def reason(error: Exception) -> str:
    """Return what to tell of an error that leaves trials without a result."""
    if isinstance(error, torch.OutOfMemoryError):
        return "a single trial does not fit into the memory of the GPU; use a larger one, or the CPU"
    return str(error)


def _measured(stack: Sequence[Training], data: Loaded, clock: Clock) -> dict[str, Figures | ShelsError]:
    """Return the figures of every trial; a stack whose features do not fit into memory is split."""
    if not stack:
        return {}
    try:
        precision = getattr(torch, stack[0].trials[0].precision)
        return measure(stack, data.known, data.sets, data.tests, precision, clock.lap)
    except torch.OutOfMemoryError:
        if len(stack) == 1:
            raise
    torch.cuda.empty_cache()
    half = len(stack) // 2
    return _measured(stack[:half], data, clock) | _measured(stack[half:], data, clock)


class Clock:
    """Seconds by stage."""

    def __init__(self, **seconds: float) -> None:
        self.seconds, self._last = dict(seconds), time.perf_counter()

    def lap(self, stage: str) -> None:
        """Count the time since the last lap to a stage."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now


def _result(
    trial: Trial, measured: Figures, fit: Fit, stages: Mapping[str, float], device: torch.device
) -> TrialResult:
    """Return the record of a trial; its seconds are its share of those of all that it ran with."""
    tf32 = device.type == "cuda" and trial.precision == "float32"
    details = measured.details | {
        "checks": [vars(check) for check in fit.checks],
        "best_epoch": fit.best.epoch,
        "stages": dict(stages),
        "stacked": fit.together,
        "precision": "TF32" if tf32 else trial.precision,
    }
    return TrialResult(
        trial, measured.metrics, sum(stages.values()), _device_name(device), versions(), details
    )


def versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    return {"shels": __version__, "torch": torch.__version__, "python": platform.python_version()}


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    name = platform.processor() or platform.machine()
    threads = torch.get_num_threads()
    return f"{name} CPU, {threads} thread{'s' * (threads > 1)}"
