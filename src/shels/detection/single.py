"""The fused score of a single sample on the CPU: the same sums as for many, in NumPy.

They are some hundred operations on a few numbers each. PyTorch takes longer to begin one than it takes to do
it, and a network of six convolutions judges an image in a millisecond.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from shels.detection.familiarity import BOUND, MOST, NEAREST, ROUNDING, Familiarity, Layer
from shels.detection.fusion import References

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]


class SingleSample:
    """Scores one sample as `Familiarity`, `References` and weights score many; it holds views of theirs."""

    def __init__(self, model: Familiarity, references: References, weights: Tensor) -> None:
        self.layers = [_SingleLayer(model.shared), _SingleLayer(model.high)]
        self.rows, self.unit_rows = model.rows.numpy(), model.unit_rows.numpy()
        self.by_class, self.pooled = references.by_class.numpy(), references.pooled.numpy()
        self.tails, self.weights = references.tails.numpy(), weights.numpy()

    def __call__(self, shared: Floats, high: Floats, named: int) -> float:
        """Return the familiarity of a sample with a class by its features, (s,) and (d,)."""
        with np.errstate(all="ignore"):
            given = [_bounded(shared), _bounded(high)]
            if given[0] is None or given[1] is None:
                return -np.inf
            units = [_unit(given[0]), _unit(given[1])]
            found = [given[1] @ self.rows[named], units[1] @ self.unit_rows[named]]
            for layer, values in zip(self.layers, units, strict=True):
                found += layer.scores(values, named)
            scores = np.array(found, dtype=np.float32)
            scores = np.nan_to_num(scores, nan=-MOST, posinf=-MOST, neginf=-MOST).clip(-MOST, MOST)
            return float(2 * (self._log_p(scores, named) * self.weights[named]).sum())

    def _log_p(self, scores: Floats, named: int) -> Floats:
        column = scores[:, None]
        ranks = [(each <= column).sum(axis=1) for each in (self.by_class[named], self.pooled)]
        counts, lowest, _, width = self.tails[:, named]
        shares = (np.stack(ranks) + 1) / (counts + 1)
        gap = np.maximum(lowest - scores, 0) / width
        out: Floats = np.log(np.minimum(shares, 1)) - 2 * np.log1p(gap / 2)
        return out


class _SingleLayer:
    """The four scores of a layer."""

    def __init__(self, layer: Layer) -> None:
        self.layer, self.centre, self.means = layer, layer.centre.numpy(), layer.means.numpy()
        self.prototypes, self.offset = layer.prototypes.numpy(), layer.offset.numpy()
        self.nearest = min(NEAREST, self.prototypes.shape[1])

    def scores(self, units: Floats, named: int) -> list[float]:
        """Score features of length 1, (s,), by the class that they are given to."""
        layer = self.layer
        rows = (
            torch.from_numpy(units) @ layer.directions
        ).numpy() - self.offset  # large products are torch's
        about = torch.from_numpy(rows - self.means[named])
        common, own = (about @ layer.common).numpy(), (about @ layer.whitening[named]).numpy()
        apart = self.prototypes[named] - rows
        squares = np.einsum("ij,ij->i", apart, apart)
        near = np.sqrt(np.partition(squares, self.nearest - 1)[: self.nearest]).mean()
        main, off = rows[: max(1, len(rows) // 4)], units - self.centre
        whole = off @ off
        left = whole - main @ main
        logs = [np.log(max(each @ each, np.float32(1e-12))) for each in (common, own)]
        return [-near, -logs[0], -logs[1], -np.sqrt(left) if left > ROUNDING * whole else np.float32(0)]


def _bounded(values: Floats) -> Floats | None:
    """Return values without what would overflow when squared; none where one is no number."""
    most = np.abs(values).max()
    if not most < np.inf:
        return None
    return values if most <= BOUND else values.clip(-BOUND, BOUND)


def _unit(values: Floats) -> Floats:
    length: np.float32 = np.sqrt(values @ values)
    out: Floats = values / max(length, np.finfo(np.float32).tiny)
    return out
