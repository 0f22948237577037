"""How many trials fit on a GPU together."""

from __future__ import annotations

import math

import torch
from torch import nn

from shels.config import TrainingSettings
from shels.model.chains import shapes
from shels.training.data import TrialData

_SHARE = 0.8
"""Of the free memory, what is planned with; the rest is for what no plan foresees."""
_COPIES = 8
"""A parameter, its gradient twice, two moments, the best so far, and room for two more."""
_MAPS = 3
"""A layer's output, its gradient, and what a backward pass holds beside them."""


def most_together(network: nn.Module, data: TrialData, settings: TrainingSettings) -> int:
    """Return how many trials of a network to stack, from the memory that is free on its GPU; at least one."""
    device = next(network.parameters()).device
    free, _ = torch.cuda.mem_get_info(device)
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # torch's own
    return max(1, int(_SHARE * (free + unused) / bytes_of_trial(network, data, settings)))


def bytes_of_trial(network: nn.Module, data: TrialData, settings: TrainingSettings) -> int:
    """Return about how many bytes one trial needs while it trains or validates."""
    params = sum(value.numel() for value in network.parameters())
    width = values_of_sample(network, data.prepare.shape)
    samples = settings.batch_size * _MAPS + data.prepare.evaluation_batch
    return 4 * (params * _COPIES + width * samples)


def values_of_sample(network: nn.Module, shape: tuple[int, ...]) -> int:
    """Return how many values all layers of a network together make of one sample."""
    body = getattr(network, "body", None)
    if not isinstance(body, nn.Sequential):
        return 0
    return sum(math.prod(each) for each in shapes(body, (1, *shape)))
