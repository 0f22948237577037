"""The points of a curve: which samples, which epochs, what is counted."""

from __future__ import annotations

import pytest
import torch

from shels.config import Adam, TrainingSettings, WarmRestarts
from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.experiments import curves
from shels.training import CurvePoint, Fit, Monitor, Rows, TrainingRequest, TrialData, TrialTraining
from shels.training.checkpoints import Check

LABELS = torch.tensor([0] * 60 + [1] * 30 + [2] * 9 + [3] * 1)
SAMPLES = Samples(torch.rand(100, 4), LABELS, ("a", "b", "c", "d"))


def test_of_each_class_the_same_share_is_chosen_and_one_at_least():
    rows = curves.some_rows(SAMPLES, ("b", "a", "c", "d"), seed=0, most=20)
    assert torch.bincount(rows.labels).tolist() == [6, 12, 1, 1]
    names = {0: "b", 1: "a", 2: "c", 3: "d"}
    for place, label in zip(rows.places.tolist(), rows.labels.tolist(), strict=True):
        assert SAMPLES.classes[LABELS[place]] == names[label]


def test_the_choice_is_the_seeds_and_shrinks_as_classes_come():
    few, more = (
        curves.some_rows(SAMPLES, classes, seed=3, most=30) for classes in (("a", "b"), ("a", "b", "c"))
    )
    kept = set(more.places[more.labels < 2].tolist())
    assert kept < set(few.places.tolist())
    again, other = (curves.some_rows(SAMPLES, ("a", "b"), seed, most=30) for seed in (3, 4))
    assert torch.equal(again.places, few.places)
    assert not torch.equal(other.places, few.places)


def test_where_there_are_no_more_all_are_taken():
    rows = curves.some_rows(SAMPLES, ("a", "b"), seed=0, most=90)
    assert rows.places.tolist() == list(range(90))


def request(settings, **about):
    data = TrialData(torch.rand(8, 4), Rows(torch.arange(8), torch.zeros(8).long()), None, Preparation((4,)))
    return TrainingRequest(TrialTraining(torch.nn.Linear(4, 2), data, 0), None, settings, **about)


@pytest.mark.parametrize(
    ("settings", "epochs", "parts"),
    [
        (TrainingSettings(Adam(), epochs=8), None, 1),
        (TrainingSettings(WarmRestarts(), epochs=63), {1, 3, 7, 15, 31, 63}, 1),
        (TrainingSettings(Adam(), steps=300, check_every=300), None, 5),
        (TrainingSettings(Adam(), steps=300, check_every=100), None, 1),
    ],
)
def test_long_trainings_are_evaluated_seldom_and_one_without_validations_in_parts(settings, epochs, parts):
    rows = Rows(torch.tensor([1, 5]), torch.tensor([0, 1]))
    made = curves.monitor(request(settings), SAMPLES.inputs, rows, newest=1)
    assert (made.epochs, made.parts) == (epochs, parts)
    assert made.inputs is SAMPLES.inputs
    assert (made.newest, made.products) == (1, False)


def test_where_a_part_of_a_network_is_trained_samples_come_through_the_front():
    rows = Rows(torch.tensor([1, 5]), torch.tensor([0, 1]))
    asked = request(TrainingSettings(Adam(), epochs=8), front=lambda inputs: 2 * inputs, products=True)
    made = curves.monitor(asked, SAMPLES.inputs, rows, newest=1)
    assert torch.equal(made.inputs, 2 * SAMPLES.inputs[[1, 5]])
    assert made.rows.places.tolist() == [0, 1]
    assert made.products


def test_points_of_a_class_by_hand():
    rows = Rows(torch.arange(8), torch.tensor([0] * 6 + [1] * 2))
    watched = Monitor(SAMPLES.inputs, rows, Preparation((4,)), newest=1)
    check = Check(9, 3.0, 0.1, None, None)
    seen = (CurvePoint(3, 1.0, 6, 0), CurvePoint(6, 2.0, 5, 1), CurvePoint(9, 3.0, 0, 0))
    fit = Fit((check,), check, False, 1.0, curve=seen)
    points = curves.class_points(2, fit, watched, before=0.66666, overall=0.91239, newest=0.5)
    assert points == [[2, 0, 0.6667, 0.0], [2, 1.0, 0.75, 0.0], [2, 2.0, 0.625, 0.5], [2, 3.0, 0.9124, 0.5]]
    closed = curves.class_points(2, None, None, 0.5, 0.75, 1.0)
    assert closed == [[2, 0, 0.5, 0.0], [2, 1, 0.75, 1.0]]
