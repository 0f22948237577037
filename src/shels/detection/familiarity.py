"""How familiar samples are with the class that they are given to: ten scores from one forward pass.

Each looks at the named class alone, on features whose directions and common spread the first classes fixed.
So a class that comes or goes moves no score of the others. (An energy adds up all classes, and would.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from shels.detection.gaussians import Distances, Projection, Spread, Sums, pooled_covariance
from shels.model.head import unit
from shels.model.networks import Views

LAYERS = ("shared", "high")
COMPONENTS = (
    "product",
    "cosine",
    *(f"{what}/{layer}" for layer in LAYERS for what in ("neighbours", "common", "own", "residual")),
)
"""Products and cosines with the class's row of weights. On each layer: the mean distance to the three nearest
prototypes of the class; the distance from its mean in the spread that all classes share, and in its own,
drawn to the common one; and what lies outside the main directions of all."""
_SAY = {
    "neighbours": "distance to the nearest prototypes",
    "common": "distance in the spread of all classes",
    "own": "distance in the class's own spread",
    "residual": "what lies outside the main directions",
}
ASPECTS = (
    "product with the class's weights",
    "angle to the class's weights",
    *(f"{what}, {layer} features" for layer in ("shared", "high-level") for what in _SAY.values()),
)
"""The same for people, in the same order."""
OF_LATER = ("neighbours/shared", "own/shared")
"""Those by which a class that came later is told. The network was trained without it: on its high-level
features novel samples lie among those of the class, and so they do by a row of weights made of these, and in
what the first classes' directions leave over."""
HEAD = 2
"""How many of them, the first ones, are the head's."""
BY_CLASS = ("means", "whitening", "prototypes")
FIXED = ("centre", "directions", "prior")
REMEMBERED = ("rows", *(f"{layer}/{name}" for layer in LAYERS for name in (*FIXED, *BY_CLASS)))

NEAREST = 3
_ROUNDS = 8
_ENOUGH_FOR_DIRECTIONS = 2048
MOST = 1e30
"""Scores beyond this say no more."""
ROUNDING = 1e-5
"""Less than this part of a squared length is nothing: differences of sums in single precision end there."""
BOUND = MOST**0.5
"""Features are held within this: sums of their squares do not overflow."""


