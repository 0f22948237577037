"""How well a model does, estimated from the samples that it was trained on, without any novel sample.

Two estimates on the network that there is. Folds: the detector is fitted and its thresholds are set without
the samples that are judged, and only samples that the network was not trained on count. Classes left out in
turn: how well the detector tells a class that it was not told of; the network was trained on that class, so
this is kinder than the truth, which `retraining` finds out.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shels.config import AcceptShare
from shels.data.partition import folds_of
from shels.data.samples import Label, Samples
from shels.data.splits import divided
from shels.detection.calibration import Verdicts
from shels.detection.metrics import separation
from shels.detection.protocol import Detector, KnownSamples, Labelled, rows_of
from shels.errors import DataError
from shels.learner.learner import Learner, with_detector
from shels.learner.pairing import needs_memory
from shels.learning.registry import method_of
from shels.model.growth import drop_class
from shels.model.networks import Views

Array = NDArray[Any]

SHARES = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.925, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995, 0.999)
"""Shares of known samples to accept at which the operating curve is worked out."""
FOLDS = 5


@dataclass(frozen=True, eq=False)
class Seen:
    """Samples as a trained network sees them, each once.

    held_out: (n,), marks of those that the network was not trained on. exact: whether these are known to be
    the ones that were held out of its training; otherwise they were drawn anew, and it may have seen them.
    groups: (n,), samples that stay together.
    """

    samples: Samples
    views: Views
    held_out: Tensor
    groups: Array
    exact: bool

    @property
    def labels(self) -> Tensor:
        """The class of each sample, where the features lie: (n,)."""
        return self.samples.labels.to(self.views.high.device)

    def known(self, use: Tensor) -> KnownSamples:
        """Give samples that are marked, as a detector is fitted to them and calibrated by them."""
        every = Labelled(self.views, self.labels)
        use, held = use.to(every.labels.device), self.held_out.to(every.labels.device)
        return KnownSamples(every.take(use & ~held), every.take(use & held))


def seen_by(
    learner: Learner, samples: Samples, groups: Array | None = None, held_out: Tensor | None = None
) -> Seen:
    """Look at samples of a learner's classes through its network, and find which of them trained it.

    groups: (n,), samples that must stay together, such as near duplicates; None for those of the samples.
    held_out: (n,), marks of those that it was not trained on, where somebody chose them.
    """
    samples = samples.only(learner.classes)
    counts = torch.bincount(samples.labels, minlength=len(samples.classes))
    if int(counts.min()) < 2:
        few = samples.classes[int(counts.argmin())]
        raise DataError(
            f"{samples.origin}: class {few!r} has {int(counts.min())} samples; 2 or more are needed"
        )
    held, exact = _held_out(learner, samples) if held_out is None else (held_out, True)
    if groups is None:
        groups = np.arange(len(samples)) if samples.groups is None else samples.groups.numpy()
    return Seen(samples, learner.views(samples.inputs), held, groups, exact)


def _held_out(learner: Learner, samples: Samples) -> tuple[Tensor, bool]:
    """Mark the samples that a training holds out by itself, (n,), and tell whether it is this learner's."""
    division = divided(samples.labels, samples.groups, learner.settings, learner.seed)
    held = torch.zeros(len(samples), dtype=torch.bool)
    held[torch.cat([division.selection, division.calibration])] = True
    then = [learner.report.get(key) for key in ("training_samples", "held_out_samples")]
    same = then == [len(division.training), len(division.calibration)]
    return held, same and learner.taught == learner.classes


# Measured on samples that had no say -------------------------------------------------------------------


class Point(NamedTuple):
    """A point of the operating curve: the share asked for, and what is accepted and rejected there."""

    share: float
    accepted: float
    rejected: float


_OF_KNOWN = ("known", "right", "accepted")


def average(points: Sequence[Point]) -> Point:
    """Average points of one share."""
    accepted, rejected = (float(np.mean([point[field] for point in points])) for field in (1, 2))
    return Point(points[0].share, accepted, rejected)


@dataclass(frozen=True)
class Round:
    """What one detector came to on samples that it was neither fitted to nor calibrated by.

    name: what was left out. known, novel: how many samples; right, accepted: how many of the known.
    rejected: how many of the novel, a mean where they were judged more than once. auroc: None without novel
    samples. curve: the same at other thresholds.
    """

    name: str
    known: int
    novel: int
    right: int
    accepted: int
    rejected: float
    auroc: float | None
    curve: tuple[Point, ...] = ()


def measured(name: str, detector: Detector, known: Labelled, novel: Views | None) -> Round:
    """Judge samples of known and of novel classes by a detector, at its thresholds and at others."""
    mine = detector.verdicts(known.features)
    right = int((mine.predicted == known.labels).sum())
    out = Round(name, len(mine), 0, right, int((~mine.novel).sum()), 0, None)
    if novel is None or not len(novel.high) or not len(mine):
        return out
    others = detector.verdicts(novel)
    auroc = separation(mine.score.cpu().numpy(), others.score.cpu().numpy())["auroc"]
    curve = tuple(_point(detector, share, mine, others) for share in SHARES)
    return replace(out, novel=len(others), rejected=int(others.novel.sum()), auroc=auroc, curve=curve)


def _point(detector: Detector, share: float, known: Verdicts, novel: Verdicts) -> Point:
    """Set thresholds that accept another share; scores stay as they are."""
    limits = detector.thresholds_by(AcceptShare(share))
    accepted = (known.score > limits[known.predicted]).double().mean()
    rejected = (~(novel.score > limits[novel.predicted])).double().mean()
    return Point(share, float(accepted), float(rejected))


