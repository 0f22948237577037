"""Maximum softmax probability: how sure the network is of its answer.

D. Hendrycks, K. Gimpel: A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural
Networks, ICLR 2017.
"""

from torch import Tensor

from shels.detection.score import Score
from shels.model.networks import Views


class Msp(Score):
    """Score: max_c softmax(l)_c, the probability of the predicted class. Stores nothing."""

    name = "msp"

    def _scores(self, views: Views) -> Tensor:
        return self.head.logits(views.high).softmax(dim=1).amax(dim=1)
