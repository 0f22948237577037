"""Other people's novelty scores, one module each, on the same features as SHELS's own."""

from shels.rivals.protocol import Detector, Head
from shels.rivals.registry import DETECTORS, Entry, Paper, detector

__all__ = ["DETECTORS", "Detector", "Entry", "Head", "Paper", "detector"]
