"""The figure of an open-world run over time, after the paper's Figure 8: confidence above, accuracy below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from shels.report.drawing import DASHED, INK, KNOWN, LEARNED, NOVEL, NOVEL_LINE, QUIET, TINTS, label, svg
from shels.report.page import Figure, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

_DRAWN, _SHOWN = 720, 860  # enlarged, so that its letters stay legible where a phone makes it smaller
_PHASES = {"known": "classes met before", "novel": "a new class appears", "learning": "learning"}


@dataclass(frozen=True)
class Moment:
    """One place on the time axis: a batch, or the learning that follows it.

    phase: "known" for a batch of classes met before, "novel" where one appears first, or "learning". tick:
    the batch's number. share, threshold: how much of a batch is judged novel, and how much raises an alarm;
    None while learning. note: what stands over it. overall, newest: accuracy at that time over all classes
    met so far and of the newest of them, called `name`; None where it was not measured, or none was new.
    """

    phase: str
    tick: str = ""
    share: float | None = None
    threshold: float | None = None
    note: str = ""
    overall: float | None = None
    newest: float | None = None
    name: str = ""


def timeline(moments: Sequence[Moment]) -> Figure:
    """Return confidence and, where it was measured, accuracy over time, on one axis with phases shaded."""
    measured = any(moment.overall is not None for moment in moments)

    def draw(canvas: Canvas) -> None:
        panels = canvas.subplots(1 + measured, sharex=True, squeeze=False)[:, 0]
        for axes in panels:
            _shade(axes, moments)
        _confidence(panels[0], moments)
        if measured:
            _accuracy(panels[1], moments)
        places = [place for place, moment in enumerate(moments) if moment.tick]
        panels[-1].set_xticks(places, [moments[place].tick for place in places])
        panels[-1].set(xlim=(-0.5, len(moments) - 0.5), xlabel="batch")
        panels[-1].tick_params(axis="x", length=0)
        _legend(canvas, {moment.phase for moment in moments}, measured=measured)

    caption = (
        "How much of each batch was judged novel. From the dashed line on it is an alarm; the line depends "
        "on the size of the batch."
    )
    if measured:
        caption += (
            " Below it, how many test images of all classes met so far are named rightly, and how many of "
            "the newest class: both fall when a new class comes and rise when it is learned."
        )
    told = _in_words(moments)
    return Figure(svg(draw, _DRAWN, 500 if measured else 260, told), told, caption, _SHOWN)


def _shade(axes: Axes, moments: Sequence[Moment]) -> None:
    end = -0.5
    for phase, run in groupby(moment.phase for moment in moments):
        start, end = end, end + len(list(run))
        axes.axvspan(start, end, color=TINTS[phase], linewidth=0)


def _confidence(axes: Axes, moments: Sequence[Moment]) -> None:
    bold: dict[str, Any] = {"ha": "center", "va": "bottom", "weight": "bold"}
    first = True
    for place, moment in enumerate(moments):
        if moment.share is None or moment.threshold is None:
            axes.text(place, 50, label(moment.note), rotation=90, ha="center", va="center", color="#00563f")
            continue
        high = 100 * moment.share
        axes.bar(place, high, width=0.66, color=NOVEL if moment.phase == "novel" else KNOWN)
        line = 100 * min(moment.threshold, 1.04)  # over 1 means never: no batch of its size can tell
        axes.hlines(line, place - 0.5, place + 0.5, color=INK, linewidth=1.4, linestyle=DASHED)
        above = high + 2 if high > line or high + 11 < line else line + 2
        axes.text(place, above, f"{high:.0f}", ha="center", va="bottom")
        if moment.note:
            axes.text(place, above + 11, label(moment.note), **bold)
        elif first:
            axes.text(-0.4, line + 12, "alarm line", va="bottom", color=QUIET)
        first = False
    axes.set(ylim=(0, 128), yticks=range(0, 101, 25))
    axes.set_title("% of the batch judged novel")


def _accuracy(axes: Axes, moments: Sequence[Moment]) -> None:
    style: dict[str, Any] = {"linewidth": 2, "marker": "o", "markersize": 5, "clip_on": False}
    overall = [(place, m.overall) for place, m in enumerate(moments) if m.overall is not None]
    axes.plot([p for p, _ in overall], [100 * value for _, value in overall], color=KNOWN, **style)
    for name in dict.fromkeys(m.name for m in moments if m.newest is not None):
        points = [(p, m.newest) for p, m in enumerate(moments) if m.name == name and m.newest is not None]
        values = [100 * value for _, value in points]
        axes.plot([p for p, _ in points], values, color=NOVEL_LINE, linestyle=DASHED, **style)
        axes.text(points[0][0] - 0.3, values[0] + 4, label(name, 12), ha="right", color=NOVEL_LINE)
    axes.set(ylim=(0, 104), yticks=range(0, 101, 25))
    axes.set_title("% of test images named rightly")


def _legend(canvas: Canvas, phases: set[str], *, measured: bool) -> None:
    from matplotlib.lines import Line2D  # noqa: PLC0415
    from matplotlib.patches import Patch  # noqa: PLC0415

    edges = {"known": KNOWN, "novel": NOVEL, "learning": LEARNED}
    entries: list[tuple[Any, str]] = [
        (Patch(facecolor=TINTS[name], edgecolor=edges[name]), words)
        for name, words in _PHASES.items()
        if name in phases
    ]
    if measured:  # columns are filled one after the other: so these stand below the phases
        line: dict[str, Any] = {"marker": "o", "linewidth": 2}
        entries.insert(1, (Line2D([], [], color=KNOWN, **line), "accuracy, all met so far"))
        newest = Line2D([], [], color=NOVEL_LINE, linestyle=DASHED, **line)
        entries.insert(3, (newest, "accuracy, newest class"))
    handles, words = zip(*entries, strict=True)
    canvas.legend(handles, words, loc="outside upper left", ncols=3, columnspacing=1.2, handlelength=2)


def _in_words(moments: Sequence[Moment]) -> str:
    """Return all that the figure shows, for readers that cannot see it."""
    parts = []
    for moment in moments:
        words = f"Batch {moment.tick}" if moment.tick else moment.note.capitalize()
        if moment.share is not None and moment.threshold is not None:
            words += f": {percent(moment.share)} judged novel, alarm from {percent(moment.threshold)}"
            words += f", {moment.note}" if moment.note else ""
        if moment.overall is not None:
            words += f"; {percent(moment.overall)} named rightly"
        if moment.newest is not None:
            words += f", of {moment.name} {percent(moment.newest)}"
        parts.append(words)
    return "Share judged novel and accuracy over time. " + ". ".join(parts) + "."
