"""Models, a home and figures that the version before the tree was put in order wrote: they hold today."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from shels import Learner
from shels.agent.agent import OpenWorldAgent
from shels.agent.home import Home

BEFORE = Path(__file__).parent / "fixtures" / "before"
MODELS = ("gaussian", "penalty", "proximal", "slda-knn", "ewc-msp")


@pytest.fixture(scope="module")
def images():
    with np.load(BEFORE / "images.npz") as file:
        return torch.from_numpy(file["x"])


@pytest.mark.parametrize("name", MODELS)
def test_a_model_saved_before_judges_as_it_did(name, images):
    learner = Learner.load(BEFORE / name, "cpu")
    verdicts = learner.judge(images)
    with np.load(BEFORE / "verdicts.npz") as file:
        for field in ("predicted", "novel"):
            np.testing.assert_array_equal(getattr(verdicts, field).numpy(), file[f"{name}/{field}"])
        for field in ("score", "threshold", "p_value"):
            np.testing.assert_allclose(
                getattr(verdicts, field), file[f"{name}/{field}"], rtol=1e-4, atol=1e-5
            )
        probabilities = learner.probabilities(images)
        np.testing.assert_allclose(probabilities, file[f"{name}/probabilities"], atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_saved_before_saves_again_to_the_same_files(name, tmp_path):
    Learner.load(BEFORE / name, "cpu").save(tmp_path / "again")
    names = [sorted(path.name for path in place.iterdir()) for place in (BEFORE / name, tmp_path / "again")]
    assert names[0] == names[1]


def test_a_home_saved_before_goes_on(tmp_path, images):
    shutil.copytree(BEFORE / "home", tmp_path / "home")
    home = Home(tmp_path / "home")
    agent = OpenWorldAgent(home.load("cpu"), home=home)
    assert agent.learner.classes == (0, 1, 2, 3, "six", "novel-2")
    assert (home.version, home.versions()) == (4, [1, 2, 3, 4])
    assert [event["kind"] for event in home.events()].count("accommodated") == 2
    assert len(agent.model.buffers.of_class("novel-2")) == 27
    agent.model.rename("novel-2", "seven")
    assert home.load("cpu").classes == (0, 1, 2, 3, "six", "seven")
    assert json.loads((tmp_path / "home/events.jsonl").read_text().splitlines()[-1])["kind"] == "renamed"
