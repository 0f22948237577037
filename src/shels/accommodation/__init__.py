"""Accommodation: the ways to take in a class, and what every one of them offers."""

from __future__ import annotations

from shels.accommodation.penalty import PenaltyMethod
from shels.accommodation.protocol import First, Given, Lesson, Memory, Method, Stores, Taken, take_in, train
from shels.accommodation.proximal import ProximalMethod

__all__ = [
    "First",
    "Given",
    "Lesson",
    "Memory",
    "Method",
    "PenaltyMethod",
    "ProximalMethod",
    "Stores",
    "Taken",
    "take_in",
    "train",
]
