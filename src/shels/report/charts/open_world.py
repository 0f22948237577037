"""Charts of agents without boundaries: confidence and accuracy over batches, after the paper's Figure 8."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from shels.experiments.trials import TrialResult
from shels.report.drawing import (
    DASHED,
    INK,
    KNOWN,
    LEARNED,
    NOVEL,
    NOVEL_LINE,
    QUIET,
    WIDE,
    Figure,
    file_name,
    label,
    legend,
    panels,
)
from shels.report.studies import Study
from shels.report.words import prose

Epochs: TypeAlias = Mapping[str, Sequence[Any]]
"""What a trial keeps of its batches: share, threshold, new, overall and newest, a value for each batch."""


def agents(studies: Sequence[Study]) -> list[Figure]:
    """Draw a figure for each experiment with a panel for each agent: its first trial, batch by batch."""
    return [figure for study in studies for figure in _figure(study)]


def _figure(study: Study) -> list[Figure]:
    firsts = [(group.title, group.results[0]) for group in study.groups]
    found = {title: first for title, first in firsts if first.details.get("detection")}
    if not found:
        return []

    def draw(canvas: Canvas) -> None:
        axes_of = panels(canvas, len(found), 1, sharex=True, sharey=True)
        for axes, (title, result) in zip(axes_of, found.items(), strict=True):
            _panel(axes, result)
            axes.set_title(label(f"{study.short}: {title}", 60), color=INK)
        axes_of[-1].set_xlabel("batch")
        legend(canvas, _entries())

    alt = f"{study.short}: the share of each batch judged novel and the accuracy, a panel for each agent."
    caption = prose("agents_caption", seed=next(iter(found.values())).trial.seed)
    size = (WIDE, 150 * len(found) + 90)
    return [Figure(file_name("agents", study.name), draw, size, alt, caption)]


def _panel(axes: Axes, result: TrialResult) -> None:
    epochs: Epochs = result.details["detection"]
    places = range(1, len(epochs["share"]) + 1)
    for step in result.details["accommodation"]:
        axes.axvline(step["batch"] + 0.5, color=QUIET, linewidth=0.8)
    axes.step(places, _percent(epochs["threshold"]), where="mid", color=INK, linestyle=DASHED, linewidth=1.2)
    axes.plot(places, _percent(epochs["overall"]), color=LEARNED, linewidth=1.8)
    axes.plot(places, _percent(epochs["newest"]), color=NOVEL_LINE, linewidth=1.2)
    colours = [NOVEL if new else KNOWN for new in epochs["new"]]
    axes.scatter(places, _percent(epochs["share"]), c=colours, s=22, zorder=3)
    axes.set(ylim=(-3, 104), yticks=range(0, 101, 25))
    axes.grid(axis="y")


def _percent(values: Sequence[float | None]) -> list[float]:
    """Write shares in per cent; what is missing leaves a gap, and over 1, which means never, is cut off."""
    return [float("nan") if value is None else 100 * min(value, 1.02) for value in values]


def _entries() -> dict[str, Line2D]:
    def dot(shade: str) -> Line2D:
        return Line2D([], [], color=shade, marker="o", markersize=5, linestyle="")

    return {
        "judged novel, known classes": dot(KNOWN),
        "judged novel, a new class": dot(NOVEL),
        "alarm": Line2D([], [], color=INK, linestyle=DASHED),
        "accuracy, all met so far": Line2D([], [], color=LEARNED, linewidth=1.8),
        "accuracy, newest class": Line2D([], [], color=NOVEL_LINE, linewidth=1.2),
        "classes learned": Line2D([], [], color=QUIET, linewidth=0.8),
    }
