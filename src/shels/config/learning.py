"""The ways to take in a class, each with its settings."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from shels.config.checks import (
    Checked,
    Count,
    CountOrZero,
    NotNegative,
    Positive,
    Rule,
    Share,
    ShareOverZero,
    number,
    whole,
)
from shels.errors import SettingsError


class Gaussian(Checked, kind="gaussian"):
    """Take a class in as a Gaussian on features that the network has: one pass, no gradient step."""

    features: Annotated[int, whole(), Rule("at most 2048", lambda value: value <= 2048)] = 512
    """How many values of the shared features to keep at most: their main directions at `fit`."""
    rectified: Annotated[int, whole(0), Rule("at most 16384", lambda value: value <= 16384)] = 0
    """Random, rectified projections of those values on which classes are named; 0 names them by the values.

    More name classes better, and a class then costs 258 numbers a projection: 4 MB with 4096.
    """
    near: Annotated[int, whole(), Rule("at most 2048", lambda value: value <= 2048)] = 128
    """How many of those values tell known from novel at most, the main directions first."""
    distance: Literal["farther", "sum"] = "farther"
    """How far a sample is: by the layer, shared or high-level, on which it lies farther, or by both."""
    deviation: Literal["own", "common"] = "own"
    """What log distances from one of the first classes are measured by: the standard deviation of its own
    held-out samples, drawn to that of all classes, or that of all. A score or two dozen say little of it, and
    novel samples lie many of them away."""
    within: Literal["samples", "classes"] = "samples"
    """What counts alike in the spread within classes, by which these are named: samples, or classes, where
    one of few samples counts for up to four times as many."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.within == "classes" and self.rectified:
            raise SettingsError(
                f"within 'classes' names classes by the shared features themselves: rectified must be 0, got "
                f"{self.rectified}"
            )


class Penalty(Checked, kind="penalty"):
    """Take a class in by training, as the paper prints it: changes to important units cost."""

    beta: NotNegative = 2000.0
    """Weight of the penalty on changes."""
    rate_divisor: Positive = 10.0
    """What the learning rate of the base training is divided by."""
    epochs: Count = 8
    """Passes over the new class's samples; the paper does not say, the authors' code takes 8."""
    importance: Literal["mean", "map-norm"] = "mean"
    """A convolution unit's importance: its mean activation, or the norm of its mean map (authors' code)."""
    tolerance: Share = 0.0
    """A unit is unused up to this share of its layer's greatest importance."""
    grow: CountOrZero = 0
    """Units added to the last hidden layer before a class is taken in."""
    merging: Literal["average", "sum"] = "average"
    """How importance goes on with a class: the mean over all samples, or means added up (authors' code)."""
    zeroed: Literal["held", "once", "never"] = "held"
    """Weights from unused to used units: held at 0 while a class is learned, or set to 0 at its beginning and
    free from then on (authors' code), or left as they are."""


class Proximal(Checked, kind="proximal"):
    """Take a class in by training with exact protection, against samples of the old classes' Gaussians."""

    steps: Count = 300
    learning_rate: Positive = 1e-3
    batch_size: Count = 64
    """Samples of the new class in a step."""
    replay: Count = 192
    """Samples of the old classes' Gaussians in a step, all classes together."""
    grow: CountOrZero = 64
    """Free units that a new class takes in each linear layer, added where there are fewer.

    0 adds none and takes all that are free.
    """
    alpha: NotNegative = 0.3
    """Weight of the sparsity, in proximal steps, on the units that a new class reads; 0 leaves it out."""
    rank: Count = 256
    """Directions kept of a class's covariance at most; fewer where a class would cost over 2 MB."""
    base_alpha: NotNegative = 1.0
    """α of the sparsity in the first training, there too in proximal steps; 0 leaves it in the loss."""
    own_share: Share = 0.95
    """Share of the new class's samples that must score highest on it, over what old classes score there."""


# Rivals --------------------------------------------------------------------------------------------------

Where: TypeAlias = Literal["shared", "high"]
"""Which features a classifier on top stands on: the flattened ones after the convolutions, or the last."""

MemorySize: TypeAlias = Annotated[int, whole(2)] | None


class Maha(Checked, kind="maha"):
    """A mean for each class and one covariance (Lee et al.): a new class is a new mean, Σ is updated."""

    features: Where = "shared"
    """On the features that the last layer sees it names new classes worse (docs/log.md)."""


class Slda(Checked, kind="slda"):
    """Streaming linear discriminant analysis (Hayes, Kanan) on features that stay as they are."""

    features: Where = "shared"
    shrinkage: ShareOverZero = 1e-4
    """ε of Λ = ((1 - ε) Σ + ε v I)⁻¹, v the features' mean variance."""


