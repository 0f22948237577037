"""To be written."""

from __future__ import annotations

from dataclasses import dataclass

from shels.accommodation.protocol import Method
from shels.config import Maha


@dataclass(frozen=True)
class MahaMethod(Method):
    """To be written."""

    settings: Maha
