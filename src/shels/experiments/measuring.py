"""Measures trained networks: features of all of a stack's at once, then each trial's detector and figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from shels.data.samples import DataSet
from shels.detection import metrics
from shels.detection.protocol import KnownSamples, Labelled
from shels.detection.registry import Entry, entry_of
from shels.detection.scores.odin import Odin, chosen_step, moved_views
from shels.errors import ShelsError
from shels.experiments.methods import METHODS
from shels.experiments.preparing import Training
from shels.experiments.trials import Trial
from shels.learner.learner import with_detector
from shels.training.features import views_of


@dataclass(frozen=True, eq=False)
class Figures:
    """A trial's figures, and what a report draws."""

    metrics: dict[str, float]
    details: dict[str, Any]


@dataclass(frozen=True, eq=False)
class _Part:
    """Samples of one trial as its network sees them, and where their inputs lie."""

    samples: Labelled
    inputs: Tensor
    places: Tensor


_See: TypeAlias = Callable[[Sequence[tuple[Tensor, Tensor]], Tensor], list[_Part]]


def measure(
    stack: Sequence[Training],
    known: DataSet,
    sets: Mapping[str, DataSet],
    tests: Mapping[str, Tensor],
    precision: torch.dtype,
    lap: Callable[[str], None],
) -> dict[str, Figures | ShelsError]:
    """Return the figures of every trial of a stack by its key, or why it has none.

    sets: the data by name, with the novel classes'. tests: their test inputs, on the networks' device.
    """
    shared = any(_entry(trial).reads_shared for training in stack for trial in training.trials)
    see = partial(_seen, stack, precision, shared)
    training = see([t.data.training for t in stack], stack[0].data.inputs)
    held = see([t.data.validation or t.data.training for t in stack], stack[0].data.inputs)
    test = see([known.test.places(t.trials[0].known) for t in stack], tests[known.name])
    novel: dict[str, _Part] = {}
    for name, data in sets.items():
        novel |= _novel_parts(see, stack, data, tests[name])
    lap("features")
    out: dict[str, Figures | ShelsError] = {}
    for one, *parts in zip(stack, training, held, test, strict=True):
        for trial in one.trials:
            try:
                out[trial.key] = _figures(trial, one, parts, novel[trial.key])
            except ShelsError as error:  # a trial that cannot be judged is no reason to lose its neighbours
                out[trial.key] = error.with_traceback(None)
    lap("thresholds and measures")
    return out


def _novel_parts(see: _See, stack: Sequence[Training], data: DataSet, inputs: Tensor) -> dict[str, _Part]:
    """Return the novel samples of all trials that take them from one data set, by the trials' keys."""
    wanted = [list(dict.fromkeys(t.novel for t in one.trials if t.novel_data == data.name)) for one in stack]
    out: dict[str, _Part] = {}
    for turn in range(max(map(len, wanted))):  # one, unless trials on one network differ in what is novel
        mine = [classes[turn] if turn < len(classes) else None for classes in wanted]
        parts = see([data.test.places(classes or ()) for classes in mine], inputs)
        for one, classes, part in zip(stack, mine, parts, strict=True):
            same = [t for t in one.trials if t.novel_data == data.name and t.novel == classes]
            out |= {trial.key: part for trial in same}
    return out


def _seen(
    stack: Sequence[Training],
    precision: torch.dtype,
    shared: bool,
    parts: Sequence[tuple[Tensor, Tensor]],
    inputs: Tensor,
) -> list[_Part]:
    """Give the features of some samples of every trial of a stack. parts: places and labels of each."""
    networks, index = [training.network for training in stack], [places for places, _ in parts]
    views = views_of(networks, inputs, index, stack[0].data.prepare, precision=precision, shared=shared)
    return [
        _Part(Labelled(view, labels.to(inputs.device)), inputs, places)
        for view, (places, labels) in zip(views, parts, strict=True)
    ]


def _figures(trial: Trial, training: Training, parts: Sequence[_Part], novel: _Part) -> Figures:
    """Return one trial's figures: a learner is made as `fit` makes it, and asked."""
    network, data = training.network, training.data
    views, labels = parts[0].samples
    matrix = metrics.feature_exclusivity(network.head.weight.detach(), views.high, labels)
    (fitted, held, test, others), facts = _perturbed(trial, training, [*parts, novel])
    name = METHODS[trial.method].score
    about = (data.prepare, trial.settings, trial.seed)
    learner = with_detector(network, trial.known, KnownSamples(fitted, held), *about, detector=name)
    known, unknown, held_out = (learner.detector.verdicts(part.features) for part in (test, others, held))
    found = metrics.evaluated(known, test.labels, trial.known, unknown, others.labels, trial.novel)
    figures = {name: value for name, value in found.items() if isinstance(value, float)}
    figures["exclusivity"] = metrics.mean_exclusivity(matrix)
    figures["held_out_acceptance"] = float((~held_out.novel).float().mean())
    details = {name: value for name, value in found.items() if isinstance(value, dict)}
    return Figures(figures, details | facts | {"exclusivity": matrix.tolist()})


def _perturbed(
    trial: Trial, training: Training, parts: Sequence[_Part]
) -> tuple[list[Labelled], dict[str, Any]]:
    """Return samples as the detector sees them, inputs moved first where it asks for that, and how far."""
    if not _entry(trial).reads_inputs:
        return [part.samples for part in parts], {}
    network, prepare, temperature = training.network, training.data.prepare, Odin.temperature
    step = chosen_step(network, parts[1].inputs, parts[1].places, prepare)
    moved = [moved_views(network, part.inputs, part.places, prepare, temperature, step) for part in parts]
    pairs = zip(moved, parts, strict=True)
    return [Labelled(views, part.samples.labels) for views, part in pairs], {"step": step}


def _entry(trial: Trial) -> Entry:
    return entry_of(METHODS[trial.method].score)
