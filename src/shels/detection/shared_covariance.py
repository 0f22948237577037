"""Classes as Gaussians of one covariance: the sums that Mahalanobis scores stand on, in double precision.

A covariance is inverted on the directions that training samples use, a pseudo-inverse: those of less than
1e-10 of the largest variance say nothing, as in the authors' implementations.
"""

from collections.abc import Mapping, MutableMapping

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from shels.detection.gaussians import Sums

SUMS = ("counts", "means", "scatter")
"""Samples by class (classes,), means (classes, d), and outer products of deviations from them (d, d)."""
_EMPTY = 1e-10


ADDED = "added"
"""Means of classes that came later, (more, d): a score leaves the covariance as it was, since a threshold
that was set with it would mean something else with another."""
REMEMBERED = (*SUMS, ADDED)


def sums_of(rows: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Sum up classes 0 to the largest label: rows (n, d), labels (n,)."""
    out = _sums(rows[labels == 0])
    for position in range(1, int(labels.max()) + 1):  # one at a time: a scatter of many features is large
        out = with_class(out, rows[labels == position])
    return out


def with_class(sums: Mapping[str, Tensor], rows: Tensor) -> dict[str, Tensor]:
    """Add one class, of these rows (n, d), to sums."""
    new = _sums(rows)
    joined = {name: torch.cat([sums[name], new[name]]) for name in ("counts", "means")}
    return joined | {"scatter": sums["scatter"] + new["scatter"]}


def _sums(rows: Tensor) -> dict[str, Tensor]:
    sums = Sums.of(rows)
    counts = torch.tensor([sums.count], device=rows.device)
    return {"counts": counts, "means": sums.mean.unsqueeze(0), "scatter": sums.scatter}


def first_classes(rows: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Sum up the first classes, with no class after them: rows (n, d), labels (n,)."""
    sums = sums_of(rows, labels)
    return {**sums, ADDED: sums["means"][:0]}


def with_mean(sums: Mapping[str, Tensor], rows: Tensor) -> dict[str, Tensor]:
    """Add the mean of a class that came later, of which these are the rows (n, d)."""
    return {**sums, ADDED: torch.cat([sums[ADDED], rows.double().mean(dim=0, keepdim=True)])}


def all_means(sums: Mapping[str, Tensor]) -> Tensor:
    """Return the means of all classes, (classes, d)."""
    return torch.cat([sums["means"], sums[ADDED]])


def within(sums: Mapping[str, Tensor]) -> Tensor:
    """Return the covariance of samples about their class's mean: (d, d)."""
    return sums["scatter"] / sums["counts"].sum()


def centre(sums: Mapping[str, Tensor]) -> Tensor:
    """Return the mean of all samples: (d,)."""
    return sums["counts"].double() @ sums["means"] / sums["counts"].sum()


def overall(sums: Mapping[str, Tensor]) -> Tensor:
    """Return the covariance of samples about the mean of all: (d, d)."""
    gaps = sums["means"] - centre(sums)
    return within(sums) + (gaps * sums["counts"].unsqueeze(1)).T @ gaps / sums["counts"].sum()


def whitening(covariance: Tensor) -> Tensor:
    """Return what makes samples of this covariance spread alike in all directions: (d, d) -> (d, rank)."""
    values, vectors = torch.linalg.eigh(covariance)
    used = values > values[-1].clamp(min=0) * _EMPTY
    white: Tensor = vectors[:, used] / values[used].sqrt()
    return white


_WHITE: MutableMapping[Tensor, Tensor] = WeakTensorKeyDictionary()


def whitening_within(sums: Mapping[str, Tensor]) -> Tensor:
    """Return the whitening of the covariance within classes, worked out once for each scatter tensor.

    A score's scatter stays the same tensor while classes are added, so its eigenvectors are found once.
    """
    scatter = sums["scatter"]
    if scatter not in _WHITE:
        _WHITE[scatter] = whitening(within(sums))
    return _WHITE[scatter]


def squared_distances(rows: Tensor, means: Tensor, white: Tensor) -> Tensor:
    """Return squared Mahalanobis distances: rows (n, d), means (classes, d) -> (n, classes)."""
    middle = means.mean(dim=0)
    here, there = (rows - middle) @ white, (means - middle) @ white
    squares = here.square().sum(dim=1, keepdim=True) + there.square().sum(dim=1) - 2 * here @ there.T
    return squares.clamp(min=0)
