"""The commands by which a model grows: accommodate, run, inspect and revise, as a user meets them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from shels.agent.agent import OpenWorldAgent
from shels.agent.home import Home
from shels.agent.run_summary import events_by_batch
from shels.cli.display import share_bar
from shels.data.sources import load_named
from shels.learner.learner import Learner
from shels.model.growth import copied
from tests.cli.commands import contents, done, fails, shels


@pytest.fixture
def model(learner, tmp_path):
    """A plain model of the digits 0 to 3."""
    learner.save(tmp_path / "m")
    return tmp_path / "m"


@pytest.fixture(scope="module")
def arrays():
    """Digits as arrays: x_train, y_train, x_test, y_test."""
    data = load_named("digits")
    parts = {"train": data.train, "test": data.test}
    return {f"x_{name}": part.inputs[:, 0].numpy() for name, part in parts.items()} | {
        f"y_{name}": part.labels.numpy() for name, part in parts.items()
    }


@pytest.fixture(scope="module")
def files(arrays, tmp_path_factory):
    """Files and folders to give to commands, right and wrong."""
    folder = tmp_path_factory.mktemp("files")
    x, y = arrays["x_train"], arrays["y_train"]
    sixes = x[y == 6]
    for name, array in {
        "sixes": sixes,
        "threes": x[y == 3],
        "one": sixes[:1],
        "none": sixes[:0],
        "rgb": np.repeat(sixes[..., None], 3, axis=3),
        "vectors": sixes.reshape(len(sixes), -1)[:, :9] / np.float32(255),
        "nan": np.where(np.arange(len(sixes))[:, None, None] == 4, np.nan, sixes / 255).astype(np.float32),
    }.items():
        np.savez(folder / f"{name}.npz", x=array)
    for name in ("others/5/a", "others/6", "others/none"):
        (folder / name).mkdir(parents=True)
    for row, image in enumerate(x[y == 5][:6]):
        Image.fromarray(image).save(folder / f"others/5/a/{row}.png")
        Image.fromarray(sixes[row]).save(folder / f"others/6/{row}.png")
    (folder / "others.csv").write_text("path,label\nothers/5/a/0.png,five\nothers/6/0.png,six\n")
    several = np.isin(y, (5, 6))
    np.savez(folder / "others.npz", x=x[several], y=y[several])
    (folder / "pictures/large").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "nothing/1").mkdir(parents=True)
    (folder / "text.png").write_text("no image")
    for row, image in enumerate(sixes[:8]):
        Image.fromarray(image).save(folder / f"pictures/{row}.png")
    Image.fromarray(sixes[8]).resize((40, 30)).convert("RGB").save(folder / "pictures/large/a.png")
    rows = {part: np.isin(arrays[f"y_{part}"], (0, 1, 2, 3, 6)) for part in ("train", "test")}
    np.savez(folder / "set.npz", **{name: array[rows[name[2:]]] for name, array in arrays.items()})
    known = x[y < 4]
    (folder / "stream").mkdir()
    np.savez(folder / "stream/1.npz", x=known[:100])
    np.savez(folder / "stream/2.npz", x=np.concatenate([known[100:150], sixes[:60]]))
    np.savez(folder / "stream/10.npz", x=known[150:250])
    return folder


# accommodate ----------------------------------------------------------------------------------------------


def test_a_class_is_taken_in_as_a_new_version_and_the_old_one_is_kept(model, files):
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    result = shels("accommodate", model, files / "sixes.npz", "--name", 6)
    assert result.exit_code == 0, result.output
    assert "classes      0, 1, 2, 3, 6\n" in result.stdout
    assert f"version      2 of {model}" in result.stdout
    assert f"shels inspect {model}" in result.stdout
    assert {path.name: path.read_bytes() for path in (model / "models/0001").iterdir()} == before
    assert Learner.load(model, "cpu").classes == (0, 1, 2, 3, 6)
    event = Home(model).events()[-1]
    facts = {"kind": "accommodated", "batch": "", "name": 6, "images": 127, "by": "person", "version": 2}
    assert event.items() >= facts.items()


def test_a_home_takes_in_another_class_from_pictures_of_several_sizes(model, files):
    done("accommodate", model, files / "sixes.npz", "--name", 6)
    found = done("accommodate", model, files / "pictures", files / "pictures/0.png", "--name", "more")
    assert found["classes"] == [0, 1, 2, 3, 6, "more"]
    assert found["images"] == 9  # one picture is there twice
    assert found["version"] == 3
    assert found["threshold"] == pytest.approx(float(Learner.load(model, "cpu").detector.thresholds[5]))


@pytest.mark.parametrize(
    ("code", "images", "name", "said"),
    [
        (2, "sixes.npz", "3", "class 3 is known already"),
        (2, "sixes.npz", "novel", "choose another name"),
        (2, "sixes.npz", " ", "must have a name"),
        (1, "none.npz", "6", "at least one sample"),
        (1, "empty", "6", "no image in the folder"),
        (1, "one.npz", "6", "5 different images or more, got 1"),
        (1, "vectors.npz", "6", "trained on grey images of 8x8 pixels, got vectors of 9 values"),
        (1, "nan.npz", "6", "sample 4 holds NaN"),
        (1, "text.png", "6", "not an image"),
        (1, "nowhere", "6", "no file or folder"),
        (1, "others", "6", "others holds images of 2 classes (5, 6), where one is learned; name one folder"),
        (1, "others.csv", "6", "2 classes (five, six), where one is learned; give those of one class alone"),
        (1, "others.npz", "6", "others.npz holds images of 2 classes (5, 6)"),
    ],
)
def test_bad_images_and_names_leave_the_model_as_it_is(model, files, code, images, name, said):
    before = contents(model)
    assert said in fails(code, "accommodate", model, files / images, "--name", name)
    assert contents(model) == before
    Home(model).adopt()
    before = contents(model)
    assert said in fails(code, "accommodate", model, files / images, "--name", name)
    assert contents(model) == before


def test_images_of_a_known_class_and_arrays_of_other_channels_are_warned_of(model, files):
    result = shels("accommodate", model, files / "threes.npz", "--name", "new")
    assert "warning: " in result.stderr
    assert "look like the known class 3" in result.stderr
    result = shels("accommodate", model, files / "rgb.npz", "--name", 6)
    assert result.exit_code == 0
    assert "holds arrays of shape (3, 8, 8)" in result.stderr


def test_a_folder_with_one_class_folder_and_each_of_several_are_one_class(model, files):
    five, six = files / "others/5", files / "others/6"
    assert done("accommodate", model, five, "--name", 5)["images"] == 6
    assert done("accommodate", model, five, six, "--name", "both")["images"] == 12


def test_an_interrupted_accommodation_leaves_the_model_as_it_is(model, files, monkeypatch):
    before = contents(model)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Learner, "accommodating", interrupted)
    result = shels("accommodate", model, files / "sixes.npz", "--name", 6)
    assert result.exit_code == 1
    assert result.stderr == "interrupted: the model is as it was\n"
    assert contents(model) == before


def test_a_model_in_use_is_not_changed_by_another_command(model, files):
    home = Home(model)
    home.adopt()
    with home.lock():
        said = fails(1, "accommodate", model, files / "sixes.npz", "--name", 6)
    assert "another run is using it" in said


# run ------------------------------------------------------------------------------------------------------

TRUTH = ("found", "missed", "false_alarms", "final_accuracy", "alarms", "classes", "version", "batches")


def test_a_data_set_becomes_a_stream_whose_new_class_is_found_and_learned(model, files):
    found = done("run", model, files / "set.npz", "--device", "cpu")
    assert found["protocol"] == "paper"
    assert (found["batches"], found["skipped"], found["alarms"]) == (7, 0, 1)
    assert (found["found"], found["missed"], found["false_alarms"]) == ([6], [], 0)
    assert found["classes"] == [0, 1, 2, 3, 6]
    assert found["final_accuracy"] > 0.95
    [taken] = found["taken_in"]
    assert (taken["name"], taken["images"], taken["by"], taken["version"]) == (6, 127, "oracle", 2)
    assert taken["batch"] == "paper-0-0004"
    again = done("run", model, files / "set.npz", "--device", "cpu")
    assert again["skipped"] == 7
    assert {name: again[name] for name in TRUTH} == {name: found[name] for name in TRUTH}
    assert done("run", model, files / "set.npz", "--device", "cpu", "--again")["skipped"] == 0


def test_an_interrupted_run_says_what_is_safe_and_goes_on(model, files, monkeypatch):
    observe = OpenWorldAgent.observe

    def stopping(agent, batch):
        if batch.name.endswith("5"):
            raise KeyboardInterrupt
        return observe(agent, batch)

    with monkeypatch.context() as patch:
        patch.setattr(OpenWorldAgent, "observe", stopping)
        result = shels("run", model, files / "set.npz", "--device", "cpu")
    assert result.exit_code == 1
    assert result.stderr.startswith("interrupted: 4 batches are done, version 2 is in use")
    result = shels("run", model, files / "set.npz", "--device", "cpu")
    assert "going on after 4 batches" in result.stdout
    assert "batches      7, 4 of them done before\n" in result.stdout
    assert "found        1 of 1 new classes\n" in result.stdout


KILLED = """
import os, signal, sys, torch
from shels.agent.home import Home
torch.set_num_threads(1)
record = Home.record
def killing(home, event):
    if event["kind"] == "accommodated":
        os.kill(os.getpid(), signal.SIGKILL)
    record(home, event)
