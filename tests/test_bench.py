"""Benchmarks: what they measure and how it is written down; how fast it was is no test."""

from __future__ import annotations

import json
import subprocess

import pytest
from typer.testing import CliRunner

from shels import bench
from shels.cli.app import app
from shels.errors import SettingsError

MEASURE = bench.Measure("training", "fit", 40, "steps", 0, "a plain loop")


def shels(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


@pytest.fixture
def stub(monkeypatch):
    """Stages that take no time: a comparison, and a measure with nothing to compare."""
    done = [
        bench.Measure("training", "fit", 40, "steps", 2.0, "a plain loop", 1.0, 2.0),
        bench.Measure("accommodation", "500 images", 1, "classes", 0.25),
    ]
    monkeypatch.setattr(bench, "stages", lambda plan: {"all": lambda: done})


def test_times_are_medians_and_the_ratio_is_the_median_over_turns(monkeypatch):
    times = iter([2.0, 1.0, 4.0, 4.0, 6.0, 2.0])
    monkeypatch.setattr(bench, "seconds", lambda work: next(times))
    found = bench.compare(MEASURE, int, int, rounds=3)
    assert (found.seconds, found.plain_seconds, found.ratio) == (4.0, 2.0, 2.0)
    assert found.rate == 10
    assert found.plain_rate == 20


def test_the_first_turn_does_not_count():
    calls = []
    bench.compare(MEASURE, lambda: calls.append("ours"), lambda: calls.append("plain"), rounds=2)
    assert calls == ["ours", "plain"] * 3


def test_a_plan_is_short_on_request_and_has_a_round_at_least():
    assert bench.plan(quick=True) == bench.QUICK
    assert bench.plan(rounds=7).rounds == 7
    with pytest.raises(SettingsError, match="rounds must be 1 or more, got 0"):
        bench.plan(rounds=0)


def test_training_is_compared_with_a_plain_loop():
    found = bench.alone(rounds=1, steps=1)
    assert (found.stage, found.amount, found.unit, found.against) == ("training", 1, "steps", "a plain loop")
    assert found.seconds > 0
    assert found.ratio == pytest.approx(found.seconds / found.plain_seconds)


def test_stacked_trials_are_compared_with_the_same_ones_in_turn():
    found = bench.stacked(rounds=1, together=2, steps=1)
    assert (found.what, found.amount, found.unit) == ("2 trials stacked", 2, "steps")
    assert found.against == "one by one"
    assert found.ratio > 0


def test_evaluation_and_detection_are_compared_with_the_forward_pass():
    found = [bench.evaluation(1, images=10), *bench.detection(1, images=10)]
    assert [each.stage for each in found] == ["evaluation", "detection", "detection", "detection"]
    assert [each.amount for each in found] == [20, 10, 10, 10]
    assert {each.against for each in found} == {"forward pass"}
    assert all(each.ratio > 0 for each in found)


def test_images_that_come_alone_are_judged_from_pixels_on_by_each_of_our_detectors():
    found = bench.one_by_one(1, images=2)
    names = [
        f"{name}, {net}"
        for net in ("six-conv-256", "vgg32")
        for name in ("gaussian", "fused", "fused-learned")
    ]
    assert [each.what for each in found] == names
    assert all(each.amount == 2 and each.ratio > 0 for each in found)


def test_imports_are_timed_in_processes_of_their_own(monkeypatch):
    ran = []
    monkeypatch.setattr(subprocess, "run", lambda command, check: ran.append(command[-1]))
    assert bench.importing(rounds=2).against == "import torch"
    assert ran == ["import torch, shels", "import torch"] * 2


def test_the_table_shows_speeds_and_ratios(stub):
    result = shels("bench")
    assert result.exit_code == 0, result.output
    assert ", 1 thread, " in result.stdout  # that tests run with
    assert "20 steps/s" in result.stdout
    assert "40 steps/s" in result.stdout
    assert "2.00" in result.stdout
    assert "0.25 s" in result.stdout


def test_json_is_one_document_and_the_file_holds_the_same(stub, tmp_path):
    result = shels("bench", "--quick", "--rounds", 3, "--json", "--out", tmp_path / "new/speed.json")
    document = json.loads(result.stdout)
    assert document == json.loads((tmp_path / "new/speed.json").read_text())
    assert document["plan"] == {"rounds": 3, "steps": 2, "together": 2, "images": 50}
    assert document["machine"]["versions"].keys() == {"shels", "torch", "python"}
    first, second = document["measures"]
    assert (first["rate"], first["plain_rate"], first["ratio"]) == (20, 40, 2)
    assert second["plain_rate"] is None


def test_wrong_usage_is_told_before_anything_is_measured(stub, tmp_path):
    assert shels("bench", "--rounds", 0).exit_code == 2
    (tmp_path / "file").write_text("mine")
    result = shels("bench", "--out", tmp_path / "file/speed.json")
    assert result.exit_code == 1
    assert "cannot be written to" in result.stderr


def test_the_help_has_examples_and_fits_80_columns():
    result = shels("bench", "--help")
    assert "\n shels bench --quick" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


@pytest.mark.slow
def test_every_stage_measures_something():
    measures = [each for work in bench.stages(bench.QUICK).values() for each in work()]
    stages = {each.stage for each in measures}
    assert stages == {"training", "evaluation", "detection", "accommodation", "import"}
    assert all(each.seconds > 0 for each in measures)
