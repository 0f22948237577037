from __future__ import annotations

import os

import pytest
import torch
from torch import nn

from shels import cli
from shels.config import NetworkSettings, TrainingSettings
from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.model.networks import build
from shels.runtime import threads
from shels.training import TrainingRequest, TrialData, TrialTraining, fitting
from shels.training.losses import shels_loss
from shels.training.threads import threads_for


@pytest.fixture
def two_threads():
    with threads(2):
        yield


def test_small_steps_are_taken_by_one_thread_and_whoever_follows_them_has_all(two_threads):
    seen = []

    class Counting(nn.ReLU):
        def forward(self, x):
            seen.append(torch.get_num_threads())
            return super().forward(x)

    network = build(NetworkSettings("vectors"), (5,), classes=2, seed=0)
    network.body[1] = Counting()
    samples = Samples(torch.randn(12, 5), torch.arange(12) % 2, ("a", "b"))
    settings = TrainingSettings(steps=20, check_every=10)
    trial = TrialTraining(network, TrialData.of(samples, samples, Preparation((5,))), seed=0)
    outside = [
        torch.get_num_threads()
        for _ in fitting(TrainingRequest(trial, shels_loss(network, settings), settings))
    ]
    assert set(seen) == {1}
    assert outside
    assert set(outside) == {2}


@pytest.mark.parametrize(
    ("layer", "batch", "expected"),
    [(nn.Linear(1000, 1000), 100, 1), (nn.Linear(1000, 1000), 200, None), (nn.Conv2d(1, 1, 3), 1, None)],
)
def test_large_steps_and_convolutions_are_shared(layer, batch, expected):
    assert threads_for(layer, batch) == expected


@pytest.mark.usefixtures("two_threads")
def test_the_number_of_threads_is_as_before_after_an_error():
    with pytest.raises(ValueError, match="over"), threads(1):
        raise ValueError("over")
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(("given", "expected"), [(None, "passive"), ("active", "active")])
def test_on_the_command_line_idle_threads_sleep_unless_the_user_says_otherwise(monkeypatch, given, expected):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if given:
        monkeypatch.setenv("OMP_WAIT_POLICY", given)
    monkeypatch.setattr("shels.cli.app.app", lambda: None)
    cli.main()
    assert os.environ["OMP_WAIT_POLICY"] == expected
    monkeypatch.delenv("OMP_WAIT_POLICY")
