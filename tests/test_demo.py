from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, roc_auc_score

from shels import demo, presets
from shels.data.sources import load_named
from shels.learner import Learner


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """A demonstration with a short training: what it returned, where, and all it reported on the way."""
    out = tmp_path_factory.mktemp("demo") / "out"
    short = replace(presets.DEFAULT, training=replace(presets.DEFAULT.training, steps=150))
    seen = []
    result = demo.run(out, seed=3, device="cpu", settings=short, progress=seen.append)
    return result, out, seen


@pytest.fixture(scope="module")
def verdicts(outcome):
    """Scores and verdicts on the test part, from the saved model alone, by numpy: class -> arrays."""
    learner = Learner.load(outcome[1] / "model", device="cpu")
    weights = learner.network.head.weight.detach().numpy()
    thresholds = np.array(json.loads((outcome[1] / "model" / "model.json").read_text())["thresholds"])
    test = load_named("digits").test
    scores = learner.features(test.inputs).numpy() @ weights.T
    best = scores.argmax(axis=1)
    out = {}
    for name in test.classes:
        mine = test.labels.numpy() == test.classes.index(name)
        predicted = np.array(learner.classes)[best[mine]]
        top = scores.max(axis=1)[mine]
        out[name] = {"predicted": predicted, "score": top, "novel": top <= thresholds[best[mine]]}
    return out


def together(verdicts, classes, key):
    return np.concatenate([verdicts[name][key] for name in classes])


def test_the_result_has_exactly_the_fields_of_the_contract(outcome):
    result, out, _ = outcome
    assert json.loads((out / "result.json").read_text()) == result
    assert list(result) == [
        "known_classes",
        "novel_classes",
        "found",
        "missed",
        "false_alarms",
        "final_accuracy",
        "novel_accuracy",
        "detection",
        "seconds",
    ]
    assert list(result["detection"]) == ["known_accuracy", "novel_accuracy", "combined_accuracy", "auroc"]
    assert list(result["novel_accuracy"]) == [str(name) for name in result["novel_classes"]]
    assert result["seconds"] > 0


def test_seven_of_the_ten_digits_are_known_and_the_others_found_or_missed(outcome):
    result = outcome[0]
    assert len(result["known_classes"]) == 7
    assert sorted(result["known_classes"] + result["novel_classes"]) == list(range(10))
    assert sorted(result["found"] + result["missed"]) == sorted(result["novel_classes"])


def test_the_figures_are_those_that_the_saved_model_gives_to_an_independent_reader(outcome, verdicts):
    result = outcome[0]
    known, novel = result["known_classes"], result["novel_classes"]
    labels = np.concatenate([[name] * len(verdicts[name]["score"]) for name in known])
    predicted = together(verdicts, known, "predicted")
    accepted = ~together(verdicts, known, "novel")
    scores = [together(verdicts, part, "score") for part in (known, novel)]
    truth = np.repeat([1, 0], [len(part) for part in scores])
    rejected = together(verdicts, novel, "novel").mean()
    right = accuracy_score(labels, np.where(accepted, predicted, -1))
    expected = {
        "known_accuracy": right,
        "novel_accuracy": rejected,
        "combined_accuracy": (right + rejected) / 2,
        "auroc": roc_auc_score(truth, np.concatenate(scores)),
    }
    assert result["detection"] == pytest.approx(expected, abs=1e-6)
    assert result["final_accuracy"] == pytest.approx(accuracy_score(labels, predicted), abs=1e-6)
    shares = {str(name): verdicts[name]["novel"].mean() for name in novel}
    assert result["novel_accuracy"] == pytest.approx(shares, abs=1e-6)


def test_a_novel_class_is_found_when_more_than_half_of_its_batch_is_judged_novel(outcome, verdicts):
    result = outcome[0]
    over_half = [name for name in result["novel_classes"] if verdicts[name]["novel"].mean() > 0.5]
    assert result["found"] == over_half


def test_a_batch_of_which_just_half_is_judged_novel_raises_no_alarm():
    assert not demo.Batch(None, 0.5).alarm
    assert demo.Batch(None, 0.51).alarm


def test_every_known_test_sample_is_shown_once(outcome, verdicts):
    result, out, _ = outcome
    data = load_named("digits").test
    known, novel = data.only(result["known_classes"]), data.only(result["novel_classes"])
    batches = demo.show(Learner.load(out / "model", device="cpu"), known, novel, seed=3)
    first = [batch for batch in batches if batch.novel_class is None]
    assert [batch.novel_class for batch in batches[len(first) :]] == result["novel_classes"]
    assert sum(batch.alarm for batch in first) == result["false_alarms"]
    sizes = [len(known) // 7 + (i < len(known) % 7) for i in range(7)]
    judged = sum(round(batch.share * size) for batch, size in zip(first, sizes, strict=True))
    assert judged == together(verdicts, result["known_classes"], "novel").sum()


def test_the_report_tells_of_the_batches_and_progress_was_reported(outcome):
    _, out, seen = outcome
    text = (out / "report.html").read_text(encoding="utf-8")
    assert "Seven digits known, three never seen" in text
    assert "Batch by batch" in text
    assert "Share judged novel by batch" in text
    assert seen[-1].step == seen[-1].steps == 150


def test_the_same_seed_gives_the_same_result_and_another_seed_other_classes(outcome, tmp_path):
    result = outcome[0]
    short = replace(presets.DEFAULT, training=replace(presets.DEFAULT.training, steps=150))
    again = demo.run(tmp_path / "again", seed=3, device="cpu", settings=short)
    assert again | {"seconds": 0} == result | {"seconds": 0}
    other = demo.draw_classes(tuple(range(10)), demo.KNOWN_COUNT, 4)
    assert list(other.known) != result["known_classes"]
