"""FeCAM: a mean and a covariance for each class, normalised so that distances to classes compare.

D. Goswami, Y. Liu, B. Twardowski, J. van de Weijer: FeCAM: Exploiting the Heterogeneity of Class
Distributions in Exemplar-Free Continual Learning, NeurIPS 2023. As in the authors' code, a prototype is
Tukey's transformation of the mean, not the mean of transformed features, and the covariance is that of
transformed features before they are scaled to length 1. Different here: covariances are shrunk once, as
printed (the code's two rounds with γ are one with 2γ + γ²); the mean covariance counts zeros, which keeps the
matrix definite; features below 0, which have no such power, count as 0; 1e-5 on the diagonal of the
correlations takes the place of a pseudo-inverse; and these scores name classes from the start, not only
once a class was taken in.
"""

from collections.abc import Callable, MutableMapping

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from shels.config import Fecam
from shels.learning.closed_form import ClosedForm
from shels.learning.protocol import Memory
from shels.model.head import unit

_WHITES: MutableMapping[Tensor, dict[float, list[Tensor]]] = WeakTensorKeyDictionary()
"""Of covariances (k, d, d) that are in use, the whitening of each class, by shrinkage."""
_FLOOR = 1e-5
"""Added to each correlation of a feature with itself: more than single precision rounds away."""


def tukey(rows: Tensor, power: float) -> Tensor:
    """Return features drawn towards a Gaussian shape, f^λ, those below 0 as 0: same shape."""
    return rows.clamp(min=0).pow(power)


def correlations(covariance: Tensor, shrinkage: float) -> Tensor:
    """Return the shrunk covariance over its standard deviations, in double: (d, d) -> (d, d).

    Shrunk: Σ + γ V1 I + γ V2 (1 - I), V1 the mean variance, V2 the mean covariance of two features. Where
    nothing varies, as in a class of one sample, it is the identity.
    """
    wide, width = covariance.double(), len(covariance)
    variance = wide.diagonal().mean()
    common = (wide.sum() - wide.diagonal().sum()) / max(width * (width - 1), 1)
    shrunk = wide + shrinkage * common
    shrunk.diagonal().add_(shrinkage * (variance - common)).clamp_(min=1e-30)
    scale = shrunk.diagonal().rsqrt()
    normal: Tensor = scale[:, None] * shrunk * scale
    return normal


def whitening(covariance: Tensor, shrinkage: float) -> Tensor:
    """Return what turns deviations into distances, in single precision: (d, d) -> (d, d)."""
    normal = correlations(covariance, shrinkage)
    normal.diagonal().add_(_FLOOR)
    one = torch.eye(len(normal), dtype=normal.dtype, device=normal.device)
    white: Tensor = torch.linalg.solve_triangular(torch.linalg.cholesky(normal), one, upper=False)
    return white.T.float().contiguous()


class FecamMethod(ClosedForm):
    """Score: minus the squared distance of features from a class's prototype, by the class's correlations.

    Stores means (k, d) and covariances (k, d, d) in single precision: room by the square of features.
    """

    settings: Fecam

    def fitted(self, rows: Tensor, labels: Tensor) -> Memory:
        """Return the mean of each class, and the covariance of its transformed features."""
        each = [self._class(rows[labels == c]) for c in range(int(labels.max()) + 1)]
        return {name: torch.stack([one[name] for one in each]) for name in each[0]}

    def grown(self, memory: Memory, rows: Tensor) -> Memory:
        """Return both with one class more."""
        new, old = self._class(rows), memory["covariance"]
        both = {name: torch.cat([memory[name], value.unsqueeze(0)]) for name, value in new.items()}
        white = whitening(new["covariance"], self.settings.shrinkage)
        _WHITES[both["covariance"]] = {self.settings.shrinkage: [*self._whites(old), white]}
        return both

    def without(self, memory: Memory, position: int) -> Memory:
        """Return both without one class's."""
        others = torch.arange(len(memory["mean"]), device=memory["mean"].device) != position
        return {name: value[others] for name, value in memory.items()}

    def scorer(self, memory: Memory) -> Callable[[Tensor], Tensor]:
        """Return what gives rows minus their squared distances, class by class."""
        prototypes = unit(tukey(memory["mean"], self.settings.power))
        whites = self._whites(memory["covariance"])

        def score(rows: Tensor) -> Tensor:
            shaped = unit(tukey(rows, self.settings.power))
            pairs = zip(prototypes, whites, strict=True)
            return -torch.stack([((shaped - c) @ white).square().sum(dim=1) for c, white in pairs], dim=1)

        return score

    def _whites(self, covariances: Tensor) -> list[Tensor]:
        """Return the whitening of each class; those of old classes are not worked out again for a new one."""
        known, share = _WHITES.setdefault(covariances, {}), self.settings.shrinkage
        if share not in known:
            known[share] = [whitening(each, share) for each in covariances]
        return known[share]

    def _class(self, rows: Tensor) -> Memory:
        """Return mean (d,) and covariance (d, d) of one class."""
        mean = rows.double().clamp(min=0).mean(dim=0)
        shaped = tukey(rows.double(), self.settings.power)
        centred = shaped - shaped.mean(dim=0)
        covariance = centred.T @ centred / max(len(rows) - 1, 1)
        return {"mean": mean.float(), "covariance": covariance.float()}
