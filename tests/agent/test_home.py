import hashlib
import inspect
import json
import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
import torch

from shels.agent.home import Home
from shels.errors import ModelFileError
from shels.learner import versions
from shels.learner.learner import Learner
from shels.learner.versions import resolve


class Saved:
    """A stand-in for a learner: what it saves tells a whole save from a part of one.

    As a learner does, it writes files anew, never into those that are there, and removes others.
    """

    def __init__(self, text, shared="shared weights"):
        self.parts = {"network": shared.encode() * 2000, "detector": text.encode() * 2000}

    def save(self, directory):
        names = []
        for part, content in self.parts.items():
            names.append(f"{part}-{hashlib.sha256(content).hexdigest()[:12]}.safetensors")
            path = directory / names[-1]
            if not path.is_file() or path.read_bytes() != content:
                path.with_name(".new").write_bytes(content)
                path.with_name(".new").replace(path)
        for path in directory.glob("*-*.safetensors"):
            if path.name not in names:
                path.unlink()
        (directory / "model.json").write_text(json.dumps(names))


def commit(home, learner):
    """Put a learner in use as a new version."""
    facts = {"learner": "slda", "detector": "knn"}
    return home.change({"kind": "refitted", "batch": "", **facts}, learner)


def check_whole(model):
    """Return the text that a stand-in was saved with; fail unless every file of it is there and right."""
    names = json.loads((model / "model.json").read_text())
    contents = [(model / name).read_bytes() for name in names]
    for name, content in zip(names, contents, strict=True):
        assert hashlib.sha256(content).hexdigest()[:12] in name
    return contents[1][: len(contents[1]) // 2000].decode()


IMPORTS = "import hashlib, json, os, signal, sys; from pathlib import Path; from shels.agent.home import Home"


@contextmanager
def running(script, *arguments):
    """Run a script in a process of its own, which is killed at the end."""
    code = "\n".join([IMPORTS, *map(inspect.getsource, (Saved, commit)), textwrap.dedent(script)])
    command = [sys.executable, "-c", code, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def names_in(directory):
    return sorted(path.name for path in directory.iterdir())


def plain(directory, text="plain"):
    directory.mkdir(parents=True, exist_ok=True)
    Saved(text).save(directory)
    return directory


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    home.begin(Saved("one"))
    return home


# A process that dies, or meets an error, at the n-th thing it does to the file system; the points are those
# at which the interpreter reports one, so every step of every change is among them.
AT_EVERY_STEP = """
def at_step(number, how, change):
    seen, watched = [0], ("open", "os.", "shutil.", "fcntl.")
    def watch(event, arguments):
        if seen and event.startswith(watched) and event != "os.kill":
            seen[0] += 1
            if seen[0] == number and how == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            if seen[0] == number:
                raise KeyboardInterrupt
    sys.addaudithook(watch)
    try:
        change()
    except KeyboardInterrupt:
        os._exit(1)
    os._exit(0)

top, how = Path(sys.argv[1]), sys.argv[2]
for number in range(1, 200):
    directory = top / f"{number:03d}"
    prepare(directory)
    child = os.fork()
    if not child:
        at_step(number, how, lambda: change(directory))
    if os.waitpid(child, 0)[1] == 0:  # all steps were done before the last one asked for
        break
"""


def interrupted(tmp_path, how, prepare, change):
    """Return a directory for each step of a change at which it was interrupted, after that."""
    script = f"def prepare(directory):\n    {prepare}\ndef change(directory):\n    {change}\n" + AT_EVERY_STEP
    with running(script, tmp_path, how) as process:
        assert process.wait(timeout=60) == 0
    directories = sorted(path for path in tmp_path.iterdir() if path.is_dir())
    assert 8 < len(directories) < 199
    return directories


@pytest.mark.parametrize("how", ["dies", "fails"])
def test_an_adoption_cut_off_at_any_step_leaves_a_whole_model_and_is_finished_by_the_next(tmp_path, how):
    for directory in interrupted(
        tmp_path, how, "directory.mkdir(); Saved('plain').save(directory)", "Home(directory).adopt()"
    ):
        assert check_whole(resolve(directory)) == "plain"
        home = Home(directory)
        assert home.adopt() == home.version == 1
        assert home.versions() == [1]
        assert check_whole(directory / "models" / "0001") == "plain"
        commit(home, Saved("next"))
        assert names_in(directory) == [".lock", "current", "events.jsonl", "models"]
        assert names_in(directory / "models") == ["0001", "0002"]


@pytest.mark.parametrize("how", ["dies", "fails"])
def test_a_commit_cut_off_at_any_step_leaves_the_old_version_or_the_new_one(tmp_path, how):
    texts = []
    for directory in interrupted(
        tmp_path, how, "Home(directory).begin(Saved('old'))", "commit(Home(directory), Saved('new'))"
    ):
        home = Home(directory)
        texts.append(check_whole(resolve(directory)))
        assert texts[-1] == ("old" if home.version == 1 else "new")
        assert check_whole(directory / "models" / "0001") == "old"
        assert commit(home, Saved("newer")) == max(home.versions())
        assert check_whole(resolve(directory)) == "newer"
        assert names_in(directory) == [".lock", "current", "events.jsonl", "models"]
        assert not any("." in name for name in names_in(directory / "models"))
    assert texts == sorted(texts, reverse=True)
    assert set(texts) == {"old", "new"}


@pytest.mark.parametrize("how", ["dies", "fails"])
def test_a_beginning_cut_off_at_any_step_can_be_repeated(tmp_path, how):
    for directory in interrupted(tmp_path, how, "pass", "Home(directory).begin(Saved('first'))"):
        home = Home(directory)
        if not home.exists:
            assert home.begin(Saved("first")) == max(home.versions())
        assert check_whole(resolve(directory)) == "first"


@pytest.mark.parametrize("how", ["dies", "fails"])
def test_a_rollback_cut_off_at_any_step_leaves_one_of_the_two_versions(tmp_path, how):
    for directory in interrupted(
        tmp_path,
        how,
        "h = Home(directory); h.begin(Saved('one')); commit(h, Saved('two'))",
        "Home(directory).rollback(1)",
    ):
        home = Home(directory)
        assert check_whole(resolve(directory)) == {1: "one", 2: "two"}[home.version]
        assert home.versions() == [1, 2]


def test_a_run_killed_again_and_again_goes_on_with_a_whole_model_and_a_log_without_gaps(tmp_path):
    script = """
    home = Home(Path(sys.argv[1]))
    with home.lock():
        if not home.exists:
            home.begin(Saved("step 0"))
        while True:
            commit(home, Saved(f"step {home.version}"))
            home.record({"kind": "grew", "note": "x" * 5000})
            print("ready", flush=True)
    """
    moments = random.Random(0)
    home = Home(tmp_path / "home")
    told = []
    for deaths in range(1, 13):
        with running(script, home.directory) as process:
            assert process.stdout.readline() == "ready\n"
            time.sleep(moments.uniform(0, 0.06))
        events, known = [event for event in home.events() if event["kind"] == "grew"], home.versions()
        assert all(check_whole(home.directory / "models" / f"{number:04d}") for number in known)
        assert home.version in known
        assert events[: len(told)] == told  # nothing that was on disk is ever lost
        assert all(event["note"] == "x" * 5000 for event in events)
        assert 0 <= len(known) - 1 - len(events) <= deaths  # a death costs the event in progress, no more
        told = events
    assert len({event["version"] for event in told}) == len(told) >= 12


def test_the_first_version_is_0001_and_current_says_so_in_plain_text(home):
    assert (home.directory / "current").read_text() == "0001\n"
    assert home.exists
    assert (home.version, home.versions()) == (1, [1])
    assert resolve(home.directory) == home.directory / "models" / "0001"
    assert names_in(home.directory) == [".lock", "current", "models"]


def test_a_home_stores_its_directory_and_does_nothing_else(tmp_path):
    home = Home(tmp_path / "none")
    assert not home.exists
    assert home.versions() == []
    assert (home.events(), home.buffered()) == ([], {})
    assert names_in(tmp_path) == []


def test_each_commit_is_a_version_of_its_own_and_the_earlier_ones_stay_as_they_were(home):
    assert commit(home, Saved("two")) == 2
    assert commit(home, Saved("three")) == 3
    texts = [check_whole(home.directory / "models" / f"{number:04d}") for number in home.versions()]
    assert texts == ["one", "two", "three"]
    assert home.version == 3


def test_after_a_rollback_the_next_number_is_above_all_and_nothing_is_overwritten(home):
    commit(home, Saved("two"))
    commit(home, Saved("three"))
    assert home.rollback(1) == 1
    assert home.version == 1
    assert check_whole(resolve(home.directory)) == "one"
    assert commit(home, Saved("four")) == 4
    texts = [check_whole(home.directory / "models" / f"{number:04d}") for number in home.versions()]
    assert texts == ["one", "two", "three", "four"]
    assert home.rollback(3) == home.version == 3  # and a rollback can be undone


def test_versions_are_counted_as_numbers_past_four_digits(home):
    (home.directory / "models" / "0001").rename(home.directory / "models" / "9999")
    home.rollback(9999)
    assert commit(home, Saved("many")) == 10000
    assert commit(home, Saved("more")) == 10001
    assert home.versions() == [9999, 10000, 10001]
    assert check_whole(resolve(home.directory)) == "more"


def test_a_version_shares_the_space_of_files_that_did_not_change_and_of_no_others(home):
    commit(home, Saved("two"))
    first, second = (sorted((home.directory / "models" / name).iterdir()) for name in ("0001", "0002"))
    shared = {one.name for one in first for two in second if one.samefile(two)}
    assert {name.split("-")[0] for name in shared} == {"network"}
    assert len(second) == 3


def test_an_earlier_file_that_was_damaged_is_not_shared(home):
    network = next((home.directory / "models" / "0001").glob("network-*"))
    network.write_bytes(b"damaged")
    commit(home, Saved("two"))
    assert check_whole(resolve(home.directory)) == "two"


def test_a_commit_that_fails_changes_nothing_and_leaves_nothing(home):
    class Failing(Saved):
        def save(self, directory):
            super().save(directory)
            raise OSError(28, "No space left on device")

    with pytest.raises(ModelFileError, match=r"home cannot be written to \(No space left.*is unharmed"):
        commit(home, Failing("two"))
    assert names_in(home.directory / "models") == ["0001"]
    assert home.version == 1


def test_a_learner_comes_back_from_each_version_as_it_was(learner, digits, tmp_path):
    home = Home(tmp_path)
    home.begin(learner)
    other = Learner(**vars(learner) | {"temperature": learner.temperature * 2})
    commit(home, other)
    assert home.load("cpu").temperature == other.temperature
    earlier = home.load("cpu", version=1)
    assert earlier.temperature == learner.temperature
    inputs = digits[1].inputs[:20]
    assert torch.equal(earlier.probabilities(inputs), learner.probabilities(inputs))


def test_a_plain_model_loads_through_a_home_before_and_after_it_is_adopted(learner, tmp_path):
    learner.save(tmp_path)
    home = Home(tmp_path)
    assert home.load("cpu").classes == learner.classes
    assert home.adopt() == 1
    assert torch.equal(home.load("cpu").network.head.weight, learner.network.head.weight)
    assert commit(home, learner) == 2


def test_an_adopted_model_keeps_every_file_byte_for_byte(tmp_path):
    before = {path.name: path.read_bytes() for path in plain(tmp_path).iterdir()}
    Home(tmp_path).adopt()
    after = {path.name: path.read_bytes() for path in (tmp_path / "models" / "0001").iterdir()}
    assert after == before


def test_an_adoption_copies_where_the_file_system_has_no_links(tmp_path, monkeypatch):
    def refuse(*arguments, **named):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    home = Home(plain(tmp_path))
    assert home.adopt() == 1
    commit(home, Saved("two"))
    assert [check_whole(tmp_path / "models" / name) for name in ("0001", "0002")] == ["plain", "two"]


def test_adopting_a_home_does_nothing(home):
    commit(home, Saved("two"))
    before = {path: path.stat().st_mtime_ns for path in home.directory.rglob("*")}
    assert home.adopt() == 2
    assert {path: path.stat().st_mtime_ns for path in home.directory.rglob("*")} == before


def test_adopting_leaves_the_checkpoint_of_a_training(tmp_path):
    (plain(tmp_path) / "checkpoint.safetensors").write_text("unfinished")
    Home(tmp_path).adopt()
    assert (tmp_path / "checkpoint.safetensors").read_text() == "unfinished"


def test_a_model_put_on_top_of_a_home_is_neither_taken_in_nor_deleted(home):
    plain(home.directory, "another")
    with pytest.raises(ModelFileError, match=r"files of another \(.*model\.json.*\): move those elsewhere"):
        home.adopt()
    assert check_whole(home.directory) == "another"
    assert check_whole(resolve(home.directory)) == "one"


def test_a_plain_model_that_changed_since_a_cut_off_adoption_is_the_one_taken_in(tmp_path):
    Home(plain(tmp_path)).adopt()
    (tmp_path / "current").unlink()
    plain(tmp_path, "retrained")
    home = Home(tmp_path)
    assert home.adopt() == 2
    assert check_whole(resolve(tmp_path)) == "retrained"
    assert check_whole(tmp_path / "models" / "0001") == "plain"


@pytest.mark.parametrize("stranger", ["notes.txt", "models/mine", "events.jsonl"])
def test_a_directory_with_other_files_is_refused_and_left_alone(tmp_path, stranger):
    (tmp_path / stranger).parent.mkdir(exist_ok=True)
    (tmp_path / stranger).write_text("mine")
    message = rf"holds other files \({stranger}\); name a directory for the model alone"
    with pytest.raises(ModelFileError, match=message):
        Home(tmp_path).begin(Saved("one"))
    assert not (tmp_path / ".lock").exists()
    plain(tmp_path)
    with pytest.raises(ModelFileError, match=message):
        Home(tmp_path).adopt()
    assert check_whole(tmp_path) == "plain"
    assert (tmp_path / stranger).read_text() == "mine"


def test_beginning_where_something_is_already_says_what_to_do_instead(home, tmp_path):
    with pytest.raises(ModelFileError, match="keeps versions of a model already; add one by change"):
        home.begin(Saved("again"))
    with pytest.raises(ModelFileError, match="holds a plain model; make it a home by adopt"):
        Home(plain(tmp_path / "plain")).begin(Saved("again"))
    (tmp_path / "file").write_text("a file")
    with pytest.raises(ModelFileError, match="file is a file; name a directory"):
        Home(tmp_path / "file").begin(Saved("again"))
    assert (tmp_path / "file").read_text() == "a file"


@pytest.mark.parametrize(
    "change",
    [
        lambda home: commit(home, Saved("two")),
        lambda home: home.record({"kind": "rang"}),
        lambda home: home.rollback(1),
        lambda home: home.buffer("batch", {"images": torch.zeros(1)}),
        lambda home: home.clear(["batch"]),
    ],
)
def test_a_plain_model_or_nothing_has_no_history_and_that_is_said(tmp_path, change):
    message = "keeps no versions of a model; begin there with one, or adopt the one it holds"
    with pytest.raises(ModelFileError, match=message):
        change(Home(tmp_path / "none"))
    with pytest.raises(ModelFileError, match=message):
        change(Home(plain(tmp_path / "plain")))
    assert names_in(tmp_path) == ["plain"]
    assert len(names_in(tmp_path / "plain")) == 3


def test_adopting_nothing_says_that_there_is_no_model(tmp_path):
    with pytest.raises(ModelFileError, match="holds no model; train one there first"):
        Home(tmp_path).adopt()
    assert names_in(tmp_path) == []


@pytest.mark.parametrize(
    "text",
    ["", "\n", "two\n", "1\n", "0000\n", "0001\n0002\n", "00001\n", " 0001\n", "\u0660\u0660\u0660\u0661"],
)
def test_a_damaged_pointer_is_refused_with_the_versions_there_are_and_a_rollback_repairs_it(home, text):
    commit(home, Saved("two"))
    (home.directory / "current").write_text(text, encoding="utf-8")
    with pytest.raises(ModelFileError, match=r"current is damaged: .*; write into it one of 0001, 0002"):
        resolve(home.directory)
    with pytest.raises(ModelFileError, match="current is damaged"):
        home.record({"kind": "rang"})
    home.rollback(2)
    assert check_whole(resolve(home.directory)) == "two"


def test_a_missing_pointer_is_refused_with_the_versions_there_are(home):
    home.record({"kind": "began"})
    (home.directory / "current").unlink()
    message = "current is missing, so no version is in use; write into it one of 0001"
    for use in (lambda: home.version, lambda: home.begin(Saved("again")), home.adopt):
        with pytest.raises(ModelFileError, match=message):
            use()
    with pytest.raises(ModelFileError, match=message):
        resolve(home.directory)


def test_a_version_that_does_not_exist_is_refused_with_those_that_do(home):
    commit(home, Saved("two"))
    for use in (home.rollback, lambda number: home.load("cpu", number)):
        with pytest.raises(ModelFileError, match="has no whole version 0007; choose one of 0001, 0002"):
            use(7)
    assert home.version == 2
    (home.directory / "current").write_text("0007\n")
    with pytest.raises(ModelFileError, match="has no whole version 0007; choose one of 0001, 0002"):
        resolve(home.directory)


def test_a_pointer_without_any_version_says_to_train_anew(tmp_path):
    (tmp_path / "current").write_text("0001\n")
    with pytest.raises(ModelFileError, match="no version is left; train a model anew"):
        resolve(tmp_path)


def test_a_path_that_is_no_home_resolves_to_itself(tmp_path):
    assert resolve(plain(tmp_path / "plain")) == tmp_path / "plain"
    assert resolve(tmp_path / "none") == tmp_path / "none"


@pytest.mark.parametrize(
    ("blocked", "change"),
    [
        (".lock", lambda home: commit(home, Saved("two"))),
        (".lock", lambda home: home.rollback(1)),
        ("events.jsonl", lambda home: home.record({"kind": "rang"})),
    ],
)
def test_a_home_that_cannot_be_written_to_is_named_and_stays_as_it_was(home, blocked, change):
    (home.directory / blocked).unlink(missing_ok=True)
    (home.directory / blocked).mkdir()  # stops even the superuser
    with pytest.raises(ModelFileError, match=rf"home/{re.escape(blocked)} is a directory, not a file"):
        change(home)
    assert check_whole(resolve(home.directory)) == "one"
    assert home.versions() == [1]


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    for make in (lambda home: home.begin(Saved("one")), lambda home: home.lock().__enter__()):
        with pytest.raises(ModelFileError, match=r"file/home cannot be written to \(Not a directory\)"):
            make(Home(tmp_path / "file" / "home"))


def test_an_event_is_one_line_with_its_time_and_the_version_it_happened_under(home):
    began = datetime.now(UTC)
    home.record({"kind": "rang", "share": 0.5, "text": "two\nlines \u2028 α"})
    commit(home, Saved("two"))
    home.record({"kind": "grew", "class": "cow"})
    first, _, second = home.events()
    assert (home.directory / "events.jsonl").read_bytes().count(b"\n") == 3
    assert (first["kind"], first["share"], first["text"]) == ("rang", 0.5, "two\nlines \u2028 α")
    assert (first["version"], second["version"]) == (1, 2)
    assert 0 <= (datetime.now(UTC) - datetime.fromisoformat(first["time"])).total_seconds() < 60
    assert abs((datetime.fromisoformat(first["time"]) - began).total_seconds()) < 60
    assert first["time"].endswith("+00:00")


def test_an_events_own_time_and_version_stand(home):
    home.record({"kind": "rollback", "version": 7, "time": "2026-01-01"})
    assert home.events() == [{"kind": "rollback", "version": 7, "time": "2026-01-01"}]


def test_an_event_cut_off_anywhere_is_skipped_and_spoils_no_other(home):
    log = home.directory / "events.jsonl"
    home.record({"kind": "first", "nested": {"α": [1, {}]}})
    whole = log.read_bytes()
    for length in range(len(whole)):
        log.write_bytes(whole + whole[:length])
        home.record({"kind": "last"})
        expected = ["first", "last"] if length < len(whole) - 1 else ["first", "first", "last"]
        assert [event["kind"] for event in home.events()] == expected
        log.write_bytes(whole + whole[:length])
        assert [event["kind"] for event in home.events()] == expected[:-1]


def test_lines_that_are_no_events_are_skipped_wherever_they_are(home):
    home.record({"kind": "first"})
    with (home.directory / "events.jsonl").open("ab") as file:
        file.write(b'{"kind": "al\n\n\xff\xfe\x00\n[1, 2]\n')
    home.record({"kind": "second"})
    assert [event["kind"] for event in home.events()] == ["first", "second"]


@pytest.mark.parametrize("value", [float("nan"), torch.zeros(2), {1, 2}])
def test_an_event_that_json_cannot_hold_is_refused_and_the_log_stays(home, value):
    home.record({"kind": "first"})
    before = (home.directory / "events.jsonl").read_bytes()
    with pytest.raises(ModelFileError, match="cannot be written as JSON"):
        home.record({"kind": "bad", "value": value})
    assert (home.directory / "events.jsonl").read_bytes() == before


def test_an_event_is_on_disk_before_record_returns(home, monkeypatch):
    sizes = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: sizes.append(os.fstat(descriptor).st_size))
    home.record({"kind": "rang"})
    assert sizes == [(home.directory / "events.jsonl").stat().st_size]


NAMES = [
    "0001", "a b", "A", "a", "../../escape", "..", ".", "", ".hidden", "a/b", "a\\b", "a\0b", "käse", "犬",
    "x" * 1000, "x" * 1001, "%41", "novel-1:2026", "\udcff", "a\nb", "*", "name.safetensors",
]  # fmt: skip


def test_batches_of_any_name_come_back_under_that_name_and_stay_inside_the_home(home):
    for position, name in enumerate(NAMES):
        home.buffer(name, {"images": torch.full((2, 3), position)})
    found = Home(home.directory).buffered()
    assert list(found) == sorted(NAMES)
    assert {name: int(tensors["images"][0, 0]) for name, tensors in found.items()} == {
        name: position for position, name in enumerate(NAMES)
    }
    files = names_in(home.directory / "novel")
    assert len({name.lower() for name in files}) == len(NAMES)
    assert max(map(len, files)) < 200
    assert names_in(home.directory) == [".lock", "current", "models", "novel"]
    home.clear([*NAMES[1:], "never kept"])
    assert list(home.buffered()) == ["0001"]
    assert names_in(home.directory / "novel") == ["0001.safetensors"]


def test_a_batch_keeps_values_kinds_and_shapes_also_of_views_that_share_memory(home):
    images = torch.arange(24, dtype=torch.uint8).reshape(4, 6)
    batch = {"images": images[1:3], "turned": images.T, "again": images, "scores": torch.tensor([0.5])}
    home.buffer("batch", batch)
    found = home.buffered()["batch"]
    assert found.keys() == batch.keys()
    for key, value in batch.items():
        assert found[key].dtype == value.dtype
        assert torch.equal(found[key], value)


def test_a_batch_kept_twice_is_there_once_as_it_was_last(home):
    home.buffer("batch", {"images": torch.zeros(2)})
    home.buffer("batch", {"images": torch.ones(3)})
    assert torch.equal(home.buffered()["batch"]["images"], torch.ones(3))
    assert names_in(home.directory / "novel") == ["batch.safetensors"]


def test_a_half_written_batch_is_not_seen_and_is_gone_after_the_next_commit(home):
    home.buffer("batch", {"images": torch.zeros(2)})
    (home.directory / "novel" / ".next.safetensors.0123abcd").write_bytes(b"half")
    assert list(home.buffered()) == ["batch"]
    commit(home, Saved("two"))
    assert names_in(home.directory / "novel") == ["batch.safetensors"]


def test_hidden_files_of_others_outlast_a_commit(home):
    mine = home.directory / ".notes.0123abcd"
    mine.write_text("mine")
    commit(home, Saved("two"))
    assert mine.read_text() == "mine"


@pytest.mark.parametrize("content", [b"", b"not tensors", None])
def test_a_file_that_is_no_batch_is_named_with_what_to_do(home, content):
    from safetensors.torch import save

    home.buffer("batch", {"images": torch.zeros(2)})
    foreign = home.directory / "novel" / "foreign.safetensors"
    foreign.write_bytes(save({"images": torch.zeros(1)}) if content is None else content)
    with pytest.raises(ModelFileError, match=r"foreign\.safetensors is not a batch .*; delete it to go on"):
        home.buffered()


HOLD = """
home = Home(Path(sys.argv[1]))
with home.lock():
    print("locked", flush=True)
    signal.pause()
"""


def test_a_second_run_is_kept_out_until_the_first_is_killed(home):
    with running(HOLD, home.directory) as process:
        assert process.stdout.readline() == "locked\n"
        for change in (
            lambda: commit(home, Saved("two")),
            lambda: home.rollback(1),
            lambda: home.buffer("batch", {"images": torch.zeros(1)}),
        ):
            with pytest.raises(
                ModelFileError, match="another run is using it; wait until that ends, or stop"
            ):
                change()
        assert names_in(home.directory) == [".lock", "current", "models"]
        assert check_whole(resolve(home.directory)) == "one"  # reading goes on
        home.record({"kind": "asked"})  # and so does the log
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=20)
        assert commit(home, Saved("two")) == 2


