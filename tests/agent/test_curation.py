from __future__ import annotations

import warnings
from contextlib import suppress

import pytest
import torch

from shels.agent.curation import Curator
from shels.agent.home import Home
from shels.data.sources import load_named
from shels.errors import DataError, ModelFileError, SettingsError


@pytest.fixture(scope="module")
def data():
    return load_named("digits")


@pytest.fixture
def home(learner, tmp_path):
    home = Home(tmp_path / "home")
    home.begin(learner)
    return home


@pytest.fixture
def curator(learner, home):
    return Curator(learner, home)


def of(samples, *names):
    return samples.only(names).inputs


def names_given(learner, inputs):
    return [learner.classes[position] for position in learner.judge(inputs).predicted.tolist()]


def reopened(curator):
    return Curator(curator.home.load("cpu"), Home(curator.home.directory))


def last_event(home):
    return {key: value for key, value in home.events()[-1].items() if key != "time"}


class CutOff(BaseException):
    """What ends a program in a test."""


def without_log(curator, change):
    """Make a change that ends after its version is in place and before it is in the log."""

    def cut_off(event):
        raise CutOff

    curator.home.record = cut_off
    with pytest.raises(CutOff):
        change(curator)
    return reopened(curator)


# Taking in ------------------------------------------------------------------------------------------------


def test_a_class_taken_in_is_a_new_version_and_its_images_are_kept(curator, home, data):
    curator.take_in("novel-1", "novel-1", of(data.train, 6))
    assert home.version == curator.version == 2
    assert home.load("cpu").classes == curator.learner.classes == (0, 1, 2, 3, "novel-1")
    assert torch.equal(curator.images_of("novel-1"), of(data.train, 6))
    assert torch.equal(reopened(curator).images_of("novel-1"), of(data.train, 6))


def test_images_of_a_class_with_a_name_of_its_own_are_not_kept(curator, data):
    curator.take_in("novel-1", "six", of(data.train, 6))
    assert curator.learner.classes[-1] == "six"
    assert curator.images_of("six") is None
    assert curator.home.buffered() == {}
    assert curator.next_provisional() == 2


def test_a_class_said_to_be_known_joins_it(curator, data):
    curator.take_in("novel-1", 2, of(data.train, 6))
    assert curator.learner.classes == (0, 1, 2, 3)
    assert names_given(curator.learner, of(data.test, 6)).count(2) > 45
    assert curator.version == 2


def test_without_a_home_the_same_happens_in_memory(learner, data):
    curator = Curator(learner)
    curator.take_in("novel-1", "novel-1", of(data.train, 6))
    curator.rename("novel-1", "six")
    assert curator.learner.classes[-1] == "six"
    assert curator.images_of("novel-1") is None
    assert curator.finished_batches() == set()
    with pytest.raises(SettingsError, match="no home with earlier versions"):
        curator.rollback(1)


# What a person does ---------------------------------------------------------------------------------------


def test_a_rename_is_a_version_in_the_log_and_lets_the_images_go(curator, home, data):
    curator.take_in("novel-1", "novel-1", of(data.train, 6))
    curator.rename("novel-1", "six", by="Ada")
    assert last_event(home) == {
        "kind": "renamed", "batch": "", "from": "novel-1", "to": "six", "by": "Ada", "version": 3
    }  # fmt: skip
    assert home.load("cpu").classes == (0, 1, 2, 3, "six")
    assert home.load("cpu", version=2).classes == (0, 1, 2, 3, "novel-1")
    assert curator.images_of("novel-1") is None
    assert home.buffered() == {}


def test_a_merge_is_a_version_in_the_log_and_lets_the_images_go(curator, home, data):
    curator.take_in("novel-1", "novel-1", of(data.train, 6))
    curator.merge("novel-1", 3, by="Ada")
    assert last_event(home) == {
        "kind": "merged", "batch": "", "from": "novel-1", "to": 3, "by": "Ada", "version": 3
    }  # fmt: skip
    assert names_given(home.load("cpu"), of(data.test, 6)).count(3) > 45
    assert home.buffered() == {}


