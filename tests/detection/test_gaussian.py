from __future__ import annotations

import gc
import weakref

import pytest
import torch

from shels.config import AcceptShare, Gaussian, MeanMinusSd
from shels.detection.head import Head
from shels.detection.protocol import Context, KnownSamples, Labelled, LearnedClass, rows_of
from shels.detection.scores.gaussian import GaussianDetector
from shels.detection.standards import Standards, log_scales, log_scores
from shels.errors import DataError, SettingsError
from shels.model.networks import Views

CENTRES = torch.eye(8)[:5] * 4
HEAD = Head(torch.eye(3, 6), None, cosine=True)


def drawn(labels, seed, spread=1.0):
    """Features of both depths: a class has its own direction in each, with noise around it."""
    draws = torch.Generator().manual_seed(seed)
    low = CENTRES[labels] + 2 + 0.6 * spread * torch.randn(len(labels), 8, generator=draws)
    high = CENTRES[labels][:, :6] + 1 + 0.5 * spread * torch.randn(len(labels), 6, generator=draws)
    return Views(low, high.relu())


def labels_of(*classes, n):
    return torch.tensor(classes).repeat_interleave(n)


@pytest.fixture(scope="module")
def detector():
    """Knows classes 0, 1 and 2 of five, calibrated to accept 95 %."""
    return made(AcceptShare(0.95))


def made(rule, gaussian=None):
    training, held = labels_of(0, 1, 2, n=300), labels_of(0, 1, 2, n=200)
    known = KnownSamples(Labelled(drawn(training, 0), training), Labelled(drawn(held, 1), held))
    context = Context(HEAD, rule, (), gaussian=gaussian or Gaussian())
    return GaussianDetector.fit(context, known.training).calibrated(known)


def grown(detector, n, seed):
    return detector.with_class(LearnedClass(lambda: drawn(labels_of(3, n=n), seed)))


def verdicts(detector, labels, seed=9):
    return detector.verdicts(drawn(labels, seed))


def test_known_samples_are_recognised_and_accepted_at_the_promised_rate(detector):
    labels = labels_of(0, 1, 2, n=3000)
    found = verdicts(detector, labels)
    assert float((found.predicted == labels).float().mean()) > 0.99
    assert float((~found.novel).float().mean()) == pytest.approx(0.95, abs=0.015)


def test_one_that_is_not_needed_any_more_goes_without_waiting_for_the_garbage_collector():
    gc.disable()
    try:
        one = made(AcceptShare(0.95))
        one.verdicts(drawn(labels_of(0, n=5), 3))
        left = weakref.ref(one)
        del one
        assert left() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("deviation", ["own", "common"])
def test_both_layers_distances_together_keep_the_promise_and_are_stored(deviation):
    settings = Gaussian(distance="sum", deviation=deviation)
    summed, labels = made(AcceptShare(0.95), settings), labels_of(0, 1, 2, n=3000)
    found = verdicts(summed, labels)
    assert float((~found.novel).float().mean()) == pytest.approx(0.95, abs=0.015)
    assert float((~verdicts(grown(summed, 200, 3), labels_of(3, n=1000)).novel).float().mean()) > 0.92
    again = GaussianDetector.load(Context(HEAD, AcceptShare(0.95), (), gaussian=settings), summed.tensors())
    assert torch.equal(verdicts(again, labels).score, found.score)


def test_classes_that_count_alike_are_named_the_same_once_another_is_gone_or_all_are_stored():
    settings = Gaussian(within="classes")
    context = Context(HEAD, AcceptShare(0.95), (), gaussian=settings)
    first, labels = made(AcceptShare(0.95), settings), labels_of(0, 1, 2, n=300)
    both = grown(first, 10, 3)
    stored = GaussianDetector.load(context, both.tensors())
    seen = drawn(labels, 5)
    assert torch.equal(stored.class_scores(seen), both.class_scores(seen))
    assert not torch.equal(both.class_scores(seen)[:, :3], first.class_scores(seen))
    assert torch.equal(both.without_class(3).class_scores(seen), first.class_scores(seen))
    alone = made(AcceptShare(0.95))
    assert not torch.equal(grown(alone, 10, 3).class_scores(seen), both.class_scores(seen))
    with pytest.raises(SettingsError, match="rectified must be 0, got 64"):
        Gaussian(within="classes", rectified=64)


