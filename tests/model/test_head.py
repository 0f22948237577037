import pytest
import torch
from scipy.spatial.distance import cdist
from torch.nn.functional import cosine_similarity

from shels.config import NetworkSettings
from shels.detection.head import Head
from shels.model.growth import add_class, copied, fresh
from shels.model.head import CosineHead, LinearHead, ScaledCosineHead, scaled_cosines
from shels.model.networks import build


def head_with(rows, dtype=torch.float32):
    weight = torch.as_tensor(rows, dtype=dtype)
    head = CosineHead(weight.shape[1], weight.shape[0])
    head.weight = torch.nn.Parameter(weight)
    return head


def test_scores_are_cosines_worked_by_hand():
    head = head_with([[3.0, 4.0], [0.0, 2.0], [-4.0, -3.0]])
    scores = head(torch.tensor([[4.0, 3.0], [0.0, 7.0]]))
    assert scores[0].tolist() == pytest.approx([24 / 25, 3 / 5, -1.0])
    assert scores[1].tolist() == pytest.approx([4 / 5, 1.0, -3 / 5])


def test_scores_agree_with_scipy_and_torch():
    draw = torch.Generator().manual_seed(0)
    weight = torch.randn(7, 20, generator=draw, dtype=torch.float64)
    features = torch.rand(30, 20, generator=draw, dtype=torch.float64)
    scores = head_with(weight, torch.float64)(features).detach()
    torch.testing.assert_close(scores, torch.from_numpy(1 - cdist(features, weight, "cosine")))
    torch.testing.assert_close(scores, cosine_similarity(features[:, None], weight[None], dim=2))


@pytest.mark.parametrize("scale", [0.5, 16.0])
def test_a_scale_multiplies_every_cosine(scale):
    rows, features = torch.tensor([[3.0, 4.0], [0.0, 2.0]]), torch.tensor([[4.0, 3.0]])
    head = CosineHead(2, 2, scale)
    head.weight = torch.nn.Parameter(rows)
    assert head(features)[0].tolist() == pytest.approx([scale * 24 / 25, scale * 3 / 5])
    assert head.scale_now() == scale
    assert [name for name, _ in head.named_parameters()] == ["weight"]  # a fixed scale is no weight
    torch.testing.assert_close(Head.of(head).logits(features), head(features))
    torch.testing.assert_close(Head.of(head).first(1).logits(features), head(features)[:, :1])


def test_a_learned_scale_begins_at_ten_and_has_a_gradient():
    network = build(NetworkSettings("vectors", scale=None), (4,), 3, seed=0)
    assert network.head.scale_now() == pytest.approx(10.0)
    inputs = torch.rand(5, 4)
    cosines = cosine_similarity(network.features(inputs)[:, None], network.head.weight[None], dim=2)
    torch.testing.assert_close(network(inputs), 10 * cosines)
    network(inputs)[:, 0].sum().backward()
    assert network.head.log_scale.grad.item() == pytest.approx(network(inputs)[:, 0].sum().item(), rel=1e-5)
    torch.testing.assert_close(Head.of(network.head).logits(network.features(inputs)), network(inputs))


@pytest.mark.parametrize("scale", [1.0, 4.0, None])
def test_a_scale_stays_with_a_network_that_is_copied_or_grown(scale):
    network = build(NetworkSettings("vectors", scale=scale), (4,), 3, seed=0)
    draw, inputs = torch.Generator().manual_seed(0), torch.rand(5, 4)
    torch.testing.assert_close(copied(network)(inputs), network(inputs))
    torch.testing.assert_close(add_class(network, draw)(inputs)[:, :3], network(inputs))
    assert fresh(network, 5, draw).head.scale_now() == pytest.approx(network.head.scale_now())


def test_neither_the_strength_of_features_nor_of_weights_counts():
    rows, features = torch.tensor([[1.0, 2.0], [3.0, -1.0]]), torch.tensor([[0.5, 1.5]])
    expected = head_with(rows)(features)
    torch.testing.assert_close(head_with(rows * 1000)(features), expected)
    torch.testing.assert_close(head_with(rows)(features * 1e-4), expected)


def test_there_is_no_bias_and_no_scale():
    shapes = {name: tuple(value.shape) for name, value in CosineHead(5, 3).named_parameters()}
    assert shapes == {"weight": (3, 5)}
    assert list(CosineHead(5, 3).buffers()) == []


def test_features_of_zeros_score_0_with_every_class_and_their_gradient_is_finite():
    head = head_with([[3.0, 4.0], [1.0, -1.0]])
    features = torch.tensor([[0.0, 0.0], [1.0, 0.0]], requires_grad=True)
    scores = head(features)
    assert scores[0].tolist() == [0.0, 0.0]
    scores.square().sum().backward()
    assert torch.isfinite(features.grad).all()
    assert torch.isfinite(head.weight.grad).all()


def test_a_class_without_weights_scores_0_and_leaves_the_others_alone():
    head = head_with([[0.0, 0.0], [3.0, 4.0]])
    features = torch.tensor([[3.0, 4.0]], requires_grad=True)
    scores = head(features)
    assert scores[0].tolist() == pytest.approx([0.0, 1.0])
    scores.sum().backward()
    assert torch.isfinite(features.grad).all()
    assert torch.isfinite(head.weight.grad).all()


def test_zeros_behind_a_relu_give_a_gradient_of_zero():
    before = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    head_with([[3.0, 4.0]])(torch.relu(before)).sum().backward()
    assert before.grad.tolist() == [[0.0, 0.0]]


def test_the_gradient_is_that_of_the_formula():
    head = head_with(torch.randn(3, 4, generator=torch.Generator().manual_seed(2)), torch.float64)
    features = torch.rand(5, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    assert torch.autograd.gradcheck(head, features.requires_grad_())


def test_the_linear_head_is_weights_times_features_plus_bias():
    head = LinearHead(2, 3)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[1.0, 2.0], [0.0, -1.0], [3.0, 0.0]]))
        head.bias.copy_(torch.tensor([0.5, 0.0, -1.0]))
    assert head(torch.tensor([[2.0, 3.0]])).tolist() == [[8.5, -3.0, 5.0]]


def test_a_batch_of_one_beside_samples_that_are_not_there_has_a_finite_gradient():
    draw = torch.Generator().manual_seed(0)
    head = ScaledCosineHead(4, 3)
    with torch.no_grad():
        head.weight.normal_(generator=draw)
        head.scale.fill_(1.0)
        head.gain.fill_(2.0)
        head.shift.fill_(0.5)
    features = torch.tensor([[1.0, 0.0, 2.0, 1.0], [5.0, 4.0, 3.0, 5.0], [9.0, 0.0, 0.0, 1.0]])
    features.requires_grad_()
    there = torch.tensor([True, False, False])
    scores = scaled_cosines(features, dict(head.named_parameters()), there)
    assert scores[0].tolist() == pytest.approx(
        (torch.e**0.5 * cosine_similarity(features[:1], head.weight)).tolist()
    )
    labels = torch.tensor([1, -100, -100])
    torch.nn.functional.cross_entropy(scores, labels).backward()
    for value in (features, *head.parameters()):
        assert torch.isfinite(value.grad).all()
    assert features.grad[1:].eq(0).all()
