import json

import pytest
import torch
from torch import nn

from shels.errors import ArchitectureError
from shels.model.chains import describe, feature_count, flat, rebuild
from shels.model.networks import from_chain

# Each kind of layer with options away from their defaults, as plain data, and an input it takes.
LAYERS = [
    (
        nn.Conv2d(2, 3, (3, 5), stride=(1, 2), padding=(0, 2), dilation=2, bias=False),
        {
            "kind": "Conv2d",
            "in_channels": 2,
            "out_channels": 3,
            "kernel_size": [3, 5],
            "stride": [1, 2],
            "padding": [0, 2],
            "dilation": [2, 2],
            "bias": False,
        },
    ),
    (
        nn.Conv2d(2, 4, 3, padding="same"),
        {
            "kind": "Conv2d",
            "in_channels": 2,
            "out_channels": 4,
            "kernel_size": [3, 3],
            "stride": [1, 1],
            "padding": "same",
            "dilation": [1, 1],
            "bias": True,
        },
    ),
    (nn.Linear(11, 3), {"kind": "Linear", "in_features": 11, "out_features": 3, "bias": True}),
    (nn.Linear(11, 3, bias=False), {"kind": "Linear", "in_features": 11, "out_features": 3, "bias": False}),
    (nn.ReLU(), {"kind": "ReLU"}),
    (
        nn.MaxPool2d((3, 2), stride=2, padding=(1, 0), dilation=2, ceil_mode=True),
        {
            "kind": "MaxPool2d",
            "kernel_size": [3, 2],
            "stride": 2,
            "padding": [1, 0],
            "dilation": 2,
            "return_indices": False,
            "ceil_mode": True,
        },
    ),
    (
        nn.AvgPool2d(3, stride=2, padding=1, ceil_mode=True, count_include_pad=False, divisor_override=2),
        {
            "kind": "AvgPool2d",
            "kernel_size": 3,
            "stride": 2,
            "padding": 1,
            "ceil_mode": True,
            "count_include_pad": False,
            "divisor_override": 2,
        },
    ),
    (nn.AdaptiveAvgPool2d((None, 3)), {"kind": "AdaptiveAvgPool2d", "output_size": [None, 3]}),
    (nn.AdaptiveMaxPool2d(2), {"kind": "AdaptiveMaxPool2d", "output_size": 2}),
    (nn.Flatten(2), {"kind": "Flatten", "start_dim": 2, "end_dim": -1}),
    (nn.Dropout(0.25), {"kind": "Dropout", "p": 0.25}),
    (nn.Dropout2d(0.75), {"kind": "Dropout2d", "p": 0.75}),
    (nn.Identity(), {"kind": "Identity"}),
    (nn.BatchNorm2d(2), {"kind": "BatchNorm2d", "num_features": 2, "eps": 1e-05, "momentum": 0.1}),
]


@pytest.mark.parametrize(("layer", "data"), LAYERS)
def test_a_layer_is_told_as_plain_data(layer, data):
    assert json.loads(json.dumps(describe(nn.Sequential(layer)))) == [data]


@pytest.mark.parametrize(("layer", "data"), LAYERS)
def test_a_layer_rebuilt_from_json_does_the_same(layer, data):
    (again,) = rebuild(json.loads(json.dumps(describe(nn.Sequential(layer)))))
    if not isinstance(layer, nn.BatchNorm2d):  # ours takes its place
        assert type(again) is type(layer)
        assert repr(again) == repr(layer)
    again.load_state_dict({name: value for name, value in layer.state_dict().items() if value.ndim})
    inputs = torch.randn(3, 2, 9, 11, generator=torch.Generator().manual_seed(0))
    assert torch.equal(again.eval()(inputs), layer.eval()(inputs))


def test_a_rebuilt_chain_is_told_as_the_first_one_and_its_weights_are_real():
    chain = nn.Sequential(*(layer for layer, _ in LAYERS))
    again = rebuild(json.loads(json.dumps(describe(chain))))
    assert describe(again) == describe(chain)
    assert {value.device.type for value in again.parameters()} == {"cpu"}


