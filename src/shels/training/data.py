"""What a trial brings to a training: a network, rows of inputs that trials may share, a seed, a state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from shels.config import Augmentation
from shels.data.augmentation import augmented, drawn
from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.training.checkpoints import Checkpoint

PADDING = -100
"""The label of a sample that is not there: every loss leaves it out."""
State: TypeAlias = Mapping[str, Tensor]
"""What is particular to a trial beside its weights and batches, for its loss to read: old weights, masks."""


class Batch(NamedTuple):
    """One step's samples, prepared: inputs (n, *shape) and labels (n,).

    In a stack, a label of `PADDING` stands where a trial has no sample.
    """

    inputs: Tensor
    labels: Tensor


class Rows(NamedTuple):
    """Samples by their places in shared inputs, (n,), with labels (n,)."""

    places: Tensor
    labels: Tensor


def joined_inputs(each: Sequence[Tensor], device: torch.device) -> tuple[Tensor, list[int]]:
    """Put all trials' inputs into one tensor, those that are the same once; give where each one's begin."""
    distinct = {id(inputs): inputs for inputs in each}
    starts = dict(zip(distinct, accumulate(map(len, distinct.values()), initial=0), strict=False))
    moved = [inputs.to(device) for inputs in distinct.values()]
    whole = torch.cat(moved) if len(moved) > 1 else moved[0]
    return whole, [starts[id(inputs)] for inputs in each]


def side_by_side(
    parts: Sequence[Rows | None], starts: Sequence[int], device: torch.device
) -> tuple[Tensor, Tensor]:
    """Give places and labels of every trial's rows, filled up to the longest: (trials, n) each.

    starts: where each trial's inputs begin, see `joined_inputs`. None stands for no row.
    """
    longest = max(len(part.places) for part in parts if part is not None)
    index = torch.zeros(len(parts), longest, dtype=torch.int64)
    labels = torch.full((len(parts), longest), PADDING)
    for trial, part in enumerate(parts):
        if part is not None:
            index[trial, : len(part.places)] = part.places.cpu() + starts[trial]
            labels[trial, : len(part.places)] = part.labels.cpu()
    return index.to(device), labels.to(device)


def shown(inputs: Tensor, prepare: Preparation, augmentation: Augmentation | None) -> Tensor:
    """Return what a network is shown of inputs; augmentation: how they are changed, in training alone."""
    prepared = prepare(inputs)
    if augmentation is None:
        return prepared
    return augmented(prepared, drawn(prepared), augmentation, unit=prepare.mean is None)


@dataclass(frozen=True, eq=False)
class TrialData:
    """What one trial trains on and what it only ever validates on, with the preparation of both.

    inputs: (m, ...), shared by all trials on the same data. validation: None where nothing can be held out;
    the last weights then count as the best.

    >>> samples = Samples(torch.rand(6, 4), torch.tensor([0, 1] * 3), ("a", "b"))
    >>> data = TrialData.of(samples, None, Preparation((4,)))
    >>> data.batch(Rows(torch.tensor([0, 5]), torch.tensor([0, 1]))).inputs.shape
    torch.Size([2, 4])
    """

    inputs: Tensor
    training: Rows
    validation: Rows | None
    prepare: Preparation

    @staticmethod
    def of(training: Samples, validation: Samples | None, prepare: Preparation) -> TrialData:
        """Return the data of a trial that shares nothing."""
        n = len(training)
        rows = Rows(torch.arange(n, device=training.labels.device), training.labels)
        if validation is None:
            return TrialData(training.inputs, rows, None, prepare)
        inputs = torch.cat([training.inputs, validation.inputs])
        index = torch.arange(n, len(inputs), device=validation.labels.device)
        return TrialData(inputs, rows, Rows(index, validation.labels), prepare)

    def batch(
        self, rows: Rows, dtype: torch.dtype = torch.float32, augmentation: Augmentation | None = None
    ) -> Batch:
        """Return these samples, prepared, and changed at random where that is asked for."""
        return Batch(shown(self.inputs[rows.places], self.prepare, augmentation).to(dtype), rows.labels)


@dataclass(frozen=True, eq=False)
class Monitor:
    """Samples on which a training is evaluated on its way, for a curve. Nothing is ever chosen by them.

    inputs: on the network's device; trials may share them. newest: the class that is also counted by itself.
    products: whether classes are named by w_c · f, as SHELS does, whatever the head. epochs: those after
    which to evaluate, None for every validation; the end counts always. parts: into how many the steps up to
    a validation are divided, with an evaluation after each; for trainings of as many steps in every trial.
    """

    inputs: Tensor
    rows: Rows
    prepare: Preparation
    newest: int
    products: bool = False
    epochs: frozenset[int] | None = None
    parts: int = 1


class CurvePoint(NamedTuple):
    """How many monitored samples were named rightly after some steps, of all and of the newest class."""

    step: int
    epoch: float
    right: int
    newest: int


@dataclass(frozen=True)
class Ceiling:
    """A training loss over which a trial ends after some epochs, as one does whose loss is not finite."""

    loss: float
    epochs: frozenset[int]


@dataclass(frozen=True, eq=False)
class TrialTraining:
    """One trial of a training; its network is trained in place."""

    network: nn.Module
    data: TrialData
    seed: int
    state: State = field(default_factory=dict)
    checkpoint: Checkpoint | None = None
    monitor: Monitor | None = None
    ceiling: Ceiling | None = None
