"""What kernels are given: they read memory one value after another and know no strides."""

from __future__ import annotations

import pytest
import torch

from shels.kernels.launching import as_they_lie, launch


class Kernel:
    """Stands for a kernel of Triton; notes what it was launched with."""

    def __init__(self):
        self.seen = []

    def __getitem__(self, grid):
        return lambda *args, **options: self.seen.append((grid, args, options))


def test_a_kernel_is_launched_with_what_is_contiguous():
    kernel, values = Kernel(), torch.rand(3, 4)
    launch(kernel, (2, 3), values, 5, BLOCK=16)
    assert kernel.seen == [((2, 3), (values, 5), {"BLOCK": 16})]


@pytest.mark.parametrize(
    "value",
    [torch.rand(4, 3)[:, 1], torch.rand(1).expand(4), torch.rand(4, 3).T, torch.rand(4, 1).expand(4, 3)],
    ids=["a column", "one number for all", "laid out otherwise", "one number a row"],
)
def test_a_tensor_that_a_kernel_would_read_wrongly_is_refused(value):
    kernel = Kernel()
    with pytest.raises(ValueError, match="a kernel reads contiguous tensors: argument 1 of shape"):
        launch(kernel, (1,), torch.rand(4), value)
    assert not kernel.seen


@pytest.mark.parametrize("shape", [(3, 8, 3, 3, 4), (3, 8, 3, 3, 1), (1, 8, 3, 3, 4), (3, 1, 3, 3, 4)])
def test_channels_last_weights_are_taken_value_by_value_without_a_copy(shape):
    weight = torch.rand(shape).permute(0, 1, 4, 2, 3)
    moment = torch.zeros_like(weight)
    flat, other = as_they_lie([weight, moment])
    assert torch.equal(flat, torch.as_strided(weight, (weight.numel(),), (1,)))
    other += flat
    assert torch.equal(moment, weight)
    assert flat.data_ptr() == weight.data_ptr()


@pytest.mark.parametrize(
    "other",
    [torch.rand(3, 8, 4, 3, 3), torch.rand(8, 4, 3, 3).expand(3, 8, 4, 3, 3), torch.rand(3, 8)],
    ids=["channels first", "one for all trials", "of another shape"],
)
def test_tensors_that_are_not_laid_out_alike_are_refused(other):
    weight = torch.rand(3, 8, 3, 3, 4).permute(0, 1, 4, 2, 3)
    with pytest.raises(ValueError, match="laid out alike"):
        as_they_lie([weight, other])
