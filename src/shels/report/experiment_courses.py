"""The charts of learning class by class: accuracy over all known classes, as their number grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from shels.experiments.statistics import Summary
from shels.report.chart import DRAWN, PALETTE, SHOWN, Chart, chart, colour, file_name
from shels.report.drawing import INK, KNOWN, QUIET, label
from shels.report.experiment_groups import Study
from shels.report.experiment_learning import course
from shels.report.page import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

Course = dict[int, Summary]
"""Accuracy over all classes known, by their number."""

_ACROSS = 4
_PALE = "#cdd3d8"


def courses(studies: Sequence[Study]) -> list[Chart]:
    """Return all experiments in one chart, a colour for each method; of many methods a chart for each.

    There, every method has a panel of its own before the pale lines of the others: colours would not do.
    """
    found = {study: drawn for study in studies if (drawn := _courses(study))}
    titles = list(dict.fromkeys(title for drawn in found.values() for title in drawn))
    if len(titles) > len(PALETTE):
        return [_multiples(study, drawn) for study, drawn in found.items()]
    return [_together(found, titles)] if found else []


def _courses(study: Study) -> dict[str, Course]:
    """Return the courses of the methods that have kept theirs."""
    made = {
        group.title: {stage.classes: stage.overall for stage in course(group) if stage.overall}
        for group in study.groups
    }
    return {title: found for title, found in made.items() if found}


def _together(found: Mapping[Study, Mapping[str, Course]], titles: Sequence[str]) -> Chart:
    across = len(found) if len(found) <= 3 else 2
    down = -(-len(found) // across)

    def draw(canvas: Canvas) -> None:
        panels = list(canvas.subplots(down, across, squeeze=False, sharey=True).flat)
        for axes, (study, drawn) in zip(panels, found.items(), strict=False):
            for title, line in reversed([*drawn.items()]):  # the first method lies on top
                _line(axes, line, colour(titles.index(title)))
            _plain(axes, drawn)
            axes.set_title(label(study.short, 40), color=INK)
            axes.set_xlabel("known classes")
        for axes in panels[len(found) :]:
            axes.set_axis_off()
        _legend(canvas, titles)

    caption = (
        "Per cent of test samples of all known classes that are named rightly, nothing rejected: mean over "
        "the trials, in a band of one standard deviation to both sides."
    )
    size = (DRAWN, 250 * down + 20 * (1 + (len(titles) - 1) // 3))
    alt = "Learning class by class. " + " ".join(_in_words(*each) for each in found.items())
    return chart("learning-incremental", draw, size, alt=alt, caption=caption, shown=SHOWN)


def _multiples(study: Study, drawn: Mapping[str, Course]) -> Chart:
    down = -(-len(drawn) // _ACROSS)

    def draw(canvas: Canvas) -> None:
        panels = list(canvas.subplots(down, _ACROSS, squeeze=False, sharex=True, sharey=True).flat)
        for axes, (title, line) in zip(panels, drawn.items(), strict=False):
            for other in drawn.values():
                axes.plot([*other], _means(other), color=_PALE, linewidth=0.8)
            _line(axes, line, KNOWN)
            _plain(axes, drawn)
            axes.set_title(f"{label(title, 20)} {_means(line)[-1]:.1f}", color=INK, fontsize=10)
        for axes in panels[len(drawn) :]:
            axes.set_axis_off()
        for axes in panels[max(len(drawn) - _ACROSS, 0) : len(drawn)]:
            axes.tick_params(labelbottom=True)  # also where the panel below is left out
        canvas.suptitle(label(study.short, 60), x=0.005, ha="left", fontsize=12, fontweight="bold")
        canvas.supxlabel("known classes", fontsize=11, color=QUIET)

    caption = (
        f"{study.short}: per cent of test samples of all known classes that are named rightly, nothing "
        "rejected. A panel for each method: mean over the trials in a band of one standard deviation to both "
        "sides, the means of all others behind it. The number is the mean at the end."
    )
    size = (DRAWN, 128 * down + 55)
    name, alt = file_name("learning", study.name), f"Learning class by class. {_in_words(study, drawn)}"
    return chart(name, draw, size, alt=alt, caption=caption, shown=SHOWN)


def _line(axes: Axes, line: Course, shade: str) -> None:
    """Draw a mean in its band."""
    means = _means(line)
    spreads = 100 * np.array([each.sd or 0.0 for each in line.values()])
    axes.fill_between([*line], means - spreads, means + spreads, color=shade, alpha=0.16, linewidth=0)
    axes.plot([*line], means, "o-", color=shade, linewidth=1.8, markersize=3.5)


def _plain(axes: Axes, drawn: Mapping[str, Course]) -> None:
    """Give a panel whole numbers of classes below, and lines to read the accuracy by."""
    numbers = sorted({number for line in drawn.values() for number in line})
    axes.set_xticks(numbers[:: -(-len(numbers) // 5)])
    axes.grid(axis="y")


def _legend(canvas: Canvas, titles: Sequence[str]) -> None:
    """Name the colours; not every method needs to be in every panel."""
    from matplotlib.lines import Line2D  # noqa: PLC0415

    handles = [Line2D([], [], color=colour(place), linewidth=1.8) for place in range(len(titles))]
    words = [label(title, 48) for title in titles]
    canvas.legend(handles, words, loc="outside upper left", ncols=3, columnspacing=1.6)


def _means(line: Course) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return 100 * np.array([each.mean for each in line.values()])


def _in_words(study: Study, drawn: Mapping[str, Course]) -> str:
    """Return what the lines show, for readers that cannot see them."""
    told = [
        f"{title}: " + ", ".join(f"{percent(each.mean)} of {number}" for number, each in line.items())
        for title, line in drawn.items()
    ]
    return f"{study.short}, accuracy over so many known classes. {'; '.join(told)}."
