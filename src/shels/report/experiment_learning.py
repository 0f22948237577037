"""Learning class by class in words and tables: what it came to, and how it went stage by stage."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shels.experiments.methods import METHODS
from shels.experiments.statistics import Summary, summary
from shels.report.experiment_groups import Group, Study
from shels.report.experiment_tables import figure, spread
from shels.report.page import Cell, Table

MEASURES = (
    "Final accuracy is the share of test samples of all classes, first ones and added ones, that are given "
    "the right class at the end; nothing is rejected. Added accuracy is the same of the classes taken in, "
    "each counted alike. Forgetting is what a class has lost at the end of the best accuracy it ever had, "
    "mean over all classes but the last one: here the lowest is best. With rejection, a sample must also be "
    "accepted to count. AUROC is the chance that a sample of a known class scores higher than one of the "
    "next class, before that is taken in, mean over the stages: 1 is perfect, 0.5 a coin."
)
FURTHER = (
    "In per cent. First classes: their accuracy at the end, nothing rejected. Accepted: samples of all "
    "classes at the end, named rightly or not. Next rejected: of the next class, before it is taken in, mean "
    "over the stages. Combined: the mean of that and of the accuracy with rejection. Next at 95 %: how much "
    "of the next class is accepted by the threshold that accepts 95 % of the known samples."
)
_INTRODUCTION = (
    "A learner knows the first classes of a data set and takes in more, one after another. Before the first "
    "of these and after each it is measured on test samples of all classes that it knows by then. Each trial "
    "has classes and an order of its own, the same for every method. The paper prints curves of "
    "this, without numbers, so nothing stands beside our figures."
)
_BOUNDS = {
    "fine-tune": "which does nothing against forgetting",
    "joint": "which starts afresh with all samples of all classes each time",
}
_FINAL = "closed_set_accuracy"


@dataclass(frozen=True)
class Stage:
    """A group's trials when so many classes are known; None where a measure was not taken.

    overall, first, newest: accuracy of all classes known, of the first ones, and of the one just taken in.
    """

    classes: int
    overall: Summary | None
    first: Summary | None
    newest: Summary | None


def course(group: Group) -> list[Stage]:
    """Return how a group went on, stage by stage; nothing where its trials have not kept that."""
    found: dict[int, list[Mapping[str, Any]]] = {}
    for stages in group.details("course"):
        for stage in stages:
            found.setdefault(int(stage["classes"]), []).append(stage)
    return [
        Stage(number, *(_summary(found[number], name) for name in ("overall", "first", "newest")))
        for number in sorted(found)
    ]


def introduction(studies: Sequence[Study]) -> str:
    """Return what is measured, and which of the methods are no rivals but bounds."""
    methods = {group.method for study in studies for group in study.groups}
    bounds = [f"{METHODS[name].title}, {words}" for name, words in _BOUNDS.items() if name in methods]
    return _INTRODUCTION + (f" Bounds, not rivals: {'; '.join(bounds)}." if bounds else "")


def in_short(studies: Sequence[Study]) -> Iterator[str]:
    """Give the best final accuracy of each experiment."""
    told = [words for words in map(_best, studies) if words]
    aside = ", bounds aside" if any(study.rivals != study.groups for study in studies) else ""
    if told:
        yield f"Final accuracy after all classes were taken in{aside}: {'; '.join(told)}."


def stages(study: Study) -> Table | None:
    """Return the accuracies behind the lines, a column for each number of known classes; None without any."""
    courses = {group.title: found for group in study.groups if (found := course(group))}
    numbers = sorted({stage.classes for found in courses.values() for stage in found})
    if not numbers:
        return None
    rows = [row for title, found in courses.items() for row in _stage_rows(title, found, numbers)]
    columns = ("Method", "Of", f"{numbers[0]} known", *map(str, numbers[1:]))
    note = "Per cent of test samples named rightly when so many classes are known, mean over the trials."
    return Table(columns, rows, "", note, left=2, merged=True)


def _stage_rows(title: str, found: Sequence[Stage], numbers: Sequence[int]) -> Iterator[list[Cell]]:
    by_number = {stage.classes: stage for stage in found}
    for called, name in (("all classes", "overall"), ("the first", "first"), ("the newest", "newest")):
        means = [getattr(by_number.get(number), name, None) for number in numbers]
        yield [title, called, *(figure(_FINAL, each.mean) if each else None for each in means)]


def _summary(stages: Sequence[Mapping[str, Any]], name: str) -> Summary | None:
    values = [float(stage[name]) for stage in stages if stage.get(name) is not None]
    finite = [value for value in values if math.isfinite(value)]
    return summary(finite) if finite else None


def _best(study: Study) -> str:
    """Return who named most at the end, and where that is another, what the first method did."""
    found = {group: ours for group in study.rivals if (ours := group.summary(_FINAL))}
    if not found:
        return ""
    best = max(found, key=lambda group: found[group].mean)
    words = f"{study.short} with {best.title} {_percent(found[best])}"
    words += f", the best of {len(found)} methods" if len(found) > 1 else ""
    first = next(iter(found))
    return words if first is best else f"{words} ({first.title} {_percent(found[first])})"


def _percent(found: Summary) -> str:
    return f"{spread(_FINAL, found)} %".replace(" ", "\N{NO-BREAK SPACE}")
