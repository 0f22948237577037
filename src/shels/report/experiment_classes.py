"""Class by class: what became of each class's samples where it was known, and where it was novel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from shels.report.chart import DRAWN, PALETTE, SHOWN, Chart, chart, colour, file_name
from shels.report.drawing import INK, label
from shels.report.experiment_groups import Group, Study
from shels.report.page import Cell, Table, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas


@dataclass(frozen=True)
class Rate:
    """A share over the trials in which a class had a role. samples: the mean number of test samples."""

    mean: float
    low: float
    high: float
    trials: int
    samples: float


Rates = dict[str, Rate]

Among: TypeAlias = Literal["known", "novel"]


def rates(group: Group, role: str, share: str, among: Among | None = None) -> Rates:
    """Return a share of each class that had a role, in the order of the classes.

    role: "per_class" with share "right", "accepted" or, of learning, "named"; "per_novel_class" with
    "rejected". among: of learning, whether the first classes or those taken in; None takes both.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    for result in group.results:
        members = None if among is None else {str(name) for name in getattr(result.trial, among)}
        for name, values in (result.details.get(role) or {}).items():
            if values.get(share) is not None and (members is None or str(name) in members):
                found.setdefault(str(name), []).append(
                    (float(values[share]), float(values.get("samples", 0)))
                )
    return {name: _rate(np.array(found[name])) for name in sorted(found, key=_by_number)}


def classes(study: Study) -> Chart | None:
    """Return the share of each class that was decided rightly, so that a weak one cannot hide in a mean."""
    sides = [(title, found, _names(found)) for title, found in _sides(study) if any(found.values())]
    if not sides or (study.learning and len(study.groups) > len(PALETTE)):
        return None  # of so many methods the tables tell more: there are no more colours
    rows = max(len(names) for _, _, names in sides)

    def draw(canvas: Canvas) -> None:
        panels = canvas.subplots(1, len(sides), squeeze=False)[0]
        for axes, (title, found, names) in zip(panels, sides, strict=True):
            _dots(axes, found, names)
            axes.set_ylim(rows - 0.4, -0.6)  # the same height for every class, on both sides
            axes.set_title(title)
        handles, words = panels[0].get_legend_handles_labels()
        canvas.legend(handles, words, loc="outside upper left", ncols=2, columnspacing=1.6)

    caption = (
        "Dots are means over the trials in which a class had that role, lines reach from the lowest trial to "
        "the highest."
    )
    size = (DRAWN, max(12 + 5 * len(study.groups), 16) * rows + 90 + 20 * ((len(study.groups) + 1) // 2))
    alt = _in_words(study, sides)
    return chart(file_name("classes", study.name), draw, size, alt=alt, caption=caption, shown=SHOWN)


def _sides(study: Study) -> list[tuple[str, dict[str, Rates]]]:
    """Return the two roles that a class can have, with its share of samples decided rightly, by method."""
    parts: list[tuple[str, tuple[str, str, Among | None]]] = [
        ("known classes: % accepted and right", ("per_class", "right", None)),
        ("novel classes: % rejected", ("per_novel_class", "rejected", None)),
    ]
    if study.learning:
        parts = [
            ("first classes: % named rightly", ("per_class", "named", "known")),
            ("classes taken in: % named rightly", ("per_class", "named", "novel")),
        ]
    return [(title, {each.title: rates(each, *part) for each in study.groups}) for title, part in parts]


def class_tables(study: Study) -> list[Table]:
    """Return the figures behind the dots: a table for each role of a class and each method."""
    if study.learning:
        return [table for group in study.groups for table in _learning_tables(group)]
    tables = []
    for group in study.groups:
        right, accepted = rates(group, "per_class", "right"), rates(group, "per_class", "accepted")
        known = [[*_start(name, rate), _mean(accepted.get(name)), rate.mean] for name, rate in right.items()]
        rejected = rates(group, "per_novel_class", "rejected")
        novel = [[*_start(name, rate), rate.mean] for name, rate in rejected.items()]
        start = ("Trials", "Samples in each")
        columns = ("Known class", *start, "Accepted", "Accepted and right")
        tables += [Table(columns, known, group.title)] if known else []
        tables += [Table(("Novel class", *start, "Rejected"), novel, group.title)] if novel else []
    return tables


def _learning_tables(group: Group) -> Iterator[Table]:
    """Give a table of the first classes and one of those taken in, as they stood at the end."""
    shares = ("named", "accepted", "right")
    roles: tuple[tuple[Among, str], ...] = (("known", "First class"), ("novel", "Class taken in"))
    for among, title in roles:
        named, *others = (rates(group, "per_class", share, among) for share in shares)
        rows = [
            [*_start(name, rate), rate.mean, *(_mean(other.get(name)) for other in others)]
            for name, rate in named.items()
        ]
        columns = (title, "Trials", "Samples in each", "Named rightly", "Accepted", "Accepted and right")
        if rows:
            yield Table(columns, rows, group.title)


def _start(name: str, rate: Rate) -> tuple[Cell, ...]:
    return name, rate.trials, round(rate.samples)


def _mean(rate: Rate | None) -> float | None:
    return None if rate is None else rate.mean


def _rate(pairs: Any) -> Rate:
    shares, samples = pairs[:, 0], pairs[:, 1]
    return Rate(
        float(shares.mean()), float(shares.min()), float(shares.max()), len(shares), float(samples.mean())
    )


def _by_number(name: str) -> tuple[int, int, str]:
    return (0, int(name), name) if name.isdecimal() else (1, 0, name)


def _names(found: Mapping[str, Rates]) -> list[str]:
    return sorted({name for table in found.values() for name in table}, key=_by_number)


def _dots(axes: Axes, found: Mapping[str, Rates], names: Sequence[str]) -> None:
    """Draw a row for each class and, in it, a dot and a line for each method."""
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


def _in_words(study: Study, sides: Sequence[tuple[str, Mapping[str, Rates], list[str]]]) -> str:
    parts = [
        f"{title}, {method}: " + ", ".join(f"{name} {percent(rate.mean)}" for name, rate in table.items())
        for title, found, _ in sides
        for method, table in found.items()
        if table
    ]
    return f"Classes of {study.short}. " + "; ".join(parts) + "."
