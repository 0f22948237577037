"""What many networks see of samples, against each network by itself."""

from __future__ import annotations

from contextlib import nullcontext
from unittest.mock import patch

import pytest
import torch
from torch import nn

from shels.config import NetworkSettings
from shels.data.preparation import Preparation
from shels.model.networks import build, from_chain
from shels.training import features
from shels.training.features import views_of

SEE = pytest.mark.parametrize("see", ["one by one", "stacked"])
IMAGES = Preparation((1, 8, 8))
VECTORS = Preparation((6,), mean=torch.full((6,), 0.5), sd=torch.full((6,), 2.0))


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch):
    """Let what a GPU does be done here too."""
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())


def images(n):
    return torch.randint(0, 256, (n, 1, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


def convolutional(seed, classes=3):
    return build(NetworkSettings("small"), (1, 8, 8), classes, seed)


def of_vectors(seed):
    torch.manual_seed(seed)
    layers = [nn.Linear(6, 9), nn.ReLU(), nn.Dropout(0.5), nn.Linear(9, 5), nn.ReLU(), nn.Dropout(0.5)]
    return from_chain(nn.Sequential(*layers), (6,), "cosine", 2, seed)


def parts_of(total, sizes):
    draws = torch.Generator().manual_seed(1)
    return [torch.randint(0, total, (size,), generator=draws) for size in sizes]


def seen(networks, inputs, parts, prepare, *, shared=True, see="one by one"):
    with patch.object(features, "_on_gpu", lambda inputs: see == "stacked"):
        return views_of(networks, inputs, parts, prepare, precision=torch.float32, shared=shared)


@torch.no_grad()
def expected(network, inputs, part, prepare):
    return network.eval().views(prepare(inputs[part]))


@SEE
def test_views_of_images_are_those_of_each_network(see):
    networks, inputs = [convolutional(0), convolutional(1, 5), convolutional(2)], images(40)
    parts = parts_of(40, (17, 40, 1))
    for network, part, views in zip(
        networks, parts, seen(networks, inputs, parts, IMAGES, see=see), strict=True
    ):
        wanted = expected(network, inputs, part, IMAGES)
        assert views.high.shape == (len(part), 128)
        assert views.shared.shape == wanted.shared.shape
        torch.testing.assert_close(views.high, wanted.high, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(views.shared, wanted.shared, rtol=1e-5, atol=1e-6)


@SEE
def test_views_of_vectors_are_those_of_each_network_without_dropout(see):
    networks = [of_vectors(0).train(), of_vectors(1).train()]
    inputs = torch.randn(30, 6, generator=torch.Generator().manual_seed(0))
    parts = parts_of(30, (30, 8))
    if see is not views_of:  # which sets this itself
        networks = [network.eval() for network in networks]
    found = seen(networks, inputs, parts, VECTORS, see=see)
    for network, part, views in zip(networks, parts, found, strict=True):
        assert not network.training
        wanted = expected(network, inputs, part, VECTORS)
        torch.testing.assert_close(views.high, wanted.high, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(views.shared, wanted.shared, rtol=1e-5, atol=1e-6)


@SEE
def test_more_samples_than_a_batch_holds_come_whole_and_in_order(see):
    inputs = torch.randn(1300, 6, generator=torch.Generator().manual_seed(0))
    assert VECTORS.evaluation_batch == 512
    networks, parts = [of_vectors(0).eval(), of_vectors(1).eval()], parts_of(1300, (1300, 512))
    found = seen(networks, inputs, parts, VECTORS, see=see)
    for network, part, views in zip(networks, parts, found, strict=True):
        wanted = expected(network, inputs, part, VECTORS)
        torch.testing.assert_close(views.high, wanted.high, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(views.shared, wanted.shared, rtol=1e-5, atol=1e-6)


@SEE
def test_without_low_level_features_that_part_is_empty_and_the_other_the_same(see):
    networks, inputs = [convolutional(0), convolutional(1)], images(12)
    parts = parts_of(12, (12, 5))
    found = seen(networks, inputs, parts, IMAGES, shared=False, see=see)
    for network, part, views in zip(networks, parts, found, strict=True):
        assert views.shared.shape == (len(part), 0)
        wanted = expected(network, inputs, part, IMAGES).high
        torch.testing.assert_close(views.high, wanted, rtol=1e-5, atol=1e-6)


def test_views_carry_no_gradient_and_leave_the_networks_weights_alone():
    network = convolutional(0)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    (views,) = seen([network], images(4), [torch.arange(4)], IMAGES)
    assert not views.high.requires_grad
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


@pytest.mark.parametrize("shared", [False, True])
def test_a_network_without_samples_sees_nothing(shared):
    networks, inputs = [convolutional(0), convolutional(1)], images(12)
    parts = [torch.arange(12), torch.zeros(0, dtype=torch.int64)]
    some, none = seen(networks, inputs, parts, IMAGES, shared=shared)
    assert some.high.shape == (12, 128)
    assert none.high.shape == (0, 128)
    assert none.shared.shape == (0, some.shared.shape[1])


def test_stacked_viewing_leaves_the_precision_of_products_as_it_was():
    before = torch.get_float32_matmul_precision()
    seen([of_vectors(0).eval()], torch.zeros(3, 6), [torch.arange(3)], VECTORS, see="stacked")
    assert torch.get_float32_matmul_precision() == before