def test_what_differs_a_little_on_both_layers_is_told_by_their_sum_alone():
    """Standard distances of (2, 2) and (0, 3): the farther one says 2 and 3, their sum 4 and 3."""
    logs, scale = torch.tensor([[2.0, 2.0], [0.0, 3.0]]), torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    assert log_scores(logs, scale).tolist() == [-2, -3]
    assert log_scores(logs, scale, "sum").tolist() == [-4, -3]


def test_deviations_may_be_those_of_all_classes_about_means_of_their_own():
    """Log distances 1 and 3 of one class, 9 and 15 of another: variances 2 and 18, ten in common."""
    logs = torch.tensor([1.0, 3.0, 9.0, 15.0], dtype=torch.float64)[:, None].expand(-1, 2)
    given = torch.tensor([0, 0, 1, 1])
    scale, own = log_scales(logs, given, given, 2)
    _, common = log_scales(logs, given, given, 2, "common")
    assert scale[0].tolist() == pytest.approx([7, 10**0.5])
    assert common[:, 0, 1].tolist() == pytest.approx([10**0.5] * 2)
    assert own[0, 0, 1] < own[1, 0, 1]
    assert torch.equal(common[..., 0], own[..., 0])
    assert common[:, 0, 0].tolist() == pytest.approx([(4 + 70) / 12, (24 + 70) / 12])


@pytest.mark.parametrize("distance", ["farther", "sum"])
def test_a_score_by_standards_that_leaving_it_out_does_not_move_is_the_score_itself(distance):
    scales = torch.tensor([[[1.0, 0.5], [2.0, 3.0]]])
    scores = torch.tensor([-1.5, 0.25, -4.0])
    folds = torch.tensor([0, 1, 0])
    found = Standards(scales[0], scales, scores, folds, scales.expand(2, 1, 2, 2), distance)
    assert found.level(0, torch.arange(3)).tolist() == pytest.approx(scores.tolist())


def test_a_difference_along_a_minor_direction_needs_enough_of_them():
    labels = labels_of(0, 1, 2, n=500)
    seen = drawn(labels, 9)
    moved = Views(seen.shared + torch.tensor([0, 0, 0, 0, 0, 0, 4.0, -4.0]), seen.high)
    few, all_of_them = (made(AcceptShare(0.95), Gaussian(near=near)) for near in (2, 8))
    assert few.priors[0].shape == (2, 2)
    assert float(all_of_them.verdicts(moved).novel.float().mean()) > 0.95
    assert float(few.verdicts(moved).novel.float().mean()) < 0.6


def test_samples_of_other_classes_are_novel(detector):
    assert float(verdicts(detector, labels_of(3, 4, n=500)).novel.float().mean()) > 0.9


def test_a_class_taken_in_is_recognised_and_accepted_and_the_next_one_is_still_novel(detector):
    new = grown(detector, 200, 3)
    found = verdicts(new, labels_of(3, n=1000))
    assert float((found.predicted == 3).float().mean()) > 0.98
    assert float((~found.novel).float().mean()) == pytest.approx(0.95, abs=0.03)
    assert float(verdicts(new, labels_of(4, n=500)).novel.float().mean()) > 0.9


@pytest.mark.parametrize("n", [5, 10, 20, 60])
def test_a_small_class_does_not_reject_its_own_samples_for_being_new(detector, n):
    rates = []
    for seed in range(20):
        new = grown(detector, n, 100 + seed)
        found = verdicts(new, labels_of(3, n=300), seed)
        rates.append(float((~found.novel).float().mean()))
    assert sum(rates) / 20 > 0.85


def test_later_classes_move_neither_scores_nor_thresholds_of_earlier_ones(detector):
    labels = labels_of(0, 1, 2, n=200)
    before, new = verdicts(detector, labels), detector
    for step in range(10):
        new = new.with_part(drawn(labels_of(3 + step % 2, n=50), 50 + step), 3 + step)
    after = verdicts(new, labels)
    same = before.predicted == after.predicted
    assert float(same.float().mean()) > 0.98
    torch.testing.assert_close(after.score[same], before.score[same])
    assert torch.equal(after.threshold[same], before.threshold[same])
    assert torch.equal(new.thresholds[:3], detector.thresholds)


