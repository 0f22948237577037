"""SHELS's score as one among others, to stand beside any way of naming classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from shels.detection.protocol import Detector
from shels.detection.scores.shels import class_scores
from shels.model.networks import Views


@dataclass(frozen=True, eq=False)
class ShelsScore(Detector):
    """Score: max_c w_c · f, whatever the head. Stores nothing."""

    name: ClassVar[str] = "shels"
    reads_one_row: ClassVar[bool] = True

    def _scores(self, views: Views) -> Tensor:
        return class_scores(views.high, self.head.weight.to(views.high)).amax(dim=1)
