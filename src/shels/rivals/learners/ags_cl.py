"""To be written."""

from __future__ import annotations

from dataclasses import dataclass

from shels.accommodation.protocol import Method
from shels.config import AgsCl


@dataclass(frozen=True)
class AgsClMethod(Method):
    """To be written."""

    settings: AgsCl
