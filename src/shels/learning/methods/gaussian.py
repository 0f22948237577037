"""Classes as Gaussians of one covariance on the shared features: linear discriminant analysis.

This is how the Gaussian detector names classes, by itself, for other scores to judge novelty beside it.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from shels.config import Gaussian
from shels.detection.gaussians import Discriminant, Projection, Sums
from shels.learning.closed_form import ClosedForm
from shels.learning.protocol import Memory
from shels.model.networks import Views

_SUMS = ("count", "mean", "scatter")


class GaussianMethod(ClosedForm):
    """A class is its count, mean and scatter along the main directions of the first classes."""

    settings: Gaussian

    def rows(self, views: Views) -> Tensor:
        """Return the shared features."""
        return views.shared

    def fitted(self, rows: Tensor, labels: Tensor) -> Memory:
        """Return the main directions of the first classes, and their sums along them."""
        projection = Projection.fit(rows, self.settings.features)
        sums = [Sums.of(projection(rows[labels == c])) for c in range(int(labels.max()) + 1)]
        return {"centre": projection.centre, "directions": projection.directions, **_stacked(sums)}

    def grown(self, memory: Memory, rows: Tensor) -> Memory:
        """Return the sums with one class more."""
        new = _stacked([Sums.of(_projection(memory)(rows))])
        return memory | {name: torch.cat([memory[name], new[name]]) for name in _SUMS}

    def without(self, memory: Memory, position: int) -> Memory:
        """Return the sums without one class's."""
        others = torch.arange(len(memory["count"]), device=memory["count"].device) != position
        return memory | {name: memory[name][others] for name in _SUMS}

    def scorer(self, memory: Memory) -> Callable[[Tensor], Tensor]:
        """Return the discriminant's scores."""
        rows = zip(memory["count"].tolist(), memory["mean"], memory["scatter"], strict=True)
        projection, discriminant = _projection(memory), Discriminant.of([Sums(*row) for row in rows])
        return lambda features: discriminant(projection(features))


def _projection(memory: Memory) -> Projection:
    return Projection(memory["centre"], memory["directions"])


def _stacked(sums: list[Sums]) -> Memory:
    counts = torch.tensor([each.count for each in sums], device=sums[0].mean.device)
    return {
        "count": counts,
        "mean": torch.stack([each.mean for each in sums]),
        "scatter": torch.stack([each.scatter for each in sums]),
    }
