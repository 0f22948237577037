"""To be written."""

from __future__ import annotations

from dataclasses import dataclass

from shels.accommodation.protocol import Method
from shels.config import Slda


@dataclass(frozen=True)
class SldaMethod(Method):
    """To be written."""

    settings: Slda
