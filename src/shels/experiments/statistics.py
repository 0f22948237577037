"""Statistics over trials, as the paper makes them: what ten trials say, and whether two methods differ."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import stats

from shels.data.samples import Label
from shels.errors import DataError, SettingsError
from shels.experiments.trials import MEASURES, TrialResult

_ROUNDING = 1e-12
"""Figures that differ by less, as a share of the greatest, are the same: what is left is rounding."""

_EXACT = 50
"""Up to so many values on a side, ranks without ties get their exact distribution."""


@dataclass(frozen=True)
class Summary:
    """Values in brief. sd: the sample's (ddof 1). low, high: the 95 % t interval of the mean.

    sd, low and high are None for a single value, which says nothing about spread.
    """

    mean: float
    sd: float | None
    n: int
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Comparison:
    """How two sets of values, a and b, differ. What cannot be said is None, and `reason` tells why.

    difference: mean of a less mean of b. t, p: Student's two-sided test, of the pairs' differences or with
    the pooled variance of both sides. df: its degrees of freedom. n: how many pairs, or values of both sides.
    wilcoxon_p: Wilcoxon's signed ranks for pairs, Mann-Whitney's U otherwise; both two-sided.
    effect: Cohen's dz (mean over sd of the differences) for pairs, Hedges' g otherwise.
    p_holm: p adjusted by Holm for all measures tested together. left_out: trials that could not be used.
    """

    n: int
    difference: float | None = None
    t: float | None = None
    df: int | None = None
    p: float | None = None
    wilcoxon_p: float | None = None
    effect: float | None = None
    p_holm: float | None = None
    left_out: int = 0
    reason: str = ""


_Values: TypeAlias = npt.NDArray[np.float64]


def summary(values: Sequence[float]) -> Summary:
    """Return mean, spread and the interval of the mean; no value at all, or NaN among them, is an error."""
    array = _checked(values)
    n = len(array)
    if n == 0:
        raise DataError("there is no value to summarise; run a trial first")
    mean = float(array.mean())
    if n == 1:
        return Summary(mean, None, 1, None, None)
    sd = _sd(array)
    half = float(stats.t.ppf(0.975, n - 1)) * sd / math.sqrt(n)
    return Summary(mean, sd, n, mean - half, mean + half)


def summary_of(values: Iterable[float | None]) -> Summary | None:
    """Summarise the values that are there and finite; None without any.

    >>> summary_of([0.5, None, 0.5]).n, summary_of([None])
    (2, None)
    """
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return summary(finite) if finite else None


def compare(a: Sequence[float], b: Sequence[float], paired: bool) -> Comparison:
    """Return how a and b differ, pair by pair or as two independent sets.

    Fewer than two pairs, or than two values on a side: no test. No difference at all: t 0, p 1, effect 0.
    A difference that does not vary: t and effect are without bound, so both and p are None. NaN is an error.
    """
    first, second = _checked(a), _checked(b)
    if paired and len(first) != len(second):
        raise DataError(f"pairs need as many values on both sides, got {len(first)} and {len(second)}")
    return _compare_paired(first, second) if paired else _compare_independent(first, second)


def compare_measures(
    results_a: Sequence[TrialResult],
    results_b: Sequence[TrialResult],
    paired: bool,
    measures: Sequence[str] = MEASURES,
) -> dict[str, Comparison]:
    """Return how two methods differ on each measure of one experiment, p adjusted over the measures by Holm.

    The paper pairs trials within a data set, by seed, as these share their classes; across data sets it does
    not. Trials whose partner is missing, or whose measure is missing or not finite, are left out.
    """
    _check_trials(results_a, results_b)
    if paired:
        _check_classes(results_a, results_b)
    compared = {}
    for measure in measures:
        a, b = _by_seed(results_a, measure), _by_seed(results_b, measure)
        if paired:
            both = sorted(a.keys() & b.keys())
            a, b = {seed: a[seed] for seed in both}, {seed: b[seed] for seed in both}
        found = compare(list(a.values()), list(b.values()), paired)
        left_out = len(results_a) + len(results_b) - len(a) - len(b)
        compared[measure] = replace(found, left_out=left_out)
    return _adjusted(compared)


def differences(
    results: Sequence[TrialResult], others: Sequence[TrialResult], measure: str = "closed_set_accuracy"
) -> list[float]:
    """Give a measure less that of the other results' trial of the same seed, for all seeds that both have."""
    a, b = _by_seed(results, measure), _by_seed(others, measure)
    return [a[seed] - b[seed] for seed in sorted(a.keys() & b.keys())]


def stars(p: float | None) -> str:
    """Return the paper's mark for an adjusted p: *** under .001, ** under .01, * under .05, else nothing."""
    if p is None:
        return ""
    if not 0 <= p <= 1:
        raise SettingsError(f"p must lie between 0 and 1, got {p}")
    return "*" * sum(p < limit for limit in (0.05, 0.01, 0.001))


def _checked(values: Sequence[float]) -> _Values:
    array = np.asarray(values, dtype=np.float64)
    bad = ~np.isfinite(array)
    if bad.any():
        place = int(bad.argmax())
        raise DataError(f"value {place} is {array[place]}; leave such trials out, or repair their record")
    return array


def _scale(*arrays: _Values) -> float:
    """Return the greatest size of a value, which says how large a rounding error can be; 1 for zeros."""
    return max((float(np.abs(array).max(initial=0)) for array in arrays), default=0.0) or 1.0


