"""A judge: a score of any kind, the network's own class, and a threshold for each class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shels.config import ThresholdRule
from shels.detection.shels import calibration_scores
from shels.detection.thresholds import (
    Verdicts,
    enough_for,
    p_values,
    padded,
    require_every_class,
    threshold,
    warn_of_few,
)
from shels.model.networks import Views
from shels.rivals.protocol import Detector

_FEW = 10
"""Held-out samples of a class, rightly named, below which it borrows the spread of all classes."""


@dataclass(frozen=True, eq=False)
class Judge:
    """Verdicts by a rival's score: the class is the one that the head scores highest, the rule is the same.

    thresholds: (classes,). calibration: (classes, most), scores in rising order, filled up with infinity.
    """

    detector: Detector
    thresholds: Tensor
    calibration: Tensor

    @staticmethod
    def fit(
        detector: Detector,
        rule: ThresholdRule,
        training: tuple[Views, Tensor],
        held_out: tuple[Views, Tensor],
        names: Sequence[object] | None = None,
    ) -> Judge:
        """Return a judge with a threshold for each class, all set on held-out samples.

        SHELS's own rule takes training samples, as the paper prints it. Scores that remember training samples
        find them more familiar than any new one, so for rivals the same rule takes held-out ones.
        training, held_out: features and labels; the latter were not trained on. names: for errors.
        """
        fitted = detector.fit(*training)
        own = _won(fitted, *training, right=True)
        require_every_class(own, names)
        right, assigned = (_won(fitted, *held_out, right=only) for only in (True, False))
        centred = calibration_scores(own, right if any(map(len, right)) else own, _FEW)
        chosen = calibration_scores(own, assigned, enough_for(rule))
        warn_of_few(min(map(len, chosen)), rule)
        pairs = zip(centred, chosen, strict=True)
        return Judge(fitted, torch.stack([threshold(rule, *pair) for pair in pairs]), padded(chosen))

    def verdicts(self, views: Views) -> Verdicts:
        """Return class or novel for each sample."""
        score = self.detector.scores(views)
        predicted = self.detector.head.logits(views.high).argmax(dim=1)
        unlikely = p_values(self.calibration, score, predicted)
        return Verdicts(predicted, score, self.thresholds[predicted], unlikely)


def _won(detector: Detector, views: Views, labels: Tensor, *, right: bool) -> list[Tensor]:
    """Return, for each class, the scores of the samples that the head gives it; `right`: of its own alone."""
    scores, won = detector.scores(views), detector.head.logits(views.high).argmax(dim=1)
    counted = won == labels if right else torch.ones_like(won, dtype=torch.bool)
    return [scores[counted & (won == position)] for position in range(detector.head.classes)]
