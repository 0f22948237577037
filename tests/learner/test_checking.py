"""Estimates without novel data: what is judged had no say, and figures agree with others' formulas."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from shels.config import AcceptShare
from shels.data.splits import divided
from shels.detection.protocol import rows_of
from shels.errors import DataError
from shels.learner import checking
from shels.learner.checking import Round, by_folds, fitted, seen_by, without_classes
from shels.learner.estimates import estimates, mean, operating_curve, proportion
from shels.learner.learner import learn
from shels.learner.pairing import paired
from shels.learner.retraining import retraining
from shels.runtime import finished


@pytest.fixture(scope="module")
def seen(learner, digits):
    return seen_by(learner, digits[0])


def test_the_samples_held_out_of_a_training_are_found_again(learner, digits, seen):
    division = divided(digits[0].labels, None, learner.settings, learner.seed)
    assert seen.exact
    assert seen.held_out.nonzero()[:, 0].tolist() == division.calibration.tolist()


def test_other_samples_than_those_trained_on_are_told(learner, digits):
    assert not seen_by(learner, digits[0].take(torch.arange(len(digits[0]) - 5))).exact


def test_a_class_of_one_sample_is_refused_with_its_name(learner, digits):
    labels = digits[0].labels
    some = torch.cat([(labels != 2).nonzero()[:, 0], (labels == 2).nonzero()[:1, 0]])
    with pytest.raises(DataError, match="class 2 has 1 samples"):
        seen_by(learner, digits[0].take(some))


def test_samples_too_few_to_judge_some_by_others_are_refused_with_what_to_give(learner, digits):
    few = torch.cat([(digits[0].labels == place).nonzero()[:4, 0] for place in range(len(learner.classes))])
    too_few = seen_by(learner, digits[0].take(few))
    places = too_few.held_out.nonzero()[:, 0]
    with pytest.raises(DataError, match=f"{len(few)} samples are too few to judge some by the others"):
        without_classes(learner, replace(too_few, held_out=too_few.held_out.index_fill(0, places[1:], False)))


def test_each_sample_is_judged_once_by_a_detector_that_was_fitted_without_it(learner, seen, monkeypatch):
    asked = []

    def noted(given, samples, use):
        asked.append(use.clone())
        return fitted(given, samples, use)

    monkeypatch.setattr(checking, "fitted", noted)
    rounds, found = by_folds(learner, seen, 4)
    assert (torch.stack([~use for use in asked]).sum(dim=0) == 1).all()
    assert sum(each.known for each in rounds) == int(seen.held_out.sum())
    use = asked[0]
    verdicts = fitted(learner, seen, use).detector.verdicts(rows_of(seen.views, ~use))
    assert torch.equal(found.predicted[~use], verdicts.predicted)
    assert torch.allclose(found.p_value[~use], verdicts.p_value)


def test_groups_are_judged_together(learner, digits):
    groups = np.arange(len(digits[0])) // 7
    whole = seen_by(learner, digits[0], groups)
    parts = checking.folds_of(whole.samples.labels.numpy(), whole.groups, 5, learner.seed)
    assert all(len(set(parts[groups == group])) == 1 for group in np.unique(groups))


def test_a_detector_without_a_class_knows_nothing_of_it(learner, seen):
    place = 1
    scrambled = seen.views.high.clone(), seen.views.shared.clone()
    for rows in scrambled:
        rows[(seen.labels == place) & ~seen.held_out] = 1e3
    other = replace(seen, views=seen.views._replace(high=scrambled[0], shared=scrambled[1]))
    one, two = (checking._without(learner, each, learner.classes[place], 3) for each in (seen, other))
    assert one == two
    assert one.novel == int((seen.held_out & (seen.labels == place)).sum())


def test_every_class_is_left_out_and_told_from_the_others(learner, seen):
    rounds = without_classes(learner, seen, 3)
    assert [each.name for each in rounds] == [str(name) for name in learner.classes]
    assert all(each.auroc > 0.9 for each in rounds)
    curve = operating_curve(rounds)
    assert [point.share for point in curve] == list(checking.SHARES)
    assert all(a.accepted <= b.accepted and a.rejected >= b.rejected for a, b in pairwise(curve))


def test_the_curve_at_the_models_own_share_is_what_it_decides(learner, seen):
    detector, held = learner.detector, seen.known(torch.ones(len(seen.labels), dtype=torch.bool)).held_out
    assert torch.allclose(detector.thresholds_by(learner.settings.rule).float(), detector.thresholds.float())
    known = held.take(held.labels < 3)
    found = checking.measured("", detector, known, held.take(held.labels == 3).features)
    point = next(point for point in found.curve if point.share == learner.settings.rule.share)
    assert point.accepted * found.known == pytest.approx(found.accepted)
    assert point.rejected * found.novel == pytest.approx(found.rejected)


@pytest.mark.parametrize("name", ["knn", "energy", "fused"])
def test_other_detectors_are_checked_the_same_way(digits, short_settings, name):
    settings = replace(short_settings, training=replace(short_settings.training, steps=100))
    settings = paired(settings, "slda" if name != "energy" else "proximal", name)
    made = learn(digits[0], settings, seed=0, device="cpu")
    seen = seen_by(made, digits[0])
    rounds, _ = by_folds(made, seen, 3)
    assert estimates(rounds)["closed_set_accuracy"].value > 0.9
    assert estimates(without_classes(made, seen, 3))["auroc"].value > 0.8
    limits = made.detector.thresholds_by(AcceptShare(0.5))
    assert (limits >= made.detector.thresholds).all()


def test_two_classes_are_too_few_to_leave_one_out(learner, digits):
    seen = seen_by(replace(learner, classes=(0, 1), taught=(0, 1)), digits[0].only([0, 1]))
    assert without_classes(learner, seen) == []


def test_networks_trained_anew_have_seen_neither_the_classes_nor_the_samples(
    digits, short_settings, monkeypatch
):
    from shels.learner import retraining as module

    settings = replace(short_settings, training=replace(short_settings.training, steps=60, check_every=30))
    trained = []

    def noted(samples, *given, **named):
        trained.append(samples)
        return (yield from original(samples, *given, **named))

    original = module.learning
    monkeypatch.setattr(module, "learning", noted)
    some = digits[0]
    rounds = finished(retraining(some, settings, folds=3, device="cpu"))
    assert [each.name for each in rounds] == ["0, 3", "1", "2"]
    for each, samples in zip(rounds, trained, strict=True):
        assert not set(each.name.split(", ")) & {str(name) for name in samples.classes}
        assert len(samples) + each.known + each.novel <= len(some)
        assert each.novel == sum(int((some.labels == int(name)).sum()) for name in each.name.split(", "))


def test_intervals_of_shares_are_wilsons_and_of_means_students():
    found = proportion(47, 50)
    assert (found.low, found.high) == pytest.approx(proportion_confint(47, 50, method="wilson"))
    values = [0.91, 0.85, 0.97, 0.88]
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert (mean(values).low, mean(values).high) == pytest.approx((low, min(high, 1)))
    assert proportion(0, 0) is mean([]) is None


@pytest.mark.parametrize("values", [[1.0, 1.0, 1.0, 1.0], [1.0, 0.9996, 1.0, 0.9999]])
def test_rounds_that_came_out_alike_have_no_interval(values):
    assert mean(values)[1:] == (None, None, len(values))


def test_a_single_round_has_no_interval_between_rounds():
    found = estimates([Round("test", 10, 4, 9, 8, 3, 0.9)])
    assert found["auroc"] == (0.9, None, None, 1)
    assert found["novel_accuracy"].n == 4
