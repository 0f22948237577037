from __future__ import annotations

import warnings
from contextlib import suppress

import pytest
import torch

from shels.agent.home import Home
from shels.agent.versioned import VersionedLearner
from shels.errors import DataError, ModelFileError, SettingsError


@pytest.fixture
def model(learner, home):
    return VersionedLearner(learner, home)


def of(samples, *names):
    return samples.only(names).inputs


def names_given(learner, inputs):
    return [learner.classes[position] for position in learner.judge(inputs).predicted.tolist()]


def reopened(model):
    return VersionedLearner(model.home.load("cpu"), Home(model.home.directory))


def last_event(home):
    return {key: value for key, value in home.events()[-1].items() if key != "time"}


class CutOff(BaseException):
    """What ends a program in a test."""


def without_log(model, change, *, noted=True):
    """Make a change that ends after its version is in use and before it is in the log.

    noted: whether a note of it is there, as an earlier release wrote none.
    """

    def cut_off(event):
        raise CutOff

    model.home.record = cut_off
    with pytest.raises(CutOff):
        change(model)
    if not noted:
        (model.home.directory / "pending.json").unlink()
    return reopened(model)


# Taking in ------------------------------------------------------------------------------------------------


def test_a_class_taken_in_is_a_new_version_and_its_images_are_kept(model, home, data):
    model.accommodate("novel-1", "novel-1", of(data.train, 6))
    assert home.version == model.version == 2
    assert home.load("cpu").classes == model.learner.classes == (0, 1, 2, 3, "novel-1")
    assert torch.equal(model.buffers.of_class("novel-1"), of(data.train, 6))
    assert torch.equal(reopened(model).buffers.of_class("novel-1"), of(data.train, 6))


def test_kept_images_are_examples_of_their_class(model, data):
    assert model.buffers.examples(model.learner) is None
    model.accommodate("novel-1", "novel-1", of(data.train, 6))
    examples = model.buffers.examples(model.learner)
    assert torch.equal(examples.inputs, of(data.train, 6))
    nearest = model.learner.explain(of(data.test, 6)[:3], examples)
    assert {example.label for each in nearest for example in each.examples} == {"novel-1"}


def test_images_of_a_class_with_a_name_of_its_own_are_not_kept(model, data):
    model.accommodate("novel-1", "six", of(data.train, 6))
    assert model.learner.classes[-1] == "six"
    assert model.buffers.of_class("six") is None
    assert model.home.buffered() == {}
    assert model.next_provisional() == 2


def test_a_class_said_to_be_known_joins_it(model, data):
    model.accommodate("novel-1", 2, of(data.train, 6))
    assert model.learner.classes == (0, 1, 2, 3)
    assert names_given(model.learner, of(data.test, 6)).count(2) > 45
    assert model.version == 2


def test_without_a_home_the_same_happens_in_memory(learner, data):
    model = VersionedLearner(learner)
    model.accommodate("novel-1", "novel-1", of(data.train, 6))
    model.rename("novel-1", "six")
    assert model.learner.classes[-1] == "six"
    assert model.buffers.of_class("novel-1") is None
    assert model.finished_batches() == set()
    with pytest.raises(SettingsError, match="no home with earlier versions"):
        model.rollback(1)


# What a person does ---------------------------------------------------------------------------------------


def test_a_rename_is_a_version_in_the_log_and_lets_the_images_go(model, home, data):
    model.accommodate("novel-1", "novel-1", of(data.train, 6))
    model.rename("novel-1", "six", by="Ada")
    assert last_event(home) == {
        "kind": "renamed", "batch": "", "from": "novel-1", "to": "six", "by": "Ada", "version": 3
    }  # fmt: skip
    assert home.load("cpu").classes == (0, 1, 2, 3, "six")
    assert home.load("cpu", version=2).classes == (0, 1, 2, 3, "novel-1")
    assert model.buffers.of_class("novel-1") is None
    assert home.buffered() == {}


def test_a_merge_is_a_version_in_the_log_and_lets_the_images_go(model, home, data):
    model.accommodate("novel-1", "novel-1", of(data.train, 6))
    model.merge("novel-1", 3, by="Ada")
    assert last_event(home) == {
        "kind": "merged", "batch": "", "from": "novel-1", "to": 3, "by": "Ada", "version": 3
    }  # fmt: skip
    assert names_given(home.load("cpu"), of(data.test, 6)).count(3) > 45
    assert home.buffered() == {}


