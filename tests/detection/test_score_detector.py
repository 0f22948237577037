"""A detector of a naming and any score: the head's class, thresholds that held-out samples set."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from shels.config import AcceptShare, MeanMinusSd
from shels.detection.head import Head
from shels.detection.protocol import Context, KnownSamples, Labelled, LearnedClass
from shels.detection.registry import score
from shels.detection.score_detector import ScoreDetector
from shels.errors import AccommodationError, DataError, SettingsError, TrainingError
from shels.model.networks import Views


def cloud(n, seed, spread=0.3):
    """Return samples of three classes about the axes, and their labels."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 3
    high = torch.eye(3)[labels] * 4 + spread * torch.randn(n, 3, generator=draw)
    return Labelled(Views(high[:, :0], high), labels)


HEAD = Head(torch.eye(3), torch.zeros(3), cosine=False)


def by_head(views, head=HEAD):
    return head.logits(views.high)


def fitted(name, rule, training, naming=by_head, head=HEAD):
    return ScoreDetector.fit(score(name, head), Context(head, rule, (), naming), training)


def detector(name, rule, training=None, held=None, naming=by_head):
    known = KnownSamples(training or cloud(300, 0), held or cloud(240, 1))
    return fitted(name, rule, known.training, naming).calibrated(known)


def grown(made, training, held_out, head=None, naming=None):
    return made.with_class(LearnedClass(lambda: training, held_out, naming or by_means, head))


def begun_anew(name, rule, stored, held_out, naming=None):
    """A detector beside a network that was trained again, on the samples of all classes that were kept."""
    naming = naming or by_means
    head = Head(MEANS[: len(naming(stored.features)[0])], None, cosine=False)
    made = fitted(name, rule, stored, naming, head)
    return made.with_class(LearnedClass(lambda: None, held_out, naming, head, lambda: stored))


def test_the_class_is_the_head_s_and_the_score_the_rival_s():
    made, (views, labels) = detector("knn", AcceptShare(0.9)), cloud(60, 2)
    verdicts = made.verdicts(views)
    assert torch.equal(verdicts.predicted, labels)
    assert torch.equal(verdicts.score, made.score.scores(views))
    assert torch.equal(verdicts.threshold, made.thresholds[labels])


def test_the_paper_s_rule_is_mean_less_sd_of_held_out_samples_rightly_named():
    training, held = cloud(300, 0), cloud(240, 1)
    made = detector("max-logit", MeanMinusSd(k=1.0), training, held)
    scores = held[0].high.max(dim=1).values
    for position in range(3):
        mine = scores[(held[0].high.argmax(dim=1) == position) & (held[1] == position)]
        expected = mine.mean() - mine.std(correction=0)
        assert float(made.thresholds[position]) == pytest.approx(float(expected), abs=1e-4)


def test_a_score_that_remembers_training_samples_still_accepts_new_ones():
    made = detector("knn", MeanMinusSd(k=1.0))
    accepted = ~made.verdicts(cloud(600, 3)[0]).novel
    assert 0.7 < float(accepted.float().mean()) < 0.95  # on training samples alone it would be none


def test_the_share_that_is_asked_for_is_accepted():
    made = detector("energy", AcceptShare(0.9), held=cloud(3000, 4))
    accepted = ~made.verdicts(cloud(3000, 5)[0]).novel
    assert float(accepted.float().mean()) == pytest.approx(0.9, abs=0.02)


def test_far_samples_are_novel_with_a_small_p_value():
    far = torch.full((5, 3), -9.0)
    verdicts = detector("mahalanobis", AcceptShare(0.95)).verdicts(Views(far[:, :0], far))
    assert verdicts.novel.all()
    assert float(verdicts.p_value.max()) < 0.05


def test_a_class_that_no_training_sample_wins_is_named():
    views, labels = cloud(30, 0)
    wrong = Labelled(Views(views.shared, views.high[:, [1, 0, 2]]), labels)
    made = fitted("msp", MeanMinusSd(), wrong)
    with pytest.raises(TrainingError, match="class 'a' has no correctly classified"):
        made.calibrated(KnownSamples(wrong, cloud(30, 1)), names="abc")


