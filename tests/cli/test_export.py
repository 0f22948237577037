"""`shels export` as a user meets it."""

from __future__ import annotations

import json

import onnxruntime
import pytest

from tests.cli.commands import contents, done, fails, shels


@pytest.fixture(scope="module")
def model(learner, tmp_path_factory):
    place = tmp_path_factory.mktemp("saved") / "model"
    learner.save(place)
    return place


def test_export_writes_one_file_and_says_how_it_compares(model, tmp_path):
    before = contents(model)
    result = shels("export", model, tmp_path / "m.onnx", "--check", "digits")
    assert result.exit_code == 0, result.output
    assert "checked on   1000 of the inputs given\n" in result.stdout
    assert "verdicts     100.0 % the same class, 100.0 % the same verdict as the model's\n" in result.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]
    assert contents(model) == before
    notes = onnxruntime.InferenceSession(tmp_path / "m.onnx").get_modelmeta().custom_metadata_map
    assert json.loads(notes["classes"]) == [0, 1, 2, 3]


def test_the_format_follows_the_name_and_the_result_can_be_json(model, tmp_path):
    document = done("export", model, tmp_path / "m.pt2", "--format", "torch")
    assert (document["format"], document["checked_on"]) == ("torch", "200 made-up inputs")
    assert document["comparison"]["different"] == 0
    assert document["bytes"] == (tmp_path / "m.pt2").stat().st_size


def test_what_cannot_be_exported_is_one_line(model, tmp_path):
    assert "must end in .onnx or .pt2" in fails(2, "export", model, tmp_path / "m.tflite")
    assert "must end in .onnx, got" in fails(2, "export", model, tmp_path / "m.pt2", "--format", "onnx")
    assert "there is no file or folder" in fails(
        1, "export", model, tmp_path / "m.onnx", "--check", tmp_path / "none"
    )
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mk.py").touch()
    said = fails(1, "export", model, tmp_path / "mk.py/x.onnx")
    assert said.endswith(f"x.onnx: {tmp_path / 'mk.py'} is a file, not a folder; name another place")
