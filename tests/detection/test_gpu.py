"""What only a GPU can show of detectors; run by `make test-gpu`."""

from __future__ import annotations

import pytest
import torch

from shels.kernels.replay import Replay
from shels.learner.learner import learn

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]


def test_gaussian_verdicts_that_are_replayed_are_those_that_are_computed(digits, short_settings):
    learner = learn(digits[0], short_settings, seed=0, device="cuda")
    detector, features = learner.detector, learner.views(digits[1].inputs)
    computed = detector._decide(*features)
    for _ in range(5):  # computed, then recorded, then replayed
        found = detector.verdicts(features)
    for name, value in zip(("predicted", "score", "threshold", "p_value"), computed, strict=True):
        assert getattr(found, name).equal(value), name
    before = found.score.clone()
    others = learner.views(digits[2].inputs[: len(digits[1].inputs)])
    detector.verdicts(others)
    assert found.score.equal(before)  # what was given is nobody else's room


def test_shapes_that_come_seldom_are_computed_and_those_that_come_often_recorded():
    calls = []

    def work(x):
        calls.append(tuple(x.shape))
        return (x.square().sum(dim=0),)

    replay = Replay()
    for size in (3, 3, 3, 3, 3, 7):
        x = torch.randn(size, 4, device="cuda")
        assert replay(work, x)[0].equal(x.square().sum(dim=0))
    assert calls.count((7, 4)) == 1
    assert calls.count((3, 4)) == 4  # twice as it is, once to warm up, once to record
