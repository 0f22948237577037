"""Replay: a Gaussian per class on a network's shared features, to draw from when the samples are gone."""

from collections.abc import Mapping

import torch
from torch import Tensor

Statistics = dict[str, Tensor]
"""What is kept of k classes: mean (k, d), factor (k, rank, d), residual (k, d), floor (k,), count (k,).

The covariance is factorᵀ · factor and residual² on the diagonal; nothing drawn is less than the floor.
"""

_MOST = 2**19
"""Values that a class's factor may have: 2 MB."""
_PRIOR = 10
"""How many samples the old classes' spread counts as, in the spread of a new class."""


def rank_within(rank: int, width: int) -> int:
    """Return how many directions of so many features are kept where `rank` are asked for."""
    return min(rank, max(1, _MOST // width), width)


@torch.no_grad()
def describe_class(features: Tensor, rank: int, seed: int, old: Statistics | None = None) -> Statistics:
    """Return one class's mean and covariance, the latter as a low-rank factor and a diagonal: k = 1.

    features: (n, d). The spread of few samples is too small; `old` classes' mean spread makes up for it,
    and counts for less with every sample.
    """
    n, d = features.shape
    rank = rank_within(rank, d)
    mean = features.mean(dim=0)
    centred = features - mean
    factor = features.new_zeros(rank, d)
    found = min(rank, n, d)
    with torch.random.fork_rng(devices=[features.device] if features.is_cuda else []):
        torch.manual_seed(seed)
        _, size, directions = torch.svd_lowrank(centred, q=found, niter=2)
    factor[:found] = (directions * size / n**0.5).T
    residual = (centred.square().mean(dim=0) - factor.square().sum(dim=0)).clamp(min=0)
    if old is not None and len(old["mean"]):
        spread = old["factor"].square().sum(dim=1) + old["residual"].square()
        residual += _PRIOR / (n + _PRIOR) * spread.mean(dim=0)
    return {
        "mean": mean[None],
        "factor": factor[None],
        "residual": residual.sqrt()[None],
        "floor": features.min().clamp(max=0)[None],  # features have been through ReLU; inputs need not be
        "count": torch.tensor([n], device=features.device),
    }


def draw(statistics: Mapping[str, Tensor], each: int, source: torch.Generator | None = None) -> Tensor:
    """Return samples of every class's Gaussian, clipped where its features end: (k, each, d).

    source: a generator on the CPU; None draws from torch's own, on the device of the statistics.
    """
    mean, factor, residual = (statistics[name] for name in ("mean", "factor", "residual"))
    device = mean.device if source is None else torch.device("cpu")
    k, rank, d = factor.shape
    along = torch.randn(k, each, rank, generator=source, device=device).to(mean.device)
    across = torch.randn(k, each, d, generator=source, device=device).to(mean.device)
    drawn = mean[:, None] + along @ factor + across * residual[:, None]
    return torch.maximum(drawn, statistics["floor"][:, None, None])


def filled(features: Tensor, old: Mapping[str, Tensor], least: int, source: torch.Generator) -> Tensor:
    """Return a class's features, made up to `least` rows where they are fewer.

    What is added lies about the class's mean as the old classes lie about theirs.
    """
    missing = least - len(features)
    if missing <= 0:
        return features
    spread = draw(old, -(-missing // len(old["mean"])), source) - old["mean"][:, None]
    more = features.mean(dim=0) + spread.transpose(0, 1).flatten(0, 1)[:missing]
    return torch.cat([features, torch.maximum(more, old["floor"].min())])


def joined(one: Statistics, other: Statistics) -> Statistics:
    """Return the statistics of both sets of classes, in order."""
    return {name: torch.cat([value, other[name].to(value.device)]) for name, value in one.items()}


def without(statistics: Statistics, position: int) -> Statistics:
    """Return the statistics without one class."""
    return {name: torch.cat([value[:position], value[position + 1 :]]) for name, value in statistics.items()}
