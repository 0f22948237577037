"""Known classes seen through a change (blur, darkness, noise): drift, which is no new class.

Two signs tell it from a new class. The images look unlike every known image in plain terms that do not
depend on what they show. And the samples keep their classes: taken from the mean of the class that each
is most like they lie closer together than as they are, while a new class is one place of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from shels.errors import DataError

STATISTICS = ("brightest", "darkest", "steepest edge", "noise")
"""What `image_statistics` measures of each image, in the order of its columns."""

_SLACK = torch.tensor([0.02, 0.02, 0.02, 0.005])  # beyond the known range and still like it
_TAIL = 0.01  # share of a class's images that may be odd at either end
_CHUNK = 256  # images measured at once, so that large ones fit in memory

UNLIKE_ALONE = 0.8
"""Share of unlike images from which it is drift whatever the features say. New classes of the same data set
show up to 0.2, clothes to one who knows digits 0.8."""
UNLIKE_WITH_DISPLACEMENT = 0.3
"""Share of unlike images from which it is drift where the features say so too."""
LEAST_DISPLACEMENT = 0.1
"""Common displacement from which the features say so. Drift of several classes mostly shows 0.15 to 0.35, one
new class 0.01 at most, but two new classes taken together up to 0.2."""


def image_statistics(inputs: Tensor) -> Tensor:
    """Measure what images look like in plain terms, whatever they show: (n, c, h, w) -> (n, 4).

    brightest, darkest: grey value that 1 % of the pixels exceed or fall below. steepest edge: the same of
    the step between neighbours, over the distance of those two. noise: what is left of the quietest quarter
    after smoothing. inputs: uint8 0-255 or float 0-1. Vectors have none: (n, d) -> (n, 0).
    """
    if not isinstance(inputs, Tensor) or inputs.ndim not in (2, 4):
        got = f"{type(inputs).__name__} {tuple(getattr(inputs, 'shape', ()))}"
        raise DataError(f"inputs must be a tensor (n, c, h, w) or (n, d), got {got}")
    if inputs.ndim == 2 or min(inputs.shape[2:]) < 3:
        return torch.zeros(len(inputs), 0, device=inputs.device)
    if not len(inputs):
        return torch.zeros(0, len(STATISTICS), device=inputs.device)
    return torch.cat([_image_statistics(chunk) for chunk in torch.split(inputs, _CHUNK)])


def _image_statistics(inputs: Tensor) -> Tensor:
    scale = 1.0 if inputs.is_floating_point() else 255.0
    grey = inputs.float().mean(dim=1, keepdim=True) / scale
    if not bool(grey.isfinite().all()):
        raise DataError("images must be finite, got NaN or infinity")
    brightest, darkest = _at_share(grey, 0.99), _at_share(grey, 0.01)
    across, down = grey.diff(dim=3).abs(), grey.diff(dim=2).abs()
    steps = torch.cat([across.flatten(1), down.flatten(1)], dim=1)
    edge = _at_share(steps, 0.99) / (brightest - darkest).clamp(min=0.02)  # under 0.02 all is one grey
    smoothed_away = grey.new_tensor([[1.0, -2.0, 1.0], [-2.0, 4.0, -2.0], [1.0, -2.0, 1.0]]) / 6
    noise = _at_share(F.conv2d(grey, smoothed_away[None, None]).abs(), 0.25)  # /6: unit noise stays so
    return torch.stack([brightest, darkest, edge, noise], dim=1)


def _at_share(values: Tensor, share: float) -> Tensor:
    """Return the value below which a share of each row lies: (n, …) -> (n,)."""
    rows = values.flatten(1)
    return rows.kthvalue(1 + round(share * (rows.shape[1] - 1)), dim=1).values


@dataclass(frozen=True, eq=False)
class ImageStatistics:
    """The range of each statistic over the images of each class; low and high: (classes, statistics)."""

    low: Tensor
    high: Tensor

    @classmethod
    def fit(cls, inputs: Tensor, labels: Tensor) -> Self:
        """Measure known images, a row for each class: inputs (n, …), labels (n,)."""
        if len(inputs) != len(labels) or not len(labels):
            raise DataError(
                f"inputs and labels must be as many and not none, got {len(inputs)} and {len(labels)}"
            )
        measured = image_statistics(inputs)
        ranges = [_range(measured[labels == label]) for label in sorted(set(labels.tolist()))]
        low, high = (torch.stack(ends) for ends in zip(*ranges, strict=True))
        return cls(low, high)

    def with_class(self, inputs: Tensor) -> ImageStatistics:
        """Add a class: its images are like known ones from now on."""
        low, high = _range(image_statistics(inputs).to(self.low.device))
        return ImageStatistics(torch.cat([self.low, low[None]]), torch.cat([self.high, high[None]]))

    def without(self, position: int) -> ImageStatistics:
        """Leave one class out."""
        stays = torch.arange(len(self.low)) != position
        return ImageStatistics(self.low[stays], self.high[stays])

    def merged(self, position: int, into: int) -> ImageStatistics:
        """Join the ranges of one class to those of another."""
        low, high = self.low.clone(), self.high.clone()
        low[into], high[into] = low[into].minimum(low[position]), high[into].maximum(high[position])
        return ImageStatistics(low, high).without(position)

    def unlike(self, inputs: Tensor) -> Tensor:
        """Return which images look like no known image, in one statistic or more: (n, …) -> (n,) bool."""
        measured = image_statistics(inputs)
        statistics = self.low.shape[1]
        if measured.shape[1] != statistics:
            raise DataError(
                f"the known images have {statistics} statistics, these inputs have {measured.shape[1]}"
            )
        slack = _SLACK.to(measured.device)[:statistics]
        low = self.low.amin(dim=0).to(measured.device) - slack
        high = self.high.amax(dim=0).to(measured.device) + slack
        return ((measured < low) | (measured > high)).any(dim=1)


def _range(measured: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ends between which all but 1 % of the rows at either end lie: (n, s) -> two (s,)."""
    if not len(measured):
        raise DataError("the statistics of a class need one image or more, got none")
    ordered, odd = measured.sort(dim=0).values, round(_TAIL * (len(measured) - 1))
    return ordered[odd], ordered[-1 - odd]


