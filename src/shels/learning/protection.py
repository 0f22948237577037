"""Protection: what old classes stand on, what is free for a new one, and how the first is held."""

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from shels.learning.protocol import prefixed, under
from shels.learning.trained import weights_before
from shels.model.activations import Sums, weight_layers
from shels.model.growth import growable
from shels.model.networks import Network
from shels.model.sparsity import outgoing_norms
from shels.training import AfterStep, Params, State


class Parts(NamedTuple):
    """A network in two: layers that serve every class, and a network on their features with the same head."""

    shared: nn.Sequential
    tail: Network

    def whole(self, name: str) -> str:
        """Return what a layer of the tail is called in the whole network: "body.0" may be "body.15"."""
        return f"body.{int(name.removeprefix('body.')) + len(self.shared)}"


def parts(network: Network) -> Parts:
    """Return a network's two parts, which share its weights.

    Convolutions come before the cut, linear layers after it. Where no linear layer would be left to grow,
    the cut is at the inputs.
    """
    layers = list(network.body)
    cut = network.general_depth
    if cut < len(layers) and isinstance(layers[cut], nn.AdaptiveAvgPool2d):
        cut += 1
    if cut < len(layers) and isinstance(layers[cut], nn.Flatten):
        cut += 1
    if not _has_linear(layers[cut:]) and _has_linear(layers):
        cut = 0
    return Parts(nn.Sequential(*layers[:cut]), Network(nn.Sequential(*layers[cut:]), network.head))


def _has_linear(layers: list[nn.Module]) -> bool:
    return any(isinstance(layer, nn.Linear) for layer in layers)


def free_units(tail: Network, sums: Sums) -> dict[str, Tensor]:
    """Return which units of each linear layer are free: silent on old classes, or read by nothing.

    sums: the units' activations over the old classes' samples.
    """
    params, names = dict(tail.named_parameters()), growable(tail)
    pairs = [pair for pair in pairwise(weight_layers(tail)) if pair[0].units in names]
    return {
        layer.units: (sums[layer.units] == 0) | (outgoing_norms(params[reader.weight].detach()) == 0)
        for layer, reader in pairs
    }


def shrunk(weight: Tensor, by: float | Tensor) -> Tensor:
    """Return a weight with each unit's outgoing norm less by `by`, to exactly 0 where it was no more.

    The proximal step of the group sparsity: what gradient steps can only press towards 0 arrives there.
    """
    norms = outgoing_norms(weight)
    keep = torch.where(norms > by, 1 - by / norms, 0.0)
    return weight * keep.view(1, -1, *[1] * (weight.ndim - 2))


def protected(by: float) -> AfterStep:
    """Return the `after_step` that puts back whatever may not change, after a proximal step.

    The state holds each parameter's start under `before/NAME`, and under `learns/NAME` what may change.
    by: how much the weights by which the new class's row reads its units shrink in that step, as a share of
    the row's length: a cosine knows no length, so a fixed amount would shrink the row until nothing is left.
    """

    def after_step(params: Params, state: State) -> Params:
        before, learns = under("before/", state), under("learns/", state)
        new, rows = dict(params), params["head.weight"]
        if by:
            last = shrunk(rows[-1:], by * torch.linalg.vector_norm(rows[-1]))
            new["head.weight"] = torch.cat([rows[:-1], last])
        return {name: torch.where(learns[name], new[name], before[name]) for name in params}

    return after_step


def first_of(free: Mapping[str, Tensor], most: int) -> dict[str, Tensor]:
    """Return the first so many free units of each layer, to leave the rest to later classes; 0 takes all."""
    return {name: mark & (mark.cumsum(0) <= most) if most else mark for name, mark in free.items()}


@torch.no_grad()
def cut_off(tail: Network, free: Mapping[str, Tensor], draw: torch.Generator) -> None:
    """Zero what reads free units, and give them fresh incoming weights."""
    params = dict(tail.named_parameters())
    for layer, reader in pairwise(weight_layers(tail)):
        if layer.units in free:
            mark, weight = free[layer.units], params[layer.weight]
            params[reader.weight][:, mark] = 0
            fresh = nn.init.xavier_uniform_(torch.empty(weight.shape), generator=draw)
            weight[mark] = fresh.to(weight.device)[mark]
            if layer.bias is not None:
                params[layer.bias][mark] = 0


@torch.no_grad()
def isolate(tail: Network, free: Mapping[str, Tensor]) -> None:
    """Let the new class's row, the last, start with weights of 0 or more, and read free units alone.

    A unit with a weight below 0 would only learn to be silent. Where no unit is free, the row reads all.
    """
    tail.head.weight[-1].abs_().mul_(_row(tail, free))


def _row(tail: Network, free: Mapping[str, Tensor]) -> Tensor:
    """Return which high-level features the new class may read: (d,).

    Free units alone, so that they are exclusive to it; all, where none is free.
    """
    high = free.get(weight_layers(tail)[-1].inputs or "")
    return high if high is not None and high.any() else torch.ones_like(tail.head.weight[0]).bool()


def protection(tail: Network, free: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return each parameter as it is, and where it may change: into free units, and in the new row."""
    params = dict(tail.named_parameters())
    learns = {name: torch.zeros_like(value, dtype=torch.bool) for name, value in params.items()}
    for layer in weight_layers(tail):
        if layer.units in free:
            learns[layer.weight][free[layer.units]] = True
            if layer.bias is not None:
                learns[layer.bias][free[layer.units]] = True
    learns["head.weight"][-1] = _row(tail, free)
    return weights_before(tail) | prefixed("learns/", learns)
