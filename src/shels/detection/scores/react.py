"""ReAct: features clipped where training features rarely go, then the energy.

Y. Sun, C. Guo, Y. Li: ReAct: Out-of-distribution Detection with Rectified Activations, NeurIPS 2021.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from shels.detection.score import Score, Tensors, require
from shels.detection.scores.energy import negative_energy
from shels.model.networks import Views


def percentile(values: Tensor, share: float) -> Tensor:
    """Return the percentile of all values, linear between neighbours as NumPy has it."""
    flat = values.flatten()
    place = (flat.numel() - 1) * share / 100
    low = int(place)
    below = flat.kthvalue(low + 1).values
    over = flat > below  # the next larger value, without a second search
    equal = over.sum() < flat.numel() - low - 1
    above = torch.where(equal | ~over.any(), below, torch.where(over, flat, torch.inf).amin())
    return below.double() + (above.double() - below.double()) * (place - low)


@dataclass(frozen=True, eq=False)
class React(Score):
    """Score: the energy of head(min(f, c)), c a percentile of all training features. Stores c alone.

    Where so many features are silent that c would be 0, which leaves nothing to tell samples by, c is that
    percentile of the features that fire; the paper's networks are not so sparse.
    """

    share: float = 90.0
    """Percentile at which features are clipped; the paper's."""

    name = "react"
    remembers = ("clip",)
    cannot_grow = "its clip is a percentile of all training features, and the old ones are gone"

    def __post_init__(self) -> None:
        require(0 < self.share <= 100, "share", "over 0 and at most 100", self.share)

    def _fitted(self, views: Views, labels: Tensor) -> Tensors:
        clip, firing = percentile(views.high, self.share), views.high[views.high > 0]
        return {"clip": clip if clip > 0 or not len(firing) else percentile(firing, self.share)}

    def _scores(self, views: Views) -> Tensor:
        return negative_energy(self.head.logits(views.high.minimum(self.state["clip"])))
