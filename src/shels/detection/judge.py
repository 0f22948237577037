"""A judge: classes named in one way, novelty told by any score, and a threshold for each class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from shels.config import ThresholdRule
from shels.detection.calibration import (
    Verdicts,
    enough_for,
    p_values,
    padded,
    require_every_class,
    threshold,
    warn_of_few,
)
from shels.detection.protocol import Detector, Naming
from shels.detection.scores.shels import calibration_scores, signatures
from shels.errors import DataError
from shels.model.networks import Views

_FEW = 10
"""Held-out samples of a class, rightly named, below which it borrows the spread of all classes."""

Part = tuple[Views, Tensor]
"""Features of samples, and their labels (n,)."""


@dataclass(frozen=True, eq=False)
class Judge:
    """Verdicts by a rival's score; a value: what adds a class gives a new judge.

    naming: what names the class. thresholds: (classes,). calibration: (classes, most), scores in rising
    order, filled up with infinity. means: (classes, d), each class's mean high-level feature. among:
    (classes,), how many classes were known when each threshold was set. width: how many columns of what it
    sees are shared features; the rest are high-level.
    """

    detector: Detector
    naming: Naming
    rule: ThresholdRule
    thresholds: Tensor
    calibration: Tensor
    means: Tensor
    among: Tensor
    width: int

    @staticmethod
    def fit(
        detector: Detector,
        rule: ThresholdRule,
        training: Part,
        held_out: Part,
        *,
        naming: Naming | None = None,
        names: Sequence[object] | None = None,
    ) -> Judge:
        """Return a judge with a threshold for each class, all set on held-out samples.

        SHELS's own rule takes training samples, as the paper prints it. Scores that remember training samples
        find them more familiar than any new one, so for rivals the same rule takes held-out ones.
        training, held_out: the latter were not trained on. naming: the head's, unless another is given.
        names: for errors.
        """
        return Judge.of(detector, rule, training, naming).calibrated(training, held_out, names)

    @staticmethod
    def of(detector: Detector, rule: ThresholdRule, training: Part, naming: Naming | None = None) -> Judge:
        """Return a judge that has seen training samples and has no thresholds; `calibrated` comes next."""
        fitted, (views, labels) = detector.fit(*training), training
        name = naming or (lambda seen: fitted.head.logits(seen.high))
        classes = name(Views(*(view[:1] for view in views))).shape[1]
        means = signatures(views.high, labels.to(views.high.device), classes)
        none, among = means.new_empty(0), torch.full((classes,), classes, device=means.device)
        return Judge(fitted, name, rule, none, none, means, among, views.shared.shape[1])

    def calibrated(self, training: Part, held_out: Part, names: Sequence[object] | None = None) -> Judge:
        """Return the judge with thresholds set on held-out samples; training ones help where they are few."""
        classes = len(self.means)
        right = _by_class(self.naming(training[0]), training[1], classes, right=True)
        require_every_class([mine.nonzero()[:, 0] for mine in right], names)
        scores, won = self.detector.scores(held_out[0]), self.naming(held_out[0])
        own, assigned = (
            [scores[mine] for mine in _by_class(won, held_out[1], classes, right=only)]
            for only in (True, False)
        )
        centred, chosen = own, assigned
        few, enough = min(map(len, own)) < _FEW, enough_for(self.rule)
        if few or min(map(len, assigned)) < enough:
            there = self.detector.scores(training[0])
            usual = [there[mine] for mine in right]
            centred = calibration_scores(usual, own if any(map(len, own)) else usual, _FEW)
            chosen = _with_borrowed(usual, assigned, enough)
        warn_of_few(min(map(len, chosen)), self.rule)
        limits = [threshold(self.rule, *pair) for pair in zip(centred, chosen, strict=True)]
        return replace(self, thresholds=torch.stack(limits), calibration=padded(chosen))

    def grown(self, detector: Detector, naming: Naming, views: Views) -> Judge:
        """Return a judge that knows one class more, the old thresholds kept.

        detector, naming: with the new class. views: of samples of it that nothing was trained on; where they
        are too few for the rule, it borrows how old classes' scores lie about their medians.
        """
        old = [row[row.isfinite()] for row in self.calibration]
        chosen = _of_its_own(detector.scores(views), naming(views), len(self.means))
        if len(chosen) < enough_for(self.rule):
            about = torch.cat([row - row.median() for row in old])
            if len(chosen) > 2:  # where they lie farther apart than old classes' do, as far as they do
                about = about * (_spread(chosen) / _spread(about)).clamp(min=1.0)
            chosen = chosen.median() + about * (1 + 1 / len(chosen)) ** 0.5
        warn_of_few(len(chosen), self.rule)
        added = views.high.shape[1] - self.means.shape[1]  # units that the new class brought
        means = torch.nn.functional.pad(self.means, (0, added))
        return replace(
            self,
            detector=detector,
            naming=naming,
            thresholds=torch.cat([self.thresholds, threshold(self.rule, chosen, chosen)[None]]),
            calibration=padded([*old, chosen]),
            means=torch.cat([means, views.high.mean(dim=0, keepdim=True)]),
            among=torch.cat([self.among, self.among.new_tensor([len(self.means) + 1])]),
        )

    @staticmethod
    def anew(detector: Detector, naming: Naming, rule: ThresholdRule, kept: Part, held_out: Views) -> Judge:
        """Return a judge of a network that was trained again, on samples of all classes that were kept.

        Samples that a network was trained on look more familiar to it than new ones will. By how much,
        held-out samples of the newest class tell, and it is taken off the scores of every class.
        """
        made, (views, labels) = Judge.of(detector, rule, kept, naming), kept
        scores, fresh = _unseen_scores(made.detector, kept), made.detector.scores(held_out)
        named = naming(views)
        own = [
            _of_its_own(scores[labels == position], named[labels == position], position)
            for position in range(len(made.means))
        ]
        lower, wider = fresh.mean() - own[-1].mean(), _wider(own[-1], fresh)
        about = torch.cat([each - each.mean() for each in own])
        chosen = [
            (each - each.mean() if len(each) >= enough_for(rule) else about) * wider + each.mean() + lower
            for each in own
        ]
        limits = torch.stack([threshold(rule, each, each) for each in chosen])
        return replace(made, thresholds=limits, calibration=padded(chosen))

    def judge(self, views: Views) -> Verdicts:
        """Return class or novel for each sample."""
        predicted = self.naming(views).argmax(dim=1)
        score = self._scores(views, predicted)
        unlikely = p_values(self.calibration, score, predicted)
        limits = self.thresholds[predicted]
        if self._by_eras:
            mean, spread = (each[predicted] for each in self._usual)
            score, limits = (score - mean) / spread, (limits - mean) / spread
        return Verdicts(predicted, score, limits, unlikely)

    @property
    def _by_eras(self) -> bool:
        """Whether thresholds were set while different numbers of classes were known, and that matters.

        A score of the last layer alone, such as a softmax, changes with every row that the layer gets; so a
        class's samples are scored by the rows that there were, and compared by what is usual for the class.
        """
        score = self.detector
        depends = score.reads_head and not (score.remembers or score.reads_one_row)
        return depends and bool((self.among != self.among[0]).any())

    @cached_property
    def _usual(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of each class's scores: (classes,) each."""
        rows = [row[row.isfinite()] for row in self.calibration]
        spread = torch.stack([row.std(correction=0) for row in rows]).clamp(min=1e-12)
        return torch.stack([row.mean() for row in rows]), spread

    def _scores(self, views: Views, predicted: Tensor) -> Tensor:
        """Return the score of each sample, as it was when the threshold of its class was set: (n,)."""
        scores = self.detector.scores(views)
        for count in sorted(set(self.among.tolist()))[:-1] if self._by_eras else ():
            mine = (self.among[predicted] == count).nonzero()[:, 0]
            then = replace(self.detector, head=self.detector.head.first(count))
            scores[mine] = then.scores(Views(*(view[mine] for view in views)))
        return scores

    # As other detectors are asked: features of both kinds side by side ------------------------------------

    @staticmethod
    def sees(views: Views) -> Tensor:
        """Return what it looks at: shared and high-level features, (n, columns)."""
        return torch.cat(views, dim=1)

    def verdicts(self, features: Tensor) -> Verdicts:
        """Return class or novel for each sample."""
        return self.judge(self.views(features))

    def scores(self, features: Tensor) -> Tensor:
        """Return the familiarity of each sample: (n,)."""
        return self.verdicts(features).score

    def class_scores(self, features: Tensor) -> Tensor:
        """Return the score of each class, by which it is named: (n, classes)."""
        scores = self.naming(self.views(features))
        return torch.where(scores.isfinite(), scores, -torch.inf)  # what overflowed is like none

    def views(self, features: Tensor) -> Views:
        """Return features of both kinds, told apart again."""
        columns = self.width + self.means.shape[1]
        if features.ndim != 2 or features.shape[1] != columns:
            raise DataError(f"features must have {columns} columns, got shape {tuple(features.shape)}")
        return Views(features[:, : self.width], features[:, self.width :])


