"""To be written."""

from __future__ import annotations

from dataclasses import dataclass

from shels.accommodation.protocol import Method
from shels.config import Gdumb


@dataclass(frozen=True)
class GdumbMethod(Method):
    """To be written."""

    settings: Gdumb
