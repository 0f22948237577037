"""On what machine trials ran, how long they took, and all their settings: what it takes to do it again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from shels.experiments.trials import TrialResult
from shels.report.page import Cell, Table
from shels.report.studies import Group, Study, every_group
from shels.report.words import NOTHING, duration, prose

PACKAGES = ("shels", "torch", "python")
"""The packages whose versions a trial keeps."""


def machines(studies: Sequence[Study]) -> Table:
    """List each machine, precision and set of versions, with the number of trials that ran there."""
    rows: Counter[tuple[str, ...]] = Counter()
    for result in (result for _, group in every_group(studies) for result in group.results):
        versions = (str(result.versions.get(name, NOTHING)) for name in PACKAGES)
        rows[result.device, precision(result), *versions] += 1
    columns = ("Device", "Precision", *PACKAGES, "Trials")
    return Table(columns, [[*place, number] for place, number in sorted(rows.items())])


def times(studies: Sequence[Study]) -> Table:
    """Say how long a trial took, by method and by stage."""
    groups = every_group(studies)
    spent = {group: [result.details.get("stages") or {} for result in group.results] for _, group in groups}
    stages = list(dict.fromkeys(stage for found in spent.values() for each in found for stage in each))
    rows: list[list[Cell]] = []
    for study, group in groups:
        total = sum(each.seconds for each in group.results)
        by_stage = (_mean_time(each.get(stage) for each in spent[group]) for stage in stages)
        last = (duration(total / len(group.results)), duration(total))
        rows.append([study.short, group.title, _stacked(group), *by_stage, *last])
    columns = ("Data", "Method", "Trained together", *stages, "A trial", "All trials")
    return Table(columns, rows, "", prose("times_note"), left=2, merged=True)


def learning_times(studies: Sequence[Study]) -> Table | None:
    """Say how long it took to learn a class, a column for each experiment; None where no trial says."""
    titles = dict.fromkeys(group.title for _, group in every_group(studies))
    found = [
        {group.title: _mean_time(each.get("seconds") for each in _stages(group)) for group in study.groups}
        for study in studies
    ]
    rows = [[title, *(column.get(title) for column in found)] for title in titles]
    if not any(cell for row in rows for cell in row[1:]):
        return None
    columns = ("Method", *(study.short for study in studies))
    return Table(columns, rows, "Time to take a class in", prose("learning_times_note"))


def settings(studies: Sequence[Study]) -> list[Table]:
    """List all settings, each set of them once, under the experiments and methods that share it."""
    shared: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for study, group in every_group(studies):
        shared.setdefault(tuple(group.settings.items()), []).append(f"{study.name} ({group.title})")
    return [Table(("Setting", "Value"), rows, "; ".join(names)) for rows, names in shared.items()]


def precision(result: TrialResult) -> str:
    """Look up the precision that a trial was trained in, where that is known."""
    return str(result.details.get("precision") or NOTHING)


def _stages(group: Group) -> list[Mapping[str, float]]:
    return [stage for trial in group.details("course") for stage in trial]


def _stacked(group: Group) -> str:
    """Say how many trials were trained together: 10, or 4-10 where that differs."""
    found = sorted({int(each) for each in group.details("stacked")})
    if not found:
        return NOTHING
    return f"{found[0]}" if len(found) == 1 else f"{found[0]}–{found[-1]}"


def _mean_time(values: Iterable[float | None]) -> str | None:
    present = [value for value in values if value is not None]
    return duration(sum(present) / len(present)) if present else None
