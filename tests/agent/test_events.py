from __future__ import annotations

import doctest
import json
import os
from contextlib import suppress

import pytest
import torch

from shels.agent import events
from shels.agent.buffers import read_buffers
from shels.agent.events import KINDS, Event, fault, in_words, kind_of
from shels.agent.inspection import inspection
from shels.agent.journal import Pending
from shels.agent.versioned import VersionedLearner
from shels.errors import ModelFileError, SettingsError, ShelsError

RENAMED = {"kind": "renamed", "batch": "", "from": 0, "to": "zero", "by": "person", "version": 1}


@pytest.fixture
def home(home):
    home.record(RENAMED)
    return home


def test_the_examples_hold():
    assert doctest.testmod(events).failed == 0


def test_every_kind_says_what_it_means_and_every_result_has_its_list():
    assert all(name == kind.name and kind.meaning for name, kind in KINDS.items())
    assert [bool(kind.series) for kind in KINDS.values()] == [
        kind.result is not None for kind in KINDS.values()
    ]
    assert {name for name, kind in KINDS.items() if kind.changes and not kind.makes} == {"rolled-back"}


def test_a_kind_that_is_not_in_the_table_is_an_error_in_code_and_is_shown_from_a_log(learner, home):
    with pytest.raises(SettingsError, match="did you mean 'alarm'"):
        kind_of("alarms")
    with pytest.raises(SettingsError, match="unknown kind of event"):
        VersionedLearner(learner).record("sneezed", "", {})
    home.record({"kind": "sneezed", "batch": "b", "name": "cow", "by": "Ada"})
    line = home.events()[-1]
    assert in_words(line) == "sneezed cow, by Ada"
    assert inspection(learner, home)["events"][-1] == line


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"kind": "accommodated", "name": 6, "images": 9, "by": "Ada"}, "6 taken in from 9 images, by Ada"),
        ({"kind": "split", "from": "a", "to": ["b", "c"], "by": "Ada"}, "a split to b and c, by Ada"),
        ({"kind": "rolled-back", "to": 2, "by": "Ada"}, "rolled-back 2, by Ada"),
        ({"kind": "observed", "size": 40, "share": 0.125}, "40 samples, 12.5 % novel"),
        ({"kind": "started", "stream": "digits", "protocol": None}, "started digits"),
        (
            {"kind": "declined", "name": "novel-1", "reason": "not confirmed"},
            "declined novel-1, not confirmed",
        ),
        (
            {"kind": "refitted", "learner": "slda", "detector": "knn"},
            "refitted with learner slda and detector knn",
        ),
    ],
)
def test_events_in_words(line, words):
    assert in_words(line) == words


OBSERVED = {"kind": "observed", "batch": "b", "size": 9, "novel": 1, "share": 0.1, "threshold": 0.5}
DAMAGED = {
    "no kind": {"batch": "b"},
    "a number for a kind": {"kind": 5, "batch": "b"},
    "no batch": {name: value for name, value in RENAMED.items() if name != "batch"},
    "a fact is missing": {"kind": "accommodated", "batch": "b", "name": "cow", "by": "me", "version": 2},
    "a share over 1": OBSERVED | {"alarm": True, "share": 1e300},
    "a share in words": OBSERVED | {"alarm": True, "share": "much"},
    "a list for a name": RENAMED | {"from": [1, 2]},
    "one name for two": RENAMED | {"kind": "split"},
    "a version in words": RENAMED | {"version": "two"},
    "no time at all": RENAMED | {"time": "then"},
    "a list for a key": OBSERVED | {"alarm": False, "done": [1]},
    "a known class of no name": {"kind": "started", "batch": "", "stream": "x", "known": [None]},
    "unknown with a wrong version": {"kind": "sneezed", "version": {}},
    "unknown with a wrong key": {"kind": "sneezed", "done": {}},
}


