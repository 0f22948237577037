"""SLDA: linear discriminant analysis that goes on with every sample; one covariance, a mean for each class.

T. L. Hayes, C. Kanan: Lifelong Machine Learning with Deep Streaming Linear Discriminant Analysis, CVPR
workshop on continual learning in computer vision, 2020. The paper's stream adds up n/(n+1) of the outer
product of each sample's deviation from its class's running mean, n counting the samples of all classes: a sum
that depends on the order of samples, and to which a class's first sample adds its deviation from zero. With n
counting the sample's own class the stream adds up to the scatter within classes, in any order; that is what
is computed here, in one pass, over the number of samples. The paper's covariance of the first classes is
shrunk by the data (OAS); here all are shrunk by ε alone.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from shels.config import Slda
from shels.detection import shared_covariance as covariance
from shels.learning.closed_form import ClosedForm
from shels.learning.protocol import Memory


def discriminant(means: Tensor, covariance: Tensor, shrinkage: float) -> tuple[Tensor, Tensor]:
    """Return weights and offsets of linear scores: means (k, d), covariance (d, d) -> (k, d), (k,).

    Λ = ((1 - ε) Σ + ε v I)⁻¹, w_c = Λ μ_c, b_c = -½ μ_cᵀ Λ μ_c; all classes are as likely. ε holds
    directions in which features never vary, which are many after a ReLU; v, their mean variance, makes it
    the same in every unit of the features.
    """
    shrunk = (1 - shrinkage) * covariance
    shrunk.diagonal().add_(shrinkage * covariance.diagonal().mean().clamp(min=1e-12))
    weights = torch.cholesky_solve(means.T, torch.linalg.cholesky(shrunk)).T.contiguous()
    return weights, -(means * weights).sum(dim=1) / 2


class SldaMethod(ClosedForm):
    """Score: w_c · f + b_c, see `discriminant`. Stores counts, means and the common scatter."""

    settings: Slda

    def scorer(self, memory: Memory) -> Callable[[Tensor], Tensor]:
        """Return the linear scores, in double: where weights are long they differ by little."""
        weights, offsets = discriminant(memory["means"], covariance.within(memory), self.settings.shrinkage)
        return lambda rows: rows.double() @ weights.T + offsets
