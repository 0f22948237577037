from __future__ import annotations

import numpy as np
import pytest
import torch

from shels.config import AcceptShare, MeanMinusSd
from shels.detection.calibration import enough_for, fit_temperature, measured_acceptance, threshold
from shels.detection.scores.shels import Detector, calibration_scores, class_scores, signatures
from shels.errors import DataError, SettingsError, TrainingError

WEIGHTS = torch.tensor([[1.0, 0.0], [0.0, 2.0]])


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
    assert signatures(features, torch.tensor([0, 0, 1]), 2).tolist() == [[2.0, 1.0], [5.0, 5.0]]


def test_papers_threshold_is_mean_less_k_standard_deviations_worked_by_hand():
    features = torch.tensor([[2.0, 0.0], [4.0, 0.0], [0.0, 1.0], [0.0, 3.0]])  # scores 2, 4 and 2, 6
    labels = torch.tensor([0, 0, 1, 1])
    assert Detector(WEIGHTS, MeanMinusSd(1.0)).fit(features, labels).thresholds.tolist() == [2.0, 2.0]
    assert Detector(WEIGHTS, MeanMinusSd(0.5)).fit(features, labels).thresholds.tolist() == [2.5, 3.0]


def test_threshold_ignores_misclassified_samples():
    features = torch.tensor([[2.0, 0.0], [4.0, 0.0], [0.0, 1.0], [0.0, 3.0], [0.0, 9.0], [0.1, 0.0]])
    labels = torch.tensor([0, 0, 1, 1, 0, 1])  # the last two are called the other class
    assert Detector(WEIGHTS, MeanMinusSd(1.0)).fit(features, labels).thresholds.tolist() == [2.0, 2.0]


def test_a_class_with_no_correct_sample_is_an_error_that_names_it():
    features = torch.tensor([[2.0, 0.0], [4.0, 0.0]])
    with pytest.raises(TrainingError, match="'cat' has no correctly classified"):
        Detector(WEIGHTS, MeanMinusSd()).fit(features, torch.tensor([0, 1]), names=["dog", "cat"])


def test_a_score_must_exceed_the_threshold_to_be_known():
    detector = Detector(WEIGHTS, MeanMinusSd(1.0))
    detector.fit(torch.tensor([[2.0, 0.0], [4.0, 0.0], [0.0, 1.0], [0.0, 3.0]]), torch.tensor([0, 0, 1, 1]))
    verdicts = detector.verdicts(torch.tensor([[2.0, 0.0], [2.01, 0.0], [0.3, 0.9], [0.0, 1.1]]))
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
        detector = Detector(WEIGHTS, AcceptShare(0.9))
        detector.fit(*separated(seed=seed), held_out=separated(400, seed=100 + seed))
        rates.append(float((~detector.verdicts(separated(1000, seed=200 + seed)[0]).novel).float().mean()))
    assert np.mean(rates) == pytest.approx(0.9, abs=0.01)


def test_accept_share_counts_held_out_samples_by_the_class_they_are_assigned_to():
    own = separated()
    apart, labels = separated(400, seed=1)
    wrong = torch.cat([labels[:20] * 0 + 1 - labels[:20], labels[20:]])  # twenty wrong labels change nothing
    a = Detector(WEIGHTS, AcceptShare()).fit(*own, held_out=(apart, labels)).thresholds
    b = Detector(WEIGHTS, AcceptShare()).fit(*own, held_out=(apart, wrong)).thresholds
    assert torch.equal(a, b)


def test_accept_share_without_held_out_samples_is_refused():
    with pytest.raises(SettingsError, match="held-out"):
        Detector(WEIGHTS, AcceptShare()).fit(*separated())


def test_a_class_with_few_held_out_samples_borrows_the_others_distances():
    own = [torch.tensor([0.0, 2.0]), torch.tensor([10.0, 14.0])]  # means 1 and 12, deviations 1 and 2
    apart = [torch.arange(20.0), torch.tensor([8.0])]
    plenty, few = calibration_scores(own, apart, enough=19)
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
        calibration_scores([torch.ones(2)], [torch.ones(0)], enough=19)


