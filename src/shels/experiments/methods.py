"""The methods that an experiment can compare: how each trains, and how each judges afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from shels.config import Settings
from shels.errors import SettingsError, unknown_name


@dataclass(frozen=True)
class Method:
    """A way to detect novelty. Methods that train alike share one trained network.

    settings: the paper's settings for a data set, changed to what this method needs.
    score: which detector judges: "shels" (Eq. 4) or "gaussian".
    """

    name: str
    title: str
    settings: Callable[[Settings], Settings]
    score: Literal["shels", "gaussian"]


def _as_it_is(settings: Settings) -> Settings:
    return settings


def _linear_head(settings: Settings) -> Settings:
    return replace(settings, network=replace(settings.network, head="linear"))


METHODS = {
    method.name: method
    for method in (
        Method("shels", "SHELS", _as_it_is, "shels"),
        Method("shels-gaussian", "SHELS network, Gaussian score", _as_it_is, "gaussian"),
        Method("linear-head", "linear head, SHELS score", _linear_head, "shels"),
    )
}


def find_methods(names: Sequence[str]) -> list[Method]:
    """Return the methods of these names, each once, in the order given."""
    for name in names:
        if name not in METHODS:
            raise SettingsError(unknown_name("method", name, METHODS))
    return [METHODS[name] for name in dict.fromkeys(names)]