def test_unlearning_is_a_version_in_the_log_and_lets_the_images_go(curator, home, learner, data):
    curator.take_in("novel-1", "novel-1", of(data.train, 6))
    curator.unlearn("novel-1")
    expected = {"kind": "unlearned", "batch": "", "name": "novel-1", "by": "person", "version": 3}
    assert last_event(home) == expected
    inputs = data.test.inputs
    assert torch.equal(home.load("cpu").judge(inputs).score, learner.judge(inputs).score)
    assert home.buffered() == {}


def test_a_split_gives_two_classes_with_images_of_their_own(curator, home, data):
    both = data.train.only((6, 7))
    curator.take_in("novel-1", "novel-1", both.inputs)
    names = curator.split("novel-1", by="Ada")
    assert names == ("novel-2", "novel-3")
    assert curator.learner.classes == home.load("cpu").classes == (0, 1, 2, 3, "novel-2", "novel-3")
    assert last_event(home) == {
        "kind": "split", "batch": "", "from": "novel-1", "to": list(names), "by": "Ada", "version": 3
    }  # fmt: skip
    assert sorted(home.buffered()) == ["taken-novel-2", "taken-novel-3"]
    assert sum(len(curator.images_of(name)) for name in names) == len(both)
    found = [max(set(given), key=given.count) for given in _given_to(curator.learner, data, 6, 7)]
    assert sorted(found) == ["novel-2", "novel-3"]
    assert curator.next_provisional() == 4


def _given_to(learner, data, *names):
    return [names_given(learner, of(data.test, name)) for name in names]


def test_a_class_without_kept_images_is_not_split(curator, home, data):
    curator.take_in("novel-1", "six", of(data.train, 6))
    with pytest.raises(DataError, match="there are no images of all of 'six' to split it by"):
        curator.split("six")
    assert home.versions() == [1, 2]


def test_a_class_that_does_not_divide_is_left_whole(curator, home, data):
    alike = of(data.train, 6)[:1].repeat(12, 1, 1, 1)
    alike[:, 0, 0, 0] = torch.arange(12, dtype=torch.uint8)  # all but the same
    alike[0] = of(data.train, 7)[0]
    curator.take_in("novel-1", "novel-1", alike)
    with pytest.raises(DataError, match="'novel-1' does not divide in two: one part would have 1 images"):
        curator.split("novel-1")
    assert curator.learner.classes[-1] == "novel-1"
    assert home.versions() == [1, 2]


def test_a_split_of_a_merged_class_loses_no_part(curator, data):
    curator.take_in("novel-1", "novel-1", of(data.train, 6))
    curator.take_in("novel-2", "novel-2", of(data.train, 7))
    curator.merge("novel-2", "novel-1")
    curator.split("novel-1")
    given = names_given(curator.learner, of(data.test, 7))
    accepted = ~curator.learner.judge(of(data.test, 7)).novel
    assert accepted.float().mean() > 0.8
    assert sum(isinstance(name, str) for name in given) > 45


@pytest.mark.parametrize("join", ["merged", "supplied"])
def test_a_split_loses_no_part_of_which_no_images_are_kept(curator, data, join):
    curator.take_in("novel-1", "novel-1", of(data.train, 6))
    if join == "merged":
        curator.take_in("novel-2", "seven", of(data.train, 7))
        curator.merge("seven", "novel-1")
    else:
        curator.take_in("novel-2", "novel-1", of(data.train, 7))
    with suppress(DataError):  # to refuse is right too
        curator.split("novel-1")
    assert (~curator.learner.judge(of(data.test, 7)).novel).float().mean() > 0.8


def test_a_rollback_returns_to_an_earlier_version_and_later_ones_stay(curator, home, learner, data):
    curator.take_in("novel-1", "novel-1", of(data.train, 6))
    curator.rename("novel-1", "six")
    curator.rollback(1, by="Ada")
    expected = {"kind": "rolled-back", "batch": "", "to": 1, "by": "Ada", "version": 1}
    assert last_event(home) == expected
    inputs = data.test.inputs
    assert torch.equal(curator.learner.judge(inputs).score, learner.judge(inputs).score)
    assert home.versions() == [1, 2, 3]
    curator.rollback(3)
    assert curator.learner.classes[-1] == "six"


