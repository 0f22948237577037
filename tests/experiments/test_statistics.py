import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.meta_analysis import effectsize_smd
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import DescrStatsW

from shels.errors import DataError, SettingsError
from shels.experiments.catalogue import CATALOGUE
from shels.experiments.methods import METHODS
from shels.experiments.published import published
from shels.experiments.statistics import compare, compare_measures, holm, stars, summary
from shels.experiments.trials import MEASURES, TrialResult

DRAWS = np.random.default_rng(0)


def results(values, method="shels", name="within/mnist", measures=MEASURES):
    """Return one trial a value, all measures alike; a dict gives the seeds."""
    values = values if isinstance(values, dict) else dict(enumerate(values))
    trials = CATALOGUE[name].trials(METHODS[method], max(values, default=0) + 1)
    return [
        TrialResult(trials[seed], dict.fromkeys(measures, value), 1.0, "cpu", {})
        for seed, value in values.items()
    ]


def with_moments(mean, sd, n=10):
    """Return n values with exactly this mean and sample standard deviation."""
    values = np.arange(n) - (n - 1) / 2
    return (mean + values * (sd / values.std(ddof=1))).tolist()


def test_a_summary_worked_by_hand():
    found = summary([1, 2, 3, 4])
    assert (found.mean, found.n) == (2.5, 4)
    assert found.sd == pytest.approx(math.sqrt(5 / 3))
    assert found.high - found.mean == pytest.approx(3.182446 * found.sd / 2, rel=1e-6)
    assert found.mean - found.low == pytest.approx(found.high - found.mean)


def test_the_interval_is_that_of_statsmodels():
    for n in (2, 3, 10, 40):
        values = DRAWS.normal(0.8, 0.1, n)
        assert (summary(values).low, summary(values).high) == pytest.approx(
            DescrStatsW(values).tconfint_mean()
        )


def test_one_value_has_no_spread_and_none_at_all_is_an_error():
    assert summary([0.5]).sd is summary([0.5]).low is summary([0.5]).high is None
    assert summary([0.5]).mean == 0.5
    with pytest.raises(DataError, match="no value"):
        summary([])


def test_equal_values_have_exactly_no_spread():
    found = summary([0.1] * 10)
    assert found.sd == 0
    assert found.low == found.high == found.mean == pytest.approx(0.1)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_is_refused_with_its_place(bad):
    with pytest.raises(DataError, match="value 1 is"):
        summary([0.5, bad])
    with pytest.raises(DataError, match="value 0 is"):
        compare([0.5, 0.6], [bad, 0.5], paired=True)


def test_a_paired_comparison_worked_by_hand():
    # Differences 1, 2, 3: mean 2, sd 1, t = 2 * sqrt(3); of 8 signs of the ranks, 2 are as extreme.
    found = compare([2, 4, 6], [1, 2, 3], paired=True)
    assert found.difference == pytest.approx(2)
    assert found.t == pytest.approx(2 * math.sqrt(3))
    assert (found.df, found.n) == (2, 3)
    assert found.effect == pytest.approx(2)
    assert found.wilcoxon_p == pytest.approx(2 / 8)


def test_an_unpaired_comparison_worked_by_hand():
    # Both variances 1, so the pooled sd is 1 and t = -3 / sqrt(2/3); of 20 orders, 2 are as extreme.
    found = compare([1, 2, 3], [4, 5, 6], paired=False)
    assert found.difference == pytest.approx(-3)
    assert found.t == pytest.approx(-3 / math.sqrt(2 / 3))
    assert (found.df, found.n) == (4, 6)
    assert found.effect == pytest.approx(-3 * (1 - 3 / 15))
    assert found.wilcoxon_p == pytest.approx(2 / 20)


@pytest.mark.parametrize("n", [2, 5, 10, 30])
def test_paired_tests_are_those_of_scipy(n):
    a, b = DRAWS.normal(0.8, 0.1, n), DRAWS.normal(0.7, 0.1, n)
    found, theirs = compare(a, b, paired=True), stats.ttest_rel(a, b)
    assert (found.t, found.p, found.df) == pytest.approx((theirs.statistic, theirs.pvalue, theirs.df))
    assert found.wilcoxon_p == pytest.approx(stats.wilcoxon(a, b).pvalue)


@pytest.mark.parametrize(("n_a", "n_b"), [(2, 2), (10, 10), (10, 4), (60, 60)])
def test_unpaired_tests_are_those_of_scipy_and_statsmodels(n_a, n_b):
    a, b = DRAWS.normal(0.8, 0.1, n_a), DRAWS.normal(0.7, 0.1, n_b)
    found, theirs = compare(a, b, paired=False), stats.ttest_ind(a, b)
    assert (found.t, found.p, found.df) == pytest.approx((theirs.statistic, theirs.pvalue, theirs.df))
    method = "exact" if n_a < 50 else "asymptotic"
    assert found.wilcoxon_p == pytest.approx(stats.mannwhitneyu(a, b, method=method).pvalue)
    effect, _ = effectsize_smd(a.mean(), a.std(ddof=1), n_a, b.mean(), b.std(ddof=1), n_b)
    assert found.effect == pytest.approx(effect)


