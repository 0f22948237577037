"""The chart of classes: what was decided rightly of each, so that a weak one cannot hide in a mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from shels.report.breakdown import DETECTION_ROLES, LEARNING_ROLES, Rates, in_order, rates
from shels.report.drawing import INK, PALETTE, WIDE, Figure, colour, file_name, label, legend
from shels.report.studies import Study
from shels.report.words import prose


def classes(study: Study) -> list[Figure]:
    """Draw an experiment's classes, a panel for each of the two roles that a class can have."""
    roles = LEARNING_ROLES if study.learning else DETECTION_ROLES
    sides = {
        role.panel: {group.title: rates(group, role.detail, role.main, role.order) for group in study.groups}
        for role in roles
    }
    names = {
        title: in_order({name for table in found.values() for name in table})
        for title, found in sides.items()
        if any(found.values())
    }
    if not names or (study.learning and len(study.groups) > len(PALETTE)):
        return []  # of so many methods the tables show more: there are no more colours
    rows = max(map(len, names.values()))

    def draw(canvas: Canvas) -> None:
        for axes, title in zip(canvas.subplots(1, len(names), squeeze=False)[0], names, strict=True):
            _dots(axes, sides[title], names[title])
            axes.set_ylim(rows - 0.4, -0.6)  # the same height for every class, on both sides
            axes.set_title(title)
        legend(canvas, columns=2)

    size = (WIDE, max(12 + 5 * len(study.groups), 16) * rows + 90 + 20 * ((len(study.groups) + 1) // 2))
    alt = f"{study.short}: the share of each class's samples that was decided rightly, by method."
    return [Figure(file_name("classes", study.name), draw, size, alt, prose("classes_caption"))]


def _dots(axes: Axes, found: Mapping[str, Rates], names: Sequence[str]) -> None:
    step = 0.7 / len(found)
    for place, (title, table) in enumerate(found.items()):
        shade, shift = colour(place), (place - (len(found) - 1) / 2) * step
        if not table:
            continue
        present = [(row + shift, table[name]) for row, name in enumerate(names) if name in table]
        heights = [height for height, _ in present]
        ends = ([100 * rate.low for _, rate in present], [100 * rate.high for _, rate in present])
        axes.hlines(heights, *ends, color=shade, linewidth=1.2, alpha=0.55)
        means = [100 * rate.mean for _, rate in present]
        axes.plot(means, heights, "o", color=shade, markersize=4.5, label=label(title, 80), clip_on=False)
    axes.set_yticks(range(len(names)), [label(name, 20) for name in names], color=INK)
    axes.set(xlim=(0, 103), xticks=range(0, 101, 25))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
