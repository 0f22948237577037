"""ASH-S: each sample's weak features pruned, the strong ones scaled up, then the energy.

A. Djurisic, N. Bozanic, A. Ashok, R. Liu: Extremely Simple Activation Shaping for Out-of-Distribution
Detection, ICLR 2023.
"""

from dataclasses import dataclass

from torch import Tensor

from shels.detection.score import Score, require
from shels.detection.scores.energy import negative_energy
from shels.model.networks import Views

_MOST = 50.0
"""Of the exponent. Features that are never negative keep it under 1 / share kept; others may not."""


def shaped(features: Tensor, share: float) -> Tensor:
    """Return features without the lowest `share` percent of each sample, times exp(sum before / sum after).

    (n, d) -> (n, d). Values that tie with the lowest one kept are kept.
    """
    width = features.shape[1]
    remaining = max(1, width - round(width * share / 100))
    strong = features * (features >= features.topk(remaining, dim=1).values[:, -1:])
    before, after = features.sum(dim=1), strong.sum(dim=1)
    ratio = (before / after.where(after > 0, 1.0)).where(after > 0, 0.0)
    return strong * ratio.clamp(max=_MOST).exp().unsqueeze(1)


@dataclass(frozen=True, eq=False)
class Ash(Score):
    """Score: the energy of head(shaped features). Stores nothing.

    The variant is ASH-S. A cosine head divides the scaling out, so there it does what ASH-P, pruning alone,
    does. Features are those that the head sees; the authors prune before spatial pooling.
    """

    share: float = 65.0
    """Percent of each sample's features to prune: the default of the authors' function.

    Their experiments take 90, of thousands; of the hundreds that SHELS's networks have, that leaves too few.
    """

    name = "ash"

    def __post_init__(self) -> None:
        require(0 <= self.share < 100, "share", "0 or more and under 100", self.share)

    def _scores(self, views: Views) -> Tensor:
        return negative_energy(self.head.logits(shaped(views.high, self.share)))
