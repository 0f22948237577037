"""How far is far: log distances of known samples, their scale in each class, and scores by it.

What is usual for a class is learned from the samples that its threshold is set on. So each of them is judged
without it, and put where a new sample would stand that is judged alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self, TypeAlias

import torch
from torch import Tensor

Distance: TypeAlias = Literal["farther", "sum"]
"""What makes one score of the distances on both layers."""
Deviation: TypeAlias = Literal["own", "common"]
"""Whose standard deviation log distances from one of the first classes are measured by: its own, or all's."""

_UNKNOWN_VARIANCE = 0.25
"""Of the logarithm of distances, where a single sample tells nothing about it."""
_PRIOR_COUNT = 10
"""A class's mean distance is drawn to that of all classes as if by this many samples."""
_FOLDS = 10


@dataclass(frozen=True, eq=False)
class Standards:
    """What is usual for classes, found from held-out samples, and what these score.

    scale: (2, 2), mean and standard deviation of log distances over all classes, of each layer; scales: the
    same of each class, (classes, 2, 2). scores: (n,), each sample's by standards in which it had no say.
    folds: (n,), without: (folds, classes, 2, 2), those standards. distance: see `log_scores`.
    """

    scale: Tensor
    scales: Tensor
    scores: Tensor
    folds: Tensor
    without: Tensor
    distance: Distance

    @classmethod
    def of(
        cls,
        logs: Tensor,
        predicted: Tensor,
        labels: Tensor,
        classes: int,
        distance: Distance = "farther",
        deviation: Deviation = "own",
    ) -> Self:
        """Find them from log distances (n, 2) of samples to the classes that they are given to."""
        folds = torch.arange(len(logs), device=logs.device) % min(_FOLDS, len(logs))
        given = [folds != fold for fold in range(int(folds.max()) + 1)]
        given = [mine if bool(mine.any()) else ~mine for mine in given]  # of a single sample its own
        parts = [(logs[mine], predicted[mine], labels[mine], classes, deviation) for mine in given]
        found = [log_scales(*part)[1] for part in parts]
        without = torch.stack(found)
        scores = log_scores(logs, without[folds, predicted], distance)
        scale, scales = log_scales(logs, predicted, labels, classes, deviation)
        return cls(scale, scales, scores, folds, without, distance)

    def level(self, position: int, which: Tensor) -> Tensor:
        """Score samples (marks or places) as new ones of a class would that were judged alike: (m,).

        A new sample and one of these are alike to each other where neither has a say in the standards (the
        jackknife+ of Barber, Candès, Ramdas, Tibshirani 2021). But new ones are judged by standards in which
        these had a say. So a score without the sample is turned into the log distance that it stands for, and
        that into the score which all standards give it, on average of the two layers. Where these are added
        up, half of a score stands for each.
        """
        layers = 2 if self.distance == "sum" else 1
        mean, deviation = self.without[self.folds[which], position].unbind(dim=2)
        usual, wide = self.scales[position].unbind(dim=1)
        far = mean - self.scores[which, None] / layers * deviation
        return -layers * ((far - usual) / wide).mean(dim=1)


def log_scores(logs: Tensor, scale: Tensor, distance: Distance = "farther") -> Tensor:
    """Score samples, higher more familiar, by log distances (n, 2) and their mean and deviation (n, 2, 2).

    distance: whether the farther of the two counts, or their sum.
    """
    far = (logs - scale[..., 0]) / scale[..., 1]
    return -(far.sum(dim=1) if distance == "sum" else far.amax(dim=1))


def log_scales(
    logs: Tensor, predicted: Tensor, labels: Tensor, classes: int, deviation: Deviation = "own"
) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of log distances, over all and by class: (2, 2), (classes, 2, 2)."""
    right = [logs[(predicted == c) & (labels == c)] for c in range(classes)]
    scale = _scale([each for each in right if len(each) > 1] or [logs])
    scales = torch.stack([shrunk_scale(each, scale, prior=_PRIOR_COUNT) for each in right])
    if deviation == "common":
        scales[:, :, 1] = scale[:, 1]
    return scale, scales


def _scale(groups: Sequence[Tensor]) -> Tensor:
    """Mean and standard deviation of log distances within groups of them: (n, 2) each -> (2, 2)."""
    mean = torch.stack([logs.mean(dim=0) for logs in groups]).mean(dim=0)
    centred = torch.cat([logs - logs.mean(dim=0) for logs in groups])
    free = len(centred) - len(groups)
    variance = centred.square().sum(dim=0) / free if free else torch.full_like(mean, _UNKNOWN_VARIANCE)
    return torch.stack([mean, variance.sqrt().clamp(min=1e-6)], dim=1)


def shrunk_scale(logs: Tensor, scale: Tensor, prior: int) -> Tensor:
    """Mean and deviation of a class's own log distances, drawn to those of all where it has few samples.

    logs: (n, 2) -> (2, 2). prior: how many samples the mean of all counts as. The network was not trained on
    a class that came later, and its samples lie farther out than those of the first classes, so for such a
    class it counts as none. What few samples leave uncertain widens the deviation.
    """
    if not len(logs):
        return scale if prior else _single_scale(scale)
    own = logs.mean(dim=0)
    return _shrunk_from(len(logs), own, (logs - own).square().sum(dim=0), scale, prior)


def _single_scale(scale: Tensor) -> Tensor:
    """Mean and deviation of log distances from a class of one sample: it lies as far off as those it judges.

    So squared distances are twice those from a mean, and they vary as much again. Later classes lie farther
    out than the first, by one deviation in the median of MNIST's and FMNIST's.
    """
    mean, deviation = scale.unbind(dim=1)
    return torch.stack([mean + math.log(2) + deviation, deviation * math.sqrt(2)], dim=1)


def shrunk_scale_without_each(logs: Tensor, scale: Tensor) -> Tensor:
    """Give, for each sample of a later class, what `shrunk_scale` gives without it: (n, 2) -> (n, 2, 2).

    A sample that had a say in its own standard would look more familiar than a new one.
    """
    n = len(logs)
    if n < 2:
        return scale.expand(n, 2, 2)
    own = logs.mean(dim=0)
    rest = (n * own - logs) / (n - 1)
    square = (logs - own).square().sum(dim=0) - (logs - own).square() * (n / (n - 1))
    return _shrunk_from(n - 1, rest, square.clamp(min=0), scale, prior=0)


def _shrunk_from(n: int, own: Tensor, square: Tensor, scale: Tensor, prior: int) -> Tensor:
    mean = (n * own + prior * scale[:, 0]) / (n + prior)
    variance = (square + _PRIOR_COUNT * scale[:, 1] ** 2) / (n - 1 + _PRIOR_COUNT)
    return torch.stack([mean, (variance * (1 + 1 / (n + prior))).sqrt()], dim=-1)
