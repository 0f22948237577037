"""SHELS: a classifier for the open world, which knows some classes, notices new ones and learns them.

Importing the package is quick and does nothing; the names below load what they need when used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shels._version import __version__

if TYPE_CHECKING:
    from shels.agent.agent import OpenWorldAgent
    from shels.estimator import OpenWorldClassifier
    from shels.learner.learner import Learner

__all__ = ["Learner", "OpenWorldAgent", "OpenWorldClassifier", "__version__"]

_HOME = {
    "OpenWorldAgent": "shels.agent.agent",
    "OpenWorldClassifier": "shels.estimator",
    "Learner": "shels.learner.learner",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'shels' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
