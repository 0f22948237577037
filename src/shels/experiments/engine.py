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
from shels.courses import Fit, Progress, TrialTraining
from shels.data.samples import DataSet
from shels.errors import ShelsError
from shels.experiments.measuring import Figures, measure
from shels.experiments.preparing import Training, prepared
from shels.experiments.records import Records
from shels.experiments.trials import Trial, TrialResult
from shels.runs import Checkpoint
from shels.tasks import following
from shels.training import fit_trials, planned, shels_loss

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
    for group in groups([trial for trial in trials if records.find(trial) is None]):
        everything = tuple(trial for training in group for trial in training)
        yield Advance("loading", everything)
        try:
            data = _Loaded(group, source, place)
        except ShelsError as error:
            yield Advance("failed", everything, message=str(error))
            continue
        for stack in data.stacks(most_together):
            yield from _stack(stack, data, records)


def groups(trials: Sequence[Trial]) -> list[list[list[Trial]]]:
    """Return trials that can be stacked together, and in each group those that share a trained network."""
    out: dict[Any, dict[Any, list[Trial]]] = {}
    for trial in trials:
        alike = (trial.known_data, trial.settings.network, trial.settings.training, trial.precision)
        same = (trial.seed, trial.known)
        out.setdefault(alike, {}).setdefault(same, []).append(trial)
    return [list(trainings.values()) for trainings in out.values()]


class _Loaded:
    """A group of trials with its data, ready to train."""

    def __init__(self, group: Sequence[Sequence[Trial]], source: Source, device: torch.device) -> None:
        self.device, self.began = device, time.perf_counter()
        first = group[0][0]
        names = {first.known_data, *(trial.novel_data for training in group for trial in training)}
        size = first.settings.network.image_size
        self.sets = {name: source(name, size) for name in names}
        self.known = self.sets[first.known_data]
        self.inputs = self.known.train.inputs.to(device)
        self.tests = {name: data.test.inputs.to(device) for name, data in self.sets.items()}
        self.trainings = [prepared(training, self.known, self.inputs, device) for training in group]
        self.seconds = (time.perf_counter() - self.began) / len(self.trainings)

    def stacks(self, most: int | None) -> Iterator[list[Training]]:
        """Give the trainings in portions of as many as are stacked."""
        first = self.trainings[0]
        width = most or planned(first.network, first.data, first.settings)
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
    facts = _Facts(data.device, clock, len(stack), len(trials))
    for training, fit in zip(stack, went, strict=True):
        if fit.error is not None:
            yield Advance("failed", tuple(training.trials), message=str(fit.error))
            continue
        for trial in training.trials:
            result = _result(trial, figures[trial.key], fit, facts)
            records.append(result)
            yield Advance("finished", trials, 1.0, result)
        _checkpoint_path(records, training).unlink(missing_ok=True)


def _reason(error: Exception) -> str:
    if isinstance(error, torch.OutOfMemoryError):
        return "a single trial does not fit into the memory of the GPU; use a larger one, or the CPU"
    return str(error)


def _measured(stack: Sequence[Training], data: _Loaded, clock: _Clock) -> dict[str, Figures]:
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
    stores = [Checkpoint(_checkpoint_path(records, training)) if on_cpu else None for training in stack]
    trials = [
        TrialTraining(training.network, training.data, training.seed, checkpoint=store)
        for training, store in zip(stack, stores, strict=True)
    ]
    loss = shels_loss(first.network, first.settings)
    precision = first.trials[0].precision
    return fit_trials(trials, loss, first.settings, progress=watch, precision=precision)


def _checkpoint_path(records: Records, training: Training) -> Path:
    return records.directory / "unfinished" / f"{training.key}.safetensors"


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
    stacked: int
    trials: int


def _result(trial: Trial, measured: Figures, fit: Fit, facts: _Facts) -> TrialResult:
    """Return the record of a trial; its seconds are its share of the stack's."""
    tf32 = facts.device.type == "cuda" and trial.precision == "float32"
    stages = {name: value / facts.trials for name, value in facts.clock.seconds.items()}
    details = measured.details | {
        "checks": [vars(check) for check in fit.checks],
        "best_epoch": fit.best.epoch,
        "stages": stages,
        "stacked": facts.stacked,
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
