"""Convolutions with a trial axis: which layers become one operation, and that gradients pass through them.

The kernels need a GPU; here torch stands in for them, so that what is put together of them can be tested.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from shels.kernels import trial_axis
from shels.model import trunk
from shels.model.architectures import six_conv
from shels.model.chains import Shared
from shels.model.networks import MOST_SHARED, from_chain


def convolved(x, weight, bias):
    """Return convolutions trial by trial, laid out as the kernels have it: (trials, n, h, w, c)."""
    pairs = zip(x, weight, bias, strict=True)
    out = [F.conv2d(a.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2), b, padding=1) for a, w, b in pairs]
    return torch.stack(out).permute(0, 1, 3, 4, 2)


def forward(x, weight, bias, *, pool):
    z = convolved(x, weight, bias).relu()
    if not pool:
        return z, x.new_empty(0, dtype=torch.uint8)
    trials, n, h, w, c = z.shape
    windows = z.reshape(trials, n, h // 2, 2, w // 2, 2, c).permute(0, 1, 2, 4, 6, 3, 5).flatten(5)
    best, winner = windows.max(dim=5)
    return best, torch.where(best > 0, winner, 4).to(torch.uint8)


def laid_out(gradient, won):
    """Return a gradient of pooled maps over the four pixels of each window."""
    out = torch.stack([torch.where(won == quarter, gradient, 0.0) for quarter in range(4)], dim=-1)
    trials, n, h, w, c = gradient.shape
    out = out.view(trials, n, h, w, c, 2, 2).permute(0, 1, 2, 5, 3, 6, 4)
    return out.reshape(trials, n, 2 * h, 2 * w, c)


def spread(gradient, maps, won):
    out = laid_out(gradient, won) if won.numel() else gradient * (maps > 0)
    return out, out.sum(dim=(1, 2, 3))


def gradients(gradient, weight, below):
    values = [below.detach().requires_grad_(), weight.detach().requires_grad_()]
    with torch.enable_grad():
        z = convolved(*values, torch.zeros(len(weight), weight.shape[1], dtype=weight.dtype))
    return torch.autograd.grad(z, values, gradient)


def backward_input(gradient, weight, below, won):
    to_input = gradients(gradient, weight, below)[0]
    return spread(to_input, below, won)


def backward_weights(gradient, below):
    any_weight = torch.zeros(len(gradient), gradient.shape[4], 3, 3, below.shape[4])
    return gradients(gradient, any_weight, below)[1]


@pytest.fixture
def kernels(monkeypatch):
    """Let a stack on the CPU take the way of a GPU; count the operations on blocks of layers."""
    blocks = []

    def counted(x, weight, bias, *, pool):
        assert x.is_contiguous()
        assert weight.is_contiguous()
        assert bias.is_contiguous()  # a kernel reads them as they lie
        blocks.append(tuple(weight.shape[1:2]) + tuple(weight.shape[4:]))
        out, won = forward(x, weight, bias, pool=pool)
        return out.contiguous(), won  # as a kernel writes them

    fake = SimpleNamespace(
        forward=counted,
        spread=spread,
        backward_input=backward_input,
        backward_weights=backward_weights,
        backward_first=lambda g, weight, below: gradients(g, weight, below)[0],
    )
    monkeypatch.setitem(sys.modules, "shels.kernels.convolution", fake)
    monkeypatch.setattr(sys.modules["shels.kernels"], "convolution", fake, raising=False)
    monkeypatch.setattr(trial_axis, "has_kernels", lambda value: True)
    monkeypatch.setattr(trial_axis, "precision", lambda: torch.float32)
    return blocks


def stacked(chain, trials=2):
    """Return a chain's parameters for some trials, drawn anew for each, by name."""
    torch.manual_seed(0)
    return {
        name: (torch.randn(trials, *value.shape) * 0.1).requires_grad_()
        for name, value in chain.named_parameters()
    }


class Runs(nn.Module):
    def __init__(self, chain):
        super().__init__()
        self.chain = chain

    def forward(self, inputs):
        return trunk.run(list(self.chain), inputs)


