"""A judge: any score, the head's class, thresholds that held-out samples set."""

from __future__ import annotations

import math

import pytest
import torch

from shels.config import AcceptShare, MeanMinusSd
from shels.detection.head import Head
from shels.detection.judge import Judge
from shels.detection.registry import detector
from shels.errors import DataError, TrainingError
from shels.model.networks import Views


def cloud(n, seed, spread=0.3):
    """Return samples of three classes about the axes, and their labels."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 3
    high = torch.eye(3)[labels] * 4 + spread * torch.randn(n, 3, generator=draw)
    return Views(high[:, :0], high), labels


HEAD = Head(torch.eye(3), torch.zeros(3), cosine=False)


def judge(name, rule, training=None, held=None):
    return Judge.fit(detector(name, HEAD), rule, training or cloud(300, 0), held or cloud(240, 1))


def test_the_class_is_the_head_s_and_the_score_the_rival_s():
    made, (views, labels) = judge("knn", AcceptShare(0.9)), cloud(60, 2)
    verdicts = made.judge(views)
    assert torch.equal(verdicts.predicted, labels)
    assert torch.equal(verdicts.score, made.detector.scores(views))
    assert torch.equal(verdicts.threshold, made.thresholds[labels])


def test_the_paper_s_rule_is_mean_less_sd_of_held_out_samples_rightly_named():
    training, held = cloud(300, 0), cloud(240, 1)
    made = judge("max-logit", MeanMinusSd(k=1.0), training, held)
    scores = held[0].high.max(dim=1).values
    for position in range(3):
        mine = scores[(held[0].high.argmax(dim=1) == position) & (held[1] == position)]
        expected = mine.mean() - mine.std(correction=0)
        assert float(made.thresholds[position]) == pytest.approx(float(expected), abs=1e-4)


def test_a_score_that_remembers_training_samples_still_accepts_new_ones():
    made = judge("knn", MeanMinusSd(k=1.0))
    accepted = ~made.judge(cloud(600, 3)[0]).novel
    assert 0.7 < float(accepted.float().mean()) < 0.95  # on training samples alone it would be none


def test_the_share_that_is_asked_for_is_accepted():
    made = judge("energy", AcceptShare(0.9), held=cloud(3000, 4))
    accepted = ~made.judge(cloud(3000, 5)[0]).novel
    assert float(accepted.float().mean()) == pytest.approx(0.9, abs=0.02)


def test_far_samples_are_novel_with_a_small_p_value():
    far = torch.full((5, 3), -9.0)
    verdicts = judge("mahalanobis", AcceptShare(0.95)).judge(Views(far[:, :0], far))
    assert verdicts.novel.all()
    assert float(verdicts.p_value.max()) < 0.05


def test_a_class_that_no_training_sample_wins_is_named():
    views, labels = cloud(30, 0)
    wrong = Views(views.shared, views.high[:, [1, 0, 2]])  # the head takes each of two classes for the other
    with pytest.raises(TrainingError, match="class 'a' has no correctly classified"):
        Judge.fit(detector("msp", HEAD), MeanMinusSd(), (wrong, labels), cloud(30, 1), names="abc")


def test_a_class_with_few_held_out_samples_borrows_the_spread_of_all():
    views, labels = cloud(240, 1)
    kept = (labels != 2) | (torch.arange(240) < 12)
    held = Views(views.shared[kept], views.high[kept]), labels[kept]
    made = judge("max-logit", MeanMinusSd(), held=held)
    assert math.isfinite(float(made.thresholds[2]))
    assert float(made.thresholds[2]) == pytest.approx(float(made.thresholds[0]), abs=0.3)


# Classes that come later --------------------------------------------------------------------------------


def fourth(n, seed):
    """Return samples of a fourth class, between the others."""
    draw = torch.Generator().manual_seed(seed)
    high = torch.full((n, 3), 3.0) + 0.3 * torch.randn(n, 3, generator=draw)
    return Views(high[:, :0], high)


MEANS = torch.cat([torch.eye(3) * 4, torch.full((1, 3), 3.0)])


def by_means(views):
    return -torch.cdist(views.high, MEANS)


def test_another_naming_names_and_the_score_still_judges():
    def fond_of_the_first(views):
        return by_means(views)[:, :3] + 4 * torch.eye(3)[0]

    training, held = cloud(300, 0, spread=1.0), cloud(240, 1, spread=1.0)
    made = Judge.fit(detector("knn", HEAD), AcceptShare(0.9), training, held, naming=fond_of_the_first)
    views, _ = cloud(300, 2, spread=1.0)
    named = made.judge(views).predicted
    assert torch.equal(named, fond_of_the_first(views).argmax(dim=1))
    assert not torch.equal(named, HEAD.logits(views.high).argmax(dim=1))
    assert torch.equal(made.judge(views).score, made.detector.scores(views))


def test_a_grown_judge_keeps_old_thresholds_and_accepts_the_share_of_the_new_class():
    made = judge("knn", AcceptShare(0.9))
    grown = made.grown(made.detector.add_class(fourth(300, 1)), by_means, fourth(400, 2))
    assert torch.equal(grown.thresholds[:3], made.thresholds)
    assert len(grown.means) == 4
    new = grown.judge(fourth(2000, 3))
    assert bool((new.predicted == 3).all())
    assert float((~new.novel).float().mean()) == pytest.approx(0.9, abs=0.04)
    assert float(made.judge(fourth(200, 3)).novel.float().mean()) == 1.0


def test_a_new_class_of_few_samples_borrows_how_the_old_ones_lie():
    made = judge("knn", AcceptShare(0.9))
    grown = made.grown(made.detector.add_class(fourth(60, 1)), by_means, fourth(4, 2))
    accepted = ~grown.judge(fourth(2000, 3)).novel
    assert 0.6 < float(accepted.float().mean()) < 1.0


def test_seen_features_side_by_side_are_told_apart_again():
    views, labels = cloud(300, 0)
    both = Views(views.high * 2, views.high)
    made = Judge.fit(detector("mahalanobis-layers", HEAD), AcceptShare(0.9), (both, labels), (both, labels))
    again = made.views(made.sees(both))
    assert torch.equal(again.shared, both.shared)
    assert torch.equal(again.high, both.high)
    assert torch.equal(made.verdicts(made.sees(both)).score, made.judge(both).score)
    with pytest.raises(DataError, match=r"6 columns, got shape \(300, 3\)"):
        made.verdicts(both.high)


def test_a_judge_made_anew_takes_off_what_training_made_too_familiar():
    views, labels = cloud(400, 0)
    new = fourth(100, 1)
    kept = Views(*(torch.cat(pair) for pair in zip(views, new, strict=True)))
    marks = torch.cat([labels, torch.full((100,), 3)])
    head = Head(MEANS, torch.zeros(4), cosine=False)
    made = Judge.anew(detector("knn", head), by_means, AcceptShare(0.9), (kept, marks), fourth(400, 2))
    plain = Judge.of(detector("knn", head), AcceptShare(0.9), (kept, marks), by_means)
    plain = plain.calibrated((kept, marks), (kept, marks))
    accepted = [float((~each.judge(cloud(2000, 3)[0]).novel).float().mean()) for each in (made, plain)]
    assert accepted[0] == pytest.approx(0.9, abs=0.06)
    assert accepted[1] < 0.1  # every kept sample is its own neighbour, so nothing new is near enough


def test_a_judge_made_anew_sets_a_threshold_for_a_class_that_nothing_is_named_as():
    views, labels = cloud(90, 0)

    def never_the_third(seen):
        return torch.cat([-torch.cdist(seen.high, MEANS[:2]), torch.full((len(seen.high), 1), -99.0)], dim=1)

    made = Judge.anew(detector("max-logit", HEAD), never_the_third, MeanMinusSd(1.0), (views, labels), views)
    assert bool(made.thresholds.isfinite().all())


def test_old_classes_are_scored_among_the_classes_that_were_known_when_their_thresholds_were_set():
    made = judge("msp", AcceptShare(0.9))
    grown_head = Head(torch.cat([HEAD.weight, torch.ones(1, 3) / 2]), torch.zeros(4), cosine=False)
    grown = made.grown(made.detector.add_class(fourth(60, 1), grown_head), by_means, fourth(90, 2))
    views, _ = cloud(300, 3)
    now, then = grown.judge(views), made.judge(views)
    assert torch.equal(now.p_value, then.p_value)  # a row more would take from every softmax
    assert torch.equal(now.novel, then.novel)
    assert float(now.score.mean()) == pytest.approx(0, abs=0.3)  # what is usual for each class, in its spread
    new = grown.judge(fourth(50, 4))
    assert bool((new.predicted == 3).all())
    assert float(new.score.mean()) == pytest.approx(0, abs=0.3)


@pytest.mark.parametrize("name", ["max-logit", "shels"])
def test_a_score_of_the_named_row_alone_stays_on_its_own_scale(name):
    made = judge(name, AcceptShare(0.9))
    grown_head = Head(torch.cat([HEAD.weight, torch.ones(1, 3) / 2]), torch.zeros(4), cosine=False)
    grown = made.grown(made.detector.add_class(fourth(60, 1), grown_head), by_means, fourth(90, 2))
    views, _ = cloud(300, 3)
    assert torch.equal(grown.judge(views).score, made.judge(views).score)


def test_a_detector_that_remembers_samples_is_calibrated_on_samples_it_does_not_know():
    views, labels = cloud(120, 0)
    new = fourth(40, 1)
    kept = Views(*(torch.cat(pair) for pair in zip(views, new, strict=True)))
    marks = torch.cat([labels, torch.full((40,), 3)])
    head = Head(MEANS, torch.zeros(4), cosine=False)
    made = Judge.anew(detector("knn", head), by_means, MeanMinusSd(1.0), (kept, marks), fourth(200, 2))
    rows = made.calibration
    spread = torch.stack([row[row.isfinite()].std() for row in rows])
    assert bool((spread > 1e-3).all())  # each sample is not its own neighbour
    accepted = ~made.judge(cloud(900, 5)[0]).novel
    assert 0.7 < float(accepted.float().mean()) < 0.98


def test_a_sample_far_out_does_not_move_the_thresholds_of_classes_that_borrow():
    training, (views, labels) = cloud(300, 0), cloud(54, 1)  # 18 held-out samples a class, one too few
    far = views.high.clone()
    far[0] += torch.eye(3)[0] * 300  # of class 0, and still named so
    plain = judge("mahalanobis", AcceptShare(0.95), training, (views, labels))
    odd = judge("mahalanobis", AcceptShare(0.95), training, (Views(far[:, :0], far), labels))
    accepted = ~odd.judge(cloud(3000, 3)[0]).novel
    assert float(accepted.float().mean()) == pytest.approx(0.95, abs=0.05)
    new = fourth(12, 2)
    for made in (plain, odd):
        grown = made.grown(made.detector.add_class(fourth(60, 1)), by_means, new)
        share = (~grown.judge(fourth(2000, 4)).novel).float().mean()
        assert float(share) > 0.8
