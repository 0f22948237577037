"""Relative Mahalanobis: the distance to the nearest class, less the distance to all classes as one.

J. Ren, S. Fort, J. Liu, A. Guha Roy, S. Padhy, B. Lakshminarayanan: A Simple Fix to Mahalanobis Distance for
Improving Near-OOD Detection, ICML workshop on uncertainty and robustness in deep learning 2021.
"""

from functools import cached_property

from torch import Tensor

from shels.detection import shared_covariance as gaussian
from shels.detection.scores.mahalanobis import Mahalanobis
from shels.model.networks import Views


class RelativeMahalanobis(Mahalanobis):
    """Score: -min_c (d_c - d_0) on the high-level features, so that what all samples differ in cancels out.

    d_c: squared distance to a class's mean in the spread within classes; d_0: to the mean of all samples in
    their spread. Stores what Mahalanobis does, from which the Gaussian of all samples follows exactly. Later
    classes add means and leave both spreads as they are.
    """

    name = "relative-mahalanobis"

    def _scores(self, views: Views) -> Tensor:
        centre = gaussian.centre(self.state).unsqueeze(0)
        of_all = gaussian.squared_distances(views.high, centre, self._white_overall)
        return of_all.squeeze(1) + super()._scores(views)

    @cached_property
    def _white_overall(self) -> Tensor:
        return gaussian.whitening(gaussian.overall(self.state))
