"""Learning class by class, on digits: what is recorded, what is shared, what survives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from shels.data.sources import load_named
from shels.errors import AccommodationError, SettingsError
from shels.experiments import engine, incremental
from shels.experiments.catalogue import CATALOGUE
from shels.experiments.features import Features
from shels.experiments.methods import METHODS, initial_training
from shels.experiments.preparing import prepared
from shels.experiments.records import Records
from shels.learning.methods.fine_tune import FineTuneMethod
from shels.runtime import finished
from shels.training import fit as fit_network

DIGITS = CATALOGUE["incremental/digits"]


def trials(method, count=1):
    """Trials that train for a moment."""
    made = DIGITS.trials(METHODS[method], count)
    short = replace(made[0].settings.training, steps=60, check_every=60)
    return [replace(trial, settings=replace(trial.settings, training=short)) for trial in made]


def source(name, size):
    del size
    return load_named(name)


def run(asked, directory):
    return list(engine.run(asked, Records(directory), source, device="cpu"))


def results(advances):
    return [advance.result for advance in advances if advance.kind == "finished"]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    asked = [*trials("gaussian"), *trials("slda"), *trials("fine-tune")]
    found = results(run(asked, tmp_path_factory.mktemp("incremental")))
    return {result.trial.method: result for result in found}


def test_a_trial_says_how_it_stood_after_each_class(done):
    result = done["gaussian"]
    course, trial = result.details["course"], result.trial
    assert [stage["class"] for stage in course] == [None, *trial.novel]
    assert [stage["classes"] for stage in course] == [7, 8, 9, 10]
    assert course[0]["newest"] is None
    assert course[-1]["auroc"] is None
    assert all(0 <= stage["overall"] <= 1 for stage in course)
    assert course[-1]["overall"] == result.metrics["closed_set_accuracy"]


def test_the_final_accuracy_is_that_of_all_classes_by_their_samples(done):
    for result in done.values():
        classes = result.details["per_class"].values()
        right = sum(each["samples"] * each["named"] for each in classes)
        every = sum(each["samples"] for each in classes)
        assert result.metrics["closed_set_accuracy"] == pytest.approx(right / every)
        assert every == len(load_named("digits").test)


def test_what_was_added_and_what_is_with_rejection_follow_from_the_classes(done):
    result = done["slda"]
    per_class = result.details["per_class"]
    added = np.mean([per_class[str(name)]["named"] for name in result.trial.novel])
    assert result.metrics["added_accuracy"] == pytest.approx(added)
    samples = np.array([each["samples"] for each in per_class.values()])
    kept = np.array([each["right"] for each in per_class.values()])
    assert result.metrics["known_accuracy"] == pytest.approx((samples * kept).sum() / samples.sum())


def test_fine_tuning_forgets_and_gaussians_do_not(done):
    assert done["fine-tune"].metrics["forgetting"] > 0.5
    assert done["fine-tune"].metrics["first_accuracy"] < 0.5
    assert abs(done["gaussian"].metrics["forgetting"]) < 0.1
    assert done["gaussian"].metrics["added_accuracy"] > 0.7


def test_methods_that_train_alike_share_their_first_network(done):
    checks = {name: result.details["checks"] for name, result in done.items()}
    assert checks["gaussian"] == checks["slda"]
    assert checks["gaussian"] != checks["fine-tune"]  # an ordinary classifier
    keys = {
        name: initial_training(name, trials(name)[0].settings).key
        for name in ("gaussian", "proximal", "ags-cl")
    }
    assert len(set(keys.values())) == 3
    detection = CATALOGUE["within/digits"].trials(METHODS["shels"], 1)[0]
    assert initial_training("shels", detection.settings).key == keys["gaussian"]


def test_detection_is_measured_before_each_class_comes(done):
    course = done["gaussian"].details["course"]
    metrics = done["gaussian"].metrics
    assert metrics["auroc"] == pytest.approx(np.mean([stage["auroc"] for stage in course[:-1]]))
    assert metrics["novel_accuracy"] == pytest.approx(np.mean([stage["rejected"] for stage in course[:-1]]))


def test_what_was_finished_before_the_end_is_not_done_again(tmp_path):
    asked = [*trials("slda"), *trials("maha")]
    for advance in engine.run(asked, Records(tmp_path), source, device="cpu"):
        if advance.kind == "finished":
            break  # cut off after the first method
    first = (tmp_path / "trials.jsonl").read_text()
    assert first.count("\n") == 1
    again = results(run(asked, tmp_path))
    assert [result.trial.method for result in again] == ["maha"]
    assert (tmp_path / "trials.jsonl").read_text().startswith(first)
    assert not list((tmp_path / "unfinished").glob("*.safetensors"))


def test_a_trial_that_cannot_take_a_class_in_fails_alone(tmp_path, monkeypatch):
    take_in = FineTuneMethod.take_in

    def refusing(self, new):
        if new.seed == 0:
            raise AccommodationError("not today")
        return (yield from take_in(self, new))

    monkeypatch.setattr(FineTuneMethod, "take_in", refusing)
    advances = run([*trials("fine-tune", 2), *trials("slda")], tmp_path)
    failed = [advance for advance in advances if advance.kind == "failed"]
    assert [(each.message, [t.seed for t in each.trials]) for each in failed] == [("not today", [0])]
    assert sorted((r.trial.method, r.trial.seed) for r in results(advances)) == [
        ("fine-tune", 1),
        ("slda", 0),
    ]


def test_trainings_of_one_shape_are_run_together(monkeypatch):
    trained, data = [], load_named("digits")
    for trial in trials("fine-tune", 2):
        training = prepared([trial], data, data.train.inputs, data.train.inputs.device)
        start = initial_training(trial.method, trial.settings).objective(training.network, training.settings)
        fit = fit_network(training.network, start.loss, training.data, start.settings, seed=0)
        trained.append(incremental.TrainedTrial(trial, training, fit))
    calls = []
    whole = incremental.fit_trials

    def counting(given, *rest, **more):
        calls.append(len(given))
        return whole(given, *rest, **more)

    monkeypatch.setattr(incremental, "fit_trials", counting)
    shares = []
    features = Features(data, data.train.inputs, data.test.inputs, torch.float32)
    work = incremental.learn_classes(trained, features)
    found = finished(work, each=shares.append)
    assert calls == [2, 2, 2]
    assert shares == pytest.approx([1 / 3, 2 / 3, 1])
    assert set(found) == {trial.key for trial, _, _ in trained}


def test_a_way_of_detection_cannot_be_asked_to_learn():
    with pytest.raises(
        SettingsError, match="knn is a way of detection, and incremental/digits asks for learning"
    ):
        DIGITS.trials(METHODS["knn"], 1)
