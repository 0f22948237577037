"""Activations: how strongly each unit of a network fires, and which units feed which weights."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from shels.model.networks import Network

Sums = dict[str, Tensor]
"""Activations summed over samples, by unit layer: (units,), or maps (units, height, width)."""


class WeightLayer(NamedTuple):
    """A layer with weights, and the units at both of its ends.

    weight, bias: names of its parameters; a layer may have no bias.
    inputs: the unit layer that it reads, None where it reads the network's inputs.
    units: the unit layer that it feeds.
    """

    weight: str
    bias: str | None
    inputs: str | None
    units: str


HEAD = "head"


def weight_layers(network: Network) -> list[WeightLayer]:
    """Return the layers with weights in order of depth, the head last.

    A convolution's units are its channels. Once flattened, each position is a unit of its own, and the
    flattening layer gives those units their name.
    """
    out: list[WeightLayer] = []
    inputs, maps = None, False
    for index, layer in enumerate(network.body):
        name = f"body.{index}"
        if isinstance(layer, nn.Conv2d | nn.Linear):
            bias = None if layer.bias is None else f"{name}.bias"
            out.append(WeightLayer(f"{name}.weight", bias, inputs, name))
            inputs, maps = name, isinstance(layer, nn.Conv2d)
        elif isinstance(layer, nn.Flatten) and maps:
            inputs, maps = name, False
    bias = "head.bias" if isinstance(network.head, nn.Linear) else None
    return [*out, WeightLayer("head.weight", bias, inputs, HEAD)]


def activation_sums(network: Network, inputs: Tensor) -> Sums:
    """Return each unit layer's activations summed over prepared inputs, the head's left out.

    A unit's activation is taken after its ReLU; where a layer has none, its size without sign counts.
    """
    wanted = {name for layer in weight_layers(network) for name in (layer.inputs, layer.units)}
    out: Sums = {}
    current: str | None = None
    x = inputs
    for index, layer in enumerate(network.body):
        x = layer(x)
        name = f"body.{index}"
        if name in wanted:
            current = name
        if current is not None and (name == current or isinstance(layer, nn.ReLU)):
            out[current] = x.abs().sum(dim=0)
    return out


@torch.no_grad()
def total_sums(network: Network, batches: Iterable[Tensor]) -> Sums:
    """Return the sums over batches of prepared inputs, in evaluation mode."""
    network.eval()
    out: Sums = {}
    for batch in batches:
        for name, value in activation_sums(network, batch).items():
            out[name] = out[name] + value if name in out else value
    return out


def importance(sums: Tensor, count: int, kind: Literal["mean", "map-norm"] = "mean") -> Tensor:
    """Return each unit's mean activation over all samples so far, Eq. (5): (units, ...) -> (units,).

    Being a sum and a count, it goes on with new samples when the old ones are gone. A channel's mean is over
    space too; "map-norm", as in the authors' code, takes the norm of its mean map instead.

    >>> importance(torch.tensor([6.0, 0.0]), count=3).tolist()
    [2.0, 0.0]
    """
    mean = sums / max(count, 1)
    if sums.ndim == 1:
        return mean
    return mean.flatten(1).mean(dim=1) if kind == "mean" else torch.linalg.vector_norm(mean, dim=(1, 2))