def through(chain, params, inputs):
    def one(values, batch):
        named = {f"chain.{name}": value for name, value in values.items()}
        return torch.func.functional_call(Runs(chain), named, (batch,))

    out = torch.vmap(one)(params, inputs)
    return out, torch.autograd.grad(out.square().sum(), list(params.values()))


def chain_of(kind):
    if kind == "odd":  # a pooling of odd sides, which the kernels leave to torch, between two that they take
        first = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        middle = [nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3)]
        last = [nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 8), nn.ReLU()]
        return nn.Sequential(*first, *middle, *last), 12
    return six_conv((3, 16, 16), (8,), dropout=0.25 if kind == "dropout" else 0.0).eval(), 16


@pytest.mark.parametrize("kind", ["plain", "dropout", "odd"])
def test_gradients_pass_through_layers_between_blocks_of_convolutions(kernels, monkeypatch, kind):
    chain, side = chain_of(kind)
    params, inputs = stacked(chain), torch.rand(2, 4, 3, side, side)
    got, grads = through(chain, params, inputs)
    assert len(kernels) == sum(isinstance(layer, nn.Conv2d) for layer in chain)
    monkeypatch.setattr(trial_axis, "has_kernels", lambda value: False)
    expected, wanted = through(chain, params, inputs)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    for mine, theirs in zip(grads, wanted, strict=True):
        assert float((mine - theirs).norm() / theirs.norm()) < 1e-2  # rounding decides between near equals


def test_blocks_that_follow_each_other_are_one_operation():
    plain, parted = (chain_of(kind)[0] for kind in ("plain", "dropout"))
    assert len(trunk.leading(list(plain), (16, 16)).convolutions) == 6
    first = trunk.leading(list(parted), (16, 16))
    assert (len(first.convolutions), first.layers) == (2, 5)
    second = trunk.leading(list(parted)[6:], (8, 8))
    assert (len(second.convolutions), second.layers) == (2, 5)


def test_weights_that_trials_share_and_odd_gradients_come_to_the_kernels_as_they_read_them(kernels):
    chain = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    inputs, params = torch.rand(3, 4, 8, 8, 3).movedim(4, 2), dict(chain.named_parameters())

    def one(batch, scale):
        out = torch.func.functional_call(Runs(chain), {f"chain.{n}": v for n, v in params.items()}, (batch,))
        return scale * out.sum()  # its gradient is one number, expanded

    got = torch.vmap(one)(inputs, torch.tensor([1.0, 2.0, 3.0]))
    grads = torch.autograd.grad(got.sum(), list(params.values()))
    wanted = torch.stack([scale * chain(batch).sum() for scale, batch in zip((1, 2, 3), inputs, strict=True)])
    torch.testing.assert_close(got, wanted)
    for mine, theirs in zip(grads, torch.autograd.grad(wanted.sum(), list(params.values())), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


class Looks(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, inputs):
        return self.network.views(inputs)


@pytest.mark.parametrize("channels", [32, 2 * MOST_SHARED])
@pytest.mark.filterwarnings("error")  # torch would compute trial by trial, and say so
def test_views_of_stacked_trials_take_the_way_of_their_features_to_the_last_layer(
    kernels, monkeypatch, channels
):
    first = [nn.Conv2d(3, channels, 3, padding=1), nn.ReLU(), Shared()]  # maps, before they are averaged
    rest = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 8), nn.ReLU()]
    network = from_chain(nn.Sequential(*first, *rest), (3, 4, 4), "cosine", 2, 0)
    network = network.to(memory_format=torch.channels_last)
    params, inputs = stacked(network), torch.rand(2, 5, 3, 4, 4)

    def one(values, batch):
        named = {f"network.{name}": value for name, value in values.items()}
        return torch.func.functional_call(Looks(network), named, (batch,))

    with torch.no_grad():
        got = torch.vmap(one)(params, inputs)
        for trial in range(2):
            network.load_state_dict({name: value[trial] for name, value in params.items()})
            with monkeypatch.context() as plain:
                plain.setattr(trial_axis, "has_kernels", lambda value: False)
                expected = network.views(inputs[trial])
            for mine, theirs in zip(got, expected, strict=True):
                torch.testing.assert_close(mine[trial], theirs, rtol=1e-4, atol=1e-5)
