"""Measures: how well known and novel are told apart, and how exclusive the classes' features are."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Set as AbstractSet
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def open_set_measures(
    labels: Array, predicted: Array, novel: Array, scores: Array, *, novel_judged: Array, novel_scores: Array
) -> dict[str, float]:
    """Return the paper's measures over samples of known classes and samples of novel ones, fractions 0-1.

    labels, predicted, novel, scores: (n,) of the known samples; novel_judged, novel_scores: (m,) of the novel
    ones. Scores: higher is more familiar. Where there is no novel sample, what needs one is left out.
    """
    right = predicted == labels
    out = {"closed_set_accuracy": float(right.mean()), "known_accuracy": float((right & ~novel).mean())}
    out["acceptance"] = float((~novel).mean())
    if len(novel_scores):
        out["novel_accuracy"] = float(novel_judged.mean())
        out["combined_accuracy"] = (out["known_accuracy"] + out["novel_accuracy"]) / 2
        out |= separation(scores, novel_scores)
    return out


def separation(known: Array, novel: Array) -> dict[str, float]:
    """Return how well scores alone separate known from novel, whatever the threshold.

    fpr95: share of novel samples accepted where 95 % of the known ones are. aupr_known and aupr_novel: area
    under precision and recall with that side as the one sought. A score that is no number counts as lowest.
    All from one sort: experiments ask for this thousands of times, and a library sorts for each anew.
    """
    accepted_known, accepted_novel = _accepted(known, novel)
    true, false = accepted_known / len(known), accepted_novel / len(novel)
    heights = (true + np.concatenate([[0.0], true[:-1]])) / 2
    return {
        "auroc": float((np.diff(false, prepend=0.0) * heights).sum()),
        "fpr95": float(false[np.argmax(true >= 0.95)]),
        "aupr_known": _precision(accepted_known, accepted_novel),
        "aupr_novel": _precision(_reversed(accepted_novel), _reversed(accepted_known)),
    }


def _accepted(known: Array, novel: Array) -> tuple[Array, Array]:
    """Return how many known and novel samples score so high or higher, at each score from the highest."""
    scores = np.concatenate([known, novel]).astype(np.float64)
    scores = np.nan_to_num(scores, nan=np.finfo(np.float64).min)
    order = np.argsort(-scores, kind="stable")
    last = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)  # of samples that score alike
    count = np.cumsum(order < len(known))[last]
    return count, last + 1 - count


def _reversed(accepted: Array) -> Array:
    """Return how many samples score so low or lower, at each score from the lowest."""
    return np.asarray(accepted[-1] - np.concatenate([[0], accepted[:-1]])[::-1])


def _precision(found: Array, wrong: Array) -> float:
    """Return the average precision, over steps of recall, as more and more samples are taken."""
    return float((np.diff(found, prepend=0) * found / (found + wrong)).sum() / found[-1])


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


def mean_exclusivity(matrix: NDArray[np.float64]) -> float:
    """Return the mean over all pairs of different classes."""
    return float(matrix[~np.eye(len(matrix), dtype=bool)].mean())


def exclusive(s: AbstractSet[Any], t: AbstractSet[Any]) -> bool:
    """Tell whether each of two sets has an element that the other lacks (Definition 1).

    No set is exclusive with its subset, and none with the empty set.
    """
    return bool(s - t) and bool(t - s)


def exclusive_collection(sets: Collection[AbstractSet[Any]]) -> bool:
    """Tell whether every two different sets of a collection are exclusive (Definition 2)."""
    return all(exclusive(s, t) for s, t in combinations(sets, 2) if s != t)