def test_after_a_rollback_a_change_is_a_version_above_all(curator, home, data):
    curator.take_in("novel-1", "novel-1", of(data.train, 6))
    curator.rollback(1)
    curator.rename(0, "zero")
    assert home.version == 3
    assert home.load("cpu", version=2).classes[-1] == "novel-1"
    assert home.load("cpu").classes == ("zero", 1, 2, 3)


@pytest.mark.parametrize(
    "change",
    [
        lambda curator: curator.rename(0, 0),
        lambda curator: curator.merge(0, 0),
        lambda curator: curator.rename(0, 1),
        lambda curator: curator.rename("cow", "dog"),
        lambda curator: curator.merge("cow", 1),
        lambda curator: curator.unlearn("cow"),
    ],
    ids=["to itself", "into itself", "taken name", "rename nothing", "merge nothing", "unlearn nothing"],
)
def test_what_cannot_be_done_leaves_versions_and_log_alone(curator, home, change):
    with pytest.raises(SettingsError):
        change(curator)
    assert home.versions() == [1]
    assert home.events() == []
    assert curator.learner.classes == (0, 1, 2, 3)


def test_both_names_the_same_is_said_so(curator):
    with pytest.raises(SettingsError, match="both names are 0; give two different ones"):
        curator.rename(0, 0)


# Kept images ----------------------------------------------------------------------------------------------


def test_images_of_one_batch_are_released_alone(curator, data):
    curator.keep("a", of(data.train, 6)[:7])
    curator.keep("b", of(data.train, 7)[:8])
    assert len(curator.kept()) == 15
    curator.release("c")
    curator.release("a")
    assert torch.equal(curator.kept(), of(data.train, 7)[:8])
    assert list(curator.home.buffered()) == ["batch-b"]
    curator.release()
    assert curator.home.buffered() == {}


def test_release_leaves_images_of_classes_alone(curator, data):
    curator.take_in("novel-1", "novel-1", of(data.train, 6))
    curator.keep("a", of(data.train, 7)[:7])
    curator.release()
    assert list(curator.home.buffered()) == ["taken-novel-1"]
    assert curator.images_of("novel-1") is not None


def test_a_batch_kept_again_replaces_what_was_kept_of_it(curator, data):
    curator.keep("a", of(data.train, 6)[:7])
    curator.keep("a", of(data.train, 6)[:4])
    assert len(curator.kept()) == 4


def test_kept_images_survive_in_the_order_in_which_they_came(curator, data):
    curator.keep("9", of(data.train, 6)[:3])
    curator.keep("10", of(data.train, 7)[:3])
    assert torch.equal(reopened(curator).kept(), curator.kept())


def test_kept_images_of_another_form_wait_aside(curator, data):
    curator.keep("a", of(data.train, 6)[:3])
    curator.keep("b", of(data.train, 7)[:2].float() / 255)
    assert torch.equal(curator.kept(), of(data.train, 7)[:2].float() / 255)


def test_at_most_5000_kept_images_are_looked_at_the_latest(learner):
    curator = Curator(learner)
    numbered = torch.arange(5003).remainder(256).to(torch.uint8).view(-1, 1, 1, 1)
    curator.keep("a", numbered)
    assert torch.equal(curator.kept(), numbered[3:])


# Numbers of provisional names -----------------------------------------------------------------------------


def test_the_number_of_a_forgotten_or_renamed_class_is_not_used_again(curator, data):
    curator.take_in("novel-1", "novel-1", of(data.train, 6))
    curator.take_in("novel-2", "novel-2", of(data.train, 7))
    curator.unlearn("novel-2")
    curator.rename("novel-1", "six")
    assert curator.next_provisional() == 3
    assert reopened(curator).next_provisional() == 3


