from __future__ import annotations

import pytest
import torch
from torch import nn

from shels.errors import ArchitectureError
from shels.model.chains import describe, rebuild
from shels.model.growth import add_class, add_units, copied, drop_class, growable
from shels.model.networks import from_chain
from shels.runtime import generator


def network(head="cosine"):
    chain = nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32, 6), nn.ReLU(), nn.Linear(6, 4),
        nn.ReLU(), nn.Dropout(0.5),
    )  # fmt: skip
    torch.manual_seed(1)
    for layer in chain:
        if hasattr(layer, "weight"):
            nn.init.xavier_uniform_(layer.weight)
    return from_chain(chain, (1, 4, 4), head, 3, seed=0).eval()


INPUTS = torch.rand(9, 1, 4, 4, generator=torch.Generator().manual_seed(5))


@torch.no_grad()
def raw(net, inputs=INPUTS):
    return net.features(inputs) @ net.head.weight.T


def test_added_units_leave_old_units_and_raw_scores_unchanged():
    old = network()
    grown = add_units(old, {"body.3": 5, "body.5": 7}, generator(0, "units"))
    features = grown.features(INPUTS).detach()
    assert features.shape == (9, 11)
    assert torch.allclose(features[:, :4], old.features(INPUTS), atol=1e-7)
    assert torch.allclose(raw(grown), raw(old), atol=1e-7)
    assert (features[:, 4:] > 0).any()  # the new units live, yet nothing reads them


def test_added_units_keep_the_order_of_the_cosines():
    old = network()
    grown = add_units(old, {"body.5": 7}, generator(0, "units"))
    assert torch.equal(grown(INPUTS).argsort(dim=1), old(INPUTS).argsort(dim=1))


def test_added_units_keep_old_weights_to_the_bit_and_nothing_old_reads_them():
    old = network("linear")
    grown = add_units(old, {"body.3": 5}, generator(0, "units"))
    assert torch.equal(grown.body[3].weight[:6], old.body[3].weight)
    assert torch.equal(grown.body[5].weight[:, :6], old.body[5].weight)
    assert not grown.body[5].weight[:, 6:].any()
    assert not grown.body[3].bias[6:].any()
    assert grown.body[3].weight[6:].abs().max() <= (6 / (32 + 11)) ** 0.5  # Xavier's bound


def test_a_grown_network_can_be_described_and_rebuilt():
    grown = add_units(network(), {"body.3": 5, "body.5": 1}, generator(0, "units"))
    body = rebuild(describe(grown.body)).eval()
    body.load_state_dict(grown.body.state_dict())
    assert torch.equal(body(INPUTS), grown.features(INPUTS))


@pytest.mark.parametrize("head", ["cosine", "linear"])
def test_another_class_leaves_the_old_classes_scores_unchanged(head):
    old = network(head)
    grown = add_class(old, generator(0, "head"))
    assert grown.head.weight.shape == (4, 4)
    assert torch.equal(grown.head.weight[:3], old.head.weight)
    assert torch.allclose(grown(INPUTS)[:, :3], old(INPUTS), atol=1e-7)
    assert grown.head.weight[3].abs().max() <= (6 / 8) ** 0.5
    assert grown.head.weight[3].any()


def test_dropping_a_class_leaves_the_others_rows_as_they_were():
    old = network("linear")
    smaller = drop_class(old, 1)
    assert torch.equal(smaller.head.weight, old.head.weight[[0, 2]])
    assert torch.equal(smaller.head.bias, old.head.bias[[0, 2]])
    with pytest.raises(ArchitectureError, match="classes 0 to 2, got 3"):
        drop_class(old, 3)


def test_a_copy_shares_nothing():
    old = network()
    other = copied(old)
    with torch.no_grad():
        other.body[3].weight.zero_()
    assert old.body[3].weight.any()


def test_only_linear_layers_can_grow():
    assert growable(network()) == ["body.3", "body.5"]
    with pytest.raises(ArchitectureError, match="linear layers"):
        add_units(network(), {"body.0": 2}, generator(0, "units"))


def test_growth_draws_the_same_units_from_the_same_seed():
    one, two = (add_units(network(), {"body.3": 2}, generator(3, "units")) for _ in range(2))
    assert torch.equal(one.body[3].weight, two.body[3].weight)
