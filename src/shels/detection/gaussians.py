"""Gaussians: a class is its count, mean and scatter on features that stay as they are.

The sums are exact: classes may come in any order and be taken out again, with the same result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from shels.runtime import exporting, lone

_ENOUGH_FOR_DIRECTIONS = 10_000
_MOST_WEIGHT = 4.0
_ROOM = 2**24
"""Numbers that are held at once where many rows are compared with many classes: 64 MiB."""


@dataclass(frozen=True, eq=False)
class Sums:
    """All that stays of one class: count, mean (r,) and scatter (r, r), the outer products of deviations."""

    count: int
    mean: Tensor
    scatter: Tensor

    @classmethod
    def of(cls, rows: Tensor) -> Self:
        """Return the sums of rows (n, r), in double precision."""
        rows = rows.double()
        mean = rows.mean(dim=0)
        centred = rows - mean
        return cls(len(rows), mean, centred.T @ centred)

    @staticmethod
    def pooled_scatter(classes: Sequence[Sums]) -> Tensor:
        """Add up the scatter of classes in the order given: (r, r)."""
        return torch.stack([sums.scatter for sums in classes]).sum(dim=0)

    def leading(self, directions: int) -> Sums:
        """Return the same over the first directions alone."""
        return Sums(self.count, self.mean[:directions], self.scatter[:directions, :directions])


class AnySums(Protocol):
    """What stays of one class, whichever way its scatter is kept."""

    @property
    def count(self) -> int:
        """How many rows there were."""

    @property
    def mean(self) -> Tensor:
        """Their mean: (r,)."""

    @staticmethod
    def pooled_scatter(classes: Sequence[Any]) -> Tensor:
        """Add up the scatter of classes in the order given: (r, r)."""


@dataclass(frozen=True, eq=False)
class Projection:
    """Feature rows of length 1 along their main directions, fixed by the classes known at `fit`.

    centre: (s,), directions: (s, r), the first ones those of most variance.
    """

    centre: Tensor
    directions: Tensor

    @classmethod
    def fit(cls, features: Tensor, most: int) -> Self:
        """Return the projection on the main directions of features (n, s), at most `most` of them."""
        step = -(-len(features) // _ENOUGH_FOR_DIRECTIONS)
        rows = _unit(features[::step]).double()
        centre = rows.mean(dim=0)
        values, vectors = _main_directions(rows - centre)
        used = int((values > values[0].clamp(min=0) * 1e-9).sum().clamp(min=1, max=most))
        return cls(centre.float(), vectors[:, :used].float().contiguous())

    def __call__(self, features: Tensor) -> Tensor:
        """Return features in the projection: (n, s) -> (n, r)."""
        return _unit(features) @ self.directions - self.offset

    @cached_property
    def offset(self) -> Tensor:
        """Where the centre lies in the projection: (r,)."""
        return self.centre @ self.directions

    def leading(self, directions: int) -> Projection:
        """Return the projection on the first directions alone."""
        return Projection(self.centre, self.directions[:, :directions].contiguous())


def _unit(rows: Tensor) -> Tensor:
    """Scale rows to length 1; a row of zeros stays as it is. No gradient flows here, so this may be short."""
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / lengths.clamp(min=torch.finfo(lengths.dtype).tiny)


def _main_directions(centred: Tensor) -> tuple[Tensor, Tensor]:
    """Return the squared lengths of rows along their main directions, largest first, and the directions."""
    if len(centred) < centred.shape[1]:  # fewer rows than columns: most directions are empty
        _, lengths, directions = torch.linalg.svd(centred, full_matrices=False)
        return lengths.square(), directions.T
    values, vectors = torch.linalg.eigh(centred.T @ centred)
    return values.flip(0), vectors.flip(1)


def shrunk(covariance: Tensor, count: int) -> Tensor:
    """Return a covariance drawn towards a multiple of the identity, by how little `count` rows tell.

    The weight is that of the oracle approximating shrinkage (Chen, Wiesel, Eldar, Hero 2010), at least 0.001.
    """
    size = len(covariance)
    variance = covariance.diagonal().mean()
    square = (covariance**2).mean()
    gap = (count + 1.0) * (square - variance**2 / size)
    weight = (square + variance**2) / gap if gap > 0 else torch.ones_like(square)
    weight = weight.clamp(min=1e-3, max=1.0)
    shrunken = (1 - weight) * covariance
    shrunken.diagonal().add_(weight * variance.clamp(min=1e-12))
    return shrunken


def pooled_covariance(classes: Sequence[Sums]) -> Tensor:
    """Return the covariance within classes, over all of them, shrunk: (r, r)."""
    return shrunk(*_within(classes))


def _within(classes: Sequence[AnySums]) -> tuple[Tensor, int]:
    """Return the covariance within classes and how many rows it stands on, added up in one order."""
    ordered = sorted(classes, key=lambda sums: (sums.count, sums.mean[:4].tolist()))
    scatter = ordered[0].pooled_scatter(ordered)
    free = max(sum(sums.count - 1 for sums in classes), 1)
    return scatter / free, free


def balanced(classes: Sequence[Sums]) -> list[Sums]:
    """Have how classes of few rows spread count as in the largest, but for four times their rows at most.

    Each stands for how it spreads itself, and later classes, of which there are few rows, spread more than
    those that the features were trained on. Means, and how many rows these stand on, stay.
    """
    most = max(sums.count for sums in classes)
    weights = [min(most / sums.count, _MOST_WEIGHT) for sums in classes]
    free = sum(max(sums.count - 1, 0) for sums in classes)
    whole = math.fsum(weight * (sums.count - 1) for weight, sums in zip(weights, classes, strict=True))
    share = free / whole if whole else 1.0
    pairs = zip(weights, classes, strict=True)
    return [Sums(sums.count, sums.mean, share * weight * sums.scatter) for weight, sums in pairs]


@dataclass(frozen=True, eq=False)
class Discriminant:
    """Linear discriminant analysis: one weight vector and offset for each class, of equal priors."""

    weights: Tensor
    offsets: Tensor

    @classmethod
    def of(cls, classes: Sequence[AnySums]) -> Self:
        """Return the discriminant of these classes.

        The mean of a few rows lies off the true one, which lengthens squared distances to it by the number
        of directions (those that shrinkage leaves) over the count; the offset makes up for that.
        """
        means = torch.stack([sums.mean for sums in classes]).double()
        counts = torch.tensor([sums.count for sums in classes], dtype=means.dtype, device=means.device)
        within, free = _within(classes)
        factor = torch.linalg.cholesky(shrunk(within, free))
        weights = torch.cholesky_solve(means.T, factor).T
        directions = torch.cholesky_solve(within, factor).trace()
        offsets = directions / counts - (means * weights).sum(dim=1)
        return cls(weights.float(), offsets.float() / 2)

    def __call__(self, rows: Tensor) -> Tensor:
        """Return the score of each class: (n, r) -> (n, classes)."""
        return rows @ self.weights.T + self.offsets


@dataclass(frozen=True, eq=False)
class Naming:
    """What scores each class by features: a projection, if it is needed, and a discriminant."""

    projection: Projection | None
    discriminant: Discriminant

    @classmethod
    def of(cls, projection: Projection, discriminant: Discriminant) -> Self:
        """Join the two. Of fewer classes than directions one product is made, which need not read these."""
        if len(discriminant.weights) >= projection.directions.shape[1]:
            return cls(projection, discriminant)
        weights = discriminant.weights.double()
        through = (projection.directions.double() @ weights.T).T.float().contiguous()
        offsets = discriminant.offsets - (weights @ projection.offset.double()).float()
        return cls(None, Discriminant(through, offsets))

    def __call__(self, features: Tensor) -> Tensor:
        """Return the score of each class: (n, s) -> (n, classes)."""
        return self.discriminant(_unit(features) if self.projection is None else self.projection(features))


@dataclass(frozen=True, eq=False)
class Spread:
    """How far rows lie from a class's mean, in the spread of the class: its own, drawn to the common one."""

    mean: Tensor
    factor: Tensor
    count: int
    weight: float

    @classmethod
    def of(cls, sums: Sums, prior: Tensor) -> Self:
        """Return the spread along r directions, the `prior` covariance (r, r) weighing like 4 r rows."""
        sums, weight = sums.leading(len(prior)), 4.0 * len(prior)
        return cls(sums.mean, torch.linalg.cholesky(weight * prior + sums.scatter), sums.count, weight)

    def whitening(self) -> Tensor:
        """Find what turns deviations of new rows into distances, in single precision: (r, r)."""
        size = self.weight + self.count - 1
        one = torch.eye(len(self.factor), dtype=self.factor.dtype, device=self.factor.device)
        white: Tensor = torch.linalg.solve_triangular(self.factor, one, upper=False) * size**0.5
        return white.T.float().contiguous()

    def left_out(self, rows: Tensor) -> Tensor:
        """Return the squared distance of each of the class's own rows from the class without that row.

        Exact, by a downdate of rank one: (n, r) -> (n,). Of a single row there is none: (0,).
        """
        if self.count < 2:
            return self.mean.new_empty(0)
        share = self.count / (self.count - 1)
        white: Tensor = torch.linalg.solve_triangular(self.factor, (rows.double() - self.mean).T, upper=False)
        squares = white.square().sum(dim=0)
        room = (1 - share * squares).clamp(min=1e-9)
        return squares * share**2 / room * (self.weight + self.count - 2)


