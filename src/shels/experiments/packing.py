"""Packed results: what tables and figures need of trials, small enough to be kept beside the source.

A packed result is a record like any other (`TrialResult.record`), of the same trial with the same key, so
that it is found again and not run twice. It has lost what no page of the repository draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from shels.errors import MissingDataError
from shels.experiments.catalogue import AT_BEST
from shels.experiments.records import Records, record_line, without_folder
from shels.experiments.trials import TrialResult
from shels.files import write_whole

DIGITS = 5
"""Digits after the point, a tenth of the last one that any table shows."""

_LOST = ("checks", "per_class", "per_novel_class")
_MATRIX = "exclusivity"


def packed(result: TrialResult) -> TrialResult:
    """Return a result without its validations and its classes' rates, its figures rounded.

    The matrix of exclusivity stays where the experiment is about it; its mean is a metric, and stays anyway.
    A file of weights is called by its name, wherever it lay.
    """
    lost = {*_LOST, *(() if result.trial.experiment == _MATRIX else (_MATRIX,))}
    details = {name: value for name, value in result.details.items() if name not in lost}
    return replace(
        result,
        trial=without_folder(result.trial),
        metrics=rounded(result.metrics),
        seconds=rounded(result.seconds),
        details=rounded(details),
    )


def rounded(value: Any) -> Any:
    """Round every number in plain data that is no whole one.

    >>> rounded({"auroc": 0.123456789, "course": [{"classes": 7, "overall": 1 / 3}]})
    {'auroc': 0.12346, 'course': [{'classes': 7, 'overall': 0.33333}]}
    """
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, Mapping):
        return {name: rounded(each) for name, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, (list, tuple)) else value


def file_of(experiment: str) -> str:
    """Name the file that an experiment's packed results lie in: its family's, or that of all variants.

    The open world has variants of its own, which are no question of fidelity. What was run with the preset
    "best" lies together.

    >>> file_of("within/fmnist"), file_of("within/fmnist@last-weights"), file_of("open-world/mnist@mixed")
    ('within.jsonl', 'fidelity.jsonl', 'open-world.jsonl')
    >>> file_of("within/fmnist@best")
    'best.jsonl'
    """
    if experiment.endswith(AT_BEST):
        return "best.jsonl"
    family = experiment.partition("/")[0]
    return "fidelity.jsonl" if "@" in experiment and family != "open-world" else f"{family}.jsonl"


def pack(results: Iterable[TrialResult], directory: Path) -> list[Path]:
    """Add results to the packed ones of a directory, and return the files that it has now.

    A trial that is there already gets its new result. The same results give the same files, in whatever order
    they come. Where a line of those files cannot be read nothing is written, as it would be lost.
    """
    try:
        before = Records(directory).packed()
    except MissingDataError:
        before = []
    latest = {result.trial.key: result for result in (*before, *map(packed, results))}
    files: dict[str, list[TrialResult]] = {}
    for result in sorted(latest.values(), key=_order):
        files.setdefault(file_of(result.trial.experiment), []).append(result)
    for name, some in files.items():
        write_whole(directory / name, b"".join(record_line(each, dense=True) for each in some))
    return [directory / name for name in sorted(files)]


def _order(result: TrialResult) -> tuple[str, str, int, str]:
    trial = result.trial
    return trial.experiment, trial.method, trial.seed, trial.key
