"""To be written."""

from __future__ import annotations

from dataclasses import dataclass

from shels.accommodation.protocol import Method
from shels.config import Fecam


@dataclass(frozen=True)
class FecamMethod(Method):
    """To be written."""

    settings: Fecam
