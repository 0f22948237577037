"""Novelty detection: scores, thresholds and their calibration, verdicts and what they come to."""
