"""OpenMax: logits lowered by how extreme a sample's distance to each class is, for an unknown class.

A. Bendale, T. Boult: Towards Open Set Deep Networks, CVPR 2016.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from shels.detection.score import Score, Tensors, in_chunks, require
from shels.model.networks import Views


def weibull(tail: Tensor) -> tuple[float, float] | None:
    """Return shape and scale of a Weibull distribution fitted to distances, None where they tell nothing.

    Maximum likelihood with location 0. Two different distances or more are needed.
    """
    from scipy.stats import weibull_min  # noqa: PLC0415

    tail = tail[tail > 0].double().cpu()
    if len(tail) < 2 or float(tail.max()) <= float(tail.min()) * (1 + 1e-6):
        return None
    unit = float(tail.mean())
    logs = (tail / unit).log()
    shape = math.pi / math.sqrt(6) / float(logs.std())
    scale = math.exp(float(logs.mean()) + 0.5772 / shape)  # the start of the search: log moments
    shape, _, scale = weibull_min.fit((tail / unit).numpy(), shape, floc=0, scale=scale)
    return float(shape), float(scale) * unit


def known_probability(logits: Tensor, extremeness: Tensor, alpha: int) -> Tensor:
    """Return the probability of the likeliest known class, an unknown class having its share: (n,).

    logits l, extremeness w: (n, classes). The i-th largest logit is lowered to l (1 - w (α - i + 1) / α) for
    i up to α; what all lose together is the logit of the unknown class.
    """
    rank = logits.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    alpha = min(alpha, logits.shape[1])
    lowered = logits * (1 - extremeness * (1 - rank / alpha).clamp(min=0))
    unknown = (logits - lowered).sum(dim=1, keepdim=True)
    return torch.cat([unknown, lowered], dim=1).softmax(dim=1)[:, 1:].amax(dim=1)


@dataclass(frozen=True, eq=False)
class OpenMax(Score):
    """Score: the probability of the likeliest known class, on which the paper sets its threshold.

    Extremeness: the Weibull distribution function of the distance from a class's mean logits, fitted to the
    farthest of its correctly classified training samples. Stores means, shapes and scales.

    The weights (α - i + 1) / α are those of the authors' code; the paper prints α - i. Distances are
    Euclidean, as in the paper's algorithms; their code adds the cosine. Their library moves the tail to begin
    at 1 before it fits, which depends on the unit of the logits; here the location is 0. A class without a
    correct sample takes all of its samples, one whose tail tells nothing the tail of all classes.
    """

    tail: int = 20
    """η, how many of the largest distances of a class are fitted; the paper's."""
    alpha: int = 10
    """α, how many of the largest logits are lowered; the paper's, or all of fewer classes."""

    name = "openmax"
    remembers = ("means", "shapes", "scales")
    cannot_grow = "the old classes' mean logits have no value for the new class without their samples"

    def __post_init__(self) -> None:
        require(self.tail >= 2, "tail", "2 or more", self.tail)
        require(self.alpha >= 1, "alpha", "1 or more", self.alpha)

    def _fitted(self, views: Views, labels: Tensor) -> Tensors:
        logits = in_chunks(lambda part: self.head.logits(part.high), views)
        right = logits.argmax(dim=1) == labels
        marks = [labels == c for c in range(self.head.classes)]
        groups = [logits[mine & right if bool((mine & right).any()) else mine] for mine in marks]
        means = torch.stack([group.mean(dim=0) for group in groups])
        pairs = zip(groups, means, strict=True)
        gaps = [torch.linalg.vector_norm(group - mean, dim=1) for group, mean in pairs]
        common = weibull(self._farthest(torch.cat(gaps))) or (1.0, 1.0)
        fits = means.new_tensor([weibull(self._farthest(gap)) or common for gap in gaps])
        return {"means": means, "shapes": fits[:, 0].clone(), "scales": fits[:, 1].clone()}

    def _farthest(self, distances: Tensor) -> Tensor:
        return distances.topk(min(self.tail, len(distances))).values

    def _scores(self, views: Views) -> Tensor:
        logits = self.head.logits(views.high)
        gaps = torch.cdist(logits, self.state["means"], compute_mode="donot_use_mm_for_euclid_dist")
        extremeness = -torch.expm1(-((gaps / self.state["scales"]) ** self.state["shapes"]))
        return known_probability(logits, extremeness, self.alpha)
