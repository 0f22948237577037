"""To be written."""

from __future__ import annotations

from dataclasses import dataclass

from shels.accommodation.protocol import Method
from shels.config import Joint


@dataclass(frozen=True)
class JointMethod(Method):
    """To be written."""

    settings: Joint