def test_p_value_is_the_conformal_rank_among_held_out_scores():
    detector = Detector(WEIGHTS, MeanMinusSd())
    detector.fit(*separated())
    detector.calibration = torch.tensor([[1.0, 2.0, 3.0], [1.0, 1.0, float("inf")]])
    verdicts = detector.verdicts(torch.tensor([[0.5, 0.0], [2.0, 0.0], [9.0, 0.0], [0.0, 0.5]]))
    assert verdicts.p_value.tolist() == pytest.approx([1 / 4, 2 / 4, 1.0, 1 / 3])


def test_p_values_of_known_samples_are_uniform():
    from scipy.stats import kstest

    detector = Detector(WEIGHTS, AcceptShare()).fit(*separated(), held_out=separated(4000, seed=1))
    p_values = detector.verdicts(separated(2000, seed=2)[0]).p_value.numpy()
    assert kstest(p_values, "uniform").pvalue > 0.001


def test_a_low_p_value_and_a_novel_verdict_are_the_same_thing_under_accept_share():
    detector = Detector(WEIGHTS, AcceptShare(0.95)).fit(*separated(), held_out=separated(398, seed=1))
    verdicts = detector.verdicts(separated(500, seed=3)[0] * 0.9)
    assert torch.equal(verdicts.novel, verdicts.p_value <= 0.05)
    assert 0 < int(verdicts.novel.sum()) < 500


def test_verdicts_do_not_depend_on_the_rest_of_the_batch():
    detector = Detector(WEIGHTS, AcceptShare()).fit(*separated(), held_out=separated(seed=1))
    features = separated(50, seed=4)[0]
    together = detector.verdicts(features)
    for row in range(0, 50, 7):
        alone = detector.verdicts(features[row : row + 1])
        for name in ("predicted", "score", "threshold", "p_value", "novel"):
            assert getattr(alone, name)[0] == getattr(together, name)[row]


def test_a_score_on_the_threshold_is_novel_and_has_the_p_value_of_novel():
    held_out = separated(398, seed=1)
    detector = Detector(WEIGHTS, AcceptShare(0.95)).fit(*separated(), held_out=held_out)
    verdicts = detector.verdicts(held_out[0])  # among them the very samples that the thresholds are
    assert bool((verdicts.score == verdicts.threshold).any())
    assert torch.equal(verdicts.novel, verdicts.p_value <= 0.05)


@pytest.mark.parametrize("features", [torch.ones(2, 3), np.ones((2, 2)), torch.ones(2)])
def test_features_of_the_wrong_kind_are_refused(features):
    detector = Detector(WEIGHTS, MeanMinusSd()).fit(*separated())
    with pytest.raises(DataError, match=r"features must be a tensor \(n, 2\)"):
        detector.verdicts(features)


def test_verdicts_before_fit_say_what_to_call_first():
    with pytest.raises(DataError, match="call fit first"):
        Detector(WEIGHTS).verdicts(torch.ones(1, 2))


def test_verdicts_of_an_empty_batch_are_empty():
    detector = Detector(WEIGHTS, MeanMinusSd()).fit(*separated())
    assert len(detector.verdicts(torch.zeros(0, 2))) == 0


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_features_that_overflowed_are_novel_not_known(bad):
    detector = Detector(WEIGHTS, AcceptShare()).fit(*separated(), held_out=separated(seed=1))
    verdicts = detector.verdicts(torch.tensor([[bad, bad], [bad, 0.0], [1.5, 0.0]]))
    assert verdicts.novel.tolist() == [True, True, False]
    assert verdicts.p_value[:2].max() < 0.02


def test_measured_acceptance_is_that_of_thresholds_set_without_the_samples():
    held_out = separated(2000, seed=1)
    rates = [
        measured_acceptance(
            lambda *half, share=share: Detector(WEIGHTS, AcceptShare(share)).fit(*separated(), held_out=half),
            held_out,
        )
        for share in (0.5, 0.8, 0.95)
    ]
    assert rates == pytest.approx([0.5, 0.8, 0.95], abs=0.03)
    in_sample = Detector(WEIGHTS, AcceptShare(0.5)).fit(*separated(), held_out=held_out)
    assert rates[0] != float((~in_sample.verdicts(held_out[0]).novel).float().mean())


def test_a_share_that_the_held_out_scores_cannot_mark_is_warned_of():
    detector = Detector(WEIGHTS, AcceptShare(0.999))
    with pytest.warns(UserWarning, match=r"40 held-out scores cannot mark a share of 0.999, only 0\.976"):
        detector.fit(*separated(), held_out=separated(40, seed=1))


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
