"""How much one request may ask for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds of a request, of all that are under way, and of time in seconds.

    body: bytes. samples: in one request. pixels: of one image; all_pixels: of all images of a request, before
    they are brought to the model's size. judging: requests that may wait to be judged. listeners: of events.
    """

    body: int = 32 * 2**20
    samples: int = 2048
    pixels: int = 50_000_000
    all_pixels: int = 200_000_000
    judging: int = 64
    listeners: int = 64
    read_seconds: float = 20.0
    judge_seconds: float = 60.0
