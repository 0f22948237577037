"""The chart of learning epoch by epoch: accuracy overall and of the newest class, after Figure 7."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from shels.report.breakdown import CurvePoint, epoch_curve
from shels.report.drawing import INK, PALETTE, WIDE, Figure, colour, label, legend
from shels.report.studies import Study
from shels.report.words import prose

Curves: TypeAlias = Mapping[str, Sequence[CurvePoint]]
"""The curves of a study by the titles of its groups."""

_FIRST = (
    *("penalty", "shels-no-sparsity", "shels-no-penalty", "ags-cl", "gdumb", "shels-gdumb"),
    *("gaussian", "proximal"),
)
"""The paper's, its ablations and its rivals, and ours: drawn where there is no room for all."""


def curves(studies: Sequence[Study]) -> list[Figure]:
    """Draw a row for each experiment: accuracy over all classes met so far, and of the one being learned."""
    found = {study: drawn for study in studies if (drawn := _curves(study))}
    if not found:
        return []
    titles = _in_order(found)
    shades = {title: colour(place) for place, title in enumerate(titles[: len(PALETTE)])}

    def draw(canvas: Canvas) -> None:
        rows = canvas.subplots(len(found), 2, squeeze=False, sharex="row", sharey=True)
        for row, (study, drawn) in zip(rows, found.items(), strict=True):
            _panels(row, study, drawn, shades)
        lines = [Line2D([], [], color=shade, linewidth=1.8) for shade in shades.values()]
        legend(canvas, dict(zip((label(title, 40) for title in shades), lines, strict=True)))

    alt = "Accuracy over all classes and of the newest one, epoch by epoch, as classes are learned."
    size = (WIDE, 200 * len(found) + 20 * (1 + (len(shades) - 1) // 3))
    caption = prose("epochs_caption", left_out=titles[len(PALETTE) :])
    return [Figure("learning-epochs", draw, size, alt, caption)]


def _curves(study: Study) -> Curves:
    made = {group.title: epoch_curve(group) for group in study.groups}
    return {title: points for title, points in made.items() if points}


def _in_order(found: Mapping[Study, Curves]) -> list[str]:
    """Give the titles of all that has a curve, those that must not be missed first."""
    methods = {g.title: g.method for study, drawn in found.items() for g in study.groups if g.title in drawn}
    places = {method: place for place, method in enumerate(_FIRST)}
    return sorted(methods, key=lambda title: places.get(methods[title], len(places)))


def _panels(row: Sequence[Axes], study: Study, drawn: Curves, shades: Mapping[str, str]) -> None:
    overall, newest = row
    for title, shade in reversed([*shades.items()]):  # the first method lies on top
        if title in drawn:
            _lines(overall, newest, drawn[title], shade)
    classes = round(max(points[-1].classes for points in drawn.values()))
    titles = (f"{label(study.short, 30)}: % of all classes met", "% of the class that is learned")
    for axes, title in zip(row, titles, strict=True):
        axes.set_xticks(range(classes + 1))
        axes.set(ylim=(-3, 104), yticks=range(0, 101, 25), xlabel="classes learned")
        axes.grid(axis="both")
        axes.set_title(title, color=INK)


def _lines(overall: Axes, newest: Axes, points: Sequence[CurvePoint], shade: str) -> None:
    """Draw a group: a line in each panel, level from the first where a class takes no epochs."""
    at = np.array([point.classes for point in points])
    means = 100 * np.array([point.overall.mean for point in points])
    spreads = 100 * np.array([point.overall.sd or 0.0 for point in points])
    new = [100 * point.newest.mean if point.newest else np.nan for point in points]
    at_once = len(points) <= 2 * round(at[-1]) + 1
    style, step = ("steps-pre", "pre") if at_once else ("default", None)
    band: dict[str, Any] = {"step": step, "color": shade, "alpha": 0.13, "linewidth": 0}
    overall.fill_between(at, means - spreads, means + spreads, **band)
    overall.plot(at, means, color=shade, linewidth=1.5, drawstyle=style)
    newest.plot(at, new, color=shade, linewidth=1.5, drawstyle=style)
