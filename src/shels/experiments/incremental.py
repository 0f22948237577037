"""Learning class by class: what becomes of a trial's known classes while its novel ones are taken in.

Trials of one method take each class in together, by trainings that are stacked as the first ones are, and are
evaluated together.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Generator, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from shels.config import Joint, Precision
from shels.data.samples import Samples
from shels.detection.protocol import KnownSamples, Labelled
from shels.errors import AccommodationError, ShelsError
from shels.experiments.features import Features, shapes_of
from shels.experiments.incremental_trial import IncrementalTrial
from shels.experiments.measuring import Figures
from shels.experiments.preparing import Training
from shels.experiments.trials import Trial
from shels.learner.learner import Learner, with_detector
from shels.learner.pairing import needs_memory
from shels.learning.registry import method_of
from shels.model.networks import Views
from shels.training import Fit, Rows, TrainingRequest, fit_trials


class TrainedTrial(NamedTuple):
    """A trial, the network that was trained for it, and how that training went."""

    trial: Trial
    training: Training
    fit: Fit


class Ending(Protocol):
    """A trial on its way that may come to an end. error: why it could not go on."""

    error: ShelsError | None


def by_method(work: Sequence[TrainedTrial]) -> list[list[TrainedTrial]]:
    """Return trials in groups that take classes in by the same method, to be run together."""
    groups: dict[Hashable, list[TrainedTrial]] = {}
    for each in work:
        trial = each.trial
        groups.setdefault((trial.experiment, trial.method, trial.settings, trial.images), []).append(each)
    return list(groups.values())


def learn_classes(
    group: Sequence[TrainedTrial], features: Features
) -> Generator[float, None, dict[str, Figures | ShelsError]]:
    """Let trials of one method learn class by class; yield the share that is done.

    Returns the figures of each trial by its key, or why it has none.
    """
    with quiet():
        trials, refused = _begun(group, features)
    steps = max((len(each.trial.novel) for each in trials), default=0)
    for step in range(steps):
        with quiet():
            _take_in([each for each in trials if not each.error and each.coming], features)
        yield (step + 1) / steps
    return refused | {each.trial.key: each.error or _figures(each) for each in trials}


@contextmanager
def quiet() -> Iterator[None]:
    """Leave out what a learner would warn a person of: few samples, a new class like a known one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


@dataclass
class _Beginning:
    error: ShelsError | None = None


def _begun(
    group: Sequence[TrainedTrial], features: Features
) -> tuple[list[IncrementalTrial], dict[str, ShelsError]]:
    """Return the trials with learners that know the first classes, and by key why others have none."""
    networks = [each.training.network for each in group]
    prepare = group[0].training.data.prepare
    classes = [(*each.trial.known, *each.trial.novel) for each in group]
    features.keep(networks, classes, prepare)
    parts = [
        features.of("train", networks, [rows.places for rows in some], prepare)
        for some in zip(*(_known_rows(each.training) for each in group), strict=True)
    ]
    begun: list[IncrementalTrial] = []
    refused: dict[str, ShelsError] = {}
    for each, *views in zip(group, *parts, strict=True):
        beginning = _Beginning()
        with failing(beginning):
            about = (features.known, features.inputs["train"])
            begun.append(IncrementalTrial(each.trial, _first_learner(each, *views), *about))
        if beginning.error is not None:
            refused[each.trial.key] = beginning.error
    _evaluate(begun, features, None)
    return begun, refused


def _known_rows(training: Training) -> tuple[Rows, Rows]:
    """Return the samples that a network was trained on, and those that thresholds are set on."""
    return training.data.training, training.calibration


