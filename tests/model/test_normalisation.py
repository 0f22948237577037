"""Batch normalisation against torch's own, with samples that are not there, and over trials."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

from shels import kernels
from shels.config import NetworkSettings
from shels.errors import ArchitectureError
from shels.model import trunk
from shels.model.growth import copied, fresh
from shels.model.networks import build, from_chain
from shels.model.normalisation import BatchNorm2d, counting, rectified


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def pair(channels=3, seed=0):
    """Our layer and torch's with the same weights and averages."""
    ours, theirs = BatchNorm2d(channels).double(), nn.BatchNorm2d(channels).double()
    state = {name: drawn(channels, seed=seed + place) for place, name in enumerate(ours.state_dict())}
    state["running_var"] = state["running_var"].abs() + 0.1
    ours.load_state_dict(state)
    theirs.load_state_dict(state | {"num_batches_tracked": torch.tensor(0)})
    return ours, theirs


def assert_same_averages(ours, theirs):
    torch.testing.assert_close(ours.running_mean, theirs.running_mean, rtol=0, atol=1e-12)
    torch.testing.assert_close(ours.running_var, theirs.running_var, rtol=0, atol=1e-12)


def gradients(value, *of):
    """Gradients of a sum in which every value counts otherwise."""
    return torch.autograd.grad((value * torch.arange(value.numel()).view_as(value).sin()).sum(), of)


# Kernels, which need a GPU: torch stands in for them --------------------------------------------------------


def _affine(maps, there, scale, shift):
    """Maps of trials, scaled and shifted, of what is there: (trials, n, h, w, c)."""
    return maps * scale[:, None, None, None].to(maps.dtype) + shift[:, None, None, None].to(maps.dtype)


