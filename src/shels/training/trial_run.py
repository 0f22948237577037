"""One trial of a training: its steps in order, how they are computed where it is alone, its checks, its end.

`Single` computes a trial's steps; `stack.Stack` computes those of many at once, to the same weights. Both
offer the loop the same: `load` what the steps up to the next validation need, take some of them, `validate`,
and say how that went.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.func import functional_call

from shels.config import TrainingSettings, to_dict
from shels.errors import TrainingError
from shels.runtime import derived_seed, generator
from shels.training import optimisers
from shels.training.checkpoints import Check, Params, RunState, fingerprint
from shels.training.data import CurvePoint, Rows, TrialTraining
from shels.training.losses import Objective, validation_sums
from shels.training.monitoring import Monitoring, right_answers


@dataclass(frozen=True)
class Fit:
    """How a training went; the network holds the weights of the best check, which may be the last by decree.

    error: why a trial of many could not be trained; it then holds the best weights that it had, if any.
    together: how many trials were trained as one program. curve: what a monitor saw on the way.
    """

    checks: tuple[Check, ...]
    best: Check
    stopped_early: bool
    seconds: float
    error: TrainingError | None = None
    together: int = 1
    curve: tuple[CurvePoint, ...] = ()


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


class TrialRun:
    """One trial on its way through a training: what it does next, how it stands, whether it is done."""

    state: RunState

    def __init__(self, trial: TrialTraining, settings: TrainingSettings) -> None:
        self.trial, self.settings = trial, settings
        self.samples = len(trial.data.training.places)
        self.steps_per_epoch = -(-self.samples // settings.batch_size)
        vectors = len(trial.data.prepare.shape) == 1
        self.steps = _length(settings, self.samples, self.steps_per_epoch, vectors=vectors)
        self.check_every = settings.check_every if settings.steps else self.steps_per_epoch
        self.error: TrainingError | None = None
        self._epoch: tuple[int, Tensor] | None = None
        self._next: tuple[int, Plan] | None = None

    def begin(self, state: RunState) -> bool:
        """Start, or take up what a checkpoint holds, and tell whether it held anything."""
        self.state, self.error = state, None
        state.keep = self.settings.keep
        self._curve: list[tuple[int, Tensor]] = []
        store = self.trial.checkpoint
        found = store is not None and store.exists and state.restore(store, self.identity)
        self._written = state.step
        return found

    @cached_property
    def identity(self) -> str:
        """What tells its checkpoint from those of other trainings; asked for before its network changes."""
        return _identity(self.trial, self.settings)

    def give_up(self) -> None:
        """Let go of all that this attempt holds, so that another has the memory."""
        self.__dict__.pop("state", None)
        self._next = None

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        done = self.state.step >= self.steps or self.state.exhausted(self.settings.patience)
        return done or self.error is not None

    def plan_ahead(self) -> None:
        """Make the next plan before it is needed."""
        if not self.finished:
            self._next = self.state.step, self.plan()

    def plan(self) -> Plan:
        """Return the steps up to the next validation."""
        if self._next is not None and self._next[0] == self.state.step:
            return self._next[1]
        numbers = range(self.state.step, min(self.state.step + self.check_every, self.steps))
        places = [divmod(number, self.steps_per_epoch) for number in numbers]
        rows = torch.stack([self._order(epoch)[place] for epoch, place in places])
        rates = [self._rate(number) for number in numbers]
        seed = derived_seed(self.trial.seed, "round", self.state.step)  # for what a step draws
        return Plan(rows, (rows >= 0).sum(dim=1).tolist(), rates, seed)

    def _rate(self, step: int) -> float:
        """Return a step's learning rate; a schedule reaches to the last step that there can be."""
        optimiser, each = self.settings.optimiser, self.steps_per_epoch
        rate = optimiser.rate(step // each)
        if (schedule := optimiser.schedule) is None:
            return rate
        if schedule.per == "step":
            return rate * schedule.factor(step, self.steps)
        return rate * schedule.factor(step // each, -(-self.steps // each))

    def _order(self, epoch: int) -> Tensor:
        """Return an epoch's batches: a new order of all samples, drawn from the seed; -1 fills the last."""
        if self._epoch is None or self._epoch[0] != epoch:
            order = torch.randperm(self.samples, generator=generator(self.trial.seed, "batches", epoch))
            size = self.settings.batch_size
            rows = F.pad(order, (0, self.steps_per_epoch * size - self.samples), value=-1)
            self._epoch = epoch, rows.view(-1, size)
        return self._epoch[1]

    def check(self, losses: Losses, seconds: float) -> Check | None:
        """Note how the trial stands and return it; a loss that is not finite ends the trial instead."""
        training_loss, loss, accuracy = losses
        step = self.state.step
        if not math.isfinite(training_loss + (loss or 0)):
            self.error = TrainingError(
                f"the loss became {training_loss + (loss or 0)} by step {step}; lower the learning rate "
                f"(now {self.settings.optimiser.learning_rate:g}) or look for extreme inputs"
            )
            return None
        ceiling, (epoch, more) = self.trial.ceiling, divmod(step, self.steps_per_epoch)
        if ceiling and training_loss > ceiling.loss and epoch in ceiling.epochs and not more:
            self.error = TrainingError(
                f"the training loss is {training_loss:.3g} after {epoch} epochs, over {ceiling.loss:.3g}; "
                f"lower the learning rate (now {self.settings.optimiser.learning_rate:g})"
            )
            return None
        check = Check(step, step / self.steps_per_epoch, training_loss, loss, accuracy)
        self.state.record(check, seconds)
        return check

    @property
    def to_write(self) -> tuple[Path, bytes] | None:
        """Its checkpoint as it should be now; None where it has none, or is written down as it stands."""
        store, state = self.trial.checkpoint, self.state
        if store is None or self.error is not None or state.step == self._written:
            return None
        self._written = state.step
        return store.path, state.content(self.identity)

    @property
    def monitored(self) -> bool:
        """Whether the monitored samples are to be evaluated after this validation."""
        monitor = self.trial.monitor
        if monitor is None:
            return False
        epoch, more = divmod(self.state.step, self.steps_per_epoch)
        chosen = monitor.epochs is None or (epoch in monitor.epochs and not more)
        return chosen or self.finished

    def note(self, step: int, counts: Tensor) -> None:
        """Keep a point of the curve, counts (2,), which stay on their device until the end."""
        self._curve.append((step, counts))

    def _points(self) -> tuple[CurvePoint, ...]:
        if not self._curve:
            return ()
        steps, counts = zip(*self._curve, strict=True)
        rows = zip(steps, torch.stack(counts).tolist(), strict=True)
        return tuple(CurvePoint(step, step / self.steps_per_epoch, *both) for step, both in rows)

    def end(self, together: int) -> Fit:
        """Give the network its best weights, let go of all else, and return how it went."""
        state = self.state
        self.give_up()
        if state.checks:
            self.trial.network.load_state_dict(state.best_params)
        best = state.best if state.checks else Check(state.step, 0.0, math.nan, None, None)
        early = state.step < self.steps
        about = (early, state.seconds, self.error, together, self._points())
        return Fit(tuple(state.checks), best, *about)


def _length(settings: TrainingSettings, samples: int, steps_per_epoch: int, *, vectors: bool) -> int:
    """Return how many steps a training takes at most."""
    if settings.steps is None:
        return (settings.epochs or 0) * steps_per_epoch
    if settings.steps_by_root is None:
        return settings.steps
    steps = settings.steps_by_root * math.sqrt(samples)
    return min(settings.steps, math.ceil(steps / 3 if vectors else steps))


def _identity(trial: TrialTraining, settings: TrainingSettings) -> str:
    """Return a digest of all that decides a trial's training; it has a checkpoint."""
    data = trial.data
    parts = [part for part in (data.training, data.validation) if part is not None]
    samples = [
        tensor for part in parts for tensor in (data.inputs[part.places.to(data.inputs.device)], part.labels)
    ]
    tensors = [*samples, *trial.network.state_dict().values(), *trial.state.values()]
    about = trial.checkpoint.about if trial.checkpoint else None
    return fingerprint([to_dict(settings), trial.seed, list(trial.state), about], tensors)


class Single:
    """One trial, step by step."""

    def __init__(self, trial: TrialTraining, objective: Objective) -> None:
        self.trial, self.objective = trial, objective
        params = start_params(trial.network)
        moments = optimisers.moments_of(objective.settings.optimiser, params)
        self.states = [RunState(params, moments, buffers=start_buffers(trial.network))]
        self.monitoring = Monitoring.of([trial], next(iter(params.values())).device)

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
        rows = Rows(data.training.places[places], data.training.labels[places])
        batch = data.batch(rows, dtype, self.objective.settings.augmentation)
        value = self.objective.loss(run.values, batch, state)
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
        data, params = self.trial.data, self.states[0].values
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

    @torch.no_grad()
    def monitor(self) -> Tensor:
        """Count the right answers on the monitored samples: (1, 2)."""
        parts, params, network = self.monitoring, self.states[0].values, self.trial.network
        counts = torch.zeros(1, 2, dtype=torch.int64, device=parts.newest.device)
        network.eval()
        for inputs, labels in parts.batches(next(iter(params.values())).dtype):
            scores = parts.scores(network, params, inputs[0], self.trial.state)
            counts[0] += right_answers(scores, labels[0], parts.newest[0])
        network.train()
        return counts

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
    """Return leaf copies of a network's parameters, convolutions channels-last; fixed ones are left out."""
    params: Params = {}
    for name, value in network.named_parameters():
        if not value.requires_grad:
            continue
        layout = torch.channels_last if value.ndim == 4 else torch.contiguous_format
        params[name] = value.detach().clone(memory_format=layout).requires_grad_()
    return params


def start_buffers(network: nn.Module) -> Params:
    """Return copies of a network's buffers, what it learns without a gradient, and of what is fixed in it."""
    fixed = {name: value for name, value in network.named_parameters() if not value.requires_grad}
    return {
        name: value.detach().clone() for name, value in {**dict(network.named_buffers()), **fixed}.items()
    }