class Fecam(Checked, kind="fecam"):
    """A mean and a covariance for each class, normalised so that classes compare (Goswami et al.)."""

    features: Where = "shared"
    power: ShareOverZero = 0.5
    """λ of Tukey's transformation of features, f^λ."""
    shrinkage: Positive = 3.0
    """How much of the mean variance is added to the diagonal, and of the mean covariance off it.

    The authors add 1 twice, which comes to 3.
    """


class Ranpac(Checked, kind="ranpac"):
    """Ridge regression on a random, rectified projection of features (McDonnell et al.)."""

    features: Where = "shared"
    projections: Count = 4096
    """M: how many random directions; each costs memory by the square."""


class AgsCl(Checked, kind="ags-cl"):
    """Proximal steps that clear unused units and hold used ones (Jung et al.), with a single head."""

    mu: NotNegative = 1e-3
    """Weight of the sparsity of unused units; α of the SHELS experiment it is compared with."""
    lam: NotNegative = 2000.0
    """Weight of the pull of used units to where they were; β of that experiment."""
    rate_divisor: Positive = 10.0
    """What the learning rate of the first training is divided by."""
    epochs: Count = 8
    decay: Share = 0.9
    """What earlier importance is multiplied by when a class was learned."""
    refresh: Share = 0.3
    """ρ, the share of the unused units that begin afresh after a class was learned; the authors' code's."""


class Ewc(Checked, kind="ewc"):
    """Elastic weight consolidation (Kirkpatrick et al.): changes cost by their Fisher information."""

    strength: NotNegative = 1e6
    """λ, the weight of the quadratic penalty; the best of 1e4 to 1e7 on MNIST, on trials of their own."""
    epochs: Count = 8
    rate_divisor: Positive = 10.0
    samples: Count = 2000
    """How many samples of what was just learned the Fisher information is taken over, at most."""


class Lwf(Checked, kind="lwf"):
    """Learning without forgetting (Li, Hoiem): old classes' answers on new samples are kept."""

    strength: NotNegative = 100.0
    """Weight of the distillation, λ_o."""
    temperature: Positive = 2.0
    epochs: Count = 8
    rate_divisor: Positive = 100.0


class FineTune(Checked, kind="fine-tune"):
    """Go on training, on the new class alone: what happens where nothing prevents forgetting."""

    epochs: Count = 8
    rate_divisor: Positive = 1.0


class Joint(Checked, kind="joint"):
    """Train afresh on all samples of all classes so far, which are all kept: the upper bound."""

    trains: Literal["at every class", "at the last class"] = "at every class"
    """When an experiment trains it: the last class's figure alone is the bound, and on a large data set the
    trainings before it cost as much again for each class."""


class Gdumb(Checked, kind="gdumb"):
    """A small balanced memory of samples, and training on nothing else (Prabhu et al.)."""

    start: Literal["warm", "scratch"] = "warm"
    """From the network as it is (the SHELS paper's protocol) or from a fresh one (the original)."""
    size: MemorySize = None
    """K, how many samples are kept; None keeps `share` of all seen so far, ten of each class at least."""
    share: ShareOverZero = 0.01
    epochs: Count = 63
    """Passes over the memory; 1, 3, 7, 15, 31, 63 … end with a cycle of the learning rate."""
    learning_rate: Positive = 0.05
    lowest_rate: NotNegative = 5e-4
    batch_size: Count = 32
    clip: Positive = 10.0
    """Length at which the gradient is cut off."""
    cutmix: Share = 0.0
    """Chance that a batch is mixed by CutMix; the original takes 0.5 on all sets but MNIST."""

    def __post_init__(self) -> None:
        super().__post_init__()
        number(0, self.learning_rate).checked("lowest_rate", self.lowest_rate)


class ShelsGdumb(Checked, kind="shels-gdumb"):
    """The paper's combination: the loss of its accommodation, on that memory."""

    beta: NotNegative = 1.0
    """Weight of the penalty on changes; the paper gives none for this combination."""
    size: MemorySize = None
    share: ShareOverZero = 0.01
    epochs: Count = 63
    learning_rate: Positive = 1e-4
    batch_size: Count = 32


Accommodation: TypeAlias = (
    Gaussian | Penalty | Proximal | Maha | Slda | Fecam | Ranpac | AgsCl | Ewc | Lwf | FineTune | Joint
    | Gdumb | ShelsGdumb
)  # fmt: skip
