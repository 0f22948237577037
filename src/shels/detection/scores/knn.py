"""Deep nearest neighbours: the distance to the k-th nearest training sample, on features of length 1.

Y. Sun, Y. Ming, X. Zhu, Y. Li: Out-of-Distribution Detection with Deep Nearest Neighbors, ICML 2022.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from shels.detection.head import Head
from shels.detection.score import Score, Tensors, require
from shels.model.head import unit
from shels.model.networks import Views

_BLOCK = 8192
"""Training samples that are compared with at once."""


def kth_distance(rows: Tensor, bank: Tensor, k: int) -> Tensor:
    """Return the Euclidean distance to the k-th nearest row of the bank, exact: (n, d), (m, d) -> (n,)."""
    best = rows.new_full((rows.shape[0], k), math.inf)
    for part in torch.split(bank, _BLOCK):
        block = part.to(rows.dtype)
        squares = rows.square().sum(dim=1, keepdim=True) + block.square().sum(dim=1) - 2 * rows @ block.T
        best = torch.cat([best, squares], dim=1).topk(k, dim=1, largest=False).values
    return best.amax(dim=1).clamp(min=0).sqrt()


@dataclass(frozen=True, eq=False)
class Knn(Score):
    """Score: minus the distance to the k-th nearest training sample. Stores every training feature."""

    k: int | None = None
    """Which neighbour; with fewer samples than k, the farthest.

    None takes 1 in 1000 of the stored samples: the paper's 50 of CIFAR10's 50,000, near its 1000 of ImageNet.
    """

    name = "knn"
    remembers = ("bank",)
    reads_head = False

    def __post_init__(self) -> None:
        require(self.k is None or self.k >= 1, "k", "1 or more", self.k)

    @property
    def neighbour(self) -> int:
        """Which neighbour counts with the samples stored now."""
        stored = len(self.state["bank"])
        return max(1, round(stored / 1000)) if self.k is None else min(self.k, stored)

    def _fitted(self, views: Views, labels: Tensor) -> Tensors:
        return {"bank": unit(views.high).float()}

    def _grown(self, views: Views, grown: Head) -> Tensors:
        return {"bank": torch.cat([self.state["bank"], unit(views.high).float()])}

    def _scores(self, views: Views) -> Tensor:
        return -kth_distance(unit(views.high), self.state["bank"], self.neighbour)
