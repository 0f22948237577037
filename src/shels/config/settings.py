"""All settings as one value, and as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields, replace
from typing import Any, get_args

from shels.config.checks import Checked, Name
from shels.config.learning import Accommodation, Gaussian
from shels.config.stages import (
    Augmentation,
    Cosine,
    NetworkSettings,
    Optimiser,
    ThresholdRule,
    TrainingSettings,
)
from shels.errors import SettingsError, unknown_name

OWN = "own"


class Settings(Checked):
    """Everything that decides what a learner becomes, beside its data and its seed."""

    network: NetworkSettings
    training: TrainingSettings
    rule: ThresholdRule
    accommodation: Accommodation = field(default_factory=Gaussian)
    detector: Name = OWN
    """What tells novel samples: a score of `shels.detection`, or the one that goes with the accommodation."""


KINDS: dict[str, dict[str, Any]] = {
    "optimiser": {each.kind: each for each in get_args(Optimiser)},
    "schedule": {Cosine.kind: Cosine},
    "rule": {each.kind: each for each in get_args(ThresholdRule)},
    "accommodation": {each.kind: each for each in get_args(Accommodation)},
}
"""What a choice can be, by the `kind` that plain data call it by."""
_LATER: dict[str, Any] = {
    "detector": OWN,
    "keep": "best",
    "validation": "held-out",
    "calibrated_on": "training",
    "calibration": "held-out",
    "new_class": "own score",
    "merging": "average",
    "zeroed": "held",
    "trains": "at every class",
    "rectified": 0,
    "near": 128,
    "distance": "farther",
    "deviation": "own",
    "within": "samples",
    "scale": 1.0,
    "schedule": None,
    "decoupled_decay": 0.0,
    "augmentation": None,
    "backbone": None,
    "frozen": False,
    "steps_by_root": None,
}
"""Settings that came later, left out of plain data where nothing was chosen: what was stored stays valid.

A name here is that of one setting in the whole tree.
"""
_PARTS: dict[str, Any] = {
    "network": NetworkSettings,
    "training": TrainingSettings,
    "augmentation": Augmentation,
}


def overridden(settings: Settings, network: Mapping[str, Any], training: Mapping[str, Any]) -> Settings:
    """Replace those settings of the network and the training that are given, that is, are not None.

    Of the length in epochs and in steps, the one given takes the other's place, and holds however few samples
    there are; `learning_rate` is the optimiser's.

    >>> from shels.config.presets import DEFAULT
    >>> made = overridden(DEFAULT, {"image_size": None}, {"epochs": 3, "learning_rate": 0.5})
    >>> made.training.epochs, made.training.steps, made.training.optimiser.learning_rate
    (3, None, 0.5)
    """
    shown, given = ({k: v for k, v in some.items() if v is not None} for some in (network, training))
    rate = given.pop("learning_rate", None)
    if rate is not None:
        given["optimiser"] = replace(settings.training.optimiser, learning_rate=rate)
    if "epochs" in given or "steps" in given:
        given = {"epochs": None, "steps": None, "steps_by_root": None} | given
    return replace(
        settings, network=replace(settings.network, **shown), training=replace(settings.training, **given)
    )


def to_dict(settings: object) -> dict[str, Any]:
    """Write settings as plain data for JSON, each choice under its `kind`.

    >>> from shels.config import Sgd, TrainingSettings
    >>> to_dict(TrainingSettings(Sgd(), epochs=3))["optimiser"]["kind"]
    'sgd'
    """
    out: dict[str, Any] = {}
    for item in fields(settings):  # type: ignore[arg-type]
        value = getattr(settings, item.name)
        if item.name in _LATER and value == _LATER[item.name]:
            continue
        if item.name in KINDS:
            out[item.name] = {"kind": value.kind, **to_dict(value)}
        elif item.name in _PARTS:
            out[item.name] = to_dict(value)
        else:
            out[item.name] = value
    return out


def from_dict(data: Mapping[str, Any], kind: Any = Settings) -> Any:
    """Read the settings that `to_dict` wrote; unknown or missing names are refused."""
    if not isinstance(data, Mapping):
        raise SettingsError(f"{kind.__name__} must be a table of settings, got {data!r}")
    names = [item.name for item in fields(kind)]
    for name in data:
        if name not in names:
            raise SettingsError(unknown_name("setting", name, names))
    missing = [name for name in names if name not in data and name not in _LATER]
    if missing:
        raise SettingsError(f"{kind.__name__} lacks {', '.join(missing)}")
    values: dict[str, Any] = {}
    for name, value in data.items():
        if name in KINDS:
            values[name] = _choice(name, value)
        else:
            values[name] = from_dict(value, _PARTS[name]) if name in _PARTS else value
    return kind(**values)


def _choice(name: str, data: Any) -> Any:
    kind = data.get("kind") if isinstance(data, Mapping) else None
    if not isinstance(kind, str):
        raise SettingsError(f'{name} must be a table with a "kind", such as {{"kind": "adam"}}, got {data!r}')
    if kind not in KINDS[name]:
        raise SettingsError(unknown_name(name, kind, KINDS[name]))
    return from_dict({key: value for key, value in data.items() if key != "kind"}, KINDS[name][kind])
