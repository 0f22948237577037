"""Group sparsity: whole units that the network can do without are pressed towards zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from shels.errors import SettingsError
from shels.kernels import trial_axis


def outgoing_norms(weight: Tensor) -> Tensor:
    """Return the norm of each unit's outgoing weights, the groups of Eq. (2).

    weight: (out, in) or (out, in, height, width) -> (in,). A flattened position is a unit of its own.

    >>> outgoing_norms(torch.tensor([[3.0, 0.0], [4.0, 0.0]])).tolist()
    [5.0, 0.0]
    """
    norms: Tensor = torch.linalg.vector_norm(weight, dim=[dim for dim in range(weight.ndim) if dim != 1])
    return norms


def depth_weights(layers: int, kind: str = "layer-wise") -> list[float]:
    """Return μ for each weight layer, first to last: how far a layer is let off the sparsity.

    Layer-wise: (l - 1) / (L - 1), from 0 at the first layer to 1 at the last. Late, as in the authors' code:
    0 at the first two layers and (l - 2) / (L - 1) after, so that the last layer is not let off altogether.
    Constant: 0 everywhere.

    >>> depth_weights(3), depth_weights(3, "late"), depth_weights(3, "constant")
    ([0.0, 0.5, 1.0], [0.0, 0.0, 0.5], [0.0, 0.0, 0.0])
    """
    if kind not in ("layer-wise", "late", "constant"):
        raise SettingsError(f'depth weights must be "layer-wise", "late" or "constant", got {kind!r}')
    if kind == "constant" or layers == 1:
        return [0.0] * layers
    skipped = 1 if kind == "late" else 0
    return [max(layer - skipped, 0) / (layers - 1) for layer in range(layers)]


def group_sparsity(weights: Sequence[Tensor], mu: Sequence[float]) -> Tensor:
    """Return the sparsity term of the loss before α: each layer's group norms, weighted by 1 - μ.

    >>> layers = [torch.tensor([[3.0, 0.0], [4.0, 2.0]]), torch.tensor([[1.0, 1.0]])]
    >>> group_sparsity(layers, mu=[0.0, 0.5]).item()
    8.0
    """
    kept = [(w, 1 - m) for w, m in zip(weights, mu, strict=True) if m < 1]
    if not kept:
        return weights[0].new_zeros(())
    if trial_axis.has_kernels(kept[0][0]):
        return _group_norms(tuple(factor for _, factor in kept), *(weight for weight, _ in kept))
    return torch.stack([factor * outgoing_norms(weight).sum() for weight, factor in kept]).sum()


def scaled_group_sparsity(weights: Sequence[Tensor], factors: Tensor) -> Tensor:
    """Return each layer's group norms times a factor, summed: what `group_sparsity` is with α in it.

    factors: (layers,), a tensor, so that trials side by side may differ in it.

    >>> layers = [torch.tensor([[3.0, 0.0], [4.0, 2.0]]), torch.tensor([[1.0, 1.0]])]
    >>> scaled_group_sparsity(layers, torch.tensor([1.0, 0.5])).item()
    8.0
    """
    return (torch.stack([group_sparsity([weight], [0.0]) for weight in weights]) * factors).sum()


def exclusive_sparsity(weights: Sequence[Tensor], mu: Sequence[float]) -> Tensor:
    """Return the exclusive sparsity of Zhou et al. before γ, Eq. (8), each layer's times μ.

    Half the squares of each unit's summed outgoing weights, so that what a unit feeds competes for it. A
    convolution's weight from one unit to another is the norm of its window.
    """
    terms = []
    for weight, m in zip(weights, mu, strict=True):
        sizes = weight.abs() if weight.ndim == 2 else torch.linalg.vector_norm(weight.flatten(2), dim=2)
        terms.append(m / 2 * sizes.sum(dim=0).square().sum())
    return torch.stack(terms).sum()


class _GroupNorms(torch.autograd.Function):
    """Weighted sums of group norms with a trial axis, and their gradient; a group at 0 has gradient 0."""

    @staticmethod
    def forward(ctx: Any, factors: tuple[float, ...], *weights: Tensor) -> Tensor:
        """weights: (trials, out, in, ...) -> (trials,)."""
        from shels.kernels import sparsity  # noqa: PLC0415

        rows = [_groups_last(weight) for weight in weights]
        sizes = [weight.shape[2] for weight in rows]
        found = rows[0].new_empty(len(rows[0]), sum(sizes))
        weighted = torch.empty_like(found)
        for place, (weight, factor) in enumerate(zip(rows, factors, strict=True)):
            sparsity.norms(weight, found, weighted, sum(sizes[:place]), factor)
        ctx.save_for_backward(found, *weights)
        ctx.factors = factors
        return weighted.sum(dim=1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        """Return the gradients, each laid out like its weight."""
        from shels.kernels import sparsity  # noqa: PLC0415

        found, *weights = ctx.saved_tensors
        offset, grads, gradient = (
            0,
            [],
            gradient.contiguous(),
        )  # a part of a larger one where layers are summed
        for weight, factor in zip(weights, ctx.factors, strict=True):
            rows = _groups_last(weight)
            out = torch.empty_like(rows)
            sparsity.directions(rows, found, gradient, out, offset, factor)
            offset += rows.shape[2]
            laid_out = out.view(*weight.movedim(2, -1).shape)  # (trials, out, ..., in)
            grads.append(laid_out.movedim(-1, 2))
        return None, *grads


_group_norms = trial_axis.over_trials(_GroupNorms.apply)


def _groups_last(weight: Tensor) -> Tensor:
    """Return (trials, out, in, ...) as (trials, rows, in), without a copy for the layout of a stack."""
    return weight.movedim(2, -1).flatten(1, -2).contiguous()