@pytest.mark.parametrize("damage", [*DAMAGED, "nested", "nested thousands deep"])
def test_a_line_that_is_no_event_of_its_kind_is_left_out_with_a_warning(learner, home, damage):
    deep = {"nested": 50, "nested thousands deep": 100_000}.get(damage, 0)
    nested = '{"kind": "alarm", "batch": ' + "[" * deep + "]" * deep + "}"
    with (home.directory / "events.jsonl").open("a") as log:
        log.write((nested if deep else json.dumps(DAMAGED[damage])) + "\n")
    if not deep:
        assert fault(DAMAGED[damage])
    with pytest.warns(UserWarning, match="a line is left out, "):
        assert [event["kind"] for event in home.events()] == ["renamed"]
    with pytest.warns(UserWarning, match="a line is left out, "):
        found = inspection(learner, home)
    assert [event["kind"] for event in found["events"]] == ["renamed"]
    with pytest.warns(UserWarning, match="a line is left out, "):
        assert VersionedLearner(learner, home).finished_batches() == set()


@pytest.mark.parametrize("tensors", [{}, {"inputs": torch.zeros(())}, {"order": torch.zeros(3)}])
def test_a_buffer_that_lacks_something_is_named(home, tensors):
    whole = {"images": torch.zeros(2)} if not tensors else {"inputs": torch.zeros(2, 1, 8, 8)}
    home.buffer("batch-b", whole | tensors)
    with pytest.raises(ModelFileError, match=r"batch-b\.safetensors is not a batch .*; delete it to go on"):
        read_buffers(home)


def edits(document):
    """Give a document with each of its parts removed, or replaced by what it cannot be."""
    for name in document:
        yield {other: value for other, value in document.items() if other != name}
        for value in (None, -1, "x", [1], {"a": 1}, [[]], 1e300, True):
            if not isinstance(value, type(document[name])):
                yield document | {name: value}
    yield from ([], 5, None, "text")


PLAN = {"images": 3, "drift": None, "groups": []}
NOTE = {"key": "b:1", "settings": "s", "log": 0, "last": 0, "plan": PLAN}
GROUP = {"request": "b:2", "name": "novel-1", "purity": 0.5, "rows": [0]}
NOTES = [
    *edits(NOTE),
    *(NOTE | {"plan": plan} for plan in edits(PLAN) if plan is not None),
    *(NOTE | {"plan": PLAN | {"groups": [group]}} for group in edits(GROUP)),
]
PENDING = {"version": 2, "event": RENAMED, "log": 0, "hold": [], "drop": []}


@pytest.mark.parametrize(
    ("name", "documents"),
    [("novel/batch.json", NOTES), ("pending.json", list(edits(PENDING)))],
    ids=["batch", "pending"],
)
def test_an_edited_note_is_refused_or_does_no_harm(learner, home, name, documents):
    path = home.directory / name
    path.parent.mkdir(exist_ok=True)
    refused = 0
    for text in [*map(json.dumps, documents), "", "{", "[" * 100_000, "\x00"]:
        path.write_text(text)
        with suppress(ModelFileError):
            refused += 1
            VersionedLearner(learner, home)
            refused -= 1
    assert refused > 0.8 * len(documents)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ModelFileError, match=r"is damaged .*; delete it to"):
        VersionedLearner(learner, home)


@pytest.mark.parametrize(
    "name", ["events.jsonl", "current", "pending.json", "novel/batch.json", "novel/b.safetensors", ".lock"]
)
def test_a_named_pipe_in_place_of_a_file_is_refused_and_not_waited_on(learner, home, name):
    path = home.directory / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    with pytest.raises(ShelsError):
        VersionedLearner(learner, home).rename(0, "zero")


def test_a_note_of_a_change_finds_its_event_in_the_log_and_no_other():
    note = Pending(2, RENAMED | {"version": 2}, 0)
    assert note.is_in([{"time": "now", **RENAMED, "version": 2}])
    assert not note.is_in([{"time": "now", **RENAMED}])


def test_an_event_gives_its_facts_by_name():
    assert Event("alarm", "b", {"share": 0.5})["share"] == 0.5
