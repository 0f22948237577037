"""What a batch that looks new may hold: one new class, several, or known ones seen through a change."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from shels.agent.separation import Separation, SeparationSettings, separate
from shels.detection.drift import Drift, drift_of
from shels.detection.protocol import Places
from shels.learner.learner import Learner
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
    places = learner.detector.places(learner.views(inputs) if features is None else features).cpu()
    drift = _drift(learner, inputs, places) if settings.drift else None
    if drift is not None and drift.drift:
        return Proposal(everything - 1, (), drift)
    if not settings.several:
        return Proposal(everything, (1.0,))
    found: Separation = separate(places.rows, settings.separation, known_means=places.means, seed=seed)
    return Proposal(found.groups, found.purity)


def _drift(learner: Learner, inputs: Tensor, places: Places) -> Drift | None:
    if learner.statistics is None:
        return None
    unlike = learner.statistics.unlike(inputs).cpu()
    return drift_of(places.rows, places.predicted, places.means, unlike)
