"""Trials: what an experiment is made of, and what each leaves behind, as plain values."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

from shels.config import Precision, Settings, from_dict, to_dict
from shels.data.samples import Label
from shels.detection import measures
from shels.errors import DataError, unknown_name

MEASURES = tuple(key for key, measure in measures.MEASURES.items() if measure.in_detection)
"""The paper's four, in the order of its tables."""

LEARNING_MEASURES = tuple(key for key, measure in measures.MEASURES.items() if measure.in_learning)
"""Of learning class by class: final accuracy over all classes, that of the classes taken in, how much was
lost, the final accuracy with rejection, and how well each new class was told from the known ones before."""

OPEN_WORLD_MEASURES = tuple(key for key, measure in measures.MEASURES.items() if measure.in_open_world)
"""Of an agent without boundaries: accuracy over all classes at the end, the same with rejection, how many
novel classes it found and how soon, how often known ones alarmed it, and how its names fit the truth."""

FEW_SHOT_MEASURES = ("closed_set_accuracy", "added_accuracy", "false_alarm_rate", "added_false_alarm_rate")
"""Of learning from few images: accuracy over all classes and of those taken in, and how many of their test
samples are judged novel."""

OPEN_SET_MEASURES = ("closed_set_accuracy", "auroc")
"""What the open-set literature prints."""

_BY_FAMILY = {
    "few-shot": FEW_SHOT_MEASURES,
    "osr": OPEN_SET_MEASURES,
    "exclusivity": ("exclusivity",),
    "incremental": LEARNING_MEASURES,
    "open-world": OPEN_WORLD_MEASURES,
}


MeasuredOn: TypeAlias = Literal["test", "novel-training", "trained-images"]
"""Images that a detection trial is measured on: the test set; the test set and, of novel classes, the
training set; or a part of the training set by whole groups, known and novel classes alike."""

_LATER: dict[str, Any] = {"measured_on": "test", "images": None}
"""What came later, left out of an identity where it is as before: trials that were recorded stay the same."""


def measures_of(experiment: str) -> tuple[str, ...]:
    """Return the measures that an experiment's tables show, by its name."""
    return _BY_FAMILY.get(experiment.partition("/")[0], MEASURES)


@dataclass(frozen=True)
class Trial:
    """One training and one measurement: everything that decides its figures, and nothing else.

    experiment: "within/fmnist". method: "shels". seed: the number of the trial, from 0; trials of one
    experiment with the same seed share their split, whatever their method.
    known_data, novel_data: names of the data sets that the known and the novel classes come from.
    known, novel: those classes, in the order of the labels.
    precision: what convolutions multiply in, "float32" or on a GPU also "bfloat16".
    measured_on: which images; it decides nothing of the training. images: how many of each novel class are
    learned from; None for all.
    """

    experiment: str
    method: str
    seed: int
    known_data: str
    novel_data: str
    known: tuple[Label, ...]
    novel: tuple[Label, ...]
    settings: Settings
    precision: Precision = "float32"
    measured_on: MeasuredOn = "test"
    images: int | None = None

    def identity(self) -> dict[str, Any]:
        """Return what tells this trial from every other, as plain data; a changed setting changes it."""
        plain = {name: getattr(self, name) for name in Trial.__dataclass_fields__}
        plain |= {"known": list(self.known), "novel": list(self.novel)}
        for name in [name for name, before in _LATER.items() if plain[name] == before]:
            del plain[name]
        return plain | {"settings": to_dict(self.settings)}

    @cached_property
    def key(self) -> str:
        """A digest of the identity: two trials with the same key are the same trial."""
        text = json.dumps(self.identity(), sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()

    @staticmethod
    def from_identity(data: Mapping[str, Any]) -> Trial:
        """Return the trial that `identity` told of."""
        try:
            values = {name: {**_LATER, **data}[name] for name in Trial.__dataclass_fields__}
        except KeyError as error:
            raise DataError(f"a record of a trial lacks {error.args[0]!r}") from error
        if not isinstance(values["seed"], int):
            raise DataError(f"a record's seed must be a whole number, got {values['seed']!r}")
        if values["measured_on"] not in get_args(MeasuredOn):
            raise DataError(unknown_name("part to measure on", values["measured_on"], get_args(MeasuredOn)))
        images = values["images"]
        if images is not None and (not isinstance(images, int) or isinstance(images, bool) or images < 1):
            raise DataError(f"a record's images must be a whole number, 1 or more, got {images!r}")
        values["known"], values["novel"] = tuple(values["known"]), tuple(values["novel"])
        return Trial(**values | {"settings": from_dict(values["settings"])})


@dataclass(frozen=True)
class TrialResult:
    """What a trial came to.

    metrics: fractions 0-1, the paper's four among them. details: what a report draws: "per_class" and
    "per_novel_class" ({class: {"samples": n, rate: share}}), "exclusivity" (a matrix), "checks" (how training
    went, a table of `Check` fields per validation), "stages" (seconds by stage), "stacked" (how many trials
    were trained together), "precision". seconds: this trial's share of the time of all trained together.
    versions: of shels, torch, python.
    """

    trial: Trial
    metrics: dict[str, float]
    seconds: float
    device: str
    versions: dict[str, str]
    details: dict[str, Any] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """Return the result as plain data, one line of a log."""
        own = {name: getattr(self, name) for name in ("metrics", "seconds", "device", "versions", "details")}
        return self.trial.identity() | own

    @staticmethod
    def from_record(data: Mapping[str, Any]) -> TrialResult:
        """Return the result that `record` told of."""
        trial = Trial.from_identity(data)
        try:
            return TrialResult(
                trial,
                {name: float(value) for name, value in data["metrics"].items()},
                float(data["seconds"]),
                str(data["device"]),
                dict(data["versions"]),
                dict(data.get("details", {})),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"a record of {trial.experiment} cannot be read: {error}") from error
