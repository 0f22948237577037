"""The one loop that every method trains through, one trial or many, as a generator of its progress.

A method is a pure loss `loss(params, batch, state) -> scalar`, written for one trial, an optimiser given as a
value and, where it needs one, an `after_step(params, state) -> params` (masks, proximal steps). The loop owns
the order of the batches, the choice of the best model on validation data it never trains on, and the
checkpoints. How a step is computed is the affair of `trial_run` for a trial by itself, of `stack` for many.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor, nn

from shels.config import Precision, TrainingSettings
from shels.errors import SettingsError, unknown_name
from shels.files import write_together
from shels.runtime import finished, threads, to_end
from shels.training.checkpoints import Check, Checkpoint, Pace
from shels.training.data import Monitor, State, TrialData, TrialTraining
from shels.training.losses import AfterStep, Loss, Objective
from shels.training.memory import most_together
from shels.training.stack import Stack
from shels.training.threads import threads_for
from shels.training.trial_run import Fit, Plan, Single, TrialRun

PRECISIONS: dict[str, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}
"""What convolutions of stacked trials can multiply in, by name; float32 is TF32 on a GPU."""
REPORT_EVERY = 10
"""Steps between reports."""


@dataclass(frozen=True)
class Progress:
    """How far a training is. check: what a validation just came to. resumed: it goes on from a checkpoint."""

    step: int
    steps: int
    check: Check | None = None
    resumed: bool = False
    stage: str = "training"


@dataclass(frozen=True, eq=False)
class TrainingRequest:
    """A training of one trial as a value: requests that are alike can be trained together.

    loss, after_step: written for one trial; what is particular to it they read from its state alone.
    products: whether the trained network names classes by w_c · f whatever its head. front: where a part of a
    network is trained on features, what makes those of inputs. Both serve whoever evaluates on the way.
    """

    trial: TrialTraining
    loss: Loss
    settings: TrainingSettings
    after_step: AfterStep | None = None
    products: bool = False
    front: Callable[[Tensor], Tensor] | None = None


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
) -> Fit:
    """Train a network in place and return how it went; it gets the weights that were best on validation.

    Without validation data those are the last. With a `checkpoint`, a run that was cut off goes on from its
    last validation, on the CPU to the very same weights.

    >>> from shels.data.preparation import Preparation
    >>> from shels.data.samples import Samples
    >>> from shels.training import class_scores, cross_entropy
    >>> network, settings = nn.Linear(2, 2), TrainingSettings(steps=30, check_every=15)
    >>> samples = Samples(torch.eye(2).repeat(8, 1), torch.arange(16) % 2, ("a", "b"))
    >>> def loss(params, batch, state):
    ...     return cross_entropy(class_scores(network, params, batch.inputs, state), batch.labels)
    >>> data = TrialData.of(samples, None, Preparation((2,)))
    >>> [check.step for check in fit(network, loss, data, settings, seed=0).checks]
    [15, 30]
    """
    trial = TrialTraining(network, data, seed, state or {}, checkpoint)
    return finished(fitting(TrainingRequest(trial, loss, settings, after_step)))


def fitting(request: TrainingRequest) -> Generator[Progress, None, Fit]:
    """Train one trial by itself, reporting on the way; raises where its training diverges."""
    (result,) = yield from training(
        [request.trial], request.loss, request.settings, after_step=request.after_step
    )
    if result.error is not None:
        raise result.error
    return result


def training(
    trials: Sequence[TrialTraining],
    loss: Loss,
    settings: TrainingSettings,
    *,
    after_step: AfterStep | None = None,
    together: int | None = None,
    precision: Precision = "float32",
) -> Generator[Progress, None, list[Fit]]:
    """Train networks of one architecture in place, as many at once as memory allows, reporting on the way.

    A trial's path is its own: it depends on its network, data, seed and state, not on its neighbours (what a
    step draws, by augmentation, dropout, CutMix or replay of Gaussians, is another draw in another stack).
    Trials may differ in samples and in classes; `loss` and `after_step` are written for one. One that
    diverges ends alone, with `Fit.error`. `together`: trials stacked at most; None plans it by memory on a
    GPU and takes one after another on a CPU. `precision`: what convolutions of stacked trials multiply in.

    Nothing that is set for computing (random state, gradients, precision) holds while the consumer does, and
    a training that is left early leaves the networks as they were.
    """
    if not trials:
        return []
    device = next(trials[0].network.parameters()).device
    dtype = _checked(precision, device)
    _require_images(trials, settings)
    objective = Objective(loss, settings, after_step)
    runs = [TrialRun(trial, settings) for trial in _moved(trials)]
    width = together or planned(trials[0].network, trials[0].data, settings)
    if not all(_alike(run.trial.data, runs[0].trial.data) for run in runs):
        width = 1  # a stack gathers and prepares all inputs at once
    alone = any(_fixed(trial.network) for trial in trials)  # a stack has no weights that stay
    width = 1 if alone else width
    stacked = not alone and (together is not None or device.type == "cuda")
    out: list[Fit] = []
    try:
        for trial in trials:
            trial.network.train()  # all of them: the loss may compute through any
        while len(out) < len(runs):
            part = runs[len(out) : len(out) + width]
            done = yield from _attempt(part, objective, dtype if stacked else None)
            if done is None:
                width = -(-len(part) // 2)  # split what does not fit, and begin that part again
                torch.cuda.empty_cache()
            out += done or []
    finally:
        for trial in trials:
            trial.network.eval()
    return out


fit_trials = to_end(training)
"""Train as `training` does, in one call that returns how each trial's training went."""


