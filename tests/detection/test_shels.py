from __future__ import annotations

import numpy as np
import pytest
import torch

from shels.config import AcceptShare, MeanMinusSd
from shels.detection.calibration import (
    Calibration,
    borrowed,
    cross_fitted,
    fit_temperature,
    measured_acceptance,
)
from shels.detection.exclusivity import class_means
from shels.detection.head import Head
from shels.detection.protocol import KnownSamples, Labelled, LearnedClass
from shels.detection.rules import designed_rejection, enough_for, rule_of, threshold
from shels.detection.score_detector import ScoreDetector
from shels.detection.scores.shels import Shels, class_scores
from shels.errors import AccommodationError, DataError, SettingsError, TrainingError
from shels.model.networks import Views

WEIGHTS = torch.tensor([[1.0, 0.0], [0.0, 2.0]])


def views_of(rows):
    return Views(rows[:, :0], rows)


def detector_of(rule, training, held_out=None, names=None):
    """SHELS's detector, calibrated; the training samples are held out too unless others are given."""
    parts = (Labelled(views_of(rows), labels) for rows, labels in (training, held_out or training))
    made = ScoreDetector(Shels(Head(WEIGHTS, None, cosine=True)), rule)
    return made.calibrated(KnownSamples(*parts), names)


def verdicts_on(detector, rows):
    return detector.verdicts(views_of(rows))


def separated(n=200, seed=0):
    """Features of two classes that lie along one axis each, and their labels."""
    draws = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 2
    features = torch.rand(n, 2, generator=draws) * 0.1
    features[torch.arange(n), labels] += 1 + torch.rand(n, generator=draws)
    return features, labels


def test_class_score_is_the_raw_product_of_weights_and_features():
    features = torch.tensor([[3.0, 1.0], [0.5, 4.0]])
    assert class_scores(features, WEIGHTS).tolist() == [[3.0, 2.0], [0.5, 8.0]]


def test_signature_is_the_mean_feature_of_a_class():
    features = torch.tensor([[1.0, 0.0], [3.0, 2.0], [5.0, 5.0]])
    assert class_means(features, torch.tensor([0, 0, 1]), 2).tolist() == [[2.0, 1.0], [5.0, 5.0]]


def test_papers_threshold_is_mean_less_k_standard_deviations_worked_by_hand():
    features = torch.tensor([[2.0, 0.0], [4.0, 0.0], [0.0, 1.0], [0.0, 3.0]])  # scores 2, 4 and 2, 6
    labels = torch.tensor([0, 0, 1, 1])
    assert detector_of(MeanMinusSd(1.0), (features, labels)).thresholds.tolist() == [2.0, 2.0]
    assert detector_of(MeanMinusSd(0.5), (features, labels)).thresholds.tolist() == [2.5, 3.0]


def test_thresholds_on_held_out_samples_are_the_rule_over_those_rightly_named():
    rows, labels = separated(400, seed=1)
    wrong = torch.cat([1 - labels[:20], labels[20:]])  # such as are named otherwise play no role
    detector = detector_of(MeanMinusSd(1.0, calibrated_on="held-out"), separated(), (rows, wrong))
    for position in (0, 1):
        mine = rows[20:][labels[20:] == position] @ WEIGHTS[position]
        limit = mine.mean() - mine.std(correction=0)
        assert float(detector.thresholds[position]) == pytest.approx(float(limit))
    assert detector.thresholds_are_of == "score over held-out samples"
    assert detector_of(MeanMinusSd(1.0), separated()).thresholds_are_of == "training score"


@pytest.mark.parametrize("new_class", ["own score", "all scores"])
def test_a_new_classs_threshold_is_set_on_its_own_score_or_on_all_of_them(new_class):
    detector = detector_of(MeanMinusSd(1.0, new_class=new_class), separated(400))
    head = Head(torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]]), None, cosine=True)
    rows = torch.tensor([[1.0, 1.0], [2.0, 2.0]]).repeat(15, 1)  # scores 1, 2, 6 and 2, 4, 12
    grown = detector.with_class(LearnedClass(lambda: None, views_of(rows), head=head))
    scores = {"own score": [6.0, 12.0], "all scores": [1.0, 2.0, 6.0, 2.0, 4.0, 12.0]}[new_class]
    assert float(grown.thresholds[2]) == pytest.approx(np.mean(scores) - np.std(scores))
    assert torch.equal(grown.thresholds[:2], detector.thresholds)
    assert grown.calibration.by_class[2].max() == 12


