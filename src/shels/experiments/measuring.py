"""Measures trained networks: features of all of a stack's at once, then each trial's detector and figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from shels.data.samples import DataSet, Label, Samples
from shels.data.splits import whole_groups
from shels.detection import metrics
from shels.detection.calibration import Verdicts
from shels.detection.exclusivity import feature_exclusivity, mean_exclusivity
from shels.detection.protocol import KnownSamples, Labelled
from shels.detection.registry import Entry, entry_of
from shels.detection.scores.odin import Odin, chosen_step, moved_views
from shels.errors import ShelsError
from shels.experiments.methods import METHODS
from shels.experiments.preparing import Training
from shels.experiments.trials import MeasuredOn, Trial
from shels.learner.learner import with_detector
from shels.training.features import views_of

_TRAINED_SHARE = 12_569 / 39_209
"""Of a training set, what "trained-images" are: GTSRB's online test set as a part of its final training set.
"""
_DRAW = 12_569
"""The seed by which they are drawn, the same for every trial."""


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


class _Chosen(NamedTuple):
    """Samples of some classes by their places in inputs on the networks' device, with labels."""

    inputs: Tensor
    places: Tensor
    labels: Tensor


_See: TypeAlias = Callable[[Sequence[tuple[Tensor, Tensor]], Tensor], list[_Part]]
_Wanted: TypeAlias = tuple[str, tuple[Label, ...], MeasuredOn]
"""What a trial is measured on: a data set, classes of it, and which of their images."""


class Measured:
    """The images that trials are measured on, by data set.

    sets: the data by name. tests, trains: their test and training inputs on the networks' device.
    """

    def __init__(
        self, sets: Mapping[str, DataSet], tests: Mapping[str, Tensor], trains: Mapping[str, Tensor]
    ) -> None:
        self.sets, self.tests, self.trains = sets, tests, trains
        self._drawn: dict[str, Tensor] = {}

    def chosen(self, wanted: _Wanted, *, novel: bool) -> _Chosen:
        """Find the samples of classes among those that count. novel: whether the classes are novel ones."""
        name, classes, where = wanted
        data = self.sets[name]
        if where == "test" or (where == "novel-training" and not novel):
            return _Chosen(self.tests[name], *data.test.places(classes))
        index, labels = data.train.places(classes)
        if where == "trained-images":
            drawn = torch.isin(index, self._images(name))
            index, labels = index[drawn], labels[drawn]
        return _Chosen(self.trains[name], index, labels)

    def _images(self, name: str) -> Tensor:
        if name not in self._drawn:
            self._drawn[name] = trained_images(self.sets[name].train)
        return self._drawn[name]

    def about(self, trial: Trial) -> dict[str, Any]:
        """Say which images a trial was measured on, where that is not the test set."""
        if trial.measured_on == "test":
            return {}
        found: dict[str, Any] = {"images": trial.measured_on}
        if trial.measured_on == "trained-images":
            train, index = self.sets[trial.known_data].train, self._images(trial.known_data)
            tracks = index if train.groups is None else train.groups[index]
            found |= {"drawn": len(index), "groups": len(set(tracks.tolist())), "of": len(train)}
        return {"measured_on": found}


def trained_images(train: Samples) -> Tensor:
    """Draw the training images that stand for GTSRB's online test set, by whole tracks: positions (n,)."""
    return whole_groups(train.labels, train.groups, _TRAINED_SHARE, _DRAW)


def measure(
    stack: Sequence[Training], images: Measured, precision: torch.dtype, lap: Callable[[str], None]
) -> dict[str, Figures | ShelsError]:
    """Return the figures of every trial of a stack by its key, or why it has none.

    Trials on one network share its features, and those of one method and settings a detector too.
    """
    shared = any(_entry(trial).reads_shared for training in stack for trial in training.trials)
    see = partial(_seen, stack, precision, shared)
    training = see([t.data.training for t in stack], stack[0].data.inputs)
    held = see([t.calibration for t in stack], stack[0].data.inputs)
    tests = _wanted_parts(see, stack, images, lambda t: (t.known_data, t.known, t.measured_on), novel=False)
    novel = _wanted_parts(see, stack, images, _novel_wanted, novel=True)
    lap("features")
    out: dict[str, Figures | ShelsError] = {}
    for one, *parts in zip(stack, training, held, strict=True):
        judges: dict[Any, _Judge] = {}
        for trial in one.trials:
            try:
                judge = judges.setdefault((trial.method, trial.settings), _Judge(trial, one, parts))
                figures = judge.figures(trial, tests[trial.key], novel[trial.key])
                figures.details.update(images.about(trial))
                out[trial.key] = figures
            except ShelsError as error:  # a trial that cannot be judged is no reason to lose its neighbours
                out[trial.key] = error.with_traceback(None)
    lap("thresholds and measures")
    return out


def _novel_wanted(trial: Trial) -> _Wanted:
    """Say what novel images count: nothing of another data set was trained on, so there its test images."""
    trained = trial.measured_on == "trained-images" and trial.novel_data != trial.known_data
    return trial.novel_data, trial.novel, "test" if trained else trial.measured_on