def planned(network: nn.Module, data: TrialData, settings: TrainingSettings) -> int:
    """Return how many trials to stack: what fits into the memory of a GPU, and one at a time on a CPU."""
    on_gpu = next(network.parameters()).device.type == "cuda"
    return most_together(network, data, settings) if on_gpu else 1


def _checked(precision: str, device: torch.device) -> torch.dtype:
    if precision not in PRECISIONS:
        raise SettingsError(unknown_name("precision", precision, PRECISIONS))
    if precision != "float32" and device.type != "cuda":
        raise SettingsError(f'precision "{precision}" needs a GPU; on a CPU use "float32"')
    return PRECISIONS[precision]


def _require_images(trials: Sequence[TrialTraining], settings: TrainingSettings) -> None:
    for shape in {trial.data.prepare.shape for trial in trials}:
        if settings.augmentation is not None and len(shape) != 3:
            raise SettingsError(f"augmentation changes images; leave it out for vectors of {shape[0]} values")


def _moved(trials: Sequence[TrialTraining]) -> list[TrialTraining]:
    """Return the trials with their data where their networks are, what they share still shared."""
    device = next(trials[0].network.parameters()).device
    there: dict[int, Tensor] = {}
    out = []
    for trial in trials:
        data = trial.data
        if id(data.inputs) not in there:
            there[id(data.inputs)] = data.inputs.to(device)
        moved = replace(data, inputs=there[id(data.inputs)], prepare=data.prepare.to(device))
        out.append(replace(trial, data=moved))
    return out


def _fixed(network: nn.Module) -> bool:
    return any(not value.requires_grad for value in network.parameters())


def _alike(one: TrialData, other: TrialData) -> bool:
    kinds = [(data.inputs.dtype, data.inputs.shape[1:]) for data in (one, other)]
    return kinds[0] == kinds[1] and one.prepare.same_as(other.prepare)


def _attempt(
    runs: Sequence[TrialRun], objective: Objective, precision: torch.dtype | None
) -> Generator[Progress, None, list[Fit] | None]:
    """Train trials together; None where they do not fit into memory together. precision: of a stack."""
    trials = [run.trial for run in runs]
    engine: _Engine | None
    try:
        engine = Single(trials[0], objective) if precision is None else Stack(trials, objective, precision)
        return (yield from _train_together(runs, engine))
    except torch.OutOfMemoryError:
        if len(runs) == 1:
            raise
    engine = None  # after the exception, which holds on to all that did not fit
    for run in runs:
        run.give_up()
    return None


_Engine: TypeAlias = Single | Stack