def test_threshold_ignores_misclassified_samples():
    features = torch.tensor([[2.0, 0.0], [4.0, 0.0], [0.0, 1.0], [0.0, 3.0], [0.0, 9.0], [0.1, 0.0]])
    labels = torch.tensor([0, 0, 1, 1, 0, 1])  # the last two are called the other class
    assert detector_of(MeanMinusSd(1.0), (features, labels)).thresholds.tolist() == [2.0, 2.0]


def test_a_class_with_no_correct_sample_is_an_error_that_names_it():
    features = torch.tensor([[2.0, 0.0], [4.0, 0.0]])
    with pytest.raises(TrainingError, match="'cat' has no correctly classified"):
        detector_of(MeanMinusSd(), (features, torch.tensor([0, 1])), names=["dog", "cat"])


def test_a_score_must_exceed_the_threshold_to_be_known():
    features = torch.tensor([[2.0, 0.0], [4.0, 0.0], [0.0, 1.0], [0.0, 3.0]])
    detector = detector_of(MeanMinusSd(1.0), (features, torch.tensor([0, 0, 1, 1])))
    verdicts = verdicts_on(detector, torch.tensor([[2.0, 0.0], [2.01, 0.0], [0.3, 0.9], [0.0, 1.1]]))
    assert verdicts.predicted.tolist() == [0, 0, 1, 1]
    assert verdicts.novel.tolist() == [True, False, True, False]
    assert verdicts.threshold.tolist() == [2.0, 2.0, 2.0, 2.0]
    assert torch.allclose(verdicts.score, torch.tensor([2.0, 2.01, 1.8, 2.2]))


def test_accept_share_takes_the_order_statistic_of_the_held_out_scores():
    calibration = torch.arange(1.0, 100.0)  # 99 scores: a new one is below the fifth with probability 5/100
    assert float(threshold(AcceptShare(0.95), torch.zeros(1), calibration)) == 5.0
    assert float(threshold(AcceptShare(0.90), torch.zeros(1), calibration)) == 10.0
    assert float(threshold(AcceptShare(0.999), torch.zeros(1), calibration)) == 1.0


def test_accept_share_accepts_that_share_of_new_samples():
    rates = []
    for seed in range(20):
        held_out = separated(400, seed=100 + seed)
        detector = detector_of(AcceptShare(0.9), separated(seed=seed), held_out)
        rates.append(
            float((~verdicts_on(detector, separated(1000, seed=200 + seed)[0]).novel).float().mean())
        )
    assert np.mean(rates) == pytest.approx(0.9, abs=0.01)


def test_accept_share_counts_held_out_samples_by_the_class_they_are_assigned_to():
    own = separated()
    apart, labels = separated(400, seed=1)
    wrong = torch.cat([labels[:20] * 0 + 1 - labels[:20], labels[20:]])  # twenty wrong labels change nothing
    a = detector_of(AcceptShare(), own, (apart, labels)).thresholds
    b = detector_of(AcceptShare(), own, (apart, wrong)).thresholds
    assert torch.equal(a, b)


def test_accept_share_without_held_out_samples_is_refused():
    nothing = (torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64))
    with pytest.raises(DataError, match="no held-out sample"):
        detector_of(AcceptShare(), separated(), nothing)


def test_a_rule_of_an_unknown_kind_is_an_error_not_a_silent_default():
    class Other:
        kind = "other"

    for work in (rule_of, enough_for, designed_rejection):
        with pytest.raises(SettingsError, match="threshold rule 'other'"):
            work(Other())


def test_rules_say_what_they_reject_by_design_and_how_they_work():
    assert designed_rejection(AcceptShare(0.9)) == pytest.approx(0.1)
    assert designed_rejection(MeanMinusSd()) == 0.0
    words = [rule_of(rule).words(rule, "training score") for rule in (AcceptShare(0.9), MeanMinusSd(2.0))]
    assert "accept 90\N{NO-BREAK SPACE}% of what is assigned" in words[0]
    assert words[1] == "Each threshold is the class's mean training score less 2 standard deviations."


