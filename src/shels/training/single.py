"""How the steps of one trial are computed; `stack` computes those of many at once, to the same weights.

Both offer the loop the same: `load` what the steps up to the next validation need, take some of them,
`validate`, and say how that went.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call

from shels.training import optimisers
from shels.training.checkpoints import Params, RunState
from shels.training.data import Rows, TrialTraining
from shels.training.losses import Objective, validation_sums


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


Losses: TypeAlias = tuple[float, float | None, float | None]
"""The mean training loss of a trial's steps; cross-entropy and accuracy on validation data, if it has any."""


class Single:
    """One trial, step by step."""

    def __init__(self, trial: TrialTraining, objective: Objective) -> None:
        self.trial, self.objective = trial, objective
        params = start_params(trial.network)
        self.states = [RunState(params, optimisers.moments_of(objective.settings.optimiser, params))]

    def load(self, plans: Sequence[Plan | None]) -> None:
        """Begin the steps up to the next validation."""
        (plan,), (run,) = plans, self.states
        if plan is None:
            raise ValueError("a single trial without a plan has nothing to do")
        torch.manual_seed(plan.seed)
        like = next(iter(run.params.values()))
        self._plan, self._place = plan, 0
        self._sums: Tensor | None = None
        self._rows = plan.rows.to(like.device)
        self._total = torch.zeros((), dtype=like.dtype, device=like.device)

    def take(self, count: int) -> None:
        """Take so many steps."""
        for place in range(self._place, self._place + count):
            size, rate = self._plan.sizes[place], self._plan.rates[place]
            self._total += self._step(self._rows[place, :size], rate)
        self._place += count

    def _step(self, places: Tensor, rate: float) -> Tensor:
        data, state, (run,) = self.trial.data, self.trial.state, self.states
        dtype = next(iter(run.params.values())).dtype
        batch = data.batch(Rows(data.training.places[places], data.training.labels[places]), dtype)
        value = self.objective.loss(run.params, batch, state)
        grads = torch.autograd.grad(value, list(run.params.values()), materialize_grads=True)
        optimisers.step(self.objective.settings.optimiser, run.params, grads, run.moments, run.step, rate)
        if self.objective.after_step is not None:
            with torch.no_grad():
                for name, new in self.objective.after_step(run.params, state).items():
                    run.params[name].copy_(new)
        run.step += 1
        return value.detach()

    @torch.no_grad()
    def validate(self) -> None:
        """Compute how the trial stands on its validation data, where it has any."""
        data, params = self.trial.data, self.states[0].params
        if data.validation is None:
            return
        self.trial.network.eval()
        dtype = next(iter(params.values())).dtype
        sums = torch.zeros(2, dtype=torch.float64, device=data.inputs.device)
        for rows in zip(
            *(torch.split(part, data.prepare.evaluation_batch) for part in data.validation), strict=True
        ):
            batch = data.batch(Rows(*rows), dtype)
            scores = functional_call(self.trial.network, params, (batch.inputs,))
            sums += validation_sums(scores, batch.labels)
        self._sums = sums
        self.trial.network.train()

    def results(self) -> list[Losses]:
        """Return how the steps and the validation went."""
        sums = None if self._sums is None else self._sums.tolist()
        return [mean_losses(float(self._total), len(self._plan.sizes), sums, self.trial)]


def mean_losses(total: float, steps: int, sums: Sequence[float] | None, trial: TrialTraining) -> Losses:
    """Return means from a trial's sum of training losses, and its sums over validation data."""
    if sums is None or trial.data.validation is None:
        return total / steps, None, None
    count = len(trial.data.validation.places)
    return total / steps, sums[0] / count, sums[1] / count


def start_params(network: nn.Module) -> Params:
    """Return leaf copies of a network's parameters, convolutions laid out channels-last."""
    params: Params = {}
    for name, value in network.named_parameters():
        layout = torch.channels_last if value.ndim == 4 else torch.contiguous_format
        params[name] = value.detach().clone(memory_format=layout).requires_grad_()
    return params