# On the network that there is --------------------------------------------------------------------------


def fitted(learner: Learner, seen: Seen, use: Tensor) -> Learner:
    """Fit the learner's detector, and its way of naming classes, to marked samples (n,) alone."""
    _require_held_out(seen, use)
    known = seen.known(use)
    memory: dict[str, Tensor] = {}
    if needs_memory(learner.settings):
        training = seen.samples.take(use.cpu() & ~seen.held_out)
        method = method_of(learner.settings.accommodation)
        memory = method.first_memory(learner.network, training, learner.preparation, known.training.features)
    part = (learner.network, seen.samples.classes, known, learner.preparation)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fewer scores than the model itself has
        return with_detector(*part, learner.settings, learner.seed, memory=memory)


def _require_held_out(seen: Seen, use: Tensor) -> None:
    """Raise unless some of the marked samples (n,) are held out, to calibrate by."""
    if not bool((use & seen.held_out.to(use.device)).any()):
        raise DataError(
            f"{seen.samples.origin}: {len(seen.samples)} samples are too few to judge some by the others; "
            "give the data that the model was trained on, or more of each class"
        )


class OutOfFold(NamedTuple):
    """What detectors that were fitted without a sample say of it: every field (n,)."""

    predicted: Tensor
    p_value: Tensor
    novel: Tensor
    margin: Tensor


def by_folds(learner: Learner, seen: Seen, folds: int = FOLDS) -> tuple[list[Round], OutOfFold]:
    """Judge each sample by a detector that was fitted and calibrated without it and those of its group.

    Rounds count samples that the network was not trained on; the rest are judged, too.
    """
    fold = torch.from_numpy(folds_of(seen.samples.labels.numpy(), seen.groups, folds, learner.seed))
    n, rounds = len(fold), []
    out = OutOfFold(torch.zeros(n, dtype=torch.int64), *(torch.zeros(n) for _ in range(3)))
    for number in range(folds):
        mine = fold == number
        if not (mine & seen.held_out).any():
            continue
        made = fitted(learner, seen, ~mine)
        verdicts = made.detector.verdicts(rows_of(seen.views, mine))
        margin = verdicts.score - verdicts.threshold
        for field, value in zip(
            out, (verdicts.predicted, verdicts.p_value, verdicts.novel, margin), strict=True
        ):
            field[mine] = value.cpu().to(field.dtype)
        unseen = Labelled(rows_of(seen.views, mine & seen.held_out), seen.labels[(mine & seen.held_out)])
        rounds.append(measured(f"fold {number + 1}", made.detector, unseen, None))
    return rounds, out


def without_classes(learner: Learner, seen: Seen, folds: int = FOLDS) -> list[Round]:
    """Leave each class out in turn, and find how well it is told by a detector that was not told of it.

    Thresholds are set without the fold of held-out samples that is judged. Only samples that the network was
    not trained on count, on both sides. Of fewer than three classes none can be left out: [].
    """
    if len(seen.samples.classes) < 3:
        return []
    return [_without(learner, seen, name, folds) for name in seen.samples.classes]


def _without(learner: Learner, seen: Seen, name: Label, folds: int) -> Round:
    place, labels = seen.samples.classes.index(name), seen.samples.labels
    rest, reduced = labels != place, _reduced(learner, seen, name)
    samples = replace(seen.samples, labels=_closed_up(labels, place), classes=reduced.classes)
    here = replace(seen, samples=samples)
    detector, known = fitted(reduced, here, rest).detector, here.known(rest)
    novel = rows_of(seen.views, ~rest & seen.held_out)
    places = (rest & seen.held_out).nonzero()[:, 0]
    fold = folds_of(labels[places].numpy(), seen.groups[places.numpy()], folds, learner.seed)
    rounds = []
    for number in np.unique(fold):
        mine = torch.from_numpy(fold == number).to(known.held_out.labels.device)
        _require_held_out(seen, rest.index_fill(0, places[mine.to(places.device)], False))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            other = detector.calibrated(known._replace(held_out=known.held_out.take(~mine)))
        rounds.append(measured(str(name), other, known.held_out.take(mine), novel))
    return _joined(rounds, str(name))


def _reduced(learner: Learner, seen: Seen, name: Label) -> Learner:
    """Return the learner with no row for a class in its head; the detector is still the old one."""
    classes = tuple(each for each in seen.samples.classes if each != name)
    network = learner.network
    if name in learner.taught:
        network = drop_class(network, learner.taught.index(name))
    return replace(learner, network=network, classes=classes, taught=classes)


def _closed_up(labels: Tensor, place: int) -> Tensor:
    """Renumber classes without one of them; its own samples, which nobody asks about, count as the first."""
    moved = labels - (labels > place).long()
    return torch.where(labels == place, 0, moved)


def _joined(rounds: Sequence[Round], name: str) -> Round:
    """Make one of rounds on different known samples and the same novel ones."""
    if len(rounds) < 2:
        return rounds[0] if rounds else Round(name, 0, 0, 0, 0, 0, None)
    curve = tuple(average(points) for points in zip(*(each.curve for each in rounds), strict=True))
    areas = [each.auroc for each in rounds if each.auroc is not None]
    known, right, accepted = (sum(getattr(each, key) for each in rounds) for key in _OF_KNOWN)
    rejected = float(np.mean([each.rejected for each in rounds]))
    area = float(np.mean(areas)) if areas else None
    return Round(name, known, rounds[0].novel, right, accepted, rejected, area, curve)
