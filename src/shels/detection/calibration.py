"""Thresholds and verdicts: what every detector shares, whatever its score."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from shels.config import AcceptShare, MeanMinusSd, ThresholdRule
from shels.errors import TrainingError


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


def p_values(calibration: Tensor, score: Tensor, row: Tensor) -> Tensor:
    """Return (1 + how many of the calibration scores are lower) / (1 + how many there are): (n,).

    calibration: (rows, most), each in rising order, filled up with infinity; row: (n,), which one counts.
    """
    everywhere = score.expand(len(calibration), -1).contiguous()  # in every row: no host sync
    lower = torch.searchsorted(calibration, everywhere).gather(0, row[None])[0]
    count = calibration.isfinite().sum(dim=1)[row]
    return ((lower + 1) / (count + 1)).to(score.dtype)


def padded(scores: Sequence[Tensor]) -> Tensor:
    """Return lists of scores as one tensor, each in rising order and filled up with infinity."""
    return pad_sequence([each.sort().values for each in scores], batch_first=True, padding_value=math.inf)


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


class Judge(Protocol):
    """Whatever gives verdicts on features."""

    def verdicts(self, features: Tensor) -> Verdicts:
        """Return class or novel for each row of features."""


def measured_acceptance(make: Callable[[Tensor, Tensor], Judge], held_out: tuple[Tensor, Tensor]) -> float:
    """Return the share of held-out samples accepted by thresholds that were set without them.

    Each half of them is judged by the detector that `make` calibrates on the other half.
    """
    features, labels = held_out
    right = 0
    for fold in (0, 1):
        mine = torch.arange(len(labels), device=labels.device) % 2 == fold
        other = ~mine if bool((~mine).any()) else mine
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # half as many scores; the whole set is what is promised on
            detector = make(features[other], labels[other])
        right += int((~detector.verdicts(features[mine]).novel).sum())
    return right / len(labels)


def warn_of_few(count: int, rule: ThresholdRule) -> None:
    """Warn where so few held-out scores cannot mark the share that a rule promises."""
    if isinstance(rule, AcceptShare) and count < enough_for(rule):
        warnings.warn(
            f"{count} held-out scores cannot mark a share of {rule.share:g}, only {count / (count + 1):.3g}. "
            "Give more samples, hold out a larger share, or accept less",
            UserWarning,
            stacklevel=3,
        )


def require_every_class(own: Sequence[Tensor], names: Sequence[object] | None) -> None:
    """Raise unless every class has a rightly classified training sample to set its threshold by."""
    for position, scores in enumerate(own):
        if not len(scores):
            name = repr(names[position]) if names else f"number {position}"
            raise TrainingError(
                f"class {name} has no correctly classified training sample, so it can have no threshold; "
                "train longer, give it more samples, or check its labels"
            )
