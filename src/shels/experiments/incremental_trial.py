"""One trial of learning class by class: its learner, and how that stood after each class."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from shels.data.samples import DataSet, Label
from shels.detection.metrics import evaluated
from shels.detection.protocol import rows_of
from shels.errors import ShelsError
from shels.experiments import curves
from shels.experiments.curves import Point
from shels.experiments.trials import Trial
from shels.learner.changes import kept_for_later, taking_in
from shels.learner.learner import Learner
from shels.learner.pairing import LEAST_IMAGES
from shels.model.networks import Views
from shels.runtime import generator
from shels.training import Fit, Monitor, Rows, TrainingRequest


@dataclass(eq=False)
class IncrementalTrial:
    """One trial on its way: its learner, and how it stood after each class.

    known, inputs: its data set, and the set's training inputs where the network computes.
    taken: how many classes came so far. stages: a row of the record after each class. best: the highest
    accuracy that each class ever had. rates: what it has now, with rejection too. right: how many test
    samples it named rightly. curve: see `curves`. fit, watched: of the training of the class that comes.
    error: why it could not go on.
    """

    trial: Trial
    learner: Learner
    known: DataSet
    inputs: Tensor
    taken: int = 0
    stages: list[dict[str, Any]] = field(default_factory=list)
    best: dict[Label, float] = field(default_factory=dict)
    rates: dict[Label, dict[str, Any]] = field(default_factory=dict)
    right: int = 0
    curve: list[Point] = field(default_factory=list)
    fit: Fit | None = None
    watched: Monitor | None = None
    error: ShelsError | None = None

    @property
    def met(self) -> tuple[Label, ...]:
        """The classes that came so far, the first ones among them."""
        return (*self.trial.known, *self.trial.novel[: self.taken])

    @property
    def coming(self) -> tuple[Label, ...]:
        """The next class, if one is left."""
        return self.trial.novel[self.taken : self.taken + 1]

    def test_rows(self) -> Rows:
        """Return where the test samples of all classes met and of the next one are, and their labels."""
        return Rows(*self.known.test.places((*self.met, *self.coming)))

    def evaluate(self, views: Views, seconds: float | None) -> None:
        """Note how the learner stands, before the next class comes. views: of `test_rows`."""
        labels, names, trial = self.test_rows().labels, self.met, self.trial
        mine, others = ((labels < len(names)).nonzero()[:, 0], (labels >= len(names)).nonzero()[:, 0])
        truth, next_labels = labels[mine], labels[others] - len(names)
        verdicts = self.learner.judge_features(rows_of(views, mine))
        next_ones = self.learner.judge_features(rows_of(views, others)) if self.coming else None
        found = evaluated(verdicts, truth, names, next_ones, next_labels, self.coming)
        right = (verdicts.predicted.cpu() == truth).double()
        named = {name: float(right[truth == place].mean()) for place, name in enumerate(names)}
        self.best = {name: max(value, self.best.get(name, 0.0)) for name, value in named.items()}
        newest = named[names[-1]] if self.taken else None
        self.stages.append(
            {
                "class": names[-1] if self.taken else None,
                "classes": len(names),
                "overall": found["closed_set_accuracy"],
                "first": float(right[truth < len(trial.known)].mean()),
                "newest": newest,
                "known": found["known_accuracy"],
                "accepted": found["acceptance"],
                "auroc": found.get("auroc"),
                "fpr95": found.get("fpr95"),
                "rejected": found.get("novel_accuracy"),
                "seconds": seconds,
            }
        )
        history = self.learner.report.get("taken_in") or [{}]
        if "learning_rate" in history[-1]:  # of a method that lowers it where it must
            self.stages[-1]["learning_rate"] = history[-1]["learning_rate"]
        self._extend_curve(int(right.sum()), len(truth), newest)
        each = zip(names, found["per_class"].values(), strict=True)
        self.rates = {name: rates | {"named": named[name]} for name, rates in each}

    def _extend_curve(self, right: int, every: int, newest: float | None) -> None:
        overall, before = right / every, self.right / every
        if newest is None:
            self.curve = [[0, 0, round(overall, 4), None]]
        else:
            ends = (before, overall, newest)
            self.curve += curves.class_points(self.taken, self.fit, self.watched, *ends)
        self.right, self.fit = right, None

    def taking_in(self, views: Views) -> Generator[TrainingRequest, Fit, Learner]:
        """Let the learner take in the next class from its training images, asking for trainings.

        views: what its network makes of them.
        """
        images, label, how = self._images()
        least = LEAST_IMAGES if self.trial.images is None else 1
        return taking_in(self.learner, images, label, features=views, least=least, **how)

    def keep_for_later(self) -> None:
        """Let the learner keep the next class's images, to be trained on when the last class comes."""
        images, label, how = self._images()
        self.learner = kept_for_later(self.learner, images, label, **how)

    def coming_places(self) -> Tensor:
        """Find the training images that the next class is learned from: (n,).

        Where a trial has few, they are drawn by its seed, so that more are always the fewer and others.
        """
        index, _ = self.known.train.places(self.coming)
        if self.trial.images is None:
            return index
        draw = generator(self.trial.seed, "few-shot", *self.coming)
        return index[torch.randperm(len(index), generator=draw)[: self.trial.images]].sort().values

    def _images(self) -> tuple[Tensor, Label, dict[str, Any]]:
        (label,), train, index = self.coming, self.known.train, self.coming_places()
        groups = None if train.groups is None else train.groups[index]
        images = self.inputs[index.to(self.inputs.device)]
        return images, label, {"seed": self.trial.seed, "groups": groups}

    def watch(self, request: TrainingRequest, tests: Tensor) -> TrainingRequest:
        """Let a training be evaluated on its way, on some of the test samples."""
        classes = (*self.met, *self.coming)
        rows = curves.some_rows(self.known.test, classes, self.trial.seed)
        self.watched = curves.monitor(request, tests, rows, len(classes) - 1)
        return replace(request, trial=replace(request.trial, monitor=self.watched))
