"""Results as CSV, for spreadsheets and other programs: a row for each trial, and one for each mean."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from shels.experiments.trials import TrialResult
from shels.report.machine import PACKAGES, precision
from shels.report.studies import Group, Study, every_group, further_measures


def trials_csv(studies: Sequence[Study]) -> str:
    """Write a row for each trial: what it was, what was measured, and where. Figures are fractions 0-1."""
    groups = [group for _, group in every_group(studies)]
    measured = {key for group in groups for result in group.results for key in result.metrics}
    keys = [key for group in groups for key in group.measures]
    keys = list(dict.fromkeys(keys + [key for key in further_measures(groups) if key in measured]))
    columns = ["experiment", "method", "variant", "seed", "known_data", "novel_data", "known", "novel"]
    columns += [*keys, "seconds", "device", "precision", "trained_together"]
    columns += [*(f"{name}_version" for name in PACKAGES), "key"]
    return _csv(columns, [_trial_row(group, result, keys) for group in groups for result in group.results])


def summary_csv(studies: Sequence[Study]) -> str:
    """Write a row for each experiment, method and measure: ours, the paper's figure, the difference."""
    columns = ["experiment", "method", "variant", "measure", "n", "mean", "sd", "ci95_low", "ci95_high"]
    columns += ["published_mean", "published_sd", "published_trials", "difference", "within_interval"]
    keys = [(group, (*group.measures, *further_measures([group]))) for _, group in every_group(studies)]
    return _csv(columns, [row for group, some in keys for key in some if (row := _summary_row(group, key))])


def _trial_row(group: Group, result: TrialResult, keys: Sequence[str]) -> list[Any]:
    trial = result.trial
    row: list[Any] = [trial.experiment, trial.method, _variant(group), trial.seed]
    row += [trial.known_data, trial.novel_data]
    row += [json.dumps(list(classes), ensure_ascii=False) for classes in (trial.known, trial.novel)]
    row += [result.metrics.get(key) for key in keys]
    row += [result.seconds, result.device, precision(result), result.details.get("stacked")]
    return [*row, *(result.versions.get(name) for name in PACKAGES), trial.key]


def _summary_row(group: Group, key: str) -> list[Any]:
    ours, theirs = group.summary(key), group.published(key)
    if ours is None:
        return []
    row: list[Any] = [group.experiment, group.method, _variant(group), key]
    row += [ours.n, ours.mean, ours.sd, ours.low, ours.high]
    if theirs is None:
        return [*row, None, None, None, None, None]
    within = "yes" if theirs.contains(ours.mean) else "no"
    return [*row, theirs.mean, theirs.sd, theirs.trials, ours.mean - theirs.mean, within]


def _variant(group: Group) -> str:
    return "; ".join(f"{name}={value}" for name, value in group.variant)


def _csv(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()
