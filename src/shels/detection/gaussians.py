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

from shels.runtime import exporting

_ENOUGH_FOR_DIRECTIONS = 10_000
_UNKNOWN_VARIANCE = 0.25
"""Of the logarithm of distances, where a single sample tells nothing about it."""
_PRIOR_COUNT = 10
"""A class's mean distance is drawn to that of all classes as if by this many samples."""
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
        return _unit(features) @ self.directions - self._offset

    @cached_property
    def _offset(self) -> Tensor:
        return self.centre @ self.directions


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

    def __call__(self, rows: Tensor, position: Tensor) -> Tensor:
        """Measure each row's distance from the class at its position: (n, r or more), (n,) -> (n,).

        All classes are measured, in as many at once as memory is meant for, and the one that counts is taken:
        to sort rows by class, the host would have to wait for the GPU. In an exported graph, which is made
        for any number of rows, each row is measured from its own class alone.
        """
        if exporting():
            near = rows[:, : self.means.shape[1]] - self.means[position]
            return (near[:, None] @ self.whitening[position]).square().sum(dim=(1, 2))
        return self.from_all(rows).gather(0, position[None])[0]

    def from_all(self, rows: Tensor) -> Tensor:
        """Measure each row's distance from every class: (n, r or more) -> (classes, n)."""
        rows = rows[:, : self.means.shape[1]]
        at_once = max(1, _ROOM // max(1, rows.numel()))
        pairs = zip(*(torch.split(each, at_once) for each in (self.means, self.whitening)), strict=True)
        return torch.cat([((rows - means[:, None]) @ white).square().sum(dim=2) for means, white in pairs])


# How far is far: log distances and their scale -----------------------------------------------------------


def log_scores(logs: Tensor, scale: Tensor, distance: str = "farther") -> Tensor:
    """Score samples, higher more familiar, by log distances (n, 2) and their mean and deviation (n, 2, 2).

    distance: whether the farther of the two counts, or their sum.
    """
    far = (logs - scale[..., 0]) / scale[..., 1]
    return -(far.sum(dim=1) if distance == "sum" else far.amax(dim=1))


def log_scales(logs: Tensor, predicted: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of log distances, over all and by class: (2, 2), (classes, 2, 2)."""
    right = [logs[(predicted == c) & (labels == c)] for c in range(classes)]
    scale = _scale([each for each in right if len(each) > 1] or [logs])
    return scale, torch.stack([shrunk_scale(each, scale, prior=_PRIOR_COUNT) for each in right])


def _scale(groups: Sequence[Tensor]) -> Tensor:
    """Mean and standard deviation of log distances within groups of them: (n, 2) each -> (2, 2)."""
    mean = torch.stack([logs.mean(dim=0) for logs in groups]).mean(dim=0)
    centred = torch.cat([logs - logs.mean(dim=0) for logs in groups])
    free = len(centred) - len(groups)
    variance = centred.square().sum(dim=0) / free if free else torch.full_like(mean, _UNKNOWN_VARIANCE)
    return torch.stack([mean, variance.sqrt().clamp(min=1e-6)], dim=1)


def shrunk_scale(logs: Tensor, scale: Tensor, prior: int) -> Tensor:
    """Mean and deviation of a class's own log distances, drawn to those of all where it has few samples.

    logs: (n, 2) -> (2, 2). prior: how many samples the mean of all counts as. The network was not trained on
    a class that came later, and its samples lie farther out than those of the first classes, so for such a
    class it counts as none. What few samples leave uncertain widens the deviation.
    """
    if not len(logs):
        return scale if prior else _single_scale(scale)
    own = logs.mean(dim=0)
    return _shrunk_from(len(logs), own, (logs - own).square().sum(dim=0), scale, prior)


def _single_scale(scale: Tensor) -> Tensor:
    """Mean and deviation of log distances from a class of one sample: it lies as far off as those it judges.

    So squared distances are twice those from a mean, and they vary as much again. Later classes lie farther
    out than the first, by one deviation in the median of MNIST's and FMNIST's.
    """
    mean, deviation = scale.unbind(dim=1)
    return torch.stack([mean + math.log(2) + deviation, deviation * math.sqrt(2)], dim=1)


def shrunk_scale_without_each(logs: Tensor, scale: Tensor) -> Tensor:
    """Give, for each sample of a later class, what `shrunk_scale` gives without it: (n, 2) -> (n, 2, 2).

    A sample that had a say in its own standard would look more familiar than a new one.
    """
    n = len(logs)
    if n < 2:
        return scale.expand(n, 2, 2)
    own = logs.mean(dim=0)
    rest = (n * own - logs) / (n - 1)
    square = (logs - own).square().sum(dim=0) - (logs - own).square() * (n / (n - 1))
    return _shrunk_from(n - 1, rest, square.clamp(min=0), scale, prior=0)


def _shrunk_from(n: int, own: Tensor, square: Tensor, scale: Tensor, prior: int) -> Tensor:
    mean = (n * own + prior * scale[:, 0]) / (n + prior)
    variance = (square + _PRIOR_COUNT * scale[:, 1] ** 2) / (n - 1 + _PRIOR_COUNT)
    return torch.stack([mean, (variance * (1 + 1 / (n + prior))).sqrt()], dim=-1)