def _tiles(values):
    """(..., h, w, c) to (..., h / 2, w / 2, c, 4)."""
    *lead, height, width, channels = values.shape
    cut = values.reshape(*lead, height // 2, 2, width // 2, 2, channels)
    return cut.movedim((-4, -2), (-2, -1)).flatten(-2)


def moments(maps, there):
    seen = torch.where(there[:, :, None, None, None], maps.double(), 0.0)
    return seen.sum(dim=(1, 2, 3)), seen.square().sum(dim=(1, 2, 3))


def rectify(maps, there, scale, shift, *, pool):
    values = torch.where(there[:, :, None, None, None], _affine(maps, there, scale, shift).relu(), 0.0)
    if not pool:
        return values, torch.empty(0, dtype=torch.uint8)
    best, won = _tiles(values).max(dim=-1)
    return best.contiguous(), torch.where(best > 0, won, 4).to(torch.uint8)


def _opened(maps, there, gradient, won, scale, shift):
    """What passes the ReLU and the pooling, where it came from."""
    g = torch.where(there[:, :, None, None, None], gradient, 0.0)
    if not won.numel():
        return torch.where(_affine(maps, there, scale, shift) > 0, g, 0.0)
    cells = torch.where(won[..., None] == torch.arange(4), g[..., None], 0.0).unflatten(-1, (2, 2))
    return cells.movedim((-2, -1), (-4, -2)).reshape(maps.shape)


def back_sums(maps, there, gradient, won, scale, shift):
    g = _opened(maps, there, gradient, won, scale, shift)
    return g.sum(dim=(1, 2, 3)), (g * maps).sum(dim=(1, 2, 3))


def back(maps, there, gradient, won, scale, shift, slope, level):
    g = _opened(maps, there, gradient, won, scale, shift)
    each = [value[:, None, None, None] for value in (scale, slope, level)]
    return torch.where(there[:, :, None, None, None], g * each[0] + maps * each[1] + each[2], 0.0)


@pytest.fixture
def normalising(monkeypatch):
    fake = SimpleNamespace(moments=moments, rectify=rectify, back_sums=back_sums, back=back)
    monkeypatch.setattr(kernels, "normalisation", fake, raising=False)


# One network ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False])
def test_it_is_torchs_layer(training):
    ours, theirs = (layer.train(training) for layer in pair())
    x = drawn(5, 3, 4, 6)
    torch.testing.assert_close(ours(x), theirs(x))
    assert_same_averages(ours, theirs)
    assert (ours.running_mean == pair()[0].running_mean).all() == (not training)


def test_only_samples_that_are_there_count():
    ours, theirs = pair()
    x, there = drawn(6, 3, 4, 4).requires_grad_(), torch.tensor([True, False, True, True, False, True])
    with counting(there):
        got = ours(x)
    expected = theirs(x[there])
    torch.testing.assert_close(got[there], expected)
    assert not got[~there].any()
    assert_same_averages(ours, theirs)
    mine = gradients(got[there], x, ours.weight, ours.bias)
    others = gradients(expected, x, theirs.weight, theirs.bias)
    for one, other in zip(mine, others, strict=True):
        torch.testing.assert_close(one, other)
    assert not mine[0][~there].any()


def test_where_nobody_is_there_averages_stay_to_the_bit():
    ours, _ = pair()
    before = [value.clone() for value in ours.buffers()]
    with counting(torch.zeros(4, dtype=torch.bool)):
        ours(drawn(4, 3, 2, 2))
    assert all(torch.equal(*both) for both in zip(ours.buffers(), before, strict=True))


def test_one_value_is_its_own_mean():
    ours, _ = pair()
    torch.testing.assert_close(ours(drawn(1, 3, 1, 1))[0, :, 0, 0], ours.bias)
    assert all(value.isfinite().all() for value in ours.buffers())


def test_a_batch_of_other_samples_than_those_counted_is_refused():
    ours, _ = pair()
    with counting(torch.ones(4, dtype=torch.bool)), pytest.raises(ValueError, match=r"4 samples .* got 5"):
        ours(drawn(5, 3, 2, 2))
    assert ours(drawn(5, 3, 2, 2)).shape == (5, 3, 2, 2)


@pytest.mark.parametrize("pool", [False, True])
def test_over_trials_it_is_torchs_layer_and_relu_of_each_trial(normalising, pool):
    pairs = [pair(seed=10 * trial) for trial in range(3)]
    x = drawn(3, 5, 3, 4, 6).permute(0, 1, 2, 3, 4).requires_grad_()
    there = torch.tensor([[True] * 5, [True, True, False, False, True], [False] * 5])
    state = {
        name: torch.stack([ours.state_dict()[name] for ours, _ in pairs]) for name in pairs[0][0].state_dict()
    }
    weight, bias = (state[name].requires_grad_() for name in ("weight", "bias"))

    def one(*given):
        return rectified(*given, 0.1, 1e-5, pool)

    got = torch.vmap(one)(x, there, weight, bias, state["running_mean"], state["running_var"])
    mine = gradients(got, x, weight, bias)
    kept = [value.clone() for value in pairs[2][0].buffers()]
    rows = [theirs(x[trial][there[trial]]).relu() for trial, (_, theirs) in enumerate(pairs[:2])]
    rows = [F.max_pool2d(row, 2) for row in rows] if pool else rows
    whole = torch.zeros_like(got)
    whole[there] = torch.cat(rows)
    torch.testing.assert_close(got, whole, rtol=0, atol=1e-9)
    others = gradients(whole, x, *(p for _, theirs in pairs[:2] for p in (theirs.weight, theirs.bias)))
    torch.testing.assert_close(mine[0][:2], others[0][:2], rtol=0, atol=1e-9)
    torch.testing.assert_close(mine[1][:2], torch.stack(others[1::2]), rtol=0, atol=1e-9)
    torch.testing.assert_close(mine[2][:2], torch.stack(others[2::2]), rtol=0, atol=1e-9)
    for trial, (_, theirs) in enumerate(pairs[:2]):
        torch.testing.assert_close(state["running_mean"][trial], theirs.running_mean, rtol=0, atol=1e-9)
        torch.testing.assert_close(state["running_var"][trial], theirs.running_var, rtol=0, atol=1e-9)
    assert torch.equal(state["running_mean"][2], kept[0])
    assert torch.equal(state["running_var"][2], kept[1])


def test_in_half_the_precision_it_is_close_and_keeps_its_precision_and_layout(normalising):
    x = drawn(2, 8, 16, 6, 6).permute(0, 1, 3, 4, 2).contiguous().permute(0, 1, 4, 2, 3)
    weight, bias = torch.ones(2, 16), torch.zeros(2, 16)
    averages = torch.zeros(2, 16), torch.ones(2, 16)
    there = torch.ones(2, 8, dtype=torch.bool)

    def one(*given):
        return rectified(*given, 0.1, 1e-5, False)

    got = torch.vmap(one)(x.bfloat16(), there, weight, bias, *averages)
    exact = torch.stack([F.batch_norm(each, None, None, training=True).relu() for each in x])
    assert got.dtype == torch.bfloat16
    assert got.permute(0, 1, 3, 4, 2).is_contiguous()
    torch.testing.assert_close(got.double(), exact, rtol=0.02, atol=0.03)


@pytest.mark.parametrize("biased", [True, False])
def test_once_trained_a_convolution_takes_it_in(biased):
    ours, _ = pair(4)
    convolution = nn.Conv2d(2, 4, 3, padding=1, bias=biased).double()
    x = drawn(3, 2, 5, 5)
    weight, bias = ours.folded(convolution)
    torch.testing.assert_close(F.conv2d(x, weight, bias, padding=1), ours.eval()(convolution(x)))


# In chains -------------------------------------------------------------------------------------------------


def chain():
    layers = [nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16, eps=1e-3, momentum=0.3), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten()).double()


