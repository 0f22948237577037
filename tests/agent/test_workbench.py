"""A home at which a person works: what comes in counts once, what is said is kept, all can be taken back."""

from __future__ import annotations

import pytest
import torch

from shels.agent import events, workbench
from shels.agent.groups import read_groups
from shels.agent.home import Home
from shels.agent.workbench import Workbench
from shels.errors import DataError, ModelFileError, SettingsError
from shels.runtime import finished


@pytest.fixture
def bench(home):
    with home.lock():
        yield Workbench(home, "cpu")


def feed(bench, inputs, key=None):
    features = bench.learner.views(inputs)
    verdicts = bench.learner.judge_features(features)
    return bench.intake.observe(bench.learner, inputs, features, verdicts, key=key)


def opened_again(home):
    """What another process would find."""
    fresh = Home(home.directory)
    fresh._locked = True  # the lock is held by this test
    return Workbench(fresh, "cpu")


def state(bench):
    said = {number: (each.kind, each.name) for number, each in bench.said.items()}
    groups = {each.id: each.members for each in bench.groups.found}
    return bench.waiting(), said, groups, bench.learner.classes, bench.home.version, bench.inbox.last


def test_the_same_key_is_counted_once_and_other_samples_under_it_are_refused(bench, digits):
    first = feed(bench, digits[2].inputs[:20], "a")
    again = feed(bench, digits[2].inputs[:20], "a")
    assert (first.place, first.novel, again.repeated) == (again.place, again.novel, True)
    assert bench.index.observed_since(0) == (20, first.novel)
    assert len(bench.waiting()) == first.novel > 5
    with pytest.raises(SettingsError, match="other samples"):
        feed(bench, digits[2].inputs[20:40], "a")


def test_novel_images_keep_their_numbers_when_the_home_is_opened_again(bench, home, digits):
    feed(bench, digits[2].inputs[:30], "a")
    feed(bench, digits[1].inputs[:30])
    bench.regroup()
    images = bench.inbox.inputs(bench.waiting())
    again = opened_again(home)
    assert state(again) == state(bench)
    assert torch.equal(again.inbox.inputs(again.waiting()), images)
    assert feed(again, digits[2].inputs[:30], "a").repeated


def test_images_of_which_the_log_does_not_speak_are_let_go_of(bench, home, digits):
    feed(bench, digits[2].inputs[:30])
    log = (home.directory / "events.jsonl").read_bytes()
    before = state(bench)
    feed(bench, digits[2].inputs[30:60])
    (home.directory / "events.jsonl").write_bytes(log)  # as if cut off before it was said
    again = opened_again(home)
    assert state(again) == before


def test_a_lost_or_damaged_index_is_made_anew_from_the_log(bench, home, digits):
    feed(bench, digits[2].inputs[:30], "a")
    bench.index.close()
    for content in (None, b"no database at all" * 500):
        for path in home.directory.glob(".index.sqlite*"):
            path.unlink()
        if content:
            (home.directory / ".index.sqlite").write_bytes(content)
        again = opened_again(home)
        assert feed(again, digits[2].inputs[:30], "a").repeated
        again.index.close()


def test_a_named_group_is_known_and_undone_it_waits_in_its_group_again(bench, home, digits):
    feed(bench, digits[2].inputs)
    group = bench.regroup().found[0]
    before = state(bench)
    outcome = finished(bench.naming(group.id, "six or seven", "ada"))
    assert "six or seven" in bench.learner.classes
    assert outcome.change.by == "ada"
    assert outcome.change.images == len(group.members)
    assert set(bench.waiting()) == set(before[0]) - set(group.members)
    images = bench.inbox.inputs(group.members)
    named = [bench.learner.classes[place] for place in bench.learner.judge(images).predicted.tolist()]
    assert named.count("six or seven") > 0.9 * len(named)
    bench.undo(outcome.change.id, "bob")
    assert state(bench) == before
    assert state(opened_again(home)) == before
    assert [change.by for change in bench.changes] == ["ada", "bob"]


def test_an_undo_is_undone(bench, digits):
    feed(bench, digits[2].inputs)
    outcome = finished(bench.naming("rest", "new", "ada"))
    after = state(bench)[:4]
    undone = bench.undo(outcome.change.id, "ada")
    bench.undo(undone.id, "ada")
    assert state(bench)[:4] == after
    with pytest.raises(SettingsError, match="no change"):
        bench.undo(1, "ada")


