"""To be written."""

from __future__ import annotations

from dataclasses import dataclass

from shels.accommodation.protocol import Method
from shels.config import Ewc


@dataclass(frozen=True)
class EwcMethod(Method):
    """To be written."""

    settings: Ewc