def test_a_chain_of_ones_own_keeps_its_averages():
    own = chain()
    own(drawn(6, 1, 8, 8))
    network = from_chain(own, (1, 8, 8), "cosine", 3, seed=0).eval()
    x = drawn(4, 1, 8, 8, seed=1).float()
    torch.testing.assert_close(network.features(x), own.float().eval()(x))
    assert network.weight_names() == ["body.0.weight", "body.4.weight", "head.weight"]  # what has groups
    torch.testing.assert_close(copied(network)(x), network(x))
    anew = fresh(network, 3, torch.Generator().manual_seed(0))
    assert (anew.body[1].running_var == 1).all()
    assert (anew.body[1].weight == 1).all()
    assert not anew.body[1].running_mean.any()


@pytest.mark.parametrize("options", [{"affine": False}, {"track_running_stats": False}, {"momentum": None}])
def test_a_layer_without_weights_or_averages_is_refused(options):
    layers = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2, **options), nn.ReLU(), nn.Flatten())
    with pytest.raises(ArchitectureError, match="must have weights, running averages and a momentum"):
        from_chain(layers, (1, 8, 8), "cosine", 2, seed=0)


def test_features_must_still_end_in_relu():
    layers = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.BatchNorm2d(2), nn.Flatten())
    with pytest.raises(ArchitectureError, match="it ends in BatchNorm2d"):
        from_chain(layers, (1, 8, 8), "cosine", 2, seed=0)


def test_normalisation_of_other_channels_is_refused():
    layers = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten())
    with pytest.raises(ArchitectureError, match="BatchNorm2d of 3 channels got"):
        from_chain(layers, (1, 8, 8), "cosine", 2, seed=0)


@pytest.mark.parametrize("channels", [1, 3])
def test_vgg32_shares_its_last_maps_and_averages_them_to_features(channels):
    network = build(NetworkSettings("vgg32"), (channels, 32, 32), 6, seed=0).eval()
    views = network.views(torch.rand(2, channels, 32, 32))
    assert views.shared.shape == (2, 2048)
    assert views.high.shape == (2, 128)
    assert views.high.min() >= 0
    torch.testing.assert_close(views.shared.view(2, 128, 16).mean(dim=2), views.high)
    wide = [tuple(network.get_parameter(name).shape[:2]) for name in network.weight_names()]
    assert wide == [(64, channels), (64, 64), (128, 64), *[(128, 128)] * 6, (6, 128)]
    dropped = build(NetworkSettings("vgg32-dropout"), (channels, 32, 32), 6, seed=0)
    assert sum(isinstance(layer, nn.Dropout) for layer in dropped.body) == 2


