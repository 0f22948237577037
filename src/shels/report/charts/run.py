"""Charts of an open-world run: confidence and accuracy over time, after the paper's Figure 8, and its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from shels.agent.evaluation import Accuracy, EvaluatedBatch, EvaluatedRun
from shels.data.arrays import sorted_classes
from shels.report.charts.model import ClassBars, bars
from shels.report.drawing import (
    DASHED,
    INK,
    KNOWN,
    LEARNED,
    NOVEL,
    NOVEL_LINE,
    QUIET,
    WIDE,
    WRONG,
    Figure,
    label,
    legend,
)
from shels.report.words import comma, prose

_PHASES = {"known": "classes met before", "novel": "a new class appears", "learning": "learning"}
_TINTS = {"known": "#e6f0f7", "novel": "#fdeecb", "learning": "#cdebe0"}
_EDGES = {"known": KNOWN, "novel": NOVEL, "learning": LEARNED}


@dataclass(frozen=True)
class Moment:
    """One place on the time axis: a batch, or the learning that follows it.

    phase: "known" for a batch of classes met before, "novel" where one appears first, or "learning". tick:
    the batch's number. share, threshold: how much of a batch is judged novel, and how much raises an alarm;
    None while learning. note: what stands over it. accuracy: at that time; None where it is not drawn.
    """

    phase: str
    tick: str = ""
    share: float | None = None
    threshold: float | None = None
    note: str = ""
    accuracy: Accuracy | None = None


def moments(run: EvaluatedRun, *, accuracy: bool = True) -> Iterator[Moment]:
    """Give a run as places on the time axis: each batch and, where it led to it, the learning."""
    met = set(run.taught)
    for number, step in enumerate(run.steps, 1):
        phase = "known" if met.issuperset(step.labels) else "novel"
        met.update(step.labels)
        before, after = (step.before, step.after) if accuracy else (None, None)
        yield Moment(phase, str(number), step.share, step.threshold, _alarm(step), before)
        if step.learned:
            note = "learns " + comma(group.name for group in step.learned)
            yield Moment("learning", note=note, accuracy=after)


def _alarm(step: EvaluatedBatch) -> str:
    if not step.alarm:
        return ""
    if step.false_alarm:
        return "false alarm"
    return "alarm: " + (comma(group.truth for group in step.groups) or step.decision)


def timeline(run: EvaluatedRun) -> list[Figure]:
    """Draw confidence and accuracy over time, on one axis with phases shaded."""
    alt = "Over time: the share of each batch judged novel, and the accuracy over all classes met so far."
    return [_timeline("timeline", list(moments(run)), alt)]


def timeline_without_accuracy(run: EvaluatedRun) -> list[Figure]:
    """Draw confidence alone over time, on an axis with phases shaded."""
    found = list(moments(run, accuracy=False))
    return [_timeline("timeline-shares", found, "Over time: the share of each batch judged novel.")]


def final_bars(run: EvaluatedRun) -> list[Figure]:
    """Draw how much of each class is named rightly at the end, of the first classes and of later ones."""
    later = [name for name in run.right if name not in run.taught]
    words = {"first training": KNOWN, "learned later": NOVEL, "wrong": WRONG}
    groups = []
    for when, names in (("of the first training", sorted_classes(run.taught)), ("learned later", later)):
        right = np.array([run.right[name] for name in names])
        parts = ((right, NOVEL if names is later else KNOWN), (1 - right, WRONG))
        groups.append(ClassBars(f"classes {when}: share named rightly", [*map(str, names)], parts))
    caption = prose("end_caption")
    alt = "Bars by class: the share of test samples named rightly at the end."
    return [bars("end", [group for group in groups if group.names], words, alt, caption)]


def _timeline(name: str, found: Sequence[Moment], alt: str) -> Figure:
    measured = any(moment.accuracy for moment in found)

    def draw(canvas: Canvas) -> None:
        axes_of = canvas.subplots(1 + measured, sharex=True, squeeze=False)[:, 0]
        for axes in axes_of:
            _shade(axes, found)
        _confidence(axes_of[0], found)
        if measured:
            _accuracy(axes_of[1], found)
        places = [place for place, moment in enumerate(found) if moment.tick]
        axes_of[-1].set_xticks(places, [found[place].tick for place in places])
        axes_of[-1].set(xlim=(-0.5, len(found) - 0.5), xlabel="batch")
        axes_of[-1].tick_params(axis="x", length=0)
        _legend(canvas, {moment.phase for moment in found}, measured=measured)

    caption = prose("timeline_caption", measured=measured)
    return Figure(name, draw, (WIDE, 500 if measured else 260), alt, caption)


def _shade(axes: Axes, found: Sequence[Moment]) -> None:
    end = -0.5
    for phase, run in groupby(moment.phase for moment in found):
        start, end = end, end + len(list(run))
        axes.axvspan(start, end, color=_TINTS[phase], linewidth=0)


def _confidence(axes: Axes, found: Sequence[Moment]) -> None:
    for place, moment in enumerate(found):
        if moment.share is None or moment.threshold is None:
            axes.text(place, 50, label(moment.note), rotation=90, ha="center", va="center", color="#00563f")
        else:
            line = _batch(axes, place, moment, moment.share, moment.threshold)
            if place == 0 and not moment.note:
                axes.text(-0.4, line + 12, "alarm line", va="bottom", color=QUIET)
    axes.set(ylim=(0, 128), yticks=range(0, 101, 25))
    axes.set_title("% of the batch judged novel")


def _batch(axes: Axes, place: int, moment: Moment, share: float, threshold: float) -> float:
    """Draw a batch's bar with its numbers and its alarm line, and give the height of that line."""
    high = 100 * share
    line = 100 * min(threshold, 1.04)  # over 1 means never: no batch of its size can raise an alarm
    axes.bar(place, high, width=0.66, color=NOVEL if moment.phase == "novel" else KNOWN)
    axes.hlines(line, place - 0.5, place + 0.5, color=INK, linewidth=1.4, linestyle=DASHED)
    above = high + 2 if high > line or high + 11 < line else line + 2
    axes.text(place, above, f"{high:.0f}", ha="center", va="bottom")
    if moment.note:
        axes.text(place, above + 11, label(moment.note), ha="center", va="bottom", weight="bold")
    return line


