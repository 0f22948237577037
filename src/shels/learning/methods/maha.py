"""MAHA: a mean for each class and one covariance for all; the nearest mean names the class.

K. Lee, K. Lee, H. Lee, J. Shin: A Simple Unified Framework for Detecting Out-of-Distribution Samples and
Adversarial Attacks, NeurIPS 2018. A new class is a new mean, and the covariance becomes a weighted sum of
what it was and the new class's. A class weighs by its samples, as in the paper's estimate over the first
classes, so that the order in which classes come changes nothing. One layer of features, without the
perturbation of inputs and without the tuning on novel samples, which serve to detect.
"""

from collections.abc import Callable

from torch import Tensor

from shels.config import Maha
from shels.detection import shared_covariance as covariance
from shels.learning.closed_form import ClosedForm
from shels.learning.protocol import Memory


class MahaMethod(ClosedForm):
    """Score: -(f - μ_c)ᵀ Σ⁻¹ (f - μ_c), Σ over all samples about their class's mean."""

    settings: Maha

    def scorer(self, memory: Memory) -> Callable[[Tensor], Tensor]:
        """Return what gives rows minus their squared distances, in double: far off they differ by little."""
        means, white = memory["means"], covariance.whitening(covariance.within(memory))
        return lambda rows: -covariance.squared_distances(rows.double(), means, white)
