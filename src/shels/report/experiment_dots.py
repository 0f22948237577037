"""The chart of a report on experiments with many methods: a line for each, where bars would crowd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shels.report.chart import DRAWN, SHOWN, Chart, chart
from shels.report.drawing import INK, KNOWN, QUIET, label
from shels.report.experiment_figures import Series, in_words, series_of
from shels.report.experiment_groups import MEASURES, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

MANY = 8
"""So many methods, published figures among them, can be bars; there are no more colours."""


def dots(name: str, studies: Sequence[Study], kind: str) -> Chart:
    """Return a row of panels for each experiment, a panel for each measure, a dot with its spread a method.

    kind: what these experiments are, for the words below.
    """
    series = series_of(studies)

    def draw(canvas: Canvas) -> None:
        rows = canvas.subplots(len(studies), len(MEASURES), squeeze=False, sharey="row", sharex="col")
        for row, study in zip(rows, studies, strict=True):
            present = [each for each in series if each.of(study)]
            for axes, measure in zip(row, MEASURES, strict=True):
                _panel(axes, study, present, measure)
            row[0].set_yticks(range(len(present)), [label(each.title, 34) for each in present])
            row[0].set_title(label(study.short, 40), color=INK)
            row[0].invert_yaxis()

    caption = (
        f"Novelty detection {kind}: mean and standard deviation over the trials. The line is the first "
        "method's mean."
    )
    if any(not each.ours for each in series):
        caption += " Hollow: what the paper published."
    lines = sum(sum(bool(each.of(study)) for each in series) for study in studies)
    size = (DRAWN, 17 * lines + 60 * len(studies) + 20)
    return chart(name, draw, size, alt=in_words(studies, kind), caption=caption, shown=SHOWN)


def _panel(axes: Axes, study: Study, series: Sequence[Series], measure: str) -> None:
    for place, each in enumerate(series):
        found = each.of(study).get(measure)
        if found is None:
            continue
        colour = KNOWN if each.ours else QUIET
        fill = colour if each.ours else "white"
        axes.errorbar(
            found.mean, place, xerr=found.sd, fmt="o", color=colour, mfc=fill, markersize=4.5, elinewidth=1
        )
        if place == 0:
            axes.axvline(found.mean, color=QUIET, linewidth=0.7)
    axes.grid(axis="x")
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(MEASURES[measure])
