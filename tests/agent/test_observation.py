from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from shels.agent.alarm import most_by_chance
from shels.agent.observation import ProposalSettings, false_alarms, observed, propose
from shels.agent.separation import Separation, SeparationSettings, separate


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


# Classes that lie among the known ones: what then counts is how many there are ------------------------------


def near(rows, settings, *, known_means=None, seed=0):
    """Find no group apart from known classes, as where a new class lies among them."""
    if known_means is not None:
        return Separation(torch.full((len(rows),), -1), ())
    return separate(rows, settings, seed=seed)


def novel_of(learner, inputs):
    return inputs[learner.judge(inputs).novel]


def by_size(learner, inputs, size, **changes):
    return propose(learner, inputs, ProposalSettings(**changes), separating=near, size=size)


def test_a_group_too_large_for_false_alarms_is_a_class_wherever_it_lies(learner, data):
    six = of(data.test, 6)
    new = novel_of(learner, six)
    found = by_size(learner, new, len(six))
    most = most_by_chance(len(six), false_alarms(learner), int(learner.report["held_out_samples"]))
    assert found.groups.tolist() == [0] * len(new)
    assert found.purity == (1 - most / len(new),)
    assert found.purity[0] > 0.6


def test_of_a_larger_batch_as_many_may_be_false_alarms(learner, data):
    new = novel_of(learner, of(data.test, 6))
    purest = SeparationSettings(least_purity=0.8)
    for found in (by_size(learner, new, 300), by_size(learner, new, len(new), separation=purest)):
        assert (found.purity, set(found.groups.tolist())) == ((), {-1})


def test_where_nobody_says_how_large_the_batch_was_size_counts_for_nothing(learner, data):
    found = by_size(learner, novel_of(learner, of(data.test, 6)), None)
    assert (found.purity, set(found.groups.tolist())) == ((), {-1})


def test_a_group_apart_is_found_as_it_was_whatever_its_size(learner, data):
    inputs = torch.cat([novel_of(learner, of(data.test, 6)), of(data.test, 1)[:12]])
    plain, sized = (propose(learner, inputs, ProposalSettings(), size=size) for size in (None, len(inputs)))
    assert torch.equal(plain.groups, sized.groups)
    assert plain.purity == sized.purity
    assert -1 in sized.groups.tolist()


def test_known_classes_that_moved_alike_are_no_class_however_many_they_are(learner, digits):
    new, six = novel_of(learner, digits[1].inputs // 2), novel_of(learner, digits[2].only([6]).inputs)
    few = SeparationSettings(least_purity=0.0)
    assert len(new) > 15
    assert by_size(learner, six[: len(new)], len(new), separation=few, drift=False).purity != ()
    assert by_size(learner, new, len(new), separation=few, drift=False).purity == ()


def test_images_of_which_many_look_unlike_all_known_ones_need_a_group_apart(learner, data):
    new = novel_of(learner, of(data.test, 6))
    new[:20] //= 4
    assert propose(learner, new, ProposalSettings(), separating=near, size=len(new)).drift is None
    assert by_size(learner, new, len(new)).purity == ()
    assert by_size(learner, new, len(new), drift=False).purity != ()


def test_for_people_a_batch_says_how_large_it_is(learner, data, monkeypatch):
    asked = []

    def watched(*args, **options):
        asked.append(options["size"])
        return propose(*args, **options)

    monkeypatch.setattr("shels.agent.observation.propose", watched)
    six = of(data.test, 6)
    assert observed(learner, six)["alarm"]
    assert asked == [len(six)]
