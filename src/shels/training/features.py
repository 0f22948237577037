"""What trained networks make of samples: one network after another, or a stack of them at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.utils.rnn import pad_sequence

from shels.data.preparation import Preparation
from shels.kernels import trial_axis
from shels.model.networks import Network, Views
from shels.training.checkpoints import Params
from shels.training.stack import stacked_buffers, stacked_params


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
    modules = [_WithViews(network.eval(), shared) for network in networks]
    size = prepare.evaluation_batch
    if _on_gpu(inputs):
        values = stacked_params(networks) | stacked_buffers(networks)
        params = {f"network.{name}": value for name, value in values.items()}
        index = pad_sequence([part.to(inputs.device) for part in parts], batch_first=True)
        with torch.cuda.device(inputs.device), trial_axis.stacking(precision):
            chunks = torch.split(index, size, dim=1)
            whole = _together(modules[0], params, chunks, lambda at: prepare(inputs[at]))
        return [Views(*(view[trial, : len(part)] for view in whole)) for trial, part in enumerate(parts)]
    out = []
    for module, part in zip(modules, parts, strict=True):
        views = [module(prepare(inputs[chunk])) for chunk in torch.split(part, size)]
        out.append(Views(*(torch.cat(each) for each in zip(*views, strict=True))))
    return out


def _on_gpu(inputs: Tensor) -> bool:
    return inputs.device.type == "cuda"


class _WithViews(torch.nn.Module):
    """A network whose forward pass gives its views, so that it can be called with other parameters."""

    def __init__(self, network: Network, shared: bool) -> None:
        super().__init__()
        self.network, self.shared = network, shared

    def forward(self, inputs: Tensor) -> Views:
        if self.shared:
            return self.network.views(inputs)
        high = self.network.features(inputs)
        return Views(high[:, :0], high)


def _together(
    module: _WithViews, params: Params, chunks: Sequence[Tensor], prepared: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    """Return the views of a stack of networks of one architecture: (trials, n, d) each.

    chunks: the same places of each, (trials, n) in all. prepared: gives the samples at places.
    """

    def one(values: Params, batch: Tensor) -> Views:
        views: Views = functional_call(module, values, (batch,))
        return views

    whole: list[Tensor] = []
    start = 0
    for chunk in chunks:
        flat = prepared(chunk.flatten())
        views = torch.vmap(one)(params, flat.reshape(*chunk.shape, *flat.shape[1:]))
        if not whole:  # room for all at once: features of many trials are large, and are not held twice
            trials, longest = len(chunk), sum(each.shape[1] for each in chunks)
            whole = [view.new_empty(trials, longest, view.shape[2]) for view in views]
        for room, view in zip(whole, views, strict=True):
            room[:, start : start + chunk.shape[1]] = view
        start += chunk.shape[1]
    return whole
