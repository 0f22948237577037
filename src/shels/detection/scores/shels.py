"""Novelty detection (Algorithm 1): class scores, a threshold for each class, verdicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from shels.config import AcceptShare, ThresholdRule
from shels.detection.calibration import (
    Verdicts,
    enough_for,
    p_values,
    padded,
    require_every_class,
    threshold,
    warn_of_few,
)
from shels.errors import DataError, SettingsError
from shels.model.networks import Views


def class_scores(features: Tensor, weights: Tensor) -> Tensor:
    """Return how like each class the features are, Eq. (4), the raw product that detection uses.

    features: (n, d), weights: (classes, d) -> (n, classes). Its argmax is the class that is predicted.
    """
    return features @ weights.T


def signatures(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Return the mean high-level feature of each class: (n, d) -> (classes, d)."""
    sums = features.new_zeros(classes, features.shape[1]).index_add_(0, labels, features)
    return sums / torch.bincount(labels, minlength=classes).clamp(min=1).unsqueeze(1)


class Detector:
    """SHELS's detector: fit on features of the known classes, it tells known from novel."""

    def __init__(self, weights: Tensor, rule: ThresholdRule | None = None) -> None:
        """Take the head's weights (classes, d); `fit` sets `thresholds` (classes,) and `calibration`.

        calibration: (classes, most), each class's scores in rising order, filled up with infinity.
        """
        self.weights = weights
        self.rule = rule if rule is not None else AcceptShare()
        self.thresholds = weights.new_empty(0)
        self.calibration = weights.new_empty(0, 0)

    def fit(
        self,
        features: Tensor,
        labels: Tensor,
        held_out: tuple[Tensor, Tensor] | None = None,
        names: Sequence[object] | None = None,
    ) -> Self:
        """Set the threshold of each class and return self.

        features: (n, d) of the training samples, labels: (n,). held_out: the same of samples that the
        network was not trained on, which any promised rate needs. names: what errors call the classes.
        """
        own = _by_class(class_scores(features, self.weights), labels, correct_only=True)
        require_every_class(own, names)
        if held_out is None and isinstance(self.rule, AcceptShare):
            raise SettingsError(
                "the accept-share rule needs held-out samples: pass held_out=(features, labels)"
            )
        chosen: Sequence[Tensor] = own
        if held_out is not None:
            apart = _by_class(class_scores(held_out[0], self.weights), held_out[1], correct_only=False)
            chosen = calibration_scores(own, apart, enough_for(self.rule))
            warn_of_few(min(map(len, chosen)), self.rule)
        pairs = zip(own, chosen, strict=True)
        self.thresholds = torch.stack([threshold(self.rule, *pair) for pair in pairs])
        self.calibration = padded(chosen)
        return self

    def grown(self, weights: Tensor, features: Tensor) -> Detector:
        """Return a detector that knows one class more, the old thresholds kept.

        weights: (classes + 1, d) of the grown head; features: (n, d) of samples of the new class that it was
        not trained on. Where they are too few for the rule, the new class borrows from the old ones.
        """
        chosen = class_scores(features, weights)[:, -1]
        old = [row[row.isfinite()] for row in self.calibration]
        if len(chosen) < enough_for(self.rule):  # the old classes' spread about their means, about this mean
            about = torch.cat([row / row.mean() for row in old]) - 1
            chosen = chosen.mean() * (1 + about * (1 + 1 / len(chosen)) ** 0.5)
        warn_of_few(len(chosen), self.rule)
        detector = Detector(weights, self.rule)
        detector.thresholds = torch.cat([self.thresholds, threshold(self.rule, chosen, chosen)[None]])
        detector.calibration = padded([*old, chosen])
        return detector

    def without(self, position: int) -> Detector:
        """Return a detector that has forgotten one class."""
        kept = torch.arange(len(self.weights), device=self.weights.device) != position
        detector = Detector(self.weights[kept], self.rule)
        detector.thresholds, detector.calibration = self.thresholds[kept], self.calibration[kept]
        return detector

    @staticmethod
    def sees(views: Views) -> Tensor:
        """Return the features that this detector works on: the high-level ones."""
        return views.high

    def class_scores(self, features: Tensor) -> Tensor:
        """Return the similarity to each class: (n, d) -> (n, classes); what overflowed is like none."""
        if not isinstance(features, Tensor) or features.shape[1:] != self.weights.shape[1:]:
            got = f"{type(features).__name__} {tuple(getattr(features, 'shape', ()))}"
            raise DataError(f"features must be a tensor (n, {self.weights.shape[1]}), got {got}")
        scores = class_scores(features, self.weights)
        return torch.where(scores.isfinite(), scores, -math.inf)

    def scores(self, features: Tensor) -> Tensor:
        """Return the familiarity of each sample, its similarity to the nearest class: (n, d) -> (n,)."""
        return self.class_scores(features).amax(dim=1)

    def verdicts(self, features: Tensor) -> Verdicts:
        """Return class or novel for each sample: (n, d) -> n verdicts."""
        if not len(self.thresholds):
            raise DataError("the detector has no thresholds yet; call fit first")
        score, predicted = self.class_scores(features).max(dim=1)
        unlikely = p_values(self.calibration, score, predicted)
        return Verdicts(predicted, score, self.thresholds[predicted], unlikely)


def calibration_scores(own: Sequence[Tensor], apart: Sequence[Tensor], enough: int) -> list[Tensor]:
    """Return the scores that each class's new samples are to be compared with.

    apart: for each class the scores of the held-out samples assigned to it, rightly or not: a rate that
    is promised is promised for those. A class with fewer than `enough` borrows from all: their distance
    from their class's training mean, in its standard deviations, moved to this class.
    """
    centre = torch.stack([scores.mean() for scores in own])
    spread = torch.stack([scores.std(correction=0) for scores in own]).clamp(min=1e-12)
    pooled = torch.cat([(s - m) / d for s, m, d in zip(apart, centre, spread, strict=True)])
    if not len(pooled):
        raise DataError(
            "no held-out sample to calibrate thresholds on; give more samples, or hold out a larger share"
        )
    return [
        scores if len(scores) >= enough else m + d * pooled
        for scores, m, d in zip(apart, centre, spread, strict=True)
    ]


def _by_class(scores: Tensor, labels: Tensor, *, correct_only: bool) -> list[Tensor]:
    """Return, for each class, the winning scores of the samples that it wins."""
    best, winner = scores.max(dim=1)
    mine = winner == labels if correct_only else torch.ones_like(labels, dtype=torch.bool)
    return [best[mine & (winner == position)] for position in range(scores.shape[1])]
