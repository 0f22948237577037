"""What model.json holds: every field with the range of its value."""

from __future__ import annotations

import math
from typing import Any

from shels import schema
from shels.errors import ModelFileError
from shels.schema import listed, record, text, whole
from shels.training.checkpoints import CHECK

_SHARE, _SECONDS = schema.number(0, 1), schema.number(0, 1e12)
_TAKEN_IN = record(
    {"class": schema.label, "images": whole(1), "method": text(), "seconds": _SECONDS}, others=schema.plain
)
_REPORT = record(
    {
        "training_samples": whole(1),
        "held_out_samples": whole(1),
        "best": CHECK,
        "checks": listed(CHECK, least=1),
        "stopped_early": schema.flag,
        "seconds": _SECONDS,
        "held_out": record({"acceptance": _SHARE, "closed_set_accuracy": _SHARE}, others=schema.plain),
        "held_out_acceptance": _SHARE,
        "exclusivity": _SHARE,
        "taken_in": listed(_TAKEN_IN),
    },
    optional={
        "last_change": record({"kind": text()}, others=schema.plain),
        "acceptance_measured_at": text("training|rule-set|not-novel"),
    },
    others=schema.plain,
)
_DIGEST = text("[0-9a-f]{64}")
_PARTS = ("network", "preparation", "detector", "memory", "projection")
_MOST = {"epochs": 10**5, "steps": 10**8, "projections": 2**15, "rectified": 2**14, "image_size": 2**13}
"""Whole numbers in settings that decide how long something takes or how much room it needs."""


def _settings(value: Any, where: str) -> None:
    """Check what no settings of ours go beyond; their own rules are checked when they are made."""
    schema.plain(value, where)
    for name, each in value.items() if isinstance(value, dict) else ():
        if isinstance(each, dict):
            _settings(each, f"{where}.{name}")
        elif isinstance(each, int):
            whole(0, _MOST.get(name, 10**7))(int(each), f"{where}.{name}")


DOCUMENT: schema.Check = record(
    {
        "shels_version": text(),
        "classes": listed(schema.label, least=2),
        "taught": listed(schema.or_none(schema.label), least=2),
        "thresholds": listed(schema.number(-3.5e38, 3.5e38), least=2),
        "settings": _settings,
        "seed": whole(0),
        "temperature": schema.number(1e-9, 1e9),  # what fitting it can come to
        "novel_label": schema.or_none(schema.label),
        "preparation": record({"shape": listed(whole(1, 2**16), least=1), "image_fit": text("resize|pad")}),
        "network": listed(schema.plain, least=1),
        "files": record({**dict.fromkeys(_PARTS, _DIGEST), "class": listed(_DIGEST)}),
        "report": _REPORT,
    },
    others=schema.plain,
)


def check_document(document: dict[str, Any]) -> None:
    """Raise unless model.json has every field with a value in its range, and its classes agree."""
    DOCUMENT(document, "model.json:")
    classes, taught = document["classes"], [name for name in document["taught"] if name is not None]
    thresholds, novel = document["thresholds"], document["novel_label"]
    if len(set(classes)) != len(classes) or len(thresholds) != len(classes):
        raise ModelFileError(f"model.json has {len(thresholds)} thresholds for the classes {classes}")
    if len(set(taught)) != len(taught) or not set(taught) <= set(classes):
        raise ModelFileError(f"model.json: taught must name classes, each once, got {taught}")
    if novel is not None and novel in classes:
        raise ModelFileError(f"model.json: novel_label {novel!r} is one of the classes")
    if math.prod(document["preparation"]["shape"]) > 2**26:
        raise ModelFileError("model.json: preparation.shape is more than any input has")
