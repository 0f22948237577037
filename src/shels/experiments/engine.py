"""Runs trials: those that train alike together, each result written down before anybody hears of it."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch

from shels import __version__, runtime
from shels.config import TrainingSettings
from shels.courses import Fit, Progress, TrialTraining
from shels.data.samples import DataSet
from shels.errors import ShelsError
from shels.experiments.measuring import Figures, measure
from shels.experiments.methods import METHODS
from shels.experiments.preparing import Training, prepared, require_classes, training_key
from shels.experiments.records import Records
from shels.experiments.trials import Trial, TrialResult
from shels.model.networks import Network
from shels.runs import Checkpoint
from shels.stepping import Loss
from shels.tasks import following
from shels.training import fit_trials, planned

Source: TypeAlias = Callable[[str, int | None], DataSet]
"""Gives a data set by its name, at the image size that a trial needs where its images have many sizes."""


@dataclass(frozen=True)
class Advance:
    """What a watcher of a run is told.

    trials: those that are trained together now. share: how much of their work is done, 0-1.
    result: kind "finished" comes once for each trial, with its result, after the result is on disk.
    message: kind "failed" says why these trials have no result; the run goes on with others.
    """

    kind: Literal["loading", "training", "measuring", "finished", "failed"]
    trials: tuple[Trial, ...]
    share: float = 0.0
    result: TrialResult | None = None
    message: str = ""


def run(
    trials: Sequence[Trial],
    records: Records,
    source: Source,
    *,
    device: str = "auto",
    most_together: int | None = None,
) -> Iterator[Advance]:
    """Run the trials that have no result yet, and tell how it goes.

    Trials that differ only in how they judge share one trained network. On a GPU trials are trained in stacks
    as large as memory allows, or `most_together`; on a CPU one after another, and one that is cut off goes on
    from its last validation. A stack that is cut off begins again.
    """
    place = runtime.device(device)
    _tidy(records, trials)
    missing = {trial.key: trial for trial in trials if records.find(trial) is None}
    for group in groups(list(missing.values())):
        everything = tuple(trial for training in group for trial in training)
        yield Advance("loading", everything)
        try:
            data = _Loaded(group, source, place)
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


def groups(trials: Sequence[Trial]) -> list[list[list[Trial]]]:
    """Return trials that can be stacked together, and in each group those that share a trained network."""
    out: dict[Any, dict[Any, list[Trial]]] = {}
    for trial in trials:
        settings = trial.settings
        alike = (trial.known_data, settings.network, settings.training, trial.precision, _loss_of(trial))
        same = (trial.seed, trial.known)
        out.setdefault(alike, {}).setdefault(same, []).append(trial)
    return [list(trainings.values()) for trainings in out.values()]


def _loss_of(trial: Trial) -> Callable[[Network, TrainingSettings], Loss]:
    return METHODS[trial.method].loss


class _Loaded:
    """A group of trials with its data, ready to train.

    refused: trials whose own classes or novel data cannot be had, each with the reason.
    """

    def __init__(self, group: Sequence[Sequence[Trial]], source: Source, device: torch.device) -> None:
        began = time.perf_counter()
        self.device, self.source, self.size = device, source, group[0][0].settings.network.image_size
        self.known = source(group[0][0].known_data, self.size)
        self.inputs = self.known.train.inputs.to(device)
        self.sets = {group[0][0].known_data: self.known}
        self.tests = {group[0][0].known_data: self.known.test.inputs.to(device)}
        self.refused: list[tuple[Trial, str]] = []
        good = [[trial for trial in training if self._usable(trial)] for training in group]
        self.trainings = [
            prepared(training, self.known, self.inputs, device) for training in good if training
        ]
        self.seconds = (time.perf_counter() - began) / max(1, len(self.trainings))

    def _usable(self, trial: Trial) -> bool:
        """Load what a trial calls novel, and tell whether all that it names is there."""
        try:
            if trial.novel_data not in self.sets:
                novel = self.source(trial.novel_data, self.size)
                self.sets[trial.novel_data] = novel
                self.tests[trial.novel_data] = novel.test.inputs.to(self.device)
            self.sets[trial.novel_data].test.places(trial.novel)
            self.known.test.places(trial.known)
            require_classes(trial, self.known)
        except (ShelsError, OSError) as error:
            self.refused.append((trial, str(error)))
            return False
        return True

    def stacks(self, most: int | None) -> Iterator[list[Training]]:
        """Give the trainings in portions of as many as are stacked."""
        if not self.trainings:
            return
        first = self.trainings[0]
        width = planned(first.network, first.data, first.settings)
        if self.device.type == "cuda":  # on a CPU one after another, so that each result is written at once
            width = most or width
        for start in range(0, len(self.trainings), width):
            yield self.trainings[start : start + width]


def _stack(stack: Sequence[Training], data: _Loaded, records: Records) -> Iterator[Advance]:
    """Train a stack, then measure and record each of its trials."""
    trials = tuple(trial for training in stack for trial in training.trials)
    clock = _Clock(loading=data.seconds * len(stack))
    went: list[Fit] = []

    def train(tell: Callable[[float], None]) -> None:
        went.extend(_train(stack, records, tell))

    try:
        for share in following(train):
            yield Advance("training", trials, share)
        clock.lap("training")
        yield Advance("measuring", trials, 1.0)
        good = [training for training, fit in zip(stack, went, strict=True) if fit.error is None]
        figures = _measured(good, data, clock)
    except (ShelsError, torch.OutOfMemoryError) as error:
        yield Advance("failed", trials, message=_reason(error))
        return
    facts = _Facts(data.device, clock, len(trials))
    for training, fit in zip(stack, went, strict=True):
        if fit.error is not None:
            yield Advance("failed", tuple(training.trials), message=str(fit.error))
            continue
        told = []
        for trial in training.trials:
            found = figures[trial.key]
            if isinstance(found, ShelsError):
                told.append(Advance("failed", (trial,), message=str(found)))
                continue
            result = _result(trial, found, fit, facts)
            records.append(result)
            told.append(Advance("finished", trials, 1.0, result))
        _checkpoint_path(records, training.trials[0]).unlink(missing_ok=True)
        yield from told


def _reason(error: Exception) -> str:
    if isinstance(error, torch.OutOfMemoryError):
        return "a single trial does not fit into the memory of the GPU; use a larger one, or the CPU"
    return str(error)


def _measured(stack: Sequence[Training], data: _Loaded, clock: _Clock) -> dict[str, Figures | ShelsError]:
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


def _train(stack: Sequence[Training], records: Records, tell: Callable[[float], None]) -> list[Fit]:
    """Train the networks of a stack in place, telling the share that is done."""
    first = stack[0]

    def watch(now: Progress) -> None:
        tell(now.step / max(1, now.steps))

    on_cpu = first.data.inputs.device.type == "cpu"
    stores = [
        Checkpoint(_checkpoint_path(records, training.trials[0])) if on_cpu else None for training in stack
    ]
    trials = [
        TrialTraining(training.network, training.data, training.seed, checkpoint=store)
        for training, store in zip(stack, stores, strict=True)
    ]
    loss = _loss_of(first.trials[0])(first.network, first.settings)
    precision = first.trials[0].precision
    together = None if on_cpu else len(stack)
    return fit_trials(trials, loss, first.settings, progress=watch, precision=precision, together=together)


def _checkpoint_path(records: Records, trial: Trial) -> Path:
    return records.directory / "unfinished" / f"{training_key(trial)}.safetensors"


class _Clock:
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


@dataclass(frozen=True)
class _Facts:
    """What all results of a stack have in common."""

    device: torch.device
    clock: _Clock
    trials: int


def _result(trial: Trial, measured: Figures, fit: Fit, facts: _Facts) -> TrialResult:
    """Return the record of a trial; its seconds are its share of the stack's."""
    tf32 = facts.device.type == "cuda" and trial.precision == "float32"
    stages = {name: value / facts.trials for name, value in facts.clock.seconds.items()}
    details = measured.details | {
        "checks": [vars(check) for check in fit.checks],
        "best_epoch": fit.best.epoch,
        "stages": stages,
        "stacked": fit.together,
        "precision": "TF32" if tf32 else trial.precision,
    }
    return TrialResult(
        trial, measured.metrics, sum(stages.values()), _device_name(facts.device), versions(), details
    )


def versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    return {"shels": __version__, "torch": torch.__version__, "python": platform.python_version()}


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    name = platform.processor() or platform.machine()
    return f"{name} CPU, {torch.get_num_threads()} threads"