def test_unlearning_is_a_version_in_the_log_and_lets_the_images_go(model, home, learner, data):
    model.accommodate("novel-1", "novel-1", of(data.train, 6))
    model.unlearn("novel-1")
    expected = {"kind": "unlearned", "batch": "", "name": "novel-1", "by": "person", "version": 3}
    assert last_event(home) == expected
    inputs = data.test.inputs
    assert torch.equal(home.load("cpu").judge(inputs).score, learner.judge(inputs).score)
    assert home.buffered() == {}


def test_a_split_gives_two_classes_with_images_of_their_own(model, home, data):
    both = data.train.only((6, 7))
    model.accommodate("novel-1", "novel-1", both.inputs)
    names = model.split("novel-1", by="Ada")
    assert names == ("novel-2", "novel-3")
    assert model.learner.classes == home.load("cpu").classes == (0, 1, 2, 3, "novel-2", "novel-3")
    assert last_event(home) == {
        "kind": "split", "batch": "", "from": "novel-1", "to": list(names), "by": "Ada", "version": 3
    }  # fmt: skip
    assert sorted(home.buffered()) == ["taken-novel-2", "taken-novel-3"]
    assert sum(len(model.buffers.of_class(name)) for name in names) == len(both)
    found = [max(set(given), key=given.count) for given in _given_to(model.learner, data, 6, 7)]
    assert sorted(found) == ["novel-2", "novel-3"]
    assert model.next_provisional() == 4


def _given_to(learner, data, *names):
    return [names_given(learner, of(data.test, name)) for name in names]


def test_a_class_without_kept_images_is_not_split(model, home, data):
    model.accommodate("novel-1", "six", of(data.train, 6))
    with pytest.raises(DataError, match="there are no images of all of 'six' to split it by"):
        model.split("six")
    assert home.versions() == [1, 2]


def test_a_class_that_does_not_divide_is_left_whole(model, home, data):
    alike = of(data.train, 6)[:1].repeat(12, 1, 1, 1)
    alike[:, 0, 0, 0] = torch.arange(12, dtype=torch.uint8)  # all but the same
    alike[0] = of(data.train, 7)[0]
    model.accommodate("novel-1", "novel-1", alike)
    with pytest.raises(DataError, match="'novel-1' does not divide in two: one part would have 1 images"):
        model.split("novel-1")
    assert model.learner.classes[-1] == "novel-1"
    assert home.versions() == [1, 2]


def test_a_split_of_a_merged_class_loses_no_part(model, data):
    model.accommodate("novel-1", "novel-1", of(data.train, 6))
    model.accommodate("novel-2", "novel-2", of(data.train, 7))
    model.merge("novel-2", "novel-1")
    model.split("novel-1")
    given = names_given(model.learner, of(data.test, 7))
    accepted = ~model.learner.judge(of(data.test, 7)).novel
    assert accepted.float().mean() > 0.8
    assert sum(isinstance(name, str) for name in given) > 45


@pytest.mark.parametrize("join", ["merged", "supplied"])
def test_a_split_loses_no_part_of_which_no_images_are_kept(model, data, join):
    model.accommodate("novel-1", "novel-1", of(data.train, 6))
    if join == "merged":
        model.accommodate("novel-2", "seven", of(data.train, 7))
        model.merge("seven", "novel-1")
    else:
        model.accommodate("novel-2", "novel-1", of(data.train, 7))
    with suppress(DataError):  # to refuse is right too
        model.split("novel-1")
    assert (~model.learner.judge(of(data.test, 7)).novel).float().mean() > 0.8


def test_a_rollback_returns_to_an_earlier_version_and_later_ones_stay(model, home, learner, data):
    model.accommodate("novel-1", "novel-1", of(data.train, 6))
    model.rename("novel-1", "six")
    model.rollback(1, by="Ada")
    expected = {"kind": "rolled-back", "batch": "", "to": 1, "by": "Ada", "version": 1}
    assert last_event(home) == expected
    inputs = data.test.inputs
    assert torch.equal(model.learner.judge(inputs).score, learner.judge(inputs).score)
    assert home.versions() == [1, 2, 3]
    model.rollback(3)
    assert model.learner.classes[-1] == "six"


