"""Classes as Gaussians of one covariance on the shared features: linear discriminant analysis.

This is how the Gaussian detector names classes, by itself, for other scores to judge novelty beside it.
"""

from collections.abc import Callable
from dataclasses import fields

import torch
from torch import Tensor

from shels.config import Gaussian
from shels.detection.gaussians import Discriminant, Naming, Projection, Sums
from shels.detection.rectified import FactoredSums, directions, rectified
from shels.learning.closed_form import ClosedForm
from shels.learning.protocol import Memory
from shels.model.networks import Views

_PROJECTION = ("centre", "directions")


class GaussianMethod(ClosedForm):
    """A class is its count, mean and scatter along the main directions of the first classes.

    Where classes are named on random, rectified projections, it is that on those, the scatter factored.
    """

    settings: Gaussian

    def rows(self, views: Views) -> Tensor:
        """Return the shared features."""
        return views.shared

    def fitted(self, rows: Tensor, labels: Tensor) -> Memory:
        """Return the main directions of the first classes, and their sums along them."""
        projection = Projection.fit(rows, self.settings.features)
        memory = {"centre": projection.centre, "directions": projection.directions}
        sums = [self._sums(memory, rows[labels == c]) for c in range(int(labels.max()) + 1)]
        return memory | {name: torch.stack([each[name] for each in sums]) for name in sums[0]}

    def grown(self, memory: Memory, rows: Tensor) -> Memory:
        """Return the sums with one class more."""
        new = self._sums(memory, rows)
        return memory | {name: torch.cat([memory[name], value[None]]) for name, value in new.items()}

    def without(self, memory: Memory, position: int) -> Memory:
        """Return the sums without one class's."""
        others = torch.arange(len(memory["count"]), device=memory["count"].device) != position
        return {name: value if name in _PROJECTION else value[others] for name, value in memory.items()}

    def scorer(self, memory: Memory) -> Callable[[Tensor], Tensor]:
        """Return the discriminant's scores."""
        kind, project = self._kind, self._projection(memory)
        values = [memory[each.name] for each in fields(kind) if each.name != "count"]
        rows = zip(memory["count"].tolist(), *values, strict=True)
        discriminant = Discriminant.of([kind(*row) for row in rows])
        if isinstance(project, Projection):
            return Naming.of(project, discriminant)
        return lambda features: discriminant(project(features))

    @property
    def _kind(self) -> type[Sums] | type[FactoredSums]:
        return FactoredSums if self.settings.rectified else Sums

    def _sums(self, memory: Memory, rows: Tensor) -> Memory:
        """Sum up one class by its features (n, s)."""
        sums = self._kind.of(self._projection(memory)(rows))
        found = {each.name: getattr(sums, each.name) for each in fields(sums)}
        return found | {"count": torch.tensor(sums.count, device=rows.device)}

    def _projection(self, memory: Memory) -> Callable[[Tensor], Tensor]:
        """Return what gives features (n, s) the values that classes are told by."""
        projection = Projection(memory["centre"], memory["directions"])
        if not self.settings.rectified:
            return projection
        kept = memory["directions"]
        random = directions(kept.shape[1], self.settings.rectified, kept.device)
        return lambda features: rectified(projection(features), random)
