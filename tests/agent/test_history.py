"""The log as a person reads it, worked out by hand."""

from __future__ import annotations

import pytest

from shels.agent.groups import Group, Groups
from shels.agent.history import changes_of, said_of_images
from shels.agent.inbox import numbers_of, ranges
from shels.errors import DataError


def line(kind, version, **facts):
    return {
        "kind": kind,
        "batch": "",
        "time": "2026-01-01T00:00:00+00:00",
        "version": version,
        "by": "ada",
        **facts,
    }


LEARNED = line("accommodated", 2, name="cow", images=3, members="1-3")
SECOND = line("accommodated", 3, name="dog", images=2, members="4,5")
BACK = line("rolled-back", 1, to=1)


def test_numbers_are_read_as_they_were_written():
    for numbers in ([], [5], [1, 2, 3, 9], list(range(100, 300))):
        assert numbers_of(ranges(numbers)) == numbers


def test_a_range_that_no_log_of_ours_has_is_refused_before_memory_is_full():
    with pytest.raises(DataError, match="too many"):
        numbers_of("1-999999999")


def test_a_change_counts_while_the_version_in_use_comes_from_its_own():
    log = [(10, LEARNED), (20, SECOND)]
    assert [each.counts for each in changes_of(log, version=3)] == [True, True]
    assert [each.before for each in changes_of(log, version=3)] == [1, 2]
    after = changes_of([*log, (30, BACK)], version=1)
    assert [each.counts for each in after] == [False, False, True]


def test_what_was_made_after_a_rollback_does_not_bring_back_what_was_rolled_back():
    third = line("accommodated", 4, name="hen", images=1, members="6")
    log = [(10, LEARNED), (20, SECOND), (30, BACK), (40, third)]
    found = changes_of(log, version=4)
    assert [each.counts for each in found] == [False, False, True, True]
    assert found[-1].before == 1
    assert set(said_of_images(found)) == {6}


def test_rolling_forward_again_makes_the_later_change_count_again():
    forward = line("rolled-back", 3, to=3)
    found = changes_of([(10, LEARNED), (20, SECOND), (30, BACK), (40, forward)], version=3)
    assert [each.counts for each in found] == [True, True, True, True]
    assert {number: said.name for number, said in said_of_images(found).items()} == {
        1: "cow", 2: "cow", 3: "cow", 4: "dog", 5: "dog"
    }  # fmt: skip


def test_what_was_said_of_images_counts_until_it_is_taken_back():
    rubbish = line("dismissed", 1, images=2, members="7-8")
    undone = line("undone", 1, undoes=10)
    assert set(said_of_images(changes_of([(10, rubbish)], version=1))) == {7, 8}
    found = changes_of([(10, rubbish), (20, undone)], version=1)
    assert [each.counts for each in found] == [False, True]
    assert not said_of_images(found)


def test_an_opposite_takes_back_what_later_changes_were_built_on():
    opposite = line("unlearned", 4, name="cow", undoes=10)
    found = changes_of([(10, LEARNED), (20, SECOND), (30, opposite)], version=4)
    assert [each.counts for each in found] == [False, True, True]
    assert set(said_of_images(found)) == {4, 5}


def test_a_new_proposal_keeps_ids_and_what_a_person_made():
    before = Groups((Group("g1", (1, 2, 3)), Group("g2", (4, 5)), Group("g3", (6,), fixed=True)), last=3)
    after = before.proposed([[4, 5, 9], [10, 11], [1, 2]], [1.0, 0.9, 0.8])
    assert {each.id: each.members for each in after.found} == {
        "g3": (6,), "g2": (4, 5, 9), "g4": (10, 11), "g1": (1, 2)
    }  # fmt: skip
    assert after.last == 4


def test_a_group_is_divided_and_put_together_again():
    before = Groups((Group("g1", (1, 2, 3)), Group("g2", (4,))), last=2)
    apart = before.divided("g1", [3])
    assert {each.id: each.members for each in apart.found} == {"g1": (1, 2), "g2": (4,), "g3": (3,)}
    again = apart.merged("g3", "g1")
    assert {each.id: each.members for each in again.found} == {"g1": (1, 2, 3), "g2": (4,)}
    with pytest.raises(DataError, match="not all"):
        before.divided("g1", [1, 2, 3])
