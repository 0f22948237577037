"""ODIN: its step worked out by hand, and chosen without novel samples."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from shels.config import NetworkSettings
from shels.data.preparation import Preparation
from shels.detection.head import Head
from shels.detection.registry import score
from shels.detection.scores.odin import Odin, chosen_step, moved_views, perturbed
from shels.model.head import LinearHead
from shels.model.networks import Network, Views, build


def network():
    return build(NetworkSettings("small", head="linear"), (1, 8, 8), 3, 0).eval()


def images(n, seed=0):
    return torch.rand(n, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


def test_a_step_follows_the_sign_that_favours_the_likeliest_class():
    head = LinearHead(2, 2)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[3.0, -2.0], [0.0, 0.0]]))
        head.bias.zero_()
    net = Network(nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU()), head).eval()
    with torch.no_grad():
        net.body[0].weight.copy_(torch.eye(2))
    moved = perturbed(net, torch.tensor([[1.0, 0.5]]), temperature=10.0, step=0.1)
    torch.testing.assert_close(moved, torch.tensor([[1.1, 0.4]]))  # class 0 wins: more of +3, less of -2


def test_no_step_leaves_inputs_and_features_alone():
    net, inputs = network(), images(5)
    assert perturbed(net, inputs, 1000.0, 0.0) is inputs
    views = moved_views(net, inputs, torch.arange(5), Preparation((1, 8, 8)), 1000.0, 0.0)
    torch.testing.assert_close(views.high, net.features(inputs).detach())


def test_a_step_makes_samples_more_familiar_and_leaves_no_gradient_behind():
    net, inputs = network(), images(20)
    odin = Odin(Head.of(net.head))
    before, after = (
        odin.scores(moved_views(net, inputs, torch.arange(20), Preparation((1, 8, 8)), 1000.0, step))
        for step in (0.0, 0.01)
    )
    assert (after >= before - 1e-5).all()
    assert float((after - before).mean()) > 0
    assert all(value.grad is None for value in net.parameters())
    assert not after.requires_grad


def test_the_score_orders_samples_as_the_softened_softmax_does():
    net, views = network(), Views(torch.zeros(30, 0), torch.rand(30, 128) * 5)
    soft = (net.head(views.high).double() / 1000).softmax(dim=1).amax(dim=1)
    scores = score("odin", Head.of(net.head)).scores(views)
    assert torch.equal(scores.argsort(), soft.argsort())


def test_the_chosen_step_is_the_one_that_known_samples_like_best():
    net, inputs = network(), images(16)
    places, prepare = torch.arange(16), Preparation((1, 8, 8))
    means = {
        step: float(
            Odin(Head.of(net.head)).scores(moved_views(net, inputs, places, prepare, 1000.0, step)).mean()
        )
        for step in (0.0, 0.01, 0.05)
    }
    assert chosen_step(net, inputs, places, prepare, tuple(means)) == max(means, key=means.__getitem__)


def test_a_temperature_of_nothing_is_refused():
    with pytest.raises(ValueError, match="temperature must be over 0"):
        score("odin", Head.of(network().head), temperature=0.0)
