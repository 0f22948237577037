"""What stands behind a mean: what became of each class, and how learning went stage by stage."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from shels.experiments.statistics import Summary, summary
from shels.report.page import Cell, Table
from shels.report.studies import Group, Study
from shels.report.words import figure

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
    return {name: _rate(found[name]) for name in in_order(found)}


def in_order(names: Mapping[str, Any] | set[str]) -> list[str]:
    """Sort the names of classes: numbers by their size, then words.

    >>> in_order({"b", "10", "9"})
    ['9', '10', 'b']
    """
    return sorted(names, key=lambda name: (0, int(name), name) if name.isdecimal() else (1, 0, name))


def class_tables(study: Study) -> list[Table]:
    """Make a table for each role of a class and each method."""
    tables = _learning_tables if study.learning else _detection_tables
    return [table for group in study.groups for table in tables(group) if table.rows]


def _detection_tables(group: Group) -> Iterator[Table]:
    accepted, right = (rates(group, "per_class", share) for share in ("accepted", "right"))
    yield _class_table(group, "Known class", right, {"Accepted": accepted, "Accepted and right": right})
    rejected = rates(group, "per_novel_class", "rejected")
    yield _class_table(group, "Novel class", rejected, {"Rejected": rejected})


def _learning_tables(group: Group) -> Iterator[Table]:
    shares = {"Named rightly": "named", "Accepted": "accepted", "Accepted and right": "right"}
    orders: dict[str, Order] = {"First class": "known", "Class taken in": "novel"}
    for title, order in orders.items():
        found = {name: rates(group, "per_class", share, order) for name, share in shares.items()}
        yield _class_table(group, title, found["Named rightly"], found)


def _class_table(group: Group, title: str, classes: Rates, shares: Mapping[str, Rates]) -> Table:
    rows: list[list[Cell]] = [
        [name, rate.trials, round(rate.samples), *(_mean(each.get(name)) for each in shares.values())]
        for name, rate in classes.items()
    ]
    return Table((title, "Trials", "Samples in each", *shares), rows, group.title)


def _mean(rate: Rate | None) -> float | None:
    return None if rate is None else rate.mean


def _rate(pairs: Sequence[tuple[float, float]]) -> Rate:
    shares, samples = np.array(pairs).T
    mean, low, high = float(shares.mean()), float(shares.min()), float(shares.max())
    return Rate(mean, low, high, len(shares), float(samples.mean()))


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


def stages(group: Group) -> list[Stage]:
    """Average how a group went on learning, stage by stage; nothing where its trials have not kept that."""
    found: dict[int, list[Mapping[str, Any]]] = {}
    for trial in group.details("course"):
        for stage in trial:
            found.setdefault(int(stage["classes"]), []).append(stage)
    return [
        Stage(number, *(_summary(found[number], name) for name in ("overall", "first", "newest")))
        for number in sorted(found)
    ]


def stage_table(study: Study) -> Table | None:
    """Give the accuracies behind the curves, a column for each number of known classes; None without any."""
    found = {group.title: each for group in study.groups if (each := stages(group))}
    numbers = sorted({stage.classes for each in found.values() for stage in each})
    if not numbers:
        return None
    rows = [row for title, each in found.items() for row in _stage_rows(title, each, numbers)]
    columns = ("Method", "Of", f"{numbers[0]} known", *map(str, numbers[1:]))
    note = "Per cent of test samples named rightly when so many classes are known, mean over the trials."
    return Table(columns, rows, "", note, left=2, merged=True)


def _stage_rows(title: str, found: Sequence[Stage], numbers: Sequence[int]) -> Iterator[list[Cell]]:
    by_number = {stage.classes: stage for stage in found}
    for words, name in (("all classes", "overall"), ("the first", "first"), ("the newest", "newest")):
        means = [getattr(by_number.get(number), name, None) for number in numbers]
        yield [title, words, *(figure(FINAL, each.mean) if each else None for each in means)]


def _summary(stages: Sequence[Mapping[str, Any]], name: str) -> Summary | None:
    values = [float(stage[name]) for stage in stages if stage.get(name) is not None]
    finite = [value for value in values if math.isfinite(value)]
    return summary(finite) if finite else None
