"""A chain's convolutions, computed for many trials at once where trials are stacked.

A network is written for one trial. Under `torch.vmap` its blocks of convolution, ReLU and pooling become
operations that know the trial axis, those that follow each other one; the network itself is none the wiser.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from shels.kernels import trial_axis
from shels.model.normalisation import BatchNorm2d, counted, rectified


class Trunk(NamedTuple):
    """Blocks that follow each other: their convolutions, whether each is pooled, and layers in all.

    norms: the batch normalisation of each block; none where they have none.
    """

    convolutions: list[nn.Conv2d]
    pools: tuple[bool, ...]
    layers: int
    norms: tuple[BatchNorm2d, ...] = ()


def run(layers: Sequence[nn.Module], inputs: Tensor) -> Tensor:
    """Return what layers make of inputs, one after another; stacked trials on a GPU take them together."""
    x = inputs
    if not trial_axis.has_kernels(inputs):
        for layer in layers:
            x = layer(x)
        return x
    place = 0
    while place < len(layers):
        layer = layers[place]
        trunk = leading(layers[place:], tuple(x.shape[-2:])) if x.ndim == 4 else Trunk([], (), 0)
        if trunk.layers and (place == 0 or trunk.convolutions[0].in_channels >= 16):
            x = _through(trunk, x)
            place += trunk.layers
            continue
        x = _one(layer, x)
        place += 1
    return x


def _one(layer: nn.Module, x: Tensor) -> Tensor:
    """Return what one layer makes of stacked trials, where PyTorch's own form of it knows no trial axis."""
    if isinstance(layer, nn.Linear) and layer.bias is not None and x.ndim == 2:
        return _linear(x, layer.weight, layer.bias)
    if isinstance(layer, nn.AdaptiveAvgPool2d) and layer.output_size in (1, (1, 1)):
        return x.mean((-2, -1), keepdim=True)
    return layer(x)  # type: ignore[no-any-return]


def leading(layers: Sequence[nn.Module], sides: tuple[int, ...]) -> Trunk:
    """Return the blocks that layers begin with, as far as the kernels know them.

    sides: height and width of the inputs; the kernels pool maps of even sides only.
    """
    trunk = Trunk([], (), 0)
    while True:
        layer, *rest = [*layers[trunk.layers : trunk.layers + 4], None]
        norms = [each for each in rest[:1] if isinstance(each, BatchNorm2d)]
        after, last = [*rest[len(norms) :], None, None][:2]
        if not (isinstance(layer, nn.Conv2d) and isinstance(after, nn.ReLU) and _plain(layer, bool(norms))):
            return trunk
        if trunk.layers and bool(trunk.norms) != bool(norms):
            return trunk
        # Maps of odd sides are pooled by the layer that does so, behind the blocks.
        pool = last is not None and _halves(last) and not any(side % 2 for side in sides)
        sides = tuple(side // 2 for side in sides) if pool else sides
        depth = trunk.layers + 2 + len(norms) + pool
        found = ([*trunk.convolutions, layer], (*trunk.pools, pool), depth, (*trunk.norms, *norms))
        trunk = Trunk(*found)


def _through(trunk: Trunk, x: Tensor) -> Tensor:
    """Take maps through blocks: all at once, unless batch normalisation has to see what each one makes."""
    if any(norm.training for norm in trunk.norms):
        return _normalised(trunk, x)
    pairs: list[tuple[Tensor, Tensor | None]]
    if trunk.norms:
        pairs = [norm.folded(layer) for layer, norm in zip(trunk.convolutions, trunk.norms, strict=True)]
    else:
        pairs = [(layer.weight, layer.bias) for layer in trunk.convolutions]
    return _blocks(x, trunk.pools, trial_axis.precision(), *(value for pair in pairs for value in pair))


def _normalised(trunk: Trunk, x: Tensor) -> Tensor:
    """Take maps through blocks that train; in between they stay in the kernels' precision and layout."""
    there = counted(x)
    for layer, norm, pool in zip(trunk.convolutions, trunk.norms, trunk.pools, strict=True):
        x = _convolution(x, trial_axis.precision(), layer.weight, layer.bias)
        averages = norm.running_mean, norm.running_var
        x = rectified(x, there, norm.weight, norm.bias, *averages, norm.momentum, norm.eps, pool)
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _plain(layer: nn.Conv2d, normalised: bool = False) -> bool:
    """Tell whether a convolution is of 3 x 3, keeps its maps' sides, and has channels that fill tiles."""
    read, written = layer.in_channels, layer.out_channels
    sizes = (layer.kernel_size, layer.stride, layer.padding, layer.dilation)
    plain = layer.groups == 1 and layer.padding_mode == "zeros" and (normalised or layer.bias is not None)
    fills = (
        written >= 16
        and (read <= 4 or read >= 16)
        and all(n & (n - 1) == 0 for n in (written, max(read, 16)))
    )
    return sizes == ((3, 3), (1, 1), (1, 1), (1, 1)) and plain and fills


def _halves(layer: nn.Module) -> bool:
    if not isinstance(layer, nn.MaxPool2d) or layer.ceil_mode:
        return False
    return (layer.kernel_size, layer.stride, layer.padding, layer.dilation) == (2, 2, 0, 1)


class _Blocks(torch.autograd.Function):
    """Blocks of convolution, ReLU and pooling with a trial axis, and their gradients."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, pools: tuple[bool, ...], precision: torch.dtype, *params: Tensor
    ) -> Tensor:
        """Return the last block's maps in float32: (trials, n, c, h, w) -> (trials, n, c', h', w')."""
        from shels.kernels import convolution  # noqa: PLC0415

        x = _pixels_first(inputs, precision)
        weights = [_pixels_first(weight, precision) for weight in params[::2]]
        keep = any(ctx.needs_input_grad)
        maps, winners = [x], []
        for weight, bias, pool in zip(weights, params[1::2], pools, strict=True):
            shared = bias.contiguous()  # one that trials share is expanded
            x, won = convolution.forward(x, weight, shared, pool=pool)
            if keep:
                maps.append(x)
                winners.append(won)
        if keep:
            ctx.save_for_backward(*maps, *winners, *weights)
        exact = torch.promote_types(x.dtype, torch.float32)
        return x.permute(0, 1, 4, 2, 3).to(exact, memory_format=torch.contiguous_format)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        """Return the gradients of weights and biases, and of inputs that are not data but another layer's."""
        from shels.kernels import convolution  # noqa: PLC0415

        saved = ctx.saved_tensors
        depth = len(saved) // 3
        maps, winners, weights = saved[: depth + 1], saved[depth + 1 : 2 * depth + 1], saved[2 * depth + 1 :]
        g, bias = convolution.spread(_pixels_first(gradient, maps[-1].dtype), maps[-1], winners[-1])
        grads: list[Tensor | None] = []
        for layer in reversed(range(depth)):
            weight = convolution.backward_weights(g, maps[layer])
            grads += [bias, weight.permute(0, 1, 4, 2, 3)]
            if layer:
                g, bias = convolution.backward_input(g, weights[layer], maps[layer], winners[layer - 1])
        below = convolution.backward_first(g, weights[0], maps[0]) if ctx.needs_input_grad[0] else None
        inputs = None if below is None else below.permute(0, 1, 4, 2, 3).float()
        return inputs, None, None, *reversed(grads)


