import math
import sys

import pytest
import torch

from shels import kernels
from shels.errors import SettingsError
from shels.model import sparsity
from shels.model.sparsity import depth_weights, group_sparsity, outgoing_norms, scaled_group_sparsity


def test_a_linear_unit_is_a_column_of_the_weight():
    weight = torch.tensor([[3.0, 0.0, -1.0], [-4.0, 0.0, 0.0]])  # 3 units, each towards 2
    assert outgoing_norms(weight).tolist() == [5.0, 0.0, 1.0]


def test_a_convolution_unit_is_an_input_channel_over_all_kernels():
    weight = torch.zeros(2, 3, 2, 2)
    weight[0, 0, 0, 0], weight[1, 0, 1, 1] = 3, 4  # one unit, towards two outputs: 5
    weight[:, 1] = 1  # 2 outputs x 4 places: sqrt(8)
    norms = outgoing_norms(weight)
    assert norms.tolist() == pytest.approx([5.0, math.sqrt(8), 0.0])


@pytest.mark.parametrize("shape", [(5, 7), (4, 3, 3, 3), (2, 6, 1, 5), (1, 1)])
def test_norms_agree_with_a_loop_in_float64(shape):
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = []
    for unit in range(shape[1]):
        squares = [float(value) ** 2 for value in weight[:, unit].flatten()]
        expected.append(math.sqrt(math.fsum(squares)))
    assert outgoing_norms(weight).tolist() == pytest.approx(expected, rel=1e-14)


def test_the_gradient_of_a_norm_is_the_unit_vector_and_zero_at_zero():
    weight = torch.tensor([[3.0, 0.0], [4.0, 0.0]], requires_grad=True)
    outgoing_norms(weight).sum().backward()
    assert weight.grad.flatten().tolist() == pytest.approx([0.6, 0.0, 0.8, 0.0])


def test_the_gradient_of_a_convolution_of_zeros_is_zero():
    weight = torch.zeros(4, 3, 3, 3, requires_grad=True)
    group_sparsity([weight], [0.0]).backward()
    assert torch.equal(weight.grad, torch.zeros(4, 3, 3, 3))


@pytest.mark.parametrize(
    ("layers", "mu"),
    [(2, [0, 1]), (3, [0, 0.5, 1]), (5, [0, 0.25, 0.5, 0.75, 1]), (8, [i / 7 for i in range(8)])],
)
def test_layer_wise_weights_go_from_0_at_the_first_layer_to_1_at_the_last(layers, mu):
    assert depth_weights(layers) == pytest.approx(mu)


def test_constant_weights_are_0_everywhere():
    assert depth_weights(4, "constant") == [0, 0, 0, 0]


def test_late_depth_weights_begin_at_the_second_layer_and_never_reach_one():
    assert depth_weights(8, "late") == pytest.approx([0, 0, 1 / 7, 2 / 7, 3 / 7, 4 / 7, 5 / 7, 6 / 7])
    with pytest.raises(SettingsError, match="depth weights must be"):
        depth_weights(8, "early")


def test_a_single_layer_gets_all_the_sparsity():
    assert depth_weights(1) == [0]


def test_group_sparsity_of_three_layers_worked_by_hand():
    first = torch.tensor([[3.0, 0.0], [4.0, 1.0]])  # 5 + 1
    second = torch.tensor([[6.0, 8.0]])  # 6 + 8
    last = torch.tensor([[100.0]])  # let off
    assert group_sparsity([first, second, last], [0.0, 0.5, 1.0]).item() == 6 + 0.5 * 14
    assert group_sparsity([first, second, last], [0.0, 0.0, 0.0]).item() == 6 + 14 + 100


def test_a_layer_that_is_let_off_gets_no_gradient_and_the_others_their_share():
    first = torch.tensor([[3.0], [4.0]], requires_grad=True)
    second = torch.tensor([[2.0]], requires_grad=True)
    last = torch.tensor([[5.0]], requires_grad=True)
    group_sparsity([first, second, last], depth_weights(3)).backward()
    assert first.grad.flatten().tolist() == pytest.approx([0.6, 0.8])
    assert second.grad.item() == 0.5
    assert last.grad is None


def test_all_layers_let_off_give_zero():
    assert group_sparsity([torch.ones(2, 2)], [1.0]).item() == 0


def test_weights_and_depth_weights_must_be_as_many():
    with pytest.raises(ValueError, match="argument 2 is longer"):
        group_sparsity([torch.ones(2, 2)], [0.0, 0.5])


def test_trials_in_a_stack_get_what_each_gets_alone():
    draw = torch.Generator().manual_seed(0)
    conv = torch.randn(4, 2, 3, 3, 3, generator=draw, dtype=torch.float64)
    linear = torch.randn(4, 5, 6, generator=draw, dtype=torch.float64)
    mu = [0.0, 0.25]
    together = torch.vmap(lambda a, b: group_sparsity([a, b], mu))(conv, linear)
    alone = [group_sparsity([a, b], mu).item() for a, b in zip(conv, linear, strict=True)]
    assert together.tolist() == pytest.approx(alone, rel=1e-14)


class AsKernels:
    """The kernels in torch, reading memory as they do: a trial's scale lies right behind the one before."""

    @staticmethod
    def norms(weight, out, weighted, offset, factor):
        found = torch.linalg.vector_norm(weight, dim=1)
        out[:, offset : offset + found.shape[1]] = found
        weighted[:, offset : offset + found.shape[1]] = factor * found

    @staticmethod
    def directions(weight, found, scale, out, offset, factor):
        read = torch.as_strided(scale, (len(weight),), (1,), scale.storage_offset())
        norms = found[:, offset : offset + weight.shape[2]]
        out.copy_(weight * (factor * read)[:, None, None] / norms[:, None, :])


def test_trials_of_other_weights_get_each_their_own_gradient_from_the_kernels(monkeypatch):
    monkeypatch.setattr(sparsity.trial_axis, "has_kernels", lambda value: value.dtype == torch.float32)
    monkeypatch.setitem(sys.modules, "shels.kernels.sparsity", AsKernels)
    monkeypatch.setattr(kernels, "sparsity", AsKernels, raising=False)
    draws = torch.Generator().manual_seed(0)
    shapes = [(4, 6, 5, 3, 3), (4, 7, 6), (4, 3, 7)]
    weights = [torch.randn(shape, generator=draws).requires_grad_() for shape in shapes]
    factors, share = torch.rand(4, 3, generator=draws), torch.tensor([1.0, 2.0, 3.0, 4.0])

    def one(a, b, c, factor):
        return scaled_group_sparsity([a, b, c], factor)

    together = torch.vmap(one)(*weights, factors)
    grads = torch.autograd.grad((share * together).sum(), weights)
    exact = [weight.detach().double().requires_grad_() for weight in weights]
    alone = torch.stack([one(*(w[t] for w in exact), factors[t].double()) for t in range(4)])
    expected = torch.autograd.grad((share * alone).sum(), exact)
    assert torch.allclose(together.double(), alone, atol=1e-4)
    for got, wanted in zip(grads, expected, strict=True):
        assert torch.allclose(got.double(), wanted, atol=1e-5)
