"""The Gaussian detector: a class is where its features lie, low-level and high-level.

A linear discriminant on the shared features predicts. A sample is novel if it lies farther from the predicted
class than that class's own samples do, on the shared or on the high-level features, whichever is farther.
Later classes move neither the distances of a class nor its threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from shels.config import Gaussian, ThresholdRule
from shels.detection.calibration import Verdicts, enough_for, p_values, padded, threshold, warn_of_few
from shels.detection.gaussians import Discriminant, Projection, Spread, Sums, pooled_covariance
from shels.errors import DataError, TrainingError
from shels.model.networks import Views

NEAR = (128, 256)
"""How many directions of the shared and of the high-level features tell known from novel."""
_FOLDS = 10
_UNKNOWN_VARIANCE = 0.25
"""Of the logarithm of distances, where a single sample tells nothing about it."""
_PRIOR_COUNT = 10
"""A class's usual distance is drawn to that of all classes as if by this many samples."""


@dataclass(frozen=True, eq=False)
class Part:
    """One Gaussian, of a class or of a part of one.

    owner: the class's position. shared, high: its sums on the two projections. usual: (2, 2), mean and
    standard deviation of the logarithm of its samples' distances. calibration: scores in rising order.
    """

    owner: int
    shared: Sums
    high: Sums
    usual: Tensor
    calibration: Tensor
    threshold: Tensor