def test_a_chain_in_a_chain_is_laid_flat_in_order():
    first, second, third, fourth = nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 3), nn.ReLU()
    nested = nn.Sequential(first, nn.Sequential(second, nn.Sequential(third)), nn.Sequential(), fourth)
    assert list(flat(nested)) == [first, second, third, fourth]
    assert [item["kind"] for item in describe(nested)] == ["Linear", "ReLU", "Linear", "ReLU"]


def nested_chain():
    convolutions = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(convolutions, nn.Sequential(nn.Flatten(), nn.Linear(36, 5)), nn.ReLU())


def test_a_chain_of_ones_own_keeps_its_weights():
    chain = nested_chain()
    network = from_chain(chain, (1, 8, 8), "cosine", 3, seed=0)
    inputs = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(network.features(inputs), chain(inputs))
    assert network.head.weight.shape == (3, 5)


def test_the_users_chain_is_copied_not_shared():
    chain = nested_chain()
    network = from_chain(chain, (1, 8, 8), "cosine", 3, seed=0)
    before = chain[0][0].weight.detach().clone()
    with torch.no_grad():
        for value in network.parameters():
            value.zero_()
    assert torch.equal(chain[0][0].weight, before)
    assert before.abs().sum() > 0


@pytest.mark.parametrize(
    ("end", "width"),
    [
        ([nn.ReLU(), nn.Flatten()], 2 * 6 * 6),
        ([nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()], 2 * 3 * 3),
        ([nn.ReLU(), nn.AvgPool2d(3), nn.Flatten(), nn.Dropout(0.5)], 2 * 2 * 2),
        ([nn.ReLU(), nn.Dropout2d(0.5), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Identity()], 2 * 4 * 4),
        ([nn.ReLU(), nn.AdaptiveMaxPool2d(5), nn.Flatten()], 2 * 5 * 5),
    ],
)
def test_after_the_last_relu_may_come_what_keeps_features_from_being_negative(end, width):
    chain = nn.Sequential(nn.Conv2d(1, 2, 3), *end)
    network = from_chain(chain, (1, 8, 8), "cosine", 2, seed=0)
    assert network.head.weight.shape == (2, width)
    assert network.features(torch.randn(5, 1, 8, 8)).min() >= 0


@pytest.mark.parametrize(("side", "width"), [(8, 36), (10, 64), (11, 64)])
def test_the_width_of_features_follows_the_input(side, width):
    chain = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    assert feature_count(chain, (1, side, side)) == width


# Refusals: the reason, then what to do ------------------------------------------------------------------


class Swish(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)


class ReLU(nn.Module):  # an impostor's name must not help
    def forward(self, x):
        return x


def refused(*layers, shape=(4,)):
    with pytest.raises(ArchitectureError) as caught:
        from_chain(nn.Sequential(*layers), shape, "cosine", 2, seed=0)
    return str(caught.value)


@pytest.mark.parametrize(
    ("layers", "end"),
    [
        ([nn.Linear(4, 3)], "Linear"),
        ([nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3), nn.Dropout(0.1)], "Linear"),
    ],
)
def test_a_chain_that_does_not_end_in_relu_is_told_why_it_must(layers, end):
    message = refused(*layers)
    assert f"must end in ReLU, then pooling, Flatten or Dropout at most; it ends in {end}." in message
    assert "features must not be negative: add nn.ReLU()" in message


@pytest.mark.parametrize(
    "layer",
    [nn.BatchNorm1d(4), nn.LayerNorm(4), nn.PReLU(), nn.Bilinear(4, 4, 4), nn.ConvTranspose2d(1, 1, 3)],
)
def test_layers_with_other_weights_are_refused_because_of_the_sparsity(layer):
    message = refused(nn.Linear(4, 4), layer, nn.ReLU())
    assert f"layer {type(layer).__name__} has weights that the group sparsity cannot group" in message
    assert "a chain may hold: Conv2d, Linear, ReLU, MaxPool2d" in message


@pytest.mark.parametrize("layer", [Swish(), nn.GELU(), nn.Sigmoid(), ReLU()])
def test_other_layers_are_refused_with_those_that_are_possible(layer):
    message = refused(nn.Linear(4, 4), layer, nn.ReLU())
    assert f"layer {type(layer).__name__} is not known" in message
    assert "a chain may hold: Conv2d, Linear, ReLU, MaxPool2d" in message


