"""Optimiser steps as functions: of one trial through torch's own, of a stack of trials each in its own time.

What an optimiser remembers lies beside the parameters, by kind and name, laid out like them. A new optimiser
is a subclass of `StepRule` and a line in `OPTIMISERS`, beside its settings in `shels.config`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from shels.config import Adam, Optimiser, Sgd, WarmRestarts
from shels.errors import SettingsError, unknown_name
from shels.kernels import trial_axis
from shels.training.checkpoints import Params

Moments: TypeAlias = dict[str, Params]
Values: TypeAlias = list[Tensor]

_BETAS = (0.9, 0.999, 1e-8)
"""Of Adam's mean and mean square, and the term that keeps its quotient finite: torch's defaults."""
_FUSED: dict[str, Any] = {"fused": True, "maximize": False}
_ADAM = _FUSED | {"beta1": _BETAS[0], "beta2": _BETAS[1], "eps": _BETAS[2]}


class Now(NamedTuple):
    """One trial's step: how many were taken before it, and its learning rate."""

    taken: int
    rate: float


class StepRule(ABC):
    """How a kind of optimiser moves parameters; `settings` are those of its dataclass.

    moments: names of what it remembers of each parameter, in the order in which its methods get them.
    """

    moments: ClassVar[tuple[str, ...]]

    def longest(self, settings: Any) -> float | None:
        """Return the length at which a trial's whole gradient is clipped, None for never."""
        del settings
        return None

    @abstractmethod
    def step(self, settings: Any, values: Values, grads: Values, moments: list[Values], now: Now) -> None:
        """Move one trial's parameters in place."""

    @abstractmethod
    def columns(self, rates: Tensor, count: Tensor) -> tuple[Tensor, Tensor | float]:
        """Return the two columns of a table, the second over 0: what a stack must know of a trial's steps.

        rates, count: (steps,), each step's learning rate and its number from 1.
        """

    @abstractmethod
    def moved(
        self, settings: Any, param: Tensor, grad: Tensor, moments: Values, columns: Values
    ) -> tuple[Tensor, ...]:
        """Return new moments and, last, the new parameter (trials, ...). columns: each trial's row."""

    @abstractmethod
    def fused(self, settings: Any, tensors: tuple[Tensor, ...], rows: Tensor) -> None:
        """Do what `moved` does in place, by a kernel.

        tensors: the parameter, its gradient and its moments. rows: (trials, 2), what `columns` gave.
        """