def _wanted_parts(
    see: _See, stack: Sequence[Training], images: Measured, wanted: Callable[[Trial], _Wanted], *, novel: bool
) -> dict[str, _Part]:
    """Return the samples that each trial is measured on by the trial's key, each seen once by its network."""
    each = [list(dict.fromkeys(wanted(trial) for trial in one.trials)) for one in stack]
    kinds = list(dict.fromkeys((name, where) for mine in each for name, _, where in mine))
    out: dict[str, _Part] = {}
    for name, where in kinds:
        asked = [[one for one in mine if (one[0], one[2]) == (name, where)] for mine in each]
        for turn in range(max(map(len, asked))):  # one, unless trials on one network differ in their classes
            mine = [some[turn] if turn < len(some) else (name, (), where) for some in asked]
            chosen = [images.chosen(one, novel=novel) for one in mine]
            parts = see([(places, labels) for _, places, labels in chosen], chosen[0].inputs)
            for training, one, part in zip(stack, mine, parts, strict=True):
                out |= {trial.key: part for trial in training.trials if wanted(trial) == one}
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


class _Judge:
    """A method's detector on one trained network, made as `fit` makes it; trials that share it ask it.

    parts: training and held-out samples. What it says of the same samples is worked out once.
    """

    def __init__(self, trial: Trial, training: Training, parts: Sequence[_Part]) -> None:
        self.trial, self.training, self.parts = trial, training, parts
        self._made: dict[str, Any] = {}
        self._verdicts: dict[tuple[str, _Part], Verdicts] = {}
        self._moved: dict[_Part, Labelled] = {}

    def figures(self, trial: Trial, test: _Part, novel: _Part) -> Figures:
        """Return a trial's figures, on its own samples."""
        known, unknown = self.verdicts(test), self.verdicts(novel)
        labels, others = test.samples.labels, novel.samples.labels
        found = metrics.evaluated(known, labels, trial.known, unknown, others, trial.novel)
        ranking = METHODS[trial.method].ranking
        if ranking:
            scores = (_array(self.verdicts(part, ranking).score) for part in (test, novel))
            found |= metrics.separation(*scores)
        figures = {name: value for name, value in found.items() if isinstance(value, float)}
        rejected = [rates["rejected"] for rates in found["per_novel_class"].values()]
        figures["novel_accuracy_by_class"] = float(np.mean(rejected))
        own, facts = self._once("own", self._own)
        details = {name: value for name, value in found.items() if isinstance(value, dict)}
        return Figures(figures | own, details | facts)

    def verdicts(self, part: _Part, detector: str = "") -> Verdicts:
        """Decide on samples, by the method's own detector or another."""
        name = detector or METHODS[self.trial.method].score
        if (name, part) not in self._verdicts:
            learner = self._once(name, lambda: self._learner(name))
            self._verdicts[name, part] = learner.detector.verdicts(self._perturbed(part).features)
        return self._verdicts[name, part]

    def _own(self) -> tuple[dict[str, float], dict[str, Any]]:
        """Measure what does not depend on test samples: exclusivity, and how many held-out are accepted."""
        (views, labels), weights = self.parts[0].samples, self.training.network.head.weight.detach()
        matrix = feature_exclusivity(weights, views.high, labels)
        firing = feature_exclusivity(torch.ones_like(weights), views.high, labels)
        found = {"exclusivity": mean_exclusivity(matrix)}
        found["exclusivity_by_firing"] = mean_exclusivity(firing)
        found["held_out_acceptance"] = float((~self.verdicts(self.parts[1]).novel).float().mean())
        facts = {"step": self._step()} if self._moves else {}
        return found, facts | {"exclusivity": matrix.tolist()}

    def _learner(self, detector: str) -> Any:
        trial, data = self.trial, self.training.data
        fitted, held = (self._perturbed(part) for part in self.parts)
        about = (data.prepare, trial.settings, trial.seed)
        samples = KnownSamples(fitted, held)
        return with_detector(self.training.network, trial.known, samples, *about, detector=detector)

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]

    # Inputs that are moved first, for the detector that asks for that -----------------------------------

    @property
    def _moves(self) -> bool:
        return _entry(self.trial).reads_inputs

    def _step(self) -> float:
        held, data = self.parts[1], self.training.data
        step = self._once(
            "step", lambda: chosen_step(self.training.network, held.inputs, held.places, data.prepare)
        )
        return float(step)

    def _perturbed(self, part: _Part) -> Labelled:
        """Return samples as the detector sees them."""
        if not self._moves:
            return part.samples
        if part not in self._moved:
            about = (self.training.network, part.inputs, part.places, self.training.data.prepare)
            views = moved_views(*about, Odin.temperature, self._step())
            self._moved[part] = Labelled(views, part.samples.labels)
        return self._moved[part]


def _array(values: Tensor) -> metrics.Array:
    return np.asarray(values.cpu())


def _entry(trial: Trial) -> Entry:
    return entry_of(METHODS[trial.method].score)
