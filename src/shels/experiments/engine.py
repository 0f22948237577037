"""Runs trials: those that train alike together, each result written down before anybody hears of it."""

from __future__ import annotations

import platform
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import torch

from shels import __version__, runtime
from shels.errors import ShelsError
from shels.experiments.advances import Advance
from shels.experiments.features import Features
from shels.experiments.incremental import TrainedTrial, by_method, learn_classes
from shels.experiments.measuring import Figures, Measured, measure
from shels.experiments.methods import METHODS, Task, initial_training
from shels.experiments.open_world import run_agents
from shels.experiments.preparing import Loaded, Source, Training, groups, training_key
from shels.experiments.records import Records
from shels.experiments.trials import Trial, TrialResult
from shels.runtime import mapped
from shels.training import Checkpoint, Fit, TrialTraining, loop
from shels.training.data import State
from shels.training.losses import sparsity_state


class Results(Protocol):
    """What takes the results of trials. directory: where a training that is cut off leaves a checkpoint."""

    directory: Path

    def append(self, result: TrialResult) -> None:
        """Add a result."""


def run(
    trials: Sequence[Trial],
    records: Records,
    source: Source,
    *,
    device: str = "auto",
    most_together: int | None = None,
) -> Iterator[Advance]:
    """Run the trials that have no result yet, and report on the way.

    Trials that differ only in how they judge share one trained network. On a GPU trials are trained in stacks
    as large as memory allows, or `most_together`; on a CPU one after another, and one that is cut off goes on
    from its last validation, a stack from the last one that was written down, a minute or two ago.
    """
    place = runtime.device(device)
    _tidy(records, trials)
    missing = {trial.key: trial for trial in trials if records.find(trial) is None}
    yield from run_all(list(missing.values()), records, source, place, most_together)


def run_all(
    trials: Sequence[Trial], records: Results, source: Source, place: torch.device, most_together: int | None
) -> Iterator[Advance]:
    """Run trials, whatever results there are, and report on the way."""
    for group in groups(trials):
        everything = tuple(trial for training in group for trial in training)
        yield Advance("loading", everything)
        try:
            data = Loaded(group, source, place)
        except (ShelsError, OSError) as error:
            yield Advance("failed", everything, message=str(error))
            continue
        for trial, message in data.refused:
            yield Advance("failed", (trial,), message=message)
        for stack in data.stacks(most_together):
            yield from _stack(stack, data, records)


def _tidy(records: Records, trials: Sequence[Trial]) -> None:
    """Remove what a run that was cut off left behind: checkpoints of finished trials, half-written ones."""
    needed = {_checkpoint_path(records, trial) for trial in trials if records.find(trial) is None}
    for path in {_checkpoint_path(records, trial) for trial in trials} - needed:
        path.unlink(missing_ok=True)
    for half in (records.directory / "unfinished").glob(".*"):
        half.unlink(missing_ok=True)


def _checkpoint_path(records: Results, trial: Trial) -> Path:
    return records.directory / "unfinished" / f"{training_key(trial)}.safetensors"


_EVERY = 60.0
"""Seconds that a stack on a GPU trains before it is written down, and written again."""

# A stack: train, then measure or learn on, then record --------------------------------------------------


def _stack(stack: Sequence[Training], data: Loaded, records: Results) -> Iterator[Advance]:
    trials = tuple(trial for training in stack for trial in training.trials)
    clock = Clock(loading=data.seconds * len(stack))
    try:
        fits = yield from _train(stack, trials, records)
    except (ShelsError, torch.OutOfMemoryError) as error:
        yield Advance("failed", trials, message=_reason(error))
        return
    clock.lap("training")
    good = []
    for training, fit in zip(stack, fits, strict=True):
        if fit.error is None:
            good.append((training, fit))
        else:
            yield Advance("failed", tuple(training.trials), message=str(fit.error))
    spent = {name: value / len(trials) for name, value in clock.seconds.items()}
    trained = _Trained(good, trials, data, records, spent)
    yield from _measure(trained)
    yield from _learn(trained)
    for training, _ in good:
        _checkpoint_path(records, training.trials[0]).unlink(missing_ok=True)


def _train(
    stack: Sequence[Training], trials: tuple[Trial, ...], records: Results
) -> Generator[Advance, None, list[Fit]]:
    first, like = stack[0], stack[0].trials[0]
    on_cpu = first.data.inputs.device.type == "cpu"
    every = 0.0 if on_cpu else _EVERY
    stores = [Checkpoint(_checkpoint_path(records, each.trials[0]), every=every) for each in stack]
    varied = len({each.settings for each in stack}) > 1  # in α and μ alone: see `groups`
    networks = [
        TrialTraining(each.network, each.data, each.seed, _own_sparsity(each) if varied else {}, store)
        for each, store in zip(stack, stores, strict=True)
    ]
    objective = initial_training(like.method, like.settings).objective(first.network, first.settings)
    work = loop.training(
        networks,
        objective.loss,
        objective.settings,
        after_step=objective.after_step,
        precision=like.precision,
        together=None if on_cpu else len(stack),
    )
    return (yield from mapped(work, lambda now: Advance("training", trials, now.step / max(1, now.steps))))


