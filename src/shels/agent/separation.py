"""How many new classes a pile of novel samples holds, and which sample belongs to which.

The samples are divided in two again and again for as long as the two halves are clearly apart. Whether
they are is judged on samples that had no part in choosing the division: any cloud can be cut in two, but
only in two clouds does a cut learned from one half of the samples fall into a gap of the other half.
Members that lie nearer to a known class than to the rest of their own group were rejected by mistake.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shels.config.checks import Checked, Count, NotNegative, Share, whole
from shels.errors import DataError
from shels.runtime import derived_seed

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST_TESTED = 600  # more samples make the test of a division slower, not better
_REFINEMENTS = 2  # of the cut that 2-means gives
_SHRINKAGE = 0.3  # of the spread about the two centres: a half may hold fewer samples than directions


class SeparationSettings(Checked):
    """When a group of novel samples is a class of its own."""

    least_size: Annotated[int, whole(5)] = 10
    """Samples that a class needs; 5 or more. A smaller group is dropped, and never divided off."""
    least_purity: Share = 0.6
    """Purity that a class needs, see `Separation`."""
    most_classes: Count = 20
    """Classes proposed at most, the largest ones."""
    least_gap: NotNegative = 5.2
    """Distance between two groups, in their standard deviations, from which they are two classes. The halves
    of one Gaussian class are 2.7 apart, of an evenly spread one 3.5."""
    most_between: Share = 0.13
    """Density between two groups, as a share of the lower peak, up to which they are two classes. On MNIST
    and FMNIST two classes in equal parts stay under 0.12 nine times in ten, and two kinds of sneaker over."""
    directions: Count = 20
    """Directions of largest spread in which divisions are looked for."""
    trials: Count = 5
    """How often the samples are halved at random to judge a division."""


@dataclass(frozen=True, eq=False)
class Separation:
    """The classes that novel samples were divided into, the largest first.

    groups: (n,) int64, the position of the proposed class, -1 for a sample that belongs to none. purity: for
    each class the share of the samples found together that lie nearer to the centre of the others than to
    any known mean or any other group's centre, 0-1.
    """

    groups: Tensor
    purity: tuple[float, ...]


class Division(NamedTuple):
    """A cut through a cloud of samples: side = (row - centre) @ direction > cut."""

    centre: NDArray[np.float64]
    direction: NDArray[np.float64]
    cut: float

    def along(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return where rows lie across the cut, negative on one side: (n, d) -> (n,)."""
        return (rows - self.centre) @ self.direction - self.cut


def separate(
    features: Tensor,
    settings: SeparationSettings | None = None,
    *,
    known_means: Tensor | None = None,
    seed: int = 0,
) -> Separation:
    """Return how many new classes the novel samples hold, and which sample belongs to which.

    features: (n, d), scaled so that the known classes spread alike in all directions. known_means: (k, d);
    with them, samples of known classes that were taken for novel are dropped. The same seed gives the same
    answer.
    """
    settings = settings or SeparationSettings()
    rows = _as_rows(features, "features")
    means = None if known_means is None else _as_rows(known_means, "known_means")
    if means is not None and means.shape[1] != rows.shape[1]:
        raise DataError(
            f"known_means must have {rows.shape[1]} columns as the features, got {means.shape[1]}"
        )
    found = divide(rows, np.arange(len(rows)), settings, seed)
    found = [members for members in found if len(members) >= settings.least_size]
    candidates = []
    for position, members in enumerate(found):
        centres = [rows[other].mean(axis=0) for i, other in enumerate(found) if i != position]
        kept, purity = own_members(rows, members, np.array([*centres, *(() if means is None else means)]))
        if len(kept) >= settings.least_size and purity >= settings.least_purity:
            candidates.append((kept, purity))
    candidates = sorted(candidates, key=lambda pair: -len(pair[0]))[: settings.most_classes]
    groups = torch.full((len(rows),), -1, dtype=torch.int64)
    for position, (kept, _) in enumerate(candidates):
        groups[torch.from_numpy(kept)] = position
    return Separation(groups, tuple(purity for _, purity in candidates))


def divide(
    rows: NDArray[np.float64], members: NDArray[np.int64], settings: SeparationSettings, seed: int
) -> list[NDArray[np.int64]]:
    """Return the members in as many groups as are clearly apart; rows: (n, d), members: positions in it."""
    own = rows[members]
    if len(members) < 2 * settings.least_size or not are_two(own, settings, seed):
        return [members]
    chosen = _some(len(members), seed)
    across = best_division(own[chosen], settings.directions, seed).along(own)
    upper = across > lowest_between(across)[0]
    if min(upper.sum(), (~upper).sum()) < settings.least_size:
        return [members]
    return [
        group
        for side in (members[~upper], members[upper])
        for group in divide(rows, side, settings, derived_seed(seed, len(side)))
    ]


def are_two(rows: NDArray[np.float64], settings: SeparationSettings, seed: int) -> bool:
    """Return whether rows are two clouds: (n, d).

    A division is learned from a random half of the rows and judged on the other half, several times.
    """
    rows = rows[_some(len(rows), seed)]
    draw = np.random.default_rng(derived_seed(seed, "halves"))
    gaps, between = [], []
    for _ in range(settings.trials):
        order = draw.permutation(len(rows))
        halves = np.array_split(order, 2)
        for learned, judged in (halves, halves[::-1]):
            across = best_division(rows[learned], settings.directions, seed).along(rows[judged])
            smaller = min((across > 0).sum(), (across <= 0).sum())
            if smaller < settings.least_size / 2:  # a few stray samples are not a class
                return False
            gaps.append(gap(across))
            between.append(lowest_between(across)[1])
    return bool(np.mean(gaps) >= settings.least_gap and np.mean(between) <= settings.most_between)


