"""Folders as people have them, on the command line: what is left out is said, and --strict stops."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import shutil
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from tests.cli.commands import contents, done, fails, shels

DIGITS = load_digits()


def save(path, row):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray((DIGITS.images[row] * 15.9).astype(np.uint8)).save(path)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Thirty images each of 0, 1 and 7, a broken one and a text among them."""
    folder = tmp_path_factory.mktemp("photos")
    for name in (0, 1, 7):
        for row in np.flatnonzero(DIGITS.target == name)[:30]:
            save(folder / str(name) / f"{row:04d}.png", row)
    (folder / "1" / "broken.png").write_bytes(b"junk")
    (folder / "1" / "notes.txt").write_text("ones")
    return folder


@pytest.fixture(scope="module")
def model(photos, tmp_path_factory):
    out = tmp_path_factory.mktemp("trained") / "model"
    result = shels("train", photos, "--known", "0,1", "--accept", 0.8, "--steps", 40, "--out", out)
    assert result.exit_code == 0, result.output
    assert "files        90 read in " in result.stdout
    assert "1 left out; passed over, as no images: 1 .txt" in result.stdout
    assert f"left out: {photos / '1' / 'broken.png'} is not an image that can be used" in result.stderr
    rows = [line.split() for line in result.stderr.splitlines()]
    assert ["0", "30", "0"] in rows
    assert ["1", "30", "1"] in rows
    return out


SHORT = ("--accept", 0.8, "--steps", 10)


def test_train_names_what_it_leaves_out_in_json_too(photos, tmp_path):
    files = done("train", photos, *SHORT, "--out", tmp_path / "m")["files"]
    assert files["read"] == 90
    assert files["classes"]["1"] == {"read": 30, "left_out": 1}
    [left_out] = files["left_out"]
    assert left_out["file"] == str(photos / "1" / "broken.png")
    assert left_out["class"] == "1"
    assert left_out["reason"].startswith("is not an image that can be used (it is of no kind")
    assert files["other_files"] == {".txt": 1}


def test_data_that_are_no_files_have_no_report_of_files(tmp_path):
    assert done("train", "digits", "--known", "0,1", "--steps", 10, "--out", tmp_path / "m")["files"] is None


def test_strict_stops_at_a_broken_file_before_anything_is_done(model, photos, tmp_path):
    broken = str(photos / "1" / "broken.png")
    before = contents(model)
    assert broken in fails(1, "train", photos, *SHORT, "--out", tmp_path / "m", "--strict")
    assert not (tmp_path / "m" / "model.json").exists()
    assert broken in fails(1, "evaluate", model, photos, "--strict")
    assert broken in fails(1, "detect", model, photos, "--strict")
    assert broken in fails(1, "accommodate", model, photos / "7", broken, "--name", "7", "--strict")
    assert contents(model) == before
    shutil.copytree(model, tmp_path / "copy")
    stopped = shels("run", tmp_path / "copy", photos, "--strict")  # its folders as batches
    assert stopped.exit_code == 1
    assert broken in stopped.stderr


def test_a_zip_and_a_table_give_the_same_model_as_their_folder(photos, tmp_path):
    files = sorted(photos.rglob("*.png"))
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        for file in files:
            archive.write(file, file.relative_to(photos))
    with (tmp_path / "labels.csv").open("w", newline="") as table:
        csv.writer(table).writerows([("path", "label"), *((file, file.parent.name) for file in files)])
    accuracies = set()
    for data in (photos, tmp_path / "photos.zip", tmp_path / "labels.csv"):
        trained = done("train", data, *SHORT, "--out", tmp_path / "m", "--force", "--device", "cpu")
        assert trained["classes"] == ["0", "1", "7"]
        measured = done("evaluate", tmp_path / "m", data)
        assert measured["files"]["read"] == 90
        assert len(measured["files"]["left_out"]) == 1
        accuracies.add(measured["metrics"]["closed_set_accuracy"])
    assert len(accuracies) == 1


