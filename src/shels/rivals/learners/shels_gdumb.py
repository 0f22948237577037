"""To be written."""

from __future__ import annotations

from dataclasses import dataclass

from shels.accommodation.protocol import Method
from shels.config import ShelsGdumb


@dataclass(frozen=True)
class ShelsGdumbMethod(Method):
    """To be written."""

    settings: ShelsGdumb
