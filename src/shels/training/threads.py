"""How many threads a training takes: small steps are not worth sharing."""

from __future__ import annotations

from torch import nn

_WORTH_SHARING = 2**27
"""Products in a forward pass, from which on a step is shared between threads: some 20 ms of one core."""


def threads_for(network: nn.Module, batch_size: int) -> int | None:
    """Return 1 where a network on a CPU has little to do in a step, None where all threads may share it.

    Known of networks without convolutions, in which every weight takes part once for each sample.

    >>> threads_for(nn.Linear(1280, 256), batch_size=64)
    1
    """
    value = next(network.parameters())
    if value.is_cuda or any(isinstance(layer, nn.Conv2d) for layer in network.modules()):
        return None
    products = batch_size * sum(value.numel() for value in network.parameters())
    return 1 if products < _WORTH_SHARING else None
