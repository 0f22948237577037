"""Several scores as one: each a p-value among held-out known samples, their logarithms added up.

Fisher's statistic, -2 Σ log p, is small for samples that look familiar by every score. Scores of one sample
are not independent, so it is no χ² variable; held-out samples calibrate the sum again, and what comes out is
a conformal p-value whatever the scores have in common. Weights may be learned by leaving known classes out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from shels.detection.calibration import borrowed
from shels.detection.familiarity import COMPONENTS, HEAD, OF_LATER, Familiarity, even_places
from shels.detection.protocol import KnownSamples, Labelled, rows_of
from shels.runtime import exporting

MOST = 512
"""Scores that are kept of each class and score; of more, every so many by rank."""
FEW = 30
"""Held-out samples of a class, rightly named, below which it borrows from all classes."""
FILL = 3e38
"""What shorter lists are filled up with; no score comes near it."""
_PRIOR_COUNT = 10
"""How many samples the spread in other classes counts as where a class has few."""
_FOR_FOLDS = 300
"""Training samples of a class that count when known classes are left out in turn."""
_DRAW_TO_EQUAL = 0.5
"""How much a weight's distance from their mean costs in the regression; see `learned_weights`."""


@dataclass(frozen=True, eq=False)
class References:
    """Scores of known samples, in rising order: (classes, scores, most) and of all classes (scores, most)."""

    by_class: Tensor
    pooled: Tensor

    @staticmethod
    def of(by_class: Sequence[Tensor], pooled: Tensor) -> References:
        """Keep scores (n, scores) of each class, and of all."""
        rows = [_thinned(each) for each in by_class]
        return References(_filled(rows), _thinned(pooled))

    def log_p(self, scores: Tensor, named: Tensor, *, among: bool = False) -> Tensor:
        """Logarithms of p-values, among the named class's scores and all: (n, scores) -> (n, 2, scores).

        p = (1 + how many are no higher) / (1 + how many there are); below all of them it falls on, as a long
        tail does, for of a few samples none would lie far enough out. among: the samples are of those
        compared with, so each is one of them itself and is not counted twice.
        """
        asked = scores.T.contiguous()
        every = torch.searchsorted(self.pooled, asked, right=True)
        ranks = torch.stack([self._ranks(scores, asked, named), every.T], dim=1)
        more, tails = (0 if among else 1), _Tails(*self.tails[:, named])
        shares = (ranks + more).clamp(min=1) / (tails.counts + more)
        return shares.clamp(max=1).log() + tails.below(scores[:, None], among)

    def _ranks(self, scores: Tensor, asked: Tensor, named: Tensor) -> Tensor:
        """Count the scores of the named class that are no higher: (n, scores), and turned, -> (n, scores)."""
        if exporting():  # of each sample its own class alone, as there may be few samples and many classes
            alone = scores[..., None].contiguous()
            return torch.searchsorted(self.by_class[named], alone, right=True)[..., 0]
        spread = asked.expand(len(self.by_class), -1, -1).contiguous()
        inside = torch.searchsorted(self.by_class, spread, right=True)
        return inside.gather(0, named.expand(1, len(asked), -1))[0].T

    @cached_property
    def tails(self) -> Tensor:
        """Lower ends of each class's scores and, beside it, those of all: (4, classes, 2, scores)."""
        pairs = zip(_Tails.of(self.by_class), _Tails.of(self.pooled), strict=True)
        return torch.stack([torch.stack([own, every.expand_as(own)], dim=1) for own, every in pairs])

    def with_class(self, scores: Tensor, *, few: bool | None = None) -> References:
        """Keep one class more, by scores (n, scores) of it; a few borrow how those of other classes lie.

        few: whether they do; unless it is said, where there are fewer than `FEW`.
        """
        if len(scores) < FEW if few is None else few:
            old = [[row[row < FILL] for row in each] for each in self.by_class.unbind(dim=1)]
            pairs = zip(old, scores.T, strict=True)
            scores = torch.stack([_spread_as_others(of_all, mine) for of_all, mine in pairs], dim=1)
        kept = [row[:, : int((row < FILL).sum(dim=1).max())] for row in self.by_class]
        return References(_filled([*kept, _thinned(scores)]), self.pooled)

    def without_class(self, position: int) -> References:
        """Keep one class less."""
        stays = torch.arange(len(self.by_class), device=self.by_class.device) != position
        kept = self.by_class[stays]
        most = int((kept < FILL).sum(dim=2).max())
        return References(kept[:, :, :most].contiguous(), self.pooled)


