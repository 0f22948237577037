"""How near each sample lies to each class, to its own class as it would be without the sample.

A sample that has a say in where its class lies is too near to it. Where a class is a sum, the sample can be
taken out of it again in closed form: for all samples at the price of one fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shels.detection.gaussians import Projection, Spread, Sums, pooled_covariance

DIRECTIONS = 128
"""How many main directions of the features are looked at, at most."""


@dataclass(frozen=True, eq=False)
class Fits:
    """How samples fit classes. scores: (n, classes), higher fits better; labels: (n,), the class of each.

    p_values: (n, classes), the share of a class's own samples that fit it no better: small means a stranger.
    """

    scores: Tensor
    p_values: Tensor
    labels: Tensor

    @property
    def own_p(self) -> Tensor:
        """The p-value of each sample in its own class: (n,)."""
        return self.p_values.gather(1, self.labels[:, None])[:, 0]

    @property
    def other(self) -> Tensor:
        """The other class that each sample fits best: (n,)."""
        return self.scores.scatter(1, self.labels[:, None], -torch.inf).argmax(dim=1)

    @property
    def gain(self) -> Tensor:
        """How much better each sample fits that class than its own, (n,); over 0 it would rather be there.

        The logarithm of how many times nearer, by squares, it lies.
        """
        rows = self.other[:, None]
        return (self.scores.gather(1, rows) - self.scores.gather(1, self.labels[:, None]))[:, 0]

    def suspects(self, most_p: float = 0.05) -> Tensor:
        """Find samples that are likely mislabelled, the likeliest first: (m,) places.

        They lie nearer to another class than to their own, where they are among the share `most_p` of the
        farthest.
        """
        places = ((self.gain > 0) & (self.own_p <= most_p)).nonzero()[:, 0]
        return places[(-self.gain[places]).argsort(stable=True)]


def left_out_fits(features: Tensor, labels: Tensor, classes: int) -> Fits:
    """Fit a Gaussian to each class, and find how every sample fits every class, its own without it.

    features: (n, s), shared ones: what a network was trained on a wrong label for, its later layers may have
    learned by heart. labels: (n,), two samples or more of each class. Directions and the common covariance
    are those of all samples; mean and scatter of a sample's own class are those of the others.
    """
    rows = Projection.fit(features, DIRECTIONS)(features)
    sums = [Sums.of(rows[labels == c]) for c in range(classes)]
    scores = -left_out_distances(rows, labels, sums, pooled_covariance(sums)).clamp(min=1e-12).log()
    p_values = [_p_values(scores[:, c], labels == c) for c in range(classes)]
    return Fits(scores, torch.stack(p_values, dim=1), labels)


def left_out_distances(rows: Tensor, labels: Tensor, sums: Sequence[Sums], prior: Tensor) -> Tensor:
    """Measure squared distances of rows (n, r) to classes, a row's own class without it: (n, classes)."""
    out = rows.new_empty(len(rows), len(sums), dtype=torch.float64)
    for position, each in enumerate(sums):
        spread, mine = Spread.of(each, prior), labels == position
        out[:, position] = ((rows - each.mean.float()) @ spread.whitening()).square().sum(dim=1)
        out[mine, position] = spread.left_out(rows[mine])
    return out


def _p_values(scores: Tensor, mine: Tensor) -> Tensor:
    """Rank scores among those of a class's own samples, none beside itself: (n,)."""
    own = scores[mine].sort().values
    lower = torch.searchsorted(own, scores.contiguous())  # a sample is not lower than itself
    return (lower + 1) / (len(own) + (~mine).long())
