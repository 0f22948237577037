"""A model as it was at one moment: what judges while the next one is made."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from shels.detection.calibration import Verdicts
from shels.learner.learner import Learner
from shels.service import views


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A learner, its version and the names of its classes; nothing changes it."""

    learner: Learner
    version: int
    names: tuple[str, ...]

    @staticmethod
    def of(learner: Learner, version: int) -> Snapshot:
        """Take a model that has judged once, so that nobody waits for what is worked out lazily."""
        learner.judge(torch.zeros(2, *learner.preparation.shape))
        return Snapshot(learner, version, tuple(map(str, learner.classes)))

    def judge(self, inputs: Tensor) -> list[views.Judged]:
        """Judge inputs."""
        return self.said(self.learner.judge(inputs))

    def said(self, verdicts: Verdicts) -> list[views.Judged]:
        """Say verdicts in plain values."""
        score = verdicts.score.nan_to_num()  # JSON has no infinity
        columns = (verdicts.predicted, verdicts.novel, score, verdicts.threshold, verdicts.p_value)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        names = self.names
        return [
            views.Judged("novel" if novel else names[place], novel, names[place], score, limit, p_value)
            for place, novel, score, limit, p_value in rows
        ]
