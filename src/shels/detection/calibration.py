"""Thresholds, p-values and all else that is set on scores, once for every detector, whatever its score."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Self

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from shels.config import ThresholdRule
from shels.detection.rules import enough_for, on_held_out, threshold, warn_of_few
from shels.errors import DataError, TrainingError
from shels.runtime import exporting, lone

if TYPE_CHECKING:
    from shels.detection.protocol import Detector, KnownSamples

_FEW = 10
"""Held-out samples of a class, rightly named, below which it borrows the spread of all classes."""

Scores = Sequence[Tensor]
"""Scores of samples, a tensor (n,) for each class."""


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


@dataclass(frozen=True, eq=False)
class Calibration:
    """Thresholds (classes,), and the scores that new samples are compared with.

    scores: (classes, most), each class's in rising order, filled up with infinity.
    """

    thresholds: Tensor
    scores: Tensor

    @classmethod
    def of(cls, rule: ThresholdRule, own: Scores, compared: Scores) -> Self:
        """Set a threshold for each class, see `threshold`."""
        warn_of_few(min(map(len, compared)), rule)
        pairs = zip(own, compared, strict=True)
        return cls(torch.stack([threshold(rule, *pair) for pair in pairs]), padded(compared))

    def with_class(self, rule: ThresholdRule, scores: Tensor, own: Tensor | None = None) -> Calibration:
        """Keep the old thresholds and set one more, by scores (n,) of the new class.

        own: what the rule takes instead, where it takes other scores than new samples are compared with.
        """
        warn_of_few(len(scores), rule)
        limits = torch.cat([self.thresholds, threshold(rule, scores if own is None else own, scores)[None]])
        return Calibration(limits, padded([*self.by_class, scores]))

    def without(self, position: int) -> Calibration:
        """Leave one class out."""
        stays = torch.arange(len(self.thresholds), device=self.thresholds.device) != position
        return Calibration(self.thresholds[stays], self.scores[stays])

    def ruled(self, rule: ThresholdRule) -> Calibration:
        """Set the thresholds by another rule on the same scores."""
        scores = self.by_class
        warn_of_few(min(map(len, scores)), rule)
        return Calibration(torch.stack([threshold(rule, each, each) for each in scores]), self.scores)

    def joined(self, rule: ThresholdRule, score: Tensor, row: Tensor) -> Calibration:
        """Add scores (n,) to those of the classes at these positions (n,), and set their thresholds anew.

        Classes that get none keep their threshold.
        """
        scores, limits = self.by_class, self.thresholds.clone()
        for place in sorted(set(row.tolist())):
            scores[place] = torch.cat([scores[place], score[row == place].to(scores[place])])
            limits[place] = threshold(rule, scores[place], scores[place])
        return Calibration(limits, padded(scores))

    @property
    def by_class(self) -> list[Tensor]:
        """Each class's scores, without what fills them up."""
        return [row[row.isfinite()] for row in self.scores]

    def p_values(self, score: Tensor, row: Tensor) -> Tensor:
        """Compare scores with those of a class: (1 + how many are lower) / (1 + how many there are), (n,).

        row: (n,), the position of that class. Nothing here waits for a GPU.
        """
        if exporting() or lone(score):  # of each sample its own class alone
            lower = torch.searchsorted(self.scores[row], score[:, None].contiguous())[:, 0]
            return self._p_value_at[row, lower]
        everywhere = score.expand(len(self.scores), -1).contiguous()
        lower = torch.searchsorted(self.scores, everywhere).gather(0, row[None])[0]
        return self._p_value_at[row, lower]

    @cached_property
    def _p_value_at(self) -> Tensor:
        """p-value of a score over so many of each class's: (classes, most + 1)."""
        most = self.scores.shape[1]
        lower = torch.arange(most + 1, device=self.scores.device)
        count = self.scores.isfinite().sum(dim=1, keepdim=True)
        return ((lower + 1) / (count + 1)).to(self.scores.dtype)


def padded(scores: Scores) -> Tensor:
    """Put lists of scores into one tensor, each in rising order and filled up with infinity."""
    return pad_sequence([each.sort().values for each in scores], batch_first=True, padding_value=math.inf)


def require_every_class(own: Scores, names: Sequence[object] | None) -> None:
    """Raise unless every class has a rightly classified training sample to set its threshold by."""
    for position, scores in enumerate(own):
        if not len(scores):
            name = repr(names[position]) if names else f"number {position}"
            raise TrainingError(
                f"class {name} has no correctly classified training sample, so it can have no threshold; "
                "train longer, give it more samples, or check its labels"
            )


def median_deviation(scores: Tensor) -> Tensor:
    """Median distance from the median, as a standard deviation of normal scores: ()."""
    return ((scores - scores.median()).abs().median() * 1.4826).clamp(min=1e-6)


