"""Charts of novelty detection: methods beside each other, after the paper's Figures 5 and 6."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch

from shels.experiments.published import Published, published
from shels.experiments.statistics import Summary
from shels.experiments.trials import MEASURES
from shels.report.drawing import INK, KNOWN, PALETTE, QUIET, WIDE, Figure, colour, label, legend, panels
from shels.report.studies import BASELINE, FAMILIES, Group, Study, method_title
from shels.report.tables import significance
from shels.report.words import measure, prose

Drawing: TypeAlias = tuple[Callable[["Canvas"], None], int]
"""What draws a chart, and how high it is."""


@dataclass(frozen=True)
class Series:
    """Bars or dots of one kind: of a method of ours or, lighter, of what the paper published for one."""

    title: str
    method: str
    colour: str
    ours: bool

    def of(self, study: Study) -> dict[str, Summary | Published]:
        """Look up its figures in a study; none where it has none there."""
        group = self.group(study)
        if self.ours and group is None:
            return {}
        found = {
            key: group.summary(key) if group else published(study.name, self.method, key) for key in MEASURES
        }
        return {key: each for key, each in found.items() if each is not None}

    def group(self, study: Study) -> Group | None:
        """Find the group of ours that it shows of a study."""
        return next((each for each in study.groups if self.ours and each.title == self.title), None)


def overview(studies: Sequence[Study]) -> list[Figure]:
    """Draw every method's means: as bars where there are colours for all, else as dots in rows."""
    series = _series_of(studies)
    many = len(series) > len(PALETTE)
    draw, height = (_dots if many else _bars)(studies, series)
    title = f"Novelty detection {FAMILIES[studies[0].family][1]}"
    alt = f"{title}: a {'dot' if many else 'bar'} for each measure and method, with its standard deviation."
    published, compared = not all(each.ours for each in series), any(study.compared for study in studies)
    caption = prose("detection_caption", many=many, title=title, published=published, compared=compared)
    return [Figure(f"detection-{studies[0].family}", draw, (WIDE, height), alt, caption)]


def _series_of(studies: Sequence[Study]) -> list[Series]:
    """List what is drawn, in order; what was published for a method follows that method."""
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


# Few methods: bars -------------------------------------------------------------------------------------


def _bars(studies: Sequence[Study], series: Sequence[Series]) -> Drawing:
    across = min(len(studies), 2)

    def draw(canvas: Canvas) -> None:
        for axes, study in zip(panels(canvas, len(studies), across, sharey=True), studies, strict=True):
            _bar_panel(axes, study, series)
        _bar_legend(canvas, series)

    return draw, 205 * -(-len(studies) // across) + 20 * (1 + len(series) // 2) + 20


def _bar_panel(axes: Axes, study: Study, series: Sequence[Series]) -> None:
    present = [each for each in series if each.of(study)]
    width = 0.84 / len(present)
    for place, each in enumerate(present):
        group = each.group(study)
        tests = study.compared.get(group, {}) if group else {}
        for key, found in each.of(study).items():
            at = MEASURES.index(key) - 0.42 + width * (place + 0.5)
            _bar(axes, at, width, found, each)
            top = found.mean + (found.sd or 0)
            axes.text(at, top + 0.01, significance(tests.get(key)), ha="center", fontsize=8)
    axes.set_xticks(range(len(MEASURES)), [measure(key).heading for key in MEASURES])
    axes.set(ylim=(0, 1.12), yticks=np.arange(0, 1.01, 0.2), xlim=(-0.5, len(MEASURES) - 0.35))
    axes.grid(axis="y")
    axes.tick_params(axis="x", length=0)
    lengths = dict.fromkeys(each.other_length for each in study.groups)
    axes.set_title(label(", ".join(filter(None, (study.short, *lengths))), 52), color=INK)


def _bar(axes: Axes, at: float, width: float, found: Summary | Published, series: Series) -> None:
    if series.ours:
        axes.bar(at, found.mean, width=0.9 * width, color=series.colour)
    else:
        style: dict[str, Any] = {"color": _pale(series.colour), "edgecolor": series.colour, "linewidth": 1}
        axes.bar(at, found.mean, width=0.8 * width, **style)
    if found.sd is not None:
        line: dict[str, Any] = {"elinewidth": 1, "capsize": 1.6, "capthick": 1}
        shade = INK if series.ours else series.colour
        axes.errorbar(at, found.mean, found.sd, fmt="none", ecolor=shade, **line)


def _pale(name: str) -> tuple[float, float, float]:
    red, green, blue = (0.2 * each + 0.8 for each in to_rgb(name))
    return red, green, blue


def _bar_legend(canvas: Canvas, series: Sequence[Series]) -> None:
    entries = {}
    for each in series:
        fill = each.colour if each.ours else _pale(each.colour)
        entries[label(each.title, 48)] = Patch(facecolor=fill, edgecolor=each.colour)
    legend(canvas, entries, columns=2)


# Many methods: dots ------------------------------------------------------------------------------------


def _dots(studies: Sequence[Study], series: Sequence[Series]) -> Drawing:
    """Draw a row of panels for each experiment, a panel for each measure, a line for each method."""
    drawn = [(study, [each for each in series if each.of(study)]) for study in studies]

    def draw(canvas: Canvas) -> None:
        rows = canvas.subplots(len(studies), len(MEASURES), squeeze=False, sharey="row", sharex="col")
        for row, (study, present) in zip(rows, drawn, strict=True):
            for axes, key in zip(row, MEASURES, strict=True):
                _dot_panel(axes, study, present, key)
            row[0].set_yticks(range(len(present)), [label(each.title, 34) for each in present])
            row[0].set_title(label(study.short, 40), color=INK)
            row[0].invert_yaxis()

    return draw, 17 * sum(len(present) for _, present in drawn) + 60 * len(studies) + 20


def _dot_panel(axes: Axes, study: Study, series: Sequence[Series], key: str) -> None:
    for place, each in enumerate(series):
        found = each.of(study).get(key)
        if found is None:
            continue
        shade = KNOWN if each.ours else QUIET
        dot: dict[str, Any] = {"fmt": "o", "color": shade, "mfc": shade if each.ours else "white"}
        axes.errorbar(found.mean, place, xerr=found.sd, markersize=4.5, elinewidth=1, **dot)
        if place == 0:
            axes.axvline(found.mean, color=QUIET, linewidth=0.7)
    axes.grid(axis="x")
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(measure(key).heading)
