"""What a trial trains on: rows of inputs that trials may share, taken a batch at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from shels.data.preparation import Preparation
from shels.data.samples import Samples


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
    the weights kept are then the last.
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
