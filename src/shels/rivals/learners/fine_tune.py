"""To be written."""

from __future__ import annotations

from dataclasses import dataclass

from shels.accommodation.protocol import Method
from shels.config import FineTune


@dataclass(frozen=True)
class FineTuneMethod(Method):
    """To be written."""

    settings: FineTune