_blocks = trial_axis.over_trials(_Blocks.apply)


class _Convolution(torch.autograd.Function):
    """A convolution with a trial axis and nothing after it, and its gradients."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, precision: torch.dtype, weight: Tensor, bias: Tensor | None
    ) -> Tensor:
        """Return maps in this precision, channels-last: (trials, n, c, h, w) -> (trials, n, c', h, w)."""
        from shels.kernels import convolution  # noqa: PLC0415

        x, weights = _pixels_first(inputs, precision), _pixels_first(weight, precision)
        added = weight.new_zeros(weight.shape[:2]) if bias is None else bias
        out, _ = convolution.forward(x, weights, added, pool=False, relu=False)
        ctx.save_for_backward(x, weights)
        ctx.dtype = inputs.dtype
        return out.permute(0, 1, 4, 2, 3)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        """Return the gradients of weight and bias, and of inputs that are not data but another layer's."""
        from shels.kernels import convolution  # noqa: PLC0415

        x, weights = ctx.saved_tensors
        g = _pixels_first(gradient, x.dtype)
        weight = convolution.backward_weights(g, x).permute(0, 1, 4, 2, 3)
        exact = torch.promote_types(g.dtype, torch.float32)
        bias = g.sum(dim=(1, 2, 3), dtype=exact) if ctx.needs_input_grad[3] else None
        if not ctx.needs_input_grad[0]:
            return None, None, weight, bias
        below = convolution.backward_first(g, weights, x).permute(0, 1, 4, 2, 3)
        return below.to(ctx.dtype), None, weight, bias


_convolution = trial_axis.over_trials(_Convolution.apply)


class _Linear(torch.autograd.Function):
    """A linear layer with a trial axis; its gradients come out laid out like its weights."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Return the layer's outputs: (trials, n, in), (trials, out, in) -> (trials, n, out)."""
        ctx.save_for_backward(inputs, weight)
        return torch.baddbmm(bias[:, None], inputs, weight.mT)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        """Return the gradients of inputs, weight and bias."""
        inputs, weight = ctx.saved_tensors
        back = gradient.bmm(weight) if ctx.needs_input_grad[0] else None
        return back, gradient.mT.bmm(inputs), gradient.sum(dim=1)


_linear = trial_axis.over_trials(_Linear.apply)


def _pixels_first(value: Tensor, precision: torch.dtype) -> Tensor:
    """Return (trials, n, c, h, w) as (trials, n, h, w, c), laid out so, without a copy where it is."""
    return value.permute(0, 1, 3, 4, 2).to(precision).contiguous()
