"""Maximum logit: the score of the predicted class before softmax divides its strength out.

D. Hendrycks, S. Basart, M. Mazeika, A. Zou, J. Kwon, M. Mostajabi, J. Steinhardt, D. Song: Scaling
Out-of-Distribution Detection for Real-World Settings, ICML 2022.
"""

from torch import Tensor

from shels.detection.score import Score
from shels.model.networks import Views


class MaxLogit(Score):
    """Score: max_c l_c; with a cosine head, the largest cosine. Stores nothing."""

    name = "max-logit"
    reads_one_row = True

    def _scores(self, views: Views) -> Tensor:
        return self.head.logits(views.high).amax(dim=1)
