"""Optimiser steps as functions: of one trial through torch's own, of a stack of trials each in its own time.

What an optimiser remembers lies beside the parameters, by kind and name, laid out like them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from shels.config import Adam, Optimiser, WarmRestarts
from shels.kernels import trial_axis
from shels.training.checkpoints import Params

_BETAS = (0.9, 0.999, 1e-8)
"""Of Adam's mean and mean square, and the term that keeps its quotient finite: torch's defaults."""

Moments = dict[str, Params]


def moments_of(settings: Optimiser, params: Params) -> Moments:
    """Return what an optimiser remembers before its first step."""
    kinds = ("exp_avg", "exp_avg_sq") if isinstance(settings, Adam) else ("momentum_buffer",)
    return {kind: {n: torch.zeros_like(p, requires_grad=False) for n, p in params.items()} for kind in kinds}


@torch.no_grad()
def step(
    settings: Optimiser, params: Params, grads: Sequence[Tensor], moments: Moments, taken: int, rate: float
) -> None:
    """Move one trial's parameters in place. taken: steps before this one. rate: this step's learning rate."""
    values = list(params.values())
    grads = [
        _laid_out(grad, value) for grad, value in zip(grads, values, strict=True)
    ]  # fused steps trust it
    if isinstance(settings, WarmRestarts):
        scale = _cut([grad.square().sum() for grad in grads], settings.clip)
        grads = [grad * scale for grad in grads]
    kept = [list(kind.values()) for kind in moments.values()]
    if isinstance(settings, Adam):
        count = torch.tensor(float(taken), device=values[0].device)
        adam(
            values,
            grads,
            kept[0],
            kept[1],
            [],
            [count.clone() for _ in values],
            fused=True,
            amsgrad=False,
            beta1=_BETAS[0],
            beta2=_BETAS[1],
            lr=rate,
            weight_decay=0.0,
            eps=_BETAS[2],
            maximize=False,
        )
        return
    sgd(
        values,
        grads,
        list(kept[0]),
        fused=True,
        weight_decay=settings.weight_decay,
        momentum=settings.momentum,
        lr=rate,
        dampening=0.0,
        nesterov=False,
        maximize=False,
    )


def table(settings: Optimiser, taken: int, rates: Sequence[float], steps: int) -> Tensor:
    """Return a trial's steps up to the next validation as numbers: (steps, 2), rows of zeros for rest.

    Adam: the rate over its first bias correction, and the root of the second. Else: the rate, and 1.
    """
    out = torch.zeros(steps, 2, dtype=torch.float64)
    count = torch.arange(taken + 1, taken + 1 + len(rates), dtype=torch.float64)
    rate = torch.tensor(rates, dtype=torch.float64)
    if isinstance(settings, Adam):
        rate = rate / (1 - _BETAS[0] ** count)
        out[: len(rates), 1] = (1 - _BETAS[1] ** count).sqrt()
    else:
        out[: len(rates), 1] = 1.0
    out[: len(rates), 0] = rate
    return out


@torch.no_grad()
def stacked_step(
    settings: Optimiser, params: Params, grads: Sequence[Tensor], moments: Moments, now: Tensor
) -> None:
    """Move all trials' parameters (trials, ...) in place. now: (trials, 2), each trial's row of its table."""
    if isinstance(settings, WarmRestarts):
        scale = _cut([grad.flatten(1).square().sum(dim=1) for grad in grads], settings.clip)
        grads = [grad * scale.view(-1, *[1] * (grad.ndim - 1)) for grad in grads]
    for (name, param), grad in zip(params.items(), grads, strict=True):
        kept = [kind[name] for kind in moments.values()]
        grad = _laid_out(grad, param)  # noqa: PLW2901 - the same gradient
        if isinstance(settings, Adam) and trial_axis.has_kernels(param):
            from shels.kernels import adam as kernel  # noqa: PLC0415

            kernel.step(param, grad, kept[0], kept[1], now, _BETAS)
        else:
            _move(settings, param, grad, kept, now)


def _cut(squares: Sequence[Tensor], most: float) -> Tensor:
    """Return what a gradient is multiplied by to be no longer than `most`, as torch has it.

    squares: the squared lengths of its parts; of many trials, each (trials,).
    """
    length = torch.stack(list(squares)).sum(dim=0).sqrt()
    return (most / (length + 1e-6)).clamp(max=1.0)


def _laid_out(grad: Tensor, param: Tensor) -> Tensor:
    return grad if grad.stride() == param.stride() else torch.empty_like(param).copy_(grad)


def _move(settings: Optimiser, param: Tensor, grad: Tensor, kept: Sequence[Tensor], now: Tensor) -> None:
    """Move one parameter of all trials by plain operations; what rests keeps its values to the bit."""
    rate, spread = (column.to(param.dtype).view(-1, *[1] * (param.ndim - 1)) for column in now.unbind(1))
    if isinstance(settings, Adam):
        mean = torch.lerp(kept[0], grad, 1 - _BETAS[0])
        square = kept[1] * _BETAS[1] + (1 - _BETAS[1]) * grad * grad
        new = [mean, square]
        change = rate * mean / (square.sqrt() / spread + _BETAS[2])
    else:
        new = [kept[0] * settings.momentum + grad + settings.weight_decay * param]
        change = rate * new[0]
    for old, value in zip((*kept, param), (*new, param - change), strict=True):
        old.copy_(torch.where(spread > 0, value, old))
