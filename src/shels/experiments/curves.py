"""Accuracy while a class is learned, epoch by epoch, as the paper's figures have it.

A curve is a list of [class, epoch, overall, newest]: which of the classes that come is being learned, counted
from 1 (0: before any); after how many epochs; accuracy over all classes met so far, that one among them; and
accuracy of that one alone. Epoch 0 is before it is learned: its samples all count as wrong, which is the drop
in the paper's figures. The last epoch of each class is measured on all test samples, those before it on at
most MOST of them. Closed forms have one point a class, epoch 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from shels.config import TrainingSettings
from shels.data.samples import Label, Samples
from shels.runtime import generator
from shels.training import Fit, Monitor, Rows, TrainingRequest

Point: TypeAlias = list[float | int | None]
MOST = 2000
"""Test samples that the inner points of a curve are measured on at most, of each class the same share."""
_ALL_EPOCHS = 20
"""Longer trainings are measured after epochs 1, 3, 7, 15 …, where cycles of GDumb's learning rate end."""
_PARTS = 5
"""Points of a training that validates only at its end."""


def some_rows(samples: Samples, classes: Sequence[Label], seed: int, most: int = MOST) -> Rows:
    """Choose samples of these classes, of each the same share, at most so many but one of each at least.

    Which ones is fixed by the seed: with more classes fewer of each, out of the same.
    """
    places, labels = samples.places(classes)
    if len(places) <= most:
        return Rows(places, labels)
    rank = torch.randperm(len(samples), generator=generator(seed, "curve"))[places]
    chosen = torch.zeros(len(places), dtype=torch.bool)
    for position in range(len(classes)):
        mine = (labels == position).nonzero()[:, 0]
        count = max(1, len(mine) * most // len(places))
        chosen[mine[rank[mine].argsort()[:count]]] = True
    return Rows(places[chosen], labels[chosen])


def monitor(request: TrainingRequest, tests: Tensor, rows: Rows, newest: int) -> Monitor:
    """Make what lets a training be evaluated on test samples. rows: those, in the test inputs."""
    inputs = tests
    if request.front is not None:
        inputs = request.front(tests[rows.places.to(tests.device)])
        rows = Rows(torch.arange(len(inputs)), rows.labels)
    once = request.settings.steps is not None and request.settings.check_every >= request.settings.steps
    about = (request.trial.data.prepare, newest, request.products)
    return Monitor(inputs, rows, *about, _epochs(request.settings), _PARTS if once else 1)


def _epochs(settings: TrainingSettings) -> frozenset[int] | None:
    if settings.epochs is None or settings.epochs <= _ALL_EPOCHS:
        return None
    return frozenset(2**power - 1 for power in range(1, settings.epochs.bit_length() + 1))


def class_points(
    step: int, fit: Fit | None, watched: Monitor | None, before: float, overall: float, newest: float
) -> list[Point]:
    """Give the points of one class. fit: how its last training went, None where there was none.

    before: accuracy over all classes met, that one's samples counted as wrong. overall, newest: at the end.
    """
    points: list[Point] = [[step, 0, before, 0.0]]
    if fit is None or watched is None or not fit.curve:
        return [*_rounded(points), *_rounded([[step, 1, overall, newest]])]
    every = len(watched.rows.labels)
    own = int((watched.rows.labels == watched.newest).sum())
    points += [[step, each.epoch, each.right / every, each.newest / own] for each in fit.curve[:-1]]
    return _rounded([*points, [step, fit.curve[-1].epoch, overall, newest]])


def _rounded(points: Sequence[Point]) -> list[Point]:
    return [[None if value is None else round(value, 4) for value in point] for point in points]
