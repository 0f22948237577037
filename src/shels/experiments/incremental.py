"""Learning class by class: what becomes of a trial's known classes while its novel ones are taken in.

Trials of one method take each class in together, by trainings that are stacked as the first ones are.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Generator, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from shels.config import Precision
from shels.data.samples import DataSet, Label, Samples
from shels.detection.calibration import Verdicts
from shels.detection.metrics import evaluated
from shels.errors import AccommodationError, ShelsError
from shels.experiments.measuring import Figures
from shels.experiments.methods import taught_classes
from shels.experiments.preparing import Training
from shels.experiments.trials import Trial
from shels.learner.changes import taking_in
from shels.learner.learner import Learner, assembled
from shels.training import Fit, TrainingRequest, fit_trials


class TrainedTrial(NamedTuple):
    """A trial, the network that was trained for it, and how that training went."""

    trial: Trial
    training: Training
    fit: Fit


class Ending(Protocol):
    """A trial on its way that may come to an end. error: why it could not go on."""

    error: ShelsError | None


@dataclass(eq=False)
class IncrementalTrial:
    """One trial on its way: its learner, and how it stood after each class.

    stages: a row of the record after each class. best: the highest accuracy that each class ever had. rates:
    what it has now, with rejection too. error: why it could not go on.
    """

    trial: Trial
    learner: Learner
    known: DataSet
    inputs: Tensor
    tests: Tensor
    stages: list[dict[str, Any]] = field(default_factory=list)
    best: dict[Label, float] = field(default_factory=dict)
    rates: dict[Label, dict[str, Any]] = field(default_factory=dict)
    error: ShelsError | None = None

    def evaluate(self, seconds: float | None) -> None:
        """Note how the learner stands, before the next class comes."""
        step, trial = len(self.stages), self.trial
        coming = trial.novel[step : step + 1]
        verdicts, labels = self._judged((*trial.known, *trial.novel[:step]))
        next_ones, next_labels = self._judged(coming) if coming else (None, None)
        names = self.learner.classes
        found = evaluated(verdicts, labels, names, next_ones, next_labels, coming)
        right, truth = (verdicts.predicted.cpu() == labels.cpu()).double(), labels.cpu()
        named = {name: float(right[truth == place].mean()) for place, name in enumerate(names)}
        self.best = {name: max(value, self.best.get(name, 0.0)) for name, value in named.items()}
        new = trial.novel[step - 1] if step else None
        self.stages.append(
            {
                "class": new,
                "classes": len(names),
                "overall": found["closed_set_accuracy"],
                "first": float(right[truth < len(trial.known)].mean()),
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

    def taking_in(self, label: Label) -> Generator[TrainingRequest, Fit, Learner]:
        """Let the learner take in a class from all of its training images, asking for trainings."""
        train = self.known.train
        index, _ = train.places((label,))
        groups = None if train.groups is None else train.groups[index]
        images = self.inputs[index.to(self.inputs.device)]
        return taking_in(self.learner, images, label, seed=self.trial.seed, groups=groups)


def by_method(work: Sequence[TrainedTrial]) -> list[list[TrainedTrial]]:
    """Return trials in groups that take classes in by the same method, to be run together."""
    groups: dict[Hashable, list[TrainedTrial]] = {}
    for each in work:
        trial = each.trial
        groups.setdefault((trial.experiment, trial.method, trial.settings), []).append(each)
    return list(groups.values())


def learn_classes(
    group: Sequence[TrainedTrial], known: DataSet, tests: Tensor
) -> Generator[float, None, dict[str, Figures | ShelsError]]:
    """Let trials of one method learn class by class; yield the share that is done.

    Returns the figures of each trial by its key, or why it has none. tests: the test inputs, where networks
    compute.
    """
    with quiet():
        trials = [_begun(*each, known, tests) for each in group]
    steps = max(len(each.trial.novel) for each in trials)
    for step in range(steps):
        with quiet():
            _take_in([each for each in trials if not each.error and step < len(each.trial.novel)], step)
        yield (step + 1) / steps
    return {each.trial.key: each.error or _figures(each) for each in trials}


@contextmanager
def quiet() -> Iterator[None]:
    """Leave out what a learner would warn a person of: few samples, a new class like a known one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def _begun(trial: Trial, training: Training, fit: Fit, known: DataSet, tests: Tensor) -> IncrementalTrial:
    """Return a trial whose learner knows the first classes, as it stands."""
    begun = IncrementalTrial(trial, first_learner(trial, training, fit), known, training.data.inputs, tests)
    begun.evaluate(None)
    return begun


