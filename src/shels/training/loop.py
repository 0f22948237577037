"""Training: the loss of SHELS, and the one loop that every method trains through, one trial or many.

A method is a pure loss `loss(params, batch, state) -> scalar`, written for one trial, an optimiser given as a
value and, where it needs one, an `after_step(params, state) -> params` (masks, proximal steps). The loop owns
the order of the batches, the choice of the best model on validation data it never trains on, and the
checkpoints. How a step is computed, by itself or for many trials at once, is `stepping`'s affair.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from shels.config import Precision, TrainingSettings
from shels.errors import SettingsError
from shels.model.networks import Network
from shels.model.sparsity import depth_weights, group_sparsity
from shels.training.batches import Batch, TrialData
from shels.training.checkpoints import Checkpoint, Params
from shels.training.courses import Course, Fit, Progress, TrialTraining, Watcher
from shels.training.losses import cross_entropy
from shels.training.memory import most_together
from shels.training.stack import Stack
from shels.training.stepping import AfterStep, Alone, Loss, Method, Plan, State, Work, class_scores


def shels_loss(network: Network, settings: TrainingSettings) -> Loss:
    """Return the loss of Eq. (3): cross-entropy over raw cosines and group sparsity that fades with depth."""
    names = network.weight_names()
    mu = depth_weights(len(names), settings.depth_weights)

    def loss(params: Params, batch: Batch, state: State) -> Tensor:
        sparsity = group_sparsity([params[name] for name in names], mu)
        scores = class_scores(network, params, batch.inputs, state)
        return cross_entropy(scores, batch.labels) + settings.alpha * sparsity

    return loss


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
    progress: Watcher | None = None,
) -> Fit:
    """Train a network in place and return how it went; the weights kept are those best on validation.

    Without validation data they are the last ones.

    With a `checkpoint`, a run that was cut off goes on from its last validation, on the CPU to the very
    same weights.
    """
    trial = TrialTraining(network, data, seed, state or {}, checkpoint)
    went = fit_trials([trial], loss, settings, after_step=after_step, progress=progress)[0]
    if went.error is not None:
        raise went.error
    return went


def fit_trials(
    trials: Sequence[TrialTraining],
    loss: Loss,
    settings: TrainingSettings,
    *,
    after_step: AfterStep | None = None,
    progress: Watcher | None = None,
    together: int | None = None,
    precision: Precision = "float32",
) -> list[Fit]:
    """Train networks of one architecture in place, as many at once as memory allows, and say how it went.

    A trial's path is its own: it depends on its network, data, seed and state, not on its neighbours (what a
    step draws, by dropout, CutMix or replay of Gaussians, is another draw in another stack). Trials may
    differ in samples and in classes; `loss` and `after_step` are written for one. One that diverges ends
    alone, with `Fit.error`. `together`: trials stacked at most; None plans it by memory on a GPU and takes
    one after another on a CPU. `precision`: what convolutions of stacked trials multiply in; float32 is TF32
    on a GPU.
    """
    if not trials:
        return []
    device = next(trials[0].network.parameters()).device
    if precision != "float32" and device.type != "cuda":
        raise SettingsError(f'precision "{precision}" needs a GPU; on a CPU use "float32"')
    method = Method(loss, settings.optimiser, after_step)
    works = [
        Work(trial.network, data, trial.state) for trial, data in zip(trials, _moved(trials), strict=True)
    ]
    ready = [Course(work, settings, trial) for work, trial in zip(works, trials, strict=True)]
    width = together or planned(trials[0].network, trials[0].data, settings)
    if not all(_alike(work.data, works[0].data) for work in works):
        width = 1  # a stack gathers and prepares all inputs at once
    stacked = together is not None or device.type == "cuda"
    for trial in trials:
        trial.network.train()  # all of them: the loss may compute through any
    out: list[Fit] = []
    while len(out) < len(ready):
        part = ready[len(out) : len(out) + width]
        done = _attempt(part, method, precision if stacked else None, progress)
        if done is None:
            width = -(-len(part) // 2)  # split what does not fit, and begin that part again
            torch.cuda.empty_cache()
        out += done or []
    for trial in trials:
        trial.network.eval()
    return out


def _alike(one: TrialData, other: TrialData) -> bool:
    kinds = [(data.inputs.dtype, data.inputs.shape[1:]) for data in (one, other)]
    return kinds[0] == kinds[1] and one.prepare.same_as(other.prepare)


def _attempt(
    trials: Sequence[Course], method: Method, precision: Precision | None, progress: Watcher | None
) -> list[Fit] | None:
    """Train trials together, or return None where they do not fit into memory together."""
    works = [trial.work for trial in trials]
    try:
        engine: Alone | Stack | None
        if precision is None:
            engine = Alone(works[0], method)
        else:
            engine = Stack(works, method, getattr(torch, precision), trials[0].settings.batch_size)
        return _fit_together(trials, engine, progress)
    except torch.OutOfMemoryError:
        if len(trials) == 1:
            raise
    engine = None  # after the exception, which holds on to all that did not fit
    for trial in trials:
        trial.give_up()
    return None


def planned(network: nn.Module, data: TrialData, settings: TrainingSettings) -> int:
    """Return how many trials to stack: what fits into the memory of a GPU, and one at a time on a CPU."""
    on_gpu = next(network.parameters()).device.type == "cuda"
    return most_together(network, data, settings) if on_gpu else 1


def _moved(trials: Sequence[TrialTraining]) -> list[TrialData]:
    """Return the trials' data where their networks are, what they share still shared."""
    device = next(trials[0].network.parameters()).device
    there: dict[int, Tensor] = {}
    out = []
    for data in (trial.data for trial in trials):
        if id(data.inputs) not in there:
            there[id(data.inputs)] = data.inputs.to(device)
        inputs, prepare = there[id(data.inputs)], data.prepare.to(device)
        out.append(TrialData(inputs, data.training, data.validation, prepare))
    return out


def _fit_together(trials: Sequence[Course], engine: Alone | Stack, progress: Watcher | None) -> list[Fit]:
    """Train trials side by side to the end of each."""
    for trial, run in zip(trials, engine.runs, strict=True):
        trial.begin(run, progress)
    began = time.perf_counter() - max(run.seconds for run in engine.runs)
    device = trials[0].work.data.inputs.device

    def foresee() -> None:
        for trial in trials:
            trial.foresee()

    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        while any(not trial.finished for trial in trials):
            plans = [None if trial.finished else trial.plan() for trial in trials]
            outcomes = engine.round(plans, _teller(trials, plans, progress), foresee)
            for trial, plan, outcome in zip(trials, plans, outcomes, strict=True):
                if plan is not None:
                    trial.check(*outcome, time.perf_counter() - began, progress)
    return [trial.end(len(trials)) for trial in trials]


def _teller(
    trials: Sequence[Course], plans: Sequence[Plan | None], progress: Watcher | None
) -> Callable[[int], None]:
    """Return what tells the watcher of every tenth step of the first trial that takes any."""
    trial = next(t for t, plan in zip(trials, plans, strict=True) if plan is not None)
    before = trial.run.step

    def told(place: int) -> None:
        if progress is not None and (before + place) % 10 == 0:
            progress(Progress(before + place, trial.steps))

    return told