def test_what_is_borrowed_by_medians_does_not_follow_a_sample_far_out():
    own = [
        torch.tensor([0.0, 1.0, 2.0]),
        torch.tensor([10.0, 12.0, 14.0]),
    ]  # deviations 1.4826 and twice that
    few = borrowed(own, [torch.tensor([1.0, 1001.0]), torch.tensor([12.0])], 3, by_medians=True)[1]
    assert few.tolist() == pytest.approx([12.0, 2012.0, 12.0])
    assert float(few.median()) == 12.0


def test_each_fold_is_scored_by_what_was_fitted_on_the_others():
    values, folds = torch.tensor([1.0, 2.0, 3.0, 10.0]), torch.tensor([0, 1, 0, 1])
    found = cross_fitted(folds, lambda rest, mine: values[rest].sum() + 0 * values[mine])
    assert found.tolist() == [12.0, 4.0, 12.0, 4.0]
    assert cross_fitted(torch.tensor([0]), lambda rest, mine: values[:1][rest]).tolist() == [1.0]


def test_a_class_forgotten_takes_its_threshold_along_and_two_cannot_be_merged():
    detector = detector_of(MeanMinusSd(1.0), separated())
    rest = detector.without_class(0, Head(WEIGHTS[1:], None, cosine=True))
    assert torch.equal(rest.thresholds, detector.thresholds[1:])
    assert verdicts_on(rest, separated(4)[0]).predicted.tolist() == [0, 0, 0, 0]
    with pytest.raises(AccommodationError, match="'penalty' has one row of weights for a class"):
        detector.check("merge", "penalty")
    detector.check("split", "penalty")


def test_a_new_class_of_few_samples_takes_the_old_ones_relative_spread():
    detector = detector_of(AcceptShare(0.9), separated(400))
    head = Head(torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]), None, cosine=True)
    new = LearnedClass(lambda: None, views_of(torch.tensor([[3.0, 3.0], [5.0, 5.0]])), head=head)
    grown = detector.with_class(new)
    assert torch.equal(grown.thresholds[:2], detector.thresholds)
    about = torch.cat([row / row.mean() - 1 for row in detector.calibration.by_class]) * 1.5**0.5
    assert float(grown.thresholds[2]) == pytest.approx(float(8 * (1 + about.sort().values[39])), rel=1e-5)


def test_a_class_with_few_held_out_samples_borrows_the_others_distances():
    own = [torch.tensor([0.0, 2.0]), torch.tensor([10.0, 14.0])]  # means 1 and 12, deviations 1 and 2
    apart = [torch.arange(20.0), torch.tensor([8.0])]
    plenty, few = borrowed(own, apart, 19)
    assert torch.equal(plenty, torch.arange(20.0))
    few = few.sort().values
    expected = sorted([12 + 2 * (score - 1) for score in range(20)] + [8.0])
    assert few.tolist() == pytest.approx(expected)


@pytest.mark.parametrize(("share", "enough"), [(0.95, 19), (0.99, 99), (0.5, 1), (0.9, 9)])
def test_a_class_has_enough_scores_when_the_lowest_marks_the_share_to_reject(share, enough):
    assert enough_for(AcceptShare(share)) == enough
    scores = torch.arange(float(enough))
    assert float(threshold(AcceptShare(share), scores, scores)) == 0.0
    assert 1 / (enough + 1) == pytest.approx(1 - share)


def test_no_held_out_sample_at_all_is_an_error():
    with pytest.raises(DataError, match="held-out"):
        borrowed([torch.ones(2)], [torch.ones(0)], 19)


def test_p_value_is_the_conformal_rank_among_held_out_scores():
    calibration = Calibration(torch.zeros(2), torch.tensor([[1.0, 2.0, 3.0], [1.0, 1.0, float("inf")]]))
    found = calibration.p_values(torch.tensor([0.5, 2.0, 9.0, 1.0]), torch.tensor([0, 0, 0, 1]))
    assert found.tolist() == pytest.approx([1 / 4, 2 / 4, 1.0, 1 / 3])


def test_p_values_of_known_samples_are_uniform():
    from scipy.stats import kstest

    detector = detector_of(AcceptShare(), separated(), separated(4000, seed=1))
    p_values = verdicts_on(detector, separated(2000, seed=2)[0]).p_value.numpy()
    assert kstest(p_values, "uniform").pvalue > 0.001


