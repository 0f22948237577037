"""Rivals that train otherwise: their losses worked out by hand, and trained through the same door."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from shels.config import Adam, NetworkSettings, TrainingSettings
from shels.data.preparation import Preparation
from shels.model.head import ScaledCosineHead, scaled_cosines
from shels.model.networks import build
from shels.model.sparsity import exclusive_sparsity
from shels.training.data import Batch, Rows, TrialData, TrialTraining
from shels.training.loop import fit_trials
from shels.training.losses import exclusive_sparsity_loss, scaled_cosine_loss, softmax_twice_loss

SETTINGS = TrainingSettings(Adam(1e-2), batch_size=8, epochs=5, alpha=0.0)


def test_exclusive_sparsity_is_half_the_square_of_what_a_unit_feeds_in_all():
    linear = torch.tensor([[1.0, -2.0], [3.0, 0.0]])  # (out, in): unit 0 feeds 1 and 3, unit 1 feeds -2 and 0
    assert float(exclusive_sparsity([linear], [1.0])) == pytest.approx((4**2 + 2**2) / 2)
    window = torch.zeros(1, 2, 2, 2)
    window[0, 0] = torch.tensor([[3.0, 4.0], [0.0, 0.0]])  # its norm is 5
    assert float(exclusive_sparsity([linear, window], [0.0, 0.5])) == pytest.approx(0.5 * 25 / 2)


def test_exclusive_sparsity_grows_with_depth_and_leaves_the_first_layer_alone():
    network = build(NetworkSettings("vectors", head="linear"), (4,), 3, 0)
    params = {name: value.detach().clone().requires_grad_() for name, value in network.named_parameters()}
    batch = Batch(torch.randn(5, 4, generator=torch.Generator().manual_seed(0)), torch.arange(5) % 3)
    loss = exclusive_sparsity_loss(network, SETTINGS, gamma=0.01)(params, batch, {})
    weights = [params[name] for name in network.weight_names()]
    by_hand = sum(
        share / 2 * weight.abs().sum(dim=0).square().sum()
        for share, weight in zip((0, 0.5, 1), weights, strict=True)
    )
    expected = F.cross_entropy(network(batch.inputs), batch.labels) + 0.01 * by_hand
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)


def test_a_scaled_cosine_is_the_cosine_times_exp_of_a_batch_normalised_map():
    draw = torch.Generator().manual_seed(0)
    features, weight = torch.rand(6, 5, generator=draw), torch.randn(3, 5, generator=draw)
    head = {"weight": weight, "scale": torch.randn(5, generator=draw)}
    head |= {"gain": torch.tensor([0.7]), "shift": torch.tensor([0.2])}
    got = scaled_cosines(features, head, torch.ones(6, dtype=torch.bool))
    norm = torch.nn.BatchNorm1d(1)
    with torch.no_grad():
        norm.weight.fill_(0.7)
        norm.bias.fill_(0.2)
        scale = norm((features @ head["scale"])[:, None] + 5.0).exp()  # a bias before it cancels
    expected = scale * F.cosine_similarity(features[:, None], weight[None], dim=2)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_samples_that_are_not_there_do_not_move_the_scale():
    draw = torch.Generator().manual_seed(1)
    features = torch.rand(6, 5, generator=draw)
    head = {"weight": torch.randn(3, 5, generator=draw), "scale": torch.randn(5, generator=draw)}
    head |= {"gain": torch.ones(1), "shift": torch.zeros(1)}
    there = torch.tensor([True, True, True, True, False, False])
    whole = scaled_cosines(features, head, there)[:4]
    torch.testing.assert_close(whole, scaled_cosines(features[:4], head, there[:4]))


def test_after_training_the_scale_is_the_same_for_every_sample():
    head = ScaledCosineHead(5, 3)
    torch.nn.init.xavier_uniform_(head.weight)
    head.start(torch.Generator().manual_seed(0))
    with torch.no_grad():
        head.shift.fill_(math.log(3.0))
    head.eval()
    features = torch.rand(4, 5)
    expected = 3 * F.cosine_similarity(features[:, None], head.weight[None], dim=2)
    torch.testing.assert_close(head(features), expected)
    torch.testing.assert_close(head(features[:1]), expected[:1])


def test_the_softmax_of_the_authors_code_comes_twice():
    network = build(NetworkSettings("vectors", head="scaled-cosine"), (4,), 3, 0)
    params = dict(network.named_parameters())
    batch = Batch(torch.randn(5, 4, generator=torch.Generator().manual_seed(0)), torch.arange(5) % 3)
    got = softmax_twice_loss(network, SETTINGS)(params, batch, {})
    network.train()
    chances = F.softmax(network(batch.inputs), dim=1)
    expected = -F.log_softmax(chances, dim=1)[torch.arange(5), batch.labels].mean()
    assert float(got.detach()) == pytest.approx(float(expected.detach()), rel=1e-6)
    least = math.log(1 + 2 / math.e)  # a softmax of chances, so never under that of 1, 0, 0
    assert float(got.detach()) > least


@pytest.mark.parametrize(
    ("head", "make"),
    [
        ("scaled-cosine", scaled_cosine_loss),
        ("scaled-cosine", softmax_twice_loss),
        ("linear", exclusive_sparsity_loss),
    ],
)
def test_a_rival_trains_alike_alone_and_stacked_also_with_short_batches(head, make):
    def trials():
        draw = torch.Generator().manual_seed(0)
        inputs = torch.randn(90, 4, generator=draw)
        out = []
        for seed, (classes, n) in enumerate(((3, 37), (4, 50))):
            labels = torch.arange(n + 12) % classes
            rows = Rows(torch.arange(n), labels[:n]), Rows(torch.arange(n, n + 12), labels[n:])
            network = build(NetworkSettings("vectors", head=head), (4,), classes, seed).double()
            out.append(TrialTraining(network, TrialData(inputs, *rows, Preparation((4,))), seed))
        return out

    alone, stacked = trials(), trials()
    for trial in alone:
        fit_trials([trial], make(trial.network, SETTINGS), SETTINGS)
    fit_trials(stacked, make(stacked[0].network, SETTINGS), replace(SETTINGS), together=2)
    for one, other in zip(alone, stacked, strict=True):
        pairs = zip(one.network.parameters(), other.network.parameters(), strict=True)
        assert max(float((a - b).detach().abs().max()) for a, b in pairs) < 1e-9
