"""SHELS's score (Algorithm 1): how like the nearest class the high-level features are.

I. Gummadi, C. Kent, J. Mendez, E. Eaton: SHELS: Exclusive Feature Sets for Novelty Detection and Continual
Learning Without Class Boundaries, CoLLAs 2022.
"""

from torch import Tensor

from shels.detection.score import Score
from shels.model.networks import Views


def class_scores(features: Tensor, weights: Tensor) -> Tensor:
    """Score how like each class the features are, Eq. (4), the raw product that detection uses.

    features: (n, d), weights: (classes, d) -> (n, classes). Its argmax is the class that is predicted.

    >>> import torch
    >>> class_scores(torch.tensor([[3.0, 1.0]]), torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
    tensor([[3., 2.]])
    """
    return features @ weights.T


class Shels(Score):
    """Score: max_c w_c · f, whatever the head. Stores nothing. The same products can name classes."""

    name = "shels"
    reads_one_row = True

    def class_scores(self, views: Views) -> Tensor:
        """Score each class, by which SHELS names it: (n, classes)."""
        return class_scores(views.high, self.head.weight)

    def _scores(self, views: Views) -> Tensor:
        return class_scores(views.high, self.head.weight.to(views.high)).amax(dim=1)
