"""Every exception that shels raises on purpose.

    ShelsError                what to catch to catch them all
    ├── SettingsError         a setting outside its rule, a name that does not exist
    ├── DataError             samples or labels that cannot be used
    │   ├── MissingDataError  a data set or file that is not where it was looked for
    │   └── TooLargeError     an image of more pixels than are allowed
    ├── ArchitectureError     a network that SHELS cannot work on
    ├── TrainingError         a training that cannot give a usable model
    ├── AccommodationError    a class that cannot be taken in, or out again, by the chosen method
    ├── ModelFileError        a saved model or checkpoint that cannot be read
    ├── ExportError           a model that cannot be written as a graph, or whose graph judges otherwise
    ├── ClusterError          a cluster that cannot be reached, or that cannot do the work
    └── MissingExtraError     an optional package that is not installed

Each is also the built-in exception that a caller would expect, so that `except ValueError` works.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches


class ShelsError(Exception):
    """Anything that shels refuses, with a message that says what to do."""


class SettingsError(ShelsError, ValueError):
    """A setting has a value outside its rule, or a name is unknown."""


class DataError(ShelsError, ValueError):
    """Samples or labels cannot be used as they are."""


class MissingDataError(DataError, FileNotFoundError):
    """A data set or file is not where it was looked for."""


class TooLargeError(DataError):
    """An image has more pixels than are allowed."""


class ArchitectureError(ShelsError, ValueError):
    """A network lacks what SHELS needs, or holds what it cannot work on."""


class TrainingError(ShelsError, RuntimeError):
    """Training cannot give a usable model."""


class AccommodationError(ShelsError, ValueError):
    """A class cannot be taken in, or out again, by the method that the learner has."""


class ModelFileError(ShelsError, ValueError):
    """A saved model or checkpoint is missing, damaged, foreign or of another version."""


class ExportError(ShelsError, RuntimeError):
    """A model cannot be written as a graph for other programs, or its graph does not judge as it does."""


class ClusterError(ShelsError, ConnectionError):
    """A cluster cannot be started or reached, or none of its nodes can do the work."""


class MissingExtraError(ShelsError, ImportError):
    """An optional package is needed and not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(package, extra, purpose)

    def __str__(self) -> str:
        package, extra, purpose = self.args
        return f"{purpose} needs {package}: pip install 'shels[{extra}]'"


def unknown_name(kind: str, name: object, choices: Iterable[object]) -> str:
    """Return a message for a name that does not exist, with the nearest one that does.

    >>> unknown_name("method", "shel", ["shels", "knn"])
    "unknown method 'shel'; did you mean 'shels'? (choose from: shels, knn)"
    """
    names = [str(choice) for choice in choices]
    near = [each for each in get_close_matches(str(name), names, n=20) if _near(str(name), each)]
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"unknown {kind} {str(name)!r}{hint} (choose from: {', '.join(names)})"


def _near(name: str, other: str) -> bool:
    """Tell whether each part of a name is near one of the other's: one part in common makes no names near.

    >>> [_near(name, "within/svhn") for name in ("within/nope", "within/shvn", "svhn", "withinsvhn")]
    [False, True, True, True]
    """
    if SequenceMatcher(None, name, other).ratio() >= 0.9:
        return True
    parts, others = (re.split("[/@-]", each) for each in (name, other))
    return all(any(SequenceMatcher(None, one, each).ratio() >= 0.6 for each in others) for one in parts)
