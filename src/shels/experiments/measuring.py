"""Measures trained networks: features of all of a stack's at once, then each trial's detector and figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from shels import metrics
from shels.config import Gaussian
from shels.data.samples import DataSet
from shels.detection import Detector, GaussianDetector
from shels.experiments.methods import METHODS
from shels.experiments.preparing import Training
from shels.experiments.trials import Trial
from shels.judging import exclusivity, measures_of
from shels.model.networks import Views
from shels.viewing import views_of


@dataclass(frozen=True, eq=False)
class Figures:
    """A trial's figures, and what a report draws."""

    metrics: dict[str, float]
    details: dict[str, Any]


@dataclass(frozen=True, eq=False)
class _Part:
    """Samples of one trial as its network sees them."""

    views: Views
    labels: Tensor


def measure(
    stack: Sequence[Training],
    known: DataSet,
    sets: Mapping[str, DataSet],
    tests: Mapping[str, Tensor],
    precision: torch.dtype,
    lap: Callable[[str], None],
) -> dict[str, Figures]:
    """Return the figures of every trial of a stack, by its key.

    sets: the data by name, with the novel classes'. tests: their test inputs, on the networks' device.
    """
    shared = any(METHODS[t.method].score == "gaussian" for training in stack for t in training.trials)
    see = _Seer(stack, precision, shared)
    training = see([t.data.training for t in stack], stack[0].data.inputs)
    held = see([t.data.validation or t.data.training for t in stack], stack[0].data.inputs)
    test = see([known.test.places(t.trials[0].known) for t in stack], tests[known.name])
    novel: dict[str, _Part] = {}
    for name, data in sets.items():
        novel |= _novel_parts(see, stack, data, tests[name])
    lap("features")
    out: dict[str, Figures] = {}
    for one, *parts in zip(stack, training, held, test, strict=True):
        for trial in one.trials:
            out[trial.key] = _figures(trial, one, parts, novel[trial.key])
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
        return [_Part(view, part[1].to(inputs.device)) for view, part in zip(views, parts, strict=True)]


def _figures(trial: Trial, training: Training, parts: Sequence[_Part], novel: _Part) -> Figures:
    """Return one trial's figures from what its network sees."""
    fitted, held, test = parts
    weights = training.network.head.weight.detach()
    detector = _detector(trial, weights, fitted, held)
    judged = [detector.verdicts(detector.sees(part.views)) for part in (test, novel)]
    found = measures_of(judged[0], test.labels, trial.known, judged[1], novel.labels, trial.novel)
    matrix = exclusivity(weights, fitted.views.high, fitted.labels)
    apart = detector.verdicts(detector.sees(held.views))
    figures = {name: value for name, value in found.items() if isinstance(value, float)}
    figures["exclusivity"] = metrics.mean_exclusivity(matrix)
    figures["held_out_acceptance"] = float((~apart.novel).float().mean())
    details = {name: value for name, value in found.items() if isinstance(value, dict)}
    return Figures(figures, details | {"exclusivity": matrix.tolist()})


def _detector(trial: Trial, weights: Tensor, fitted: _Part, held: _Part) -> Detector | GaussianDetector:
    """Return the trial's detector with its thresholds."""
    rule, kept = trial.settings.rule, trial.settings.accommodation
    if METHODS[trial.method].score == "gaussian":
        settings = kept if isinstance(kept, Gaussian) else Gaussian()
        gaussian = GaussianDetector.fit(fitted.views, fitted.labels, rule, settings)
        return gaussian.calibrated(gaussian.sees(held.views), held.labels)
    apart = (held.views.high, held.labels)
    return Detector(weights, rule).fit(fitted.views.high, fitted.labels, apart, names=trial.known)