class _Adam(StepRule):
    moments = ("exp_avg", "exp_avg_sq")

    def step(self, settings: Adam, values: Values, grads: Values, moments: list[Values], now: Now) -> None:
        del settings
        count = torch.tensor(float(now.taken), device=values[0].device)
        counts = [count.clone() for _ in values]
        tensors = values, grads, moments[0], moments[1]
        adam(*tensors, [], counts, lr=now.rate, weight_decay=0.0, amsgrad=False, **_ADAM)

    def columns(self, rates: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rate over the first bias correction, and the root of the second."""
        return rates / (1 - _BETAS[0] ** count), (1 - _BETAS[1] ** count).sqrt()

    def moved(
        self, settings: Adam, param: Tensor, grad: Tensor, moments: Values, columns: Values
    ) -> tuple[Tensor, ...]:
        del settings
        rate, spread = columns
        mean = torch.lerp(moments[0], grad, 1 - _BETAS[0])
        square = moments[1] * _BETAS[1] + (1 - _BETAS[1]) * grad * grad
        return mean, square, param - rate * mean / (square.sqrt() / spread + _BETAS[2])

    def fused(self, settings: Adam, tensors: tuple[Tensor, ...], rows: Tensor) -> None:
        from shels.kernels import steps  # noqa: PLC0415

        del settings
        steps.adam(tensors, rows, _BETAS)


class _Sgd(StepRule):
    moments = ("momentum_buffer",)

    def longest(self, settings: Sgd | WarmRestarts) -> float | None:
        return settings.clip if isinstance(settings, WarmRestarts) else None

    def step(
        self, settings: Sgd | WarmRestarts, values: Values, grads: Values, moments: list[Values], now: Now
    ) -> None:
        options = _FUSED | {"momentum": settings.momentum, "weight_decay": settings.weight_decay}
        sgd(values, grads, list(moments[0]), lr=now.rate, dampening=0.0, nesterov=False, **options)

    def columns(self, rates: Tensor, count: Tensor) -> tuple[Tensor, float]:
        """Return the rate, and 1."""
        del count
        return rates, 1.0

    def moved(
        self, settings: Sgd | WarmRestarts, param: Tensor, grad: Tensor, moments: Values, columns: Values
    ) -> tuple[Tensor, ...]:
        buffer = moments[0] * settings.momentum + grad + settings.weight_decay * param
        return buffer, param - columns[0] * buffer

    def fused(self, settings: Sgd | WarmRestarts, tensors: tuple[Tensor, ...], rows: Tensor) -> None:
        from shels.kernels import steps  # noqa: PLC0415

        steps.sgd(tensors, rows, settings.momentum, settings.weight_decay)


OPTIMISERS: dict[str, StepRule] = {Adam.kind: _Adam(), Sgd.kind: _Sgd(), WarmRestarts.kind: _Sgd()}
"""Every optimiser by the kind of its settings."""


def rule_of(settings: Optimiser) -> StepRule:
    """Return how an optimiser moves parameters.

    >>> rule_of(Adam()).moments
    ('exp_avg', 'exp_avg_sq')
    """
    if settings.kind not in OPTIMISERS:
        raise SettingsError(unknown_name("optimiser", settings.kind, OPTIMISERS))
    return OPTIMISERS[settings.kind]


def moments_of(settings: Optimiser, params: Params) -> Moments:
    """Return what an optimiser remembers before its first step."""
    names = rule_of(settings).moments
    return {kind: {n: torch.zeros_like(p, requires_grad=False) for n, p in params.items()} for kind in names}


@torch.no_grad()
def step(
    settings: Optimiser, params: Params, grads: Sequence[Tensor], moments: Moments, taken: int, rate: float
) -> None:
    """Move one trial's parameters in place. taken: steps before this one. rate: this step's learning rate."""
    rule, values = rule_of(settings), list(params.values())
    for value in values if _decoupled(settings) else ():
        value.mul_(1 - _decoupled(settings) * rate)
    laid = [_laid_out(grad, value) for grad, value in zip(grads, values, strict=True)]  # fused steps trust it
    if (longest := rule.longest(settings)) is not None:
        scale = _shortening([grad.square().sum() for grad in laid], longest)
        laid = [grad * scale for grad in laid]
    rule.step(settings, values, laid, [list(kind.values()) for kind in moments.values()], Now(taken, rate))


def _decoupled(settings: Optimiser) -> float:
    """Return what weights lose beside the gradient's step, times the rate."""
    return settings.decoupled_decay if isinstance(settings, Adam) else 0.0


def table_width(settings: Optimiser) -> int:
    """Return how many numbers tell a step: the rule's two, and the rate itself where weights decay by it."""
    return 3 if _decoupled(settings) else 2


def table(settings: Optimiser, taken: int, rates: Sequence[float], steps: int) -> Tensor:
    """Return a trial's steps up to the next validation as numbers: (steps, width), rows of zeros for rest."""
    out = torch.zeros(steps, table_width(settings), dtype=torch.float64)
    count = torch.arange(taken + 1, taken + 1 + len(rates), dtype=torch.float64)
    each = torch.tensor(rates, dtype=torch.float64)
    out[: len(rates), 0], out[: len(rates), 1] = rule_of(settings).columns(each, count)
    out[: len(rates), 2:] = each[:, None]
    return out


@torch.no_grad()
def stacked_step(
    settings: Optimiser, params: Params, grads: Sequence[Tensor], moments: Moments, now: Tensor
) -> None:
    """Move all trials' parameters (trials, ...) in place. now: (trials, width), rows of their tables."""
    rule = rule_of(settings)
    if decay := _decoupled(settings):
        for param in params.values():
            param.mul_((1 - decay * now[:, 2]).view(-1, *[1] * (param.ndim - 1)))
        now = now[:, :2].contiguous()  # as the kernels read it
    if (longest := rule.longest(settings)) is not None:
        scale = _shortening([grad.flatten(1).square().sum(dim=1) for grad in grads], longest)
        grads = [grad * scale.view(-1, *[1] * (grad.ndim - 1)) for grad in grads]
    for (name, param), grad in zip(params.items(), grads, strict=True):
        mine, laid = [kind[name] for kind in moments.values()], _laid_out(grad, param)
        if trial_axis.has_kernels(param):
            rule.fused(settings, (param, laid, *mine), now)
            continue
        columns = [each.to(param.dtype).view(-1, *[1] * (param.ndim - 1)) for each in now.unbind(1)]
        new = rule.moved(settings, param, laid, mine, columns)
        for old, value in zip((*mine, param), new, strict=True):
            old.copy_(torch.where(columns[1] > 0, value, old))  # what rests keeps its values to the bit


def _shortening(squares: Sequence[Tensor], longest: float) -> Tensor:
    """Return what a gradient is multiplied by to be no longer than that, as torch has it.

    squares: the squared lengths of its parts; of many trials, each (trials,).
    """
    length = torch.stack(list(squares)).sum(dim=0).sqrt()
    return (longest / (length + 1e-6)).clamp(max=1.0)


def _laid_out(grad: Tensor, param: Tensor) -> Tensor:
    return grad if grad.stride() == param.stride() else torch.empty_like(param).copy_(grad)
