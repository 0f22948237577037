"""Short trials of both kinds for tests of units, and what must be equal wherever they are run."""

from __future__ import annotations

import json

from shels.experiments.catalogue import CATALOGUE
from shels.experiments.methods import METHODS

_OF_A_RUN = ("seconds", "device", "stages", "stacked")
"""What a result tells of the run and not of the trial."""


def short_trials(count, epochs=1):
    """Trials of within/digits, and of incremental/digits by two methods that share a network."""
    asked = [("within/digits", "shels"), ("incremental/digits", "gaussian"), ("incremental/digits", "slda")]
    made = [CATALOGUE[name].trials(METHODS[method], count, epochs=epochs) for name, method in asked]
    return [trial for some in made for trial in some]


def figures_of(records):
    """Return all figures of a log by trial, with nothing of the clock; no trial may be there twice."""
    lines = [json.loads(line) for line in records.path.read_text().splitlines()]
    keys = [result.trial.key for result in records.results()]
    assert len(keys) == len(lines), "a trial is there twice"
    return dict(zip(keys, map(_lasting, lines), strict=True))


def _lasting(value):
    if isinstance(value, dict):
        return {name: _lasting(each) for name, each in value.items() if name not in _OF_A_RUN}
    return [_lasting(each) for each in value] if isinstance(value, list) else value