def test_a_lock_is_asked_for_again_within_itself_and_let_go_at_its_end_even_by_an_error(home):
    other = Home(home.directory)

    def use():
        with home.lock():
            with home.lock():
                commit(home, Saved("two"))
            with pytest.raises(ModelFileError, match="another run is using it"):
                commit(other, Saved("three"))
            raise KeyError

    with pytest.raises(KeyError):
        use()
    assert commit(other, Saved("three")) == 3


def test_a_lock_that_has_ended_is_not_kept_by_a_process_forked_within_it(home):
    script = """
    with Home(Path(sys.argv[1])).lock():
        child = os.fork()
        if not child:
            signal.pause()
    try:
        commit(Home(Path(sys.argv[1])), Saved("two"))
    finally:
        os.kill(child, signal.SIGKILL)
    """
    with running(script, home.directory) as process:
        assert process.wait(timeout=20) == 0
    assert home.version == 2


def test_a_changing_current_is_read_as_one_version_or_the_other(home):
    commit(home, Saved("two"))
    script = """
    home = Home(Path(sys.argv[1]))
    print("ready", flush=True)
    while True:
        home.rollback(1)
        home.rollback(2)
    """
    with running(script, home.directory) as process:
        assert process.stdout.readline() == "ready\n"
        end, seen = time.monotonic() + 10, set()
        while time.monotonic() < end and len(seen) < 2:
            seen |= {home.version for _ in range(200)}
    assert seen == {1, 2}


def test_the_home_needs_no_pytorch_to_be_read(home):
    code = (
        "import sys; from pathlib import Path; from shels.agent.home import Home; "
        "home = Home(Path(sys.argv[1])); "
        "assert (home.version, home.events()) == (1, []); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(home.directory)], check=True)


def test_versions_stands_on_nothing_but_files_and_errors():
    code = (
        "import sys, shels.learner.versions; print(*sorted(name for name in sys.modules if 'shels' in name))"
    )
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    ours = {
        "shels",
        "shels._version",
        "shels.errors",
        "shels.files",
        "shels.learner",
        "shels.learner.versions",
    }
    assert set(printed.split()) == ours
    assert Path(versions.__file__).name == "versions.py"