def _by_class(scores: Tensor, labels: Tensor, classes: int, *, right: bool) -> list[Tensor]:
    """Return, for each class, which samples are given to it, rightly or not; `right`: rightly alone."""
    won = scores.argmax(dim=1)
    counted = won == labels.to(won.device) if right else torch.ones_like(won, dtype=torch.bool)
    return [counted & (won == position) for position in range(classes)]


def _with_borrowed(usual: Sequence[Tensor], apart: Sequence[Tensor], enough: int) -> list[Tensor]:
    """Return the scores that each class's new samples are compared with; one with few borrows from all.

    usual: each class's training scores, apart: those of held-out samples. What is borrowed is how held-out
    scores lie about the middle of the training scores, in their spread; both are medians, since distances
    have a long tail, and a few samples in it would move a mean far from where most are.
    """
    centre, spread = torch.stack([each.median() for each in usual]), torch.stack(list(map(_spread, usual)))
    pooled = torch.cat([(s - m) / d for s, m, d in zip(apart, centre, spread, strict=True)])
    if not len(pooled):
        raise DataError(
            "no held-out sample to calibrate thresholds on; give more samples, or hold out a larger share"
        )
    return [
        scores if len(scores) >= enough else m + d * pooled
        for scores, m, d in zip(apart, centre, spread, strict=True)
    ]


