"""What a batch may hold: known classes, a new one, several, or known ones seen through a change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from shels.agent.alarm import AlarmRule, FalseAlarmRate, alarm_count, most_by_chance
from shels.agent.separation import Separation, SeparationSettings, separate
from shels.detection.drift import UNLIKE_WITH_DISPLACEMENT, Drift, common_displacement, drift_of
from shels.detection.protocol import Places, rows_of
from shels.detection.rules import designed_rejection
from shels.learner.learner import Learner
from shels.model.networks import Views

Separating = Callable[..., Separation]


@dataclass(frozen=True)
class ProposalSettings:
    """How to look at novel samples."""

    several: bool = True
    """Whether a batch may hold several new classes and stray known samples; else all of it is one class."""
    drift: bool = True
    """Whether to look for drift at all."""
    separation: SeparationSettings = field(default_factory=SeparationSettings)


@dataclass(frozen=True)
class AgentSettings:
    """When an agent switches to learning, and what it makes of what it saw."""

    alarm: AlarmRule = field(default_factory=FalseAlarmRate)
    proposals: ProposalSettings = field(default_factory=ProposalSettings)


@dataclass(frozen=True, eq=False)
class Observation:
    """What a learner makes of a batch as a whole.

    novel: (n,). share: how much is judged novel. features: what the network made of the batch.
    """

    novel: Tensor
    share: float
    alarm_count: int
    features: Views

    @property
    def alarm(self) -> bool:
        """Whether more is novel than chance explains."""
        return int(self.novel.sum()) >= self.alarm_count

    @property
    def facts(self) -> dict[str, Any]:
        """What the log says of it."""
        facts: dict[str, Any] = {"size": len(self.novel), "novel": int(self.novel.sum()), "share": self.share}
        return facts | {"threshold": self.alarm_count / len(self.novel), "alarm": self.alarm}


@dataclass(frozen=True, eq=False)
class Proposal:
    """How novel samples fall into new classes.

    groups: (n,), the proposed class of each, -1 for none. purity: for each class, see `Separation`; of one
    that was told by its size, the share that cannot be false alarms. drift: set where the samples are rather
    known classes seen through a change.
    """

    groups: Tensor
    purity: tuple[float, ...]
    drift: Drift | None = None


def observe(learner: Learner, inputs: Tensor, rule: AlarmRule, features: Views | None = None) -> Observation:
    """Judge a batch as a whole. features: what the learner's network makes of it, where that is known."""
    features = learner.views(inputs) if features is None else features
    novel, judged = learner.judge_features(features).novel.cpu(), int(learner.report["held_out_samples"])
    count = alarm_count(rule, len(inputs), false_alarms(learner), judged)
    return Observation(novel, float(novel.double().mean()), count, features)


def false_alarms(learner: Learner) -> int:
    """Count how many of the held-out samples were called novel by mistake.

    As many as were, by thresholds set without them, but no fewer than the rule rejects by design: few samples
    can come out well by luck.
    """
    judged, rule = int(learner.report["held_out_samples"]), learner.settings.rule
    measured = (1 - float(learner.report["held_out_acceptance"])) * judged
    return round(max(measured, designed_rejection(rule) * judged))


def propose(
    learner: Learner,
    inputs: Tensor,
    settings: ProposalSettings,
    seed: int = 0,
    features: Views | None = None,
    separating: Separating = separate,
    size: int | None = None,
) -> Proposal:
    """Return what samples that were judged novel may be: (n, ...) -> a proposal.

    features: what the learner's network makes of them, where that was computed already. separating: does
    what `separate` does, perhaps elsewhere. size: of the batch, where these are all that is novel in one. It
    says how many of them may be false alarms, so that a group may be a class by its size alone.
    """
    everything = torch.zeros(len(inputs), dtype=torch.int64)
    if not len(inputs):
        return Proposal(everything, ())
    places = learner.detector.places(learner.views(inputs) if features is None else features).cpu()
    looks_usual = True
    if settings.drift and learner.statistics is not None:
        unlike = learner.statistics.unlike(inputs).cpu()
        drift = drift_of(places.rows, places.predicted, places.means, unlike)
        if drift.drift:
            return Proposal(everything - 1, (), drift)
        looks_usual = drift.share_unlike < UNLIKE_WITH_DISPLACEMENT
    if not settings.several:
        return Proposal(everything, (1.0,))
    found = separating(places.rows, settings.separation, known_means=places.means, seed=seed)
    if found.purity or size is None or not looks_usual:
        return Proposal(found.groups, found.purity)
    apart = separating(places.rows, settings.separation, seed=seed)
    return _beyond_chance(apart, places, _most_false_alarms(learner, size), settings.separation)


def _beyond_chance(apart: Separation, places: Places, false: int, settings: SeparationSettings) -> Proposal:
    """Keep groups too large for false alarms that are one place rather than known classes, all moved alike.

    apart: groups told from each other alone. false: the most false alarms that there can be; all of them may
    lie in one group.
    """
    groups = torch.full_like(apart.groups, -1)
    purity: list[float] = []
    for place in range(len(apart.purity)):
        own = apart.groups == place
        share = 1 - false / int(own.sum())
        moved = common_displacement(places.rows[own], places.predicted[own], places.means)
        if share >= settings.least_purity and moved <= 0:
            groups[own] = len(purity)
            purity.append(share)
    return Proposal(groups, tuple(purity))


def _most_false_alarms(learner: Learner, size: int) -> int:
    return most_by_chance(size, false_alarms(learner), int(learner.report["held_out_samples"]))


def observed(learner: Learner, inputs: Tensor, settings: AgentSettings | None = None) -> dict[str, Any]:
    """Judge a batch for people: marks, share, alarm, the share that raises one, and proposed groups."""
    settings = settings or AgentSettings()
    seen = observe(learner, inputs, settings.alarm)
    groups, drift = torch.full((len(inputs),), -1), None
    if seen.alarm:
        own = rows_of(seen.features, seen.novel)
        proposal = propose(learner, inputs[seen.novel], settings.proposals, features=own, size=len(inputs))
        groups[seen.novel] = proposal.groups
        drift = proposal.drift.reason if proposal.drift else None
    return {
        "drift": drift,
        "novel": seen.novel.numpy(),
        "share": seen.share,
        "alarm": seen.alarm,
        "threshold": seen.facts["threshold"],
        "groups": groups.numpy(),
    }
