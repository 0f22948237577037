"""What trained networks make of samples: one network after another, or a stack of them at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.func import functional_call

from shels.data.preparation import Preparation
from shels.kernels import trial_axis
from shels.model.networks import Network, Views
from shels.training.checkpoints import Params
from shels.training.stack import stacked_params


@torch.no_grad()
def views_of(
    networks: Sequence[Network],
    inputs: Tensor,
    parts: Sequence[Tensor],
    prepare: Preparation,
    *,
    precision: torch.dtype,
    shared: bool,
) -> list[Views]:
    """Return the features of each network's samples; on a GPU all networks compute together.

    inputs: (m, ...) on the networks' device, parts: for each network the places of its samples there (n,).
    shared: whether low-level features are wanted; without them that part is empty.
    """
    for network in networks:
        network.eval()
    if inputs.device.type == "cuda":
        return _together(networks, inputs, parts, prepare, precision, shared)
    pairs = zip(networks, parts, strict=True)
    return [_alone(network, inputs, part, prepare, shared) for network, part in pairs]


def _alone(network: Network, inputs: Tensor, part: Tensor, prepare: Preparation, shared: bool) -> Views:
    chunks = torch.split(part, prepare.evaluation_batch)
    return _joined([_views(network, prepare(inputs[chunk]), shared) for chunk in chunks])


def _views(network: Network, inputs: Tensor, shared: bool) -> Views:
    if shared:
        return network.views(inputs)
    high = network.features(inputs)
    return Views(high[:, :0], high)


def _joined(views: Sequence[Views]) -> Views:
    return Views(*(torch.cat(parts) for parts in zip(*views, strict=True)))


class _WithViews(torch.nn.Module):
    """A network whose forward pass gives its views, so that it can be called with other parameters."""

    def __init__(self, network: Network, shared: bool) -> None:
        super().__init__()
        self.network, self.shared = network, shared

    def forward(self, inputs: Tensor) -> Views:
        return _views(self.network, inputs, self.shared)


def _together(
    networks: Sequence[Network],
    inputs: Tensor,
    parts: Sequence[Tensor],
    prepare: Preparation,
    precision: torch.dtype,
    shared: bool,
) -> list[Views]:
    """Return the views of a stack of networks of one architecture, in batches of the same places of each."""
    params = {f"network.{name}": value for name, value in stacked_params(networks).items()}
    module = _WithViews(networks[0], shared)
    longest = max(map(len, parts))
    index = torch.zeros(len(parts), longest, dtype=torch.int64, device=inputs.device)
    for trial, part in enumerate(parts):
        index[trial, : len(part)] = part.to(inputs.device)

    def one(values: Params, batch: Tensor) -> Views:
        views: Views = functional_call(module, values, (batch,))
        return views

    whole: list[Tensor] = []
    size = prepare.evaluation_batch
    with torch.cuda.device(inputs.device), trial_axis.stacking(precision):
        for start in range(0, longest, size):
            chunk = index[:, start : start + size]
            flat = prepare(inputs[chunk.flatten()])
            views = torch.vmap(one)(params, flat.reshape(*chunk.shape, *flat.shape[1:]))
            if not whole:  # room for all at once: features of many trials are large, and are not held twice
                whole = [view.new_empty(len(parts), longest, view.shape[2]) for view in views]
            for room, view in zip(whole, views, strict=True):
                room[:, start : start + size] = view
    return [Views(*(view[trial, : len(part)] for view in whole)) for trial, part in enumerate(parts)]
