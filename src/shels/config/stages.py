"""What a network is, how it trains, and when a sample is novel."""

from __future__ import annotations

import math
from dataclasses import field
from typing import Annotated, ClassVar, Literal, TypeAlias

from shels.config.checks import (
    Checked,
    Count,
    Flag,
    Name,
    NotNegative,
    Positive,
    Rule,
    Share,
    number,
    require,
    text,
    whole,
)
from shels.errors import SettingsError


class NetworkSettings(Checked):
    """Which network, and what it sees."""

    architecture: Name = "auto"
    """A name from `shels.model.architectures.ARCHITECTURES`; "auto" chooses by the inputs."""
    image_size: Annotated[int, whole(4)] | None = None
    """Side of the square that images are brought to; None keeps their own size, up to 64 pixels."""
    image_fit: Literal["resize", "pad"] = "resize"
    """How images reach that size: resampled, or kept and set in a black frame."""
    pixels: Literal["unit", "imagenet"] = "unit"
    """What the network is shown: values 0-1, or normalised as ImageNet weights expect."""
    head: Literal["cosine", "linear", "scaled-cosine"] = "cosine"
    """The last layer: the paper's cosine; to compare with, a linear layer or cosines with a learned scale."""
    weights: Annotated[str, text("a file's path")] | None = None
    """A safetensors file of pretrained weights (VGG16 only)."""
    backbone: Annotated[str, text("a backbone's name, or the path of an ONNX file")] | None = None
    """A pretrained network that makes features of photos, in front of the layers that are added."""
    frozen: Flag = False
    """Whether the backbone is left as it is; else its last layers are trained too."""
    scale: Positive | None = 1.0
    """What the cosine head multiplies its cosines by, an inverse temperature; None learns it, from 10 on.

    Cosines are at most 1 apart, so at 1, as the paper has it, cross-entropy cannot come near 0.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        fits = self.head == "cosine" or self.scale == 1
        require(not self.frozen or self.backbone, "frozen", "false without a backbone", self.frozen)
        require(fits, "scale", f'1 with head "{self.head}" (it is the cosine head\'s)', self.scale)


class Cosine(Checked, kind="cosine"):
    """A learning rate that rises in a line, then falls along half a cosine until the training's end."""

    warm_up: Share = 0.0
    """Share of the training in which the rate rises."""
    lowest: Share = 0.0
    """Where the rate ends, as a share of its height."""
    per: Literal["step", "epoch"] = "step"
    """How often it changes."""

    def factor(self, place: int, length: int) -> float:
        """Give what the rate is multiplied by at a place of so many, counted from 0.

        >>> [round(Cosine(warm_up=0.4).factor(place, 5), 3) for place in range(5)]
        [0.333, 0.667, 1.0, 0.75, 0.25]
        """
        rising = round(self.warm_up * length)
        if place < rising:
            return (place + 1) / (rising + 1)
        falling = 0.5 * (1 + math.cos(math.pi * (place - rising) / max(length - rising, 1)))
        return self.lowest + (1 - self.lowest) * falling


class Adam(Checked, kind="adam"):
    """Adam, as torch has it."""

    learning_rate: Positive = 1e-4
    schedule: Cosine | None = None
    """How the rate goes over the whole training; None leaves it as it is."""
    decoupled_decay: NotNegative = 0.0
    """Weights lose this share of themselves, times the rate, in every step (AdamW: Loshchilov, Hutter)."""

    def rate(self, epoch: int) -> float:
        """Give the learning rate of an epoch before its schedule: Adam's stays the same."""
        del epoch
        return self.learning_rate


