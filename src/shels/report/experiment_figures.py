"""The bar charts of a report on experiments, after the paper's Figures 5 and 6."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from shels.experiments.published import Published, published
from shels.experiments.statistics import Summary
from shels.report.chart import DRAWN, SHOWN, Chart, chart, colour
from shels.report.drawing import INK, QUIET, label
from shels.report.experiment_groups import BASELINE, MEASURES, Group, Study, method_title
from shels.report.experiment_tables import significance, spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

_TICKS = ("novel\n(OOD)", "known\n(ID)", "combined\n(all)", "AUROC")


@dataclass(frozen=True)
class Series:
    """Bars or dots of one kind: of a method of ours or, lighter, of what the paper published for one."""

    title: str
    method: str
    colour: str
    ours: bool

    def of(self, study: Study) -> dict[str, Summary | Published]:
        """Return its figures in a study; none where it has none there."""
        if not self.ours:
            found = {name: published(study.name, self.method, name) for name in MEASURES}
            return {name: each for name, each in found.items() if each is not None}
        group = self.group(study)
        summaries = {name: group.summary(name) for name in MEASURES} if group else {}
        return {name: each for name, each in summaries.items() if each is not None}

    def group(self, study: Study) -> Group | None:
        """Return the group that it shows of a study."""
        return next((each for each in study.groups if self.ours and each.title == self.title), None)


def bars(name: str, studies: Sequence[Study], kind: str) -> Chart:
    """Return the paper's bar charts: a panel for each experiment, a bar for each method, paler if published.

    kind: what these experiments are, for the words below.
    """
    series = series_of(studies)
    across = min(len(studies), 2)
    down = -(-len(studies) // across)

    def draw(canvas: Canvas) -> None:
        panels = list(canvas.subplots(down, across, squeeze=False, sharey=True).flat)
        for axes, study in zip(panels, studies, strict=False):
            _bar_panel(axes, study, series)
        for axes in panels[len(studies) :]:
            axes.set_axis_off()
        _bar_legend(canvas, series)

    caption = f"Novelty detection {kind}: mean and standard deviation over the trials."
    if any(not each.ours for each in series):
        caption += (
            " Pale bars with an outline are what the paper published (its Figures 5 and 6, Tables 1 and 2)."
        )
    if any(study.compared for study in studies):
        caption += " Stars: such a bar differs from the first method's (t test, adjusted by Holm)."
    size = (DRAWN, 205 * down + 20 * (1 + len(series) // 2) + 20)
    return chart(name, draw, size, alt=in_words(studies, kind), caption=caption, shown=SHOWN)


def series_of(studies: Sequence[Study]) -> list[Series]:
    """Return the bars of every panel in order; what was published for a method follows that method."""
    methods = {group.title: group.method for study in studies for group in study.groups}
    shown = {method: colour(place) for place, method in reversed(list(enumerate(methods.values())))}
    made = []
    for place, (title, method) in enumerate(methods.items()):
        made.append(Series(title, method, colour(place), ours=True))
        if method in shown:
            made.append(Series(f"{method_title(method)}, published", method, shown.pop(method), ours=False))
    if BASELINE not in methods.values():
        made.append(Series(f"{method_title(BASELINE)}, published", BASELINE, QUIET, ours=False))
    return [each for each in made if any(each.of(study) for study in studies)]


def _bar_panel(axes: Axes, study: Study, series: Sequence[Series]) -> None:
    present = [each for each in series if each.of(study)]
    width = 0.84 / len(present)
    for place, each in enumerate(present):
        group = each.group(study)
        tests = study.compared.get(group, {}) if group else {}
        for measure, found in each.of(study).items():
            at = list(MEASURES).index(measure) - 0.42 + width * (place + 0.5)
            _bar(axes, at, width, found, each)
            top = found.mean + (found.sd or 0)
            axes.text(at, top + 0.01, significance(tests.get(measure)), ha="center", fontsize=8)
    axes.set_xticks(range(len(MEASURES)), _TICKS)
    axes.set(ylim=(0, 1.12), yticks=np.arange(0, 1.01, 0.2), xlim=(-0.5, len(MEASURES) - 0.35))
    axes.grid(axis="y")
    axes.tick_params(axis="x", length=0)
    axes.set_title(label(study.short, 40), color=INK)


def _bar(axes: Axes, at: float, width: float, found: Summary | Published, series: Series) -> None:
    thick: dict[str, Any] = {"color": series.colour, "width": 0.9 * width}
    if not series.ours:
        thick |= {
            "color": _pale(series.colour),
            "edgecolor": series.colour,
            "linewidth": 1,
            "width": 0.8 * width,
        }
    axes.bar(at, found.mean, **thick)
    if found.sd is not None:
        line: dict[str, Any] = {"elinewidth": 1, "capsize": 1.6, "capthick": 1}
        axes.errorbar(
            at, found.mean, found.sd, fmt="none", ecolor=INK if series.ours else series.colour, **line
        )


def _pale(name: str) -> tuple[float, float, float]:
    from matplotlib.colors import to_rgb  # noqa: PLC0415

    red, green, blue = (0.2 * each + 0.8 for each in to_rgb(name))
    return red, green, blue


def _bar_legend(canvas: Canvas, series: Sequence[Series]) -> None:
    from matplotlib.patches import Patch  # noqa: PLC0415

    handles = [
        Patch(facecolor=each.colour if each.ours else _pale(each.colour), edgecolor=each.colour)
        for each in series
    ]
    words = [label(each.title, 48) for each in series]
    canvas.legend(handles, words, loc="outside upper left", ncols=2, columnspacing=1.6)


def in_words(studies: Sequence[Study], kind: str) -> str:
    """Return what a chart shows, for readers that cannot see it."""
    told = [
        f"{study.short}, {each.title}: "
        + ", ".join(f"{MEASURES[name]} {spread(name, found)}" for name, found in each.of(study).items())
        for study in studies
        for each in series_of([study])
    ]
    return f"Novelty detection {kind}. " + "; ".join(told) + "."
