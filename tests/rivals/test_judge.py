"""A judge: any score, the head's class, thresholds that held-out samples set."""

from __future__ import annotations

import math

import pytest
import torch

from shels.config import AcceptShare, MeanMinusSd
from shels.errors import TrainingError
from shels.model.networks import Views
from shels.rivals.head import Head
from shels.rivals.judge import Judge
from shels.rivals.registry import detector


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