def _spread(scores: Tensor) -> Tensor:
    """Return the median distance from the median, as a standard deviation of normal scores: ()."""
    return ((scores - scores.median()).abs().median() * 1.4826).clamp(min=1e-6)


def _of_its_own(scores: Tensor, named: Tensor, position: int) -> Tensor:
    """Return the scores of those samples of a class that are named as it; of all, where none is."""
    right = named.argmax(dim=1) == position
    return scores[right] if bool(right.any()) else scores


def _unseen_scores(detector: Detector, kept: Part) -> Tensor:
    """Return scores of the samples that a detector was fitted to, as if it had not seen them.

    A detector that remembers samples would know each again; so it scores half of them from the other half,
    where there are two or more of each class.
    """
    views, labels = kept
    if not detector.remembers or int(torch.bincount(labels).min()) < 2:
        return detector.scores(views)
    half = _halves(labels)
    out = views.high.new_zeros(len(labels))
    for mine in (half, ~half):
        rest = replace(detector, state={}).fit(Views(*(view[~mine] for view in views)), labels[~mine])
        out[mine] = rest.scores(Views(*(view[mine] for view in views)))
    return out


def _halves(labels: Tensor) -> Tensor:
    """Return a mark on every second sample of each class: (n,)."""
    order = labels.argsort(stable=True)
    mark = torch.zeros_like(labels, dtype=torch.bool)
    mark[order[::2]] = True
    return mark


def _wider(seen: Tensor, fresh: Tensor) -> Tensor:
    """Return how much wider new samples' scores lie than those of samples that were trained on."""
    return (fresh.std(correction=0) / seen.std(correction=0).clamp(min=1e-12)).clamp(0.5, 4.0)