# Measure, t and p as Table 9 prints them; they follow from the means and deviations that it prints.
TABLE_9 = [
    ("across/fmnist-mnist", "novel_accuracy", 0.77, 0.45),
    ("across/fmnist-mnist", "combined_accuracy", 3.02, 0.007),
    ("across/fmnist-mnist", "auroc", 3.87, 0.0011),
    ("across/svhn-gtsrb", "known_accuracy", 25.31, 0.0001),
    ("across/svhn-gtsrb", "auroc", 2.63, 0.017),
    ("across/gtsrb-cifar10", "combined_accuracy", 2.13, 0.047),
    ("across/cifar10-svhn", "novel_accuracy", 2.85, 0.011),
]


@pytest.mark.parametrize(("name", "measure", "t", "p"), TABLE_9)
def test_the_unpaired_test_gives_the_paper_s_own_t_and_p(name, measure, t, p):
    ours, theirs = (published(name, method, measure) for method in ("shels", "scaled-cosine"))
    found = compare(with_moments(ours.mean, ours.sd), with_moments(theirs.mean, theirs.sd), paired=False)
    assert found.df == 18
    assert abs(found.t) == pytest.approx(t, abs=0.011)
    assert found.p == pytest.approx(p, abs=5e-4)
    assert found.difference == pytest.approx(ours.mean - theirs.mean)


@pytest.mark.parametrize("paired", [True, False])
def test_identical_values_do_not_differ(paired):
    for values in ([0.1, 0.2, 0.7], [0.3, 0.3], [0.0] * 10):
        found = compare(values, values, paired)
        assert (found.difference, found.t, found.p, found.wilcoxon_p) == (0, 0, 1, 1)
        assert found.effect == 0
        assert found.reason == ""


@pytest.mark.parametrize("paired", [True, False])
def test_rounding_is_not_a_difference(paired):
    found = compare([0.1 + 0.2] * 5, [0.3] * 5, paired)
    assert (found.difference, found.t, found.p, found.wilcoxon_p, found.effect) == (0, 0, 1, 1, 0)


def test_a_difference_that_never_varies_has_ranks_but_no_t():
    found = compare([0.9] * 10, [0.8] * 10, paired=False)
    assert found.t is found.p is found.effect is None
    assert "the same everywhere" in found.reason
    assert found.wilcoxon_p < 1e-4
    steps = np.linspace(0.1, 0.5, 10)
    found = compare(steps + 0.1, steps, paired=True)
    assert found.p is None
    assert found.difference == pytest.approx(0.1)
    assert found.wilcoxon_p == pytest.approx(2 / 2**10)


def test_one_side_that_never_varies_is_compared_all_the_same():
    b = DRAWS.normal(0.7, 0.1, 10)
    found = compare([0.9] * 10, b, paired=False)
    assert found.t == pytest.approx((0.9 - b.mean()) / (b.std(ddof=1) / math.sqrt(2) * math.sqrt(2 / 10)))


@pytest.mark.parametrize("n", [0, 1])
def test_too_few_values_give_a_reason_instead_of_a_test(n):
    paired, free = compare([0.5] * n, [0.4] * n, paired=True), compare([0.5] * n, [0.4] * 9, paired=False)
    assert f"2 pairs or more, got {n}" in paired.reason
    assert f"2 values or more on each side, got {n} and 9" in free.reason
    assert paired.p is free.p is paired.wilcoxon_p is free.wilcoxon_p is None
    assert paired.difference == (pytest.approx(0.1) if n else None)


def test_pairs_need_as_many_values_on_both_sides():
    with pytest.raises(DataError, match="3 and 2"):
        compare([1, 2, 3], [1, 2], paired=True)


@pytest.mark.parametrize("paired", [True, False])
def test_no_values_however_coarse_make_a_warning_or_a_p_outside_its_range(paired):
    for _ in range(60):
        n = int(DRAWS.integers(2, 9))
        a, b = DRAWS.integers(0, 4, n) / 3, DRAWS.integers(0, 4, n) / 3
        found, other = compare(a, b, paired), compare(b, a, paired)
        for p in (found.p, found.wilcoxon_p):
            assert p is None or 0 <= p <= 1
        assert found.p == other.p
        assert found.wilcoxon_p == pytest.approx(other.wilcoxon_p)
        assert found.t is None or found.t == pytest.approx(-other.t)
        assert (found.p is None) == bool(found.reason)


