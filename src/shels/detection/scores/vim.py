"""ViM: what a sample has outside the space of training features, as one more logit, the novel class's.

H. Wang, Z. Li, L. Feng, W. Zhang: ViM: Out-Of-Distribution with Virtual-logit Matching, CVPR 2022.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from shels.detection.score import Score, Tensors, in_chunks, require
from shels.detection.scores.energy import negative_energy
from shels.model.networks import Views

_EMPTY = 1e-10
"""Share of the largest variance under which a direction counts as one that training never used."""


def principal_dimension(width: int) -> int:
    """Return how many directions to take as the space of training features.

    The authors take 1000 of 2048 features or more and 512 of fewer, which were 768 or more; here half of
    fewer than that.
    """
    if width >= 768:
        return 1000 if width >= 2048 else 512
    return max(1, width // 2)


@dataclass(frozen=True, eq=False)
class Vim(Score):
    """Score: log Σ_c exp(l_c) - α ‖R (f - o)‖, which orders samples as the paper's probability does.

    o = -W⁺ b is where all logits are 0. R projects on what the main directions of f - o leave. α makes the
    virtual logit as large as the largest real one, on average over training samples. With a cosine head,
    features and weights have length 1 and o is 0. Stores o, R and α.
    """

    dimension: int | None = None
    """Main directions taken out; None follows the paper's rule on the directions that training uses."""

    name = "vim"
    remembers = ("origin", "residual", "alpha")
    cannot_grow = (
        "the scale of its virtual logit is a mean over all training samples, and the old ones are gone"
    )

    def __post_init__(self) -> None:
        require(self.dimension is None or self.dimension >= 1, "dimension", "1 or more", self.dimension)

    def _fitted(self, views: Views, labels: Tensor) -> Tensors:
        like = self.head.weight.new_empty(0, dtype=torch.float64)
        origin: Tensor = -(torch.linalg.pinv(self.head.matrix(like)) @ self.head.offsets(like))
        residual = self._residual(views, origin)
        sizes = in_chunks(lambda part: self._sizes(part.high, origin, residual), views)
        largest, whole, left = sizes.mean(dim=0)
        alpha = largest / left.maximum(1e-6 * whole).clamp(min=1e-12)  # finite where nothing is left
        return {"origin": origin, "residual": residual, "alpha": alpha}

    def _sizes(self, high: Tensor, origin: Tensor, residual: Tensor) -> Tensor:
        """Return the largest logit, the length of f - o and that of its residual: (n, 3)."""
        rows = self.head.rows(high) - origin
        largest = self.head.logits(high).amax(dim=1)
        return torch.stack([largest, _length(rows), _length(rows @ residual)], dim=1)

    def _residual(self, views: Views, origin: Tensor) -> Tensor:
        """Return the directions that the main ones leave: (d, d - dimension)."""
        moment = origin.new_zeros(len(origin), len(origin))
        for high in torch.split(views.high, 8192):
            rows = self.head.rows(high.double()) - origin
            moment += rows.T @ rows
        values, vectors = torch.linalg.eigh(moment)  # rising
        used = int((values > values[-1] * _EMPTY).sum())
        taken = principal_dimension(used) if self.dimension is None else self.dimension
        left: Tensor = vectors[:, : len(origin) - min(taken, len(origin))].clone()
        return left

    def _scores(self, views: Views) -> Tensor:
        rows = self.head.rows(views.high) - self.state["origin"]
        virtual = self.state["alpha"] * _length(rows @ self.state["residual"])
        return negative_energy(self.head.logits(views.high)) - virtual


def _length(rows: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return length