def best_division(rows: NDArray[np.float64], directions: int, seed: int) -> Division:
    """Return the linear discriminant between the two halves that 2-means finds: rows (n, d)."""
    from sklearn.cluster import KMeans  # noqa: PLC0415

    centre = rows.mean(axis=0)
    axes = main_axes(rows - centre, directions)
    points = (rows - centre) @ axes
    if not len(axes.T) or not points.any():
        return Division(centre, np.zeros_like(centre), 0.0)
    state = derived_seed(seed, "k-means") % 2**32
    side = KMeans(2, n_init=4, random_state=state).fit_predict(points).astype(bool)
    for _ in range(_REFINEMENTS + 1):  # 2-means cuts midway; the gap lies nearer to the smaller of two clouds
        direction, middle = discriminant(points, side)
        across = points @ direction - middle
        cut = lowest_between(across)[0]
        upper = across > cut
        if upper.all() or not upper.any():
            break
        side = upper
    return Division(centre, axes @ direction, middle + cut)


def discriminant(points: NDArray[np.float64], side: NDArray[np.bool_]) -> tuple[NDArray[np.float64], float]:
    """Return the direction that tells two sides best apart, and the place midway: (n, d), (n,) -> (d,)."""
    low, high = points[~side].mean(axis=0), points[side].mean(axis=0)
    rest = np.where(side[:, None], points - high, points - low)
    spread = rest.T @ rest / len(rest)
    size = spread.trace() / len(spread) or 1.0
    spread = (1 - _SHRINKAGE) * spread + _SHRINKAGE * size * np.eye(len(spread))
    direction = np.linalg.solve(spread, high - low)
    return direction, float((low + high) @ direction / 2)


def main_axes(centred: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Return the directions of largest spread: (n, d) -> (d, at most count)."""
    n, d = centred.shape
    if d <= n:
        return np.linalg.eigh(centred.T @ centred)[1][:, : -count - 1 : -1]
    values, vectors = np.linalg.eigh(centred @ centred.T)  # the smaller of the two matrices
    keep = values[: -count - 1 : -1] > 1e-10 * max(values[-1], 1e-300)
    sizes = np.sqrt(values[: -count - 1 : -1][keep])
    axes: NDArray[np.float64] = centred.T @ vectors[:, : -count - 1 : -1][:, keep] / sizes
    return axes


def gap(across: NDArray[np.float64]) -> float:
    """Return how far apart the values under and over 0 lie on average, in their standard deviations."""
    low, high = across[across <= 0], across[across > 0]
    if not len(low) or not len(high):
        return 0.0
    variance = (low.var() * len(low) + high.var() * len(high)) / len(across)
    return float((high.mean() - low.mean()) / math.sqrt(variance)) if variance > 0 else math.inf


def lowest_between(across: NDArray[np.float64]) -> tuple[float, float]:
    """Return where between two clouds fewest values lie, and their density there over the lower peak's."""
    low, high = across[across <= 0], across[across > 0]
    if not len(low) or not len(high):
        return 0.0, 1.0
    spread = math.sqrt((low.var() * len(low) + high.var() * len(high)) / len(across))
    width = max(0.9 * spread * len(across) ** -0.2, 1e-9 * (high.mean() - low.mean()))
    grid = np.linspace(low.mean(), high.mean(), 61)
    beyond = np.concatenate([grid, np.quantile(low, [0.25, 0.5]), np.quantile(high, [0.5, 0.75])])
    density = np.exp(-0.5 * ((beyond[:, None] - across) / width) ** 2).sum(axis=1)
    deepest = int(density[:61].argmin())
    here = beyond <= grid[deepest]
    peak = min(density[here].max(), density[~here].max() if (~here).any() else density[deepest])
    return float(grid[deepest]), min(1.0, float(density[deepest] / peak))


def own_members(
    rows: NDArray[np.float64], members: NDArray[np.int64], others: NDArray[np.float64]
) -> tuple[NDArray[np.int64], float]:
    """Return the members nearer to the rest of their group than to other centres, and their share.

    others: (k, d), means of known classes and centres of other groups, may be none. A member's distance
    from its group is taken from the mean of the rest, so that it cannot vouch for itself.
    """
    from scipy.spatial.distance import cdist  # noqa: PLC0415

    kept, share = members, 1.0
    for _ in range(5 if len(others) else 0):
        if len(kept) < 2:
            return kept[:0], 0.0
        centre, count = rows[kept].mean(axis=0), len(kept)
        distance = np.square(rows[members] - centre).sum(axis=1)
        inside = np.isin(members, kept)
        distance[inside] *= (count / (count - 1)) ** 2  # the mean of the rest lies this much further
        nearest = cdist(rows[members], others, "sqeuclidean").min(axis=1)
        kept, before = members[distance < nearest], kept
        share = len(kept) / len(members)
        if np.array_equal(kept, before):
            break
    return kept, share


def _some(n: int, seed: int) -> NDArray[np.int64]:
    draw = np.random.default_rng(derived_seed(seed, "some"))
    return np.sort(draw.permutation(n)[:_MOST_TESTED])


def _as_rows(values: Any, name: str) -> NDArray[np.float64]:
    if not isinstance(values, Tensor) or values.ndim != 2 or not values.shape[1]:
        got = f"{type(values).__name__} {tuple(getattr(values, 'shape', ()))}"
        raise DataError(f"{name} must be a tensor (n, d), got {got}")
    if not bool(values.isfinite().all()):
        raise DataError(f"{name} must be finite, got NaN or infinity")
    return values.detach().cpu().double().numpy()
