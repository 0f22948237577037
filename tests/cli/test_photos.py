"""`shels train` on photos: what it chooses, says and refuses."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from shels.learner import choosing, feature_cache
from shels.learner.learner import Learner
from shels.model.backbone_library import LITE0, is_installed
from tests.cli.commands import shels

pytestmark = [
    pytest.mark.skipif(not is_installed(), reason="shels[photos] is not installed"),
    pytest.mark.filterwarnings("ignore:.*held-out scores cannot mark"),
]


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Two classes of ten photos of 60 pixels: one bright above, one bright below."""
    monkeypatch.setenv(feature_cache.VARIABLE, str(tmp_path / "cache"))
    draws = np.random.default_rng(0)
    for name, rows in (("above", slice(0, 30)), ("below", slice(30, 60))):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(10):
            pixels = draws.integers(0, 80, (60, 60, 3), dtype=np.uint8)
            pixels[rows] += 150
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    return tmp_path / "photos"


def test_photos_get_a_backbone_and_the_first_lines_say_so(photos, tmp_path):
    result = shels("train", photos, "--epochs", "1", "--device", "cpu", "--out", tmp_path / "m")
    assert result.exit_code == 0, result.output
    assert (
        "photos (60 pixels): the pretrained backbone efficientnet-lite0, most of it trained too"
        in result.stderr
    )
    learner = Learner.load(tmp_path / "m", "cpu")
    assert learner.network.backbone.origin.name == LITE0
    assert learner.preparation.shape == (3, 128, 128)
    found = shels("detect", tmp_path / "m", photos / "above", "--json")
    assert json.loads(found.stdout)["samples"] == 10


def test_a_frozen_backbone_is_quick_the_second_time(photos, tmp_path):
    line = ("train", photos, "--frozen", "--size", "32", "--steps", "20", "--device", "cpu")
    first = shels(*line, "--out", tmp_path / "a")
    assert first.exit_code == 0, first.output
    assert "making features" in first.stderr
    second = shels(*line, "--out", tmp_path / "b")
    assert second.exit_code == 0, second.output
    assert "making features" not in second.stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--backbone", "resnet"), "unknown backbone 'resnet'"),
        (("--backbone", LITE0, "--architecture", "small"), "give one of them"),
        (("--backbone", LITE0, "--preset", "paper"), 'presets "default" and "photos"'),
        (("--backbone", "nothing.onnx"), "there is no file nothing.onnx"),
        (("--backbone", LITE0, "--learner", "ewc"), "gaussian, slda, fecam, ranpac"),
    ],
)
def test_what_cannot_be_is_refused_with_advice(photos, tmp_path, options, says):
    result = shels("train", photos, *options, "--device", "cpu", "--out", tmp_path / "m")
    assert result.exit_code != 0
    assert says in " ".join(result.stderr.split())


def test_a_size_or_an_architecture_that_is_asked_for_means_the_papers_network(photos, tmp_path):
    line = ("train", photos, "--size", "32", "--steps", "2", "--device", "cpu", "--out", tmp_path / "m")
    result = shels(*line)
    assert result.exit_code == 0, result.output
    assert Learner.load(tmp_path / "m", "cpu").network.backbone is None


def test_without_the_package_the_first_lines_say_what_would_help(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(choosing, "is_installed", lambda: False)
    result = shels("train", photos, "--steps", "2", "--device", "cpu", "--out", tmp_path / "m")
    assert result.exit_code == 0, result.output
    assert "no backbone is installed: the paper's network" in result.stderr
