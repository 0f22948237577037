"""To be written."""

from __future__ import annotations

from dataclasses import dataclass

from shels.accommodation.protocol import Method
from shels.config import Lwf


@dataclass(frozen=True)
class LwfMethod(Method):
    """To be written."""

    settings: Lwf