def test_measures_are_adjusted_together_by_holm_as_in_table_10():
    # The paper's p on FMNIST and what it adjusts them to; novel, known, combined, AUROC.
    printed = {"novel_accuracy": 5.06, "known_accuracy": 11.60, "combined_accuracy": 3.48, "auroc": 2.04}
    adjusted = {"novel_accuracy": 0.002, "known_accuracy": 0.0001, "combined_accuracy": 0.014, "auroc": 0.072}
    base = results([0.5] * 10, "standard-linear")
    moved = {measure: with_moments(0.5 + t / 1e3, math.sqrt(10) / 1e3) for measure, t in printed.items()}
    ours = [
        replace(result, metrics={measure: moved[measure][i] for measure in MEASURES})
        for i, result in enumerate(results([0.5] * 10))
    ]
    found = compare_measures(ours, base, paired=True)
    assert list(found) == list(MEASURES)
    for measure, t in printed.items():
        assert found[measure].t == pytest.approx(t)
        assert found[measure].df == 9
        assert found[measure].p_holm == pytest.approx(adjusted[measure], abs=5e-4)


@pytest.mark.parametrize("count", [1, 4, 5, 12])
def test_holm_is_that_of_statsmodels(count):
    values = np.random.default_rng(count).random(count) ** 3
    values[-1] = values[0]  # a tie
    assert holm(values.tolist()) == pytest.approx(multipletests(values, method="holm")[1].tolist())
    assert holm([]) == []


def test_holm_worked_by_hand():
    # p sorted .01, .02, .04 of three: times 3, 2, 1, never falling.
    ts = {"a": stats.t.isf(0.005, 9), "b": stats.t.isf(0.02, 9), "c": stats.t.isf(0.01, 9)}
    values = {name: with_moments(t, math.sqrt(10)) for name, t in ts.items()}
    ours = [
        replace(result, metrics={name: values[name][i] for name in values})
        for i, result in enumerate(results([0.0] * 10))
    ]
    found = compare_measures(ours, results([0.0] * 10, "standard-linear", measures="abc"), True, tuple("abc"))
    assert [found[name].p_holm for name in "abc"] == pytest.approx([0.03, 0.04, 0.04])


def test_trials_are_paired_by_seed_whatever_their_order():
    a = results({3: 0.9, 0: 0.6, 1: 0.7, 7: 0.2})
    b = results({1: 0.5, 3: 0.8, 0: 0.5, 5: 0.1}, "standard-linear")
    found = compare_measures(a, b, paired=True)["auroc"]
    expected = compare([0.6, 0.7, 0.9], [0.5, 0.5, 0.8], paired=True)
    assert (found.t, found.p, found.n) == (expected.t, expected.p, 3)
    assert found.left_out == 2


def test_independent_trials_are_all_used():
    a, b = results({0: 0.9, 1: 0.6, 2: 0.7}), results({1: 0.5, 8: 0.4}, "standard-linear")
    found = compare_measures(a, b, paired=False)["auroc"]
    assert (found.n, found.left_out) == (5, 0)
    assert found.p == pytest.approx(stats.ttest_ind([0.9, 0.6, 0.7], [0.5, 0.4]).pvalue)


def test_a_trial_without_a_measure_is_left_out_of_that_measure_alone():
    a = results([0.9, 0.6, 0.7])
    a[1] = replace(a[1], metrics={"auroc": math.nan, "known_accuracy": 0.6})
    b = results([0.5, 0.5, 0.6], "standard-linear")
    found = compare_measures(a, b, paired=True, measures=("known_accuracy", "auroc", "fpr95"))
    assert [found[name].n for name in found] == [3, 2, 0]
    assert [found[name].left_out for name in found] == [0, 2, 6]
    assert found["fpr95"].p_holm is None
    assert "got 0" in found["fpr95"].reason


def test_no_trials_on_a_side_give_reasons_and_no_adjusted_p():
    found = compare_measures(results([0.5, 0.6]), [], paired=True)
    assert all(each.p_holm is None and each.reason for each in found.values())
    assert compare_measures([], [], paired=False)["auroc"].n == 0


def test_what_does_not_belong_together_is_not_compared():
    a = results([0.5, 0.6])
    with pytest.raises(DataError, match="within/fmnist, within/mnist"):
        compare_measures(a, results([0.5], name="within/fmnist"), paired=True)
    with pytest.raises(DataError, match="two results with seed 1 on one side"):
        compare_measures([*a, a[1]], a, paired=False)
    other = [replace(a[0], trial=replace(a[0].trial, known=(1, 2)))]
    with pytest.raises(DataError, match="seed 0: the two sides do not have the same"):
        compare_measures(a, other, paired=True)


@pytest.mark.parametrize(
    ("p", "mark"),
    [(None, ""), (1, ""), (0.05, ""), (0.0499, "*"), (0.01, "*"), (0.009, "**"), (0.001, "**"), (0, "***")],
)
def test_stars_are_the_paper_s(p, mark):
    assert stars(p) == mark


@pytest.mark.parametrize("p", [-0.1, 1.5, math.nan])
def test_stars_of_what_is_no_p_are_refused(p):
    with pytest.raises(SettingsError, match="between 0 and 1"):
        stars(p)
