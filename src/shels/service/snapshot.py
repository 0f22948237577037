"""A model as it was at one moment: what judges while the next one is made."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from shels.detection.calibration import Verdicts
from shels.learner.learner import Learner
from shels.service import views

_AT_ONCE_SECONDS = 0.001
"""Processor time up to which a sample is judged at once: to hand it to another thread takes about as long."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A learner, its version and the names of its classes; nothing changes it.

    quick: whether a sample takes less time than to hand it to another thread.
    """

    learner: Learner
    version: int
    names: tuple[str, ...]
    quick: bool = False

    @staticmethod
    def of(learner: Learner, version: int) -> Snapshot:
        """Take a model that has judged before, so that nobody waits for what is worked out lazily."""
        for count in (2, 1):  # outside of what judges, whose tensors none but it may use
            learner.judge(torch.zeros(count, *learner.preparation.shape))
        seconds = min(_seconds(learner) for _ in range(3))
        return Snapshot(learner, version, tuple(map(str, learner.classes)), seconds < _AT_ONCE_SECONDS)

    def judge(self, inputs: Tensor) -> list[views.Judged]:
        """Judge inputs."""
        with torch.inference_mode():  # quicker than without gradients alone; nothing of it is kept
            return self.said(self.learner.judge(inputs))

    def said(self, verdicts: Verdicts) -> list[views.Judged]:
        """Say verdicts in plain values."""
        score, limit = verdicts.score.nan_to_num(), verdicts.threshold.nan_to_num()  # JSON has no infinity
        columns = (verdicts.predicted, verdicts.novel, score, limit, verdicts.p_value)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        names = self.names
        return [
            views.Judged("novel" if novel else names[place], novel, names[place], score, limit, p_value)
            for place, novel, score, limit, p_value in rows
        ]


def _seconds(learner: Learner) -> float:
    """Measure the processor time of one sample in this thread, which others that are busy do not lengthen."""
    sample = torch.zeros(1, *learner.preparation.shape)
    began = time.thread_time()
    learner.judge(sample)
    return time.thread_time() - began
