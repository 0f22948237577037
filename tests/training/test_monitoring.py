"""Evaluation on the way: it counts what judging afterwards would count, and changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from shels.config import Adam, TrainingSettings
from shels.data.preparation import Preparation
from shels.errors import SettingsError
from shels.model.networks import from_chain
from shels.training import Ceiling, Monitor, Rows, TrialData, TrialTraining, fit_trials, shels_loss

SETTINGS = TrainingSettings(Adam(1e-2), batch_size=8, epochs=5)
TESTS = torch.rand(90, 4, generator=torch.Generator().manual_seed(9))


def labels_of(inputs):
    """The largest of the first three values names the class."""
    return inputs[:, :3].argmax(dim=1)


def trial(seed=0, n=37, head="cosine", dropout=0.0, **monitor):
    torch.manual_seed(seed)
    layers = [nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU()]
    layers += [nn.Dropout(dropout)] if dropout else []
    network = from_chain(nn.Sequential(*layers), (4,), head, 3, seed).double()
    inputs = torch.rand(n, 4, generator=torch.Generator().manual_seed(seed))
    data = TrialData(inputs, Rows(torch.arange(n), labels_of(inputs)), None, Preparation((4,)))
    places = torch.arange(seed, 90, 2)  # other samples and another number of them in each trial
    rows = Rows(places, labels_of(TESTS[places]))
    watched = Monitor(TESTS, rows, Preparation((4,)), newest=2, **monitor)
    return TrialTraining(network, data, seed, monitor=watched)


def trained(trials, settings=SETTINGS, **how):
    return fit_trials(trials, shels_loss(trials[0].network, settings), settings, **how)


def counted(one, products=False):
    """What the trained network says of the monitored samples, counted by hand."""
    places, labels = one.monitor.rows
    high = one.network.features(TESTS[places].double())
    scores = high @ one.network.head.weight.T if products else one.network.head(high)
    right = scores.argmax(dim=1) == labels
    return int(right.sum()), int((right & (labels == 2)).sum())


@pytest.mark.parametrize("products", [False, True])
@pytest.mark.parametrize("together", [None, 2])
def test_the_last_point_is_what_judging_afterwards_counts(products, together):
    trials = [trial(seed, products=products) for seed in (0, 1)]
    for one, fit in zip(trials, trained(trials, together=together), strict=True):
        assert [point.epoch for point in fit.curve] == [1, 2, 3, 4, 5]
        assert tuple(fit.curve[-1][2:]) == counted(one, products)


def test_a_curve_rises_and_cosines_and_products_name_differently():
    cosines, products = (trained([trial(products=how)])[0].curve for how in (False, True))
    assert len({point.right for point in cosines}) > 2
    assert cosines[-1].right > cosines[0].right
    assert [point.right for point in cosines] != [point.right for point in products]


@pytest.mark.parametrize("head", ["cosine", "linear"])
def test_trials_have_the_same_curve_alone_and_stacked(head):
    sizes = {0: 37, 1: 37, 2: 61}  # epochs of other lengths
    made = [[trial(seed, n, head) for seed, n in sizes.items()] for _ in range(2)]
    alone, stacked = trained(made[0]), trained(made[1], together=3)
    assert [fit.together for fit in stacked] == [3, 3, 3]
    assert [fit.curve for fit in alone] == [fit.curve for fit in stacked]


@pytest.mark.parametrize("together", [None, 2])
def test_monitoring_changes_nothing_of_a_training_with_dropout_either(together):
    with_, without = ([trial(seed, dropout=0.5, parts=3) for seed in (0, 1)] for _ in range(2))
    without = [replace(each, monitor=None) for each in without]
    fits = [trained(each, together=together) for each in (with_, without)]
    assert all(not fit.curve for fit in fits[1])
    for one, other in zip(with_, without, strict=True):
        for mine, theirs in zip(one.network.parameters(), other.network.parameters(), strict=True):
            assert torch.equal(mine, theirs)
    assert [[check.training_loss for check in fit.checks] for fit in fits[0]] == [
        [check.training_loss for check in fit.checks] for fit in fits[1]
    ]


def test_only_the_epochs_that_are_asked_for_and_the_last_are_evaluated():
    (fit,) = trained([trial(epochs=frozenset({1, 3}))])
    assert [point.epoch for point in fit.curve] == [1, 3, 5]
    every = trained([trial()])[0].curve
    assert [every[0], every[2], every[4]] == list(fit.curve)


@pytest.mark.parametrize("together", [None, 2])
def test_the_steps_up_to_a_validation_can_be_parted(together):
    settings = TrainingSettings(Adam(1e-2), batch_size=8, steps=40, check_every=40)
    fits = trained([trial(seed, parts=4) for seed in (0, 1)], settings, together=together)
    assert [[point.step for point in fit.curve] for fit in fits] == [[10, 20, 30, 40]] * 2
    shorter = TrainingSettings(Adam(1e-2), batch_size=8, steps=20, check_every=40)
    again = trained([trial(seed) for seed in (0, 1)], shorter, together=together)
    assert [fit.curve[1][2:] for fit in fits] == [fit.curve[-1][2:] for fit in again]


def test_of_trials_together_all_are_monitored_or_none():
    with pytest.raises(SettingsError, match="all have a monitor or none"):
        trained([trial(), replace(trial(1), monitor=None)], together=2)


@pytest.mark.parametrize("together", [None, 2])
def test_a_loss_over_the_ceiling_ends_a_trial_and_leaves_its_neighbour_alone(together):
    low = replace(trial(0), ceiling=Ceiling(0.01, frozenset({2, 4})))
    high = replace(trial(1), ceiling=Ceiling(100.0, frozenset({2, 4})))
    fits = trained([low, high], together=together)
    assert "after 2 epochs, over 0.01; lower the learning rate (now 0.01)" in str(fits[0].error)
    assert len(fits[0].checks) == 1  # of the first epoch, where nothing was asked
    assert fits[1].error is None
    assert len(fits[1].checks) == 5