def test_an_earlier_version_comes_back_on_the_network_in_use_so_that_images_need_not_pass_it_again(
    model, data
):
    inputs = data.test.inputs
    expected, network = model.learner.judge(inputs), model.learner.network
    model.accommodate("novel-1", "novel-1", of(data.train, 6))
    model.accommodate("novel-2", "novel-2", of(data.train, 7))
    model.rollback(2)  # the one before
    assert model.learner.classes[-1] == "novel-1"
    model.rollback(1)  # from disk
    assert model.learner.network is network
    found = model.learner.judge(inputs)
    assert torch.equal(found.score, expected.score)
    assert torch.equal(found.threshold, expected.threshold)
    model.rollback(3)
    fresh = model.home.load("cpu").judge(inputs)
    assert torch.equal(model.learner.judge(inputs).score, fresh.score)


def test_after_a_rollback_a_change_is_a_version_above_all(model, home, data):
    model.accommodate("novel-1", "novel-1", of(data.train, 6))
    model.rollback(1)
    model.rename(0, "zero")
    assert home.version == 3
    assert home.load("cpu", version=2).classes[-1] == "novel-1"
    assert home.load("cpu").classes == ("zero", 1, 2, 3)


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.rename(0, 0),
        lambda model: model.merge(0, 0),
        lambda model: model.rename(0, 1),
        lambda model: model.rename("cow", "dog"),
        lambda model: model.merge("cow", 1),
        lambda model: model.unlearn("cow"),
    ],
    ids=["to itself", "into itself", "taken name", "rename nothing", "merge nothing", "unlearn nothing"],
)
def test_what_cannot_be_done_leaves_versions_and_log_alone(model, home, change):
    with pytest.raises(SettingsError):
        change(model)
    assert home.versions() == [1]
    assert home.events() == []
    assert model.learner.classes == (0, 1, 2, 3)


def test_both_names_the_same_is_said_so(model):
    with pytest.raises(SettingsError, match="both names are 0; give two different ones"):
        model.rename(0, 0)


# Kept images ----------------------------------------------------------------------------------------------


def test_images_of_one_batch_are_released_alone(model, data):
    model.buffers.wait("a", of(data.train, 6)[:7])
    model.buffers.wait("b", of(data.train, 7)[:8])
    assert len(model.buffers.waiting()) == 15
    model.buffers.release("c")
    model.buffers.release("a")
    assert torch.equal(model.buffers.waiting(), of(data.train, 7)[:8])
    assert list(model.home.buffered()) == ["batch-b"]
    model.buffers.release()
    assert model.home.buffered() == {}


def test_release_leaves_images_of_classes_alone(model, data):
    model.accommodate("novel-1", "novel-1", of(data.train, 6))
    model.buffers.wait("a", of(data.train, 7)[:7])
    model.buffers.release()
    assert list(model.home.buffered()) == ["taken-novel-1"]
    assert model.buffers.of_class("novel-1") is not None


def test_a_batch_kept_again_replaces_what_was_kept_of_it(model, data):
    model.buffers.wait("a", of(data.train, 6)[:7])
    model.buffers.wait("a", of(data.train, 6)[:4])
    assert len(model.buffers.waiting()) == 4


def test_kept_images_survive_in_the_order_in_which_they_came(model, data):
    model.buffers.wait("9", of(data.train, 6)[:3])
    model.buffers.wait("10", of(data.train, 7)[:3])
    assert torch.equal(reopened(model).buffers.waiting(), model.buffers.waiting())


def test_kept_images_of_another_form_wait_aside(model, data):
    model.buffers.wait("a", of(data.train, 6)[:3])
    model.buffers.wait("b", of(data.train, 7)[:2].float() / 255)
    assert torch.equal(model.buffers.waiting(), of(data.train, 7)[:2].float() / 255)


def test_at_most_5000_kept_images_are_looked_at_the_latest(learner):
    model = VersionedLearner(learner)
    numbered = torch.arange(5003).remainder(256).to(torch.uint8).view(-1, 1, 1, 1)
    model.buffers.wait("a", numbered)
    assert torch.equal(model.buffers.waiting(), numbered[3:])


# Numbers of provisional names -----------------------------------------------------------------------------


def test_the_number_of_a_forgotten_or_renamed_class_is_not_used_again(model, data):
    model.accommodate("novel-1", "novel-1", of(data.train, 6))
    model.accommodate("novel-2", "novel-2", of(data.train, 7))
    model.unlearn("novel-2")
    model.rename("novel-1", "six")
    assert model.next_provisional() == 3
    assert reopened(model).next_provisional() == 3


def test_a_name_that_only_begins_like_a_provisional_one_does_not_count(learner):
    named = learner.rename(0, "novel-7b").rename(1, "a novel-9").rename(2, "novel-4")
    assert VersionedLearner(named).next_provisional() == 5


