"""Runs trials: those that train alike together, each result written down before anybody hears of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch

from shels import runtime
from shels.data.samples import DataSet
from shels.errors import ShelsError
from shels.experiments.methods import start_of
from shels.experiments.outcomes import Advance, Clock, Trained, detection, learning, reason
from shels.experiments.preparing import Training, prepared, require_classes, training_key
from shels.experiments.records import Records
from shels.experiments.trials import Trial
from shels.training.checkpoints import Checkpoint
from shels.training.courses import Fit, Progress, TrialTraining
from shels.training.loop import fit_trials, planned
from shels.training.tasks import following

Source: TypeAlias = Callable[[str, int | None], DataSet]
"""Gives a data set by its name, at the image size that a trial needs where its images have many sizes."""


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
        start = start_of(trial.method, settings).key
        alike = (trial.known_data, settings.network, settings.training, trial.precision, start)
        same = (trial.seed, trial.known)
        out.setdefault(alike, {}).setdefault(same, []).append(trial)
    return [list(trainings.values()) for trainings in out.values()]


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
    clock = Clock(loading=data.seconds * len(stack))
    went: list[Fit] = []

    def train(tell: Callable[[float], None]) -> None:
        went.extend(_train(stack, records, tell))

    try:
        for share in following(train):
            yield Advance("training", trials, share)
    except (ShelsError, torch.OutOfMemoryError) as error:
        yield Advance("failed", trials, message=reason(error))
        return
    clock.lap("training")
    pairs = list(zip(stack, went, strict=True))
    for training, fit in pairs:
        if fit.error is not None:
            yield Advance("failed", tuple(training.trials), message=str(fit.error))
    good = [pair for pair in pairs if pair[1].error is None]
    spent = {name: value / len(trials) for name, value in clock.seconds.items()}
    trained = Trained(good, trials, data, records, spent)
    yield from detection(trained)
    yield from learning(trained)
    for training, _ in good:
        _checkpoint_path(records, training.trials[0]).unlink(missing_ok=True)


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
    like = first.trials[0]
    start = start_of(like.method, like.settings).first(first.network, first.settings)
    return fit_trials(
        trials,
        start.loss,
        start.settings,
        after_step=start.after_step,
        progress=watch,
        precision=like.precision,
        together=None if on_cpu else len(stack),
    )


def _checkpoint_path(records: Records, trial: Trial) -> Path:
    return records.directory / "unfinished" / f"{training_key(trial)}.safetensors"
