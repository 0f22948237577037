"""Generalised entropy: how far the probabilities are from certainty, small ones weighing heavily.

X. Liu, Y. Lochman, C. Zach: GEN: Pushing the Limits of Softmax-Based Out-of-Distribution Detection,
CVPR 2023.
"""

from dataclasses import dataclass

from torch import Tensor

from shels.detection.score import Score, require
from shels.model.networks import Views


def negative_generalised_entropy(probabilities: Tensor, gamma: float, top: int) -> Tensor:
    """Return -Σ p^γ (1 - p)^γ over the `top` largest probabilities: (n, classes) -> (n,)."""
    p = probabilities.topk(min(top, probabilities.shape[1]), dim=1).values
    return -(p * (1 - p).clamp(min=0)).pow(gamma).sum(dim=1)


@dataclass(frozen=True, eq=False)
class Gen(Score):
    """Score: the negative generalised entropy of the softmax. Stores nothing."""

    gamma: float = 0.1
    """γ, the paper's."""
    top: int = 100
    """M, how many of the largest probabilities count; the paper's for 1000 classes, so all of fewer."""

    name = "gen"

    def __post_init__(self) -> None:
        require(0 < self.gamma < 1, "gamma", "over 0 and under 1", self.gamma)
        require(self.top >= 1, "top", "1 or more", self.top)

    def _scores(self, views: Views) -> Tensor:
        return negative_generalised_entropy(self.head.logits(views.high).softmax(dim=1), self.gamma, self.top)
