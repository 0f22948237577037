"""The sections of docs/reproduction.md: tables and figures of each family of experiments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from shels.experiments.catalogue import FAMILIES
from shels.experiments.published import AS_PUBLISHED
from shels.experiments.statistics import Comparison, compare, differences
from shels.experiments.trials import MEASURES, TrialResult
from shels.report import charts, findings, machine, tables
from shels.report.charts.sweeps import sweep_of
from shels.report.drawing import Figure
from shels.report.page import Cell, Table
from shels.report.reproduction.figures import (
    Explained,
    beside_published,
    explained,
    table_alone,
    table_beside,
)
from shels.report.reproduction.remarks import Remarks
from shels.report.studies import Group, Study, every_group
from shels.report.words import NOTHING, duration, figure, measure, p_value, prose

_TESTS = "Do the methods differ? All tests"
_ALPHAS = (0.0, 0.001, 0.005, 0.01, 0.02)


@dataclass(frozen=True)
class Part:
    """A section: its notes written by hand, its tables and figures, and what is folded away.

    beside: our figures beside the published ones; differences: those outside the interval, with why.
    """

    notes: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    beside: Table | None = None
    differences: Sequence[Explained] = ()
    folded: dict[str, Table] = field(default_factory=dict)


def shown(studies: Iterable[Study]) -> list[Study]:
    """Choose what the paper has, and what goes on from there; the others have pages of their own."""
    apart = ("fidelity", "best")
    members = {each.name for family, some in FAMILIES.items() if family not in apart for each in some}
    return [study for study in studies if study.name in members | {*AS_PUBLISHED.values()}]


def parts(found: Sequence[Study], remarks: Remarks) -> dict[str, Part]:
    """Make the section of each family that was run, by its name."""
    made = {}
    for family, build in _BUILDERS.items():
        if members := [study for study in shown(found) if study.family == family]:
            made[family] = build(members, remarks)
    return made


def _detection(members: Sequence[Study], remarks: Remarks) -> Part:
    beside = beside_published(members, shortened=True)
    alone, tests = table_alone(members), tables.statistics(members)
    return Part(
        remarks.notes.get(members[0].family, ()),
        [alone] if alone else [],
        charts.drawn(charts.FAMILY, members[0].family, members),
        table_beside(beside),
        explained(beside, remarks.differences),
        {_TESTS: tests} if tests else {},
    )


def _exclusivity(members: Sequence[Study], remarks: Remarks) -> Part:
    drawn = [figure for study in members for figure in charts.networks.exclusivity(study)]
    return replace(_detection(members, remarks), figures=drawn)


def _sparsity(members: Sequence[Study], remarks: Remarks) -> Part:
    drawn = charts.drawn(charts.FAMILY, "group-sparsity", members)
    return Part(remarks.notes.get("group-sparsity", ()), [_sweep_table(members)], drawn)


def _learning(members: Sequence[Study], remarks: Remarks) -> Part:
    drawn = charts.drawn(charts.FAMILY, members[0].family, members)
    folded = {_TESTS: tables.statistics(members), "Further measures": tables.further(members)}
    folded |= {"Time to take a class in": machine.learning_times(members)}
    kept = {title: replace(table, caption="") for title, table in folded.items() if table is not None}
    overview = [tables.overview(members, "")]
    return Part(remarks.notes.get(members[0].family, ()), overview, drawn, folded=kept)


def _open_world(members: Sequence[Study], remarks: Remarks) -> Part:
    made = _learning(members, remarks)
    return replace(made, notes=[*made.notes, *findings.against_joint(members)])


def _open_set(members: Sequence[Study], remarks: Remarks) -> Part:
    folded = {_TESTS: tables.statistics(members), "Further measures": tables.further(members)}
    kept = {title: replace(table, caption="") for title, table in folded.items() if table is not None}
    return Part(remarks.notes.get("osr", ()), [tables.overview(members, "")], folded=kept)


_BUILDERS = {
    "within": _detection,
    "across": _detection,
    "exclusivity": _exclusivity,
    "group-sparsity": _sparsity,
    "incremental": _learning,
    "open-world": _open_world,
    "few-shot": _learning,
    "osr": _open_set,
}


# The sweep of the group sparsity ------------------------------------------------------------------------


def _sweep_table(members: Sequence[Study]) -> Table:
    rows: list[list[Cell]] = []
    for study in members:
        for kind, points in sweep_of(study).items():
            found = {alpha: points[alpha] for alpha in _ALPHAS if alpha in points}
            rows += [_sweep_row(study, kind, key, found) for key in MEASURES]
    headings = (f"α = {alpha:g}" for alpha in _ALPHAS)
    columns = ("Data", "Weights", "Measure", *headings, "Last less first", "p")
    return Table(columns, rows, "", prose("sweep_note"), left=3, merged=True)


def _sweep_row(study: Study, kind: str, key: str, found: dict[float, Group]) -> list[Cell]:
    means = [found[alpha].summary(key) if alpha in found else None for alpha in _ALPHAS]
    cells: list[Cell] = [figure(key, each.mean) if each else NOTHING for each in means]
    test = _last_less_first(key, found) if len(found) > 1 else None
    start: list[Cell] = [study.short, kind if key == MEASURES[0] else "", measure(key).heading]
    if test is None:
        return [*start, *cells, NOTHING, NOTHING]
    return [*start, *cells, figure(key, test.difference, sign=True), p_value(test.p)]


def _last_less_first(key: str, found: dict[float, Group]) -> Comparison:
    """Compare the largest and the smallest weight, on the seeds that both have."""
    last, first = (found[pick(found)].results for pick in (max, min))
    apart = differences(last, first, key)
    return compare(apart, [0.0] * len(apart), paired=True)


# Machine and time ---------------------------------------------------------------------------------------


def times(found: Sequence[Study]) -> Table:
    """Say how long every entry took, the trials of all its methods added up."""
    entries = {study.name: [result for group in study.groups for result in group.results] for study in found}
    entries["all"] = [result for some in entries.values() for result in some]
    rows: list[list[Cell]] = [
        [name, len({result.trial.method for result in some}), len(some), _training(some), _total(some)]
        for name, some in entries.items()
    ]
    return Table(("Entry", "Methods", "Trials", "Training", "In all"), rows)


def total_seconds(found: Sequence[Study]) -> float:
    """Add up the seconds of all trials: each has its share of what it was run with, so that is the time."""
    return sum(result.seconds for _, group in every_group(found) for result in group.results)


def _total(results: Sequence[TrialResult]) -> str:
    return duration(sum(result.seconds for result in results))


def _training(results: Sequence[TrialResult]) -> str:
    stages = [result.details.get("stages") or {} for result in results]
    return duration(sum(each.get("training", 0.0) for each in stages))
