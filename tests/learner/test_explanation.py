"""Explanations: figures that were worked out another way, and the same verdicts."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import norm
from sklearn.neighbors import NearestNeighbors

from shels import OpenWorldClassifier
from shels.config import Adam, TrainingSettings
from shels.detection import familiarity
from shels.detection.exclusivity import class_means
from shels.errors import DataError
from shels.learner.assessment import read_examples
from shels.learner.learner import learn
from shels.learner.pairing import paired
from tests.cli.commands import done, fails, shels


@pytest.fixture(scope="module")
def short(short_settings):
    training = TrainingSettings(Adam(1e-3), batch_size=32, steps=60, check_every=60)
    return replace(short_settings, training=training)


@pytest.fixture(scope="module", params=["gaussian", "shels", "fused", "gdumb"])
def explained(request, learner, digits, short):
    """Give a learner of each kind, inputs, and the explanations of their verdicts."""
    settings = {
        "shels": paired(short, "penalty"),
        "fused": paired(short, None, "fused"),
        "gdumb": paired(short, "gdumb"),
    }
    made = learner
    if request.param != "gaussian":
        made = learn(digits[0], settings[request.param], seed=0, device="cpu")
    inputs = torch.cat([digits[1].inputs[:30], digits[2].inputs[:30]])
    return made, inputs, made.explain(inputs)


def test_an_explanation_carries_the_verdict(explained):
    learner, inputs, found = explained
    own = learner.judge(inputs)
    assert [each.predicted for each in found] == [learner.classes[place] for place in own.predicted]
    assert [each.novel for each in found] == own.novel.tolist()
    np.testing.assert_allclose([each.score for each in found], own.score)
    np.testing.assert_allclose([each.p_value for each in found], own.p_value)
    assert all(each.verdict == ("novel" if each.novel else each.predicted) for each in found)


def test_the_p_value_in_the_predicted_class_is_that_of_the_verdict(explained):
    learner, _, found = explained
    for each in found:
        about_a_class = learner.detector.name != "max-logit"
        assert set(each.class_p_values) == (set(learner.classes) if about_a_class else {each.predicted})
        assert each.class_p_values[each.predicted] == pytest.approx(each.p_value)
        values = list(each.class_p_values.values())
        assert values == sorted(values, reverse=True)


def test_known_digits_have_their_highest_p_value_in_their_own_class(explained, digits):
    _, _, found = explained
    labels = digits[1].labels[:30].tolist()
    first = [next(iter(each.class_p_values)) for each in found[:30]]
    assert np.mean([name == label for name, label in zip(first, labels, strict=True)]) > 0.8


def test_units_are_those_that_differ_most_from_the_class_as_it_was(explained, digits):
    learner, inputs, found = explained
    rows = torch.nn.functional.normalize(learner.features(inputs))
    for row, each in zip(rows, found, strict=True):
        gaps = [abs(one.value - one.expected) for one in each.units]
        assert gaps == sorted(gaps, reverse=True)
        assert [one.value for one in each.units] == pytest.approx(
            row[[o.number for o in each.units]].tolist()
        )
    if learner.detector.name == "gaussian":  # means come back from the sums, whatever directions they lie on
        seen = torch.nn.functional.normalize(learner.features(digits[0].inputs))
        means = class_means(seen, digits[0].labels, 4)
        unit = found[0].units[0]
        assert unit.expected == pytest.approx(float(means[found[0].predicted][unit.number]), abs=0.03)


def test_the_aspects_of_gaussians_are_tails_of_normal_log_distances(learner, digits):
    inputs = digits[2].inputs[:20]
    views, detector = learner.views(inputs), learner.detector
    part, distances = detector._nearest(views)
    scale = torch.stack([each.scale for each in detector.parts])[part]
    far = (distances.log() - scale[..., 0]) / scale[..., 1]
    expected = norm.sf(far.double().numpy())
    for row, each in enumerate(learner.explain(inputs)):
        aspects = {aspect.name: aspect.p_value for aspect in each.aspects}
        assert aspects["shared features"] == pytest.approx(expected[row, 0], abs=1e-6)
        assert aspects["high-level features"] == pytest.approx(expected[row, 1], abs=1e-6)
        assert each.score == pytest.approx(float(-far[row].max()), rel=1e-4)


@pytest.mark.parametrize("explained", ["fused"], indirect=True)
def test_the_aspects_of_fused_scores_are_ranks_among_the_class(explained):
    learner, inputs, found = explained
    score = learner.detector.score
    named = learner.judge(inputs).predicted
    values = score._model.scores(learner.views(inputs), named)
    for row, each in enumerate(found):
        aspects = {aspect.name: aspect.p_value for aspect in each.aspects}
        assert len(aspects) == len(familiarity.COMPONENTS)
        for place, name in enumerate(familiarity.ASPECTS):
            kept = score.state["by_class"][named[row], place]
            kept = kept[kept < 1e38]
            if values[row, place] >= kept[0]:  # below all of them, p falls on
                rank = (1 + int((kept <= values[row, place]).sum())) / (1 + len(kept))
                assert aspects[name] == pytest.approx(min(rank, 1), rel=1e-5)
            else:
                assert aspects[name] <= 1 / (1 + len(kept))


def test_the_nearest_examples_are_those_that_scikit_learn_finds(learner, digits):
    inputs, examples = digits[1].inputs[:25], digits[0]
    rows = learner.detector.places(learner.views(torch.cat([inputs, examples.inputs]))).rows.numpy()
    gaps, places = NearestNeighbors(n_neighbors=3).fit(rows[25:]).kneighbors(rows[:25])
    for row, each in enumerate(learner.explain(inputs, examples)):
        assert [example.source for example in each.examples] == [
            f"{examples.origin} #{at}" for at in places[row]
        ]
        assert [example.label for example in each.examples] == examples.labels[places[row]].tolist()
        np.testing.assert_allclose([example.distance for example in each.examples], gaps[row], rtol=1e-2)


def test_samples_that_the_model_keeps_are_examples_by_themselves(explained):
    learner, _, found = explained
    assert bool(found[0].examples) == bool(learner.stored_images)
    if learner.stored_images:
        kept = learner.explain(learner.memory["samples"][:1])[0].examples[0]
        assert (kept.source, kept.distance) == ("kept by the model #0", pytest.approx(0, abs=1e-2))


def test_examples_and_their_names_must_be_as_many(learner, digits):
    with pytest.raises(DataError, match="2 names for 503 examples"):
        learner.explain(digits[1].inputs[:1], digits[0], sources=["a", "b"])


def test_no_input_has_no_explanation(learner, digits):
    assert learner.explain(digits[1].inputs[:0]) == []


def test_the_estimator_explains_with_examples_of_its_classes(digits):
    images, labels = digits[0].inputs.permute(0, 2, 3, 1).numpy(), digits[0].labels.numpy()
    classifier = OpenWorldClassifier(random_state=0, max_steps=60, device="cpu").fit(images, labels)
    found = classifier.explain(images[:3], images, labels)
    assert [each.examples[0].source for each in found] == [f"examples #{row}" for row in range(3)]
    assert [each.examples[0].label for each in found] == labels[:3].tolist()


@pytest.fixture(scope="module")
def on_disk(learner, digits, tmp_path_factory):
    """A saved learner, and pictures of two known digits and one novel one in folders of their classes."""
    place = tmp_path_factory.mktemp("disk")
    learner.save(place / "model")
    for name, part, label in (("0", digits[0], 0), ("3", digits[0], 3), ("6", digits[2], 0)):
        (place / "photos" / name).mkdir(parents=True)
        for row in (part.labels == label).nonzero()[:4, 0].tolist():
            Image.fromarray(part.inputs[row, 0].numpy()).save(place / "photos" / name / f"{row}.png")
    return place


def test_detect_explains_in_words_and_as_json(on_disk):
    model, photos = on_disk / "model", on_disk / "photos"
    document = done("detect", model, photos / "6", "--explain", "--examples", photos)
    assert document["samples"] == 4
    plain = done("detect", model, photos / "6")
    for row, bare in zip(document["rows"], plain["rows"], strict=True):
        assert {name: row[name] for name in bare} == bare
        assert set(row["class_p_values"]) == {"0", "1", "2", "3"}
        assert {example["label"] for example in row["examples"]} <= {0, 3}  # 6 is no class of the model
        assert all(str(photos) in example["source"] for example in row["examples"])
    shown = shels("detect", model, photos / "6", "--explain", "--examples", "digits", columns=200).stdout
    assert document["rows"][0]["words"].split(" Nearest")[0] in shown
    assert shown.count("\nnearest      digits #") == 4
    assert json.dumps(document["rows"][0]["predicted"]) in shown


def test_the_csv_of_explained_verdicts_has_the_same_columns(on_disk):
    command = ("detect", on_disk / "model", on_disk / "photos", "--csv", "-")
    assert shels(*command, "--explain").stdout == shels(*command).stdout


def test_examples_without_explain_or_of_no_known_class_are_refused(on_disk, learner):
    model, photos = on_disk / "model", on_disk / "photos"
    assert "--examples are for --explain" in fails(2, "detect", model, photos, "--examples", photos)
    assert "no sample of the model's classes" in fails(
        1, "detect", model, photos, "--explain", "--examples", photos / "6"
    )
    assert len(read_examples(learner, "digits").samples) == 503
