"""The course of a trial through a training, and what others are told of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from shels.config import TrainingSettings, to_dict
from shels.errors import TrainingError
from shels.runtime import derived_seed, generator
from shels.training.batches import TrialData
from shels.training.checkpoints import Check, Checkpoint, Run, fingerprint
from shels.training.stepping import Plan, Scores, State, Work


@dataclass(frozen=True)
class Progress:
    """What a watcher of a training is told now and then."""

    step: int
    steps: int
    check: Check | None = None
    resumed: bool = False
    stage: str = "training"


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


Watcher = Callable[[Progress], None]


@dataclass(frozen=True, eq=False)
class TrialTraining:
    """What one of many trials brings to a training; the network is trained in place."""

    network: nn.Module
    data: TrialData
    seed: int
    state: State = field(default_factory=dict)
    checkpoint: Checkpoint | None = None


class Course:
    """One trial's way through a training: what it does next, how it stands, whether it is done."""

    def __init__(self, work: Work, settings: TrainingSettings, given: TrialTraining) -> None:
        self.work, self.settings = work, settings
        self.seed, self.store = given.seed, given.checkpoint
        self.samples = len(work.data.training.places)
        self.steps_per_epoch = -(-self.samples // settings.batch_size)
        self.steps = settings.steps or (settings.epochs or 0) * self.steps_per_epoch
        self.check_every = settings.check_every if settings.steps else self.steps_per_epoch
        self.identity = _identity(work, settings, self.seed, self.store) if self.store else ""
        self.error: TrainingError | None = None
        self._epoch: tuple[int, Tensor] | None = None
        self._foreseen: tuple[int, Plan] | None = None

    def begin(self, run: Run, progress: Watcher | None) -> None:
        """Start, or take up what a checkpoint holds."""
        self.run, self.error = run, None
        if self.store and run.restore(self.store, self.identity) and progress is not None:
            progress(Progress(run.step, self.steps, resumed=True))

    def give_up(self) -> None:
        """Let go of all that this attempt holds, so that another has the memory."""
        self.__dict__.pop("run", None)
        self._foreseen = None

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        done = self.run.step >= self.steps or self.run.exhausted(self.settings.patience)
        return done or self.error is not None

    def foresee(self) -> None:
        """Make the next plan before it is asked for, while a GPU is busy with this one."""
        if not self.finished:
            self._foreseen = self.run.step, self.plan()

    def plan(self) -> Plan:
        """Return the steps up to the next validation."""
        if self._foreseen is not None and self._foreseen[0] == self.run.step:
            return self._foreseen[1]
        numbers = range(self.run.step, min(self.run.step + self.check_every, self.steps))
        places = [divmod(number, self.steps_per_epoch) for number in numbers]
        rows = torch.stack([self._order(epoch)[place] for epoch, place in places])
        rates = [self.settings.optimiser.rate(epoch) for epoch, _ in places]
        seed = derived_seed(self.seed, "round", self.run.step)  # for what a step draws: dropout, replay
        return Plan(rows, (rows >= 0).sum(dim=1).tolist(), rates, seed)

    def _order(self, epoch: int) -> Tensor:
        """Return an epoch's batches: a new order of all samples, drawn from the seed; -1 fills the last."""
        if self._epoch is None or self._epoch[0] != epoch:
            order = torch.randperm(self.samples, generator=generator(self.seed, "batches", epoch))
            size = self.settings.batch_size
            rows = F.pad(order, (0, self.steps_per_epoch * size - self.samples), value=-1)
            self._epoch = epoch, rows.view(-1, size)
        return self._epoch[1]

    def check(
        self, training_loss: float, scores: Scores | None, seconds: float, progress: Watcher | None
    ) -> None:
        """Note how the trial stands; a loss that is not finite ends it."""
        loss, accuracy = scores or (None, None)
        step = self.run.step
        if not math.isfinite(training_loss + (loss or 0)):
            self.error = TrainingError(
                f"the loss became {training_loss + (loss or 0)} by step {step}; lower the learning rate "
                f"(now {self.settings.optimiser.learning_rate:g}) or look for extreme inputs"
            )
            return
        check = Check(step, step / self.steps_per_epoch, training_loss, loss, accuracy)
        self.run.record(check, seconds)
        if self.store is not None:
            self.run.save(self.store, self.identity)
        if progress is not None:
            progress(Progress(step, self.steps, check))

    def end(self, together: int) -> Fit:
        """Give the network its best weights, let go of all else, and return how it went."""
        run = self.run
        self.give_up()
        if run.checks:
            self.work.network.load_state_dict(run.best_params)
        best = run.best if run.checks else Check(run.step, 0.0, math.nan, None, None)
        return Fit(tuple(run.checks), best, run.step < self.steps, run.seconds, self.error, together)


def _identity(work: Work, settings: TrainingSettings, seed: int, given: Checkpoint) -> str:
    data = work.data
    parts = [part for part in (data.training, data.validation) if part is not None]
    samples = [
        tensor for part in parts for tensor in (data.inputs[part.places.to(data.inputs.device)], part.labels)
    ]
    tensors = [*samples, *work.network.state_dict().values(), *work.state.values()]
    return fingerprint([to_dict(settings), seed, list(work.state), given.about], tensors)
