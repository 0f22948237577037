from __future__ import annotations

import pytest
import torch
from torch import nn

from shels.model.activations import activation_sums, importance, total_sums, weight_layers
from shels.model.networks import from_chain


def small():
    chain = nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 3), nn.ReLU()
    )
    return from_chain(chain, (1, 4, 4), "cosine", 2, seed=0)


def test_weight_layers_name_the_units_at_both_ends():
    assert [tuple(layer) for layer in weight_layers(small())] == [
        ("body.0.weight", "body.0.bias", None, "body.0"),
        ("body.4.weight", "body.4.bias", "body.3", "body.4"),
        ("head.weight", None, "body.4", "head"),
    ]


def test_a_linear_head_has_a_bias_and_a_layer_without_one_has_none():
    chain = nn.Sequential(nn.Linear(4, 3, bias=False), nn.ReLU())
    layers = weight_layers(from_chain(chain, (4,), "linear", 2, seed=0))
    assert [layer.bias for layer in layers] == [None, "head.bias"]


def test_importance_of_hand_worked_activations():
    chain = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    network = from_chain(chain, (2,), "cosine", 2, seed=0)
    with torch.no_grad():
        network.body[0].weight.copy_(torch.tensor([[1.0, 0.0], [0.0, -1.0], [1.0, 1.0]]))
        network.body[0].bias.copy_(torch.tensor([0.0, 0.0, -1.0]))
    inputs = torch.tensor([[1.0, 2.0], [3.0, 0.0], [-2.0, -4.0]])
    sums = activation_sums(network, inputs)
    assert importance(sums["body.0"], 3).tolist() == pytest.approx([4 / 3, 4 / 3, 4 / 3])
    assert sums["body.0"].tolist() == [4, 4, 4]  # 1 + 3 + 0; 0 + 0 + 4; 2 + 2 + 0


def test_a_channel_is_weighed_by_its_mean_over_space_or_by_the_norm_of_its_mean_map():
    sums = torch.tensor([[[3.0, 0.0], [0.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]]]) * 10
    assert importance(sums, 10).tolist() == pytest.approx([7 / 4, 0])
    assert importance(sums, 10, "map-norm").tolist() == pytest.approx([5, 0])


def test_flattened_positions_are_units_after_pooling():
    network = small()
    inputs = torch.rand(5, 1, 4, 4)
    sums = activation_sums(network, inputs)
    maps = network.body[:3](inputs)
    assert {name: tuple(value.shape) for name, value in sums.items()} == {
        "body.0": (2, 4, 4),
        "body.3": (8,),
        "body.4": (3,),
    }
    assert torch.allclose(sums["body.3"], maps.flatten(1).sum(dim=0))
    assert torch.allclose(sums["body.0"], network.body[:2](inputs).sum(dim=0))


def test_sums_over_batches_are_the_sums_over_all():
    network, inputs = small(), torch.rand(7, 1, 4, 4)
    parts = total_sums(network, torch.split(inputs, 3))
    for name, value in activation_sums(network, inputs).items():
        assert torch.allclose(parts[name], value, atol=1e-6)


def test_a_layer_without_relu_counts_by_size_not_sign():
    chain = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.ReLU())
    network = from_chain(chain, (2,), "cosine", 2, seed=0)
    with torch.no_grad():
        network.body[0].weight.copy_(-torch.eye(2))
        network.body[0].bias.zero_()
    assert activation_sums(network, torch.ones(3, 2))["body.0"].tolist() == [3, 3]