Home.record = killing
from shels.cli.app import app
app(["run", *sys.argv[1:], "--device", "cpu"])
"""


def test_a_run_killed_between_version_and_log_goes_on_and_counts_the_class_once(model, files):
    command = [sys.executable, "-c", KILLED, str(model), str(files / "set.npz")]
    died = subprocess.run(command, check=False, capture_output=True, text=True)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert died.stdout.count("nothing new") == 3
    found = done("run", model, files / "set.npz", "--device", "cpu")
    assert found["skipped"] == 3
    assert (found["found"], found["missed"], found["classes"]) == ([6], [], [0, 1, 2, 3, 6])
    assert (found["version"], found["alarms"]) == (2, 1)
    assert [taken["by"] for taken in found["taken_in"]] == ["oracle"]
    again = done("run", model, files / "set.npz", "--device", "cpu")
    assert again["skipped"] == 7
    assert {name: again[name] for name in TRUTH} == {name: found[name] for name in TRUTH}


def test_a_stream_on_disk_is_learned_under_a_provisional_name_that_a_person_can_see_and_change(
    model, files, tmp_path
):
    result = shels("run", model, files / "stream", "--device", "cpu")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["1.npz", "2.npz", "10.npz"]
    assert "novel-1 taken in" in lines[2]
    assert "nothing new" in lines[1]
    kept = done("inspect", model, "--images", tmp_path / "seen")
    count = kept["kept_images"]["novel-1"]
    assert len(list((tmp_path / "seen/novel-1").glob("*.png"))) == count == kept["classes"][4]["images"]
    with Image.open(tmp_path / "seen/novel-1/0001.png") as image:
        assert (image.size, image.mode) == ((8, 8), "L")
    why = done("detect", model, tmp_path / "seen/novel-1/0001.png", "--explain")["rows"][0]
    nearest = why["examples"][0]
    assert (nearest["source"], nearest["label"]) == ("kept in the model's directory #0", "novel-1")
    assert nearest["distance"] == pytest.approx(0, abs=1e-3)
    assert done("revise", model, "rename", "novel-1", 6)["classes"] == [0, 1, 2, 3, 6]
    after = done("inspect", model)
    assert after["kept_images"] == {}
    row = after["classes"][4]
    assert (row["name"], row["origin"], row["images"], row["by"]) == (6, "taken in", count, "person")
    assert "keeps no images" in fails(1, "inspect", model, "--images", tmp_path / "more")


def test_a_person_is_asked_and_answers_with_no_or_a_name(model, files, learner, tmp_path):
    found = done("run", model, files / "stream", "--confirm", "--device", "cpu", answers="n\n")
    assert (found["taken_in"], found["classes"]) == ([], [0, 1, 2, 3])
    assert found["declined"][0]["reason"] == "not confirmed"
    learner.save(tmp_path / "other")
    answers = "novel\nsix\n"
    found = done("run", tmp_path / "other", files / "stream", "--confirm", "--device", "cpu", answers=answers)
    assert found["classes"] == [0, 1, 2, 3, "six"]
    assert found["taken_in"][0]["by"] == "person"


def test_a_question_without_an_answer_ends_the_run(model, files):
    result = shels("run", model, files / "stream", "--confirm", answers="")
    assert result.exit_code == 1
    assert "interrupted: 1 batch is done" in result.stderr


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["--alarm-share", 0.3, "--alarm-probability", 0.1], "contradict"),
        (["--alarm-share", 1.5], "--alarm-share: share must be"),
        (["--alarm-probability", 0], "--alarm-probability: probability must be"),
        (["--protocol", "papr"], "did you mean 'paper'"),
        (["--batches", 9], "--batches is for --protocol mixed"),
        (["--batch-size", 0], "--batch-size must be 1 or more"),
    ],
)
def test_wrong_options_of_a_run_leave_the_model_as_it_is(model, files, extra, said):
    before = contents(model)
    assert said in fails(2, "run", model, files / "set.npz", *extra)
    assert contents(model) == before


def test_what_is_no_stream_leaves_the_model_as_it_is(model, files, tmp_path):
    before = contents(model)
    for stream, said in (
        ("nowhere", "there is no stream"),
        ("empty", "holds no batch"),
        ("nothing", "holds no batch"),
        ("text.png", "no stream"),
    ):
        assert said in fails(1, "run", model, files / stream)
    np.savez(tmp_path / "xy.npz", **{key: np.load(files / "set.npz")[f"{key}_test"] for key in "xy"})
    assert "no test part" in fails(1, "run", model, tmp_path / "xy.npz", "--protocol", "paper")
    assert contents(model) == before


def test_a_stream_whose_first_batch_is_none_is_not_in_the_log(model, files, tmp_path):
    Home(model).adopt()
    before = contents(model)
    for batch, said in (("vectors.npz", "trained on grey images"), ("one.npz", "not a whole .npz file")):
        folder = tmp_path / batch
        folder.mkdir()
        whole = (files / batch).read_bytes()
        (folder / "1.npz").write_bytes(whole if batch == "vectors.npz" else whole[:99])
        assert said in fails(1, "run", model, folder)
    assert contents(model) == before


def test_a_batch_that_does_not_fit_is_named_and_the_others_stay_done(model, files, tmp_path):
    folder = tmp_path / "stream"
    folder.mkdir()
    np.savez(folder / "1.npz", x=np.load(files / "stream/1.npz")["x"])
    np.savez(folder / "2.npz", x=np.load(files / "vectors.npz")["x"])
    result = shels("run", model, folder, "--device", "cpu")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: 2.npz: the model was trained on grey images")
    np.savez(folder / "2.npz", x=np.load(files / "stream/10.npz")["x"] / np.float32(255))
    assert "2.npz" in shels("run", model, folder, "--device", "cpu").stdout


def test_events_of_a_batch_that_was_taken_up_again_stay_together():
    log = [
        {"kind": "observed", "batch": "a"},
        {"kind": "accommodated", "batch": "a", "name": "x"},
        {"kind": "accommodated", "batch": "", "name": "y", "by": "recovered"},
        {"kind": "renamed", "batch": "", "by": "person"},
        {"kind": "resumed", "batch": "a", "done": "a:1"},
        {"kind": "observed", "batch": "b", "done": "b:1"},
        {"kind": "observed", "batch": "c"},
    ]
    done = {"a:1": [log[0], log[1], log[2], log[4]], "b:1": [log[5]]}
    assert events_by_batch(log) == (done, [log[6]])


def test_a_bar_shows_the_share_and_where_an_alarm_begins():
    assert share_bar(0.5, 0.2, 10) == "██┃██░░░░░"
    assert share_bar(0.0, 1.0, 4) == "░░░┃"
    assert share_bar(1.0, 1.1, 4) == "████"


# inspect and revise ---------------------------------------------------------------------------------------


def test_inspect_counts_units_that_nothing_reads(learner, tmp_path):
    network = copied(learner.network)
    with torch.no_grad():
        network.head.weight[:, [3, 5]] = 0
    replace(learner, network=network).save(tmp_path / "m")
    found = done("inspect", tmp_path / "m")
    assert [layer["free"] for layer in found["free_units"]] == [0, 0, 0, 2]
    assert [layer["units"] for layer in found["free_units"]] == [32, 32, 64, 128]
    assert found["version"] is None
    assert found["versions"] == found["events"] == []
    assert found["exclusivity"] == learner.report["exclusivity"]
    assert [row["threshold"] for row in found["classes"]] == pytest.approx(
        learner.detector.thresholds.tolist()
    )


def test_inspect_tells_what_made_each_version(model, files):
    done("accommodate", model, files / "sixes.npz", "--name", 6)
    done("revise", model, "rename", 6, "six")
    result = shels("inspect", model, "--events", 1)
    assert result.exit_code == 0
    assert result.stdout.count("6 renamed to six, by person") == 2  # as a version and as the last event
    made = [row["made_by"] for row in done("inspect", model)["versions"]]
    assert made == ["trained", "6 taken in from 127 images, by person", "6 renamed to six, by person"]
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_classes_are_renamed_merged_unlearned_and_brought_back(model, files):
    done("accommodate", model, files / "sixes.npz", "--name", 6)
    assert done("revise", model, "merge", 6, 0)["classes"] == [0, 1, 2, 3]
    result = shels("revise", model, "unlearn", 3)
    assert "warning: the network was trained on 3" in result.stderr
    assert "3 is not known any more" in result.stdout
    back = done("revise", model, "rollback", 2)
    assert (back["classes"], back["version"]) == ([0, 1, 2, 3, 6], 2)
    assert Home(model).versions() == [1, 2, 3, 4]
    assert Home(model).events()[-1]["kind"] == "rolled-back"


def test_rollback_repairs_a_damaged_pointer(model):
    Home(model).adopt()
    (model / "current").write_text("nonsense")
    assert done("revise", model, "rollback", 1)["version"] == 1
    assert Learner.load(model, "cpu").classes == (0, 1, 2, 3)


def test_a_damaged_version_is_refused_with_the_way_back_to_the_newest_that_is_whole(model):
    for old, new in ((0, "a"), (1, "b"), (2, "c")):
        done("revise", model, "rename", old, new)
    for version in ("0004", "0003"):  # the one in use, and the one before
        path = next((model / "models" / version).glob("detector-*"))
        content = path.read_bytes()
        path.unlink()  # versions may share it
        path.write_bytes(content[:-9])
    for command in (["inspect", model], ["detect", model, "x.npz"], ["revise", model, "rollback", 3]):
        said = fails(1, *command)
        assert "damaged" in said
        assert said.endswith(f"; version 2 is whole: shels revise {model} rollback 2 puts it in use")
    assert done("revise", model, "rollback", 2)["done"] == "version 2 is in use again, instead of 4"
    assert done("revise", model, "rollback", 2)["done"] == "version 2 is in use again"
    assert done("inspect", model)["version"] == 2


@pytest.mark.parametrize(
    ("code", "action", "said"),
    [
        (2, ["renam", 0, 1], "did you mean 'rename'"),
        (2, ["renam"], "did you mean 'rename'"),
        (2, ["rename", 0], "rename takes OLD NEW"),
        (2, ["rollback"], "rollback takes VERSION, got nothing: shels revise "),
        (2, ["rename", 0, 1], "class 1 is known already"),
        (2, ["rename", 0, 0], "nothing to do"),
        (2, ["merge", 0, 9], "unknown class '9'"),
        (2, ["unlearn", "cow"], "unknown class 'cow'"),
        (2, ["rollback", "first"], "whole number"),
        (1, ["rollback", 1], "no earlier versions"),
        (1, ["split", 0], "no images of all of 0"),
    ],
)
def test_a_revision_that_cannot_be_done_leaves_the_model_as_it_is(model, code, action, said):
    before = contents(model)
    assert said in fails(code, "revise", model, *action)
    assert contents(model) == before


# train and help -------------------------------------------------------------------------------------------


def test_the_learner_is_laid_over_the_preset(tmp_path):
    train = ["train", "digits", "--known", "0,1", "--steps", 5, "--device", "cpu", "--out", tmp_path / "m"]
    assert "did you mean 'penalty'" in fails(2, *train, "--learner", "penality")
    done(*train, "--learner", "penalty")
    settings = json.loads((tmp_path / "m/model.json").read_text())["settings"]
    assert settings["accommodation"]["kind"] == "penalty"
    assert settings["rule"]["kind"] == "accept-share"


@pytest.mark.parametrize("command", ["accommodate", "run", "inspect", "revise"])
def test_every_help_has_an_example_and_fits_80_columns(command):
    result = shels(command, "--help")
    assert result.exit_code == 0
    assert f"\n shels {command} m" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
