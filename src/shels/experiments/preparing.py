"""Trainings: the networks and data that trials need, before anything is computed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shels.config import TrainingSettings, to_dict
from shels.data.preparation import prepare_for
from shels.data.samples import DataSet
from shels.data.splits import hold_out_labels
from shels.errors import DataError
from shels.experiments.methods import start_of
from shels.experiments.trials import Trial
from shels.model.networks import Network, build
from shels.training.batches import Rows, TrialData


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
    key = start_of(trial.method, trial.settings).key
    what = [trial.known_data, list(trial.known), trial.seed, key[0] if len(key) == 1 else key]
    text = json.dumps([*what, settings], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def require_classes(trial: Trial, known: DataSet) -> None:
    """Raise unless every known class has samples enough to train on some and hold some out."""
    _, labels = known.train.places(trial.known)
    counts = labels.bincount(minlength=len(trial.known)).tolist()
    for name, count in zip(trial.known, counts, strict=True):
        if count < 2:
            raise DataError(f"{known.train.origin}: class {name!r} has {count} samples, and needs 2 or more")


def prepared(trials: Sequence[Trial], known: DataSet, inputs: Tensor, device: torch.device) -> Training:
    """Return the training of trials that share a network: its classes' rows of the inputs, some held out.

    inputs: the known data set's training inputs, where the network will compute; all trainings share them.
    """
    trial, settings = trials[0], trials[0].settings
    index, labels = known.train.places(trial.known)
    groups = None if known.train.groups is None else known.train.groups[index]
    kept, held = hold_out_labels(labels, groups, settings.training.validation_share, trial.seed)
    like = known.train.inputs[index[kept]] if known.train.inputs.ndim == 2 else known.train.inputs[:1]
    preparation = prepare_for(like, settings.network).to(device)
    network = build(settings.network, preparation.shape, len(trial.known), trial.seed).to(device)
    training, validation = (Rows(index[part], labels[part]) for part in (kept, held))
    data = TrialData(inputs, training, validation, preparation)
    return Training(trials, network, data, settings.training, trial.seed)