def _first_learner(trained: TrainedTrial, fitted: Views, held: Views) -> Learner:
    """Make the learner of a trained network as `fit` does, from features of what it knows."""
    trial, training, _ = trained
    network, data, settings = training.network, training.data, trial.settings
    both = zip((fitted, held), _known_rows(training), strict=True)
    samples = KnownSamples(*(Labelled(views, rows.labels.to(data.inputs.device)) for views, rows in both))
    memory = {}
    if needs_memory(settings):
        inputs, labels = data.inputs[data.training.places.to(data.inputs.device)], data.training.labels
        images = Samples(inputs, labels, trial.known, origin="the known classes")
        memory = method_of(settings.accommodation).first_memory(network, images, data.prepare, fitted)
    return with_detector(network, trial.known, samples, data.prepare, settings, trial.seed, memory=memory)


def _evaluate(trials: Sequence[IncrementalTrial], features: Features, seconds: float | None) -> None:
    """Note how all learners stand; an image passes a network once."""
    if not trials:
        return
    networks, places = [each.learner.network for each in trials], [each.test_rows().places for each in trials]
    views = features.of("test", networks, places, trials[0].learner.preparation)
    for each, mine in zip(trials, views, strict=True):
        with failing(each):
            each.evaluate(mine, seconds)


def _take_in(trials: Sequence[IncrementalTrial], features: Features) -> None:
    """Let every learner take in its next class; trainings that are alike are run as one program."""
    began = time.perf_counter()
    ready = [each for each in trials if not _waits(each)]
    for each in trials:
        if _waits(each):
            with failing(each):
                each.keep_for_later()
    networks = [each.learner.network for each in ready]
    places = [each.coming_places() for each in ready]
    prepare = trials[0].learner.preparation if trials else None
    views = features.of("train", networks, places, prepare) if prepare else []
    waiting = [(each, each.taking_in(mine)) for each, mine in zip(ready, views, strict=True)]
    while waiting:
        requests = [_next_request(each, steps) for each, steps in waiting]
        pairs = [(one, request) for one, request in zip(waiting, requests, strict=True) if request]
        waiting = [one for one, _ in pairs]
        watched = [each.watch(request, features.inputs["test"]) for (each, _), request in pairs]
        fits = train_together(watched, trials[0].trial.precision)
        for (each, _), fit in zip(waiting, fits, strict=True):
            each.fit = fit
    for each in trials:
        each.taken += 1
    seconds = (time.perf_counter() - began) / max(1, len(trials))
    _evaluate([each for each in ready if each.error is None], features, seconds)


def _waits(trial: IncrementalTrial) -> bool:
    """Tell whether a class only joins the samples: joint training that waits for the last one."""
    way = trial.trial.settings.accommodation
    last = trial.taken + 1 == len(trial.trial.novel)
    return isinstance(way, Joint) and way.trains == "at the last class" and not last


def _next_request(
    trial: IncrementalTrial, steps: Generator[TrainingRequest, Fit, Learner]
) -> TrainingRequest | None:
    """Send a learner how its training went, and return the next that it asks for; None where it is done."""
    fit = trial.fit
    with failing(trial):
        try:
            if fit is not None and fit.error is not None:
                return steps.throw(fit.error)
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


def train_together(requests: Sequence[TrainingRequest], precision: Precision) -> list[Fit]:
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
    state = tuple((name, value.shape) for name, value in sorted(request.trial.state.items()))
    return request.settings, shapes_of(request.trial.network), state


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
    if trial.trial.images is not None:
        accepted = [trial.rates[name]["accepted"] for name in trial.trial.novel]
        found["false_alarm_rate"] = 1 - last["accepted"]
        found["added_false_alarm_rate"] = 1 - float(np.mean(accepted))
    found["combined_accuracy"] = (found["known_accuracy"] + found["novel_accuracy"]) / 2
    classes = {str(name): rates for name, rates in trial.rates.items()}
    details: dict[str, Any] = {"course": trial.stages, "per_class": classes, "curve": trial.curve}
    if trial.watched is not None:
        details["curve_images"] = len(trial.watched.rows.labels)
    return Figures(found, details)
