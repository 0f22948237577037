from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from shels.agent.observation import ProposalSettings, propose
from shels.agent.separation import SeparationSettings


def of(samples, *names):
    return samples.only(names).inputs


def test_no_samples_give_no_class(learner, data):
    found = propose(learner, data.test.inputs[:0], ProposalSettings())
    assert found.groups.shape == (0,)
    assert (len(found.purity), found.purity, found.drift) == (0, (), None)


def test_one_new_class_is_one_group(learner, data):
    found = propose(learner, of(data.test, 6), ProposalSettings())
    assert len(found.purity) == 1
    assert (found.groups == 0).float().mean() > 0.9
    assert 0.9 < found.purity[0] <= 1


def test_two_new_classes_are_two_groups(learner, data):
    both = data.test.only((6, 7))
    found = propose(learner, both.inputs, ProposalSettings())
    assert len(found.purity) == 2
    for group in (0, 1):
        counts = torch.bincount(both.labels[found.groups == group], minlength=2)
        assert counts.max() / counts.sum() > 0.95
    majority = {int(both.labels[found.groups == group].mode().values) for group in (0, 1)}
    assert majority == {0, 1}


def test_taken_as_one_all_of_it_is_one_group(learner, data):
    inputs = of(data.test, 6, 7)
    found = propose(learner, inputs, ProposalSettings(several=False))
    assert found.groups.tolist() == [0] * len(inputs)
    assert found.purity == (1.0,)
    assert found.drift is None


@pytest.mark.parametrize("several", [True, False])
def test_darkened_known_classes_are_drift_and_no_class(learner, digits, several):
    found = propose(learner, digits[1].inputs // 4, ProposalSettings(several=several))
    assert len(found.purity) == 0
    assert set(found.groups.tolist()) == {-1}
    assert found.drift.drift
    assert found.drift.share_unlike == 1.0
    assert found.drift.reason == "100% of the images look like no known image"


def test_with_drift_off_darkened_known_classes_pass_for_new_ones(learner, digits):
    found = propose(learner, digits[1].inputs // 4, ProposalSettings(several=False, drift=False))
    assert found.drift is None
    assert len(found.purity) == 1


def test_a_learner_without_a_look_finds_no_drift(learner, digits):
    blind = replace(learner, statistics=None)
    found = propose(blind, digits[1].inputs // 4, ProposalSettings(several=False))
    assert (found.drift, len(found.purity)) == (None, 1)


def test_a_group_below_the_least_size_is_dropped(learner, data):
    settings = ProposalSettings(separation=SeparationSettings(least_size=20))
    found = propose(learner, of(data.test, 6)[:19], settings)
    assert len(found.purity) == 0
    assert set(found.groups.tolist()) == {-1}


def test_known_samples_among_new_ones_are_left_out(learner, data):
    new, known = of(data.test, 6), of(data.test, 1)[:12]
    found = propose(learner, torch.cat([new, known]), ProposalSettings())
    assert len(found.purity) == 1
    assert (found.groups[: len(new)] == 0).float().mean() > 0.9
    assert (found.groups[len(new) :] == -1).float().mean() > 0.8


def test_the_same_seed_gives_the_same_groups(learner, data):
    inputs = of(data.test, 6, 7)
    one, two = (propose(learner, inputs, ProposalSettings(), seed=5) for _ in range(2))
    assert torch.equal(one.groups, two.groups)
    assert one.purity == two.purity