def common_displacement(features: Tensor, predicted: Tensor, known_means: Tensor) -> float:
    """Return how much better "known classes, all moved alike" fits than "one place"; over 0: it is better.

    features: (n, d), predicted: (n,) nearest known class, known_means: (k, d). One less the ratio of two sums
    of squares: of the samples taken from their class means, and of the samples as they are, each about its
    own mean. Exactly 0 where all are most like one class: then nothing tells the two from each other.
    """
    if len(set(predicted.tolist())) < 2:
        return 0.0
    rows, moved = features.double(), (features - known_means[predicted]).double()
    as_they_are = (rows - rows.mean(dim=0)).square().sum()
    as_known = (moved - moved.mean(dim=0)).square().sum()
    return float(1 - as_known / as_they_are) if as_they_are > 0 else 0.0


@dataclass(frozen=True)
class Drift:
    """Whether a group of novel samples is known classes seen through a change, and why it is thought so.

    share_unlike: share of the images that look like no known image. common_displacement: see the function.
    """

    drift: bool
    share_unlike: float
    common_displacement: float
    reason: str


def drift_of(features: Tensor, predicted: Tensor, known_means: Tensor, unlike: Tensor) -> Drift:
    """Decide whether a group of novel samples is drift.

    features: (n, d), scaled so that known classes spread alike in all directions. predicted: (n,) known class
    that each is most like. known_means: (k, d). unlike: (n,) bool, see `ImageStatistics`. A class wrongly
    taken for drift is never learned, so features alone do not decide: two new classes, each like a known one,
    would pass for those two moved.
    """
    if not len(features) == len(predicted) == len(unlike) or not len(unlike):
        sizes = f"{len(features)}, {len(predicted)} and {len(unlike)}"
        raise DataError(f"features, predicted and unlike must be as many and not none, got {sizes}")
    share = float(unlike.double().mean())
    moved = common_displacement(features, predicted, known_means)
    looks = f"{share:.0%} of the images look like no known image"
    if share >= UNLIKE_ALONE:
        return Drift(True, share, moved, looks)
    if share >= UNLIKE_WITH_DISPLACEMENT and moved >= LEAST_DISPLACEMENT:
        looks += ", and known classes moved alike fit them better than one class"
        return Drift(True, share, moved, looks)
    return Drift(False, share, moved, f"{looks}: too few to speak of drift")
