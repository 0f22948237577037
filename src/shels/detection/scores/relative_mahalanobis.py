"""Relative Mahalanobis: the distance to the nearest class, less the distance to all classes as one.

J. Ren, S. Fort, J. Liu, A. Guha Roy, S. Padhy, B. Lakshminarayanan: A Simple Fix to Mahalanobis Distance for
Improving Near-OOD Detection, ICML workshop on uncertainty and robustness in deep learning 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from torch import Tensor

from shels.detection import shared_covariance as gaussian
from shels.detection.head import Head
from shels.detection.score import Score, Tensors
from shels.model.networks import Views


@dataclass(frozen=True, eq=False)
class RelativeMahalanobis(Score):
    """Score: -min_c (d_c - d_0) on the high-level features, so that what all samples differ in cancels out.

    d_c: squared distance to a class's mean in the spread within classes; d_0: to the mean of all samples in
    their spread. Stores means and Σ, from which the Gaussian of all samples follows exactly. Later classes
    add means and leave both spreads as they are.
    """

    name: ClassVar[str] = "relative-mahalanobis"
    remembers: ClassVar[tuple[str, ...]] = gaussian.REMEMBERED
    reads_head: ClassVar[bool] = False

    def _fitted(self, views: Views, labels: Tensor) -> Tensors:
        return gaussian.first_classes(views.high, labels)

    def _grown(self, views: Views, grown: Head) -> Tensors:
        del grown
        return gaussian.with_mean(self.state, views.high)

    def _scores(self, views: Views) -> Tensor:
        white, background = self._whites
        own = gaussian.squared_distances(views.high, gaussian.all_means(self.state), white).amin(dim=1)
        of_all = gaussian.squared_distances(views.high, gaussian.centre(self.state).unsqueeze(0), background)
        return of_all.squeeze(1) - own

    @cached_property
    def _whites(self) -> tuple[Tensor, Tensor]:
        return gaussian.whitening(gaussian.within(self.state)), gaussian.whitening(
            gaussian.overall(self.state)
        )
