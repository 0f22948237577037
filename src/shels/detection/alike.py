"""Held-out samples put where a new sample would stand that is as familiar as they are.

What a fused score compares with are the samples that thresholds are set on. Each of these, compared with the
others, is judged more strictly than a new sample, which is compared with one more: to lie under the lowest of
all is rarer than to lie under the lowest of the others.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_FOLDS = 10
_NEAREST = 10
"""One in so many of the samples, the nearest ones, say what a score is worth among all."""


def scores_as_of_new(
    scored: Callable[[Tensor, Tensor, bool], Tensor], n: int, device: torch.device
) -> Tensor:
    """Score n held-out samples as new ones would be that are as familiar: (n,).

    scored: takes marks (n,) of samples to compare with and of samples to score, and whether these are among
    those; then each is taken out of them for itself.

    A new sample and a held-out one are alike to each other where neither is compared with (the jackknife+ of
    Barber, Candès, Ramdas, Tibshirani 2021). So a fold is scored by the others; and what all samples, the
    fold too, make of a score by those others, is how they score others that come out about so familiar.
    """
    every = torch.ones(n, dtype=torch.bool, device=device)
    alone = scored(every, every, True)
    folds = torch.arange(n, device=device) % min(_FOLDS, n)
    if n < 2:
        return alone
    out = torch.empty_like(alone)
    for fold in range(int(folds.max()) + 1):
        mine = folds == fold
        found, rest = scored(~mine, mine, False), scored(~mine, ~mine, True)
        out[mine] = found + _moved(found, rest, alone[~mine] - rest)
    return out


def _moved(found: Tensor, rest: Tensor, by: Tensor) -> Tensor:
    """Average how far the others nearest to each score are moved: (m,), (n,), (n,) -> (m,)."""
    many = min(len(rest), max(3, len(rest) // _NEAREST))
    ordered, order = rest.sort()
    sums = torch.cat([by.new_zeros(1), by[order].cumsum(0)]).double()
    first = (torch.searchsorted(ordered, found.contiguous()) - many // 2).clamp(0, len(rest) - many)
    return ((sums[first + many] - sums[first]) / many).to(found)
