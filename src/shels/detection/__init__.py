"""Novelty detection: one module per detector, and what they share."""

from shels.detection.gaussian import GaussianDetector
from shels.detection.shels import Detector, calibration_scores, class_scores, signatures
from shels.detection.thresholds import (
    Verdicts,
    enough_for,
    fit_temperature,
    measured_acceptance,
    threshold,
)

__all__ = [
    "Detector",
    "GaussianDetector",
    "Verdicts",
    "calibration_scores",
    "class_scores",
    "enough_for",
    "fit_temperature",
    "measured_acceptance",
    "signatures",
    "threshold",
]