def test_numbers_of_a_split_that_was_rolled_back_are_not_used_again_after_a_restart(model, data):
    model.accommodate("novel-1", "novel-1", of(data.train, 6, 7))
    model.split("novel-1")
    model.rollback(1)
    assert model.next_provisional() == 4
    assert reopened(model).next_provisional() == 4


def test_a_restart_goes_on_from_the_number_of_a_class_that_got_a_name_at_once(model, data):
    model.accommodate("novel-1", "six", of(data.train, 6))
    assert reopened(model).next_provisional() == model.next_provisional() == 2


# Recovery -------------------------------------------------------------------------------------------------


CHANGES = {
    "renamed": (lambda c: c.rename(0, "zero"), {"kind": "renamed", "from": 0, "to": "zero"}),
    "merged": (lambda c: c.merge(3, 1), {"kind": "merged", "from": 3, "to": 1}),
    "unlearned": (lambda c: c.unlearn("novel-1"), {"kind": "unlearned", "name": "novel-1"}),
}


@pytest.mark.parametrize("kind", CHANGES)
@pytest.mark.parametrize("by", ["person", "recovered"])
def test_a_change_that_is_not_in_the_log_is_recorded_as_it_would_have_been(model, data, kind, by):
    change, expected = CHANGES[kind]
    model.accommodate("novel-1", "novel-1", of(data.train, 6))
    recovered = without_log(model, change, noted=by == "person")
    assert last_event(recovered.home) == {"batch": "", **expected, "by": by, "version": 3}
    reopened(recovered)
    assert len(recovered.home.events()) == 2  # once is enough
    assert not (recovered.home.directory / "pending.json").exists()


@pytest.mark.parametrize("noted", [True, False])
def test_a_class_learned_just_before_a_crash_is_recorded(model, home, data, noted):
    without_log(model, lambda c: c.accommodate("novel-1", "novel-1", of(data.train, 6)), noted=noted)
    images = len(of(data.train, 6))
    expected = {"kind": "accommodated", "batch": "", "name": "novel-1", "images": images}
    (found,) = Home(home.directory).events()
    found.pop("time")
    assert (found.pop("seconds", 0) > 0) is noted
    assert found.pop("provisional", "novel-1") == "novel-1"
    assert found == expected | {"by": "person" if noted else "recovered", "version": 2}
    assert list(home.buffered()) == (["taken-novel-1"] if noted else [])


def test_a_class_taken_in_is_in_the_log_with_who_said_so(model, home, data):
    model.accommodate("novel-1", "six", of(data.train, 6), batch="b", facts={"by": "Ada"})
    found = last_event(home)
    assert found.pop("seconds") >= 0
    images = len(of(data.train, 6))
    expected = {"kind": "accommodated", "batch": "b", "name": "six", "provisional": "novel-1"}
    assert found == expected | {"images": images, "by": "Ada", "version": 2}


def test_a_split_that_is_not_in_the_log_is_recorded_as_one(model, data):
    model.accommodate("novel-1", "novel-1", of(data.train, 6, 7))
    recovered = without_log(model, lambda c: c.split("novel-1"))
    found = last_event(recovered.home)
    assert (found["kind"], found.get("from")) == ("split", "novel-1")


def test_a_home_in_order_gets_no_event_by_being_opened(model, home):
    model.rename(0, "zero")
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            reopened(model)
    assert [event["kind"] for event in home.events()] == ["renamed"]


def test_finished_batches_are_those_that_the_log_says_are_done(model):
    model.record("resumed", "a", {"classes": [], "done": "a:1"})
    model.record("resumed", "b", {"classes": []})
    model.record("resumed", "c", {"classes": [], "done": "c:3"})
    assert model.finished_batches() == reopened(model).finished_batches() == {"a:1", "c:3"}


def test_somebody_elses_change_is_never_overwritten(model, home, data):
    reopened(model).rename(0, "zero")
    with pytest.raises(ModelFileError, match="no longer at 1: somebody changed it meanwhile"):
        model.accommodate("novel-1", "novel-1", of(data.train, 6))
    assert home.load("cpu").classes[0] == "zero"


def test_batches_beyond_the_latest_5000_images_are_let_go(learner):
    model = VersionedLearner(learner)
    for place in range(4):
        model.buffers.wait(str(place), torch.zeros(3000, 1, 1, 1, dtype=torch.uint8))
    assert len(model.buffers.waiting()) == 5000
    assert list(model.buffers._buffers) == ["batch-2", "batch-3"]
