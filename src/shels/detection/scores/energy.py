"""Free energy: all logits together, a smooth maximum.

W. Liu, X. Wang, J. Owens, Y. Li: Energy-based Out-of-distribution Detection, NeurIPS 2020.
"""

from dataclasses import dataclass

from torch import Tensor

from shels.detection.score import Score, require
from shels.model.networks import Views


def negative_energy(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Return -E = T · log Σ_c exp(l_c / T): (n, classes) -> (n,)."""
    return temperature * (logits / temperature).logsumexp(dim=1)


@dataclass(frozen=True, eq=False)
class Energy(Score):
    """Score: the negative free energy of the logits, without the paper's fine-tuning. Stores nothing."""

    temperature: float = 1.0
    """T; 1 is the paper's, which found larger ones worse."""

    name = "energy"

    def __post_init__(self) -> None:
        require(self.temperature > 0, "temperature", "over 0", self.temperature)

    def _scores(self, views: Views) -> Tensor:
        return negative_energy(self.head.logits(views.high), self.temperature)
