"""`shels detect --out` as a user meets it, without a cluster."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from PIL import Image

from shels.data.sources import load_named
from tests.cli.commands import done, fails, shels


@pytest.fixture(scope="module")
def model(learner, tmp_path_factory):
    directory = tmp_path_factory.mktemp("judging") / "model"
    learner.save(directory)
    return directory


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "digits"
    place.mkdir()
    for number, image in enumerate(load_named("digits").test.inputs[:20, 0]):
        Image.fromarray(image.numpy()).save(place / f"{number:04d}.png")
    (place / "0003.png").write_bytes(b"")
    (place / "notes.md").write_text("")
    return place


def test_verdicts_are_written_and_counted_and_not_made_again(model, folder, tmp_path):
    out = tmp_path / "v.parquet"
    first = done("detect", model, folder, "--out", out)
    assert {name: first[name] for name in ("samples", "unreadable", "parts", "kept")} == {
        "samples": 19,
        "unreadable": 1,
        "parts": 1,
        "kept": 0,
    }
    assert first["other_files"] == {".md": 1}
    again = shels("detect", model, folder, "--out", out)
    assert again.exit_code == 0, again.output
    assert f"{out}, 1 part, 1 of them from an earlier run" in again.stdout
    assert "unreadable   1; column reason says why" in again.stdout
    plain = done("detect", model, folder)
    assert plain["novel"] == first["novel"]
    lines = tmp_path / "v.jsonl"
    done("detect", model, folder, "--out", lines)
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    assert sorted(rows, key=lambda row: row["source"]) == sorted(plain["rows"], key=lambda row: row["source"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--out", "v.parquet", "--csv", "v.csv"], "--out and --csv contradict each other"),
        (["--out", "v.parquet", "--explain"], "--out and --explain contradict each other"),
        (["--out", "v.parquet", "--only-novel"], "--out and --only-novel contradict each other"),
        (["--out", "v.txt"], "--out must end in .parquet, .csv, .jsonl"),
        (["--cluster", "auto"], "--cluster is for many images; give --out"),
        (["s3://bucket/photos"], "s3://bucket/photos is for many images; give --out"),
        (["--out", "v.csv", "--cluster", "ray://head:10001"], "ray job submit"),
    ],
)
def test_options_that_do_not_go_together_are_refused(model, folder, words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert said in fails(2, "detect", model, folder, *words)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["digits"]


def test_where_no_image_can_be_read_that_is_an_error_and_the_rows_say_why(model, tmp_path):
    (tmp_path / "a.png").write_bytes(b"")
    said = fails(1, "detect", model, tmp_path / "a.png", "--out", tmp_path / "v.csv")
    assert "no image can be read" in said
    assert "it is empty" in (tmp_path / "v.csv").read_text()


def test_a_command_without_a_cluster_imports_neither_ray_nor_pyarrow(model, folder, tmp_path):
    code = (
        "import sys; from shels.cli.app import app\n"
        "try: app(sys.argv[1:])\n"
        "finally: print([each for each in ('ray', 'pyarrow') if each in sys.modules], file=sys.stderr)"
    )
    words = ["detect", model, folder, "--out", tmp_path / "v.csv"]
    ran = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert ran.stderr.splitlines()[-1] == "[]"
