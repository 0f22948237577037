"""A model and the data it was trained on, looked over: how good it is, and which samples to look at."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from shels.config import AcceptShare
from shels.data.duplicates import Pair, components, looks_of, pairs
from shels.data.inputs import load_in_form
from shels.data.partition import merged_groups
from shels.data.samples import DataSet, Label, Samples
from shels.data.splits import divide
from shels.detection.leave_one_out import left_out_fits
from shels.detection.protocol import Labelled
from shels.errors import DataError, SettingsError
from shels.learner.checking import FOLDS, OutOfFold, Round, Seen, by_folds, measured, seen_by, without_classes
from shels.learner.learner import Learner
from shels.learner.retraining import retraining
from shels.training import Progress

Array = NDArray[Any]


@dataclass(frozen=True)
class Suspect:
    """A sample that is likely mislabelled.

    rather: the class that it is nearest to. p_value: how many of its class's samples lie as far out, it left
    out; rather_p: the same in that class. nearer: how many times nearer that class is, by squares.
    """

    name: str
    label: Label
    rather: Label
    p_value: float
    rather_p: float
    nearer: float
    place: int


@dataclass(frozen=True)
class Doubt:
    """A sample that the model is not sure of, as judged by a detector that was fitted without it."""

    name: str
    label: Label
    predicted: Label
    novel: bool
    p_value: float
    place: int


@dataclass(frozen=True)
class Twins:
    """Two samples that show the same. across: whether one is trained on and the other tested on."""

    names: tuple[str, str]
    labels: tuple[Label, Label]
    across: bool
    exact: bool
    likeness: float
    places: tuple[int, int]

    @property
    def conflict(self) -> bool:
        """Whether they have two labels, one of which must be wrong."""
        return self.labels[0] != self.labels[1]


@dataclass(frozen=True, eq=False)
class Examination:
    """What came of it. samples: of known classes, trained on or held out, then those tested on.

    exact: whether the samples that were held out of the training are known. folds: rounds without some of
    the samples; classes: without each class in turn. retrained: the same with networks trained anew, [] if
    nobody asked. tested: on the test part, None without one.
    """

    learner: Learner
    samples: Samples
    training: int
    exact: bool
    folds: Sequence[Round]
    classes: Sequence[Round]
    retrained: Sequence[Round]
    tested: Round | None
    suspects: Sequence[Suspect]
    doubts: Sequence[Doubt]
    twins: Sequence[Twins]

    @property
    def share(self) -> float | None:
        """The share of known samples that the thresholds are to accept, where the rule names one."""
        rule = self.learner.settings.rule
        return rule.share if isinstance(rule, AcceptShare) else None


def examining(
    learner: Learner,
    data: DataSet,
    *,
    validation: Samples | None = None,
    folds: int = FOLDS,
    most: int = 100,
    likeness: float | None = None,
    retrain: bool = False,
    device: str | torch.device = "auto",
) -> Generator[Progress, None, Examination]:
    """Look a learner and its data over. most: of each kind of samples to look at. Trains only if asked to.

    validation: the samples that were held out of its training, where these are not part of the data.
    likeness: what makes near duplicates, see `duplicates.pairs`.
    """
    if folds < 2:
        raise SettingsError(f"at least 2 folds are needed, got {folds}")
    known, test, strangers = _samples(learner, data)
    held = None
    if validation is not None:
        held = torch.arange(len(known) + len(validation)) >= len(known)
        known = known.followed_by(validation.named())
    every = known.followed_by(test) if len(test) else known
    found = pairs(looks_of(every.inputs), every.labels.numpy(), likeness)
    inside = [pair for pair in found if pair.second < len(known)]
    alone = np.arange(len(known)) if known.groups is None else known.groups.numpy()
    seen = seen_by(learner, known, merged_groups(alone, components(len(known), inside)), held)
    rounds, unseen = by_folds(learner, seen, folds)
    again: list[Round] = []
    if retrain:
        how: dict[str, Any] = {"groups": seen.groups, "folds": folds, "seed": learner.seed, "device": device}
        again = yield from retraining(known, learner.settings, **how)
    return Examination(
        learner,
        every,
        len(known),
        seen.exact,
        rounds,
        without_classes(learner, seen, folds),
        again,
        _tested(learner, test, strangers),
        _suspects(seen, most),
        _doubts(seen, unseen, most),
        [_twins(every, pair, len(known)) for pair in found],
    )


def load_samples(spec: str, data_dir: Path | None, learner: Learner) -> DataSet:
    """Load a data set in the form that a learner takes."""
    return load_in_form(spec, data_dir, learner.preparation)


def _samples(learner: Learner, data: DataSet) -> tuple[Samples, Samples, Samples]:
    """Give samples of the learner's classes to train on and to test on, and others to test on."""
    known, _ = divide(data.train.named(), learner.classes)
    missing = [name for place, name in enumerate(learner.classes) if not bool((known.labels == place).any())]
    if missing:
        raise DataError(
            f"{data.name} has no sample of the model's class {missing[0]!r}; give the data it was trained on"
        )
    return known, *divide(data.test.named(), learner.classes)


def _tested(learner: Learner, known: Samples, novel: Samples) -> Round | None:
    if not len(known):
        return None
    mine = Labelled(learner.views(known.inputs), known.labels.to(learner.device))
    others = learner.views(novel.inputs) if len(novel) else None
    return measured("test part", learner.detector, mine, others)


# Samples to look at ------------------------------------------------------------------------------------


def _suspects(seen: Seen, most: int) -> list[Suspect]:
    classes, names = seen.samples.classes, seen.samples.names or ()
    fits = left_out_fits(seen.views.shared, seen.labels, len(classes))
    other, own, gain = fits.other, fits.own_p, fits.gain
    return [
        Suspect(
            names[place],
            classes[int(fits.labels[place])],
            classes[int(other[place])],
            float(own[place]),
            float(fits.p_values[place, other[place]]),
            math.exp(float(gain[place])),
            place,
        )
        for place in fits.suspects()[:most].tolist()
    ]


def _doubts(seen: Seen, found: OutOfFold, most: int) -> list[Doubt]:
    """Give the samples that look least familiar to detectors that were fitted without them."""
    order = np.lexsort((found.margin.numpy(), found.p_value.numpy()))[:most]
    classes, names = seen.samples.classes, seen.samples.names or ()
    return [
        Doubt(
            names[place],
            classes[int(seen.samples.labels[place])],
            classes[int(found.predicted[place])],
            bool(found.novel[place]),
            float(found.p_value[place]),
            int(place),
        )
        for place in order.tolist()
    ]


def _twins(samples: Samples, pair: Pair, training: int) -> Twins:
    names, places = samples.names or (), (pair.first, pair.second)
    labels = tuple(samples.classes[int(samples.labels[place])] for place in places)
    across = pair.first < training <= pair.second
    return Twins(
        (names[pair.first], names[pair.second]),
        (labels[0], labels[1]),
        across,
        pair.exact,
        pair.likeness,
        places,
    )
