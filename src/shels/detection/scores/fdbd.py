"""fDBD: how far features lie from the boundaries of the predicted class, for their distance from the mean.

L. Liu, Y. Qin: Fast Decision Boundary based Out-of-Distribution Detector, ICML 2024.
"""

import torch
from torch import Tensor

from shels.detection.head import Head
from shels.detection.score import Score, Tensors
from shels.model.networks import Views

_LEAST = 1e-12
"""Of a length that is divided by: two classes of one weight, a sample at the mean."""


def boundary_distance(logits: Tensor, weight: Tensor) -> Tensor:
    """Return the mean distance to the boundaries between the predicted class p and each other one c.

    |l_p - l_c| / ‖w_p - w_c‖; logits: (n, classes), weight: (classes, d) -> (n,).
    """
    best, winner = logits.max(dim=1, keepdim=True)
    gaps = torch.cdist(weight, weight, compute_mode="donot_use_mm_for_euclid_dist").clamp(min=_LEAST)
    others = max(1, logits.shape[1] - 1)  # a class alone has no boundary
    return ((best - logits) / gaps[winner.squeeze(1)]).sum(dim=1) / others


class Fdbd(Score):
    """Score: mean distance to the boundaries over ‖f - mean training feature‖. Stores mean and count.

    With a cosine head, features and weights have length 1, so that the boundaries are those of a linear map.
    """

    name = "fdbd"
    remembers = ("count", "mean")

    def _fitted(self, views: Views, labels: Tensor) -> Tensors:
        return _mean_of(self.head, views.high)

    def _grown(self, views: Views, grown: Head) -> Tensors:
        old, new = self.state, _mean_of(grown, views.high)
        count = old["count"] + new["count"]
        mean = old["mean"] + (new["mean"] - old["mean"]) * (new["count"].double() / count)
        return {"count": count, "mean": mean}

    def _scores(self, views: Views) -> Tensor:
        logits, weight = self.head.logits(views.high), self.head.matrix(views.high)
        spread: Tensor = torch.linalg.vector_norm(self.head.rows(views.high) - self.state["mean"], dim=1)
        return boundary_distance(logits, weight) / spread.clamp(min=_LEAST)


def _mean_of(head: Head, high: Tensor) -> Tensors:
    mean = head.rows(high).mean(dim=0, dtype=torch.float64)
    return {"count": torch.tensor(len(high), device=high.device), "mean": mean}
