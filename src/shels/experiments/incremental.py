"""Learning class by class: what becomes of a trial's known classes while its novel ones are taken in.

Trials of one method take each class in together, by trainings that are stacked as the first ones are.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shels.config import Precision
from shels.data.samples import DataSet, Label, Samples
from shels.detection.calibration import Verdicts
from shels.detection.metrics import evaluated
from shels.errors import AccommodationError, ShelsError
from shels.experiments.measuring import Figures
from shels.experiments.preparing import Training
from shels.experiments.trials import Trial
from shels.learner.changes import Taking, taking_in
from shels.learner.learner import Learner, assembled
from shels.learning.protocol import Lesson
from shels.training.batches import Rows
from shels.training.courses import Fit
from shels.training.loop import fit_trials

Work = tuple[Trial, Training, Fit]
"""A trial, the network that was trained for it, and how that training went."""


@dataclass(eq=False)
class Walk:
    """One trial on its way: its learner, and how it stood after each class.

    best: the highest accuracy that each class ever had. rates: what it has now, with rejection too.
    error: why it could not go on.
    """

    trial: Trial
    learner: Learner
    known: DataSet
    inputs: Tensor
    tests: Tensor
    course: list[dict[str, Any]] = field(default_factory=list)
    best: dict[Label, float] = field(default_factory=dict)
    rates: dict[Label, dict[str, Any]] = field(default_factory=dict)
    error: ShelsError | None = None

    def look(self, seconds: float | None) -> None:
        """Note how the learner stands, before the next class comes."""
        step, trial = len(self.course), self.trial
        coming = trial.novel[step : step + 1]
        verdicts, labels = self._judged((*trial.known, *trial.novel[:step]))
        next_ones, next_labels = self._judged(coming) if coming else (None, None)
        names = self.learner.classes
        found = evaluated(verdicts, labels, names, next_ones, next_labels, coming)
        named = _named(verdicts, labels, names)
        self.best = {name: max(value, self.best.get(name, 0.0)) for name, value in named.items()}
        new = trial.novel[step - 1] if step else None
        self.course.append(
            {
                "class": new,
                "classes": len(names),
                "overall": found["closed_set_accuracy"],
                "first": _overall(verdicts, labels, len(trial.known)),
                "newest": named[new] if step else None,
                "known": found["known_accuracy"],
                "accepted": found["acceptance"],
                "auroc": found.get("auroc"),
                "fpr95": found.get("fpr95"),
                "rejected": found.get("novel_accuracy"),
                "seconds": seconds,
            }
        )
        each = zip(names, found["per_class"].values(), strict=True)
        self.rates = {name: rates | {"named": named[name]} for name, rates in each}

    def _judged(self, classes: Sequence[Label]) -> tuple[Verdicts, Tensor]:
        index, labels = self.known.test.places(tuple(classes))
        return self.learner.judge(self.tests[index.to(self.tests.device)]), labels

    def taking(self, label: Label) -> Taking:
        """Return how the learner comes to know a class, from all of its training images."""
        train = self.known.train
        index, _ = train.places((label,))
        groups = None if train.groups is None else train.groups[index]
        images = self.inputs[index.to(self.inputs.device)]
        return taking_in(self.learner, images, label, seed=self.trial.seed, groups=groups)


def by_method(work: Sequence[Work]) -> list[list[Work]]:
    """Return trials in groups that take classes in by the same method, to be run together."""
    groups: dict[Hashable, list[Work]] = {}
    for each in work:
        trial = each[0]
        groups.setdefault((trial.experiment, trial.method, trial.settings), []).append(each)
    return list(groups.values())


def learn_classes(
    group: Sequence[Work], known: DataSet, tests: Tensor, tell: Callable[[float], None]
) -> dict[str, Figures | ShelsError]:
    """Return the figures of trials of one method that learn class by class, or why one has none, by key.

    tests: the test inputs, where networks compute. tell: hears the share that is done.
    """
    with _quiet():
        walks = [_begun(*each, known, tests) for each in group]
        steps = max(len(walk.trial.novel) for walk in walks)
        for step in range(steps):
            _take_in([walk for walk in walks if not walk.error and step < len(walk.trial.novel)], step)
            tell((step + 1) / steps)
    return {walk.trial.key: walk.error or _figures(walk) for walk in walks}


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out what a learner would warn a person of: few samples, a new class like a known one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def _begun(trial: Trial, training: Training, fit: Fit, known: DataSet, tests: Tensor) -> Walk:
    """Return a trial whose learner knows the first classes, as it stands."""
    data = training.data
    parts = [_samples(data.inputs, rows, trial.known) for rows in (data.training, data.validation) if rows]
    learner = assembled(training.network, parts[0], parts[-1], data.prepare, trial.settings, trial.seed, fit)
    walk = Walk(trial, learner, known, data.inputs, tests)
    walk.look(None)
    return walk


def _samples(inputs: Tensor, rows: Rows, classes: tuple[Label, ...]) -> Samples:
    return Samples(inputs[rows.places.to(inputs.device)], rows.labels, classes, origin="the known classes")


def _take_in(walks: Sequence[Walk], step: int) -> None:
    """Let every learner take in its next class, those whose trainings are alike together."""
    began = time.perf_counter()
    takings: list[tuple[Walk, Taking]] = []
    for walk in walks:
        label = walk.trial.novel[step]
        with _failing(walk):
            takings.append((walk, walk.taking(label)))
    fits = _trained([taking.lesson for _, taking in takings], [walk.trial.precision for walk, _ in takings])
    for (walk, taking), fit in zip(takings, fits, strict=True):
        with _failing(walk):
            if fit is not None and fit.error is not None:
                raise fit.error
            walk.learner = taking.finish(fit)
    seconds = (time.perf_counter() - began) / max(1, len(takings))
    for walk, _ in takings:
        if walk.error is None:
            with _failing(walk):
                walk.look(seconds)


@contextmanager
def _failing(walk: Walk) -> Iterator[None]:
    """Let a trial that cannot go on end alone."""
    try:
        yield
    except ShelsError as error:
        walk.error = error.with_traceback(None)
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
        walk.error = AccommodationError(f"the class could not be taken in: {error}")


def _trained(lessons: Sequence[Lesson | None], precisions: Sequence[Precision]) -> list[Fit | None]:
    """Return how each training went, in the order given; those that are alike were run as one program."""
    out: list[Fit | None] = [None] * len(lessons)
    alike: dict[Hashable, list[int]] = {}
    for place, lesson in enumerate(lessons):
        if lesson is not None:
            alike.setdefault(_kind(lesson), []).append(place)
    for places in alike.values():
        mine = [lesson for lesson in (lessons[place] for place in places) if lesson is not None]
        first = mine[0]
        went = fit_trials(
            [lesson.trial for lesson in mine],
            first.loss,
            first.settings,
            after_step=first.after_step,
            precision=precisions[places[0]],
        )
        for place, fit in zip(places, went, strict=True):
            out[place] = fit
    return out


def _kind(lesson: Lesson) -> Hashable:
    """Return what lessons of one method must have in common to be trained together."""
    params = tuple(value.shape for value in lesson.trial.network.parameters())
    state = tuple((name, value.shape) for name, value in sorted(lesson.trial.state.items()))
    return lesson.settings, params, state


def _figures(walk: Walk) -> Figures:
    """Return what a trial came to."""
    last, before = walk.course[-1], walk.course[:-1]
    lost = [walk.best[name] - walk.rates[name]["named"] for name in walk.learner.classes[:-1]]
    found = {
        "closed_set_accuracy": last["overall"],
        "first_accuracy": last["first"],
        "added_accuracy": float(np.mean([walk.rates[name]["named"] for name in walk.trial.novel])),
        "forgetting": float(np.mean(lost)),
        "known_accuracy": last["known"],
        "acceptance": last["accepted"],
        "novel_accuracy": float(np.mean([each["rejected"] for each in before])),
        "auroc": float(np.mean([each["auroc"] for each in before])),
        "fpr95": float(np.mean([each["fpr95"] for each in before])),
    }
    found["combined_accuracy"] = (found["known_accuracy"] + found["novel_accuracy"]) / 2
    classes = {str(name): rates for name, rates in walk.rates.items()}
    return Figures(found, {"course": walk.course, "per_class": classes})


def _named(verdicts: Verdicts, labels: Tensor, classes: Sequence[Label]) -> dict[Label, float]:
    """Return the closed-set accuracy of each class."""
    right, truth = (verdicts.predicted.cpu() == labels.cpu()).double(), labels.cpu()
    return {name: float(right[truth == place].mean()) for place, name in enumerate(classes)}


def _overall(verdicts: Verdicts, labels: Tensor, first: int) -> float:
    """Return the closed-set accuracy over samples of the first classes."""
    mine = labels.cpu() < first
    return float((verdicts.predicted.cpu() == labels.cpu())[mine].double().mean())
