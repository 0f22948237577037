"""On what machine trials ran, how long they took, and all their settings: what it takes to do it again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from shels.experiments.trials import TrialResult
from shels.report.experiment_groups import NOTHING, Group, Study
from shels.report.page import Cell, Table

_PACKAGES = ("shels", "torch", "python")


def machines(studies: Sequence[Study]) -> Table:
    """Return each machine, precision and set of versions, with the number of trials that ran there."""
    rows: Counter[tuple[str, ...]] = Counter(_machine(result) for result in _results(studies))
    columns = ("Device", "Precision", *_PACKAGES, "Trials")
    return Table(columns, [[*place, number] for place, number in sorted(rows.items())])


def times(studies: Sequence[Study]) -> Table:
    """Return how long a trial took, by method and by stage."""
    stages = list(dict.fromkeys(name for result in _results(studies) for name in _stages(result)))
    rows: list[list[Cell]] = []
    for study in studies:
        for group in study.groups:
            found = group.results
            shares = [_mean(_stages(result).get(stage) for result in found) for stage in stages]
            times = [duration(each) if each is not None else None for each in shares]
            mean, total = (
                sum(each.seconds for each in found) / len(found),
                sum(each.seconds for each in found),
            )
            rows.append([study.short, group.title, _together(group), *times, duration(mean), duration(total)])
    columns = ("Data", "Method", "Trained together", *stages, "A trial", "All trials")
    note = "Means over the trials; each has its share of the time of all that were trained together with it."
    return Table(columns, rows, "", note, left=2, merged=True)


def settings(studies: Sequence[Study]) -> list[Table]:
    """Return all settings, each set of them once, under the experiments and methods that share it."""
    shared: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for study in studies:
        for group in study.groups:
            key = tuple(group.settings.items())
            shared.setdefault(key, []).append(f"{study.name} ({group.title})")
    return [Table(("Setting", "Value"), rows, "; ".join(names)) for rows, names in shared.items()]


def duration(seconds: float) -> str:
    """Return a time as people say it: 0.85 s, 12.3 s, 4 min 10 s, 25 min, 2 h 5 min."""
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 1 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 10:
        return f"{minutes} min {rest} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def taking(studies: Sequence[Study]) -> Table | None:
    """Return how long it took to take a class in, a column for each experiment; None where nothing tells."""
    titles = dict.fromkeys(group.title for study in studies for group in study.groups)
    found = [{group.title: _taking(group) for group in study.groups} for study in studies]
    rows = [[title, *(column.get(title) for column in found)] for title in titles]
    if not any(cell for row in rows for cell in row[1:]):
        return None
    columns = ("Method", *(study.short for study in studies))
    note = (
        "Mean over the classes and the trials; each trial has its share of the time of all that learned "
        "together with it."
    )
    return Table(columns, rows, "Time to take a class in", note)


def _taking(group: Group) -> str | None:
    stages = [stage for course in group.details("course") for stage in course]
    mean = _mean(stage.get("seconds") for stage in stages)
    return None if mean is None else duration(mean)


def precision(result: TrialResult) -> str:
    """Return the precision that a trial was trained in, where that is known."""
    return str(result.details.get("precision") or NOTHING)


def _machine(result: TrialResult) -> tuple[str, ...]:
    versions = (str(result.versions.get(name, NOTHING)) for name in _PACKAGES)
    return result.device, precision(result), *versions


def _stages(result: TrialResult) -> Mapping[str, float]:
    return result.details.get("stages") or {}


def _together(group: Group) -> str:
    """Return how many trials were trained together: 10, or 4-10 where that differs."""
    found = sorted({int(each) for each in group.details("stacked")})
    if not found:
        return NOTHING
    return f"{found[0]}" if len(found) == 1 else f"{found[0]}–{found[-1]}"


def _mean(values: Iterable[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present else None


def _results(studies: Sequence[Study]) -> list[TrialResult]:
    return [result for study in studies for group in study.groups for result in group.results]
