"""To be written."""

from __future__ import annotations

from dataclasses import dataclass

from shels.accommodation.protocol import Method
from shels.config import Ranpac


@dataclass(frozen=True)
class RanpacMethod(Method):
    """To be written."""

    settings: Ranpac
