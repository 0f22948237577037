"""A learner whose classes are named on random, rectified projections: it learns, forgets, saves and loads."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
import torch

from shels.agent.home import Home
from shels.agent.inspection import inspection
from shels.config import Gaussian, Settings, from_dict, to_dict
from shels.config.presets import DEFAULT
from shels.data.sources import load_named
from shels.errors import SettingsError
from shels.learner.learner import Learner, learn

MANY = 300


@pytest.fixture(scope="module")
def data():
    return load_named("digits")


@pytest.fixture(scope="module")
def learner(digits, short_settings):
    brief = replace(short_settings, accommodation=Gaussian(rectified=MANY))
    return learn(digits[0], brief, seed=0)


@pytest.fixture(scope="module")
def grown(learner, data):
    return learner.accommodate(of(data, 6), 6)


def of(data, *names):
    return data.train.only(names).inputs


def same(one, other, inputs):
    """Whether two learners judge alike to the last bit, whatever the order of their classes."""
    first, second = one.judge(inputs), other.judge(inputs)
    names = [[each.classes[at] for at in v.predicted.tolist()] for each, v in ((one, first), (other, second))]
    alike = all(torch.equal(getattr(first, n), getattr(second, n)) for n in ("score", "threshold", "p_value"))
    return alike and names[0] == names[1]


def test_a_new_class_is_named_and_the_old_ones_are_kept(grown, data):
    test = data.test.only(grown.classes)
    right = grown.judge(test.inputs).predicted == test.labels
    assert right.float().mean() > 0.93
    assert right[test.labels == 4].float().mean() > 0.9


def test_every_order_of_three_classes_gives_the_same_learner(learner, data):
    made = []
    for order in permutations((6, 7, 8)):
        now = learner
        for name in order:
            now = now.accommodate(of(data, name), name)
        made.append(now)
    assert all(same(made[0], other, data.test.inputs) for other in made[1:])


def test_unlearning_is_exact_to_the_last_bit(learner, grown, data):
    assert same(grown.unlearn(6), learner, data.test.inputs)
    both = grown.accommodate(of(data, 7), 7)
    assert same(both.unlearn(6), learner.accommodate(of(data, 7), 7), data.test.inputs)
    scores = [each.class_scores(data.test.inputs) for each in (grown.unlearn(6), learner)]
    assert torch.equal(*scores)


def test_it_comes_back_from_disk_as_it_was_and_goes_on_learning(grown, data, tmp_path):
    grown.save(tmp_path / "m")
    read = Learner.load(tmp_path / "m", "cpu")
    assert same(read, grown, data.test.inputs)
    assert same(read.unlearn(6), grown.unlearn(6), data.test.inputs)
    assert same(read.accommodate(of(data, 7), 7), grown.accommodate(of(data, 7), 7), data.test.inputs)


def test_a_merge_and_a_rename_keep_what_is_predicted(grown, data):
    merged = grown.merge(6, into=0).rename(0, "round")
    before, after = grown.judge(data.test.inputs).predicted, merged.judge(data.test.inputs).predicted
    assert torch.equal(torch.where(before == 4, 0, before), after)
    assert merged.classes == ("round", 1, 2, 3)


def test_the_score_of_novelty_is_that_of_the_same_class_without_projections(learner, digits, short_settings):
    plain = learn(digits[0], replace(short_settings, accommodation=Gaussian()), seed=0)
    one, other = plain.judge(digits[1].inputs), learner.judge(digits[1].inputs)
    agree = one.predicted == other.predicted
    assert agree.float().mean() > 0.95
    assert torch.corrcoef(torch.stack([one.score[agree], other.score[agree]]))[0, 1] > 0.99


def test_inspection_says_what_a_class_costs(grown, learner, tmp_path):
    grown.save(tmp_path / "m")
    shown = inspection(Learner.load(tmp_path / "m", "cpu"), Home(tmp_path / "m"))
    assert shown["learner"]["rectified"] == MANY
    costs = [row["bytes"] for row in shown["classes"]]
    assert len(set(costs)) == 1  # whatever the number of images
    assert 4 * 258 * MANY < costs[0] < 4 * 258 * MANY + 2**21


def test_without_projections_nothing_is_written_of_them():
    assert "rectified" not in to_dict(Gaussian())
    assert to_dict(Gaussian(rectified=64))["rectified"] == 64
    plain = to_dict(DEFAULT)
    assert from_dict(plain, Settings).accommodation.rectified == 0


def test_more_projections_than_memory_is_meant_for_are_refused():
    with pytest.raises(SettingsError, match="at most 16384"):
        Gaussian(rectified=20_000)
