"""Trainings: the networks and data that trials need, before anything is computed."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from shels.config import TrainingSettings, to_dict
from shels.data.preparation import prepare_for
from shels.data.samples import DataSet
from shels.data.splits import chosen_apart, divided
from shels.errors import DataError, ShelsError
from shels.experiments.methods import initial_training, taught_classes
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
    calibration: Rows
    """What thresholds are set on: what is held out, or the part of it that chose nothing."""


def training_key(trial: Trial) -> str:
    """Return a digest of all that decides the network that a trial trains."""
    settings = [to_dict(trial.settings.network), to_dict(trial.settings.training), trial.precision]
    key = initial_training(trial.method, trial.settings).key
    what = [trial.known_data, list(taught_classes(trial)), trial.seed, key[0] if len(key) == 1 else key]
    apart = ["calibration apart"] if chosen_apart(trial.settings) else []
    text = json.dumps([*what, settings, *apart], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def groups(trials: Sequence[Trial]) -> list[list[list[Trial]]]:
    """Return trials that can be stacked together, and in each group those that share a trained network.

    Trials of one stack may differ in α and μ where their loss takes these from each trial's state.
    """
    out: dict[Any, dict[Any, list[Trial]]] = {}
    for trial in trials:
        network, training = trial.settings.network, trial.settings.training
        first = initial_training(trial.method, trial.settings)
        stacked = replace(training, alpha=0.0, depth_weights="constant") if first.own_sparsity else training
        alike = (trial.known_data, network, stacked, trial.precision, first.key)
        same = (trial.seed, taught_classes(trial), training, chosen_apart(trial.settings))
        out.setdefault(alike, {}).setdefault(same, []).append(trial)
    return [list(trainings.values()) for trainings in out.values()]


def prepared(trials: Sequence[Trial], known: DataSet, inputs: Tensor, device: torch.device) -> Training:
    """Return the training of trials that share a network: its classes' rows of the inputs, some held out.

    inputs: the known data set's training inputs, where the network will compute; all trainings share them.
    """
    trial, settings, classes = trials[0], trials[0].settings, taught_classes(trials[0])
    index, labels = known.train.places(classes)
    groups = None if known.train.groups is None else known.train.groups[index]
    parts = divided(labels, groups, settings, trial.seed)
    like = (
        known.train.inputs[index[parts.training]] if known.train.inputs.ndim == 2 else known.train.inputs[:1]
    )
    preparation = prepare_for(like, settings.network).to(device)
    network = build(settings.network, preparation.shape, len(classes), trial.seed).to(device)
    training, validation, calibration = (Rows(index[part], labels[part]) for part in parts)
    data = TrialData(inputs, training, validation, preparation)
    return Training(trials, network, data, settings.training, trial.seed, calibration)


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
            classes = taught_classes(trial)
            self.known.test.places(classes)
            _, labels = self.known.train.places(classes)
            counts = labels.bincount(minlength=len(classes)).tolist()
            for name, count in zip(classes, counts, strict=True):
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
        portions = [self.trainings]
        if self.device.type == "cuda":  # on a CPU one after another, so that each result is written at once
            width, portions = most or width, alike_in_length(self.trainings)
        for portion in portions:
            for start in range(0, len(portion), width):
                yield portion[start : start + width]


_LONGER = 1.5
"""How many times the samples of one training another may have in the same stack."""


def alike_in_length(trainings: Sequence[Training]) -> list[list[Training]]:
    """Part trainings by their number of samples: in a stack the shorter ones wait for the longest."""
    portions: list[list[Training]] = []
    for each in sorted(trainings, key=_samples):
        if not portions or _samples(each) > _LONGER * _samples(portions[-1][0]):
            portions.append([])
        portions[-1].append(each)
    return portions


def _samples(training: Training) -> int:
    return len(training.data.training.places)
