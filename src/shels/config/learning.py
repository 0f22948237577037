"""The ways to take in a class, each with its settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from shels.config.checks import number, one_of, require, whole


@dataclass(frozen=True)
class Gaussian:
    """Take a class in as a Gaussian on features that the network has: one pass, no gradient step."""

    kind: ClassVar[str] = "gaussian"
    features: int = 512
    """How many values of the shared features to keep at most: their main directions at `fit`."""

    def __post_init__(self) -> None:
        whole(self, "features")
        require(self.features <= 2048, "features", "at most 2048", self.features)


@dataclass(frozen=True)
class Penalty:
    """Take a class in by training, as the paper prints it: changes to important units cost."""

    kind: ClassVar[str] = "penalty"
    beta: float = 2000.0
    """Weight of the penalty on changes."""
    rate_divisor: float = 10.0
    """What the learning rate of the base training is divided by."""
    epochs: int = 8
    """Passes over the new class's samples; the paper does not say, the authors' code takes 8."""
    importance: Literal["mean", "map-norm"] = "mean"
    """A convolution unit's importance: its mean activation, or the norm of its mean map (authors' code)."""
    tolerance: float = 0.0
    """A unit is unused up to this share of its layer's greatest importance."""
    grow: int = 0
    """Units added to the last hidden layer before a class is taken in."""

    def __post_init__(self) -> None:
        number(self, "beta", 0)
        number(self, "rate_divisor", 0, over=True)
        whole(self, "epochs")
        one_of(self, "importance", "mean", "map-norm")
        number(self, "tolerance", 0, 1)
        whole(self, "grow", 0)


@dataclass(frozen=True)
class Proximal:
    """Take a class in by training with exact protection, against samples of the old classes' Gaussians."""

    kind: ClassVar[str] = "proximal"
    steps: int = 300
    learning_rate: float = 1e-3
    batch_size: int = 64
    """Samples of the new class in a step."""
    replay: int = 192
    """Samples of the old classes' Gaussians in a step, all classes together."""
    grow: int = 64
    """Free units that a new class takes in each linear layer, added where there are fewer.

    0 adds none and takes all that are free.
    """
    alpha: float = 0.3
    """Weight of the sparsity, in proximal steps, on the units that a new class reads; 0 leaves it out."""
    rank: int = 256
    """Directions kept of a class's covariance at most; fewer where a class would cost over 2 MB."""
    base_alpha: float = 1.0
    """α of the sparsity in the first training, there too in proximal steps; 0 leaves it in the loss."""
    own_share: float = 0.95
    """Share of the new class's samples that must score highest on it, over what old classes score there."""

    def __post_init__(self) -> None:
        whole(self, "steps")
        number(self, "learning_rate", 0, over=True)
        whole(self, "batch_size")
        whole(self, "replay")
        whole(self, "grow", 0)
        number(self, "alpha", 0)
        whole(self, "rank")
        number(self, "base_alpha", 0)
        number(self, "own_share", 0, 1)


# Rivals --------------------------------------------------------------------------------------------------

Where = Literal["shared", "high"]
"""Which features a classifier on top stands on: the flattened ones after the convolutions, or the last."""


@dataclass(frozen=True)
class Maha:
    """A mean for each class and one covariance (Lee et al.): a new class is a new mean, Σ is updated."""

    kind: ClassVar[str] = "maha"
    features: Where = "shared"
    """On the features that the last layer sees it names new classes worse (docs/log.md)."""

    def __post_init__(self) -> None:
        one_of(self, "features", "shared", "high")


@dataclass(frozen=True)
class Slda:
    """Streaming linear discriminant analysis (Hayes, Kanan) on features that stay as they are."""

    kind: ClassVar[str] = "slda"
    features: Where = "shared"
    shrinkage: float = 1e-4
    """ε of Λ = ((1 - ε) Σ + ε v I)⁻¹, v the features' mean variance."""

    def __post_init__(self) -> None:
        one_of(self, "features", "shared", "high")
        number(self, "shrinkage", 0, 1, over=True)


@dataclass(frozen=True)
class Fecam:
    """A mean and a covariance for each class, normalised so that classes compare (Goswami et al.)."""

    kind: ClassVar[str] = "fecam"
    features: Where = "shared"
    power: float = 0.5
    """λ of Tukey's transformation of features, f^λ."""
    shrinkage: float = 3.0
    """How much of the mean variance is added to the diagonal, and of the mean covariance off it.

    The authors add 1 twice, which comes to 3.
    """

    def __post_init__(self) -> None:
        one_of(self, "features", "shared", "high")
        number(self, "power", 0, 1, over=True)
        number(self, "shrinkage", 0, over=True)


@dataclass(frozen=True)
class Ranpac:
    """Ridge regression on a random, rectified projection of features (McDonnell et al.)."""

    kind: ClassVar[str] = "ranpac"
    features: Where = "shared"
    projections: int = 4096
    """M: how many random directions; each costs memory by the square."""

    def __post_init__(self) -> None:
        one_of(self, "features", "shared", "high")
        whole(self, "projections")


