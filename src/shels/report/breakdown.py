"""What stands behind a mean: what became of each class, and how learning went stage by stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shels.experiments.statistics import Summary, summary_of
from shels.report.page import Cell, Table
from shels.report.studies import Group, Study
from shels.report.words import figure, prose

FINAL = "closed_set_accuracy"
Order: TypeAlias = Literal["known", "novel"]
"""Of learning: the classes known from the first, or those learned later."""

# Class by class ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rate:
    """A share over the trials in which a class had a role. samples: the mean number of test samples."""

    mean: float
    low: float
    high: float
    trials: int
    samples: float


Rates: TypeAlias = dict[str, Rate]


def rates(group: Group, role: str, share: str, order: Order | None = None) -> Rates:
    """Average a share of each class that had a role, over the trials in which it had it.

    role: "per_class" with share "right", "accepted" or, of learning, "named"; "per_novel_class" with
    "rejected". order: of learning, which classes count; None takes all.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    for result in group.results:
        counted = None if order is None else {str(name) for name in getattr(result.trial, order)}
        for name, values in (result.details.get(role) or {}).items():
            if values.get(share) is not None and (counted is None or str(name) in counted):
                pair = float(values[share]), float(values.get("samples", 0))
                found.setdefault(str(name), []).append(pair)
    made = {}
    for name in in_order(found):
        shares, samples = np.array(found[name]).T
        ends = float(shares.min()), float(shares.max())
        made[name] = Rate(float(shares.mean()), *ends, len(shares), float(samples.mean()))
    return made


def in_order(names: Mapping[str, Any] | set[str]) -> list[str]:
    """Sort the names of classes: numbers by their size, then words.

    >>> in_order({"b", "10", "9"})
    ['9', '10', 'b']
    """
    return sorted(names, key=lambda name: (0, int(name), name) if name.isdecimal() else (1, 0, name))


@dataclass(frozen=True)
class Role:
    """A role that a class can have: the titles of its table and its panel, and where its shares are stored.

    shares: columns of the table, by their titles; the panel shows the share called `main`.
    """

    title: str
    panel: str
    detail: str
    main: str
    shares: Mapping[str, str]
    order: Order | None = None


_NAMED = {"Named rightly": "named", "Accepted": "accepted", "Accepted and right": "right"}
_KNOWN = {"Accepted": "accepted", "Accepted and right": "right"}
DETECTION_ROLES = (
    Role("Known class", "known classes: % accepted and right", "per_class", "right", _KNOWN),
    Role("Novel class", "novel classes: % rejected", "per_novel_class", "rejected", {"Rejected": "rejected"}),
)
LEARNING_ROLES = (
    Role("First class", "first classes: % named rightly", "per_class", "named", _NAMED, "known"),
    Role("Class taken in", "classes taken in: % named rightly", "per_class", "named", _NAMED, "novel"),
)


def class_tables(study: Study) -> list[Table]:
    """Make a table for each role of a class and each method."""
    roles = LEARNING_ROLES if study.learning else DETECTION_ROLES
    tables = [_class_table(group, role) for group in study.groups for role in roles]
    return [table for table in tables if table.rows]


def _class_table(group: Group, role: Role) -> Table:
    shares = [rates(group, role.detail, share, role.order) for share in role.shares.values()]
    rows: list[list[Cell]] = []
    for name, rate in rates(group, role.detail, role.main, role.order).items():
        means = [each[name].mean if name in each else None for each in shares]
        rows.append([name, rate.trials, round(rate.samples), *means])
    return Table((role.title, "Trials", "Samples in each", *role.shares), rows, group.title)


# Stage by stage ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    """A group's trials when so many classes are known; None where a measure was not taken.

    overall, first, newest: accuracy of all classes known, of the first ones, and of the one just learned.
    """

    classes: int
    overall: Summary | None
    first: Summary | None
    newest: Summary | None


_STAGE = {"overall": "all classes", "first": "the first", "newest": "the newest"}


def stages(group: Group) -> list[Stage]:
    """Average how a group went on learning, stage by stage; nothing where its trials have not kept that."""
    found: dict[int, list[Mapping[str, Any]]] = {}
    for trial in group.details("course"):
        for stage in trial:
            found.setdefault(int(stage["classes"]), []).append(stage)
    return [
        Stage(number, *(summary_of(each.get(name) for each in found[number]) for name in _STAGE))
        for number in sorted(found)
    ]


@dataclass(frozen=True)
class CurvePoint:
    """A group's trials at one point on the way: after so many classes, parts of one being part of its epochs.

    overall, newest: accuracy of all classes met, and of the one being learned; None before there is one.
    """

    classes: float
    overall: Summary
    newest: Summary | None


def epoch_curve(group: Group) -> list[CurvePoint]:
    """Average accuracies epoch by epoch; nothing where trials have not kept that.

    A class takes the same room however many epochs a trial had for it; between its points a trial counts with
    the straight line that joins them. Two points stand at each whole number: the end of a class, and the next
    one before it is learned.
    """
    trials = [_by_class(curve) for curve in group.details("curve")]
    points = []
    for number in sorted({number for trial in trials for number in trial}):
        some = [trial[number] for trial in trials if number in trial]
        for at in sorted({float(place) for each in some for place in each[:, 0]}):
            overall, newest = (
                summary_of(float(np.interp(at, each[:, 0], each[:, column])) for each in some)
                for column in (1, 2)
            )
            if overall is not None:
                points.append(CurvePoint(at, overall, newest))
    return points


def _by_class(curve: Sequence[Sequence[Any]]) -> dict[int, NDArray[np.float64]]:
    """Divide a trial's curve by the class being learned: place, overall and newest, (points, 3)."""
    ends = {point[0]: point[1] for point in curve}  # the last epoch of each class
    found: dict[int, list[tuple[float, float, float]]] = {}
    for number, epoch, overall, newest in curve:
        at = number - 1 + round(epoch / ends[number], 6) if number else 0.0
        found.setdefault(number, []).append((at, overall, np.nan if newest is None else newest))
    return {number: np.array(points, dtype=np.float64) for number, points in found.items()}


def stage_table(study: Study) -> Table | None:
    """Give the accuracies behind the curves, a column for each number of known classes; None without any."""
    found = {group.title: each for group in study.groups if (each := stages(group))}
    numbers = sorted({stage.classes for each in found.values() for stage in each})
    if not numbers:
        return None
    rows = [row for title, each in found.items() for row in _stage_rows(title, each, numbers)]
    columns = ("Method", "Of", f"{numbers[0]} known", *map(str, numbers[1:]))
    return Table(columns, rows, "", prose("stages_note"), left=2, merged=True)


def _stage_rows(title: str, found: Sequence[Stage], numbers: Sequence[int]) -> Iterator[list[Cell]]:
    by_number = {stage.classes: stage for stage in found}
    for name, words in _STAGE.items():
        means = [getattr(by_number.get(number), name, None) for number in numbers]
        yield [title, words, *(figure(FINAL, each.mean) if each else None for each in means)]
