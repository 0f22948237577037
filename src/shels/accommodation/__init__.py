"""Accommodation: the ways to take in a class by gradient steps, none of which needs the old classes' data."""

from __future__ import annotations

from shels.accommodation.penalty import PenaltyMethod
from shels.accommodation.protocol import Memory, Method, Taken
from shels.accommodation.proximal import ProximalMethod
from shels.config import Penalty, Proximal

__all__ = ["Memory", "Method", "Taken", "method_of"]


def method_of(settings: Penalty | Proximal) -> Method:
    """Return the method that these settings describe."""
    return PenaltyMethod(settings) if isinstance(settings, Penalty) else ProximalMethod(settings)