def test_a_layer_deep_in_the_chain_is_refused_too():
    assert "layer BatchNorm1d" in refused(nn.Sequential(nn.Sequential(nn.BatchNorm1d(1))), nn.ReLU())


@pytest.mark.parametrize("options", [{"groups": 2}, {"padding": 1, "padding_mode": "reflect"}])
def test_a_convolution_without_units_of_one_channel_is_refused(options):
    message = refused(nn.Conv2d(4, 4, 3, **options), nn.ReLU(), nn.Flatten(), shape=(4, 8, 8))
    assert message == "Conv2d must have groups=1 and zero padding: a unit is one input channel"


def test_features_that_are_not_flat_are_refused_with_what_to_add():
    message = refused(nn.Conv2d(1, 2, 3), nn.ReLU(), shape=(1, 8, 8))
    assert "turns 2 samples of shape (1, 8, 8) into (2, 2, 6, 6)" in message
    assert "end it in nn.Flatten()" in message


def test_a_chain_that_mixes_samples_is_refused():
    assert "turns 2 samples" in refused(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(0, 2), shape=(1, 8, 8))


@pytest.mark.parametrize(
    ("layers", "shape"),
    [
        ([nn.Linear(5, 3), nn.ReLU()], (4,)),
        ([nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten()], (1, 8, 8)),
        ([nn.Conv2d(1, 2, 9), nn.ReLU(), nn.Flatten()], (1, 8, 8)),
        ([nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten()], (64,)),
        ([nn.Flatten(), nn.Linear(63, 3), nn.ReLU()], (1, 8, 8)),
        ([nn.Flatten(2), nn.Linear(4, 3), nn.ReLU()], (4,)),
    ],
)
def test_a_chain_for_other_inputs_is_refused_with_the_shape_it_got(layers, shape):
    message = refused(*layers, shape=shape)
    assert message.startswith(f"the chain does not fit inputs of shape {shape} ")


@pytest.mark.parametrize("layers", [[nn.Flatten(), nn.ReLU()], [nn.Flatten()], []])
def test_a_chain_without_weights_is_refused_with_what_to_add(layers):
    assert refused(*layers) == "the chain has no layer with weights; add nn.Conv2d or nn.Linear, then nn.ReLU"


class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


def test_a_chain_that_computes_in_its_own_way_is_refused():
    assert "got Residual, which computes in its own way" in refused(Residual(nn.Linear(4, 4)), nn.ReLU())


def test_a_layer_that_stands_twice_is_refused():
    twice = nn.Linear(4, 4)
    assert "stands twice" in refused(twice, nn.ReLU(), twice, nn.ReLU())


def test_pooling_that_returns_indices_is_refused():
    layers = nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2, return_indices=True), nn.Flatten()
    assert "must not return indices" in refused(*layers, shape=(1, 8, 8))


def test_looking_at_a_chain_with_dropout_draws_nothing():
    chain = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.5))
    before = torch.get_rng_state()
    from_chain(chain, (4,), "cosine", 2, seed=0)
    assert torch.equal(torch.get_rng_state(), before)
    assert chain.training


@pytest.mark.parametrize("chain", [nn.Linear(4, 4), nn.ModuleList([nn.Linear(4, 4), nn.ReLU()]), Swish()])
def test_what_is_no_sequential_is_refused_by_its_kind(chain):
    with pytest.raises(
        ArchitectureError, match=f"must be an nn.Sequential of layers, got {type(chain).__name__}"
    ):
        from_chain(chain, (4,), "cosine", 2, seed=0)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"kind": "Lineer"}, "unknown layer 'Lineer'; did you mean 'Linear'"),
        ({"in_features": 1}, "unknown layer 'None'"),
        ({"kind": "Linear", "in_features": 3}, r"layer Linear cannot be made from \{'in_features': 3\}"),
        ({"kind": "ReLU", "slope": 0.1}, "layer ReLU cannot be made from"),
        ({"kind": "Linear", "in_features": -1, "out_features": 2}, "layer Linear cannot be made from"),
    ],
)
def test_data_that_tells_of_no_chain_is_refused(data, message):
    with pytest.raises(ArchitectureError, match=message):
        rebuild([data])
