"""Measures trained networks: features of all of a stack's at once, then each trial's detector and figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from shels.config import Gaussian
from shels.data.samples import DataSet
from shels.detection import metrics
from shels.detection.calibration import Verdicts
from shels.detection.evaluation import exclusivity, measures_of
from shels.detection.head import Head
from shels.detection.judge import Judge
from shels.detection.registry import DETECTORS, detector
from shels.detection.scores.gaussian import GaussianDetector
from shels.detection.scores.odin import Odin, chosen_step, moved_views
from shels.detection.scores.shels import Detector
from shels.errors import ShelsError
from shels.experiments.methods import METHODS
from shels.experiments.preparing import Training
from shels.experiments.trials import Trial
from shels.model.networks import Network, Views
from shels.training.features import views_of


@dataclass(frozen=True, eq=False)
class Figures:
    """A trial's figures, and what a report draws."""

    metrics: dict[str, float]
    details: dict[str, Any]


@dataclass(frozen=True, eq=False)
class _Part:
    """Samples of one trial as its network sees them, and where their inputs lie."""

    views: Views
    labels: Tensor
    inputs: Tensor
    places: Tensor


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
    shared = any(_reads_shared(trial) for training in stack for trial in training.trials)
    see = _Seer(stack, precision, shared)
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


def _novel_parts(see: _Seer, stack: Sequence[Training], data: DataSet, inputs: Tensor) -> dict[str, _Part]:
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


class _Seer:
    """Gives the features of samples of every trial of a stack."""

    def __init__(self, stack: Sequence[Training], precision: torch.dtype, shared: bool) -> None:
        self.stack, self.precision, self.shared = stack, precision, shared

    def __call__(self, parts: Sequence[tuple[Tensor, Tensor]], inputs: Tensor) -> list[_Part]:
        networks = [training.network for training in self.stack]
        prepare = self.stack[0].data.prepare
        index = [part[0] for part in parts]
        views = views_of(networks, inputs, index, prepare, precision=self.precision, shared=self.shared)
        pairs = zip(views, parts, strict=True)
        return [_Part(view, labels.to(inputs.device), inputs, index) for view, (index, labels) in pairs]


def _figures(trial: Trial, training: Training, parts: Sequence[_Part], novel: _Part) -> Figures:
    """Return one trial's figures from what its network sees."""
    matrix = exclusivity(training.network.head.weight.detach(), parts[0].views.high, parts[0].labels)
    (fitted, held, test, novel), facts = _as_judged(trial, training, [*parts, novel])
    judge = _detector(trial, training.network, fitted, held)
    judged = [_verdicts(judge, part.views) for part in (test, novel)]
    found = measures_of(judged[0], test.labels, trial.known, judged[1], novel.labels, trial.novel)
    apart = _verdicts(judge, held.views)
    figures = {name: value for name, value in found.items() if isinstance(value, float)}
    figures["exclusivity"] = metrics.mean_exclusivity(matrix)
    figures["held_out_acceptance"] = float((~apart.novel).float().mean())
    details = {name: value for name, value in found.items() if isinstance(value, dict)}
    return Figures(figures, details | facts | {"exclusivity": matrix.tolist()})


def _as_judged(
    trial: Trial, training: Training, parts: Sequence[_Part]
) -> tuple[Sequence[_Part], dict[str, Any]]:
    """Return training, held-out, known and novel samples as the score sees them, and what it chose."""
    score = METHODS[trial.method].score
    if score not in DETECTORS or not DETECTORS[score].make.reads_inputs:
        return parts, {}
    network, prepare, temperature = training.network, training.data.prepare, Odin.temperature
    step = chosen_step(network, parts[1].inputs, parts[1].places, prepare)
    seen = [moved_views(network, part.inputs, part.places, prepare, temperature, step) for part in parts]
    moved = [replace(part, views=views) for part, views in zip(parts, seen, strict=True)]
    return moved, {"step": step}


def _verdicts(judge: Detector | GaussianDetector | Judge, views: Views) -> Verdicts:
    if isinstance(judge, Judge):
        return judge.judge(views)
    return judge.verdicts(judge.sees(views))


def _reads_shared(trial: Trial) -> bool:
    score = METHODS[trial.method].score
    return score == "gaussian" or (score in DETECTORS and DETECTORS[score].make.reads_shared)


def _detector(
    trial: Trial, network: Network, fitted: _Part, held: _Part
) -> Detector | GaussianDetector | Judge:
    """Return the trial's detector with its thresholds."""
    rule, kept, score = trial.settings.rule, trial.settings.accommodation, METHODS[trial.method].score
    if score == "gaussian":
        settings = kept if isinstance(kept, Gaussian) else Gaussian()
        gaussian = GaussianDetector.fit(fitted.views, fitted.labels, rule, settings)
        return gaussian.calibrated(gaussian.sees(held.views), held.labels)
    if score in DETECTORS:
        rival = detector(score, Head.of(network.head))
        parts = (fitted.views, fitted.labels), (held.views, held.labels)
        return Judge.fit(rival, rule, *parts, names=trial.known)
    apart = (held.views.high, held.labels)
    weights = network.head.weight.detach()
    return Detector(weights, rule).fit(fitted.views.high, fitted.labels, apart, names=trial.known)
