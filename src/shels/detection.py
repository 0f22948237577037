"""Novelty detection (Algorithm 1): class scores, a threshold for each class, verdicts."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from shels.config import AcceptShare, MeanMinusSd, ThresholdRule
from shels.errors import DataError, SettingsError, TrainingError


def class_scores(features: Tensor, weights: Tensor) -> Tensor:
    """Return how like each class the features are, Eq. (4), the raw product that detection uses.

    features: (n, d), weights: (classes, d) -> (n, classes). Its argmax is the class that is predicted.
    """
    return features @ weights.T


def signatures(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Return the mean high-level feature of each class: (n, d) -> (classes, d)."""
    sums = features.new_zeros(classes, features.shape[1]).index_add_(0, labels, features)
    return sums / torch.bincount(labels, minlength=classes).clamp(min=1).unsqueeze(1)


@dataclass(frozen=True, eq=False)
class Verdicts:
    """What was decided about each sample of a batch; every field is (n,).

    predicted: position of the most similar class. score: similarity to it; higher is more familiar.
    threshold: what the score had to exceed. p_value: how often held-out samples of that class score
    lower; small means novel.
    """

    predicted: Tensor
    score: Tensor
    threshold: Tensor
    p_value: Tensor

    @property
    def novel(self) -> Tensor:
        """Whether each sample belongs to no known class."""
        return ~(self.score > self.threshold)

    def __len__(self) -> int:
        return len(self.score)


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
        _require_every_class(own, names)
        if held_out is None and isinstance(self.rule, AcceptShare):
            raise SettingsError(
                "the accept-share rule needs held-out samples: pass held_out=(features, labels)"
            )
        chosen: Sequence[Tensor] = own
        if held_out is not None:
            apart = _by_class(class_scores(held_out[0], self.weights), held_out[1], correct_only=False)
            chosen = calibration_scores(own, apart, enough_for(self.rule))
            _warn_of_few(min(map(len, chosen)), self.rule)
        pairs = zip(own, chosen, strict=True)
        self.thresholds = torch.stack([threshold(self.rule, *pair) for pair in pairs])
        self.calibration = pad_sequence(
            [s.sort().values for s in chosen], batch_first=True, padding_value=math.inf
        )
        return self

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
        return Verdicts(predicted, score, self.thresholds[predicted], self._p_values(score, predicted))

    def _p_values(self, score: Tensor, predicted: Tensor) -> Tensor:
        """Return (1 + how many calibration scores of the class are lower) / (1 + how many there are)."""
        everywhere = score.expand(len(self.calibration), -1).contiguous()  # in every class: no host sync
        lower = torch.searchsorted(self.calibration, everywhere).gather(0, predicted[None])[0]
        count = self.calibration.isfinite().sum(dim=1)[predicted]
        return ((lower + 1) / (count + 1)).to(score.dtype)


def threshold(rule: ThresholdRule, own: Tensor, calibration: Tensor) -> Tensor:
    """Return the score that a sample of a class must exceed to be accepted.

    own: scores of the class's correctly classified training samples. calibration: the scores that new
    samples are compared with.
    """
    if isinstance(rule, MeanMinusSd):
        return own.mean() - rule.k * own.std(correction=0)
    n = len(calibration)  # of n + 1 scores, the new one is as likely the lowest, the second lowest …
    rank = math.floor((1 - rule.share) * (n + 1) + 1e-9)
    return calibration.kthvalue(min(max(rank, 1), n)).values


def enough_for(rule: ThresholdRule) -> int:
    """Return how many scores of its own a class needs: the lowest of 19 marks 1 in 20, of 99 1 in 100."""
    return math.ceil(1 / (1 - rule.share) - 1e-9) - 1 if isinstance(rule, AcceptShare) else 19


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


def fit_temperature(scores: Tensor, labels: Tensor) -> float:
    """Return the divisor of class scores that makes their softmax most likely on held-out samples.

    scores: (n, classes), labels: (n,). Raw products have no natural scale; this gives probabilities one.
    """
    from scipy.optimize import minimize_scalar  # noqa: PLC0415

    scores, labels = scores.double().cpu(), labels.cpu()
    doubt = 1 / (len(labels) + 1)  # without any, samples that are all right would drive it to 0

    def surprise(log_temperature: float) -> float:
        return float(F.cross_entropy(scores / math.exp(log_temperature), labels, label_smoothing=doubt))

    return math.exp(minimize_scalar(surprise, bounds=(-20.0, 20.0), method="bounded").x)


def measured_acceptance(
    weights: Tensor, rule: ThresholdRule, training: tuple[Tensor, Tensor], held_out: tuple[Tensor, Tensor]
) -> float:
    """Return the share of held-out samples accepted by thresholds that were set without them.

    Each half of them is judged by thresholds calibrated on the other half.
    """
    features, labels = held_out
    right = 0
    for fold in (0, 1):
        mine = torch.arange(len(labels), device=labels.device) % 2 == fold
        other = (features[~mine], labels[~mine]) if bool((~mine).any()) else held_out
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # half as many scores; the whole set is what is promised on
            detector = Detector(weights, rule).fit(*training, held_out=other)
        right += int((~detector.verdicts(features[mine]).novel).sum())
    return right / len(labels)


def _warn_of_few(count: int, rule: ThresholdRule) -> None:
    if isinstance(rule, AcceptShare) and count < enough_for(rule):
        warnings.warn(
            f"{count} held-out scores cannot mark a share of {rule.share:g}, only {count / (count + 1):.3g}. "
            "Give more samples, hold out a larger share, or accept less",
            UserWarning,
            stacklevel=3,
        )


def _by_class(scores: Tensor, labels: Tensor, *, correct_only: bool) -> list[Tensor]:
    """Return, for each class, the winning scores of the samples that it wins."""
    best, winner = scores.max(dim=1)
    mine = winner == labels if correct_only else torch.ones_like(labels, dtype=torch.bool)
    return [best[mine & (winner == position)] for position in range(scores.shape[1])]


def _require_every_class(own: Sequence[Tensor], names: Sequence[object] | None) -> None:
    for position, scores in enumerate(own):
        if not len(scores):
            name = repr(names[position]) if names else f"number {position}"
            raise TrainingError(
                f"class {name} has no correctly classified training sample, so it can have no threshold; "
                "train longer, give it more samples, or check its labels"
            )