def _accuracy(axes: Axes, found: Sequence[Moment]) -> None:
    style: dict[str, Any] = {"linewidth": 2, "marker": "o", "markersize": 5, "clip_on": False}
    measured = [(place, moment.accuracy) for place, moment in enumerate(found) if moment.accuracy]
    axes.plot([p for p, _ in measured], [100 * each.overall for _, each in measured], color=KNOWN, **style)
    newest = [(place, each.newest, str(each.name)) for place, each in measured if each.newest is not None]
    for name in dict.fromkeys(name for _, _, name in newest):
        points = [(place, 100 * value) for place, value, of in newest if of == name]
        places, values = zip(*points, strict=True)
        axes.plot(places, values, color=NOVEL_LINE, linestyle=DASHED, **style)
        axes.text(places[0] - 0.3, values[0] + 4, label(name, 12), ha="right", color=NOVEL_LINE)
    axes.set(ylim=(0, 104), yticks=range(0, 101, 25))
    axes.set_title("% of test images named rightly")


def _legend(canvas: Canvas, phases: set[str], *, measured: bool) -> None:
    patches = {name: Patch(facecolor=_TINTS[name], edgecolor=_EDGES[name]) for name in _PHASES}
    entries: list[tuple[str, Artist]] = [(_PHASES[name], patches[name]) for name in _PHASES if name in phases]
    if measured:  # columns are filled one after the other: so these stand below the phases
        line: dict[str, Any] = {"marker": "o", "linewidth": 2}
        newest = Line2D([], [], color=NOVEL_LINE, linestyle=DASHED, **line)
        entries.insert(1, ("accuracy, all met so far", Line2D([], [], color=KNOWN, **line)))
        entries.insert(3, ("accuracy, newest class", newest))
    legend(canvas, dict(entries), handlelength=2)
