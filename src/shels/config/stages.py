"""What a network is, how it trains, and when a sample is novel."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

from shels.config.checks import number, one_of, require, whole
from shels.errors import SettingsError


@dataclass(frozen=True)
class NetworkSettings:
    """Which network, and what it sees."""

    architecture: str = "auto"
    """A name from `shels.model.networks.ARCHITECTURES`; "auto" chooses by the inputs."""
    image_size: int | None = None
    """Side of the square that images are brought to; None keeps their own size, up to 64 pixels."""
    image_fit: Literal["resize", "pad"] = "resize"
    """How images reach that size: resampled, or kept and set in a black frame."""
    pixels: Literal["unit", "imagenet"] = "unit"
    """What the network is shown: values 0-1, or normalised as ImageNet weights expect."""
    head: Literal["cosine", "linear", "scaled-cosine"] = "cosine"
    """The last layer: the paper's cosine; to compare with, a linear layer or cosines with a learned scale."""
    weights: str | None = None
    """A safetensors file of pretrained weights (VGG16 only)."""

    def __post_init__(self) -> None:
        if self.image_size is not None:
            whole(self, "image_size", 4)
        require(isinstance(self.architecture, str), "architecture", "a name", self.architecture)
        require(
            self.weights is None or isinstance(self.weights, str), "weights", "a file's path", self.weights
        )
        one_of(self, "image_fit", "resize", "pad")
        one_of(self, "pixels", "unit", "imagenet")
        one_of(self, "head", "cosine", "linear", "scaled-cosine")


@dataclass(frozen=True)
class Adam:
    """Adam, as torch has it."""

    kind: ClassVar[str] = "adam"
    learning_rate: float = 1e-4

    def __post_init__(self) -> None:
        number(self, "learning_rate", 0, over=True)

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch: Adam's stays the same."""
        del epoch
        return self.learning_rate


@dataclass(frozen=True)
class Sgd:
    """Stochastic gradient descent with momentum, the rate divided by `decay` every `decay_epochs`."""

    kind: ClassVar[str] = "sgd"
    learning_rate: float = 1e-3
    momentum: float = 0.9
    weight_decay: float = 5e-4
    decay: float = 2.0
    decay_epochs: int = 4

    def __post_init__(self) -> None:
        number(self, "learning_rate", 0, over=True)
        number(self, "momentum", 0, 1)
        number(self, "weight_decay", 0)
        number(self, "decay", 1)
        whole(self, "decay_epochs")

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 0."""
        return float(self.learning_rate / self.decay ** (epoch // self.decay_epochs))


@dataclass(frozen=True)
class WarmRestarts:
    """Stochastic gradient descent whose rate falls along a cosine and starts again, in ever longer cycles.

    Loshchilov, Hutter: SGDR, ICLR 2017. The first epoch warms up at a tenth of the rate.
    """

    kind: ClassVar[str] = "warm-restarts"
    learning_rate: float = 0.05
    lowest_rate: float = 5e-4
    first: int = 1
    """Length of the first cycle in epochs."""
    factor: int = 2
    """How many times longer each cycle is than the one before."""
    momentum: float = 0.9
    weight_decay: float = 1e-6
    clip: float = 10.0
    """Length at which a trial's whole gradient is cut off."""

    def __post_init__(self) -> None:
        number(self, "clip", 0, over=True)
        number(self, "learning_rate", 0, over=True)
        number(self, "lowest_rate", 0, self.learning_rate)
        whole(self, "first")
        whole(self, "factor")
        number(self, "momentum", 0, 1)
        number(self, "weight_decay", 0)

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 0."""
        if epoch == 0:
            return self.learning_rate / 10
        start, length = 0, self.first
        while epoch >= start + length:
            start, length = start + length, length * self.factor
        falling = 0.5 * (1 + math.cos(math.pi * (epoch - start) / length))
        return self.lowest_rate + (self.learning_rate - self.lowest_rate) * falling


Optimiser: TypeAlias = Adam | Sgd | WarmRestarts

Precision: TypeAlias = Literal["float32", "bfloat16"]
"""What convolutions multiply in where trials are stacked on a GPU; there float32 is multiplied as TF32."""


@dataclass(frozen=True)
class TrainingSettings:
    """The loss of SHELS and how long to descend it. Exactly one of `epochs` and `steps` is given."""

    optimiser: Optimiser = field(default_factory=Adam)
    batch_size: int = 32
    epochs: int | None = None
    """Length in passes over the data, validation after each; the paper's way."""
    steps: int | None = None
    """Length in optimiser steps at most, validation every `check_every`, whatever the size of the data."""
    check_every: int = 100
    """Steps between validations where the length is in steps."""
    patience: int | None = None
    """Validations without improvement before training stops early; None never stops early."""
    alpha: float = 1e-3
    """Weight of the group sparsity."""
    depth_weights: Literal["layer-wise", "constant"] = "layer-wise"
    """μ: less sparsity with depth, or the same in every layer."""
    validation_share: float = 0.12
    """Share of each class held out of training, to select the model and to calibrate thresholds."""

    def __post_init__(self) -> None:
        whole(self, "batch_size")
        if (self.epochs is None) == (self.steps is None):
            raise SettingsError(f"give either epochs or steps, got {'both' if self.epochs else 'neither'}")
        for name in ("epochs", "steps", "patience"):
            if getattr(self, name) is not None:
                whole(self, name)
        require(
            isinstance(self.optimiser, Adam | Sgd | WarmRestarts),
            "optimiser",
            "Adam(...), Sgd(...) or WarmRestarts(...)",
            self.optimiser,
        )
        whole(self, "check_every")
        number(self, "alpha", 0)
        one_of(self, "depth_weights", "layer-wise", "constant")
        number(self, "validation_share", 0, 0.9, over=True)


@dataclass(frozen=True)
class MeanMinusSd:
    """The paper's rule: a class's mean score less `k` standard deviations, over its training samples."""

    kind: ClassVar[str] = "mean-minus-sd"
    k: float = 1.0

    def __post_init__(self) -> None:
        number(self, "k", 0)


@dataclass(frozen=True)
class AcceptShare:
    """Accept this share of what is assigned to each known class, calibrated on held-out samples."""

    kind: ClassVar[str] = "accept-share"
    share: float = 0.95

    def __post_init__(self) -> None:
        number(self, "share", 0, 1, over=True)
        require(self.share < 1, "share", "under 1 (at 1 nothing is ever novel)", self.share)


ThresholdRule: TypeAlias = MeanMinusSd | AcceptShare
