"""Settings: frozen values, one per stage, checked when they are made and stored with every result."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Literal, TypeAlias

from shels.errors import SettingsError, unknown_name


def _require(condition: object, name: str, rule: str, value: object) -> None:
    if not condition:
        raise SettingsError(f"{name} must be {rule}, got {value!r}")


def _number(settings: object, name: str, low: float, high: float = math.inf, *, over: bool = False) -> None:
    """Check a field that holds a number, and keep it as a plain float."""
    value = getattr(settings, name)
    rule = f"a number over {low:g}" if over else f"a number, {low:g} or more"
    rule += "" if high == math.inf else f" and at most {high:g}"
    plain = math.nan
    if _is_number(value):
        plain = float(value)
    _require((low < plain if over else low <= plain) and plain <= high, name, rule, value)
    object.__setattr__(settings, name, plain)


def _is_number(value: object) -> bool:
    if isinstance(value, numbers.Integral):
        return not isinstance(value, bool) and abs(int(value)) < 10**300
    return isinstance(value, numbers.Real) and math.isfinite(value)


def _count(settings: object, name: str, low: int = 1) -> None:
    """Check a field that holds a whole number, and keep it as a plain int."""
    value = getattr(settings, name)
    ok = isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= low
    _require(ok, name, f"a whole number, {low} or more", value)
    object.__setattr__(settings, name, int(value))


def _one_of(settings: object, name: str, *choices: str) -> None:
    """Check a field that holds one of a few words."""
    value = getattr(settings, name)
    _require(isinstance(value, str) and value in choices, name, " or ".join(f'"{c}"' for c in choices), value)


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
            _count(self, "image_size", 4)
        _require(isinstance(self.architecture, str), "architecture", "a name", self.architecture)
        _require(
            self.weights is None or isinstance(self.weights, str), "weights", "a file's path", self.weights
        )
        _one_of(self, "image_fit", "resize", "pad")
        _one_of(self, "pixels", "unit", "imagenet")
        _one_of(self, "head", "cosine", "linear", "scaled-cosine")


@dataclass(frozen=True)
class Adam:
    """Adam, as torch has it."""

    kind: ClassVar[str] = "adam"
    learning_rate: float = 1e-4

    def __post_init__(self) -> None:
        _number(self, "learning_rate", 0, over=True)

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
        _number(self, "learning_rate", 0, over=True)
        _number(self, "momentum", 0, 1)
        _number(self, "weight_decay", 0)
        _number(self, "decay", 1)
        _count(self, "decay_epochs")

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 0."""
        return float(self.learning_rate / self.decay ** (epoch // self.decay_epochs))


Optimiser: TypeAlias = Adam | Sgd

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
        _count(self, "batch_size")
        if (self.epochs is None) == (self.steps is None):
            raise SettingsError(f"give either epochs or steps, got {'both' if self.epochs else 'neither'}")
        for name in ("epochs", "steps", "patience"):
            if getattr(self, name) is not None:
                _count(self, name)
        _require(isinstance(self.optimiser, Adam | Sgd), "optimiser", "Adam(...) or Sgd(...)", self.optimiser)
        _count(self, "check_every")
        _number(self, "alpha", 0)
        _one_of(self, "depth_weights", "layer-wise", "constant")
        _number(self, "validation_share", 0, 0.9, over=True)


@dataclass(frozen=True)
class MeanMinusSd:
    """The paper's rule: a class's mean score less `k` standard deviations, over its training samples."""

    kind: ClassVar[str] = "mean-minus-sd"
    k: float = 1.0

    def __post_init__(self) -> None:
        _number(self, "k", 0)


@dataclass(frozen=True)
class AcceptShare:
    """Accept this share of what is assigned to each known class, calibrated on held-out samples."""

    kind: ClassVar[str] = "accept-share"
    share: float = 0.95

    def __post_init__(self) -> None:
        _number(self, "share", 0, 1, over=True)
        _require(self.share < 1, "share", "under 1 (at 1 nothing is ever novel)", self.share)


ThresholdRule: TypeAlias = MeanMinusSd | AcceptShare


@dataclass(frozen=True)
class Gaussian:
    """Take a class in as a Gaussian on features that the network has: one pass, no gradient step."""

    kind: ClassVar[str] = "gaussian"
    features: int = 512
    """How many values of the shared features to keep at most: their main directions at `fit`."""

    def __post_init__(self) -> None:
        _count(self, "features")
        _require(self.features <= 2048, "features", "at most 2048", self.features)


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
        _number(self, "beta", 0)
        _number(self, "rate_divisor", 0, over=True)
        _count(self, "epochs")
        _one_of(self, "importance", "mean", "map-norm")
        _number(self, "tolerance", 0, 1)
        _count(self, "grow", 0)


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
        _count(self, "steps")
        _number(self, "learning_rate", 0, over=True)
        _count(self, "batch_size")
        _count(self, "replay")
        _count(self, "grow", 0)
        _number(self, "alpha", 0)
        _count(self, "rank")
        _number(self, "base_alpha", 0)
        _number(self, "own_share", 0, 1)


Accommodation: TypeAlias = Gaussian | Penalty | Proximal


@dataclass(frozen=True)
class Settings:
    """Everything that decides what a learner becomes, beside its data and its seed."""

    network: NetworkSettings
    training: TrainingSettings
    rule: ThresholdRule
    accommodation: Accommodation = field(default_factory=Gaussian)

    def __post_init__(self) -> None:
        _require(isinstance(self.network, NetworkSettings), "network", "NetworkSettings(...)", self.network)
        _require(
            isinstance(self.training, TrainingSettings), "training", "TrainingSettings(...)", self.training
        )
        _require(
            isinstance(self.rule, MeanMinusSd | AcceptShare), "rule", "MeanMinusSd or AcceptShare", self.rule
        )
        _require(
            isinstance(self.accommodation, Gaussian | Penalty | Proximal),
            "accommodation",
            "Gaussian(...), Penalty(...) or Proximal(...)",
            self.accommodation,
        )


_CHOICES: dict[str, dict[str, Any]] = {
    "optimiser": {c.kind: c for c in (Adam, Sgd)},
    "rule": {c.kind: c for c in (MeanMinusSd, AcceptShare)},
    "accommodation": {c.kind: c for c in (Gaussian, Penalty, Proximal)},
}
_PARTS: dict[str, Any] = {"network": NetworkSettings, "training": TrainingSettings}


def to_dict(settings: object) -> dict[str, Any]:
    """Return settings as plain data for JSON, each choice under its `kind`."""
    out: dict[str, Any] = {}
    for item in fields(settings):  # type: ignore[arg-type]
        value = getattr(settings, item.name)
        if item.name in _CHOICES:
            out[item.name] = {"kind": value.kind, **asdict(value)}
        elif item.name in _PARTS:
            out[item.name] = to_dict(value)
        else:
            out[item.name] = value
    return out


def from_dict(data: Mapping[str, Any], kind: Any = Settings) -> Any:
    """Return the settings that `to_dict` gave; unknown or missing names are refused."""
    if not isinstance(data, Mapping):
        raise SettingsError(f"{kind.__name__} must be a table of settings, got {data!r}")
    names = [item.name for item in fields(kind)]
    for name in data:
        if name not in names:
            raise SettingsError(unknown_name("setting", name, names))
    missing = [name for name in names if name not in data]
    if missing:
        raise SettingsError(f"{kind.__name__} lacks {', '.join(missing)}")
    values: dict[str, Any] = {}
    for name, value in data.items():
        if name in _CHOICES:
            values[name] = _choice(name, value)
        else:
            values[name] = from_dict(value, _PARTS[name]) if name in _PARTS else value
    return kind(**values)


def _choice(name: str, data: Any) -> Any:
    kind = data.get("kind") if isinstance(data, Mapping) else None
    if not isinstance(kind, str):
        raise SettingsError(f'{name} must be a table with a "kind", such as {{"kind": "adam"}}, got {data!r}')
    if kind not in _CHOICES[name]:
        raise SettingsError(unknown_name(name, kind, _CHOICES[name]))
    return from_dict({key: value for key, value in data.items() if key != "kind"}, _CHOICES[name][kind])
