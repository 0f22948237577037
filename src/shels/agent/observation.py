"""What a learner makes of a batch as a whole: how much is novel, and whether that is more than chance."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from shels.agent import alarm
from shels.agent.proposals import ProposalSettings, propose
from shels.detection.rules import designed_rejection
from shels.learner.learner import Learner
from shels.model.networks import Views


@dataclass(frozen=True)
class AgentSettings:
    """When an agent switches to learning, and what it makes of what it saw."""

    alarm: alarm.AlarmRule = field(default_factory=alarm.FalseAlarmRate)
    proposals: ProposalSettings = field(default_factory=ProposalSettings)


@dataclass(frozen=True, eq=False)
class Observation:
    """What a learner makes of a batch as a whole.

    novel, predicted: (n,). share: how much is judged novel. features: what the network made of the batch.
    """

    novel: Tensor
    share: float
    alarm_count: int
    predicted: Tensor
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

    def novel_features(self) -> Views:
        """Return the features of what is novel."""
        return rows_of(self.features, self.novel)


def observe(learner: Learner, inputs: Tensor, rule: alarm.AlarmRule) -> Observation:
    """Judge a batch as a whole."""
    features = learner.views(inputs)
    verdicts = learner.judge_features(features)
    novel, judged = verdicts.novel.cpu(), int(learner.report["held_out_samples"])
    count = alarm.alarm_count(rule, len(inputs), false_alarms(learner), judged)
    return Observation(novel, float(novel.double().mean()), count, verdicts.predicted.cpu(), features)


def false_alarms(learner: Learner) -> int:
    """Count how many of the held-out samples were called novel by mistake.

    As many as were, by thresholds set without them, but no fewer than the rule rejects by design: few samples
    can come out well by luck.
    """
    judged, rule = int(learner.report["held_out_samples"]), learner.settings.rule
    measured = (1 - float(learner.report["held_out_acceptance"])) * judged
    return round(max(measured, designed_rejection(rule) * judged))


def observed(learner: Learner, inputs: Tensor, settings: AgentSettings | None = None) -> dict[str, Any]:
    """Judge a batch for people: marks, share, alarm, the share that raises one, and proposed groups."""
    settings = settings or AgentSettings()
    seen = observe(learner, inputs, settings.alarm)
    groups = torch.full((len(inputs),), -1)
    out: dict[str, Any] = {"drift": None}
    if seen.alarm:
        proposal = propose(learner, inputs[seen.novel], settings.proposals, features=seen.novel_features())
        groups[seen.novel] = proposal.groups
        out["drift"] = proposal.drift.reason if proposal.drift else None
    return out | {
        "novel": seen.novel.numpy(),
        "share": seen.share,
        "alarm": seen.alarm,
        "threshold": seen.alarm_count / len(inputs),
        "groups": groups.numpy(),
    }


def rows_of(features: Views, rows: Tensor) -> Views:
    """Return the features of some rows: marks or positions, (n,)."""
    return Views(*(each[rows.to(each.device)] for each in features))
