"""Learning class by class, on digits: what is recorded, what is shared, what survives."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from shels.data.sources import load_named
from shels.errors import AccommodationError, SettingsError
from shels.experiments import engine, incremental
from shels.experiments import features as features_module
from shels.experiments.catalogue import CATALOGUE
from shels.experiments.features import Features
from shels.experiments.incremental_trial import IncrementalTrial
from shels.experiments.methods import METHODS, find_methods, initial_training
from shels.experiments.preparing import prepared
from shels.experiments.records import Records
from shels.learning.methods.fine_tune import FineTuneMethod
from shels.learning.protocol import views_of
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


def test_a_curve_begins_before_each_class_and_ends_where_its_stage_does(done):
    for method, epochs in (("gaussian", [1]), ("fine-tune", list(range(1, 9)))):
        result = done[method]
        curve, course = result.details["curve"], result.details["course"]
        assert curve[0] == [0, 0, round(course[0]["overall"], 4), None]
        samples = {name: each["samples"] for name, each in result.details["per_class"].items()}
        met = sum(samples[str(name)] for name in result.trial.known)
        for number, (before, stage) in enumerate(pairwise(course), start=1):
            mine = [point for point in curve if point[0] == number]
            assert [point[1] for point in mine] == [0, *epochs]
            right = before["overall"] * met
            met += samples[str(stage["class"])]
            assert mine[0][2:] == [pytest.approx(right / met, abs=1e-4), 0.0]
            assert mine[-1][2:] == [round(stage["overall"], 4), round(stage["newest"], 4)]


def caught(monkeypatch):
    """Run a trial, and give it with what its last training saw at its end, as shares of its samples."""
    found = []
    evaluate = IncrementalTrial.evaluate

    def evaluating(self, views, seconds):
        if self.fit is not None:
            labels, point = self.watched.rows.labels, self.fit.curve[-1]
            newest = int((labels == self.watched.newest).sum())
            found.append((point.right / len(labels), point.newest / newest))
        evaluate(self, views, seconds)

    monkeypatch.setattr(IncrementalTrial, "evaluate", evaluating)
    return found


TRAINED = ("penalty", "shels-no-penalty", "fine-tune", "lwf", "gdumb", "shels-gdumb")


@pytest.mark.parametrize("method", TRAINED)
def test_what_a_training_saw_at_its_end_is_what_the_learner_says(method, tmp_path, monkeypatch):
    seen = caught(monkeypatch)
    (result,) = results(run(trials(method), tmp_path))
    course = result.details["course"][1:]
    assert seen == [(stage["overall"], pytest.approx(stage["newest"])) for stage in course]
    assert result.details["curve_images"] == len(load_named("digits").test)


def test_kept_features_are_what_the_learner_sees(done):
    data = load_named("digits")
    (trial,) = trials("slda")
    training = prepared([trial], data, data.train.inputs, data.train.inputs.device)
    features = Features(data, data.train.inputs, data.test.inputs, torch.float32)
    network, prepare = training.network, training.data.prepare
    classes = (*trial.known, *trial.novel)
    places, _ = data.test.places(trial.novel[:2])
    fresh = features.of("test", [network], [places], prepare)[0]
    features.keep([network], [classes], prepare)
    kept = features.of("test", [network], [places], prepare)[0]
    own = views_of(network, data.test.inputs[places], prepare)
    for one, two, alone in zip(kept, fresh, own, strict=True):
        torch.testing.assert_close(one, two)
        torch.testing.assert_close(one, alone)


def test_methods_on_one_network_pass_its_images_once(tmp_path, monkeypatch):
    passes = []
    whole = features_module.views_of

    def counting(networks, inputs, *rest, **more):
        passes.append(len(networks))
        return whole(networks, inputs, *rest, **more)

    monkeypatch.setattr(features_module, "views_of", counting)
    run([*trials("slda"), *trials("maha"), *trials("gaussian")], tmp_path)
    assert passes == [1, 1]  # the training and the test images


def test_the_papers_ablations_leave_out_what_they_say():
    full = CATALOGUE["incremental/gtsrb"].trials(METHODS["penalty"], 1)[0].settings
    sparse, free = (
        CATALOGUE["incremental/gtsrb"].trials(METHODS[name], 1)[0].settings
        for name in ("shels-no-sparsity", "shels-no-penalty")
    )
    assert sparse == replace(full, training=replace(full.training, alpha=0.0))
    assert free == replace(full, accommodation=replace(full.accommodation, beta=0.0, zeroed="never"))
    assert full.accommodation.beta == 50_000
    assert full.training.alpha == 0.001
    assert [each.name for each in find_methods(["ablation"])] == ["shels-no-sparsity", "shels-no-penalty"]


def test_joint_training_may_wait_for_the_last_class(tmp_path):
    (each,), (waits,) = trials("joint"), trials("joint")
    later = replace(each.settings.accommodation, trains="at the last class")
    waits = replace(waits, settings=replace(waits.settings, accommodation=later))
    one, two = results(run([each, waits], tmp_path))
    assert one.trial.key != two.trial.key
    assert [stage["classes"] for stage in two.details["course"]] == [7, 10]
    assert [stage["classes"] for stage in one.details["course"]] == [7, 8, 9, 10]
    assert {point[0] for point in two.details["curve"]} == {0, 3}
    # The samples, their order and the fresh network of the last training are the same either way.
    assert two.details["course"][-1]["overall"] == one.details["course"][-1]["overall"]
    assert two.metrics["added_accuracy"] == one.metrics["added_accuracy"]
    gtsrb = CATALOGUE["incremental/gtsrb"].trials(METHODS["joint"], 1)[0]
    assert gtsrb.settings.accommodation.trains == "at the last class"
