"""Batch normalisation: by the statistics of a batch while training, by running averages of these afterwards.

A stack of trials fills batches up with samples that are not there; `counting` says which are, and no other
counts. Running averages are part of what a training trains: they go wherever the parameters go.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from shels.kernels import trial_axis

_THERE: ContextVar[Tensor | None] = ContextVar("there", default=None)


@contextmanager
def counting(there: Tensor) -> Iterator[None]:
    """Let only these samples of a batch count in its statistics: (n,) bool."""
    token = _THERE.set(there)
    try:
        yield
    finally:
        _THERE.reset(token)


def counted(inputs: Tensor) -> Tensor | None:
    """Return which samples of a batch count, None for all of them."""
    there = _THERE.get()
    if there is not None and there.shape[0] != inputs.shape[0]:
        raise ValueError(
            f"batch normalisation knows of {there.shape[0]} samples which are there, got {inputs.shape[0]}: "
            "a loss must take a batch through the network as it is"
        )
    return there


class BatchNorm2d(nn.Module):
    """Batch normalisation of maps, as torch has it, over the samples that are there.

    >>> layer = BatchNorm2d(3)
    >>> layer.start()
    >>> layer(torch.rand(8, 3, 4, 4)).mean().abs().item() < 1e-5
    True
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.weight = nn.Parameter(torch.empty(num_features))
        self.bias = nn.Parameter(torch.empty(num_features))
        self.register_buffer("running_mean", torch.empty(num_features))
        self.register_buffer("running_var", torch.empty(num_features))

    @torch.no_grad()
    def start(self) -> None:
        """Begin as torch's layer does: values keep their place."""
        for value, first in ((self.weight, 1.0), (self.running_var, 1.0), (self.bias, 0.0)):
            value.fill_(first)
        self.running_mean.zero_()

    def forward(self, inputs: Tensor) -> Tensor:
        """Return normalised maps: (n, channels, height, width)."""
        there = counted(inputs) if self.training else None
        averages = self.running_mean, self.running_var
        one_value = inputs[:, 0].numel() == 1
        if there is None and not (self.training and one_value):  # torch refuses a batch of one value
            weights = self.weight, self.bias
            return F.batch_norm(inputs, *averages, *weights, self.training, self.momentum, self.eps)
        if there is None:
            there = torch.ones(len(inputs), dtype=torch.bool, device=inputs.device)
        present, pixels = there[:, None, None, None], inputs[0, 0].numel()
        count = there.sum() * pixels
        mean = torch.where(present, inputs, 0.0).sum(dim=(0, 2, 3)) / count.clamp(min=1)
        distance = torch.where(present, inputs - mean[:, None, None], 0.0)
        variance = distance.square().sum(dim=(0, 2, 3)) / count.clamp(min=1)
        _follow(*averages, mean.detach(), variance.detach(), count, self.momentum)
        scale = self.weight * (variance + self.eps).rsqrt()
        return distance * scale[:, None, None] + torch.where(present, self.bias[:, None, None], 0.0)

    def folded(self, convolution: nn.Conv2d) -> tuple[Tensor, Tensor]:
        """Return weight and bias of one convolution that does what that one and this layer do."""
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        before = 0.0 if convolution.bias is None else convolution.bias
        return convolution.weight * scale[:, None, None, None], self.bias + (
            before - self.running_mean
        ) * scale


@torch.no_grad()
def _follow(
    mean: Tensor, variance: Tensor, new_mean: Tensor, new_variance: Tensor, count: Tensor, momentum: float
) -> None:
    """Let running averages follow a batch's statistics, in place; where nothing was counted they stay.

    count: values of each channel; the average is of the unbiased variance, as torch's.
    """
    unbiased = new_variance * count / (count - 1).clamp(min=1)
    for running, new in ((mean, new_mean), (variance, unbiased)):
        running.copy_(torch.where(count > 0, running.lerp(new.to(running.dtype), momentum), running))


# With a trial axis --------------------------------------------------------------------------------------


def _rectified(
    inputs: Tensor,
    there: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
    pool: bool,
) -> Tensor:
    """Return ReLU of normalised maps of all trials: (trials, n, channels, height, width), in their precision.

    there: (trials, n). Maps are best laid out with channels last; so is what comes out. pool: whether the
    greatest of each window of 2 x 2 is kept, of maps of even sides.
    """
    from shels.kernels import normalisation  # noqa: PLC0415

    maps = inputs.permute(0, 1, 3, 4, 2).contiguous()
    if there is None:
        there = torch.ones(maps.shape[:2], dtype=torch.bool, device=maps.device)
    count = there.sum(dim=1)[:, None] * (maps.shape[2] * maps.shape[3])
    mean, square = (each / count.clamp(min=1) for each in normalisation.moments(maps.detach(), there))
    variance = (square - mean.square()).clamp(min=0)
    _follow(running_mean, running_var, mean, variance, count, momentum)
    out = _Rectified.apply(  # type: ignore[no-untyped-call]
        maps, there, weight, bias, mean, (variance + eps).rsqrt(), count.clamp(min=1), pool
    )
    return out.permute(0, 1, 4, 2, 3)  # type: ignore[no-any-return]


class _Rectified(torch.autograd.Function):
    """ReLU of maps normalised by their own statistics, which are given, and the gradients through both."""

    @staticmethod
    def forward(
        ctx: Any,
        maps: Tensor,
        there: Tensor,
        weight: Tensor,
        bias: Tensor,
        mean: Tensor,
        inverse: Tensor,
        count: Tensor,
        pool: bool,
    ) -> Tensor:
        """Take maps as (trials, n, h, w, channels); inverse: of the deviation, (trials, channels)."""
        from shels.kernels import normalisation  # noqa: PLC0415

        scale = weight * inverse
        shift = bias - mean * scale
        out, won = normalisation.rectify(maps, there, scale, shift, pool=pool)
        ctx.save_for_backward(maps, there, won, scale, shift, mean, inverse, count)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        """Return the gradients of maps, weight and bias."""
        from shels.kernels import normalisation  # noqa: PLC0415

        maps, there, won, scale, shift, mean, inverse, count = ctx.saved_tensors
        given = (maps, there, gradient.to(maps.dtype).contiguous(), won, scale, shift)
        total, product = normalisation.back_sums(*given)
        to_weight = inverse * (product - mean * total)
        slope = -scale * inverse * to_weight / count
        level = -scale * total / count - slope * mean
        back = normalisation.back(*given, slope, level)
        return back, None, to_weight, total, None, None, None, None


rectified = trial_axis.over_trials(_rectified)
"""ReLU of normalised maps of one trial, under `torch.vmap`, see `_rectified`."""