def test_a_class_with_few_held_out_samples_borrows_the_spread_of_all():
    views, labels = cloud(240, 1)
    kept = (labels != 2) | (torch.arange(240) < 12)
    made = detector("max-logit", MeanMinusSd(), held=Labelled(views, labels).take(kept))
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
    made = detector("knn", AcceptShare(0.9), training, held, naming=fond_of_the_first)
    views, _ = cloud(300, 2, spread=1.0)
    named = made.verdicts(views).predicted
    assert torch.equal(named, fond_of_the_first(views).argmax(dim=1))
    assert not torch.equal(named, HEAD.logits(views.high).argmax(dim=1))
    assert torch.equal(made.verdicts(views).score, made.score.scores(views))


def test_a_grown_detector_keeps_old_thresholds_and_accepts_the_share_of_the_new_class():
    made = detector("knn", AcceptShare(0.9))
    larger = grown(made, fourth(300, 1), fourth(400, 2))
    assert torch.equal(larger.thresholds[:3], made.thresholds)
    assert len(larger.known.means) == 4
    new = larger.verdicts(fourth(2000, 3))
    assert bool((new.predicted == 3).all())
    assert float((~new.novel).float().mean()) == pytest.approx(0.9, abs=0.04)
    assert float(made.verdicts(fourth(200, 3)).novel.float().mean()) == 1.0


def test_a_new_class_of_few_samples_borrows_how_the_old_ones_lie():
    made = detector("knn", AcceptShare(0.9))
    larger = grown(made, fourth(60, 1), fourth(4, 2))
    accepted = ~larger.verdicts(fourth(2000, 3)).novel
    assert 0.6 < float(accepted.float().mean()) < 1.0


def test_features_of_another_form_are_refused():
    made, (views, _) = detector("knn", AcceptShare(0.9)), cloud(6, 0)
    with pytest.raises(DataError, match=r"\(n, 3\), got \(6, 2\)"):
        made.verdicts(Views(views.shared, views.high[:, :2]))


def test_verdicts_before_thresholds_are_set_say_what_to_call():
    made = fitted("knn", AcceptShare(0.9), cloud(30, 0))
    with pytest.raises(DataError, match="call calibrated first"):
        made.verdicts(cloud(3, 1).features)


def test_only_a_score_that_can_name_classes_stands_alone():
    with pytest.raises(SettingsError, match="the score knn does not name classes"):
        ScoreDetector(score("knn", HEAD), AcceptShare()).class_scores(cloud(3, 1).features)


@pytest.mark.parametrize("change", ["unlearn", "merge", "split"])
def test_what_a_pair_cannot_do_it_says_itself(change):
    made = detector("knn", AcceptShare(0.9))
    with pytest.raises(AccommodationError, match=f"detector knn does not {change} classes; "):
        made.check(change, "slda")
    with pytest.raises(AccommodationError, match="does not unlearn"):
        made.without_class(0)
    with pytest.raises(AccommodationError, match="does not merge"):
        made.merged(0, 1)


def test_a_class_without_held_out_samples_is_refused():
    with pytest.raises(DataError, match="detector knn sets the threshold of a class on held-out samples"):
        detector("knn", AcceptShare(0.9)).with_class(LearnedClass(lambda: fourth(9, 1)))


def test_known_classes_lie_at_their_means_or_where_training_moves_features_at_the_rows_of_the_head():
    still, views = detector("knn", AcceptShare(0.9)), fourth(20, 3)
    moving = replace(still, moves=True)
    for made, means in ((still, still.known.means), (moving, HEAD.weight)):
        places = made.places(views)
        rows = torch.nn.functional.normalize(views.high)
        scale = rows.std(dim=0).clamp(min=1e-3).mean()
        torch.testing.assert_close(places.rows, rows / scale)
        torch.testing.assert_close(places.means, torch.nn.functional.normalize(means) / scale)
        assert torch.equal(places.predicted, made.verdicts(views).predicted)


