"""Training: the loss of SHELS, and the one loop that every method trains through.

A method is a pure loss `loss(params, batch, state) -> scalar`, an optimiser given as a value and, where it
needs one, an `after_step(params, state) -> params` (masks, proximal steps). The loop owns the order of the
batches, the choice of the best model on validation data it never trains on, and the checkpoints.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.func import functional_call

from shels.config import TrainingSettings, to_dict
from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.errors import TrainingError
from shels.model.networks import Network
from shels.runs import Check, Checkpoint, Params, Run, fingerprint
from shels.runtime import derived_seed, generator
from shels.sparsity import depth_weights, group_sparsity

State = Mapping[str, Tensor]


class Batch(NamedTuple):
    """One step's samples, prepared: inputs (n, *shape) and labels (n,)."""

    inputs: Tensor
    labels: Tensor


Loss = Callable[[Params, Batch, State], Tensor]
AfterStep = Callable[[Params, State], Params]


def shels_loss(network: Network, settings: TrainingSettings) -> Loss:
    """Return the loss of Eq. (3): cross-entropy over raw cosines and group sparsity that fades with depth."""
    names = network.weight_names()
    mu = depth_weights(len(names), settings.depth_weights)

    def loss(params: Params, batch: Batch, state: State) -> Tensor:
        del state
        cross_entropy = F.cross_entropy(functional_call(network, params, (batch.inputs,)), batch.labels)
        return cross_entropy + settings.alpha * group_sparsity([params[name] for name in names], mu)

    return loss


@dataclass(frozen=True, eq=False)
class TrialData:
    """What one trial trains on and what it only ever validates on, with the preparation of both.

    validation: None where nothing can be held out; the weights kept are then the last.
    """

    training: Samples
    validation: Samples | None
    prepare: Preparation

    def to(self, device: torch.device) -> TrialData:
        """Return the same with inputs and labels on a device, where they stay for the whole training."""
        validation = None if self.validation is None else self.validation.to(device)
        return TrialData(self.training.to(device), validation, self.prepare.to(device))

    def batch(self, index: Tensor) -> Batch:
        """Return the training samples at these positions, prepared."""
        return Batch(self.prepare(self.training.inputs[index]), self.training.labels[index])


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
    """How a training went; the network holds the weights of the best check."""

    checks: tuple[Check, ...]
    best: Check
    stopped_early: bool
    seconds: float


