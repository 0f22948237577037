"""The chart of learning class by class: accuracy as the number of classes grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from shels.experiments.statistics import Summary
from shels.report.breakdown import stages
from shels.report.drawing import (
    INK,
    KNOWN,
    PALETTE,
    QUIET,
    WIDE,
    Figure,
    colour,
    file_name,
    label,
    legend,
    panels,
)
from shels.report.studies import Study
from shels.report.words import prose

Curve: TypeAlias = dict[int, Summary]
"""Accuracy over all classes known, by their number."""

_ACROSS = 4
_PALE = "#cdd3d8"


def curves(studies: Sequence[Study]) -> list[Figure]:
    """Draw all experiments in one figure, a colour for each method; of many methods a figure for each.

    There, every method has a panel of its own before the pale lines of the others: colours would not do.
    """
    found = {study: drawn for study in studies if (drawn := _curves(study))}
    titles = list(dict.fromkeys(title for drawn in found.values() for title in drawn))
    if len(titles) > len(PALETTE):
        return [_panel_each(study, drawn) for study, drawn in found.items()]
    return [_together(found, titles)] if found else []


def _curves(study: Study) -> dict[str, Curve]:
    made = {
        group.title: {stage.classes: stage.overall for stage in stages(group) if stage.overall}
        for group in study.groups
    }
    return {title: found for title, found in made.items() if found}


def _together(found: Mapping[Study, Mapping[str, Curve]], titles: Sequence[str]) -> Figure:
    across = len(found) if len(found) <= 3 else 2

    def draw(canvas: Canvas) -> None:
        axes_of = panels(canvas, len(found), across, sharey=True)
        for axes, (study, drawn) in zip(axes_of, found.items(), strict=True):
            for title, curve in reversed([*drawn.items()]):  # the first method lies on top
                _line(axes, curve, colour(titles.index(title)))
            _grid(axes, drawn)
            axes.set_title(label(study.short, 40), color=INK)
            axes.set_xlabel("known classes")
        lines = [Line2D([], [], color=colour(place), linewidth=1.8) for place in range(len(titles))]
        legend(canvas, dict(zip((label(title, 48) for title in titles), lines, strict=True)))

    size = (WIDE, 250 * -(-len(found) // across) + 20 * (1 + (len(titles) - 1) // 3))
    alt = "Learning class by class: accuracy over all known classes as their number grows, by method."
    return Figure("learning-incremental", draw, size, alt, prose("curves_caption"))


def _panel_each(study: Study, drawn: Mapping[str, Curve]) -> Figure:
    def draw(canvas: Canvas) -> None:
        axes_of = panels(canvas, len(drawn), _ACROSS, sharex=True, sharey=True)
        for axes, (title, curve) in zip(axes_of, drawn.items(), strict=True):
            for other in drawn.values():
                axes.plot([*other], _means(other), color=_PALE, linewidth=0.8)
            _line(axes, curve, KNOWN)
            _grid(axes, drawn)
            axes.set_title(f"{label(title, 20)} {_means(curve)[-1]:.1f}", color=INK, fontsize=10)
        for axes in axes_of[-_ACROSS:]:
            axes.tick_params(labelbottom=True)  # also where the panel below is left out
        canvas.suptitle(label(study.short, 60), x=0.005, ha="left", fontsize=12, fontweight="bold")
        canvas.supxlabel("known classes", fontsize=11, color=QUIET)

    caption = prose("curve_panels_caption", data=study.short)
    size = (WIDE, 128 * -(-len(drawn) // _ACROSS) + 55)
    alt = f"{study.short}, learning class by class: accuracy as classes are added, a panel for each method."
    return Figure(file_name("learning", study.name), draw, size, alt, caption)


def _line(axes: Axes, curve: Curve, shade: str) -> None:
    means = _means(curve)
    spreads = 100 * np.array([each.sd or 0.0 for each in curve.values()])
    axes.fill_between([*curve], means - spreads, means + spreads, color=shade, alpha=0.16, linewidth=0)
    axes.plot([*curve], means, "o-", color=shade, linewidth=1.8, markersize=3.5)


def _grid(axes: Axes, drawn: Mapping[str, Curve]) -> None:
    """Give a panel whole numbers of classes below, and lines to read the accuracy by."""
    numbers = sorted({number for curve in drawn.values() for number in curve})
    axes.set_xticks(numbers[:: -(-len(numbers) // 5)])
    axes.grid(axis="y")


def _means(curve: Curve) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return 100 * np.array([each.mean for each in curve.values()])
