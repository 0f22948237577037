"""A model and its data, looked over: what was planted is found."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from shels.data.samples import DataSet
from shels.data.sources import load_named
from shels.errors import DataError, SettingsError
from shels.learner.examination import examining
from shels.learner.learner import learn
from shels.runtime import finished

PLANTED = 10


@pytest.fixture(scope="module")
def planted(short_settings):
    """All digits, ten of them under wrong labels and trained on so, three copied into the test part."""
    data = load_named("digits")
    draws = torch.Generator().manual_seed(0)
    bad = torch.randperm(len(data.train), generator=draws)[:PLANTED]
    labels = data.train.labels.clone()
    labels[bad] = (labels[bad] + torch.randint(1, 10, (PLANTED,), generator=draws)) % 10
    train = replace(data.train, labels=labels)
    test = data.test.followed_by(data.train.take(torch.tensor([3, 50, 700])))
    learner = learn(train, short_settings, seed=0, device="cpu")
    return learner, DataSet("digits", train, test), bad, data.train.labels


@pytest.fixture(scope="module")
def found(planted):
    return finished(examining(planted[0], planted[1], folds=3))


def test_most_samples_under_wrong_labels_are_the_first_suspects(planted, found):
    bad = set(planted[2].tolist())
    assert len(bad & {each.place for each in found.suspects[:PLANTED]}) >= 8


def test_most_suspects_would_rather_be_what_they_truly_are(planted, found):
    bad, truth = planted[2].tolist(), planted[3]
    mine = [each for each in found.suspects if each.place in bad]
    assert sum(each.rather == int(truth[each.place]) for each in mine) >= 8
    assert all(each.p_value <= 0.05 and each.nearer > 1 for each in mine)


def test_copies_in_the_test_part_are_found_with_their_names(found, planted):
    across = [each for each in found.twins if each.across]
    assert sorted(each.places[0] for each in across) == [3, 50, 700]
    assert all(each.exact for each in across)
    assert found.samples.names[3] == across[0].names[0] == f"{planted[1].train.origin}#3"


def test_the_least_sure_are_the_least_familiar_and_as_many_as_were_asked_for(planted):
    few = finished(examining(planted[0], planted[1], folds=3, most=7))
    assert len(few.doubts) == 7
    assert [each.p_value for each in few.doubts] == sorted(each.p_value for each in few.doubts)


def test_the_test_part_is_measured_as_evaluate_does(planted, found):
    learner, data = planted[:2]
    measures = learner.evaluate(data.test)
    assert found.tested.right / found.tested.known == pytest.approx(measures["closed_set_accuracy"])
    assert found.tested.accepted / found.tested.known == pytest.approx(measures["acceptance"])


def test_samples_somebody_held_out_are_the_unseen_ones(digits, short_settings):
    train, test, _ = digits
    settings = replace(short_settings, training=replace(short_settings.training, steps=60, check_every=30))
    learner = learn(train, settings, seed=0, device="cpu", validation=test)
    data = DataSet("digits", train, test.take(torch.zeros(0, dtype=torch.int64)))
    found = finished(examining(learner, data, validation=test, folds=2))
    assert found.exact
    assert sum(each.known for each in found.folds) == len(test)


def test_data_without_one_of_the_models_classes_is_refused(planted):
    data = planted[1]
    with pytest.raises(DataError, match="has no sample of the model's class 9"):
        finished(examining(planted[0], replace(data, train=data.train.only(range(9)))))
    with pytest.raises(SettingsError, match="at least 2 folds"):
        finished(examining(planted[0], data, folds=1))
