"""Settings: frozen values, one per stage, checked when they are made and stored with every result."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Literal, TypeAlias

from shels.errors import SettingsError, unknown_name


def _require(condition: bool, name: str, rule: str, value: object) -> None:
    if not condition:
        raise SettingsError(f"{name} must be {rule}, got {value!r}")


def _require_number(
    name: str, value: object, low: float, high: float = math.inf, *, open_low: bool = False
) -> None:
    ok = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    ok = ok and (low < value if open_low else low <= value) and value <= high  # type: ignore[operator]
    bound = f"over {low:g}" if open_low else f"{low:g} or more"
    _require(ok, name, bound if high == math.inf else f"{bound} and at most {high:g}", value)


def _require_count(name: str, value: object, low: int = 1) -> None:
    ok = isinstance(value, int) and not isinstance(value, bool) and value >= low
    _require(ok, name, f"a whole number, {low} or more", value)


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
    head: Literal["cosine", "linear"] = "cosine"
    """The last layer: the paper's cosine, or an ordinary linear layer to compare with."""
    weights: str | None = None
    """A safetensors file of pretrained weights (VGG16 only)."""

    def __post_init__(self) -> None:
        if self.image_size is not None:
            _require_count("image_size", self.image_size, 4)
        _require(self.image_fit in ("resize", "pad"), "image_fit", '"resize" or "pad"', self.image_fit)
        _require(self.pixels in ("unit", "imagenet"), "pixels", '"unit" or "imagenet"', self.pixels)
        _require(self.head in ("cosine", "linear"), "head", '"cosine" or "linear"', self.head)


@dataclass(frozen=True)
class Adam:
    """Adam, as torch has it."""

    kind: ClassVar[str] = "adam"
    learning_rate: float = 1e-4

    def __post_init__(self) -> None:
        _require_number("learning_rate", self.learning_rate, 0, open_low=True)

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
        _require_number("learning_rate", self.learning_rate, 0, open_low=True)
        _require_number("momentum", self.momentum, 0, 1)
        _require_number("weight_decay", self.weight_decay, 0)
        _require_number("decay", self.decay, 1)
        _require_count("decay_epochs", self.decay_epochs)

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 0."""
        return float(self.learning_rate / self.decay ** (epoch // self.decay_epochs))


Optimiser: TypeAlias = Adam | Sgd


@dataclass(frozen=True)
class TrainingSettings:
    """The loss of Eq. (3) and how long to descend it. Exactly one of `epochs` and `steps` is given."""

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
        _require_count("batch_size", self.batch_size)
        one = (self.epochs is None) != (self.steps is None)
        _require(one, "epochs and steps", "given one without the other", (self.epochs, self.steps))
        for name in ("epochs", "steps", "patience"):
            if getattr(self, name) is not None:
                _require_count(name, getattr(self, name))
        _require_count("check_every", self.check_every)
        _require_number("alpha", self.alpha, 0)
        ok = self.depth_weights in ("layer-wise", "constant")
        _require(ok, "depth_weights", '"layer-wise" or "constant"', self.depth_weights)
        _require_number("validation_share", self.validation_share, 0, 0.9, open_low=True)


@dataclass(frozen=True)
class MeanMinusSd:
    """The paper's rule: a class's mean score less `k` standard deviations, over its training samples."""

    kind: ClassVar[str] = "mean-minus-sd"
    k: float = 1.0

    def __post_init__(self) -> None:
        _require_number("k", self.k, 0)


@dataclass(frozen=True)
class AcceptShare:
    """Accept this share of what is assigned to each known class, calibrated on held-out samples."""

    kind: ClassVar[str] = "accept-share"
    share: float = 0.95

    def __post_init__(self) -> None:
        _require_number("share", self.share, 0, 1, open_low=True)
        _require(self.share < 1, "share", "under 1 (at 1 nothing is ever novel)", self.share)


ThresholdRule: TypeAlias = MeanMinusSd | AcceptShare


@dataclass(frozen=True)
class Settings:
    """Everything that decides what a learner becomes, beside its data and its seed."""

    network: NetworkSettings = field(default_factory=NetworkSettings)
    training: TrainingSettings = field(default_factory=lambda: TrainingSettings(steps=4000, patience=10))
    rule: ThresholdRule = field(default_factory=AcceptShare)


_CHOICES: dict[str, dict[str, Any]] = {
    "optimiser": {c.kind: c for c in (Adam, Sgd)},
    "rule": {c.kind: c for c in (MeanMinusSd, AcceptShare)},
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
    values: dict[str, Any] = {}
    for name, value in data.items():
        if name in _CHOICES:
            values[name] = _choice(name, value)
        else:
            values[name] = from_dict(value, _PARTS[name]) if name in _PARTS else value
    return kind(**values)


def _choice(name: str, data: Any) -> Any:
    table = dict(data) if isinstance(data, Mapping) else {}
    kind = table.pop("kind", None)
    if kind not in _CHOICES[name]:
        raise SettingsError(unknown_name(name, kind, _CHOICES[name]))
    return from_dict(table, _CHOICES[name][kind])