def _train_together(runs: Sequence[TrialRun], engine: _Engine) -> Generator[Progress, None, list[Fit]]:
    """Train trials side by side to the end of each."""
    for run, state in zip(runs, engine.states, strict=True):
        if run.begin(state):
            yield Progress(state.step, run.steps, resumed=True)
    began = time.perf_counter() - max(state.seconds for state in engine.states)
    first = runs[0]
    draws = _Draws(first.trial.data.inputs.device)
    few = threads_for(first.trial.network, first.settings.batch_size)
    pace = Pace(max((run.trial.checkpoint.every for run in runs if run.trial.checkpoint), default=0.0))
    while any(not run.finished for run in runs):
        plans = [None if run.finished else run.plan() for run in runs]
        yield from _steps(runs, plans, engine, draws, few)
        with threads(few):
            engine.validate()
        if any(run.monitored for run, plan in zip(runs, plans, strict=True) if plan is not None):
            _note(runs, plans, engine, [run.state.step for run in runs])
        for run in runs:
            run.plan_ahead()  # while a GPU is busy
        done = zip(runs, plans, engine.results(), strict=True)
        seconds = time.perf_counter() - began
        checks = [None if plan is None else run.check(losses, seconds) for run, plan, losses in done]
        if pace.due(last=all(run.finished for run in runs)):
            _write(runs, pace)
        for run, check in zip(runs, checks, strict=True):
            if check is not None:
                yield Progress(check.step, run.steps, check)
    return [run.end(len(runs)) for run in runs]


def _write(runs: Sequence[TrialRun], pace: Pace) -> None:
    """Write down how trials stand, those of a stack at the same check or not at all."""
    with pace.writing():
        write_together(each for run in runs if (each := run.to_write) is not None)


def _note(
    runs: Sequence[TrialRun], plans: Sequence[Plan | None], engine: _Engine, steps: Sequence[int]
) -> None:
    """Evaluate the monitored samples; on a GPU nothing is waited for. steps: what each trial has taken."""
    counts = engine.monitor()
    for run, plan, step, mine in zip(runs, plans, steps, counts, strict=True):
        if plan is not None:
            run.note(step, mine)


def _steps(
    runs: Sequence[TrialRun], plans: Sequence[Plan | None], engine: _Engine, draws: _Draws, few: int | None
) -> Iterator[Progress]:
    """Take the steps up to the next validation in portions, and report on the trial that takes the most.

    few: how many threads take them, None for all.
    """
    pairs = ((run, len(plan.sizes)) for run, plan in zip(runs, plans, strict=True) if plan is not None)
    run, count = max(pairs, key=lambda pair: pair[1])
    before = [each.state.step for each in runs]
    step = run.state.step
    end = step + count
    stops = _stops(run.trial.monitor, step, end)
    with draws():
        engine.load(plans)
    while step < end:
        portion = min(REPORT_EVERY - step % REPORT_EVERY, min(stop for stop in stops if stop > step) - step)
        with draws(), threads(few):
            engine.take(portion)
        step += portion
        if step in stops and step < end:
            taken = step - end + count
            pairs_of = zip(before, plans, strict=True)
            _note(runs, plans, engine, [b + min(taken, len(p.sizes) if p else 0) for b, p in pairs_of])
        if step % REPORT_EVERY == 0:
            yield Progress(step, run.steps)


def _stops(monitor: Monitor | None, step: int, end: int) -> list[int]:
    """Give the steps at which monitored samples are evaluated before the next validation, and its own."""
    parts = monitor.parts if monitor else 1
    return [step + (end - step) * part // parts for part in range(1, parts + 1)]


class _Draws:
    """A training's own random state: inside, torch goes on where it stopped; outside, nobody notices."""

    def __init__(self, device: torch.device) -> None:
        self._gpus = [device] if device.type == "cuda" else []
        self._states: list[Tensor] = []

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with torch.random.fork_rng(devices=self._gpus):
            if self._states:
                torch.set_rng_state(self._states[0])
                for device, state in zip(self._gpus, self._states[1:], strict=True):
                    torch.cuda.set_rng_state(state, device)
            yield
            self._states = [torch.get_rng_state(), *(torch.cuda.get_rng_state(gpu) for gpu in self._gpus)]
