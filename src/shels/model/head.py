"""The last layer: one weight vector per class."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from shels import axis

_MOST = 128
"""Classes that the kernel takes; more do not fit into a GPU's fast memory."""


class CosineHead(nn.Module):
    """Class scores as cosines, which press the classes towards orthogonal, so exclusive, features.

    No bias and no scale: the network learns which features fire, not how strongly.
    """

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(classes, features))

    def forward(self, features: Tensor) -> Tensor:
        """Return the cosine of each class's weights and the features, Eq. (1): (n, d) -> (n, classes).

        A feature vector of zeros has cosine 0 with everything.
        """
        if axis.has_kernels(features) and len(self.weight) <= _MOST:
            return _cosines(features, self.weight)
        return F.linear(unit(features), unit(self.weight))


@axis.over_trials
def _cosines(features: Tensor, weights: Tensor) -> Tensor:
    from shels.kernels import head  # noqa: PLC0415

    return head.cosines(features, weights)


def unit(rows: Tensor) -> Tensor:
    """Return rows scaled to length 1; a row of zeros stays as it is, with a harmless gradient."""
    length = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / torch.where(length > 0, length, 1.0)


class LinearHead(nn.Linear):
    """An ordinary linear layer, to compare the cosine head with."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__(features, classes)