def test_a_name_that_only_begins_like_a_provisional_one_does_not_count(learner):
    named = learner.rename(0, "novel-7b").rename(1, "a novel-9").rename(2, "novel-4")
    assert Curator(named).next_provisional() == 5


def test_numbers_of_a_split_that_was_rolled_back_are_not_used_again_after_a_restart(curator, data):
    curator.take_in("novel-1", "novel-1", of(data.train, 6, 7))
    curator.split("novel-1")
    curator.rollback(1)
    assert curator.next_provisional() == 4
    assert reopened(curator).next_provisional() == 4


def test_a_restart_goes_on_from_the_number_of_a_class_that_got_a_name_at_once(curator, data):
    curator.take_in("novel-1", "six", of(data.train, 6))
    assert reopened(curator).next_provisional() == curator.next_provisional() == 2


# Recovery -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda c: c.rename(0, "zero"), {"kind": "renamed", "from": 0, "to": "zero"}),
        (lambda c: c.merge(3, 1), {"kind": "merged", "from": 3, "to": 1}),
        (lambda c: c.unlearn("novel-1"), {"kind": "unlearned", "name": "novel-1"}),
    ],
    ids=["renamed", "merged", "unlearned"],
)
def test_a_change_that_is_not_in_the_log_is_recorded_with_its_kind(curator, data, change, expected):
    curator.take_in("novel-1", "novel-1", of(data.train, 6))
    recovered = without_log(curator, change)
    assert last_event(recovered.home) == {"batch": "", **expected, "by": "recovered", "version": 3}
    reopened(recovered)
    assert len(recovered.home.events()) == 2  # once is enough


def test_a_class_taken_in_just_before_a_crash_is_recorded(curator, home, data):
    without_log(curator, lambda c: c.take_in("novel-1", "novel-1", of(data.train, 6)))
    images = len(of(data.train, 6))
    expected = {"kind": "accommodated", "batch": "", "name": "novel-1", "images": images}
    (found,) = Home(home.directory).events()
    found.pop("time")
    assert found == expected | {"by": "recovered", "version": 2}


def test_a_class_taken_in_is_in_the_log_with_who_said_so(curator, home, data):
    curator.take_in("novel-1", "six", of(data.train, 6), batch="b", facts={"by": "Ada"})
    found = last_event(home)
    assert found.pop("seconds") >= 0
    images = len(of(data.train, 6))
    expected = {"kind": "accommodated", "batch": "b", "name": "six", "provisional": "novel-1"}
    assert found == expected | {"images": images, "by": "Ada", "version": 2}


def test_a_split_that_is_not_in_the_log_is_recorded_as_one(curator, data):
    curator.take_in("novel-1", "novel-1", of(data.train, 6, 7))
    recovered = without_log(curator, lambda c: c.split("novel-1"))
    found = last_event(recovered.home)
    assert (found["kind"], found.get("from")) == ("split", "novel-1")


def test_a_home_in_order_gets_no_event_by_being_opened(curator, home):
    curator.rename(0, "zero")
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            reopened(curator)
    assert [event["kind"] for event in home.events()] == ["renamed"]


def test_finished_batches_are_those_that_the_log_says_are_done(curator):
    curator.record("observed", "a", {"done": "a:1"})
    curator.record("observed", "b", {})
    curator.record("resumed", "c", {"done": "c:3"})
    assert curator.finished_batches() == reopened(curator).finished_batches() == {"a:1", "c:3"}


def test_somebody_elses_change_is_never_overwritten(curator, home, data):
    reopened(curator).rename(0, "zero")
    with pytest.raises(ModelFileError, match="no longer at 1: somebody changed it meanwhile"):
        curator.take_in("novel-1", "novel-1", of(data.train, 6))
    assert home.load("cpu").classes[0] == "zero"


def test_batches_beyond_the_latest_5000_images_are_let_go(learner):
    curator = Curator(learner)
    for place in range(4):
        curator.keep(str(place), torch.zeros(3000, 1, 1, 1, dtype=torch.uint8))
    assert len(curator.kept()) == 5000
    assert list(curator._kept) == ["batch-2", "batch-3"]
