"""One trial on its way through a training: its steps in order, its checks, its end."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from shels.config import TrainingSettings, to_dict
from shels.errors import TrainingError
from shels.runtime import derived_seed, generator
from shels.training.checkpoints import Check, RunState, fingerprint
from shels.training.data import TrialTraining
from shels.training.single import Losses, Plan


@dataclass(frozen=True)
class Fit:
    """How a training went; the network holds the weights of the best check.

    error: why a trial of many could not be trained; it then holds the best weights that it had, if any.
    together: how many trials were trained as one program.
    """

    checks: tuple[Check, ...]
    best: Check
    stopped_early: bool
    seconds: float
    error: TrainingError | None = None
    together: int = 1


class TrialRun:
    """One trial on its way through a training: what it does next, how it stands, whether it is done."""

    state: RunState

    def __init__(self, trial: TrialTraining, settings: TrainingSettings) -> None:
        self.trial, self.settings = trial, settings
        self.samples = len(trial.data.training.places)
        self.steps_per_epoch = -(-self.samples // settings.batch_size)
        self.steps = settings.steps or (settings.epochs or 0) * self.steps_per_epoch
        self.check_every = settings.check_every if settings.steps else self.steps_per_epoch
        self.identity = _identity(trial, settings) if trial.checkpoint else ""
        self.error: TrainingError | None = None
        self._epoch: tuple[int, Tensor] | None = None
        self._next: tuple[int, Plan] | None = None

    def begin(self, state: RunState) -> bool:
        """Start, or take up what a checkpoint holds, and tell whether it held anything."""
        self.state, self.error = state, None
        store = self.trial.checkpoint
        return store is not None and state.restore(store, self.identity)

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
        rates = [self.settings.optimiser.rate(epoch) for epoch, _ in places]
        seed = derived_seed(self.trial.seed, "round", self.state.step)  # for what a step draws
        return Plan(rows, (rows >= 0).sum(dim=1).tolist(), rates, seed)

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
        check = Check(step, step / self.steps_per_epoch, training_loss, loss, accuracy)
        self.state.record(check, seconds)
        if self.trial.checkpoint is not None:
            self.state.save(self.trial.checkpoint, self.identity)
        return check

    def end(self, together: int) -> Fit:
        """Give the network its best weights, let go of all else, and return how it went."""
        state = self.state
        self.give_up()
        if state.checks:
            self.trial.network.load_state_dict(state.best_params)
        best = state.best if state.checks else Check(state.step, 0.0, math.nan, None, None)
        return Fit(tuple(state.checks), best, state.step < self.steps, state.seconds, self.error, together)


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
