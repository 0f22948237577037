"""What a batch that looks new may hold: one new class, several, or known ones seen through a change."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from shels.agent.separation import Separation, SeparationSettings, separate
from shels.detection.drift import Drift, judge_drift
from shels.detection.judge import Judge
from shels.detection.scores.gaussian import GaussianDetector
from shels.detection.scores.shels import Detector
from shels.learner.learner import Learner
from shels.learning.registry import method_of
from shels.model.networks import Views


@dataclass(frozen=True, eq=False)
class Proposal:
    """How novel samples fall into new classes.

    groups: (n,), the proposed class of each, -1 for none. purity: for each class, see `Separation`. drift:
    set where the samples are rather known classes seen through a change.
    """

    groups: Tensor
    purity: tuple[float, ...]
    drift: Drift | None = None

    @property
    def count(self) -> int:
        """How many new classes are proposed."""
        return len(self.purity)


@dataclass(frozen=True)
class ProposalSettings:
    """How to look at novel samples."""

    several: bool = True
    """Whether a batch may hold several new classes and stray known samples; else all of it is one class."""
    drift: bool = True
    """Whether to look for drift at all."""
    separation: SeparationSettings = field(default_factory=SeparationSettings)


def propose(
    learner: Learner, inputs: Tensor, settings: ProposalSettings, seed: int = 0, features: Views | None = None
) -> Proposal:
    """Return what samples that were judged novel may be: (n, ...) -> a proposal.

    features: what the learner's network makes of them, where that was computed already.
    """
    everything = torch.zeros(len(inputs), dtype=torch.int64)
    if not len(inputs):
        return Proposal(everything, ())
    rows, means, predicted = _places(learner, learner.views(inputs) if features is None else features)
    drift = _drift(learner, inputs, rows, means, predicted) if settings.drift else None
    if drift is not None and drift.drift:
        return Proposal(everything - 1, (), drift)
    if not settings.several:
        return Proposal(everything, (1.0,))
    found: Separation = separate(rows, settings.separation, known_means=means, seed=seed)
    return Proposal(found.groups, found.purity)


def _places(learner: Learner, views: Views) -> tuple[Tensor, Tensor, Tensor]:
    """Return where samples and known classes lie, and which class each sample is most like."""
    detector = learner.detector
    if isinstance(detector, GaussianDetector):
        seen = detector.sees(views)
        rows, means = detector.whitened(seen)
        nearest = torch.cdist(rows, means).argmin(dim=1)
        return rows.cpu(), means.cpu(), nearest.cpu()
    rows = torch.nn.functional.normalize(views.high)
    means = torch.nn.functional.normalize(_means(learner, detector))
    scale = rows.std(dim=0).clamp(min=1e-3).mean()
    predicted = detector.verdicts(detector.sees(views)).predicted
    return (rows / scale).cpu(), (means / scale).cpu(), predicted.cpu()


def _means(learner: Learner, detector: Detector | Judge) -> Tensor:
    """Return where the known classes lie among high-level features: (classes, d).

    Where a training moves them and no sample is kept, the rows of the head follow and old means do not.
    """
    if isinstance(detector, Detector):
        return detector.weights
    method = method_of(learner.settings.accommodation)
    moved = method.grows_head and method.stores != "old data"
    return learner.network.head.weight.detach() if moved else detector.means


def _drift(learner: Learner, inputs: Tensor, rows: Tensor, means: Tensor, predicted: Tensor) -> Drift | None:
    if learner.look is None:
        return None
    return judge_drift(rows, predicted, means, learner.look.unlike(inputs).cpu())
