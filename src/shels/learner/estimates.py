"""Figures with intervals, of what detectors came to in several rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from shels.learner.checking import Point, Round, average

_ALIKE = 1e-3
"""Under what difference values are taken for alike."""


class Estimate(NamedTuple):
    """A figure with its 95 % interval, None where that cannot be told. n: how many values it stands on.

    These are samples or, where classes are left out in turn, rounds.
    """

    value: float
    low: float | None
    high: float | None
    n: int


def proportion(count: int, n: int) -> Estimate | None:
    """Give a share with Wilson's 95 % interval; None of nothing.

    >>> [round(value, 3) for value in proportion(9, 10)[:3]]
    [0.9, 0.596, 0.982]
    """
    from scipy.stats import binomtest  # noqa: PLC0415

    if n == 0:
        return None
    interval = binomtest(count, n).proportion_ci(method="wilson")
    return Estimate(count / n, float(interval.low), float(interval.high), n)


def mean(values: Sequence[float], most: float = 1.0) -> Estimate | None:
    """Give a mean with the 95 % t interval over so many values, cut off at 0 and `most`; None of nothing.

    Values that are all but alike, as shares of 1 are, do not tell how others would vary: no interval.

    >>> [round(value, 3) for value in mean([0.8, 0.9, 1.0])[:3]]
    [0.9, 0.652, 1.0]
    >>> mean([1.0, 1.0, 1.0, 1.0])
    Estimate(value=1.0, low=None, high=None, n=4)
    """
    from scipy.stats import t  # noqa: PLC0415

    if not values:
        return None
    middle = float(np.mean(values))
    if max(values) - min(values) < _ALIKE:  # also of one value
        return Estimate(middle, None, None, len(values))
    half = float(t.ppf(0.975, len(values) - 1)) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return Estimate(middle, max(0.0, middle - half), min(most, middle + half), len(values))


def estimates(rounds: Sequence[Round]) -> dict[str, Estimate]:
    """Sum rounds up: of known samples over all, of novel ones each round, with classes of its own, alike."""
    known = sum(each.known for each in rounds)
    rejected = mean([each.rejected / each.novel for each in rounds if each.novel])
    if len(rounds) == 1:
        rejected = proportion(round(rounds[0].rejected), rounds[0].novel)
    found = {
        "closed_set_accuracy": proportion(sum(each.right for each in rounds), known),
        "acceptance": proportion(sum(each.accepted for each in rounds), known),
        "novel_accuracy": rejected,
        "auroc": mean([each.auroc for each in rounds if each.auroc is not None]),
    }
    return {name: value for name, value in found.items() if value is not None}


def operating_curve(rounds: Sequence[Round]) -> list[Point]:
    """Average the operating curves of rounds, each counting alike; [] where none has any."""
    curves = [each.curve for each in rounds if each.curve]
    return [average(points) for points in zip(*curves, strict=True)]