def test_a_detector_made_anew_takes_off_what_training_made_too_familiar():
    views, labels = cloud(400, 0)
    new = fourth(100, 1)
    kept = Views(*(torch.cat(pair) for pair in zip(views, new, strict=True)))
    marks = torch.cat([labels, torch.full((100,), 3)])
    stored = Labelled(kept, marks)
    made = begun_anew("knn", AcceptShare(0.9), stored, fourth(400, 2))
    plain = detector("knn", AcceptShare(0.9), stored, stored, naming=by_means)
    accepted = [float((~each.verdicts(cloud(2000, 3)[0]).novel).float().mean()) for each in (made, plain)]
    assert accepted[0] == pytest.approx(0.9, abs=0.06)
    assert accepted[1] < 0.1  # every kept sample is its own neighbour, so nothing new is near enough


def test_a_detector_made_anew_sets_a_threshold_for_a_class_that_nothing_is_named_as():
    views, labels = cloud(90, 0)

    def never_the_third(seen):
        return torch.cat([-torch.cdist(seen.high, MEANS[:2]), torch.full((len(seen.high), 1), -99.0)], dim=1)

    made = begun_anew("max-logit", MeanMinusSd(1.0), Labelled(views, labels), views, never_the_third)
    assert bool(made.thresholds.isfinite().all())


def test_old_classes_are_scored_among_the_classes_that_were_known_when_their_thresholds_were_set():
    made = detector("msp", AcceptShare(0.9))
    grown_head = Head(torch.cat([HEAD.weight, torch.ones(1, 3) / 2]), torch.zeros(4), cosine=False)
    larger = grown(made, fourth(60, 1), fourth(90, 2), grown_head)
    views, _ = cloud(300, 3)
    now, then = larger.verdicts(views), made.verdicts(views)
    assert torch.equal(now.p_value, then.p_value)  # a row more would take from every softmax
    assert torch.equal(now.novel, then.novel)
    assert float(now.score.mean()) == pytest.approx(0, abs=0.3)  # what is usual for each class, in its spread
    new = larger.verdicts(fourth(50, 4))
    assert bool((new.predicted == 3).all())
    assert float(new.score.mean()) == pytest.approx(0, abs=0.3)


@pytest.mark.parametrize("name", ["max-logit", "shels"])
def test_a_score_of_the_named_row_alone_stays_on_its_own_scale(name):
    made = detector(name, AcceptShare(0.9))
    grown_head = Head(torch.cat([HEAD.weight, torch.ones(1, 3) / 2]), torch.zeros(4), cosine=False)
    larger = grown(made, fourth(60, 1), fourth(90, 2), grown_head)
    views, _ = cloud(300, 3)
    assert torch.equal(larger.verdicts(views).score, made.verdicts(views).score)


def test_a_detector_that_remembers_samples_is_calibrated_on_samples_it_does_not_know():
    views, labels = cloud(120, 0)
    new = fourth(40, 1)
    kept = Views(*(torch.cat(pair) for pair in zip(views, new, strict=True)))
    marks = torch.cat([labels, torch.full((40,), 3)])
    made = begun_anew("knn", MeanMinusSd(1.0), Labelled(kept, marks), fourth(200, 2))
    rows = made.calibration.scores
    spread = torch.stack([row[row.isfinite()].std() for row in rows])
    assert bool((spread > 1e-3).all())  # each sample is not its own neighbour
    accepted = ~made.verdicts(cloud(900, 5)[0]).novel
    assert 0.7 < float(accepted.float().mean()) < 0.98


def test_a_sample_far_out_does_not_move_the_thresholds_of_classes_that_borrow():
    training, (views, labels) = cloud(300, 0), cloud(54, 1)  # 18 held-out samples a class, one too few
    far = views.high.clone()
    far[0] += torch.eye(3)[0] * 300  # of class 0, and still named so
    plain = detector("mahalanobis", AcceptShare(0.95), training, Labelled(views, labels))
    odd = detector("mahalanobis", AcceptShare(0.95), training, Labelled(Views(far[:, :0], far), labels))
    accepted = ~odd.verdicts(cloud(3000, 3)[0]).novel
    assert float(accepted.float().mean()) == pytest.approx(0.95, abs=0.05)
    new = fourth(12, 2)
    for made in (plain, odd):
        larger = grown(made, fourth(60, 1), new)
        share = (~larger.verdicts(fourth(2000, 4)).novel).float().mean()
        assert float(share) > 0.8
