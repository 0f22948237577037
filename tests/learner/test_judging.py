"""Verdicts on lists of any length: the same as ever, few images in memory, and nothing done twice."""

from __future__ import annotations

import csv
import gc
import json
import os
import signal
import subprocess
import sys
import weakref
from dataclasses import replace

import pytest
from PIL import Image
from pyarrow import parquet

from shels.data import manner, reading
from shels.data.preparation import Preparation
from shels.data.sources import load_named
from shels.errors import DataError, MissingExtraError, ModelFileError, SettingsError
from shels.learner import judging as judging_module
from shels.learner import shards
from shels.learner.assessment import file_verdicts
from shels.learner.judging import group_size, judging
from shels.runtime import finished

COUNT = 120


@pytest.fixture(scope="module")
def model(learner, tmp_path_factory):
    directory = tmp_path_factory.mktemp("judging") / "model"
    learner.save(directory)
    return directory


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Digits as PNG files, three of which are broken, over several shards of 50."""
    place = tmp_path_factory.mktemp("judging") / "digits"
    place.mkdir()
    for number, image in enumerate(load_named("digits").test.inputs[:COUNT, 0]):
        Image.fromarray(image.numpy()).save(place / f"{number:04d}.png")
    for number in (7, 60, 61):
        (place / f"{number:04d}.png").write_bytes(b"no image")
    return place


def judge(learner, model, folder, out, **given):
    return finished(judging(learner, model, [str(folder)], out, **({"rows": 50} | given)))


def rows_in(out):
    if out.is_dir():
        return [
            row for part in sorted(out.glob("part-*.parquet")) for row in parquet.read_table(part).to_pylist()
        ]
    if out.suffix == ".jsonl":
        return [json.loads(line) for line in out.read_text().splitlines()]
    with out.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_verdicts_are_those_of_the_images_one_by_one(learner, model, folder, tmp_path, suffix):
    out = tmp_path / f"v{suffix}"
    result = judge(learner, model, folder, out, rows=shards.ROWS)
    with manner.file_reading():
        expected = {row.source: row for row in file_verdicts(learner, [folder])}
    rows = rows_in(out)
    assert [row["source"] for row in rows] == sorted(expected)
    for row in rows:
        truth = vars(expected[row["source"]])
        for name in ("verdict", "predicted", "reason"):
            written, known = ("" if each[name] is None else str(each[name]) for each in (row, truth))
            assert written == known
        if truth["novel"] is None:
            assert row["novel"] in (None, "")
            assert row["verdict"] == "unreadable"
        else:
            assert str(row["novel"]) == str(truth["novel"])
            numbers = [float(row[name]) for name in ("score", "threshold", "p_value")]
            assert numbers == [truth["score"], truth["threshold"], truth["p_value"]]
    counts = result.counts
    assert (counts.samples, counts.unreadable) == (COUNT - 3, 3)
    assert counts.novel == sum(row.novel is True for row in expected.values())
    assert not list(tmp_path.glob("*.parts"))


def test_few_images_are_in_memory_however_many_there_are(learner, model, folder, tmp_path, monkeypatch):
    made, most = [], []
    plain = reading.decoded

    def counted(*given):
        found = plain(*given)
        made.extend((len(stack), weakref.ref(stack)) for _, stack in found.stacks)
        most.append(sum(count for count, stack in list(made) if stack() is not None))
        return found

    monkeypatch.setattr(reading, "decoded", counted)
    monkeypatch.setattr(reading, "_cpus", lambda: 2)
    monkeypatch.setattr(judging_module, "_AT_ONCE", 4)
    judge(learner, model, folder, tmp_path / "v.jsonl")
    assert sum(count for count, _ in made) == COUNT - 3
    assert 4 <= max(most) <= 4 * (2 + 1 + 1)  # two threads, one group that waits, one that is handed over
    gc.collect()
    assert all(stack() is None for _, stack in made)


def test_large_images_are_judged_in_smaller_groups():
    assert group_size(Preparation((3, 32, 32))) == 128
    assert group_size(Preparation((3, 1024, 1024))) * 3 * 1024 * 1024 <= 2**26


_KILLED = """
import os, signal, sys
from pathlib import Path
from shels.learner.judging import judging
from shels.learner.learner import Learner
from shels.runtime import finished

model, folder, out, most = sys.argv[1:]
replace, renamed = Path.replace, []

def counted(self, target):
    if "part-" in str(target):
        renamed.append(target)
        if len(renamed) > int(most):
            os.kill(os.getpid(), signal.SIGKILL)
    return replace(self, target)

