"""Samples divided into parts: whole groups, each class in the shares that were asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from shels import runtime
from shels.errors import SettingsError

Array = NDArray[Any]


def stratified(labels: Array, groups: Array | None, shares: Sequence[float], seed: int) -> Array:
    """Give each sample its part, 0 to len(shares) - 1, whole groups together: (n,).

    labels, groups: (n,) whole numbers; None where each sample stands alone. The rarest class is dealt out
    first, its largest groups before others, each to the part that lacks most of the class (Sechidis,
    Tsoumakas, Vlahavas: On the Stratification of Multi-Label Data, 2011). A class has samples in the first
    part and, where it has groups enough, in every other.

    >>> parts = stratified(np.repeat([0, 1], 10), None, [0.8, 0.2], seed=0)
    >>> [np.bincount(parts[:10]).tolist(), np.bincount(parts[10:]).tolist()]
    [[8, 2], [8, 2]]
    """
    _check(shares)
    _, classes = np.unique(labels, return_inverse=True)
    _, member_of = np.unique(np.arange(len(labels)) if groups is None else groups, return_inverse=True)
    table = np.zeros((member_of.max(initial=-1) + 1, classes.max(initial=-1) + 1))
    np.add.at(table, (member_of, classes), 1)
    return np.asarray(_dealt(table, _wanted(table, np.asarray(shares, dtype=float)), seed)[member_of])


def folds_of(labels: Array, groups: Array | None, folds: int, seed: int) -> Array:
    """Deal samples out to so many folds of about one size, as `stratified` does: (n,)."""
    return stratified(labels, groups, [1 / folds] * folds, seed)


def merged_groups(first: Array, second: Array) -> Array:
    """Join groups: samples that share a number in either, one way or over others, share one: (n,).

    >>> merged_groups(np.array([0, 0, 1, 2]), np.array([5, 6, 6, 7])).tolist()
    [0, 0, 0, 1]
    """
    from scipy.sparse import coo_array  # noqa: PLC0415
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415

    ends = [np.unique(each, return_inverse=True)[1] for each in (first, second)]
    size = len(first)
    shape = (3 * size, 3 * size)  # samples, groups of the first kind, groups of the second
    rows = np.tile(np.arange(size), 2)
    graph = coo_array(
        (np.ones(2 * size), (rows, np.concatenate([ends[0] + size, ends[1] + 2 * size]))), shape
    )
    found = connected_components(graph, directed=False)[1][:size]
    return np.asarray(np.unique(found, return_inverse=True)[1], dtype=np.int64)


def _check(shares: Sequence[float]) -> None:
    if not shares or min(shares) < 0 or shares[0] <= 0 or abs(sum(shares) - 1) > 1e-6:
        raise SettingsError(
            f"shares of parts must be 0 or more and come to 1, some of it to train on, got {list(shares)}"
        )


def _wanted(table: Array, shares: Array) -> Array:
    """Give how many samples of each class each part is to have: (parts, classes).

    The first is to have one group at least, and the others one each as long as there are more.
    """
    wanted, groups = shares[:, None] * table.sum(axis=0), (table > 0).sum(axis=0) - 1
    for part in np.argsort(-shares[1:], kind="stable") + 1:
        if shares[part] > 0:
            wanted[part] = np.where(groups > 0, np.maximum(wanted[part], 1), 0)
            groups = groups - 1
    wanted[0] = table.sum(axis=0) - wanted[1:].sum(axis=0)
    wanted[shares == 0] = -np.inf  # what is to have nothing never lacks anything
    return np.asarray(wanted)


def _dealt(table: Array, wanted: Array, seed: int) -> Array:
    """Give each group, with its samples by class (groups, classes), its part: (groups,)."""
    part, left = np.full(len(table), -1), table.sum(axis=0)
    order = torch.randperm(len(table), generator=runtime.generator(seed, "parts")).numpy()
    while (left > 0).any():
        rarest = int(np.where(left > 0, left, np.inf).argmin())
        mine = order[(part[order] < 0) & (table[order, rarest] > 0)]
        for group in mine[np.argsort(-table[mine, rarest], kind="stable")]:
            need = wanted[:, rarest] + 1e-6 * wanted.sum(axis=1)  # of equals the one that lacks more in all
            part[group] = int(need.argmax())
            wanted[part[group]] -= table[group]
            left -= table[group]
    return part
