"""A choice that the paper leaves open, or its authors' code makes otherwise, as a change of experiments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from shels.config import Settings
from shels.experiments.trials import MeasuredOn

MARK = "@"
"""What stands between an experiment's name and a variant's."""


@dataclass(frozen=True)
class Variant:
    """One choice, and what becomes of experiments where it is made the other way.

    label: a few words for titles. text, code: what the paper's text says, and what its authors' code does.
    ours: what is the default here; default: which of the two that is.
    experiments: those that it is run on, by name. changes: settings by their whole names, with their values.
    measured_on: which images. methods: those that it concerns; none named are all of the task.
    against: the method of the plain experiment to compare with, where the variant is a method of its own.
    measures: a measure that every detection trial records for this choice, and the one to compare it with.
    family: "paper" is reported beside its experiment, "fidelity" is run with all of its kind, "apart" alone.
    effect: why nothing is measured, where nothing is.
    """

    name: str
    label: str
    text: str
    code: str
    ours: str
    default: Literal["text", "code", "both", "neither"]
    experiments: tuple[str, ...] = ()
    changes: Mapping[str, Any] = field(default_factory=dict, hash=False)
    measured_on: MeasuredOn = "test"
    methods: tuple[str, ...] = ()
    against: str = ""
    measures: tuple[str, str] | None = None
    family: Literal["paper", "fidelity", "apart"] = "fidelity"
    effect: str = ""

    @property
    def setting(self) -> str:
        """What switches it, as it is written in settings; empty where nothing does."""
        parts = [f"{name} = {value!r}" for name, value in self.changes.items()]
        parts += [f"measured_on = {self.measured_on!r}"] if self.measured_on != "test" else []
        parts += [f"method {self.methods[0]}"] if self.against else []
        parts += [f"measure {self.measures[0]}"] if self.measures else []
        return ", ".join(parts)

    @property
    def sentence(self) -> str:
        """The whole choice in one go."""
        return f"The text: {self.text}. The code: {self.code}. Ours: {self.ours}."

    def applied(self, settings: Settings) -> Settings:
        """Give settings with the variant's changes."""
        for name, value in self.changes.items():
            part, _, setting = name.partition(".")
            changed = replace(getattr(settings, part), **{setting: value})
            settings = replace(settings, **{part: changed})
        return settings


def base_name(experiment: str) -> str:
    """Give the name of the experiment that this is a variant of, or its own.

    >>> base_name("within/gtsrb@trained-images"), base_name("within/gtsrb")
    ('within/gtsrb', 'within/gtsrb')
    """
    return experiment.partition(MARK)[0]
