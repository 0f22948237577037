"""How long trials should take, by what trials like them took: nothing is scaled, and nothing is guessed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from statistics import fmean
from typing import NamedTuple

from shels.experiments.status import TimeLeft
from shels.experiments.trials import Trial, TrialResult

TABLE = "seconds.json"
"""The table of this package that is made of the committed results, with `make reproduction`."""


class Kind(NamedTuple):
    """What trials that should cost the same have in common. length: of their training, as "20 epochs"."""

    device: str
    precision: str
    experiment: str
    method: str
    length: str


def kind_of(trial: Trial, device: str) -> Kind:
    """Say what kind of work a trial is on a device."""
    training = trial.settings.training
    length = f"{training.steps} steps" if training.epochs is None else f"{training.epochs} epochs"
    return Kind(device, trial.precision, trial.experiment, trial.method, length)


def costs_of(results: Iterable[TrialResult]) -> dict[Kind, float]:
    """Give the mean seconds of a trial of each kind; those trained in one stack have shared its time."""
    found: dict[Kind, list[float]] = {}
    for result in results:
        found.setdefault(kind_of(result.trial, result.device), []).append(result.seconds)
    return {kind: fmean(seconds) for kind, seconds in sorted(found.items())}


def shipped_costs() -> dict[Kind, float]:
    """Read the table that comes with the package: what the committed results took."""
    rows = json.loads(files("shels.experiments").joinpath(TABLE).read_text("utf-8"))
    return {Kind(*row[:-1]): float(row[-1]) for row in rows}


def table_of(costs: Mapping[Kind, float]) -> str:
    """Write costs as `shipped_costs` reads them, a row on each line."""
    rows = [json.dumps([*kind, round(seconds, 2)]) for kind, seconds in costs.items()]
    return "[\n" + ",\n".join(rows) + "\n]\n" if rows else "[]\n"


def estimated(trials: Sequence[Trial], device: str, costs: Mapping[Kind, float]) -> TimeLeft:
    """Add up what trials should take on a device, and count those that nothing tells of."""
    known = [costs[kind] for trial in trials if (kind := kind_of(trial, device)) in costs]
    return TimeLeft(sum(known), len(trials) - len(known))
