"""Results as CSV, for spreadsheets and other programs: a row for each trial, and one for each mean."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from shels.experiments.trials import TrialResult
from shels.report.experiment_groups import Group, Study
from shels.report.experiment_machine import precision
from shels.report.experiment_tables import further_measures

_PACKAGES = ("shels", "torch", "python")


def trials_csv(studies: Sequence[Study]) -> str:
    """Return a row for each trial: what it was, what was measured, and where. Figures are fractions 0-1."""
    groups = [group for study in studies for group in study.groups]
    shown = dict.fromkeys(name for group in groups for name in group.measures)
    further = (name for name in further_measures(groups) if _measured(groups, name))
    measures = list(shown | dict.fromkeys(further))
    columns = ["experiment", "method", "variant", "seed", "known_data", "novel_data", "known", "novel"]
    columns += [*measures, "seconds", "device", "precision", "trained_together"]
    columns += [*(f"{name}_version" for name in _PACKAGES), "key"]
    rows = [_trial_row(group, result, measures) for group in groups for result in group.results]
    return _csv(columns, rows)


def _trial_row(group: Group, result: TrialResult, measures: Sequence[str]) -> list[Any]:
    trial = result.trial
    row: list[Any] = [trial.experiment, trial.method, _variant(group), trial.seed]
    row += [trial.known_data, trial.novel_data]
    row += [json.dumps(list(classes), ensure_ascii=False) for classes in (trial.known, trial.novel)]
    row += [result.metrics.get(name) for name in measures]
    row += [result.seconds, result.device, precision(result), result.details.get("stacked")]
    return [*row, *(result.versions.get(name) for name in _PACKAGES), trial.key]


def summary_csv(studies: Sequence[Study]) -> str:
    """Return a row for each experiment, method and measure: ours, the paper's figure, the difference."""
    columns = ["experiment", "method", "variant", "measure", "n", "mean", "sd", "ci95_low", "ci95_high"]
    columns += ["published_mean", "published_sd", "published_trials", "difference", "within_interval"]
    rows = [
        row
        for study in studies
        for group in study.groups
        for measure in (*group.measures, *further_measures([group]))
        if (row := _summary_row(group, measure)) is not None
    ]
    return _csv(columns, rows)


def _summary_row(group: Group, measure: str) -> list[Any] | None:
    ours, theirs = group.summary(measure), group.published(measure)
    if ours is None:
        return None
    row: list[Any] = [group.experiment, group.method, _variant(group), measure]
    row += [ours.n, ours.mean, ours.sd, ours.low, ours.high]
    if theirs is None:
        return [*row, None, None, None, None, None]
    inside = "yes" if theirs.contains(ours.mean) else "no"
    return [*row, theirs.mean, theirs.sd, theirs.trials, ours.mean - theirs.mean, inside]


def _measured(groups: Sequence[Group], name: str) -> bool:
    return any(name in result.metrics for group in groups for result in group.results)


def _variant(group: Group) -> str:
    return "; ".join(f"{name}={value}" for name, value in group.variant)


def _csv(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()
