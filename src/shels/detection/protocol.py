"""What every detector offers, ours and the rivals': verdicts, thresholds, classes that come and go.

A detector is a value: whatever changes it gives a new one. All of them see a network's features as `Views`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple, Self

import torch
from torch import Tensor

from shels.config import Gaussian, ThresholdRule
from shels.detection.calibration import Verdicts
from shels.detection.head import Head
from shels.detection.rules import threshold
from shels.errors import DataError
from shels.model.networks import Views

Tensors = dict[str, Tensor]
Naming = Callable[[Views], Tensor]
"""Class scores of samples by their features: n samples -> (n, classes)."""
Change = Literal["unlearn", "merge", "split"]


class Labelled(NamedTuple):
    """Features of samples, and the position of each one's class: labels (n,)."""

    features: Views
    labels: Tensor

    def take(self, index: Tensor) -> Labelled:
        """Keep some of the samples, by marks (n,) or places."""
        return Labelled(rows_of(self.features, index), self.labels[index])


class Places(NamedTuple):
    """Where samples (n, d) and known classes (k, d) lie, and the class that each sample is most like (n,).

    Scaled so that known classes spread alike in all directions, as far as that is known.
    """

    rows: Tensor
    means: Tensor
    predicted: Tensor

    def cpu(self) -> Places:
        """Move all of it to the CPU."""
        return Places(*(each.cpu() for each in self))


class Evidence(NamedTuple):
    """What stands behind verdicts on n samples, each taken for the class that it is named as.

    class_p_values: (n, classes), the p-value that each sample has in each class; no number for other classes
    than the named one where the score is not about a class. aspects: p-values (n,) among samples of the class
    by one way alone of looking at samples, by its name; none where a score is all of one piece. expected:
    (n, d), how high-level features of length 1 lie in the class.
    """

    class_p_values: Tensor
    aspects: dict[str, Tensor]
    expected: Tensor


class KnownSamples(NamedTuple):
    """Samples of the known classes as a network sees them: those it was trained on, and those held out."""

    training: Labelled
    held_out: Labelled


class StoredParts(NamedTuple):
    """A detector as tensors, by the file that each part goes to.

    detector: what changes with each class. projection: what never does. classes: for each Gaussian its sums.
    """

    detector: Tensors
    projection: Tensors
    classes: Sequence[Tensors]

    def to(self, device: torch.device) -> StoredParts:
        """Move all of it to a device."""
        moved = [{n: v.to(device) for n, v in part.items()} for part in (*self[:2], *self.classes)]
        return StoredParts(moved[0], moved[1], moved[2:])


@dataclass(frozen=True, eq=False)
class Context:
    """What a detector needs of the network and the learner that it stands beside.

    naming: how the learner names classes; None where the detector does so itself. classes: their names.
    moves: whether training on a class that comes later moves features, so that the rows of the head tell
    better than old means where classes lie. gaussian: settings of the Gaussian detector.
    """

    head: Head
    rule: ThresholdRule
    classes: Sequence[object]
    naming: Naming | None = None
    moves: bool = False
    gaussian: Gaussian = field(default_factory=Gaussian)


@dataclass(frozen=True, eq=False)
class LearnedClass:
    """A class that was just learned, as a detector takes it in.

    training: gives features of the samples that it was learned from, computed where they are needed.
    held_out: features of samples that nothing was trained on; None where the detector needs none, see
    `Detector.cross_fits`. naming: as it names the new class too.
    head: the network's last layer, where that has a row for the new class. stored: gives all samples that the
    learner keeps, as the network sees them now; None where it keeps none. groups: (n,), training samples that
    would know each other again.
    """

    training: Callable[[], Views]
    held_out: Views | None = None
    naming: Naming | None = None
    head: Head | None = None
    stored: Callable[[], Labelled] | None = None
    groups: Tensor | None = None


