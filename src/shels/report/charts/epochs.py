"""The chart of learning epoch by epoch: accuracy overall and of the newest class, after Figure 7."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from shels.report.drawing import INK, WIDE, Figure, colour, label, legend
from shels.report.studies import Group, Study, method_title
from shels.report.words import prose

Curve: TypeAlias = NDArray[np.float64]
"""Place, accuracy overall and of the newest class, (points, 3): places count the classes taken in."""

_METHODS = (
    *("penalty", "shels-no-sparsity", "shels-no-penalty", "ags-cl", "gdumb", "shels-gdumb"),
    *("gaussian", "proximal"),
)
"""The paper's, its ablations and its rivals, and ours; closed forms learn in no epochs."""


def curves(studies: Sequence[Study]) -> list[Figure]:
    """Draw a row for each experiment: accuracy over all classes met so far, and of the one being learned."""
    found = {study: drawn for study in studies if (drawn := _curves(study))}
    if not found:
        return []
    methods = [name for name in _METHODS if any(name in drawn for drawn in found.values())]

    def draw(canvas: Canvas) -> None:
        rows = canvas.subplots(len(found), 2, squeeze=False, sharex="row", sharey=True)
        for row, (study, drawn) in zip(rows, found.items(), strict=True):
            _panels(row, study, drawn)
        lines = [Line2D([], [], color=_shade(name), linewidth=1.8) for name in methods]
        legend(canvas, dict(zip((label(method_title(name), 40) for name in methods), lines, strict=True)))

    alt = "Accuracy over all classes and of the newest one, epoch by epoch, as classes are learned."
    size = (WIDE, 200 * len(found) + 20 * (1 + (len(methods) - 1) // 3))
    return [Figure("learning-epochs", draw, size, alt, prose("epochs_caption"))]


def _curves(study: Study) -> dict[str, Curve]:
    made = {group.method: curve_of(group) for group in study.groups if group.method in _METHODS}
    return {name: curve for name, curve in made.items() if len(curve)}


def curve_of(group: Group) -> Curve:
    """Average the curves of a group's trials, point by point, over the trials that have the point.

    A class takes the same room however many epochs it has; its last epoch stands where the next one begins.
    """
    found: dict[tuple[int, float], list[tuple[float, float]]] = {}
    for curve in group.details("curve"):
        for place, epoch, overall, newest in curve:
            values = (overall, np.nan if newest is None else newest)
            found.setdefault((int(place), float(epoch)), []).append(values)
    last = {place: max(epoch for at, epoch in found if at == place) for place, _ in found}
    rows = [
        (place - 1 + epoch / last[place] if place else 0.0, *np.mean(values, axis=0))
        for (place, epoch), values in sorted(found.items())
    ]
    return np.array(rows, dtype=np.float64).reshape(-1, 3)


def _panels(row: Sequence[Axes], study: Study, drawn: Mapping[str, Curve]) -> None:
    titles = (f"{label(study.short, 30)}: % of all classes met", "% of the class that is learned")
    for axes, column, title in zip(row, (1, 2), titles, strict=True):
        for name, curve in reversed([*drawn.items()]):  # the paper's own lies on top
            axes.plot(curve[:, 0], 100 * curve[:, column], color=_shade(name), linewidth=1.5)
        classes = round(max(curve[-1, 0] for curve in drawn.values()))
        axes.set_xticks(range(classes + 1))
        axes.set(ylim=(-3, 104), yticks=range(0, 101, 25), xlabel="classes learned")
        axes.grid(axis="both")
        axes.set_title(title, color=INK)


def _shade(method: str) -> str:
    return colour(_METHODS.index(method))
