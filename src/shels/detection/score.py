"""What every score offers: fit on training features, score new ones, take a class in where it can."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from shels.config.checks import require
from shels.detection.head import Head
from shels.detection.protocol import KnownSamples, Tensors, check_rows, check_views
from shels.errors import AccommodationError, DataError, ModelFileError, SettingsError
from shels.model.networks import Views
from shels.runtime import row_parts

_ROWS = 2048
"""Samples that are scored at once, in double precision, so that memory stays bounded."""

__all__ = ["Head", "Score", "Tensors", "in_chunks", "require"]


@dataclass(frozen=True, eq=False)
class Score(ABC):
    """A novelty score: a value, so `fit` and `add_class` give new scores and leave this one as it is.

    state: what `fit` found, by name; tensors alone, so that it saves and loads as safetensors.
    """

    head: Head
    state: Tensors = field(default_factory=dict, kw_only=True, repr=False)

    name: ClassVar[str]
    remembers: ClassVar[tuple[str, ...]] = ()
    """Names of the tensors in `state`; where there are none, no `fit` is needed."""
    reads_head: ClassVar[bool] = True
    """Whether the score depends on the head, so that taking a class in needs the grown one."""
    reads_one_row: ClassVar[bool] = False
    """Whether the named class's row of the head alone counts, so that other rows change nothing."""
    reads_inputs: ClassVar[bool] = False
    """Whether the score is meant for features of inputs that were changed first."""
    reads_shared: ClassVar[bool] = False
    """Whether the score depends on the shared features; if not, they may be left out."""
    forgets: ClassVar[bool] = False
    """Whether a class can be taken out of what the score remembers, exactly as if it had not been there."""
    cross_fits: ClassVar[bool] = False
    """Whether samples of a class that comes later set its threshold by each other, so that none of them has
    to be held out: see `add_class_by_folds`."""
    cannot_grow: ClassVar[str] = ""
    """Why no class can be taken in without the old classes' samples; empty where one can."""

    @abstractmethod
    def _scores(self, views: Views) -> Tensor:
        """Return scores (n,), higher more familiar; views.high comes in double precision."""

    def _fitted(self, views: Views, labels: Tensor) -> Tensors:
        """Return the state from checked training samples."""
        return {}

    def _grown(self, views: Views, grown: Head) -> Tensors:
        """Return the state with one class more, from checked samples of it and the head that it gets."""
        return self.state

    def class_scores(self, views: Views) -> Tensor:
        """Score each class, where the score can also name classes: (n, classes)."""
        raise SettingsError(f"the score {self.name} does not name classes; give it something that does")

    @torch.no_grad()
    def fit(self, views: Views, labels: Tensor) -> Self:
        """Return this score fitted to training samples of the known classes; labels: (n,), 0 to classes-1.

        Classes are those of the head, or those of the labels where the score does not read the head.
        """
        self._check(views, fresh=True, first=True)
        self._check_labels(labels, len(views.high))
        return replace(self, state=self._fitted(views, labels.to(views.high.device)))

    @torch.no_grad()
    def scores(self, views: Views) -> Tensor:
        """Return the familiarity of each sample, (n,) in single precision and finite, higher more familiar.

        A sample whose features overflowed is like none: minus infinity.
        """
        self._require_fit()
        self._check(views)
        seen = views if self.reads_shared else (views.high,)
        usable = torch.stack([rows.isfinite().all(dim=1) for rows in seen]).all(dim=0)
        most = torch.finfo(torch.float32).max
        scores = in_chunks(self._scores, views).clamp(-most, most).float()
        return torch.where(usable, scores, -math.inf)

    @torch.no_grad()
    def add_class(self, views: Views, head: Head | None = None) -> Self:
        """Return a score that knows one class more, from samples of that class alone.

        head: the grown head, which scores that read it need. The features must still be those of `fit`.
        """
        if self.cannot_grow:
            raise AccommodationError(f"{self.name} cannot take a class in: {self.cannot_grow}")
        self._require_fit()
        self._check(views, fresh=True)
        grown = self._grown_head(head)
        return replace(self, head=grown, state=self._grown(views, grown))

    def add_class_by_folds(
        self, views: Views, groups: Tensor | None = None, head: Head | None = None
    ) -> tuple[Self, Tensor]:
        """Return what `add_class` does, and the scores (n,) of new samples as familiar as these: see `alike`.

        For scores of which `cross_fits` says so: each sample is judged by what the others tell of the class.
        groups: (n,), samples that would know each other again, such as pictures of one thing.
        """
        raise SettingsError(f"the score {self.name} needs held-out samples of a class that it takes in")

    def tuned(self, samples: KnownSamples, named: Tensor) -> Self:
        """Return this score as known samples make it, where it learns from those held out as well.

        named: (n,), the classes that held-out samples are given to.
        """
        del samples, named
        return self

    def scores_as(self, views: Views, named: Tensor) -> Tensor:
        """Return the familiarity of samples that are given to classes, (n,), where that matters to it."""
        del named
        return self.scores(views)

    def held_out_scores(self, samples: KnownSamples, named: Tensor) -> Tensor:
        """Score the samples that it was tuned by, each as if it had had no say, given these classes: (n,)."""
        return self.scores_as(samples.held_out.features, named)

    def aspects(self, views: Views, named: Tensor) -> Tensors:
        """Return p-values (n,) of samples among the classes that they are given to, by parts of the score.

        None where it has no parts that could be told apart.
        """
        del views, named
        return {}

    def without_class(self, position: int, head: Head | None = None) -> Self:
        """Return this score without a class, by the head that is left; see `forgets`."""
        del position
        return replace(self, head=head or self.head)

    def tensors(self) -> Tensors:
        """Return all that `fit` found, ready for a safetensors file."""
        self._require_fit()
        return {name: value.contiguous() for name, value in self.state.items()}

    @classmethod
    def from_tensors(cls, head: Head, tensors: Mapping[str, Tensor], **settings: Any) -> Self:
        """Return the score that `tensors` came from, on the head's device; settings as at first."""
        if set(tensors) != set(cls.remembers):
            expected, got = ", ".join(cls.remembers) or "none", ", ".join(sorted(tensors)) or "none"
            raise ModelFileError(f"{cls.name}: the tensors must be {expected}; got {got}")
        for name, value in tensors.items():
            if not value.isfinite().all():
                raise ModelFileError(f"{cls.name}: the tensor {name!r} holds what is no number")
        state = {name: value.to(head.weight.device) for name, value in tensors.items()}
        return cls(head, **settings, state=state)

    def _require_fit(self) -> None:
        if set(self.state) != set(self.remembers):
            raise DataError(f"{self.name} has seen no sample yet; call fit first and use what it returns")

    def _check(self, views: Views, *, fresh: bool = False, first: bool = False) -> None:
        """Refuse views of the wrong shape; `fresh` ones are learned from, so must be some and finite.

        The `first` ones say how many shared features there are.
        """
        check_views(views, self.head.width)
        if self.reads_shared:
            width = None if first else self._shared_width()
            check_rows(views.shared, "shared", width, views.high.shape[0])
        seen = views if self.reads_shared else (views.high,)
        if fresh and not len(views.high):
            raise DataError(f"{self.name} needs one sample or more to learn from, got 0")
        if fresh and not all(bool(rows.isfinite().all()) for rows in seen):
            raise DataError(f"{self.name} cannot learn from features that are infinite or no number")

    def _shared_width(self) -> int | None:
        """How many shared features were seen at `fit`."""
        return None

    def _check_labels(self, labels: Tensor, n: int) -> None:
        whole = isinstance(labels, Tensor) and not (labels.is_floating_point() or labels.is_complex())
        if not whole or labels.shape != (n,):
            got = f"{tuple(labels.shape)} {labels.dtype}" if isinstance(labels, Tensor) else type(labels)
            raise DataError(f"labels must be whole numbers ({n},), one for each sample, got {got}")
        low, high = int(labels.min()), int(labels.max())
        classes = self.head.classes if self.reads_head else high + 1
        if low < 0 or high >= classes:
            raise DataError(f"labels must lie in 0 to {classes - 1}, got {low} to {high}")
        empty = (torch.bincount(labels.long(), minlength=classes) == 0).nonzero().flatten().tolist()
        if empty:
            raise DataError(
                f"every class needs a training sample; none of class {', '.join(map(str, empty))}"
            )

    def _grown_head(self, head: Head | None) -> Head:
        if not self.reads_head:
            return self.head if head is None else head
        wanted = (self.head.classes + 1, self.head.width)
        if head is None:
            raise AccommodationError(
                f"{self.name} reads the head, so it needs the grown one: pass head= with a weight {wanted}"
            )
        if tuple(head.weight.shape) != wanted or head.cosine != self.head.cosine:
            raise AccommodationError(
                f"the grown head must be like the old, weight {wanted}, got {tuple(head.weight.shape)}"
            )
        return head


def in_chunks(score: Callable[[Views], Tensor], views: Views) -> Tensor:
    """Return what `score` gives for all samples, a few at a time, their high-level features in double."""
    high = row_parts(views.high, _ROWS)
    even = views.shared.shape[0] == views.high.shape[0]
    shared = row_parts(views.shared, _ROWS) if even else (views.shared,) * len(high)
    pairs = zip(shared, high, strict=True)
    return torch.cat([score(Views(low, rows.double())) for low, rows in pairs])