def test_a_change_that_others_were_built_on_is_undone_by_its_opposite(bench, digits):
    feed(bench, digits[2].inputs)
    outcome = finished(bench.naming("rest", "new", "ada"))
    images = outcome.change.members
    bench.set_accept_share(0.9, "ada")
    bench.undo(outcome.change.id, "ada")
    assert "new" not in bench.learner.classes
    assert set(images) <= set(bench.waiting())
    assert bench.learner.settings.rule.share == 0.9


def test_not_novel_is_recorded_with_what_it_did_and_counts_as_a_false_alarm(bench, digits):
    bench.set_accept_share(0.6, "ada")
    feed(bench, digits[1].inputs)
    before = bench.learner.detector.thresholds
    waiting = bench.waiting()
    outcome = bench.not_novel("rest", "ada", waiting[:5])
    assert outcome.change.kind == events.NOT_NOVEL
    assert sum(outcome.change.facts["was"].values()) == 5
    assert bool((bench.learner.detector.thresholds <= before).all())
    assert bench.waiting() == waiting[5:]
    bench.undo(outcome.change.id, "ada")
    assert torch.equal(bench.learner.detector.thresholds, before)
    assert bench.waiting() == waiting


def test_rubbish_goes_and_comes_back(bench, digits):
    feed(bench, digits[2].inputs[:30])
    waiting = bench.waiting()
    change = bench.dismiss("rest", "ada", waiting[:3])
    assert bench.waiting() == waiting[3:]
    bench.undo(change.id, "ada")
    assert bench.waiting() == waiting


def test_groups_are_split_and_merged_by_a_person_and_stay_so(bench, home, digits):
    feed(bench, digits[2].inputs)
    group = bench.regroup().found[0]
    change = bench.split_group(group.id, "ada", group.members[:4])
    new = change.facts["to"]
    bench.regroup()
    assert bench.groups.of(new).members == group.members[:4]
    (home.directory / "novel" / "groups.json").unlink()  # its truth is in the log
    bench.merge_groups(new, group.id, "ada")
    assert bench.groups.of(group.id).members == group.members
    assert state(opened_again(home))[2] == state(bench)[2]
    for each in reversed(bench.changes[-2:]):
        bench.undo(each.id, "ada")
    assert bench.groups.of(group.id).members == group.members


def test_what_the_log_has_counts_though_there_was_no_room_for_the_groups(bench, home, digits, monkeypatch):
    feed(bench, digits[2].inputs)
    bench.regroup()
    before = bench.waiting()
    group = bench.groups.found[0]
    written = (home.directory / "novel" / "groups.json").read_bytes()

    def full(*given):
        raise ModelFileError("no space left")

    monkeypatch.setattr(workbench, "write_groups", full)
    change = bench.dismiss(group.id, "ada", group.members[:2])
    assert change.counts
    assert bench.waiting() == [each for each in before if each not in group.members[:2]]
    assert (home.directory / "novel" / "groups.json").read_bytes() == written
    assert state(opened_again(home)) == state(bench)
    monkeypatch.undo()
    bench.dismiss(group.id, "ada", group.members[2:4])
    assert read_groups(home)[0] == bench.groups


def test_a_line_of_which_the_disk_took_a_part_is_not_in_the_log(bench, home, monkeypatch):
    log = home.directory / "events.jsonl"
    bench.set_accept_share(0.9, "ada")
    before = log.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("shels.files.os.fsync", full)
        with pytest.raises(ModelFileError, match="No space"):
            home.record({"kind": "dismissed", "batch": "", "images": 1, "members": "1", "by": "ada"})
    assert log.read_bytes() == before


def test_a_home_that_cannot_be_written_to_loses_and_counts_nothing(bench, digits, monkeypatch):
    feed(bench, digits[2].inputs[:30])
    before = state(bench), bench.intake.recent()

    def full(event):
        raise ModelFileError("no space left")

    monkeypatch.setattr(bench.home, "record", full)
    with pytest.raises(ModelFileError, match="no space"):
        feed(bench, digits[2].inputs[30:60])
    monkeypatch.undo()
    assert (state(bench), bench.intake.recent()) == before
    assert feed(bench, digits[2].inputs[30:60]).numbers


def test_images_that_do_not_wait_are_refused(bench, digits):
    feed(bench, digits[2].inputs[:30])
    with pytest.raises(DataError, match="reload"):
        bench.dismiss("rest", "ada", [10**6])