def test_a_class_may_have_several_parts_and_be_dropped_again(detector):
    two = detector.with_part(drawn(labels_of(3, n=80), 3), 0)
    assert float((verdicts(two, labels_of(3, n=200)).predicted == 0).float().mean()) > 0.98
    assert two.class_scores(drawn(labels_of(0, n=4), 5)).shape == (4, 3)
    gone = grown(detector, 80, 3).without_class(3)
    labels = labels_of(0, 1, 2, 3, n=50)
    assert torch.equal(verdicts(gone, labels).score, verdicts(detector, labels).score)


def test_p_values_of_known_samples_are_even_and_those_of_novel_ones_small(detector):
    known = verdicts(detector, labels_of(0, 1, 2, n=2000)).p_value
    assert [float((known <= q).float().mean()) for q in (0.1, 0.5, 0.9)] == pytest.approx(
        [0.1, 0.5, 0.9], abs=0.05
    )
    assert float(verdicts(detector, labels_of(3, n=500)).p_value.median()) < 0.02


def test_the_papers_rule_rejects_about_a_sixth():
    strict = made(MeanMinusSd(1.0))
    assert 0.78 < float((~verdicts(strict, labels_of(0, 1, 2, n=1000)).novel).float().mean()) < 0.9


def test_a_verdict_does_not_depend_on_the_rest_of_the_batch(detector):
    labels = labels_of(0, 1, 2, 3, n=30)
    features = drawn(labels, 4)
    whole = detector.verdicts(features)
    alone = torch.cat(
        [detector.verdicts(rows_of(features, torch.arange(i, i + 1))).score for i in range(len(labels))]
    )
    torch.testing.assert_close(alone, whole.score, rtol=1e-4, atol=1e-5)
    mixed = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        detector.verdicts(rows_of(features, mixed)).score, whole.score[mixed], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_features_that_overflowed_are_novel(detector, bad):
    features = drawn(labels_of(0, n=3), 4)
    features.shared[1, 0] = bad
    found = detector.verdicts(features)
    assert found.novel[1]
    assert found.score[1] == -torch.inf
    assert detector.class_scores(features)[1].max() == -torch.inf


def test_features_of_another_width_are_refused(detector):
    with pytest.raises(DataError, match=r"shared features must be floats \(2, 8\), got \(2, 9\)"):
        detector.verdicts(Views(torch.zeros(2, 9), torch.zeros(2, 6)))
    with pytest.raises(DataError, match=r"high-level features must be floats \(n, 6\), got \(2, 5\)"):
        detector.verdicts(Views(torch.zeros(2, 8), torch.zeros(2, 5)))


def calibrated(detector, labels):
    held_out = Labelled(drawn(labels, 2), labels)
    return detector.calibrated(KnownSamples(held_out, held_out))


def test_a_merged_class_keeps_both_places_and_counts_both(detector):
    new = grown(detector, 80, 3)
    assert new.counts() == {0: 300, 1: 300, 2: 300, 3: 80}
    both = new.merged(3, 1)
    assert both.counts() == {0: 300, 1: 380, 2: 300}
    labels = labels_of(0, 1, 2, 3, n=50)
    swap = torch.tensor([0, 1, 2, 1])
    assert torch.equal(verdicts(both, labels).predicted, swap[verdicts(new, labels).predicted])
    assert torch.equal(verdicts(both, labels).score, verdicts(new, labels).score)
    first = new.merged(0, 2)  # classes after the one that is gone move up
    assert torch.equal(
        verdicts(first, labels).predicted, torch.tensor([1, 0, 1, 2])[verdicts(new, labels).predicted]
    )


def test_places_of_samples_and_classes_are_those_of_the_common_spread(detector):
    labels = labels_of(0, 1, 2, n=100)
    places = detector.places(drawn(labels, 5))
    assert float((places.predicted == labels).float().mean()) > 0.95
    assert places.means.shape == (3, places.rows.shape[1])
    centred = places.rows - places.means[labels]
    assert float(centred.std()) == pytest.approx(1.0, abs=0.15)  # known classes spread alike
    assert torch.equal(detector.clustering_rows(drawn(labels, 5)), places.rows)


def test_calibration_without_held_out_samples_is_refused(detector):
    with pytest.raises(DataError, match="no held-out sample"):
        calibrated(detector, labels_of(0, n=0))


def test_one_held_out_sample_gives_a_threshold_with_a_warning(detector):
    with pytest.warns(UserWarning, match="cannot mark a share"):
        few = calibrated(detector, labels_of(0, n=1))
    assert few.thresholds.isfinite().all()
