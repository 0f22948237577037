"""The rule changed after training: another share, and samples that are known after all."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from shels.config import AcceptShare, MeanMinusSd
from shels.detection.calibration import Calibration, padded
from shels.errors import SettingsError
from shels.estimator import OpenWorldClassifier
from shels.learner.learner import Learner, learn
from shels.learner.rule import doubt, expected_false_alarms, held_out_false_alarms, promised_share


@pytest.fixture(scope="module")
def trained_at_96(digits, short_settings):
    return learn(digits[0], replace(short_settings, rule=AcceptShare(0.96)), seed=0, device="cpu")


def test_another_share_gives_the_thresholds_that_training_with_it_gives(learner, trained_at_96):
    changed = learner.with_accept_share(0.96)
    torch.testing.assert_close(changed.detector.thresholds, trained_at_96.detector.thresholds)
    assert not torch.equal(changed.detector.thresholds, learner.detector.thresholds)
    assert promised_share(changed) == 0.96
    assert promised_share(learner) == 0.95, "the old one stays as it was"


def test_a_higher_share_accepts_every_sample_that_a_lower_one_does(learner, digits):
    accepted = [~learner.with_accept_share(share).judge(digits[1].inputs).novel for share in (0.5, 0.8, 0.97)]
    counts = [int(each.sum()) for each in accepted]
    assert counts[0] < counts[1] < counts[2]
    assert not bool((accepted[0] & ~accepted[1]).any())
    assert not bool((accepted[1] & ~accepted[2]).any())


def test_held_out_false_alarms_are_what_the_rule_leaves_by_rank(learner):
    for share in (0.5, 0.8, 0.9):
        found = held_out_false_alarms(learner.with_accept_share(share))
        assert found <= 1 - share + 1e-9
        assert found == pytest.approx(1 - share, abs=0.04)  # ranks are whole


def test_it_is_told_what_the_expected_false_alarms_were_measured_at(learner, digits):
    assert expected_false_alarms(learner) == (1 - learner.report["held_out_acceptance"], "training")
    changed = learner.with_accept_share(0.8).rename(0, "zero")
    assert expected_false_alarms(changed)[1] == "rule-set"
    assert expected_false_alarms(changed)[0] == pytest.approx(0.2, abs=0.1)
    assert expected_false_alarms(changed.with_known(digits[1].inputs[:3]))[1] == "not-novel"
    older = {name: each for name, each in changed.report.items() if name != "acceptance_measured_at"}
    assert expected_false_alarms(replace(changed, report=older))[1] is None


def test_samples_that_are_known_after_all_move_the_threshold_by_rank():
    scores = torch.arange(1.0, 100.0)  # of 99, the 5th lowest leaves 95 %
    before = Calibration(torch.tensor([5.0, 5.0]), padded([scores, scores]))
    rule = AcceptShare(0.95)
    after = before.joined(rule, torch.tensor([0.5, 0.25, 0.125]), torch.tensor([1, 1, 1]))
    assert after.thresholds.tolist() == [5.0, 2.0]  # of 102, the 5th lowest: 0.125, 0.25, 0.5, 1, 2
    assert [len(each) for each in after.by_class] == [99, 102]


def test_no_threshold_rises_by_what_is_not_novel_and_the_samples_pass_more_often(learner, digits):
    strict = learner.with_accept_share(0.8)
    novel = digits[1].inputs[strict.judge(digits[1].inputs).novel]
    told = strict.with_known(novel)
    assert bool((told.detector.thresholds <= strict.detector.thresholds).all())
    assert int(told.judge(novel).novel.sum()) < len(novel)
    assert promised_share(told) == 0.8


def test_a_rule_that_promises_no_share_cannot_learn_from_what_is_not_novel(learner, digits):
    papers = replace(learner, settings=replace(learner.settings, rule=MeanMinusSd()))
    with pytest.raises(SettingsError, match="set one first"):
        papers.with_known(digits[1].inputs[:3])


@pytest.mark.filterwarnings("ignore:.*held-out scores cannot mark")
def test_a_share_that_so_few_held_out_samples_cannot_mark_is_doubted(learner):
    assert doubt(learner) == ""
    assert "60 held-out scores can mark 98.4 %" in doubt(learner.with_accept_share(0.999))


def test_a_changed_rule_is_saved_and_loaded(learner, digits, tmp_path):
    changed = learner.with_accept_share(0.7).with_known(digits[2].inputs[:10])
    changed.save(tmp_path / "model")
    loaded = Learner.load(tmp_path / "model", "cpu")
    assert loaded.settings.rule == AcceptShare(0.7)
    expected, found = (each.judge(digits[1].inputs) for each in (changed, loaded))
    assert torch.equal(expected.novel, found.novel)
    torch.testing.assert_close(expected.p_value, found.p_value)


def test_a_detector_beside_a_learner_changes_its_share_too(digits, short_settings):
    settings = replace(short_settings, detector="knn")
    learner = learn(digits[0], settings, seed=0, device="cpu")
    strict = learner.with_accept_share(0.6)
    assert int(strict.judge(digits[1].inputs).novel.sum()) > int(learner.judge(digits[1].inputs).novel.sum())
    novel = digits[1].inputs[strict.judge(digits[1].inputs).novel]
    told = strict.with_known(novel)
    assert bool((told.detector.thresholds <= strict.detector.thresholds).all())


def test_the_estimator_takes_another_share(learner, digits, tmp_path):
    learner.save(tmp_path / "model")
    model = OpenWorldClassifier.load(tmp_path / "model", device="cpu")
    images = digits[1].inputs[:, 0].numpy()
    before = (model.predict(images) == -1).sum()
    assert (model.set_accept_share(0.5).predict(images) == -1).sum() > before
    with pytest.raises(SettingsError, match="share"):
        model.set_accept_share(1.0)