def _sd(array: _Values, scale: float | None = None) -> float:
    """Return the sample's standard deviation (ddof 1), exactly 0 where it is rounding alone."""
    sd = float(array.std(ddof=1))
    return 0.0 if sd <= _ROUNDING * (scale or _scale(array)) else sd


def _compare_paired(a: _Values, b: _Values) -> Comparison:
    n, scale = len(a), _scale(a, b)
    differences = np.round((a - b) / scale, 12)  # so that equal ones tie, and none is rounding
    mean = float((a - b).mean()) if n else None
    if n < 2:
        return Comparison(n, mean, reason=f"a test needs 2 pairs or more, got {n}")
    sd = _sd(a - b, scale)
    ranks = 1.0 if not differences.any() else float(stats.wilcoxon(differences).pvalue)
    found = Comparison(n, mean, df=n - 1, wilcoxon_p=ranks)
    return _tested(found, sd, sd / math.sqrt(n), scale)


def _compare_independent(a: _Values, b: _Values) -> Comparison:
    n_a, n_b, scale = len(a), len(b), _scale(a, b)
    mean = float(a.mean() - b.mean()) if n_a and n_b else None
    if min(n_a, n_b) < 2:
        reason = f"a test needs 2 values or more on each side, got {n_a} and {n_b}"
        return Comparison(n_a + n_b, mean, reason=reason)
    df = n_a + n_b - 2
    sd = math.sqrt(((n_a - 1) * _sd(a, scale) ** 2 + (n_b - 1) * _sd(b, scale) ** 2) / df)
    found = Comparison(n_a + n_b, mean, df=df, wilcoxon_p=_rank_sums(a / scale, b / scale))
    tested = _tested(found, sd, sd * math.sqrt(1 / n_a + 1 / n_b), scale)
    if tested.effect is None:
        return tested
    return replace(tested, effect=tested.effect * (1 - 3 / (4 * df - 1)))  # Hedges: d alone is a little large


def _tested(found: Comparison, sd: float, error: float, scale: float) -> Comparison:
    """Return a comparison with Student's t from its difference and the standard error of that."""
    if found.difference is None or found.df is None:
        return found
    difference = 0.0 if abs(found.difference) <= _ROUNDING * scale else found.difference
    if sd == 0 and difference == 0:
        return replace(found, difference=0.0, t=0.0, p=1.0, effect=0.0)
    if sd == 0:
        return replace(found, reason="the difference is the same everywhere, so t has no bound")
    t = difference / error
    p = 2 * float(stats.t.sf(abs(t), found.df))
    return replace(found, difference=difference, t=t, p=p, effect=difference / sd)


def _rank_sums(a: _Values, b: _Values) -> float:
    """Return p of Mann-Whitney's U, exact without ties."""
    a, b = np.round(a, 12), np.round(b, 12)
    distinct = len(np.unique(np.concatenate([a, b])))
    if distinct == 1:
        return 1.0
    exact = distinct == len(a) + len(b) and max(len(a), len(b)) <= _EXACT
    return float(stats.mannwhitneyu(a, b, method="exact" if exact else "asymptotic").pvalue)


def _by_seed(results: Sequence[TrialResult], measure: str) -> dict[int, float]:
    """Return a measure by seed, of the trials that have it."""
    values = {result.trial.seed: result.metrics.get(measure, math.nan) for result in results}
    return {seed: value for seed, value in values.items() if math.isfinite(value)}


def _check_trials(*sides: Sequence[TrialResult]) -> None:
    """Raise unless all are of one experiment, and each side has one result a seed."""
    names = sorted({result.trial.experiment for side in sides for result in side})
    if len(names) > 1:
        raise DataError(f"results of one experiment can be compared, got {', '.join(names)}")
    for side in sides:
        seeds = [result.trial.seed for result in side]
        twice = [seed for seed in seeds if seeds.count(seed) > 1]
        if twice:
            raise DataError(
                f"{names[0]} has two results with seed {twice[0]} on one side; give those of one method "
                "with one set of settings"
            )


def _check_classes(a: Sequence[TrialResult], b: Sequence[TrialResult]) -> None:
    """Raise where trials of the same seed do not share their classes: they are no pair."""
    classes = {result.trial.seed: _classes(result) for result in a}
    for result in b:
        theirs = classes.get(result.trial.seed)
        if theirs is not None and theirs != _classes(result):
            raise DataError(
                f"{result.trial.experiment}, seed {result.trial.seed}: the two sides do not have the same "
                "known and novel classes, so they are no pair"
            )


def _classes(result: TrialResult) -> tuple[frozenset[Label], frozenset[Label]]:
    return frozenset(result.trial.known), frozenset(result.trial.novel)


def _adjusted(compared: Mapping[str, Comparison]) -> dict[str, Comparison]:
    """Return comparisons with p adjusted by Holm over all that have one."""
    tested = {name: each.p for name, each in compared.items() if each.p is not None}
    adjusted = dict(zip(tested, holm(list(tested.values())), strict=True))
    return {name: replace(each, p_holm=adjusted.get(name)) for name, each in compared.items()}


def holm(values: Sequence[float]) -> list[float]:
    """Adjust p-values that are tested together by Holm's rule, in the order given.

    The smallest of m is multiplied by m, the next by m - 1 and so on; none falls below one before it.

    >>> [round(each, 3) for each in holm([0.02, 0.01, 0.04])]
    [0.04, 0.03, 0.04]
    """
    array = np.asarray(values, dtype=np.float64)
    order = np.argsort(array)
    raised = np.maximum.accumulate(array[order] * np.arange(len(array), 0, -1))
    out = np.empty_like(array)
    out[order] = np.minimum(raised, 1.0)
    return [float(each) for each in out]
