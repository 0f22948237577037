"""How the steps of a trial are computed by itself, and what that has in common with a stack of trials.

Both train exactly the same way, and the loop in `training` cannot tell them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.func import functional_call

from shels.config import Optimiser
from shels.training import optimisers
from shels.training.batches import Batch, Rows, TrialData
from shels.training.checkpoints import Params, Run
from shels.training.losses import PADDING

State: TypeAlias = Mapping[str, Tensor]
Loss: TypeAlias = Callable[[Params, Batch, State], Tensor]
"""A pure function of one trial's parameters, batch and state, a scalar.

It must be one that `torch.vmap` and a CUDA graph can take: no value asked for (`.item()`, `if` on a tensor, a
mask as an index), no tensor made from Python numbers on the way.
"""
AfterStep: TypeAlias = Callable[[Params, State], Params]
"""What becomes of parameters after each step, those that change by name; the same rules hold."""

SURPLUS = "surplus"
"""In a stack's state: 0 for each of a trial's classes, -inf for rows of the head that another trial has."""


@dataclass(frozen=True, eq=False)
class Work:
    """One trial's share of a training: its network, data and state."""

    network: nn.Module
    data: TrialData
    state: State


@dataclass(frozen=True, eq=False)
class Method:
    """What all trials of a training have in common."""

    loss: Loss
    optimiser: Optimiser
    after_step: AfterStep | None = None


@dataclass(frozen=True, eq=False)
class Plan:
    """A trial's steps up to its next validation.

    rows: (steps, batch) places in the training rows, -1 for none. sizes: samples in each step.
    rates: learning rate of each step. seed: for what a step draws, such as dropout.
    """

    rows: Tensor
    sizes: Sequence[int]
    rates: Sequence[float]
    seed: int


Scores: TypeAlias = tuple[float, float]
"""Mean cross-entropy and accuracy."""

Outcome: TypeAlias = tuple[float, Scores | None]
"""The mean training loss of a trial's steps, and how it stands on validation data where it has any."""


def class_scores(network: nn.Module, params: Params, inputs: Tensor, state: State) -> Tensor:
    """Return a network's class scores under these parameters; rows that are another trial's score -inf."""
    scores: Tensor = functional_call(network, params, (inputs,))
    return scores + state[SURPLUS] if SURPLUS in state else scores


class Alone:
    """One trial, step by step."""

    def __init__(self, work: Work, method: Method) -> None:
        self.work, self.method = work, method
        params = start_params(work.network)
        self.runs = [Run(params, optimisers.moments_of(method.optimiser, params))]

    def round(
        self, plans: Sequence[Plan | None], told: Callable[[int], None], meanwhile: Callable[[], None]
    ) -> list[Outcome]:
        """Train up to the next validation and return how it went; `told` hears of each step."""
        del meanwhile  # a CPU that computes has no time to spare
        (plan,), (run,) = plans, self.runs
        if plan is None:
            return [(0.0, None)]
        torch.manual_seed(plan.seed)
        like = next(iter(run.params.values()))
        total = torch.zeros((), dtype=like.dtype, device=like.device)
        rows = plan.rows.to(total.device)
        for place, (size, rate) in enumerate(zip(plan.sizes, plan.rates, strict=True)):
            total += self._step(run, rows[place, :size], rate)
            told(place + 1)
        return [(float(total) / len(plan.sizes), self._validate())]

    def _step(self, run: Run, places: Tensor, rate: float) -> Tensor:
        data, state = self.work.data, self.work.state
        dtype = next(iter(run.params.values())).dtype
        batch = data.batch(Rows(data.training.places[places], data.training.labels[places]), dtype)
        value = self.method.loss(run.params, batch, state)
        grads = torch.autograd.grad(value, list(run.params.values()), materialize_grads=True)
        optimisers.step(self.method.optimiser, run.params, grads, run.moments, run.step, rate)
        if self.method.after_step is not None:
            with torch.no_grad():
                for name, new in self.method.after_step(run.params, state).items():
                    run.params[name].copy_(new)
        run.step += 1
        return value.detach()

    @torch.no_grad()
    def _validate(self) -> Scores | None:
        """Return how the trial stands on its validation data, None where it has none."""
        data = self.work.data
        if data.validation is None:
            return None
        self.work.network.eval()
        params = self.runs[0].params
        dtype = next(iter(params.values())).dtype
        sums = torch.zeros(2, dtype=torch.float64, device=data.inputs.device)
        for rows in zip(
            *(torch.split(part, data.prepare.evaluation_batch) for part in data.validation), strict=True
        ):
            batch = data.batch(Rows(*rows), dtype)
            sums += score_sums(functional_call(self.work.network, params, (batch.inputs,)), batch.labels)
        self.work.network.train()
        return mean_scores(sums.tolist(), len(data.validation.places))


def start_params(network: nn.Module) -> Params:
    """Return leaf copies of a network's parameters, convolutions laid out channels-last."""
    params: Params = {}
    for name, value in network.named_parameters():
        layout = torch.channels_last if value.ndim == 4 else torch.contiguous_format
        params[name] = value.detach().clone(memory_format=layout).requires_grad_()
    return params


def score_sums(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the sum of cross-entropies and the number of right answers: (2,)."""
    loss = F.cross_entropy(scores, labels, reduction="sum", ignore_index=PADDING)
    return torch.stack([loss, (scores.argmax(dim=1) == labels).sum()])


def mean_scores(sums: Sequence[float], count: int) -> Scores:
    """Return mean cross-entropy and accuracy from their sums."""
    return sums[0] / count, sums[1] / count
