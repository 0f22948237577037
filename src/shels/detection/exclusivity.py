"""How exclusive the features of classes are: Definitions 1 and 2 of the paper, and Eq. (7)."""

from collections.abc import Collection
from collections.abc import Set as AbstractSet
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, bincount

Array = NDArray[Any]


def class_means(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Average the features of each class: (n, d), (n,) -> (classes, d).

    >>> import torch
    >>> class_means(torch.tensor([[1.0, 0.0], [3.0, 2.0], [5.0, 5.0]]), torch.tensor([0, 0, 1]), 2)
    tensor([[2., 1.],
            [5., 5.]])
    """
    sums = features.new_zeros(classes, features.shape[1]).index_add_(0, labels, features)
    return sums / bincount(labels, minlength=classes).clamp(min=1).unsqueeze(1)


def feature_exclusivity(weights: Tensor, features: Tensor, labels: Tensor) -> NDArray[np.float64]:
    """Measure how exclusive the features of each two classes are: (classes, classes).

    weights: (classes, d) of the head; features: (n, d), labels: (n,) of samples.
    """
    means = class_means(features, labels, len(weights))
    return exclusivity(active_features(means.cpu().numpy(), weights.cpu().numpy()))


def active_features(signatures: Array, weights: Array) -> NDArray[np.bool_]:
    """Return which features stand for each class: those whose mean, times the class's weight, is over 0.

    signatures, weights: (classes, d) -> (classes, d). This reading of "active" gives the published figures;
    firing at all does not.
    """
    return np.asarray(signatures * weights > 0)


def exclusivity(active: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return how exclusive the feature sets of each two classes are, Eq. (7): features of one of the two
    over features of either. 1 is wholly exclusive. active: (classes, d) -> (classes, classes), diagonal 0.
    """  # noqa: D205
    a, b = active[:, None, :], active[None, :, :]
    either = (a | b).sum(axis=2)
    return np.asarray((a ^ b).sum(axis=2) / np.maximum(either, 1))


def exclusive(s: AbstractSet[Any], t: AbstractSet[Any]) -> bool:
    """Tell whether each of two sets has an element that the other lacks (Definition 1).

    No set is exclusive with its subset, and none with the empty set.

    >>> exclusive({"beak", "wing"}, {"wing", "fin"}), exclusive({"wing"}, {"wing", "fin"})
    (True, False)
    """
    return bool(s - t) and bool(t - s)


def exclusive_collection(sets: Collection[AbstractSet[Any]]) -> bool:
    """Tell whether every two different sets of a collection are exclusive (Definition 2).

    >>> exclusive_collection([{1, 2}, {2, 3}, {1, 3}]), exclusive_collection([{1, 2}, {2, 3}, {2}])
    (True, False)
    """
    return all(exclusive(s, t) for s, t in combinations(sets, 2) if s != t)


def mean_exclusivity(matrix: NDArray[np.float64]) -> float:
    """Return the mean over all pairs of different classes."""
    return float(matrix[~np.eye(len(matrix), dtype=bool)].mean())
