"""A detector of two parts: something that names classes, and a score that says how familiar a sample is.

SHELS's own and every rival's are of this kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from shels.config import ThresholdRule
from shels.detection import calibration as thresholding
from shels.detection import protocol
from shels.detection.calibration import Calibration, Verdicts
from shels.detection.exclusivity import class_means
from shels.detection.head import Head
from shels.detection.protocol import Context, Detector, KnownSamples, Labelled, LearnedClass, StoredParts
from shels.detection.rules import enough_for, on_all_scores, on_held_out, threshold
from shels.detection.score import Score
from shels.errors import AccommodationError, DataError
from shels.model.networks import Views

_SCORE = "score/"


@dataclass(frozen=True, eq=False)
class Known:
    """What a detector beside a learner's naming remembers of the known classes.

    means: (classes, d), each class's mean high-level feature. classes_then: (classes,), how many classes were
    known when each threshold was set. shared_width: how many shared features there are.
    """

    means: Tensor
    classes_then: Tensor
    shared_width: int

    def without(self, position: int) -> Known:
        """Leave one class out."""
        stays = torch.arange(len(self.means), device=self.means.device) != position
        then = self.classes_then[stays]
        return Known(self.means[stays], then.clamp(max=len(then)), self.shared_width)

    def with_class(self, features: Views) -> Known:
        """Add a class, from features of its samples; training it may have brought new units."""
        added = features.high.shape[1] - self.means.shape[1]
        means = torch.nn.functional.pad(self.means, (0, added))
        means = torch.cat([means, features.high.mean(dim=0, keepdim=True)])
        then = torch.cat([self.classes_then, self.classes_then.new_tensor([len(means)])])
        return Known(means, then, self.shared_width)


@dataclass(frozen=True, eq=False)
class ScoreDetector(Detector):
    """Verdicts by a score.

    naming, known: how the learner names classes, and what stays of them; None both where SHELS's score names
    classes itself. moves: see `Context`. calibration: None before `calibrated`.
    """

    score: Score
    rule: ThresholdRule
    naming: protocol.Naming | None = None
    known: Known | None = None
    moves: bool = True
    calibration: Calibration | None = None

    @staticmethod
    def fit(score: Score, context: Context, training: Labelled) -> ScoreDetector:
        """Fit a score to training samples; `calibrated` comes next."""
        if context.naming is None:
            return ScoreDetector(score, context.rule)
        fitted, (features, labels) = score.fit(*training), training
        classes = context.naming(protocol.rows_of(features, torch.arange(1))).shape[1]
        means = class_means(features.high, labels.to(features.high.device), classes)
        then = torch.full((classes,), classes, device=means.device)
        known = Known(means, then, features.shared.shape[1])
        return ScoreDetector(fitted, context.rule, context.naming, known, context.moves)

    def calibrated(self, samples: KnownSamples, names: Sequence[object] | None = None) -> ScoreDetector:
        """Set thresholds by the policy that goes with the score."""
        training, held_out = samples
        seen, held = self.class_scores(training.features), self.class_scores(held_out.features)
        right = _by_class(seen, training.labels, right=True)
        thresholding.require_every_class([mine.nonzero() for mine in right], names)
        made = replace(self, score=self.score.tuned(samples, held.argmax(dim=1)))
        beside = self.naming is not None
        scores = made.score.held_out_scores(samples, held.argmax(dim=1)) if beside else held.amax(dim=1)

        def there() -> list[Tensor]:
            all_scores = made._scores(training.features, seen)  # noqa: SLF001 - its own kind
            return [all_scores[mine] for mine in right]

        own, assigned = (
            [scores[mine] for mine in _by_class(held, held_out.labels, right=only)] for only in (True, False)
        )
        chosen = self._policy.first(self.rule, there, own, assigned)
        return replace(made, calibration=Calibration.of(self.rule, *chosen))

    def with_class(self, new: LearnedClass) -> ScoreDetector:
        """Know one class more; where too few samples set its threshold, it borrows from the old ones."""
        if new.held_out is None and (new.stored is not None or not self.cross_fits):
            raise DataError(
                f"detector {self.name} sets the threshold of a class on held-out samples; give some"
            )
        if new.stored is not None and new.held_out is not None:
            return self._anew(new, new.stored(), new.held_out)
        score, asked, scores = self._grown(new)
        old = self._calibration
        grown = replace(self, score=score, naming=new.naming if self.naming else None)
        named = grown.class_scores(asked)
        chosen = named[:, -1]
        if grown.naming is not None:
            scores = score.scores_as(asked, named.argmax(dim=1)) if scores is None else scores
            chosen = _of_its_own(scores, named, named.shape[1] - 1)
        if len(chosen) < enough_for(self.rule):
            chosen = self._borrowed(chosen)
        known = None if self.known is None else self.known.with_class(asked)
        every = _of_its_own(named, named, named.shape[1] - 1).flatten() if on_all_scores(self.rule) else None
        return replace(grown, known=known, calibration=old.with_class(self.rule, chosen, every))

    @property
    def cross_fits(self) -> bool:
        """Whether samples of a class that comes later set its threshold by each other, none held out."""
        return self.score.cross_fits and self.naming is not None

    def _grown(self, new: LearnedClass) -> tuple[Score, Views, Tensor | None]:
        """Let the score learn a class; give samples that set its threshold, and scores where there are."""
        if self.cross_fits:
            given = [each for each in (new.training(), new.held_out) if each is not None]
            every = Views(*(torch.cat(rows) for rows in zip(*given, strict=True)))
            groups = new.groups if len(given) == 1 else None
            score, scores = self.score.add_class_by_folds(every, groups, new.head)
            return score, every, scores
        held_out = new.held_out or new.training()
        if self.score.remembers:
            return self.score.add_class(new.training(), new.head), held_out, None
        # it knows the last layer alone, which may see more features than before
        return replace(self.score, head=new.head or self.score.head), held_out, None

    def _borrowed(self, few: Tensor) -> Tensor:
        """Find more scores to compare a later class of few samples with: (n,).

        Scores that are sums of p-values lie alike in all classes, so those of the first ones join its own;
        others are moved to where its own lie.
        """
        if not self.cross_fits or self.known is None:
            return self._policy.later(self._calibration.by_class, few)
        then, rows = self.known.classes_then, self._calibration.by_class
        first = [rows[place] for place in (then == then.min()).nonzero()[:, 0].tolist()]
        return torch.cat([few, *first])

    def _anew(self, new: LearnedClass, stored: Labelled, held_out: Views) -> ScoreDetector:
        """Begin anew beside a network that was trained again, on samples of all classes that were stored.

        Samples that a network was trained on look more familiar to it than new ones will. By how much,
        held-out samples of the newest class tell, and it is taken off the scores of every class.
        """
        fresh = replace(self.score, head=new.head or self.score.head, state={})
        context = Context(fresh.head, self.rule, (), new.naming, self.moves)
        made = ScoreDetector.fit(fresh, context, stored)
        named, labels = made.class_scores(stored.features), stored.labels
        scores = _unseen_scores(made.score, stored, named.argmax(dim=1))
        later = made.score.scores_as(held_out, made.class_scores(held_out).argmax(dim=1))
        marks = [labels == position for position in range(named.shape[1])]
        own = [_of_its_own(scores[mine], named[mine], position) for position, mine in enumerate(marks)]
        lower = later.mean() - own[-1].mean()
        wider = (later.std(correction=0) / own[-1].std(correction=0).clamp(min=1e-12)).clamp(0.5, 4.0)
        about, enough = torch.cat([each - each.mean() for each in own]), enough_for(self.rule)
        chosen = [
            (each - each.mean() if len(each) >= enough else about) * wider + each.mean() + lower
            for each in own
        ]
        limits = torch.stack([threshold(self.rule, each, each) for each in chosen])
        return replace(made, calibration=Calibration(limits, thresholding.padded(chosen)))

    def with_rule(self, rule: ThresholdRule) -> ScoreDetector:
        """Set the thresholds by another rule, on the scores that there are."""
        return replace(self, rule=rule, calibration=self._calibration.ruled(rule))

    def with_known(self, features: Views) -> ScoreDetector:
        """Set the thresholds anew with samples that are known after all."""
        score, predicted = self.class_scores(features).max(dim=1)
        if self.naming is not None:
            score = self._scores_then(features, predicted)
        return replace(self, calibration=self._calibration.joined(self.rule, score, predicted))

    def without_class(
        self, position: int, head: Head | None = None, naming: protocol.Naming | None = None
    ) -> ScoreDetector:
        """Forget one class."""
        self.check("unlearn", self.name)
        score = self.score.without_class(position, head)
        known = None if self.known is None else self.known.without(position)
        calibration = self._calibration.without(position)
        return replace(self, score=score, naming=naming, known=known, calibration=calibration)

    def merged(self, position: int, into: int) -> ScoreDetector:
        """Refuse: a score has one row, or one threshold, for a class."""
        self.check("merge", self.name)
        return self

    def check(self, change: protocol.Change, learner: str) -> None:
        """Raise where classes cannot be changed so."""
        if self.naming is None:
            if change == "merge":
                raise AccommodationError(
                    f"the method {learner!r} has one row of weights for a class and cannot merge two; the "
                    "method 'gaussian' can"
                )
            return
        if change == "unlearn" and self.score.forgets:
            return
        instead = (
            "roll back to an earlier version, or train a model with learner gaussian and its own detector"
        )
        if change == "split":
            instead = "rename it, or roll back to an earlier version and take in the parts"
        raise AccommodationError(f"detector {self.name} does not {change} classes; {instead}")

    @property
    def name(self) -> str:
        """What the registry calls it."""
        return self.score.name

    @property
    def thresholds(self) -> Tensor:
        """The threshold of each class: (classes,)."""
        return self._calibration.thresholds

    @property
    def compared(self) -> list[Tensor]:
        """The scores that new samples are compared with, of each class."""
        return self._calibration.by_class

    @property
    def thresholds_are_of(self) -> str:
        """Which scores a rule on a class's own scores takes, in words."""
        training = self._policy is thresholding.PAPER and not on_held_out(self.rule)
        return "training score" if training else "score over held-out samples"

    @property
    def _policy(self) -> thresholding.Policy:
        return thresholding.PAPER if self.naming is None else thresholding.HELD_OUT

    @property
    def _calibration(self) -> Calibration:
        if self.calibration is None:
            raise DataError(
                "the detector has no thresholds yet; call calibrated first and use what it returns"
            )
        return self.calibration

    def class_scores(self, features: Views) -> Tensor:
        """Score each class; the highest names it: (n, classes)."""
        protocol.check_views(
            features, self.score.head.width, (self.known and self.known.shared_width) or None
        )
        naming = self.score.class_scores if self.naming is None else self.naming
        scores = naming(features)
        return torch.where(scores.isfinite(), scores, -torch.inf)  # what overflowed is like none

    def _scores(self, features: Views, named: Tensor) -> Tensor:
        """Score samples, given their class scores."""
        if self.naming is None:
            return named.amax(dim=1)
        return self.score.scores_as(features, named.argmax(dim=1))

    def verdicts(self, features: Views) -> Verdicts:
        """Decide for each sample: which class it is most like, and whether it is novel."""
        calibration = self._calibration
        score, predicted = self.class_scores(features).max(dim=1)
        if self.naming is not None:
            score = self._scores_then(features, predicted)
        unlikely, limits = calibration.p_values(score, predicted), calibration.thresholds[predicted]
        if len(self._eras) > 1:
            mean, spread = (each[predicted] for each in self._score_scale)
            score, limits = (score - mean) / spread, (limits - mean) / spread
        return Verdicts(predicted, score, limits, unlikely)

    def evidence(self, features: Views) -> protocol.Evidence:
        """Compare with every class, as if samples were given to it, where the score looks at one class."""
        named = self.class_scores(features)
        predicted, found = named.argmax(dim=1), torch.full_like(named, torch.nan)
        by_class = self.naming is None or type(self.score).scores_as is not Score.scores_as
        for position in range(named.shape[1]):
            given = torch.full_like(predicted, position)
            score = named[:, position] if self.naming is None else self._scores_then(features, given)
            counts = predicted == (predicted if by_class else position)
            found[counts, position] = self._calibration.p_values(score, given)[counts].to(found.dtype)
        expected = torch.nn.functional.normalize(self._class_directions)[predicted]
        return protocol.Evidence(found, self.score.aspects(features, predicted), expected)

    @property
    def _class_directions(self) -> Tensor:
        """Where classes lie among high-level features: their means, or the head's rows where these moved."""
        return self.score.head.weight if self.moves or self.known is None else self.known.means

    @cached_property
    def _eras(self) -> list[int]:
        """How many classes there were when thresholds were set, if that differs, and matters to the score.

        A score of the last layer alone, such as a softmax, changes with every row that the layer gets; so a
        class's samples are scored by the rows that there were, and compared by what is common in the class.
        """
        depends = self.score.reads_head and not (self.score.remembers or self.score.reads_one_row)
        return sorted(set(self.known.classes_then.tolist())) if depends and self.known else []

    @cached_property
    def _score_scale(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of each class's scores: (classes,) each."""
        rows = self._calibration.by_class
        spread = torch.stack([row.std(correction=0) for row in rows]).clamp(min=1e-12)
        return torch.stack([row.mean() for row in rows]), spread

    def _scores_then(self, features: Views, predicted: Tensor) -> Tensor:
        """Score each sample as it was when the threshold of its class was set: (n,)."""
        scores = self.score.scores_as(features, predicted)
        if self.known is None:
            return scores
        for count in self._eras[:-1]:
            then = replace(self.score, head=self.score.head.first(count))
            mine = self.known.classes_then[predicted] == count
            scores = torch.where(mine, then.scores(features), scores)
        return scores

    def places(self, features: Views) -> protocol.Places:
        """Find where samples and known classes lie on high-level features of length 1."""
        rows = torch.nn.functional.normalize(features.high)
        scale = rows.std(dim=0).clamp(min=1e-3).mean()
        means = torch.nn.functional.normalize(self._class_directions) / scale
        return protocol.Places(rows / scale, means, self.verdicts(features).predicted)

    def tensors(self) -> StoredParts:
        """Give thresholds and scores, and what is remembered of the classes."""
        out: protocol.Tensors = {"thresholds": self.thresholds, "calibration": self._calibration.scores}
        if self.known is not None:
            out |= {"means": self.known.means, "among": self.known.classes_then}
            out["width"] = torch.tensor(self.known.shared_width)
            out |= {_SCORE + name: value for name, value in self.score.tensors().items()}
        return StoredParts(out, {}, [])

    @staticmethod
    def load(make: type[Score], context: Context, parts: StoredParts) -> ScoreDetector:
        """Make the detector that `tensors` came from; that they fit is checked where files are read."""
        held = parts.to(context.head.weight.device).detector
        state = {name.removeprefix(_SCORE): held[name] for name in held if name.startswith(_SCORE)}
        made = ScoreDetector(
            make.from_tensors(context.head, state),
            context.rule,
            calibration=Calibration(held["thresholds"], held["calibration"]),
        )
        if context.naming is None:
            return made
        known = Known(held["means"], held["among"], int(held["width"]))
        return replace(made, naming=context.naming, known=known, moves=context.moves)


def _by_class(named: Tensor, labels: Tensor, *, right: bool) -> list[Tensor]:
    """Mark, for each class, the samples that are given to it, rightly or not; `right`: rightly alone."""
    won = named.argmax(dim=1)
    counted = won == labels.to(won.device) if right else torch.ones_like(won, dtype=torch.bool)
    return [counted & (won == position) for position in range(named.shape[1])]


def _of_its_own(scores: Tensor, named: Tensor, position: int) -> Tensor:
    """Keep the scores of those samples of a class that are named as it; of all, where none is."""
    right = named.argmax(dim=1) == position
    return scores[right] if bool(right.any()) else scores


def _unseen_scores(score: Score, stored: Labelled, named: Tensor) -> Tensor:
    """Score the samples that a score was fitted to, given what they are called, as if it had not seen them.

    One that remembers samples would know each again; so it scores half of them from the other half, where
    there are two or more of each class.
    """
    if not score.remembers or int(torch.bincount(stored.labels).min()) < 2:
        return score.scores_as(stored.features, named)
    order = stored.labels.argsort(stable=True)
    folds = torch.ones_like(stored.labels)
    folds[order[::2]] = 0  # every second sample of each class
    fresh = replace(score, state={})
    return thresholding.cross_fitted(
        folds,
        lambda rest, mine: fresh.fit(*stored.take(rest)).scores_as(stored.take(mine).features, named[mine]),
    )
