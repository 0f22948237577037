"""Embeddings that a user brings: classes stand on the vectors themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.preprocessing import normalize

from shels import Learner
from shels.config import Adam, TrainingSettings
from shels.config.presets import DEFAULT
from shels.data.samples import Samples
from shels.learner.learner import learn
from shels.model.chains import Shared

KNOWN = ("ant", "bee", "cat", "dog")
SETTINGS = replace(DEFAULT, training=TrainingSettings(Adam(1e-3), batch_size=32, steps=60, check_every=60))


def clouds(each, seed=0, classes=5):
    """Vectors of classes with one covariance, each class along directions of its own."""
    draws = torch.Generator().manual_seed(99)
    means, mixing = torch.randn(5, 128, generator=draws), torch.randn(128, 128, generator=draws) / 128**0.5
    draws = torch.Generator().manual_seed(seed)
    labels = torch.arange(each * classes) % classes
    return 0.5 * means[labels] + torch.randn(len(labels), 128, generator=draws) @ mixing, labels


@pytest.fixture(scope="module")
def learner():
    vectors, labels = clouds(150, classes=4)
    return learn(Samples(vectors, labels, KNOWN), SETTINGS, seed=0, device="cpu")


def test_classes_are_named_as_a_linear_discriminant_names_them_on_normalised_vectors(learner):
    vectors, labels = clouds(150)
    taken = learner.accommodate(vectors[labels == 4], "eel")
    test, truth = clouds(200, seed=1)
    centred = [normalize(learner.preparation(each).numpy()) for each in (vectors, test)]
    oracle = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto", priors=[0.2] * 5)
    theirs = torch.from_numpy(oracle.fit(centred[0], labels.numpy()).predict(centred[1]))
    ours = taken.class_scores(test).argmax(dim=1)
    assert (ours == theirs).float().mean() > 0.97
    assert (ours == truth).float().mean() > 0.9


def test_a_class_that_the_network_was_not_trained_on_is_told_by_what_it_never_learned(learner):
    """Without the mark, classes stand on a layer that the known classes shaped."""
    vectors, labels = clouds(20, seed=2)
    test, truth = clouds(200, seed=1)
    by_vectors = learner.accommodate(vectors[labels == 4], "eel").class_scores(test).argmax(dim=1)
    hidden = learner.network.body[1:]
    known, places = clouds(150, classes=4)
    own = learn(Samples(known, places, KNOWN), SETTINGS, seed=0, device="cpu", chain=hidden)
    by_layer = own.accommodate(vectors[labels == 4], "eel").class_scores(test).argmax(dim=1)
    right = [(each == truth).float().mean().item() for each in (by_vectors, by_layer)]
    assert right[0] > right[1]


def test_a_model_of_vectors_is_saved_with_its_mark_and_judges_the_same(learner, tmp_path):
    learner.save(tmp_path / "model")
    loaded = Learner.load(tmp_path / "model", "cpu")
    assert isinstance(loaded.network.body[0], Shared)
    test, _ = clouds(20, seed=3)
    for field in ("predicted", "score", "threshold", "p_value"):
        assert torch.equal(getattr(loaded.judge(test), field), getattr(learner.judge(test), field))
