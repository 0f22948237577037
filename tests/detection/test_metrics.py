from __future__ import annotations

import numpy as np
import pytest

from shels.detection.metrics import open_set_measures, separation


def test_measures_worked_by_hand():
    got = open_set_measures(
        labels=np.array([0, 0, 1, 1]),
        predicted=np.array([0, 0, 1, 0]),
        novel=np.array([False, True, False, False]),
        scores=np.array([4.0, 1.0, 3.0, 3.5]),
        novel_judged=np.array([True, True, False, True, True]),
        novel_scores=np.array([0.0, 0.5, 3.2, 0.1, 0.2]),
    )
    assert got["closed_set_accuracy"] == 0.75  # three of four, whatever was rejected
    assert got["known_accuracy"] == 0.5  # right and accepted: the first and the third
    assert got["acceptance"] == 0.75
    assert got["novel_accuracy"] == 0.8
    assert got["combined_accuracy"] == pytest.approx((0.5 + 0.8) / 2)  # not pooled over the nine samples
    assert got["auroc"] == pytest.approx(18 / 20)  # of the 20 pairs, 3.2 beats 1.0 and 3.0


def test_without_novel_samples_what_needs_them_is_left_out():
    got = open_set_measures(
        np.array([0]),
        np.array([0]),
        np.array([False]),
        np.array([1.0]),
        novel_judged=np.zeros(0, bool),
        novel_scores=np.zeros(0),
    )
    assert got == {"closed_set_accuracy": 1.0, "known_accuracy": 1.0, "acceptance": 1.0}


def test_auroc_is_the_chance_that_a_known_sample_scores_higher_even_for_huge_scores():
    draws = np.random.default_rng(0)
    known, novel = draws.normal(1000, 500, 300), draws.normal(0, 500, 200)
    pairs = known[:, None] - novel[None, :]
    assert separation(known, novel)["auroc"] == pytest.approx(np.mean(pairs > 0))


def test_a_score_that_is_no_number_or_infinitely_low_counts_as_lowest():
    got = separation(np.array([1.0, 2.0]), np.array([-np.inf, np.nan, 1.5]))
    assert got["auroc"] == pytest.approx(5 / 6)


def test_fpr95_is_the_share_of_novel_samples_accepted_where_95_percent_of_known_are():
    known, novel = np.arange(100.0), np.array([-1.0, 4.5, 5.5, 50.0])
    assert separation(known, novel)["fpr95"] == 0.5  # accepting from 5 up keeps 95 of 100


def test_areas_under_precision_and_recall_are_one_when_separated():
    got = separation(np.array([3.0, 4.0]), np.array([1.0, 2.0]))
    assert got == {"auroc": 1.0, "fpr95": 0.0, "aupr_known": 1.0, "aupr_novel": 1.0}


@pytest.mark.parametrize("kinds", [None, 4, 1], ids=["all different", "many alike", "all alike"])
@pytest.mark.parametrize("sizes", [(400, 300), (5, 1), (1, 200)], ids=str)
def test_separation_is_scikit_learn_s_to_the_last_digit(kinds, sizes):
    from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

    draw = np.random.default_rng(3)
    known, novel = (draw.normal(shift, 1, n) for shift, n in zip((1, 0), sizes, strict=True))
    if kinds:
        known, novel = (np.floor(draw.random(n) * kinds) for n in sizes)
    got = separation(known, novel)
    truth = np.concatenate([np.ones(sizes[0]), np.zeros(sizes[1])])
    scores = np.concatenate([known, novel])
    false, true, _ = roc_curve(truth, scores, drop_intermediate=False)
    assert got["auroc"] == pytest.approx(roc_auc_score(truth, scores), abs=1e-12)
    assert got["fpr95"] == pytest.approx(false[np.argmax(true >= 0.95)], abs=1e-12)
    assert got["aupr_known"] == pytest.approx(average_precision_score(truth, scores), abs=1e-12)
    assert got["aupr_novel"] == pytest.approx(average_precision_score(1 - truth, -scores), abs=1e-12)