# The way of the kernels -------------------------------------------------------------------------------------


def _maps(values):
    return values.flatten(0, 1).permute(0, 3, 1, 2)


def forward(x, weight, bias, *, pool, relu=True):
    made = [
        F.conv2d(a.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2), b, padding=1)
        for a, w, b in zip(x, weight, bias, strict=True)
    ]
    out = torch.stack(made)
    out = out.relu() if relu else out
    out = torch.stack([F.max_pool2d(each, 2) for each in out]) if pool else out
    return out.permute(0, 1, 3, 4, 2).contiguous(), x.new_empty(0)


def backward_weights(gradient, below):
    each = zip(gradient.permute(0, 1, 4, 2, 3), below.permute(0, 1, 4, 2, 3), strict=True)
    shape = (gradient.shape[-1], below.shape[-1], 3, 3)
    made = [torch.nn.grad.conv2d_weight(b, shape, g, padding=1) for g, b in each]
    return torch.stack(made).permute(0, 1, 3, 4, 2).contiguous()


def backward_first(gradient, weight, below):
    each = zip(gradient.permute(0, 1, 4, 2, 3), weight.permute(0, 1, 4, 2, 3), strict=True)
    made = [F.conv_transpose2d(g, w, padding=1) for g, w in each]
    return torch.stack(made).permute(0, 1, 3, 4, 2).contiguous()


@pytest.fixture
def pretended(monkeypatch, normalising):
    """Let stacks take the way of the kernels on a CPU, in float64."""
    fake = SimpleNamespace(forward=forward, backward_weights=backward_weights, backward_first=backward_first)
    monkeypatch.setattr(kernels, "convolution", fake, raising=False)
    axis = SimpleNamespace(has_kernels=lambda _: True, precision=lambda: torch.float64)
    return lambda: monkeypatch.setattr(trunk, "trial_axis", axis)


@pytest.mark.parametrize("training", [True, False])
def test_the_way_of_the_kernels_is_the_way_without_them(pretended, training):
    networks = [
        from_chain(chain(), (1, 8, 8), "cosine", 3, seed).double().train(training) for seed in range(2)
    ]
    x, there = drawn(2, 5, 1, 8, 8), torch.tensor([[True] * 5, [True, True, True, False, False]])

    def values():
        return {n: torch.stack([net.state_dict()[n] for net in networks]) for n in networks[0].state_dict()}

    def one(state, inputs, present):
        with counting(present):
            return functional_call(networks[0], state, (inputs,))

    results = []
    for way in ("without", "with"):
        if way == "with":
            pretended()
        state = values()
        for name in dict(networks[0].named_parameters()):
            state[name].requires_grad_()
        scores = torch.vmap(one)(state, x, there)
        params = [state[name] for name in dict(networks[0].named_parameters())]
        grads = gradients(torch.where(there[..., None], scores, 0.0), *params) if training else ()
        averages = [value for name, value in state.items() if "running" in name]
        results.append([scores[there], *grads, *averages])
    for mine, other in zip(*results, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-9)


def test_the_trunk_takes_convolutions_with_their_normalisation():
    layers = list(from_chain(chain(), (1, 8, 8), "cosine", 3, seed=0).body)
    found = trunk.leading(layers, (8, 8))
    assert found.layers == 7
    assert found.pools == (True, False)
    assert found.norms == (layers[1], layers[5])
    mixed = [*layers[:4], nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()]
    assert trunk.leading(mixed, (8, 8)).layers == 4
    assert trunk.leading(mixed[4:], (8, 8)).norms == ()