def _spread_as_others(old: Sequence[Tensor], few: Tensor) -> Tensor:
    """Put scores of other classes where those of a class of few samples lie, spread as far as these are.

    Their variance is drawn to that of the others, and what so few leave uncertain of their mean is added.
    """
    about = torch.cat([row - row.mean() for row in old])
    usual = torch.stack([row.var(correction=0) for row in old]).mean()
    square, n = (few - few.mean()).square().sum(), len(few)
    variance = (square + _PRIOR_COUNT * usual) / (n - 1 + _PRIOR_COUNT) * (1 + 1 / n)
    return few.mean() + about * (variance / about.var(correction=0).clamp(min=1e-30)).sqrt()


class _Tails(NamedTuple):
    """How scores lie at their lower end: how many there are, the lowest, the next, and how wide they lie."""

    counts: Tensor
    lowest: Tensor
    second: Tensor
    width: Tensor

    @staticmethod
    def of(ordered: Tensor) -> _Tails:
        """Look at scores in rising order, filled up: (..., most)."""
        counts = (ordered < FILL).sum(dim=-1)
        last = (counts // 10).clamp(min=5).minimum(counts - 1).clamp(min=0)
        lower = torch.arange(ordered.shape[-1], device=ordered.device) < last[..., None]
        gaps = torch.where(lower, ordered.gather(-1, last[..., None]) - ordered, 0.0)
        lowest, second = ordered[..., 0], ordered[..., min(1, ordered.shape[-1] - 1)]
        width = gaps.sum(dim=-1) / last.clamp(min=1) + 1e-4 * lowest.abs() + 1e-9
        return _Tails(counts.to(width), lowest, torch.where(second < FILL, second, lowest), width)

    def below(self, scores: Tensor, among: bool) -> Tensor:
        """Logarithm of what p-values of scores under all others are multiplied by, 0 for the rest.

        That of a Pareto tail, (1 + gap / 2 widths)^-2: evidence goes on growing, and no score has all of it.
        """
        gap = ((self.second if among else self.lowest) - scores).clamp(min=0) / self.width
        return -2 * torch.log1p(gap / 2)


def _thinned(scores: Tensor) -> Tensor:
    """Sort scores and keep at most `MOST` by rank, the lowest and the highest too: (n, c) -> (c, most)."""
    ordered = scores.float().sort(dim=0).values
    if len(ordered) > MOST:
        ordered = ordered[torch.linspace(0, len(ordered) - 1, MOST, device=scores.device).round().long()]
    return ordered.T.contiguous()


def _filled(rows: Sequence[Tensor]) -> Tensor:
    most = max(row.shape[1] for row in rows)
    return torch.stack([torch.nn.functional.pad(row, (0, most - row.shape[1]), value=FILL) for row in rows])


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What the scores say of held-out samples, (n, scores), the classes named and the true ones: (n,).

    samples: those, and the training samples by which a class of few borrows from all.
    """

    model: Familiarity
    samples: KnownSamples
    scores: Tensor
    named: Tensor
    labels: Tensor

    @classmethod
    def of(cls, model: Familiarity, samples: KnownSamples, named: Tensor) -> Self:
        """Score the held-out samples; named: (n,), what they are called."""
        features, labels = samples.held_out
        return cls(model, samples, model.scores(features, named), named, labels.to(named.device))

    def references(self, among: Tensor | None = None) -> References:
        """Compare new samples with those rightly named; among: marks (n,) of those that count, else all."""
        among = torch.ones_like(self.named, dtype=torch.bool) if among is None else among
        given = [among & (self.named == position) for position in range(self.model.classes)]
        mine = [self.scores[each & (self.labels == self.named)] for each in given]
        if min(map(len, mine)) >= FEW:
            return References.of(mine, torch.cat(mine))
        if not any(map(len, mine)):  # nothing is named rightly: let what is named at all stand for it
            mine = [self.scores[each] for each in given]
        columns = [
            borrowed([t[:, i] for t in self._trained], [m[:, i] for m in mine], FEW, by_medians=True)
            for i in range(self.scores.shape[1])
        ]
        every = [torch.stack(each, dim=1) for each in zip(*columns, strict=True)]
        return References.of(every, torch.cat(mine))

    @cached_property
    def _trained(self) -> list[Tensor]:
        """Scores of training samples of each class."""
        training = self.samples.training
        some = training.take(even_places(training.labels, MOST))
        there = self.model.scores(some.features, some.labels)
        return [there[some.labels == position] for position in range(self.model.classes)]


# Weights without novel data: each known class plays novel once ----------------------------------------------


class Fold(NamedTuple):
    """What a fold says of samples: -log p, (n, 2, scores), of known ones and of the class left out."""

    known: Tensor
    novel: Tensor


def folds(samples: KnownSamples, weights: Tensor, directions: int, prototypes: int) -> Iterator[Fold]:
    """Leave each known class out in turn, and judge held-out samples as if it had never been known.

    Means, spreads, directions, prototypes and rows of weights are those of the other classes. The network has
    seen the class that plays novel, so its features lie farther from the others than a novel class's would.
    """
    training = samples.training.take(even_places(samples.training.labels, _FOR_FOLDS))
    for left_out in range(int(training.labels.max()) + 1):
        rest = KnownSamples(_without(training, left_out), _without(samples.held_out, left_out))
        if not len(rest.held_out.labels) or not bool((samples.held_out.labels == left_out).any()):
            continue
        rows = weights[torch.arange(len(weights), device=weights.device) != left_out]
        model = Familiarity.fit(*rest.training, rows, directions, prototypes)
        alien = rows_of(samples.held_out.features, samples.held_out.labels == left_out)
        names = model.named(rest.held_out.features)
        held = HeldOut.of(model, rest, names)
        found = held.references()
        known = found.log_p(held.scores, names, among=True)
        called = model.named(alien)
        yield Fold(-known, -found.log_p(model.scores(alien, called), called))


def _without(samples: Labelled, left_out: int) -> Labelled:
    kept = samples.take(samples.labels != left_out)
    return kept._replace(labels=kept.labels - (kept.labels > left_out).long())


def equal_weights(like: Tensor) -> Tensor:
    """Weigh everything alike, Fisher's rule: (2, scores)."""
    return like.new_ones(2, like.shape[-1], dtype=torch.float32)


def weights_of_later(like: Tensor) -> Tensor:
    """Weigh what tells samples of a class that came later, among its own samples alone: (2, scores).

    They add up to as many as the others, so that scores of all classes are of one size.
    """
    weights = torch.zeros_like(like)
    places = [COMPONENTS.index(name) for name in OF_LATER]
    weights[0, places] = like.numel() / len(places)
    return weights


def learned_weights(given: Sequence[Fold]) -> Tensor:
    """Find weights, none negative, by which known classes left out are best told: (2, scores).

    A logistic regression over all folds, known and novel samples of each fold counting alike, drawn towards
    equal weights; they add up to as many as there are. The rows of the head keep Fisher's weight: they were
    trained against the class that is left out, which they tell better than they tell any novel one.
    """
    learned = [Fold(*(part[:, :, HEAD:] for part in fold)) for fold in given]
    return torch.cat([equal_weights(given[0].known)[:, :HEAD], _regression(learned)], dim=1)


def _regression(given: Sequence[Fold]) -> Tensor:
    """Weigh all that the folds give: (2, scores)."""
    from scipy.optimize import minimize  # noqa: PLC0415

    shape = given[0].known.shape[1:]
    rows = [part.flatten(1).double().cpu().numpy() for fold in given for part in fold]
    signs = np.concatenate([np.full(len(each), 2.0 * (i % 2) - 1) for i, each in enumerate(rows)])
    share = np.concatenate([np.full(len(each), 1 / (len(each) * len(rows))) for each in rows])
    features = np.concatenate(rows)

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        weights, offset = values[:-1], values[-1]
        margin = signs * (features @ weights + offset)
        slope = -signs * share / (1 + np.exp(np.clip(margin, -500, 500)))
        apart = weights - weights.mean()
        value = share @ np.logaddexp(0, -margin) + _DRAW_TO_EQUAL * apart @ apart
        return float(value), np.append(features.T @ slope + 2 * _DRAW_TO_EQUAL * apart, slope.sum())

    count = features.shape[1]
    start = np.append(np.full(count, 1 / count), -1.0)
    bounds = [(0.0, None)] * count + [(None, None)]
    found = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B").x[:-1]
    if not np.isfinite(found).all() or found.sum() <= 0:
        return equal_weights(given[0].known)
    made = torch.from_numpy(found * count / found.sum()).float().reshape(shape)
    return made.to(given[0].known.device)