@dataclass(frozen=True, eq=False)
class Distances:
    """Squared distances of new rows from classes, each in its own spread, for many classes at once.

    means: (classes, r), whitening: (classes, r, r), both in single precision.
    """

    means: Tensor
    whitening: Tensor

    @classmethod
    def of(cls, spreads: Sequence[Spread]) -> Self:
        """Stack the spreads of classes."""
        means = torch.stack([spread.mean for spread in spreads]).float()
        return cls(means, torch.stack([spread.whitening() for spread in spreads]))

    def with_class(self, spread: Spread) -> Distances:
        """Measure one class more."""
        new = Distances.of([spread])
        return Distances(torch.cat([self.means, new.means]), torch.cat([self.whitening, new.whitening]))

    def __call__(self, rows: Tensor, position: Tensor) -> Tensor:
        """Measure each row's distance from the class at its position: (n, r or more), (n,) -> (n,).

        On a GPU all classes are measured, in as many at once as memory is meant for, and the one that counts
        is taken: to sort rows by class, the host would have to wait for it. In an exported graph, which is
        made for any number of rows, each row is measured from its own class alone.
        """
        if lone(rows):
            place, near = int(position), rows[:, : self.means.shape[1]]
            return ((near - self.means[place]) @ self.whitening[place]).square().sum(dim=1)
        if exporting():
            near = rows[:, : self.means.shape[1]] - self.means[position]
            return (near[:, None] @ self.whitening[position]).square().sum(dim=(1, 2))
        if rows.is_cuda or not len(rows):
            return self.from_all(rows).gather(0, position[None])[0]
        return self._class_by_class(rows, position)

    def _class_by_class(self, rows: Tensor, position: Tensor) -> Tensor:
        """Measure the rows of each class together, on the CPU, where that is a fraction of the work."""
        classes, order = position.sort()
        near = rows[order, : self.means.shape[1]] - self.means[classes]
        counts = torch.bincount(classes, minlength=len(self.means)).tolist()
        parts = zip(torch.split(near, counts), self.whitening, strict=True)
        white = torch.cat([mine @ factor for mine, factor in parts if len(mine)])
        return torch.empty_like(white[:, 0]).scatter_(0, order, white.square().sum(dim=1))

    def from_all(self, rows: Tensor) -> Tensor:
        """Measure each row's distance from every class: (n, r or more) -> (classes, n)."""
        rows = rows[:, : self.means.shape[1]]
        at_once = max(1, _ROOM // max(1, rows.numel()))
        pairs = zip(*(torch.split(each, at_once) for each in (self.means, self.whitening)), strict=True)
        return torch.cat([((rows - means[:, None]) @ white).square().sum(dim=2) for means, white in pairs])