class Sgd(Checked, kind="sgd"):
    """Stochastic gradient descent with momentum, the rate divided by `decay` every `decay_epochs`."""

    learning_rate: Positive = 1e-3
    momentum: Share = 0.9
    weight_decay: NotNegative = 5e-4
    decay: Annotated[float, number(1)] = 2.0
    decay_epochs: Count = 4
    schedule: Cosine | None = None
    """How the rate goes over the whole training, on top of that decay (which `decay=1` leaves out)."""

    def rate(self, epoch: int) -> float:
        """Give the learning rate of an epoch before its schedule, counted from 0."""
        return float(self.learning_rate / self.decay ** (epoch // self.decay_epochs))


class WarmRestarts(Checked, kind="warm-restarts"):
    """Stochastic gradient descent whose rate falls along a cosine and starts again, in ever longer cycles.

    Loshchilov, Hutter: SGDR, ICLR 2017. The first epoch warms up at a tenth of the rate.
    """

    learning_rate: Positive = 0.05
    lowest_rate: NotNegative = 5e-4
    first: Count = 1
    """Length of the first cycle in epochs."""
    factor: Count = 2
    """How many times longer each cycle is than the one before."""
    momentum: Share = 0.9
    weight_decay: NotNegative = 1e-6
    clip: Positive = 10.0
    """Length at which a trial's whole gradient is cut off."""
    schedule: ClassVar[None] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        number(0, self.learning_rate).checked("lowest_rate", self.lowest_rate)

    def rate(self, epoch: int) -> float:
        """Give the learning rate of an epoch, counted from 0."""
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


class Augmentation(Checked):
    """How training images are changed at random, each by draws of its own; what is 0 is left out.

    Shares are of an image's side or of its range of values.
    """

    crop: Annotated[float, number(0, 0.5)] = 0.0
    """Images are moved by up to this share of a side each way, as if padded and cut out at random."""
    border: Literal["zeros", "reflect"] = "zeros"
    """What lies beyond an image's edge, in crops and under rotation, translation and zoom."""
    flip: Share = 0.0
    """Chance that an image is mirrored left to right; `data.sources` says where that keeps its class."""
    brightness: Share = 0.0
    """What is added to all values, up to this much either way."""
    contrast: Share = 0.0
    """By how much distances from an image's mean grow or shrink at most."""
    rotation: Annotated[float, number(0, 180)] = 0.0
    """Degrees, up to so many either way."""
    translation: Annotated[float, number(0, 0.5)] = 0.0
    """By how much images are moved at most, in fractions of pixels too."""
    zoom: Annotated[float, number(0, 0.9)] = 0.0
    """By how much images grow or shrink at most."""
    cutout: Share = 0.0
    """Side of a square about any pixel that is set to 0 (DeVries, Taylor 2017)."""


class TrainingSettings(Checked):
    """The loss of SHELS and how long to descend it. Exactly one of `epochs` and `steps` is given."""

    optimiser: Optimiser = field(default_factory=Adam)
    batch_size: Count = 32
    epochs: Count | None = None
    """Length in passes over the data, validation after each; the paper's way."""
    steps: Count | None = None
    """Length in optimiser steps at most, validation every `check_every`, whatever the size of the data."""
    steps_by_root: Positive | None = None
    """Of few samples fewer steps: at most so many times the square root of their number, and a third of that
    of vectors, whose features need not be learned. None: `steps`, whatever the samples."""
    check_every: Count = 100
    """Steps between validations where the length is in steps."""
    patience: Count | None = None
    """Validations without improvement before training stops early; None never stops early."""
    alpha: NotNegative = 1e-3
    """Weight of the group sparsity."""
    depth_weights: Literal["layer-wise", "late", "constant"] = "layer-wise"
    """μ: less sparsity with depth, counted from the first layer or (authors' code) from the second, or the
    same in every layer."""
    validation_share: Annotated[float, number(0, 0.9, over=True)] = 0.12
    """Share of each class held out of training, to select the model and to calibrate thresholds."""
    keep: Literal["best", "last"] = "best"
    """Which weights count: those of the lowest loss on validation data, or the last."""
    validation: Literal["held-out", "trained"] = "held-out"
    """Whether what is held out stays out of training, or is trained on as well (authors' code)."""
    augmentation: Augmentation | None = None
    """How images are changed at random in training, and nowhere else; None shows them as they are."""

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.steps is None):
            raise SettingsError(f"give either epochs or steps, got {'both' if self.epochs else 'neither'}")
        super().__post_init__()


class MeanMinusSd(Checked, kind="mean-minus-sd"):
    """The paper's rule: a class's mean score less `k` standard deviations, over its training samples."""

    k: NotNegative = 1.0
    calibrated_on: Literal["training", "held-out"] = "training"
    """Samples that thresholds of SHELS's score are set on; the paper's are training samples."""
    new_class: Literal["own score", "all scores"] = "own score"
    """What a new class's threshold is set on: its samples' scores on it, or (authors' code) on all."""


class AcceptShare(Checked, kind="accept-share"):
    """Accept this share of what is assigned to each known class, calibrated on held-out samples."""

    share: Annotated[
        float, number(0, 1, over=True), Rule("under 1 (at 1 nothing is ever novel)", lambda value: value < 1)
    ] = 0.95
    calibration: Literal["held-out", "separate"] = "held-out"
    """Samples that thresholds are set on: all that are held out, or a half of them that chose nothing. The
    other half then chooses the network, and a threshold may lie between two scores."""


ThresholdRule: TypeAlias = MeanMinusSd | AcceptShare