def borrowed(training: Scores, held_out: Scores, enough: int, *, by_medians: bool = False) -> list[Tensor]:
    """Find the scores that each class's new samples are to be compared with; one with few borrows from all.

    held_out: for each class the scores of the held-out samples assigned to it, rightly or not: a rate that
    is promised is promised for those. What is borrowed is how all of them lie about the centre of their
    class's training scores, in its spread, moved to this class. by_medians: for distances, which have a long
    tail: a few samples in it would move a mean far from where most are.
    """
    if by_medians:
        places = [(scores.median(), median_deviation(scores)) for scores in training]
    else:
        places = [(scores.mean(), scores.std(correction=0).clamp(min=1e-12)) for scores in training]
    pooled = torch.cat([(s - m) / d for s, (m, d) in zip(held_out, places, strict=True)])
    require_held_out(pooled)
    pairs = zip(held_out, places, strict=True)
    return [scores if len(scores) >= enough else m + d * pooled for scores, (m, d) in pairs]


def require_held_out(samples: Tensor) -> None:
    """Raise unless there is something to set thresholds on."""
    if not len(samples):
        raise DataError(
            "no held-out sample to calibrate thresholds on; give more samples, or hold out a larger share"
        )


class Policy(NamedTuple):
    """Which scores set thresholds, and what a class of few samples borrows.

    first: from the rule, what gives the training scores, held-out scores rightly named and held-out scores
    assigned, to scores for the rule and scores to compare with. later: from the old classes' scores and the
    few of a new class, to scores that stand for more of the new one.
    """

    first: Callable[[ThresholdRule, Callable[[], Scores], Scores, Scores], tuple[Scores, Scores]]
    later: Callable[[Scores, Tensor], Tensor]


def _training_first(
    rule: ThresholdRule, training: Callable[[], Scores], right: Scores, assigned: Scores
) -> tuple[Scores, Scores]:
    own = training()
    compared = borrowed(own, assigned, enough_for(rule))
    return (borrowed(own, right, _FEW) if on_held_out(rule) else own), compared


def _relative_to_means(old: Scores, few: Tensor) -> Tensor:
    about = torch.cat([row / row.mean() for row in old]) - 1
    return few.mean() * (1 + about * float((1 + 1 / len(few)) ** 0.5))


def _held_out_first(
    rule: ThresholdRule, training: Callable[[], Scores], right: Scores, assigned: Scores
) -> tuple[Scores, Scores]:
    enough = enough_for(rule)
    if min(map(len, right)) >= _FEW and min(map(len, assigned)) >= enough:
        return right, assigned
    there = training()
    centred = borrowed(there, right if any(map(len, right)) else there, _FEW)
    return centred, borrowed(there, assigned, enough, by_medians=True)


def _about_medians(old: Scores, few: Tensor) -> Tensor:
    about = torch.cat([row - row.median() for row in old])
    if len(few) > 2:  # where they lie farther from each other than old classes' do, as far as they do
        about = about * (median_deviation(few) / median_deviation(about)).clamp(min=1.0)
    return few.median() + about * float((1 + 1 / len(few)) ** 0.5)


PAPER = Policy(_training_first, _relative_to_means)
"""SHELS's own: the paper's rule takes training samples, as it is printed."""
HELD_OUT = Policy(_held_out_first, _about_medians)
"""The rivals': scores that remember training samples find them more familiar than any new one, so the same
rule takes held-out ones."""


def cross_fitted(folds: Tensor, score: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Score each sample by what was fitted without it: folds (n,) from 0 on -> (n,), or (n, scores).

    score: takes marks (n,) of the samples to fit on and of those to score. A fold alone is fitted on itself.
    """
    out: Tensor | None = None
    for fold in range(int(folds.max()) + 1):
        mine = folds == fold
        found = score(~mine if bool((~mine).any()) else mine, mine)
        out = found.new_zeros(len(folds), *found.shape[1:]) if out is None else out
        out[mine] = found
    return folds.new_zeros(0) if out is None else out


def measured_acceptance(
    detector: Detector, samples: KnownSamples, names: Sequence[object] | None = None
) -> float:
    """Share of held-out samples accepted by thresholds that were set on the other half of them."""
    held_out = samples.held_out

    def accepted(rest: Tensor, mine: Tensor) -> Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # half as many scores; the whole set is what is promised on
            other = detector.calibrated(samples._replace(held_out=held_out.take(rest)), names)
        return ~other.verdicts(held_out.take(mine).features).novel

    folds = torch.arange(len(held_out.labels), device=held_out.labels.device) % 2
    return int(cross_fitted(folds, accepted).sum()) / len(folds)


def fit_temperature(scores: Tensor, labels: Tensor) -> float:
    """Find the divisor of class scores that makes their softmax most likely on held-out samples.

    scores: (n, classes), labels: (n,). Raw products have no natural scale; this gives probabilities one.
    """
    from scipy.optimize import minimize_scalar  # noqa: PLC0415

    scores, labels = scores.double().cpu(), labels.cpu()
    doubt = 1 / (len(labels) + 1)  # without any, samples that are all right would drive it to 0

    def surprise(log_temperature: float) -> float:
        return float(F.cross_entropy(scores / math.exp(log_temperature), labels, label_smoothing=doubt))

    return math.exp(minimize_scalar(surprise, bounds=(-20.0, 20.0), method="bounded").x)