class Detector(ABC):
    """Tells known from novel samples, with a threshold for each class."""

    rule: ThresholdRule
    is_learner: ClassVar[bool] = False
    """Whether it names classes itself, so that taking one in, joining or dropping one needs no network."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What the registry calls it."""

    @property
    def cross_fits(self) -> bool:
        """Whether all samples of a class that comes later teach it and set its threshold, by each other.

        Others want some of them held out.
        """
        return self.is_learner

    @property
    @abstractmethod
    def thresholds(self) -> Tensor:
        """The threshold of each class: (classes,)."""

    @property
    @abstractmethod
    def compared(self) -> list[Tensor]:
        """The scores that new samples are compared with, of each class in rising order: (n,) each."""

    def thresholds_by(self, rule: ThresholdRule) -> Tensor:
        """Set the thresholds that another rule would, on the scores that there are: (classes,)."""
        return torch.stack([threshold(rule, scores, scores) for scores in self.compared])

    @abstractmethod
    def with_rule(self, rule: ThresholdRule) -> Self:
        """Set the thresholds by another rule, on the scores that there are."""

    @abstractmethod
    def with_known(self, features: Views) -> Self:
        """Set the thresholds anew with samples that are known after all, each as the class it is most like.

        For rules that take the scores which new samples are compared with, as `AcceptShare` does.
        """

    @property
    def thresholds_are_of(self) -> str:
        """Which scores a rule on a class's own scores takes, in words."""
        return "score over held-out samples"

    @abstractmethod
    def calibrated(self, samples: KnownSamples, names: Sequence[object] | None = None) -> Self:
        """Set the thresholds. names: what errors call the classes."""

    @abstractmethod
    def class_scores(self, features: Views) -> Tensor:
        """Score each class; the highest names it: (n, classes). What overflowed is like none."""

    @abstractmethod
    def verdicts(self, features: Views) -> Verdicts:
        """Decide for each sample: which class it is most like, and whether it is novel."""

    @abstractmethod
    def evidence(self, features: Views) -> Evidence:
        """Say what stands behind the verdicts on samples."""

    @abstractmethod
    def with_class(self, new: LearnedClass) -> Self:
        """Know one class more, the old thresholds as they are."""

    @abstractmethod
    def without_class(self, position: int, head: Head | None = None, naming: Naming | None = None) -> Self:
        """Forget one class. head: the network's last layer without it, where that had a row for it.

        naming: how the learner names the classes that are left, where it is the learner who does.
        """

    @abstractmethod
    def merged(self, position: int, into: int) -> Self:
        """Count all of one class as another; later classes move up."""

    @abstractmethod
    def check(self, change: Change, learner: str) -> None:
        """Raise AccommodationError where it cannot do this beside the learner of this name."""

    @abstractmethod
    def places(self, features: Views) -> Places:
        """Find where samples and known classes lie, to tell new classes from each other and from drift."""

    def clustering_rows(self, features: Views) -> Tensor:
        """Give the rows by which a class is split in two: (n, d)."""
        return features.high

    def counts(self) -> dict[int, int]:
        """Count the samples that each class was learned from, by position, where that is known."""
        return {}

    @abstractmethod
    def tensors(self) -> StoredParts:
        """Give all that must be saved, beside the network and what the learner keeps."""


def rows_of(features: Views, index: Tensor) -> Views:
    """Keep the features of some samples, by marks (n,) or places, wherever those lie."""
    return Views(*(rows[index.to(rows.device)] for rows in features))


def check_views(features: Views, high: int, shared: int | None = None) -> None:
    """Refuse features of the wrong form. high, shared: how many columns; None where any will do."""
    if not isinstance(features, Views):
        raise DataError(f"features must be Views(shared, high), got {type(features).__name__}")
    check_rows(features.high, "high-level", high)
    if shared is not None:
        check_rows(features.shared, "shared", shared, features.high.shape[0])


def check_rows(rows: Tensor, kind: str, width: int | None, n: int | None = None) -> None:
    """Refuse what is not a tensor of floats (n, width); None where any number will do."""
    right = isinstance(rows, Tensor) and rows.ndim == 2 and rows.is_floating_point()
    right = right and width in (None, rows.shape[1]) and n in (None, rows.shape[0]) and rows.shape[1] > 0
    if not right:
        expected = f"({'n' if n is None else n}, {width or 'one or more'})"
        got = tuple(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__
        dtype = f" {rows.dtype}" if isinstance(rows, Tensor) else ""
        raise DataError(f"{kind} features must be floats {expected}, got {got}{dtype}")