@dataclass(frozen=True, eq=False)
class Layer:
    """Classes on one kind of features of length 1, along the main directions of the first classes.

    prior: (r, r), the common covariance, shrunk. means: (classes, r). whitening: (classes, r, r).
    prototypes: (classes, m, r), of a class with fewer samples each more than once.
    """

    centre: Tensor
    directions: Tensor
    prior: Tensor
    means: Tensor
    whitening: Tensor
    prototypes: Tensor

    @classmethod
    def fit(cls, features: Tensor, labels: Tensor, directions: int, prototypes: int) -> Layer:
        """Fit classes 0 to the largest label: features (n, s), labels (n,)."""
        classes = range(int(labels.max()) + 1)
        projection = main_directions(_bounded(evenly(features, labels, _ENOUGH_FOR_DIRECTIONS)), directions)
        rows = projection(_bounded(features))
        mine = [rows[labels == position] for position in classes]
        prior = pooled_covariance([Sums.of(each) for each in mine])
        parts = [_class_parts(each, prior, prototypes) for each in mine]
        stacked = [torch.stack(each) for each in zip(*parts, strict=True)]
        return cls(projection.centre, projection.directions, prior, *stacked)

    def class_parts(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Describe a class by features of its samples: mean (r,), whitening (r, r), prototypes (m, r)."""
        return _class_parts(self._projection(_bounded(features)), self.prior, self.prototypes.shape[1])

    def scores(self, units: Tensor, named: Tensor) -> Tensor:
        """Score features of length 1 by the classes that they are given to: (n, s), (n,) -> (n, 4)."""
        rows = units @ self.directions - self.offset
        near = self._neighbours(rows, named)
        common = ((rows - self.means[named]) @ self.common).square().sum(dim=1)
        far = torch.stack([common, self._distances(rows, named)], dim=1).clamp(min=1e-12).log()
        main = rows[:, : max(1, rows.shape[1] // 4)]
        whole = (units - self.centre).square().sum(dim=1)
        left = whole - main.square().sum(dim=1)
        left = torch.where(left > ROUNDING * whole, left, 0.0)
        return -torch.cat([near[:, None], far, left.sqrt()[:, None]], dim=1)

    def _neighbours(self, rows: Tensor, named: Tensor) -> Tensor:
        classes, many, _ = self.prototypes.shape
        bank = self.prototypes.flatten(0, 1)
        squares = rows.square().sum(dim=1, keepdim=True) + self._lengths - 2 * rows @ bank.T
        mine = squares.view(-1, classes, many).gather(1, named[:, None, None].expand(-1, 1, many))[:, 0]
        nearest = mine.topk(min(NEAREST, many), dim=1, largest=False).values
        return nearest.clamp(min=0).sqrt().mean(dim=1)

    @cached_property
    def _projection(self) -> Projection:
        return Projection(self.centre, self.directions)

    @cached_property
    def offset(self) -> Tensor:
        """Where the centre lies along the directions: (r,)."""
        return self.centre @ self.directions

    @cached_property
    def _lengths(self) -> Tensor:
        return self.prototypes.flatten(0, 1).square().sum(dim=1)

    @cached_property
    def common(self) -> Tensor:
        """What turns deviations into distances in the spread that all classes share: (r, r)."""
        factor = torch.linalg.cholesky(self.prior)
        one = torch.eye(len(factor), dtype=factor.dtype, device=factor.device)
        white: Tensor = torch.linalg.solve_triangular(factor, one, upper=False).T
        return white.float().contiguous()

    @cached_property
    def _distances(self) -> Distances:
        return Distances(self.means, self.whitening)


@dataclass(frozen=True, eq=False)
class Familiarity:
    """All that the ten scores need: a row of weights for each class, (classes, d), and both layers."""

    rows: Tensor
    shared: Layer
    high: Layer

    @staticmethod
    def fit(
        views: Views, labels: Tensor, weights: Tensor, directions: int = 128, prototypes: int = 100
    ) -> Familiarity:
        """Fit classes 0 to the largest label; weights: the head's, of which those without a row get one."""
        layers = [Layer.fit(rows.float(), labels, directions, prototypes) for rows in views]
        rows = weights[: int(labels.max()) + 1].float()
        for position in range(len(rows), int(labels.max()) + 1):
            rows = torch.cat([rows, imprinted(rows, views.high[labels == position])])
        return Familiarity(rows, layers[0], layers[1])

    @staticmethod
    def of(state: Mapping[str, Tensor]) -> Familiarity:
        """Make it from the tensors that `tensors` gave."""
        layers = [Layer(*(state[f"{layer}/{name}"] for name in (*FIXED, *BY_CLASS))) for layer in LAYERS]
        return Familiarity(state["rows"], layers[0], layers[1])

    def tensors(self) -> dict[str, Tensor]:
        """Give all of it by name."""
        out = {"rows": self.rows}
        for name, layer in zip(LAYERS, (self.shared, self.high), strict=True):
            out |= {f"{name}/{part}": getattr(layer, part) for part in (*FIXED, *BY_CLASS)}
        return out

    @property
    def classes(self) -> int:
        """How many classes it knows."""
        return len(self.rows)

    def named(self, views: Views) -> Tensor:
        """Name classes by the rows' products, where nobody else does: (n,)."""
        return (_bounded(views.high) @ self.rows.T).argmax(dim=1)

    def scores(self, views: Views, named: Tensor) -> Tensor:
        """Score samples by the classes that they are given to: (n, components), higher more familiar."""
        high = _bounded(views.high)
        units = unit(high)
        product = (high * self.rows[named]).sum(dim=1, keepdim=True)
        cosine = (units * self.unit_rows[named]).sum(dim=1, keepdim=True)
        shared = self.shared.scores(unit(_bounded(views.shared)), named)
        found = torch.cat([product, cosine, shared, self.high.scores(units, named)], dim=1)
        return found.nan_to_num(nan=-MOST, posinf=MOST, neginf=-MOST).clamp(-MOST, MOST)

    @cached_property
    def unit_rows(self) -> Tensor:
        """The rows of weights, of length 1."""
        return unit(self.rows)

    def with_class(self, views: Views) -> Familiarity:
        """Know one class more, with weights made of its features."""
        state = self.tensors()
        state["rows"] = torch.cat([self.rows, imprinted(self.rows, views.high)])
        for name, layer, features in zip(LAYERS, (self.shared, self.high), views, strict=True):
            for part, value in zip(BY_CLASS, layer.class_parts(features), strict=True):
                state[f"{name}/{part}"] = torch.cat([getattr(layer, part), value[None]])
        return Familiarity.of(state)

    def without_class(self, position: int) -> Familiarity:
        """Know one class less; the others' scores stay as they are, to the bit."""
        stays = torch.arange(self.classes, device=self.rows.device) != position
        named = ["rows", *(f"{layer}/{part}" for layer in LAYERS for part in BY_CLASS)]
        state = self.tensors()
        return Familiarity.of(state | {name: state[name][stays] for name in named})


def imprinted(rows: Tensor, high: Tensor) -> Tensor:
    """Make weights for a class that the head has no row for: its mean direction, as long as other rows are.

    (classes, d), (n, d) -> (1, d). Qi, Brown, Lowe: Low-Shot Learning with Imprinted Weights, CVPR 2018.
    """
    direction = unit(unit(_bounded(high)).mean(dim=0, keepdim=True))
    length: Tensor = torch.linalg.vector_norm(rows, dim=1).mean()
    return direction * length


def evenly(features: Tensor, labels: Tensor, most: int) -> Tensor:
    """Keep about so many rows of features in all, as even a part of each class as there is: (n, s)."""
    return features[even_places(labels, max(2, most // (int(labels.max()) + 1)))]


def even_places(labels: Tensor, most: int) -> Tensor:
    """Find places of at most so many samples of each class, evenly over it: (n,)."""
    places = [(labels == position).nonzero()[:, 0] for position in range(int(labels.max()) + 1)]
    return torch.cat([each[:: -(-len(each) // most) or 1] for each in places])


def main_directions(features: Tensor, most: int) -> Projection:
    """Find the main directions of rows of length 1 about their mean, at most so many: (n, s)."""
    rows = unit(features).double()
    centre = rows.mean(dim=0)
    centred = rows - centre
    if len(centred) < centred.shape[1]:  # the smaller of the two products has the same values
        values, vectors = torch.linalg.eigh(centred @ centred.T)
        vectors = centred.T @ (vectors / values.clamp(min=1e-30).sqrt())
    else:
        values, vectors = torch.linalg.eigh(centred.T @ centred)
    values, vectors = values.flip(0), vectors.flip(1)
    used = int((values > values[0].clamp(min=0) * 1e-9).sum().clamp(min=1, max=most))
    kept = vectors[:, :used] if float(values[0]) > 0 else torch.zeros_like(vectors[:, :1])
    return Projection(centre.float(), kept.float().contiguous())


def prototypes_of(rows: Tensor, many: int) -> Tensor:
    """Stand so many prototypes for a class's rows: (n, r) -> (many, r).

    k-means that begins with the row nearest to the mean and then, again and again, the one farthest from all
    so far; whatever the order of the rows, the same. Of fewer rows each stands for itself, over and over.
    """
    if len(rows) <= many:
        return rows[torch.arange(many, device=rows.device) % len(rows)]
    centres = _spread_out(rows, many)
    for _ in range(_ROUNDS):
        nearest = _squares(rows, centres).argmin(dim=1)
        counts = torch.zeros(many, device=rows.device).index_add_(0, nearest, rows.new_ones(len(rows)))
        sums = torch.zeros_like(centres).index_add_(0, nearest, rows)
        centres = torch.where(counts[:, None] > 0, sums / counts.clamp(min=1)[:, None], centres)
    return centres


def _spread_out(rows: Tensor, many: int) -> Tensor:
    centres = rows.new_empty(many, rows.shape[1])
    place = (rows - rows.mean(dim=0)).square().sum(dim=1).argmin()
    gap = rows.new_full((len(rows),), torch.inf)
    for turn in range(many):
        centres[turn] = rows.index_select(0, place[None])[0]
        gap = torch.minimum(gap, (rows - centres[turn]).square().sum(dim=1))
        place = gap.argmax()
    return centres


def _squares(rows: Tensor, centres: Tensor) -> Tensor:
    """Squared distances but for the rows' own lengths: (n, m)."""
    return centres.square().sum(dim=1) - 2 * rows @ centres.T


def _class_parts(rows: Tensor, prior: Tensor, prototypes: int) -> tuple[Tensor, Tensor, Tensor]:
    sums = Sums.of(rows)
    return sums.mean.float(), Spread.of(sums, prior).whitening(), prototypes_of(rows, prototypes)


def _bounded(rows: Tensor) -> Tensor:
    """Give features in single precision, without what would overflow when squared."""
    return rows.float().nan_to_num(nan=0.0, posinf=BOUND, neginf=-BOUND).clamp(-BOUND, BOUND)
