"""The last layer: one weight vector per class."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from shels.kernels import trial_axis

_MOST = 128
"""Classes that the kernel takes; more do not fit into a GPU's fast memory."""
_FIRST_SCALE = 10.0
"""Where a scale that is learned begins."""


class CosineHead(nn.Module):
    """Class scores as cosines, which press the classes towards orthogonal, so exclusive, features.

    No bias: the network learns which features fire, not how strongly. scale: what cosines are multiplied by,
    1 as the paper has it; None learns it. It changes no order of classes.

    >>> head = CosineHead(features=2, classes=2)
    >>> head.weight = nn.Parameter(torch.tensor([[5.0, 0.0], [0.0, 0.1]]))
    >>> head(torch.tensor([[0.0, 7.0]])).tolist()
    [[0.0, 1.0]]
    """

    def __init__(self, features: int, classes: int, scale: float | None = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(classes, features))
        self.fixed = scale
        if scale is None:
            self.log_scale = nn.Parameter(torch.empty(1))

    @torch.no_grad()
    def start(self, draw: torch.Generator) -> None:
        """Set what Xavier's rule does not: a scale that is learned."""
        del draw
        if self.fixed is None:
            self.log_scale.fill_(math.log(_FIRST_SCALE))

    def forward(self, features: Tensor) -> Tensor:
        """Return scaled cosines of each class's weights and the features, Eq. (1): (n, d) -> (n, classes).

        A feature vector of zeros has cosine 0 with everything.
        """
        cosines = self._cosines(features)
        if self.fixed is None:
            return self.log_scale.exp() * cosines
        return cosines if self.fixed == 1 else self.fixed * cosines

    def scale_now(self) -> float:
        """Return what cosines are multiplied by."""
        return float(self.log_scale.detach().exp()) if self.fixed is None else self.fixed

    def _cosines(self, features: Tensor) -> Tensor:
        if trial_axis.has_kernels(features) and len(self.weight) <= _MOST:
            return _cosines(features, self.weight)
        return F.linear(unit(features), unit(self.weight))


@trial_axis.over_trials
def _cosines(features: Tensor, weights: Tensor) -> Tensor:
    from shels.kernels import head  # noqa: PLC0415

    return head.cosines(features, weights)


def unit(rows: Tensor) -> Tensor:
    """Return rows scaled to length 1; a row of zeros stays as it is, with a harmless gradient.

    >>> unit(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    length = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / torch.where(length > 0, length, 1.0)


class ScaledCosineHead(CosineHead):
    """Cosines times a scale that is learned for each sample (Techapanurak et al., ACCV 2020), a rival's head.

    While it trains, the scale is exp of a batch-normalised linear map of the features; a loss that knows
    which samples are there calls `scaled_cosines` itself. Afterwards it is the scale of the average sample: a
    scale changes no order of classes, and so no batch decides what a sample gets.
    """

    def __init__(self, features: int, classes: int) -> None:
        super().__init__(features, classes)
        self.scale = nn.Parameter(torch.empty(features))
        self.gain = nn.Parameter(torch.empty(1))
        self.shift = nn.Parameter(torch.empty(1))

    @torch.no_grad()
    def start(self, draw: torch.Generator) -> None:
        """Set what Xavier's rule does not: a small random map, batch normalisation as it begins."""
        bound = len(self.scale) ** -0.5
        self.scale.uniform_(-bound, bound, generator=draw)
        self.gain.fill_(1.0)
        self.shift.zero_()

    def forward(self, features: Tensor) -> Tensor:
        """Return scaled cosines: (n, d) -> (n, classes)."""
        if self.training:
            there = torch.ones(len(features), dtype=torch.bool, device=features.device)
            return scaled_cosines(features, dict(self.named_parameters()), there)
        return self.shift.exp() * super().forward(features)


def scaled_cosines(features: Tensor, head: Mapping[str, Tensor], there: Tensor) -> Tensor:
    """Return cosines times exp(BN(v·f)), normalised over the samples that are there: (n, d) -> (n, classes).

    head: the parameters of a ScaledCosineHead. there: (n,) bool. A bias before batch normalisation cancels.
    """
    cosines = F.linear(unit(features), unit(head["weight"]))
    value, count = features @ head["scale"], there.sum()
    mean = torch.where(there, value, 0.0).sum() / count
    variance = torch.where(there, (value - mean).square(), 0.0).sum() / count
    # A sample that is not there lies anywhere. In a batch of one the variance is 0 and would send it so far
    # out that its exponential overflows: no loss counts it, but 0 times infinity is no gradient.
    normal = torch.where(there, value - mean, 0.0) / (variance + 1e-5).sqrt()
    return (head["gain"] * normal + head["shift"]).exp()[:, None] * cosines


class LinearHead(nn.Linear):
    """An ordinary linear layer, to compare the cosine head with."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__(features, classes)


def resized(head: CosineHead | LinearHead, features: int, classes: int) -> CosineHead | LinearHead:
    """Return a head of the same kind and of another size, its weights unset.

    >>> resized(CosineHead(2, 3, scale=4.0), 5, 6).fixed
    4.0
    """
    if isinstance(head, LinearHead | ScaledCosineHead):
        return type(head)(features, classes)
    return CosineHead(features, classes, head.fixed)