Path.replace = counted
assert not {"ray", "pyarrow.fs"} & set(sys.modules)
finished(judging(Learner.load(model, "cpu"), Path(model), [folder], Path(out), rows=25))
"""


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_after_kill_9_no_shard_is_done_twice(learner, model, folder, tmp_path, suffix, monkeypatch):
    out = tmp_path / f"v{suffix}"
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, model, folder, out, "3"], capture_output=True, text=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    parts = out if suffix == ".parquet" else tmp_path / "v.csv.parts"
    finished_parts = {path.name: (path.stat().st_ino, path.read_bytes()) for path in parts.glob("part-*")}
    assert sorted(finished_parts) == [f"part-0000{number}{suffix}" for number in range(3)]
    assert list(parts.glob(".part-*")), "it was killed between writing and renaming"
    judged, kept = [], []
    plain = reading.decoded
    monkeypatch.setattr(
        reading, "decoded", lambda entries, *form: judged.extend(entries) or plain(entries, *form)
    )
    monkeypatch.setattr(
        shards.Shards, "finish", lambda self: kept.extend((p.name, p.stat().st_ino) for p in parts.iterdir())
    )
    result = judge(learner, model, folder, out, rows=25)
    assert (result.parts, result.kept) == (5, 3)
    assert len(judged) == COUNT - 75
    assert result.counts.samples == COUNT - 3
    inodes = dict(kept)
    assert all(inodes[name] == inode for name, (inode, _) in finished_parts.items())
    assert not list(parts.glob(".part-*"))
    monkeypatch.undo()
    again = judge(learner, model, folder, out, rows=25)
    assert again.kept == 5
    assert judge(learner, model, folder, tmp_path / f"whole{suffix}", rows=25).kept == 0
    assert rows_in(out) == rows_in(tmp_path / f"whole{suffix}")


def test_another_model_other_images_and_other_settings_are_refused(learner, model, folder, tmp_path):
    out = tmp_path / "v.parquet"
    judge(learner, model, folder, out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    other = tmp_path / "other"
    replace(learner, temperature=2.0).save(other)
    with pytest.raises(ModelFileError, match=r"v\.parquet holds verdicts of another model .*; choose"):
        judge(learner, other, folder, out)
    with pytest.raises(SettingsError, match=r"was begun with .*50"):
        judge(learner, model, folder, out, rows=60)
    fewer = tmp_path / "fewer"
    fewer.mkdir()
    for path in sorted(folder.iterdir())[:70]:
        os.link(path, fewer / path.name)
    with pytest.raises(DataError, match=r"verdicts on other images \(120, now 70\): .* from part 00000 on"):
        judge(learner, model, fewer, out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_an_image_that_was_added_is_noticed(learner, model, tmp_path, folder):
    mine = tmp_path / "mine"
    mine.mkdir()
    for path in sorted(folder.iterdir())[:70]:
        os.link(path, mine / path.name)
    judge(learner, model, mine, tmp_path / "v.parquet")
    os.link(folder / "0100.png", mine / "0100.png")
    with pytest.raises(DataError, match=r"\(70, now 71\): .* differ from part 00001 on"):
        judge(learner, model, mine, tmp_path / "v.parquet")


def test_what_is_there_already_is_never_written_over(learner, model, folder, tmp_path):
    (tmp_path / "v.parquet").mkdir()
    (tmp_path / "v.parquet" / "mine.txt").write_text("mine")
    (tmp_path / "v.csv").write_text("mine")
    for name in ("v.parquet", "v.csv"):
        with pytest.raises(SettingsError, match="is there already; choose another --out, or delete it"):
            judge(learner, model, folder, tmp_path / name)
    with pytest.raises(SettingsError, match=r"--out must end in \.parquet, \.csv, \.jsonl, got"):
        judge(learner, model, folder, tmp_path / "v.xlsx")


def test_parts_that_nothing_is_known_of_are_no_verdicts_of_this_run(learner, model, folder, tmp_path):
    left = tmp_path / "v.jsonl.parts"
    left.mkdir()
    (left / "part-00001.jsonl").write_text('{"source": "of another model", "novel": false}\n' * 50)
    result = judge(learner, model, folder, tmp_path / "v.jsonl")
    assert result.kept == 0
    assert "of another model" not in {row["source"] for row in rows_in(tmp_path / "v.jsonl")}


def test_two_runs_do_not_write_at_the_same_time(learner, model, folder, tmp_path):
    first = judging(learner, model, [str(folder)], tmp_path / "v.jsonl", rows=50)
    next(first)
    with pytest.raises(ModelFileError, match="another run writes into it"):
        judge(learner, model, folder, tmp_path / "v.jsonl")
    finished(first)
    assert len(rows_in(tmp_path / "v.jsonl")) == COUNT


def test_the_first_broken_image_stops_a_strict_run(learner, model, folder, tmp_path):
    with pytest.raises(DataError, match=r"0007\.png is not an image that can be used"):
        judge(learner, model, folder, tmp_path / "v.csv", strict=True)
    assert not (tmp_path / "v.csv").exists()


def test_parquet_without_its_package_is_answered_with_the_install_command(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"needs pyarrow: pip install 'shels\[parquet\]'"):
        shards.check_out(tmp_path / "v.parquet")
