"""The Gaussian detector: a class is where its features lie, low-level and high-level.

A linear discriminant on the shared features predicts. A sample is novel if it lies farther from the predicted
class than that class's own samples do, on the shared or on the high-level features, whichever is farther, or
on both together.
Later classes move neither the distances of a class nor its threshold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal

import torch
from torch import Tensor

from shels.config import ThresholdRule
from shels.detection import gaussians, protocol
from shels.detection.calibration import Calibration, Verdicts, padded, require_held_out
from shels.detection.gaussian_part import VIEWS, Part, described, part_from, part_tensors
from shels.detection.gaussians import Discriminant, Distances, Naming, Projection, Spread, balanced
from shels.detection.head import Head
from shels.detection.protocol import Context, Detector, KnownSamples, Labelled, LearnedClass, StoredParts
from shels.detection.rectified import directions, rectified
from shels.detection.rules import enough_for, threshold, warn_of_few
from shels.detection.standards import (
    Deviation,
    Distance,
    Standards,
    log_scores,
    shrunk_scale,
    shrunk_scale_without_each,
)
from shels.errors import TrainingError
from shels.kernels.replay import Replay
from shels.model.networks import Views

NEAR_HIGH = 256
"""Directions of the high-level features that tell known from novel; of the shared ones: `Gaussian.near`."""
_ASPECTS = ("shared features", "high-level features")


@dataclass(frozen=True, eq=False)
class GaussianDetector(Detector):
    """Classes as Gaussians.

    projections, priors: of shared and of high-level features, fixed by the classes known at `fit`.
    scale: (2, 2), mean and standard deviation of log distances over those classes. common: their held-out
    scores, which a class of few samples borrows. width: how many shared features there are.
    rectified: how many random, rectified projections name classes; with none, the shared projection does.
    ready: the discriminant of these parts, where it was worked out before. distance: how the distances on
    both layers make one score. deviation: whose deviation they are measured by. within:
    what counts alike in the spread by which classes are named.
    """

    rule: ThresholdRule
    width: int
    projections: tuple[Projection, Projection]
    priors: tuple[Tensor, Tensor]
    scale: Tensor
    common: Tensor
    parts: tuple[Part, ...]
    rectified: int = 0
    ready: Discriminant | None = None
    distance: Distance = "farther"
    deviation: Deviation = "own"
    within: Literal["samples", "classes"] = "samples"

    name = "gaussian"
    is_learner = True

    @staticmethod
    def fit(context: Context, training: Labelled) -> GaussianDetector:
        """Fit a Gaussian to the training samples of each class; `calibrated` comes next."""
        (shared, high), labels = training
        settings, sizes = context.gaussian, (context.gaussian.near, NEAR_HIGH)
        pair = (Projection.fit(shared, settings.features), Projection.fit(high, NEAR_HIGH))
        rows, kept = (pair[0](shared), pair[1](high)), pair[0].directions
        many = settings.rectified
        random = directions(kept.shape[1], many, kept.device) if many else None
        classes = range(int(labels.max()) + 1) if len(labels) else range(0)
        found = [described((rows[0][labels == c], rows[1][labels == c]), sizes[0], random) for c in classes]
        near = [[sums[v].leading(sizes[v]) for sums, _ in found] for v in (0, 1)]
        priors = (gaussians.pooled_covariance(near[0]), gaussians.pooled_covariance(near[1]))
        scale = priors[0].new_tensor([[0.0, 1.0], [0.0, 1.0]])
        none, limit = scale.new_empty(0), scale.new_tensor(0.0)
        parts = tuple(Part(c, sums, scale, none, limit, naming) for c, (sums, naming) in enumerate(found))
        about = (context.rule, shared.shape[1], pair, priors, scale, none, parts, many)
        return GaussianDetector(
            *about, distance=settings.distance, deviation=settings.deviation, within=settings.within
        )

    def calibrated(self, samples: KnownSamples, names: Sequence[object] | None = None) -> GaussianDetector:
        """Set thresholds on held-out samples alone, each scored by standards in which it had no say."""
        features, labels = samples.held_out
        require_held_out(features.high)
        predicted, distances = self._nearest(features)
        count, enough = len(self.parts), enough_for(self.rule)
        found = Standards.of(distances.log(), predicted, labels, count, self.distance, self.deviation)
        own = [predicted == c for c in range(count)]
        own = [mine if int(mine.sum()) >= enough else torch.ones_like(mine) for mine in own]
        chosen = [found.level(c, mine) for c, mine in enumerate(own)]
        warn_of_few(min(map(len, chosen)), self.rule)
        parts = [
            _calibrated(replace(p, scale=u), self.rule, s)
            for p, u, s in zip(self.parts, found.scales, chosen, strict=True)
        ]
        return replace(
            self, scale=found.scale, common=found.scores, parts=tuple(parts), ready=self._discriminant
        )

    def with_class(self, new: LearnedClass) -> GaussianDetector:
        """Know one class more, from features of its samples."""
        return self.with_part(new.training(), self.classes)

    def with_part(self, features: Views, owner: int) -> GaussianDetector:
        """Know one Gaussian more, of the class at this position, from features of its samples.

        Its threshold comes from each sample's distance to the others, never to itself; where they are few,
        the scores of the first classes are borrowed.
        """
        rows = self._rows(features)
        sums, naming = described(rows, len(self.priors[0]), self._random)
        spreads = [Spread.of(each, prior) for each, prior in zip(sums, self.priors, strict=True)]
        logs = torch.stack(
            [each.left_out(row[:, : len(each.mean)]) for each, row in zip(spreads, rows, strict=True)], dim=1
        )
        logs = logs.clamp(min=1e-12).log()
        scores = self._log_scores(logs, shrunk_scale_without_each(logs, self.scale))
        if len(scores) < enough_for(self.rule):
            scores = torch.cat([scores, self.common])
        limit = threshold(self.rule, scores, scores)
        own = shrunk_scale(logs, self.scale, prior=0)
        part = Part(owner, sums, own, scores.sort().values, limit, naming)
        new = replace(self, parts=(*self.parts, part), ready=None)
        if "_distances" in vars(self):  # what was worked out of the others stays
            pairs = zip(self._distances, spreads, strict=True)
            vars(new)["_distances"] = [each.with_class(spread) for each, spread in pairs]
        return new

    def with_rule(self, rule: ThresholdRule) -> GaussianDetector:
        """Set the thresholds by another rule; a class with too few scores for it borrows as in training."""
        enough, parts = enough_for(rule), []
        for part in self.parts:
            scores = part.calibration
            parts.append(_calibrated(part, rule, scores if len(scores) >= enough else self._borrowed(scores)))
        warn_of_few(min(len(part.calibration) for part in parts), rule)
        return replace(self, rule=rule, parts=tuple(parts), ready=self._discriminant)

    def _borrowed(self, scores: Tensor) -> Tensor:
        """Add the common scores to a class's own, unless they are there already, as they are or moved."""
        if len(scores) == len(self.common) or bool(torch.isin(self.common, scores).all()):
            return scores
        first = bool(torch.isin(scores, self.common).all())  # then the common ones hold its own
        return self.common if first else torch.cat([scores, self.common])

    def with_known(self, features: Views) -> GaussianDetector:
        """Set the thresholds anew with samples that are known after all."""
        given, distances = self._nearest(features)
        score = self._log_scores(distances.log(), self._scales[given])
        parts = list(self.parts)
        for place in sorted(set(given.tolist())):
            scores = torch.cat([parts[place].calibration, score[given == place].to(self.common)])
            parts[place] = _calibrated(parts[place], self.rule, scores)
        return replace(self, parts=tuple(parts), ready=self._discriminant)

    def without_class(
        self, position: int, head: Head | None = None, naming: protocol.Naming | None = None
    ) -> GaussianDetector:
        """Forget one class."""
        return self._moved(self._places_without(position))

    def merged(self, position: int, into: int) -> GaussianDetector:
        """Count all of one class as another; each keeps its own Gaussian."""
        places = self._places_without(position)
        return self._moved(places | {position: places[into]})

    def _places_without(self, position: int) -> dict[int, int]:
        stays = [c for c in range(self.classes) if c != position]
        return {old: new for new, old in enumerate(stays)}

    def _moved(self, places: dict[int, int]) -> GaussianDetector:
        parts = [replace(part, owner=places[part.owner]) for part in self.parts if part.owner in places]
        return replace(self, parts=tuple(parts), ready=None)

    def check(self, change: protocol.Change, learner: str) -> None:
        """Refuse nothing: sums can be dropped and joined exactly."""

    @property
    def classes(self) -> int:
        """How many classes it knows."""
        return max((part.owner for part in self.parts), default=-1) + 1

    @property
    def thresholds(self) -> Tensor:
        """The threshold of each class, of its first part where there are more: (classes,)."""
        first = {part.owner: part.threshold for part in reversed(self.parts)}
        return torch.stack([first[owner] for owner in sorted(first)])

    @property
    def compared(self) -> list[Tensor]:
        """The scores that new samples are compared with, of each class's first part where there are more."""
        first = {part.owner: part.calibration for part in reversed(self.parts)}
        return [first[owner] for owner in sorted(first)]

    def counts(self) -> dict[int, int]:
        """Count the samples that each class was learned from, over all of its parts."""
        found = dict.fromkeys(range(self.classes), 0)
        for part in self.parts:
            found[part.owner] += part.sums[0].count
        return found

    def class_scores(self, features: Views) -> Tensor:
        """Score each class by its best part's discriminant: (n, classes)."""
        self._check(features)
        scores = self._naming(features.shared)
        scores = torch.where(scores.isfinite(), scores, -torch.inf)  # what overflowed is like none
        out = scores.new_full((scores.shape[0], self.classes), -torch.inf)
        return out.scatter_reduce(1, self._owners.expand_as(scores), scores, "amax")

    def verdicts(self, features: Views) -> Verdicts:
        """Decide for each sample by the distance to its class."""
        self._check(features)
        return Verdicts(*self._replay(self._decide, *features))

    @cached_property
    def _replay(self) -> Replay:
        return Replay()

    def _decide(self, shared: Tensor, high: Tensor) -> tuple[Tensor, ...]:
        """Give predicted class, score, threshold and p-value; nothing here waits for a GPU."""
        part, distances = self._nearest(Views(shared, high))
        score = self._log_scores(distances.log(), self._scales[part]).float()
        calibration = self._calibration
        limits, unlikely = calibration.thresholds[part], calibration.p_values(score, part)
        return self._owners[part], score, limits, unlikely

    def evidence(self, features: Views) -> protocol.Evidence:
        """Compare with every part; how far is far on each layer is that of normal log distances."""
        rows = self._near_rows(features)
        part, count = self._naming(features.shared).argmax(dim=1), len(rows[0])
        pairs = zip(self._distances, rows, strict=True)
        logs = _usable(torch.stack([each.from_all(row) for each, row in pairs], dim=2)).log()
        places = torch.arange(len(self.parts), device=part.device).repeat_interleave(count)
        scores = self._log_scores(logs.flatten(0, 1), self._scales[places]).float()
        found = self._calibration.p_values(scores, places).view(len(self.parts), count).T
        best = found.new_zeros(count, self.classes)
        best = best.scatter_reduce(1, self._owners.expand_as(found), found, "amax")
        mean, deviation = self._scales[part].unbind(dim=2)
        far = (logs[part, torch.arange(count, device=part.device)] - mean) / deviation
        tails = torch.special.ndtr(-far).unbind(dim=1)
        return protocol.Evidence(best, dict(zip(_ASPECTS, tails, strict=True)), self._means_of_high[part])

    def _log_scores(self, logs: Tensor, scale: Tensor) -> Tensor:
        return log_scores(logs, scale, self.distance)

    @cached_property
    def _means_of_high(self) -> Tensor:
        """Where the parts' means lie among high-level features of length 1: (parts, d)."""
        project = self.projections[1]
        means = torch.stack([each.sums[1].mean for each in self.parts]).float()
        return means @ project.directions.T + project.centre

    def places(self, features: Views) -> protocol.Places:
        """Find where samples and classes lie in the spread of the classes known at `fit`."""
        rows, means = self._whitened(features)
        return protocol.Places(rows, means, torch.cdist(rows, means).argmin(dim=1))

    def clustering_rows(self, features: Views) -> Tensor:
        """Give shared features in which the known classes spread alike in all directions: (n, r)."""
        return self._whitened(features)[0]

    def _whitened(self, features: Views) -> tuple[Tensor, Tensor]:
        """Whiten shared features and the parts' means by the common spread: (n, r), (parts, r)."""
        factor = torch.linalg.cholesky(self.priors[0])
        near = len(factor)
        means = torch.stack([part.sums[0].mean[:near] for part in self.parts])
        rows = self._rows(features)[0][:, :near].double()
        white = [torch.linalg.solve_triangular(factor, each.T, upper=False).T for each in (rows, means)]
        return white[0].float(), white[1].float()

    def _rows(self, features: Views) -> tuple[Tensor, Tensor]:
        self._check(features)
        return self.projections[0](features.shared), self.projections[1](features.high)

    def _nearest(self, features: Views) -> tuple[Tensor, Tensor]:
        """Find the part that each sample is given to, and its distances there: (n,), (n, 2)."""
        rows = self._near_rows(features)
        part = self._naming(features.shared).argmax(dim=1)
        pairs = zip(self._distances, rows, strict=True)
        return part, _usable(torch.stack([each(row, part) for each, row in pairs], dim=1))

    def _check(self, features: Views) -> None:
        protocol.check_views(features, len(self.projections[1].centre), self.width)

    def _near_rows(self, features: Views) -> tuple[Tensor, Tensor]:
        """Project features on what tells known from novel alone."""
        self._check(features)
        return self._near(features.shared), self.projections[1](features.high)

    @cached_property
    def _near(self) -> Projection:
        return self.projections[0].leading(len(self.priors[0]))

    @cached_property
    def _naming(self) -> Callable[[Tensor], Tensor]:
        """What scores each part by the discriminant, from shared features: (n, s) -> (n, parts)."""
        if self._random is None:
            return Naming.of(self.projections[0], self._discriminant)
        return partial(_rectified_scores, self.projections[0], self._random, self._discriminant)

    @cached_property
    def _discriminant(self) -> Discriminant:
        if not self.parts:
            raise TrainingError("the detector knows no class")
        if self.ready is not None:
            return self.ready
        naming = [part.naming for part in self.parts if part.naming is not None]
        if naming:
            return Discriminant.of(naming)
        sums = [part.sums[0] for part in self.parts]
        return Discriminant.of(balanced(sums) if self.within == "classes" else sums)

    @cached_property
    def _random(self) -> Tensor | None:
        kept = self.projections[0].directions
        return directions(kept.shape[1], self.rectified, kept.device) if self.rectified else None

    @cached_property
    def _distances(self) -> list[Distances]:
        spreads = [[Spread.of(part.sums[v], self.priors[v]) for part in self.parts] for v in (0, 1)]
        return [Distances.of(each) for each in spreads]

    @cached_property
    def _owners(self) -> Tensor:
        return torch.tensor([part.owner for part in self.parts], device=self.scale.device)

    @cached_property
    def _scales(self) -> Tensor:
        return torch.stack([part.scale for part in self.parts])

    @cached_property
    def _calibration(self) -> Calibration:
        limits = torch.stack([part.threshold for part in self.parts]).float()
        return Calibration(limits, padded([part.calibration.float() for part in self.parts]))

    def tensors(self) -> StoredParts:
        """Give thresholds and scores, the projections, and the sums of each Gaussian."""
        changing = {"owners": torch.tensor([part.owner for part in self.parts])}
        for place, part in enumerate(self.parts):
            numbers = {"usual": part.scale, "calibration": part.calibration, "threshold": part.threshold}
            for name, value in numbers.items():
                changing[f"{place}/{name}"] = value.clone()  # it may be a view of others
        if self.rectified:
            found = self._discriminant
            changing |= {"naming/weights": found.weights, "naming/offsets": found.offsets}
        fixed = {"usual": self.scale, "common": self.common, "width": torch.tensor(self.width)}
        for view, projection, prior in zip(VIEWS, self.projections, self.priors, strict=True):
            fixed |= {f"{view}/centre": projection.centre, f"{view}/directions": projection.directions}
            fixed[f"{view}/prior"] = prior
        return StoredParts(changing, fixed, [part_tensors(part) for part in self.parts])

    @staticmethod
    def load(context: Context, parts: StoredParts) -> GaussianDetector:
        """Make the detector that `tensors` came from; that they fit is checked where files are read."""
        changing, fixed, sums = parts.to(context.head.weight.device)
        many = context.gaussian.rectified
        named = [changing[f"naming/{name}"] for name in ("weights", "offsets")] if many else []
        projections = [Projection(fixed[f"{view}/centre"], fixed[f"{view}/directions"]) for view in VIEWS]
        return GaussianDetector(
            rule=context.rule,
            width=int(fixed["width"]),
            projections=(projections[0], projections[1]),
            priors=(fixed["shared/prior"], fixed["high/prior"]),
            scale=fixed["usual"],
            common=fixed["common"],
            parts=tuple(part_from(at, changing, own) for at, own in enumerate(sums)),
            rectified=many,
            ready=Discriminant(*named) if named else None,
            distance=context.gaussian.distance,
            deviation=context.gaussian.deviation,
            within=context.gaussian.within,
        )


def _rectified_scores(
    projection: Projection, random: Tensor, discriminant: Discriminant, shared: Tensor
) -> Tensor:
    return discriminant(rectified(projection(shared), random))


def _calibrated(part: Part, rule: ThresholdRule, scores: Tensor) -> Part:
    return replace(part, calibration=scores.sort().values, threshold=threshold(rule, scores, scores))


def _usable(distances: Tensor) -> Tensor:
    """Take what overflowed for far away, and nothing for so near that it has no logarithm."""
    return distances.nan_to_num(nan=torch.inf, posinf=torch.inf).clamp(min=1e-12)
