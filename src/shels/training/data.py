"""What a trial brings to a training: a network, rows of inputs that trials may share, a seed, a state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.training.checkpoints import Checkpoint

State: TypeAlias = Mapping[str, Tensor]
"""What is particular to a trial beside its weights and batches, for its loss to read: old weights, masks."""


class Batch(NamedTuple):
    """One step's samples, prepared: inputs (n, *shape) and labels (n,).

    In a stack, a label of `losses.PADDING` stands where a trial has no sample.
    """

    inputs: Tensor
    labels: Tensor


class Rows(NamedTuple):
    """Samples by their places in shared inputs, (n,), with labels (n,)."""

    places: Tensor
    labels: Tensor


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

    def batch(self, rows: Rows, dtype: torch.dtype = torch.float32) -> Batch:
        """Return these samples, prepared."""
        return Batch(self.prepare(self.inputs[rows.places]).to(dtype), rows.labels)


@dataclass(frozen=True, eq=False)
class TrialTraining:
    """One trial of a training; its network is trained in place."""

    network: nn.Module
    data: TrialData
    seed: int
    state: State = field(default_factory=dict)
    checkpoint: Checkpoint | None = None
