"""RanPAC: ridge regression from a random, rectified projection of features to classes.

M. D. McDonnell, D. Gong, A. Parvaneh, E. Abbasnejad, A. van den Hengel: RanPAC: Random Projections and
Pre-trained Models for Continual Learning, NeurIPS 2023. Its second phase alone: the network is not adapted to
the first classes by adapters. The authors choose the ridge anew with each task's samples; here classes come
one by one, and one class cannot tell, so the choice on the first classes is kept. Samples are shuffled before
the choice, as they may come sorted by class. A ridge that double precision cannot tell from zero is raised
until it can.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from shels.config import Ranpac
from shels.learning.closed_form import ClosedForm
from shels.learning.protocol import Memory
from shels.runtime import generator, row_parts

_ROWS = 1024
"""How many rows to project at once: projections are many."""
_RIDGES = [10.0**power for power in range(-8, 9)]
_LEAST = 1e-12
"""The smallest ridge, over the trace of G, with which G is factored safely in double precision."""


@lru_cache(maxsize=1)
def directions(features: int, projections: int) -> Tensor:
    """Return W, the random directions, the same at every call: (features, projections)."""
    return torch.randn(features, projections, generator=generator(0, "ranpac"))


def products(rows: Tensor, drawn: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return G = HᵀH and Q = HᵀY, in double: rows (n, d), targets (n, k) -> (m, m), (m, k)."""
    gram = targets.new_zeros(drawn.shape[1], drawn.shape[1])
    sums = targets.new_zeros(drawn.shape[1], targets.shape[1])
    for part, wanted in zip(_hidden(rows, drawn), torch.split(targets, _ROWS), strict=True):
        gram.addmm_(part.T, part)
        sums.addmm_(part.T, wanted)
    return gram, sums


def solved(gram: Tensor, sums: Tensor, ridge: Tensor) -> Tensor:
    """Return the weights (G + λI)⁻¹ Q of a ridge regression: (m, m), (m, k) -> (m, k)."""
    raised = gram.clone()
    raised.diagonal().add_(torch.maximum(ridge, _LEAST * gram.trace()))
    return torch.cholesky_solve(sums, torch.linalg.cholesky(raised))


def best_ridge(rows: Tensor, drawn: Tensor, targets: Tensor) -> Tensor:
    """Return the λ of least squared error on a fifth of the samples, fitted on the others: ().

    One factor serves all candidates.
    """
    order = torch.randperm(len(rows), generator=generator(0, "ranpac", "split")).to(rows.device)
    fit, check = order.tensor_split([len(order) * 4 // 5])
    values, turn, right = _factored(rows[fit], drawn, targets[fit])
    left = torch.cat([part @ turn for part in _hidden(rows[check], drawn)])
    ridges = torch.tensor(_RIDGES, dtype=values.dtype, device=values.device)
    raised = torch.maximum(ridges, _LEAST * values.sum())
    answers = [left / (values + each) @ right for each in raised]
    errors = torch.stack([(each - targets[check]).square().mean() for each in answers])
    return ridges[errors.argmin()]


def _factored(rows: Tensor, drawn: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return e, A and B with which a regression answers (h A / (e + λ)) B, whatever λ.

    G is factored, or where samples are fewer than projections HHᵀ, which is smaller, for the same answers.
    """
    if len(rows) < drawn.shape[1]:
        seen = torch.cat(list(_hidden(rows, drawn)))
        values, vectors = torch.linalg.eigh(seen @ seen.T)
        return values.clamp(min=0), seen.T @ vectors, vectors.T @ targets
    gram, sums = products(rows, drawn, targets)
    values, vectors = torch.linalg.eigh(gram)
    return values.clamp(min=0), vectors, vectors.T @ sums


class RanpacMethod(ClosedForm):
    """Score: h (G + λI)⁻¹ Q with h = ReLU(f W). Stores G (m, m), Q (m, classes), λ and the width of f."""

    settings: Ranpac

    def fitted(self, rows: Tensor, labels: Tensor) -> Memory:
        """Return the sums of the first classes, and the ridge that serves them best."""
        drawn = directions(rows.shape[1], self.settings.projections).to(rows)
        targets = F.one_hot(labels).double()
        gram, sums = products(rows, drawn, targets)
        width = torch.tensor(rows.shape[1], device=rows.device)
        return {"gram": gram, "sums": sums, "ridge": best_ridge(rows, drawn, targets), "width": width}

    def grown(self, memory: Memory, rows: Tensor) -> Memory:
        """Return the sums with one class more; the ridge stays."""
        ones = torch.ones_like(rows[:, :1], dtype=torch.float64)
        gram, sums = products(rows, _drawn(memory).to(rows), ones)
        return memory | {"gram": memory["gram"] + gram, "sums": torch.cat([memory["sums"], sums], dim=1)}

    def scorer(self, memory: Memory) -> Callable[[Tensor], Tensor]:
        """Return the regression's answers, near 1 for a class's own samples."""
        weights = solved(memory["gram"], memory["sums"], memory["ridge"])
        drawn = _drawn(memory).to(weights.device)
        return lambda rows: torch.cat([part @ weights for part in _hidden(rows, drawn)])


def _hidden(rows: Tensor, drawn: Tensor) -> Iterator[Tensor]:
    """Yield h = ReLU(f W) of a few rows at a time, in double: (n, features) -> parts of (n, projections)."""
    for part in row_parts(rows, _ROWS):
        yield F.relu(part @ drawn).double()


def _drawn(memory: Memory) -> Tensor:
    """Return the directions that a memory was made with, drawn again: they need no room in a file."""
    return directions(int(memory["width"]), len(memory["sums"]))
