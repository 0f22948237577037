"""Pairs of a learner and a detector on the command line: trained, used, grown, refused."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from shels.agent.home import Home
from shels.config.presets import DEFAULT
from shels.data.sources import load_named
from shels.detection.protocol import Labelled
from shels.learner.learner import Learner
from shels.learner.pairing import detector_beside, paired
from shels.learning.registry import LEARNERS, method_of
from shels.report import trained
from shels.report.words import prose
from tests.cli.commands import contents, done, fails, shels

TRAIN = ["train", "digits", "--known", "0,1,2", "--device", "cpu", "--steps", 40, "--learning-rate", 0.003]
PAIRS = [("gaussian", "knn"), ("slda", "mahalanobis"), ("ewc", "max-logit"), ("gdumb", "energy")]


def settings_of(model):
    return json.loads((model / "model.json").read_text())["settings"]


@pytest.fixture(scope="module")
def sixes(tmp_path_factory):
    """An .npz file with forty sixes."""
    data, path = load_named("digits").train, tmp_path_factory.mktemp("files") / "sixes.npz"
    np.savez(path, x=data.inputs[data.labels == 6][:40, 0].numpy())
    return path


@pytest.fixture
def model(learner, tmp_path):
    """A plain model of the digits 0 to 3, with learner gaussian and its own detector."""
    learner.save(tmp_path / "m")
    return tmp_path / "m"


# train ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("learner_name", "detector"), PAIRS)
def test_a_model_of_a_pair_is_trained_measured_grown_and_revised(learner_name, detector, sixes, tmp_path):
    model = tmp_path / "m"
    made = shels(*TRAIN, "--learner", learner_name, "--detector", detector, "--out", model)
    words = f"classes are named by {learner_name}, novel samples are told by {detector}"
    assert f"method       {words}\n" in made.stdout
    settings, ordinary = settings_of(model), LEARNERS[learner_name].standard
    assert settings["network"]["head"] == ("linear" if ordinary else "cosine")
    assert (settings["training"]["alpha"] == 0) == ordinary
    assert done("evaluate", model, "digits")["metrics"]["closed_set_accuracy"] > 0.8
    assert done("detect", model, sixes)["samples"] == 40
    grown = done("accommodate", model, sixes, "--name", 6)
    assert (grown["classes"], grown["version"]) == ([0, 1, 2, 6], 2)
    told = done("inspect", model)
    assert (told["learner"]["kind"], told["detector"], told["method"]) == (learner_name, detector, words)
    assert [row["name"] for row in told["classes"]] == [0, 1, 2, 6]
    assert done("revise", model, "rename", 6, "six")["classes"] == [0, 1, 2, "six"]
    assert f"detector {detector} does not unlearn classes" in fails(1, "revise", model, "unlearn", 0)
    assert done("revise", model, "rollback", 1)["classes"] == [0, 1, 2]


def test_an_ordinary_network_is_trained_unless_told_otherwise(tmp_path):
    made = done(*TRAIN, "--learner", "ewc", "--head", "cosine", "--alpha", 0.01, "--out", tmp_path / "m")
    assert (made["learner"], made["detector"]) == ("ewc", "max-logit")
    assert settings_of(tmp_path / "m")["network"]["head"] == "cosine"
    assert settings_of(tmp_path / "m")["training"]["alpha"] == 0.01


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--learner", "gausian"], "unknown learner 'gausian'; did you mean 'gaussian'?"),
        (["--detector", "mahalonobis"], "unknown detector 'mahalonobis'; did you mean 'mahalanobis'?"),
        (["--detector", "energy"], "it reads the network's last layer"),
        (["--detector", "knn", "--learner", "ewc"], "it remembers features"),
        (["--detector", "gaussian", "--learner", "slda"], "it goes with learner gaussian alone"),
        (["--detector", "odin"], "Learners that it goes with: none"),
        (["--head", "linaer"], "did you mean 'linear'?"),
        (["--method", "penalty"], "no such option"),
    ],
)
def test_wrong_names_and_pairs_are_refused_before_data_are_looked_for(given, said, tmp_path):
    out = tmp_path / "m"
    assert said in fails(2, "train", tmp_path / "no-such-data", *given, "--out", out)
    assert not out.exists()


# run ------------------------------------------------------------------------------------------------------

RUN = ["--batch-size", 150, "--device", "cpu"]


@pytest.fixture(scope="module")
def data_set(tmp_path_factory):
    """A data set of the digits 0 to 3 and 6, as an .npz file."""
    data, path, arrays = load_named("digits"), tmp_path_factory.mktemp("set") / "set.npz", {}
    for name, part in (("train", data.train), ("test", data.test)):
        some = part.only((0, 1, 2, 3, 6))
        arrays |= {f"x_{name}": some.inputs[:, 0].numpy()}
        arrays |= {f"y_{name}": np.array(some.classes)[some.labels.numpy()]}
    np.savez(path, **arrays)
    return path


def test_a_run_that_names_what_the_model_has_goes_on(model, data_set):
    result = done("run", model, data_set, *RUN, "--detector", "gaussian", "--learner", "gaussian")
    assert (result["learner"], result["detector"]) == ("gaussian", "gaussian")
    assert "refitted" not in {event["kind"] for event in Home(model).events()}


def test_another_detector_is_fitted_on_the_network_that_the_model_has(model, learner, data_set):
    result = shels("run", model, data_set, *RUN, "--detector", "knn", "--learner", "gaussian")
    assert result.exit_code == 0, result.output
    assert "note: refitted on the model's network, as version 2" in result.stderr
    assert "method       classes are named by gaussian, novel samples are told by knn" in result.stdout
    home = Home(model)
    event = next(event for event in home.events() if event["kind"] == "refitted")
    assert (event["learner"], event["detector"], event["version"]) == ("gaussian", "knn", 2)
    fitted = home.load("cpu", version=2)
    assert fitted.detector.name == "knn"
    assert all(
        torch.equal(one, other)
        for one, other in zip(fitted.network.parameters(), learner.network.parameters(), strict=True)
    )
    assert fitted.report["best"] == learner.report["best"]
    assert home.load("cpu").classes == (0, 1, 2, 3, 6)  # and the stream was lived through
    assert isinstance(home.load("cpu", version=1).detector, type(learner.detector))
    made = done("inspect", model)["versions"][1]["made_by"]
    assert made == "refitted with learner gaussian and detector knn"
    again = done("run", model, data_set, *RUN, "--detector", "knn", "--learner", "gaussian")
    assert again["skipped"] == again["batches"]
    changed = fails(2, "run", model, data_set, *RUN, "--detector", "mahalanobis")
    assert "classes were changed since it was trained" in changed
    assert "train the model with --detector mahalanobis --learner gaussian" in changed


def test_a_refit_is_what_a_training_with_that_pair_would_have_given(data_set, tmp_path):
    """Trained afresh with the pair, the same network comes out, so thresholds must be the same too."""
    small = ["--known", "0,1,2", "--steps", 20, "--learning-rate", 0.003, "--device", "cpu"]
    done("train", "digits", *small, "--out", tmp_path / "a")
    done("train", "digits", *small, "--learner", "slda", "--detector", "knn", "--out", tmp_path / "b")
    done("run", tmp_path / "a", data_set, *RUN, "--learner", "slda", "--detector", "knn")
    refitted, straight = Home(tmp_path / "a").load("cpu", version=2), Learner.load(tmp_path / "b", "cpu")
    assert refitted.settings == straight.settings
    assert torch.allclose(refitted.detector.thresholds, straight.detector.thresholds)
    assert refitted.report["held_out"] == straight.report["held_out"]


@pytest.mark.parametrize(
    ("stream", "given", "said"),
    [
        ("digits", ["--detector", "kn"], "did you mean 'knn'?"),
        ("digits", ["--detector", "knn", "--learner", "ewc"], "does not go with learner ewc"),
        ("digits", ["--learner", "ewc"], "learner ewc takes a network that is trained otherwise"),
        ("digits", ["--learner", "proximal"], "train the model with --detector shels --learner proximal"),
        ("sixes", ["--detector", "knn"], "train the model with --detector knn --learner gaussian"),
    ],
)
def test_what_takes_a_new_training_is_refused_and_the_model_left_as_it_is(model, sixes, stream, given, said):
    before = contents(model)
    assert said in fails(2, "run", model, sixes if stream == "sixes" else stream, *given)
    assert contents(model) == before


def test_other_samples_than_the_model_was_trained_on_cannot_refit_it(learner, data_set, tmp_path):
    replace(learner, seed=learner.seed + 1).save(tmp_path / "m")  # would hold out other samples
    said = fails(2, "run", tmp_path / "m", data_set, *RUN, "--detector", "knn")
    assert "not what the model was trained on" in said


# methods and reports --------------------------------------------------------------------------------------


def test_methods_are_listed_with_task_settings_and_who_goes_with_whom():
    told = done("methods")
    rows = {row["name"]: row for row in told["methods"]}
    assert {"knn", "vim", *LEARNERS} <= set(rows)
    assert (rows["knn"]["task"], rows["ewc"]["task"]) == ("detection", "learning")
    assert rows["ewc"]["detector"] == "max-logit"
    assert rows["gaussian"]["detector"] == "gaussian"
    assert rows["gdumb"]["settings"]["epochs"] == 63
    for each in told["pairs"]:
        for name in each["learners"]:
            paired(DEFAULT, name, each["detectors"][0])  # raises where they do not go together
    assert {"detectors": ["odin"], "learners": []} in told["pairs"]


def test_what_makes_an_ablation_is_told_and_a_bound_has_nothing_to_set():
    rows = {row["name"]: row for row in json.loads(shels("methods", "--json").stdout)["methods"]}
    assert rows["shels-no-sparsity"]["settings"] == rows["penalty"]["settings"] | {"sparsity": 0.0}
    free = {"beta": 0.0, "zeroed": "never"}
    assert rows["shels-no-penalty"]["settings"] == rows["penalty"]["settings"] | free
    assert rows["joint-bound"]["settings"] == {}
    assert "sparsity" not in rows["ewc"]["settings"]  # an ordinary classifier has none


def test_methods_fit_a_narrow_terminal_and_no_name_is_broken():
    shown = shels("methods", columns=80).stdout
    assert max(map(len, shown.splitlines())) <= 80
    words = shown.split()
    assert {"relative-mahalanobis", "exclusive-sparsity", "gdumb-scratch"} <= set(words)
    assert "lowest_rate 0.0005" in " ".join(words)


@pytest.mark.parametrize(
    ("name", "detector", "said"),
    [
        ("slda", "knn", "Classes are named by SLDA, novel samples are told by k-NN:"),
        ("gaussian", "mahalanobis", "Classes are named by Gaussians, novel samples are told by Mahalanobis:"),
    ],
)
def test_a_page_says_by_what_a_pair_decides(learner, name, detector, said):
    settings = paired(learner.settings, name, detector)
    entry, context = detector_beside(learner.network, {}, settings, learner.classes, detector)
    pair = replace(learner, settings=settings, detector=entry.fit(context, _part(learner)))
    words = " ".join(trained.training(pair).blocks)
    assert said in words
    assert "named rightly by the network's last layer" in words


def _part(learner):
    data = load_named("digits").train.only(learner.classes)
    return Labelled(learner.views(data.inputs), data.labels)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gaussian", "in a single pass, without a training step and without any image of the classes before"),
        ("ewc", "by training the network and without any image of the classes before"),
        ("gdumb", "by training the network and with images that it kept of the classes before"),
    ],
)
def test_a_page_says_how_a_class_is_learned(learner, name, said):
    method = method_of(paired(learner.settings, name).accommodation)
    assert f"It learns them {said}, and goes on watching." in prose("helped", method=method)
