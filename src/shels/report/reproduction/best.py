"""The page on the preset "best": its figures beside the better one of the two published methods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from shels.experiments.catalogue import AT_BEST
from shels.experiments.published import published
from shels.experiments.statistics import Summary
from shels.experiments.trials import MEASURES
from shels.report import machine, tables
from shels.report.page import Cell, Mark, Table, rendered
from shels.report.reproduction.figures import table_alone
from shels.report.reproduction.remarks import Remarks
from shels.report.studies import BASELINE, Group, Study
from shels.report.words import NOTHING, figure, measure, spread

METHOD = "shels-fused"
"""What the preset's experiments in detection are about."""
_TITLES = {"within": "Within data sets", "across": "Across data sets"}


def best_page(found: Sequence[Study], remarks: Remarks) -> str:
    """Write the page: a table for each kind of detection, and what was learned and found with the preset."""
    mine = [study for study in found if study.name.endswith(AT_BEST)]
    kinds = {family: list(some) for family, some in groupby(mine, key=lambda study: study.family)}
    detection = {_TITLES[kind]: some for kind, some in kinds.items() if kind in _TITLES}
    learning = {
        some[0].family: tables.overview(some, "") for kind, some in kinds.items() if kind not in _TITLES
    }
    return rendered(
        "best.md",
        above={title: table_above(some) for title, some in detection.items()},
        others={title: _table_of(rest) for title, some in detection.items() if (rest := _others(some))},
        learning=learning,
        tally=tally(mine),
        machines=machine.machines(mine) if mine else None,
        notes=remarks.notes.get("best", ()),
        folder="",
    )


def better_published(experiment: str, key: str) -> float | None:
    """Find the higher of the two published means of a measure.

    >>> better_published("within/fmnist@best", "known_accuracy")
    0.8435
    """
    both = [published(experiment, method, key) for method in ("shels", BASELINE)]
    return max((each.mean for each in both if each is not None), default=None)


def tally(found: Sequence[Study]) -> tuple[int, int]:
    """Count the means at or above the better published one, and all that have one."""
    answers = [answer for study in found for *_, answer in _beside(study) if answer is not None]
    return sum(answers), len(answers)


def table_above(found: Sequence[Study]) -> Table:
    """Put each mean of the preset beside both published ones."""
    rows = [row for study in found for row in _rows(study)]
    columns = ("Data", "Trials", "Measure", "Preset best", "SHELS", "Scaled cosine", "At or above both?")
    return Table(columns, rows, left=3, merged=True)


def best_in_short(found: Sequence[Study]) -> Table:
    """Give each experiment of detection a row: each mean of the preset, and the better published one."""
    rows: list[list[Cell]] = []
    for study in found:
        if study.name.endswith(AT_BEST) and (beside := [*_beside(study)]):
            cells: list[Cell] = []
            for _, key, ours, _ in beside:
                theirs = better_published(study.name, key)
                cells += [figure(key, ours.mean), NOTHING if theirs is None else figure(key, theirs)]
            rows.append([study.short.replace(", at best", ""), *cells, len(beside[0][0].results)])
    measures = [measure(key) for key in MEASURES]
    headings = (text for each in measures for text in (each.heading + ", %" * each.percent, "published"))
    return Table(("Data", *headings, "Trials"), rows)


def _rows(study: Study) -> Iterator[list[Cell]]:
    for place, (group, key, ours, answer) in enumerate(_beside(study)):
        theirs = [published(study.name, method, key) for method in ("shels", BASELINE)]
        cells: list[Cell] = [figure(key, each.mean) if each else NOTHING for each in theirs]
        said: Cell = NOTHING if answer is None else Mark("yes") if answer else Mark("no", "best")
        trials = str(len(group.results)) if not place else ""
        yield [study.short, trials, measure(key).heading, spread(key, ours), *cells, said]


def _beside(study: Study) -> Iterator[tuple[Group, str, Summary, bool | None]]:
    """Give each measure of the preset's own method, and whether its mean is at or above both published."""
    for group in study.groups:
        if group.method != METHOD or not group.as_catalogued:
            continue
        for key in MEASURES:
            ours, theirs = group.summary(key), better_published(study.name, key)
            if ours is not None:
                yield group, key, ours, None if theirs is None else ours.mean >= theirs - 1e-9


def _table_of(found: Sequence[Study]) -> Table | None:
    """Give the figures alone; of the method that they would be tested against another table speaks."""
    made = table_alone(found)
    return None if made is None else replace(made, note="")


def _others(found: Sequence[Study]) -> list[Study]:
    """Leave out the preset's own method, which has a table."""
    kept = [(study, tuple(group for group in study.groups if group.method != METHOD)) for study in found]
    return [Study(study.name, groups) for study, groups in kept if groups]