def fit(
    network: nn.Module,
    loss: Loss,
    data: TrialData,
    settings: TrainingSettings,
    *,
    seed: int,
    state: State | None = None,
    after_step: AfterStep | None = None,
    checkpoint: Checkpoint | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Fit:
    """Train a network in place and return how it went; the weights kept are those best on validation.

    Without validation data they are the last ones.

    With a `checkpoint`, a run that was cut off goes on from its last validation, on the CPU to the very
    same weights.
    """
    device = next(network.parameters()).device
    data = data.to(device)
    loop = _Loop(network, loss, data, settings, seed, dict(state or {}), after_step)
    run = Run(start_params(network), settings.optimiser)
    identity = _identity(network, data, settings, seed, loop.state, checkpoint) if checkpoint else ""
    if checkpoint and run.restore(checkpoint, identity) and progress is not None:
        progress(Progress(run.step, loop.steps, resumed=True))
    began = time.perf_counter() - run.seconds
    cuda = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        while run.step < loop.steps and not run.exhausted(settings.patience):
            check = loop.round(run, progress)
            run.record(check, time.perf_counter() - began)
            if checkpoint is not None:
                run.save(checkpoint, identity)
            if progress is not None:
                progress(Progress(run.step, loop.steps, check))
    network.load_state_dict(run.best_params)
    return Fit(tuple(run.checks), run.best, run.step < loop.steps, run.seconds)


def _identity(
    network: nn.Module,
    data: TrialData,
    settings: TrainingSettings,
    seed: int,
    state: State,
    given: Checkpoint,
) -> str:
    parts = [part for part in (data.training, data.validation) if part is not None]
    samples = [tensor for part in parts for tensor in (part.inputs, part.labels)]
    tensors = [*samples, *network.state_dict().values(), *state.values()]
    return fingerprint([to_dict(settings), seed, list(state), given.about], tensors)


def start_params(network: nn.Module) -> Params:
    """Return leaf copies of a network's parameters, convolutions laid out channels-last."""
    params: Params = {}
    for name, value in network.named_parameters():
        layout = torch.channels_last if value.ndim == 4 else torch.contiguous_format
        params[name] = value.detach().clone(memory_format=layout).requires_grad_()
    return params


class _Loop:
    """The training loop between two validations."""

    def __init__(
        self,
        network: nn.Module,
        loss: Loss,
        data: TrialData,
        settings: TrainingSettings,
        seed: int,
        state: State,
        after_step: AfterStep | None,
    ) -> None:
        self.network, self.loss, self.data, self.settings = network, loss, data, settings
        self.seed, self.state, self.after_step = seed, state, after_step
        self.steps_per_epoch = -(-len(data.training) // settings.batch_size)
        self.steps = settings.steps or (settings.epochs or 0) * self.steps_per_epoch
        self.check_every = settings.check_every if settings.steps else self.steps_per_epoch
        self._order: tuple[int, Tensor] | None = None

    def round(self, run: Run, progress: Callable[[Progress], None] | None) -> Check:
        """Train up to the next validation and return how it stands then."""
        torch.manual_seed(derived_seed(self.seed, "round", run.step))  # for dropout, the only draw in a step
        self.network.train()
        stop = min(run.step + self.check_every, self.steps)
        began, total = run.step, torch.zeros((), device=self.data.training.labels.device)
        while run.step < stop:
            total += self.step(run)
            if progress is not None and run.step % 10 == 0:
                progress(Progress(run.step, self.steps))
        return self.check(run, float(total) / (stop - began))

    def step(self, run: Run) -> Tensor:
        """Take one optimiser step and return its loss."""
        epoch, place = divmod(run.step, self.steps_per_epoch)
        for group in run.optimiser.param_groups:
            group["lr"] = self.settings.optimiser.rate(epoch)
        value = self.loss(run.params, self.data.batch(self.batch_index(epoch, place)), self.state)
        run.optimiser.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        run.optimiser.step()
        if self.after_step is not None:
            with torch.no_grad():
                for name, new in self.after_step(run.params, self.state).items():
                    run.params[name].copy_(new)
        run.step += 1
        return value.detach()

    def batch_index(self, epoch: int, place: int) -> Tensor:
        """Return the positions of a batch: each epoch is a new order of all samples, drawn from the seed."""
        if self._order is None or self._order[0] != epoch:
            order = torch.randperm(len(self.data.training), generator=generator(self.seed, "batches", epoch))
            self._order = epoch, order.to(self.data.training.labels.device)
        size = self.settings.batch_size
        return self._order[1][place * size : (place + 1) * size]

    def check(self, run: Run, training_loss: float) -> Check:
        """Return the state of the training on validation data; a loss that is not finite ends it."""
        loss, accuracy = None, None
        if self.data.validation is not None:
            loss, accuracy = validate(self.network, run.params, self.data.validation, self.data.prepare)
        if not math.isfinite(training_loss + (loss or 0)):
            raise TrainingError(
                f"the loss became {training_loss + (loss or 0)} by step {run.step}; lower the learning rate "
                f"(now {self.settings.optimiser.learning_rate:g}) or look for extreme inputs"
            )
        return Check(run.step, run.step / self.steps_per_epoch, training_loss, loss, accuracy)


@torch.no_grad()
def validate(
    network: nn.Module, params: Params, samples: Samples, prepare: Preparation
) -> tuple[float, float]:
    """Return the mean cross-entropy and the accuracy over samples, in evaluation mode."""
    network.eval()
    loss = torch.zeros((), device=samples.labels.device)
    right = torch.zeros((), device=samples.labels.device)
    size = prepare.evaluation_batch
    for start in range(0, len(samples), size):
        inputs, labels = samples.inputs[start : start + size], samples.labels[start : start + size]
        scores = functional_call(network, params, (prepare(inputs),))
        loss += F.cross_entropy(scores, labels, reduction="sum")
        right += (scores.argmax(dim=1) == labels).sum()
    return float(loss) / len(samples), float(right) / len(samples)
