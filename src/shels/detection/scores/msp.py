"""Maximum softmax probability: how sure the network is of its answer.

D. Hendrycks, K. Gimpel: A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural
Networks, ICLR 2017.
"""

from torch import Tensor

from shels.detection.score import Score
from shels.model.networks import Views


def max_probability(logits: Tensor) -> Tensor:
    """Return max_c softmax(l)_c: (n, classes) -> (n,)."""
    return logits.softmax(dim=1).amax(dim=1)


class Msp(Score):
    """Score: the probability of the predicted class. Stores nothing."""

    name = "msp"

    def _scores(self, views: Views) -> Tensor:
        return max_probability(self.head.logits(views.high))
