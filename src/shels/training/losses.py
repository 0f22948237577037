"""Parts of losses, for one trial; in a stack they know the trial axis, and samples that are not there."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from shels.kernels import trial_axis

PADDING = -100
"""The label of a sample that is not there: every loss leaves it out."""


def cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy over the samples that are there: (n, classes), (n,) -> scalar."""
    if trial_axis.has_kernels(scores):
        return _cross_entropy(scores, labels)
    return F.cross_entropy(scores, labels, ignore_index=PADDING)


@trial_axis.over_trials
def _cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    from shels.kernels import head  # noqa: PLC0415

    return head.cross_entropy(scores, labels)


def average(values: Tensor, labels: Tensor) -> Tensor:
    """Return the mean of values (n,) over the samples that are there."""
    there = labels != PADDING
    return torch.where(there, values, 0.0).sum() / there.sum()
