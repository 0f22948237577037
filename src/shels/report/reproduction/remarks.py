"""Sentences written by hand: why a figure of ours differs from the published one, and notes on a section.

They stand in `remarks.toml` beside the packed results:

    [[difference]]
    experiment = "within/gtsrb"                    # a name, or a pattern such as "across/gtsrb-*"
    methods = ["shels", "scaled-cosine"]           # left out: every method
    measures = ["known_accuracy"]                  # left out: every measure
    sentence = "The published test set is a part of the training set."

    [notes]
    within = ["A paragraph of Markdown."]          # below the section's introduction
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from shels.errors import DataError

FILE = "remarks.toml"


@dataclass(frozen=True)
class Difference:
    """Why figures of ours lie outside the published interval. All names may be patterns."""

    experiment: str
    sentence: str
    methods: Sequence[str] = ("*",)
    measures: Sequence[str] = ("*",)

    def explains(self, experiment: str, method: str, measure: str) -> bool:
        """Whether it speaks of this figure.

        >>> Difference("across/svhn-*", "…", ["shels"]).explains("across/svhn-gtsrb", "shels", "auroc")
        True
        """
        pairs = (((self.experiment,), experiment), (self.methods, method), (self.measures, measure))
        return all(any(fnmatchcase(name, each) for each in patterns) for patterns, name in pairs)


@dataclass(frozen=True)
class Remarks:
    """All sentences. notes: paragraphs by the name of their section."""

    differences: Sequence[Difference] = ()
    notes: Mapping[str, Sequence[str]] = field(default_factory=dict)


def read_remarks(directory: Path) -> Remarks:
    """Read the sentences that stand beside packed results; none where there is no such file."""
    path = directory / FILE
    if not path.exists():
        return Remarks()
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    if unknown := {*data} - {"difference", "notes"}:
        raise DataError(f"{path} has {min(unknown)!r}; it may have [[difference]] and [notes]")
    return Remarks(
        [_difference(path, each) for each in data.get("difference", [])],
        {name: [text] if isinstance(text, str) else text for name, text in data.get("notes", {}).items()},
    )


def _difference(path: Path, data: Mapping[str, Any]) -> Difference:
    known = [item.name for item in fields(Difference)]
    if set(data) - set(known) or not {"experiment", "sentence"} <= set(data):
        raise DataError(
            f"{path}: a difference has experiment and sentence, and may have methods and measures, got "
            f"{', '.join(data)}"
        )
    if not str(data["sentence"]).strip():
        raise DataError(f"{path}: the sentence on {data['experiment']} is empty")
    return Difference(**data)