@dataclass(frozen=True)
class AgsCl:
    """Proximal steps that clear unused units and hold used ones (Jung et al.), with a single head."""

    kind: ClassVar[str] = "ags-cl"
    mu: float = 1e-3
    """Weight of the sparsity of unused units; α of the SHELS experiment it is compared with."""
    lam: float = 2000.0
    """Weight of the pull of used units to where they were; β of that experiment."""
    rate_divisor: float = 10.0
    """What the learning rate of the first training is divided by."""
    epochs: int = 8
    decay: float = 0.9
    """What earlier importance is multiplied by when a class was learned."""
    refresh: float = 0.3
    """ρ, the share of the unused units that begin afresh after a class was learned; the authors' code's."""

    def __post_init__(self) -> None:
        for name in ("mu", "lam"):
            number(self, name, 0)
        number(self, "rate_divisor", 0, over=True)
        whole(self, "epochs")
        number(self, "decay", 0, 1)
        number(self, "refresh", 0, 1)


@dataclass(frozen=True)
class Ewc:
    """Elastic weight consolidation (Kirkpatrick et al.): changes cost by their Fisher information."""

    kind: ClassVar[str] = "ewc"
    strength: float = 1e6
    """λ, the weight of the quadratic penalty; the best of 1e4 to 1e7 on MNIST, on trials of their own."""
    epochs: int = 8
    rate_divisor: float = 10.0
    samples: int = 2000
    """How many samples of what was just learned the Fisher information is taken over, at most."""

    def __post_init__(self) -> None:
        number(self, "strength", 0)
        whole(self, "epochs")
        number(self, "rate_divisor", 0, over=True)
        whole(self, "samples")


@dataclass(frozen=True)
class Lwf:
    """Learning without forgetting (Li, Hoiem): old classes' answers on new samples are kept."""

    kind: ClassVar[str] = "lwf"
    strength: float = 100.0
    """Weight of the distillation, λ_o."""
    temperature: float = 2.0
    epochs: int = 8
    rate_divisor: float = 100.0

    def __post_init__(self) -> None:
        number(self, "strength", 0)
        number(self, "temperature", 0, over=True)
        whole(self, "epochs")
        number(self, "rate_divisor", 0, over=True)


@dataclass(frozen=True)
class FineTune:
    """Go on training, on the new class alone: what happens where nothing prevents forgetting."""

    kind: ClassVar[str] = "fine-tune"
    epochs: int = 8
    rate_divisor: float = 1.0

    def __post_init__(self) -> None:
        whole(self, "epochs")
        number(self, "rate_divisor", 0, over=True)


@dataclass(frozen=True)
class Joint:
    """Train afresh on all samples of all classes so far, which are all kept: the upper bound."""

    kind: ClassVar[str] = "joint"


@dataclass(frozen=True)
class Gdumb:
    """A small balanced memory of samples, and training on nothing else (Prabhu et al.)."""

    kind: ClassVar[str] = "gdumb"
    start: Literal["warm", "scratch"] = "warm"
    """From the network as it is (the SHELS paper's protocol) or from a fresh one (the original)."""
    size: int | None = None
    """K, how many samples are kept; None keeps `share` of all seen so far, ten of each class at least."""
    share: float = 0.01
    epochs: int = 63
    """Passes over the memory; 1, 3, 7, 15, 31, 63 … end with a cycle of the learning rate."""
    learning_rate: float = 0.05
    lowest_rate: float = 5e-4
    batch_size: int = 32
    clip: float = 10.0
    """Length at which the gradient is cut off."""
    cutmix: float = 0.0
    """Chance that a batch is mixed by CutMix; the original takes 0.5 on all sets but MNIST."""

    def __post_init__(self) -> None:
        one_of(self, "start", "warm", "scratch")
        _memory(self)
        whole(self, "epochs")
        number(self, "learning_rate", 0, over=True)
        number(self, "lowest_rate", 0, self.learning_rate)
        whole(self, "batch_size")
        number(self, "clip", 0, over=True)
        number(self, "cutmix", 0, 1)


@dataclass(frozen=True)
class ShelsGdumb:
    """The paper's combination: the loss of its accommodation, on that memory."""

    kind: ClassVar[str] = "shels-gdumb"
    beta: float = 1.0
    """Weight of the penalty on changes; the paper gives none for this combination."""
    size: int | None = None
    share: float = 0.01
    epochs: int = 63
    learning_rate: float = 1e-4
    batch_size: int = 32

    def __post_init__(self) -> None:
        number(self, "beta", 0)
        _memory(self)
        whole(self, "epochs")
        number(self, "learning_rate", 0, over=True)
        whole(self, "batch_size")


def _memory(settings: Gdumb | ShelsGdumb) -> None:
    if settings.size is not None:
        whole(settings, "size", 2)
    number(settings, "share", 0, 1, over=True)


Accommodation: TypeAlias = (
    Gaussian
    | Penalty
    | Proximal
    | Maha
    | Slda
    | Fecam
    | Ranpac
    | AgsCl
    | Ewc
    | Lwf
    | FineTune
    | Joint
    | Gdumb
    | ShelsGdumb
)