def _own_sparsity(training: Training) -> State:
    return sparsity_state(training.network, training.settings)


@dataclass(frozen=True, eq=False)
class _Trained:
    """A stack after its training: what all of its results have in common.

    pairs: trainings that did not fail, and how they went. spent: seconds of each trial so far, by stage.
    """

    pairs: Sequence[tuple[Training, Fit]]
    trials: tuple[Trial, ...]
    data: Loaded
    records: Results
    spent: dict[str, float]

    def with_task(self, task: Task) -> list[TrainedTrial]:
        return [
            TrainedTrial(trial, training, fit)
            for training, fit in self.pairs
            for trial in training.trials
            if METHODS[trial.method].task == task
        ]

    def recorded(
        self,
        work: Sequence[TrainedTrial],
        figures: Mapping[str, Figures | ShelsError],
        clock: Clock,
        share: float = 1.0,
    ) -> Iterator[Advance]:
        """Write the results of some trials, and report each. share: how much of all the work is done."""
        spent = self.spent | {name: value / len(work) for name, value in clock.seconds.items()}
        for trial, _, fit in work:
            found = figures[trial.key]
            if isinstance(found, ShelsError):
                yield Advance("failed", (trial,), message=str(found))
                continue
            result = _result(trial, found, fit, spent, self.data.device)
            self.records.append(result)
            yield Advance("finished", self.trials, share, result)


def _measure(trained: _Trained) -> Iterator[Advance]:
    """Measure and record the trials that tell novel samples from known ones."""
    work, clock = trained.with_task("detection"), Clock()
    if not work:
        return
    yield Advance("measuring", trained.trials, 1.0)
    keys = {trial.key for trial, _, _ in work}
    stack = [replace(each, trials=[t for t in each.trials if t.key in keys]) for each, _ in trained.pairs]
    try:
        figures = _measured([each for each in stack if each.trials], trained.data, clock)
    except (ShelsError, torch.OutOfMemoryError) as error:
        yield Advance("failed", tuple(trial for trial, _, _ in work), message=_reason(error))
        return
    yield from trained.recorded(work, figures, clock)


def _measured(stack: Sequence[Training], data: Loaded, clock: Clock) -> dict[str, Figures | ShelsError]:
    """Return the figures of every trial; a stack whose features do not fit into memory is split."""
    try:
        precision = loop.PRECISIONS[stack[0].trials[0].precision]
        images = Measured(data.sets, data.tests, data.trains)
        return measure(stack, images, precision, clock.lap)
    except torch.OutOfMemoryError:
        if len(stack) == 1:
            raise
    torch.cuda.empty_cache()
    half = len(stack) // 2
    return _measured(stack[:half], data, clock) | _measured(stack[half:], data, clock)


_LATER_TASKS = {"learning": (learn_classes, "learning class by class"), "open-world": (run_agents, "agent")}
"""What goes on after the first training, and what its time is called, by task."""


def _learn(trained: _Trained) -> Iterator[Advance]:
    """Let the other trials learn class by class, one method after another, each recorded when it is done.

    Trials that do not fit into memory together are parted.
    """
    waiting = by_method([*trained.with_task("learning"), *trained.with_task("open-world")])
    done, every = 0, sum(map(len, waiting))
    features = _features(trained) if waiting else None
    while waiting and features:
        group, clock = waiting.pop(0), Clock()
        go_on, stage = _LATER_TASKS[METHODS[group[0].trial.method].task]

        def advance(share: float, before: int = done, size: int = len(group)) -> Advance:
            return Advance("learning", trained.trials, (before + share * size) / every)

        try:
            figures = yield from mapped(go_on(group, features), advance)
        except (ShelsError, torch.OutOfMemoryError) as error:
            if isinstance(error, torch.OutOfMemoryError) and len(group) > 1:
                half = len(group) // 2
                waiting[:0] = [group[:half], group[half:]]
                continue
            yield Advance("failed", tuple(trial for trial, _, _ in group), message=_reason(error))
        else:
            clock.lap(stage)
            yield from trained.recorded(group, figures, clock, (done + len(group)) / every)
        done += len(group)


def _features(trained: _Trained) -> Features:
    """Return what keeps the features of a stack's first networks for all methods on them."""
    (training, _), data = trained.pairs[0], trained.data
    precision = loop.PRECISIONS[training.trials[0].precision]
    return Features(data.known, training.data.inputs, data.tests[data.known.name], precision)


def _reason(error: Exception) -> str:
    if isinstance(error, torch.OutOfMemoryError):
        return "a single trial does not fit into the memory of the GPU; use a larger one, or the CPU"
    return str(error)


# Results ------------------------------------------------------------------------------------------------


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
    checks = [vars(check) for check in fit.checks]
    details = measured.details | {"checks": checks, "best_epoch": fit.best.epoch, "stages": dict(stages)}
    details |= {"stacked": fit.together, "precision": "TF32" if tf32 else trial.precision}
    seconds, place = sum(stages.values()), runtime.device_name(device)
    return TrialResult(trial, measured.metrics, seconds, place, versions(), details)


def versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    return {"shels": __version__, "torch": torch.__version__, "python": platform.python_version()}
