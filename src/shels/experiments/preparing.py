"""Trainings: the networks and data that trials need, before anything is computed."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from shels.config import TrainingSettings, to_dict
from shels.data.preparation import prepare_for
from shels.data.samples import DataSet
from shels.data.splits import training_split
from shels.errors import DataError, ShelsError
from shels.experiments.methods import initial_training
from shels.experiments.trials import Trial
from shels.model.networks import Network, build
from shels.training import Rows, TrialData, planned

Source: TypeAlias = Callable[[str, int | None], DataSet]
"""Gives a data set by its name, at the image size that a trial needs where its images have many sizes."""


@dataclass(frozen=True, eq=False)
class Training:
    """One network to train, and the trials that will be judged on it."""

    trials: Sequence[Trial]
    network: Network
    data: TrialData
    settings: TrainingSettings
    seed: int


def training_key(trial: Trial) -> str:
    """Return a digest of all that decides the network that a trial trains."""
    settings = [to_dict(trial.settings.network), to_dict(trial.settings.training), trial.precision]
    key = initial_training(trial.method, trial.settings).key
    what = [trial.known_data, list(trial.known), trial.seed, key[0] if len(key) == 1 else key]
    text = json.dumps([*what, settings], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def groups(trials: Sequence[Trial]) -> list[list[list[Trial]]]:
    """Return trials that can be stacked together, and in each group those that share a trained network."""
    out: dict[Any, dict[Any, list[Trial]]] = {}
    for trial in trials:
        settings = trial.settings
        key = initial_training(trial.method, settings).key
        alike = (trial.known_data, settings.network, settings.training, trial.precision, key)
        same = (trial.seed, trial.known)
        out.setdefault(alike, {}).setdefault(same, []).append(trial)
    return [list(trainings.values()) for trainings in out.values()]


def prepared(trials: Sequence[Trial], known: DataSet, inputs: Tensor, device: torch.device) -> Training:
    """Return the training of trials that share a network: its classes' rows of the inputs, some held out.

    inputs: the known data set's training inputs, where the network will compute; all trainings share them.
    """
    trial, settings = trials[0], trials[0].settings
    index, labels = known.train.places(trial.known)
    groups = None if known.train.groups is None else known.train.groups[index]
    parts = training_split(labels, groups, settings.training, trial.seed)
    like = known.train.inputs[index[parts[0]]] if known.train.inputs.ndim == 2 else known.train.inputs[:1]
    preparation = prepare_for(like, settings.network).to(device)
    network = build(settings.network, preparation.shape, len(trial.known), trial.seed).to(device)
    training, validation = (Rows(index[part], labels[part]) for part in parts)
    data = TrialData(inputs, training, validation, preparation)
    return Training(trials, network, data, settings.training, trial.seed)


class Loaded:
    """A group of trials with its data, ready to train.

    known: the set of the known classes. sets: all sets by name. tests, trains: their test inputs, and the
    training inputs of those that need them, where networks compute. refused: trials whose own classes or
    novel data cannot be had, each with the reason. seconds: what loading took for each training.
    """

    def __init__(self, group: Sequence[Sequence[Trial]], source: Source, device: torch.device) -> None:
        began = time.perf_counter()
        self.device, self.source, self.size = device, source, group[0][0].settings.network.image_size
        self.known = source(group[0][0].known_data, self.size)
        self.sets = {group[0][0].known_data: self.known}
        self.tests = {group[0][0].known_data: self.known.test.inputs.to(device)}
        self.refused: list[tuple[Trial, str]] = []
        inputs = self.known.train.inputs.to(device)
        self.trains = {group[0][0].known_data: inputs}
        good = [[trial for trial in training if self._usable(trial)] for training in group]
        self.trainings = [prepared(training, self.known, inputs, device) for training in good if training]
        self.seconds = (time.perf_counter() - began) / max(1, len(self.trainings))

    def _usable(self, trial: Trial) -> bool:
        """Load what a trial calls novel, and tell whether all that it names is there."""
        try:
            if trial.novel_data not in self.sets:
                novel = self.source(trial.novel_data, self.size)
                self.sets[trial.novel_data] = novel
                self.tests[trial.novel_data] = novel.test.inputs.to(self.device)
            if trial.measured_on != "test" and trial.novel_data not in self.trains:
                self.trains[trial.novel_data] = self.sets[trial.novel_data].train.inputs.to(self.device)
            self.sets[trial.novel_data].test.places(trial.novel)
            self.known.test.places(trial.known)
            _, labels = self.known.train.places(trial.known)
            counts = labels.bincount(minlength=len(trial.known)).tolist()
            for name, count in zip(trial.known, counts, strict=True):
                if count < 2:  # some to train on, and some to hold out
                    few = f"class {name!r} has {count} samples, and needs 2 or more"
                    raise DataError(f"{self.known.train.origin}: {few}")
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
