"""Shared by all tests: small real data, and small learners that are trained once."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from shels.config import AcceptShare, Adam, TrainingSettings
from shels.config.presets import DEFAULT
from shels.data.sources import load_named
from shels.data.splits import ClassSplit, split_data
from shels.learner.learner import learn
from tests.clusters import cluster_of

torch.set_num_threads(1)  # steady under load, and the same sums on every machine

SHORT = replace(
    DEFAULT,
    training=TrainingSettings(Adam(1e-3), batch_size=32, steps=300, check_every=100),
    rule=AcceptShare(0.95),
)


@pytest.fixture(scope="session")
def digits():
    """Digits: (training samples, test samples, novel test samples), 4 known and 2 novel classes."""
    return split_data(load_named("digits"), ClassSplit(known=(0, 1, 2, 3), novel=(6, 7)))


@pytest.fixture(scope="session")
def short_settings():
    return SHORT


@pytest.fixture(scope="session")
def learner(digits):
    """A learner of four digits after a short training; tests must not change it."""
    return learn(digits[0], SHORT, seed=0, device="cpu")


@pytest.fixture(scope="session")
def cluster():
    """A Ray cluster of three nodes on this machine: a head that takes no work, and two of one CPU each.

    What a test adds it removes again. On its nodes SHELS_HERE is "first" and "second".
    """
    with cluster_of({"env_vars": {"SHELS_HERE": "first"}}, {"env_vars": {"SHELS_HERE": "second"}}) as (it, _):
        yield it