def first_learner(trial: Trial, training: Training, fit: Fit) -> Learner:
    """Make the learner of a trained network as `fit` makes it; it knows the first classes."""
    data, inputs, classes = training.data, training.data.inputs, taught_classes(trial)
    parts = [
        Samples(inputs[rows.places.to(inputs.device)], rows.labels, classes, origin="the known classes")
        for rows in (data.training, data.validation)
        if rows
    ]
    return assembled(training.network, parts[0], parts[-1], data.prepare, trial.settings, trial.seed, fit)


def _take_in(trials: Sequence[IncrementalTrial], step: int) -> None:
    """Let every learner take in its next class; trainings that are alike are run as one program."""
    began = time.perf_counter()
    waiting = [(each, each.taking_in(each.trial.novel[step])) for each in trials]
    fits: list[Fit | None] = [None] * len(waiting)
    while waiting:
        requests = [_next_request(each, steps, fit) for (each, steps), fit in zip(waiting, fits, strict=True)]
        pairs = [(one, request) for one, request in zip(waiting, requests, strict=True) if request]
        waiting = [one for one, _ in pairs]
        fits = train_together([request for _, request in pairs], trials[0].trial.precision)
    seconds = (time.perf_counter() - began) / max(1, len(trials))
    for each in trials:
        if each.error is None:
            with failing(each):
                each.evaluate(seconds)


def _next_request(
    trial: IncrementalTrial, steps: Generator[TrainingRequest, Fit, Learner], fit: Fit | None
) -> TrainingRequest | None:
    """Send a learner how its training went, and return the next that it asks for; None where it is done."""
    with failing(trial):
        if fit is not None and fit.error is not None:
            raise fit.error
        try:
            return next(steps) if fit is None else steps.send(fit)
        except StopIteration as end:
            trial.learner = end.value
    return None


@contextmanager
def failing(trial: Ending) -> Iterator[None]:
    """Let a trial that cannot go on end alone."""
    try:
        yield
    except ShelsError as error:
        trial.error = error.with_traceback(None)
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
        trial.error = AccommodationError(f"the class could not be taken in: {error}")


def train_together(requests: Sequence[TrainingRequest], precision: Precision) -> list[Fit | None]:
    """Run trainings, those that are alike together, and return how each went, in the order given."""
    out: dict[int, Fit] = {}
    alike: dict[Hashable, list[int]] = {}
    for place, request in enumerate(requests):
        alike.setdefault(_kind(request), []).append(place)
    for places in alike.values():
        first, trials = requests[places[0]], [requests[place].trial for place in places]
        how: dict[str, Any] = {"after_step": first.after_step, "precision": precision}
        out |= zip(places, fit_trials(trials, first.loss, first.settings, **how), strict=True)
    return [out[place] for place in range(len(requests))]


def _kind(request: TrainingRequest) -> Hashable:
    """Return what requests of one method must have in common to be trained together."""
    params = tuple(value.shape for value in request.trial.network.parameters())
    state = tuple((name, value.shape) for name, value in sorted(request.trial.state.items()))
    return request.settings, params, state


def _figures(trial: IncrementalTrial) -> Figures:
    last, before = trial.stages[-1], trial.stages[:-1]
    lost = [trial.best[name] - trial.rates[name]["named"] for name in trial.learner.classes[:-1]]
    found = {
        "closed_set_accuracy": last["overall"],
        "first_accuracy": last["first"],
        "added_accuracy": float(np.mean([trial.rates[name]["named"] for name in trial.trial.novel])),
        "forgetting": float(np.mean(lost)),
        "known_accuracy": last["known"],
        "acceptance": last["accepted"],
        "novel_accuracy": float(np.mean([each["rejected"] for each in before])),
        "auroc": float(np.mean([each["auroc"] for each in before])),
        "fpr95": float(np.mean([each["fpr95"] for each in before])),
    }
    found["combined_accuracy"] = (found["known_accuracy"] + found["novel_accuracy"]) / 2
    classes = {str(name): rates for name, rates in trial.rates.items()}
    return Figures(found, {"course": trial.stages, "per_class": classes})