def test_detect_gives_a_file_that_cannot_be_read_a_row_that_says_so(model, photos, tmp_path):
    result = shels("detect", model, photos, "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert (document["samples"], document["unreadable"]) == (90, 1)
    [row] = [row for row in document["rows"] if row["verdict"] == "unreadable"]
    assert row["source"] == str(photos / "1" / "broken.png")
    assert row["reason"].startswith("is not an image")
    assert [row[name] for name in ("predicted", "score", "threshold", "p_value", "novel")] == [None] * 5
    printed = list(csv.DictReader(io.StringIO(shels("detect", model, photos, "--csv", "-").stdout)))
    [line] = [line for line in printed if line["verdict"] == "unreadable"]
    assert (line["score"], line["novel"], line["reason"]) == ("", "", row["reason"])
    assert shels("detect", model, photos).stdout.splitlines()[-1].endswith("novel, 1 unreadable")
    novel = json.loads(shels("detect", model, photos, "--only-novel", "--json").stdout)
    assert novel["unreadable"] == 1
    assert all(row["novel"] for row in novel["rows"])


def test_detect_and_train_fail_where_nothing_can_be_read(model, photos, tmp_path):
    assert "broken.png is not an image" in fails(1, "detect", model, photos / "1" / "broken.png")
    for place in ("0/a.png", "0/b.png", "1/a.png"):
        (tmp_path / "bad" / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "bad" / place).write_bytes(b"junk")
    for command in (
        ["detect", model, tmp_path / "bad"],
        ["train", tmp_path / "bad", "--out", tmp_path / "m"],
    ):
        said = fails(1, *command)
        assert "none of 3 files can be read; the first: " in said
        assert "bad/0/a.png is not an image" in said
    (tmp_path / "link.png").symlink_to(tmp_path / "gone.png")
    assert "link.png is a link to" in fails(1, "detect", model, tmp_path / "link.png")


def test_a_class_is_taken_in_without_the_file_that_cannot_be_read(photos, model, tmp_path):
    before = done("detect", model, photos / "7")["samples"]
    found = shels("accommodate", model, photos / "7", photos / "1" / "broken.png", "--name", "seven")
    assert found.exit_code == 0, found.output
    assert f"from {before} images" in found.stdout
    assert f"left out: {photos / '1' / 'broken.png'} is not an image" in found.stderr


def test_a_run_goes_on_without_the_file_that_cannot_be_read(model, photos, tmp_path):
    for batch in (1, 2):
        for row in np.flatnonzero(DIGITS.target < 2)[100 * batch : 100 * batch + 20]:
            save(tmp_path / "stream" / f"{batch}" / f"{row}.png", row)
    broken = tmp_path / "stream" / "2" / "bad.png"
    broken.write_bytes(b"")
    result = shels("run", model, tmp_path / "stream")
    assert result.exit_code == 0, result.output
    assert f"left out: {broken} is not an image that can be used (it is empty)" in result.stderr
    assert "left out     1 files that cannot be read" in result.stdout
    found = done("run", model, tmp_path / "stream", "--again")
    assert found["batches"] == 2
    assert [each["file"] for each in found["files"]["left_out"]] == [str(broken)]


def test_the_table_of_many_classes_has_those_alone_that_lack_something(tmp_path):
    for number in range(40):
        save(tmp_path / "photos" / f"class-{number}" / "a.png", number)
    (tmp_path / "photos" / "class-7" / "b.png").write_bytes(b"")
    for number in range(12):
        (tmp_path / "photos" / "class-9" / f"{number}.png").write_bytes(b"")
    result = shels("evaluate", model_of(tmp_path), tmp_path / "photos")
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stderr.splitlines() if line.strip().startswith("class-")]
    assert rows == [["class-7", "1", "1"], ["class-9", "1", "12"]]
    assert sum(line.startswith("left out: ") for line in result.stderr.splitlines()) == 10
    assert "… and 3 more; --json names them all" in result.stderr


def model_of(folder):
    """Train on two classes that folders of the test are called by."""
    for name in ("class-0", "class-1"):
        for row in np.flatnonzero(DIGITS.target == int(name[-1]))[:20]:
            save(folder / "known" / name / f"{row}.png", row)
    assert shels("train", folder / "known", *SHORT, "--out", folder / "m").exit_code == 0
    return folder / "m"


def test_a_terminal_shows_how_many_files_are_read(model, photos):
    command = [sys.executable, "-m", "shels", "evaluate", str(model), str(photos)]
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=follower, env=environment) as process:
        os.close(follower)
        shown = b"".join(iter(lambda: _read(leader), b""))
    os.close(leader)
    assert process.returncode == 0, shown
    assert b"91/91 files" in shown


def _read(terminal):
    try:
        return os.read(terminal, 4096)
    except OSError:  # how a terminal ends on Linux
        return b""