@dataclass(frozen=True, eq=False)
class GaussianDetector:
    """Classes as Gaussians; a value: what adds, drops or renames a class gives a new detector.

    projections, priors: of shared and of high-level features, fixed by the classes known at `fit`.
    usual: (2, 2), mean and standard deviation of log distances over those classes. common: their held-out
    scores, which a class of few samples borrows.
    width: how many columns of the features are shared ones; the rest are high-level.
    """

    rule: ThresholdRule
    width: int
    projections: tuple[Projection, Projection]
    priors: tuple[Tensor, Tensor]
    usual: Tensor
    common: Tensor
    parts: tuple[Part, ...]

    # Making ---------------------------------------------------------------------------------------------

    @staticmethod
    def fit(views: Views, labels: Tensor, rule: ThresholdRule, settings: Gaussian) -> GaussianDetector:
        """Return the detector of classes from features of their training samples; `calibrated` comes next."""
        most = (settings.features, NEAR[1])
        pair = (Projection.fit(views.shared, most[0]), Projection.fit(views.high, most[1]))
        rows = pair[0](views.shared), pair[1](views.high)
        classes = range(int(labels.max()) + 1) if len(labels) else range(0)
        sums = [tuple(Sums.of(row[labels == c]) for row in rows) for c in classes]
        near = [[each[v].leading(NEAR[v]) for each in sums] for v in (0, 1)]
        priors = (pooled_covariance(near[0]), pooled_covariance(near[1]))
        usual = priors[0].new_tensor([[0.0, 1.0], [0.0, 1.0]])
        none = usual.new_empty(0)
        parts = [Part(c, sums[c][0], sums[c][1], usual, none, usual.new_tensor(0.0)) for c in classes]
        return GaussianDetector(rule, views.shared.shape[1], pair, priors, usual, none, tuple(parts))

    def calibrated(self, features: Tensor, labels: Tensor) -> GaussianDetector:
        """Return the detector with thresholds set on samples that the network was not trained on."""
        if not len(features):
            raise DataError(
                "no held-out sample to calibrate thresholds on; give more samples, or hold out a larger share"
            )
        predicted, distances = self._nearest(features)
        logs, count, enough = distances.log(), len(self.parts), enough_for(self.rule)
        usual, scale = _scales(logs, predicted, labels, count)
        scores = _held_out_scores(logs, predicted, labels, count)
        chosen = [scores[predicted == c] for c in range(count)]
        chosen = [own if len(own) >= enough else scores for own in chosen]
        warn_of_few(min(map(len, chosen)), self.rule)
        parts = [
            replace(p, usual=u, calibration=s.sort().values, threshold=threshold(self.rule, s, s))
            for p, u, s in zip(self.parts, scale, chosen, strict=True)
        ]
        return replace(self, usual=usual, common=scores, parts=tuple(parts))

    def grown(self, features: Tensor, owner: int) -> GaussianDetector:
        """Return a detector that knows one Gaussian more, from features (n, ...) of its samples, n > 1.

        Its threshold comes from each sample's distance to the others, never to itself; where they are few,
        the scores of the first classes are borrowed.
        """
        rows = self._rows(features)
        sums = [Sums.of(row) for row in rows]
        spreads = [_spread(each, prior) for each, prior in zip(sums, self.priors, strict=True)]
        logs = torch.stack(
            [each.left_out(row[:, : len(each.mean)]) for each, row in zip(spreads, rows, strict=True)], dim=1
        )
        logs = logs.clamp(min=1e-12).log()
        usual = _drawn(logs, self.usual, mean_too=False)
        scores = _scores(logs, _drawn_without_each(logs, self.usual, mean_too=False))
        if len(scores) < enough_for(self.rule):
            scores = torch.cat([scores, self.common])
        part = Part(
            owner, sums[0], sums[1], usual, scores.sort().values, threshold(self.rule, scores, scores)
        )
        return replace(self, parts=(*self.parts, part))

    def reowned(self, owners: Sequence[int | None]) -> GaussianDetector:
        """Return a detector whose classes have new positions: owners[old], or None to drop the class."""
        moved = [(part, owners[part.owner]) for part in self.parts]
        parts = [replace(part, owner=owner) for part, owner in moved if owner is not None]
        return replace(self, parts=tuple(parts))

    # Judging --------------------------------------------------------------------------------------------

    @staticmethod
    def sees(views: Views) -> Tensor:
        """Return the features that this detector works on: shared and high-level ones side by side."""
        return torch.cat(views, dim=1)

    @property
    def thresholds(self) -> Tensor:
        """The threshold of each class, of its first part where there are more: (classes,)."""
        first = {part.owner: part.threshold for part in reversed(self.parts)}
        return torch.stack([first[owner] for owner in sorted(first)])

    def class_scores(self, features: Tensor) -> Tensor:
        """Return the discriminant's score of each class: (n, ...) -> (n, classes)."""
        scores = self._discriminant(self._rows(features)[0])
        scores = torch.where(scores.isfinite(), scores, -torch.inf)  # what overflowed is like none
        classes = int(self._owners.max()) + 1
        out = scores.new_full((len(scores), classes), -torch.inf)
        return out.scatter_reduce(1, self._owners.expand(len(scores), -1), scores, "amax")

    def scores(self, features: Tensor) -> Tensor:
        """Return the familiarity of each sample: how near it lies to the class it is given, (n,)."""
        return self.verdicts(features).score

    def verdicts(self, features: Tensor) -> Verdicts:
        """Return class or novel for each sample."""
        part, distances = self._nearest(features)
        score = _scores(distances.log(), self._usual[part]).float()
        limits = torch.stack([each.threshold for each in self.parts]).float()
        return Verdicts(self._owners[part], score, limits[part], p_values(self._calibration, score, part))

    def whitened(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return shared features in which the known classes spread alike in all directions, and their means.

        (n, ...) -> (n, r), (parts, r): distances there count in the spread of the classes known at `fit`.
        """
        factor = torch.linalg.cholesky(self.priors[0])
        near = len(factor)
        means = torch.stack([part.shared.mean[:near] for part in self.parts])
        rows = self._rows(features)[0][:, :near].double()
        white = [torch.linalg.solve_triangular(factor, each.T, upper=False).T for each in (rows, means)]
        return white[0].float(), white[1].float()

    def _rows(self, features: Tensor) -> tuple[Tensor, Tensor]:
        if features.ndim != 2 or features.shape[1] != self.width + len(self.projections[1].centre):
            raise DataError(
                f"features must have {self.width} shared and {len(self.projections[1].centre)} high-level "
                f"columns, got shape {tuple(features.shape)}"
            )
        return self.projections[0](features[:, : self.width]), self.projections[1](features[:, self.width :])

    def _nearest(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return the part that each sample is given to, and its distances there: (n,), (n, 2)."""
        rows = self._rows(features)
        part = self._discriminant(rows[0]).argmax(dim=1)
        distances = rows[0].new_ones(len(part), 2)
        near = [row[:, : len(prior)] for row, prior in zip(rows, self.priors, strict=True)]
        order = part.argsort(stable=True)
        sizes = torch.bincount(part, minlength=len(self.parts)).tolist()
        for mine, spreads in zip(torch.split(order, sizes), self._spreads, strict=True):
            for view, spread in enumerate(spreads):
                distances[mine, view] = spread.distances(near[view][mine])
        return part, distances.nan_to_num(nan=torch.inf, posinf=torch.inf).clamp(min=1e-12)

    # Caches, made when first needed ----------------------------------------------------------------------

    @cached_property
    def _discriminant(self) -> Discriminant:
        if not self.parts:
            raise TrainingError("the detector knows no class")
        return Discriminant.of([part.shared for part in self.parts])

    @cached_property
    def _spreads(self) -> list[tuple[Spread, Spread]]:
        return [
            (_spread(part.shared, self.priors[0]), _spread(part.high, self.priors[1])) for part in self.parts
        ]

    @cached_property
    def _owners(self) -> Tensor:
        return torch.tensor([part.owner for part in self.parts], device=self.usual.device)

    @cached_property
    def _usual(self) -> Tensor:
        return torch.stack([part.usual for part in self.parts])

    @cached_property
    def _calibration(self) -> Tensor:
        return padded([part.calibration.float() for part in self.parts])


def _spread(sums: Sums, prior: Tensor) -> Spread:
    return Spread.of(sums.leading(len(prior)), prior)


def _scores(logs: Tensor, usual: Tensor) -> Tensor:
    """Return scores, higher more familiar, from log distances (n, 2) and what is usual there (n, 2, 2)."""
    return -((logs - usual[..., 0]) / usual[..., 1]).amax(dim=1)


def _held_out_scores(logs: Tensor, predicted: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Return the scores of held-out samples, each by standards in which it had no say: (n, 2) -> (n,).

    A sample that had one would look more usual than a new one will.
    """
    folds = torch.arange(len(logs), device=logs.device) % min(_FOLDS, len(logs))
    out = logs.new_zeros(len(logs))
    for fold in range(min(_FOLDS, len(logs))):
        mine = folds == fold
        rest = ~mine if bool((~mine).any()) else mine
        _, scale = _scales(logs[rest], predicted[rest], labels[rest], classes)
        out[mine] = _scores(logs[mine], scale[predicted[mine]])
    return out


def _scales(logs: Tensor, predicted: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of log distances, over all and by class: (2, 2), (classes, 2, 2)."""
    right = [logs[(predicted == c) & (labels == c)] for c in range(classes)]
    usual = _usual([each for each in right if len(each) > 1] or [logs])
    return usual, torch.stack([_drawn(each, usual, mean_too=True) for each in right])


def _usual(groups: Sequence[Tensor]) -> Tensor:
    """Return mean and standard deviation of log distances within groups of them: (n, 2) each -> (2, 2)."""
    mean = torch.stack([logs.mean(dim=0) for logs in groups]).mean(dim=0)
    apart = torch.cat([logs - logs.mean(dim=0) for logs in groups])
    free = len(apart) - len(groups)
    variance = apart.square().sum(dim=0) / free if free else torch.full_like(mean, _UNKNOWN_VARIANCE)
    return torch.stack([mean, variance.sqrt().clamp(min=1e-6)], dim=1)


def _drawn(logs: Tensor, usual: Tensor, *, mean_too: bool) -> Tensor:
    """Return a class's own mean and standard deviation, drawn to the usual ones where it has few samples.

    logs: (..., n, 2) -> (..., 2, 2). The network was not trained on a class that came later, and its samples
    lie farther out than those of the first classes, so `mean_too` is for these alone. What few samples leave
    uncertain widens the deviation.
    """
    n, prior = logs.shape[-2], _PRIOR_COUNT if mean_too else 0
    if n == 0:
        return usual
    own = logs.mean(dim=-2)
    square = (logs - own.unsqueeze(-2)).square().sum(dim=-2)
    return _drawn_from(n, own, square, usual, prior)


def _drawn_without_each(logs: Tensor, usual: Tensor, *, mean_too: bool) -> Tensor:
    """Return, for each sample, what `_drawn` gives without it: (n, 2) -> (n, 2, 2).

    A sample that had a say in its own standard would look more usual than a new one.
    """
    n, prior = len(logs), _PRIOR_COUNT if mean_too else 0
    if n < 2:
        return usual.expand(n, 2, 2)
    own = logs.mean(dim=0)
    rest = (n * own - logs) / (n - 1)
    square = (logs - own).square().sum(dim=0) - (logs - own).square() * (n / (n - 1))
    return _drawn_from(n - 1, rest, square.clamp(min=0), usual, prior)


def _drawn_from(n: int, own: Tensor, square: Tensor, usual: Tensor, prior: int) -> Tensor:
    mean = (n * own + prior * usual[:, 0]) / (n + prior)
    variance = (square + _PRIOR_COUNT * usual[:, 1] ** 2) / (n - 1 + _PRIOR_COUNT)
    return torch.stack([mean, (variance * (1 + 1 / (n + prior))).sqrt()], dim=-1)
