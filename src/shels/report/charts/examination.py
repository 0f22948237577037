"""The chart of a model's operating curve: what it accepts of known samples, and rejects of novel ones."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator

from shels.learner.checking import Point
from shels.learner.estimates import operating_curve
from shels.learner.examination import Examination
from shels.report.drawing import INK, KNOWN, LEARNED, NARROW, NOVEL, NOVEL_LINE, Figure, legend
from shels.report.words import prose

_LINES = {"classes left out": KNOWN, "left out, networks trained anew": LEARNED, "the test part": NOVEL_LINE}


def curves(found: Examination) -> dict[str, list[Point]]:
    """Give the operating curves that there are, by what they were found on."""
    rounds = (found.classes, found.retrained, [found.tested] if found.tested else [])
    named = dict(zip(_LINES, map(operating_curve, rounds), strict=True))
    return {name: curve for name, curve in named.items() if curve}


def operating(found: Examination) -> list[Figure]:
    """Draw what more acceptance costs, with the point that was chosen; nothing without novel samples."""
    drawn = curves(found)
    if not drawn:
        return []

    def draw(canvas: Canvas) -> None:
        axes = canvas.subplots()
        for name, curve in drawn.items():
            places = [[100 * point[field] for point in curve] for field in (1, 2)]
            axes.plot(*places, "o-", color=_LINES[name], linewidth=1.8, markersize=3.5, label=name)
            chosen = [point for point in curve if point.share == found.share]
            style: dict[str, Any] = {"color": NOVEL, "markeredgecolor": INK, "clip_on": False, "zorder": 3}
            for point in chosen:
                axes.plot([100 * point.accepted], [100 * point.rejected], "o", markersize=9, **style)
        low = min(min(point.rejected for point in curve) for curve in drawn.values())
        lowest = max(0.0, 100 * low - 5)
        axes.set_yticks([tick for tick in MaxNLocator(6).tick_values(lowest, 100) if tick <= 100])
        axes.set(xlim=(48, 101), ylim=(lowest, 101.5))
        axes.grid()
        axes.set_title("% of novel samples rejected")
        axes.set_xlabel("% of known samples accepted")
        legend(canvas, columns=1)

    alt = f"Operating curve: known samples accepted against novel ones rejected, by {', '.join(drawn)}."
    caption = prose("operating_caption", share=found.share)
    return [Figure("operating", draw, (NARROW, 360), alt, caption, NARROW)]