def test_a_low_p_value_and_a_novel_verdict_are_the_same_thing_under_accept_share():
    detector = detector_of(AcceptShare(0.95), separated(), separated(398, seed=1))
    verdicts = verdicts_on(detector, separated(500, seed=3)[0] * 0.9)
    assert torch.equal(verdicts.novel, verdicts.p_value <= 0.05)
    assert 0 < int(verdicts.novel.sum()) < 500


def test_verdicts_do_not_depend_on_the_rest_of_the_batch():
    detector = detector_of(AcceptShare(), separated(), separated(seed=1))
    features = separated(50, seed=4)[0]
    together = verdicts_on(detector, features)
    for row in range(0, 50, 7):
        alone = verdicts_on(detector, features[row : row + 1])
        for name in ("predicted", "score", "threshold", "p_value", "novel"):
            assert getattr(alone, name)[0] == getattr(together, name)[row]


def test_a_score_on_the_threshold_is_novel_and_has_the_p_value_of_novel():
    held_out = separated(398, seed=1)
    detector = detector_of(AcceptShare(0.95), separated(), held_out)
    verdicts = verdicts_on(detector, held_out[0])  # among them the very samples that the thresholds are
    assert bool((verdicts.score == verdicts.threshold).any())
    assert torch.equal(verdicts.novel, verdicts.p_value <= 0.05)


@pytest.mark.parametrize("features", [torch.ones(2, 3), np.ones((2, 2)), torch.ones(2)])
def test_features_of_the_wrong_kind_are_refused(features):
    detector = detector_of(MeanMinusSd(), separated())
    with pytest.raises(DataError, match=r"high-level features must be floats \(n, 2\)"):
        detector.verdicts(Views(torch.ones(2, 0), features))
    with pytest.raises(DataError, match=r"features must be Views\(shared, high\)"):
        detector.verdicts(features)


def test_verdicts_before_thresholds_are_set_say_what_to_call_first():
    made = ScoreDetector(Shels(Head(WEIGHTS, None, cosine=True)), AcceptShare())
    with pytest.raises(DataError, match="call calibrated first"):
        verdicts_on(made, torch.ones(1, 2))


def test_verdicts_of_an_empty_batch_are_empty():
    detector = detector_of(MeanMinusSd(), separated())
    assert len(verdicts_on(detector, torch.zeros(0, 2))) == 0


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_features_that_overflowed_are_novel_not_known(bad):
    detector = detector_of(AcceptShare(), separated(), separated(seed=1))
    verdicts = verdicts_on(detector, torch.tensor([[bad, bad], [bad, 0.0], [1.5, 0.0]]))
    assert verdicts.novel.tolist() == [True, True, False]
    assert verdicts.p_value[:2].max() < 0.02


def test_measured_acceptance_is_that_of_thresholds_set_without_the_samples():
    held_out = separated(2000, seed=1)
    known = KnownSamples(*(Labelled(views_of(rows), at) for rows, at in (separated(), held_out)))
    made = [detector_of(AcceptShare(share), separated(), held_out) for share in (0.5, 0.8, 0.95)]
    rates = [measured_acceptance(each, known) for each in made]
    assert rates == pytest.approx([0.5, 0.8, 0.95], abs=0.03)
    in_sample = detector_of(AcceptShare(0.5), separated(), held_out)
    assert rates[0] != float((~verdicts_on(in_sample, held_out[0]).novel).float().mean())


def test_a_share_that_the_held_out_scores_cannot_mark_is_warned_of():
    with pytest.warns(UserWarning, match=r"40 held-out scores cannot mark a share of 0.999, only 0\.976"):
        detector_of(AcceptShare(0.999), separated(), separated(40, seed=1))


def test_temperature_stays_sensible_when_every_held_out_sample_is_right():
    scores = torch.eye(4).repeat(25, 1) * 0.02
    labels = torch.arange(4).repeat(25)
    best = (scores / fit_temperature(scores, labels)).softmax(1).max(1).values
    assert 0.97 < float(best.min()) < 0.999


def test_temperature_minimises_the_held_out_cross_entropy():
    draws = torch.Generator().manual_seed(0)
    logits = torch.randn(5000, 3, generator=draws)
    labels = torch.multinomial(logits.softmax(1), 1, generator=draws)[:, 0]
    assert fit_temperature(logits * 7, labels) == pytest.approx(7, rel=0.08)
