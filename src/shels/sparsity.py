"""Group sparsity: whole units that the network can do without are pressed towards zero."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from shels.errors import SettingsError


def outgoing_norms(weight: Tensor) -> Tensor:
    """Return the norm of each unit's outgoing weights, the groups of Eq. (2).

    weight: (out, in) or (out, in, height, width) -> (in,). A flattened position is a unit of its own.
    """
    norms: Tensor = torch.linalg.vector_norm(weight, dim=[axis for axis in range(weight.ndim) if axis != 1])
    return norms


def depth_weights(layers: int, kind: str = "layer-wise") -> list[float]:
    """Return μ for each weight layer, first to last: how far a layer is let off the sparsity.

    Layer-wise: (l - 1) / (L - 1), from 0 at the first layer to 1 at the last. Constant: 0 everywhere.
    """
    if kind not in ("layer-wise", "constant"):
        raise SettingsError(f'depth weights must be "layer-wise" or "constant", got {kind!r}')
    if kind == "constant" or layers == 1:
        return [0.0] * layers
    return [layer / (layers - 1) for layer in range(layers)]


def group_sparsity(weights: Sequence[Tensor], mu: Sequence[float]) -> Tensor:
    """Return the sparsity term of the loss before α: each layer's group norms, weighted by 1 - μ."""
    terms = [(1 - m) * outgoing_norms(w).sum() for w, m in zip(weights, mu, strict=True) if m < 1]
    return torch.stack(terms).sum() if terms else weights[0].new_zeros(())
