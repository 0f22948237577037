"""How a run of experiments stands: what is done, what it came to, and how long the rest may take."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from shels.detection.measures import MEASURES
from shels.experiments.published import Published, published
from shels.experiments.statistics import Summary, summary_of
from shels.experiments.trials import FEW_SHOT_MEASURES, LEARNING_MEASURES, Trial, TrialResult, measures_of

if TYPE_CHECKING:
    from shels.experiments.advances import Advance, Tally
    from shels.experiments.records import Records

_ENOUGH = 0.01  # the share of a stack that must be done before its speed says anything


def columns_of(experiment: str) -> dict[str, str]:
    """Name the measures of an experiment as the columns of a table do.

    >>> columns_of("within/fmnist")
    {'known_accuracy': 'known', 'novel_accuracy': 'novel', 'combined_accuracy': 'combined', 'auroc': 'AUROC'}
    """
    measures = measures_of(experiment)
    learning = measures in (LEARNING_MEASURES, FEW_SHOT_MEASURES)
    return {name: MEASURES[name].heading_in(learning=learning) for name in measures}


@dataclass
class Row:
    """One experiment by one method: the trials wanted, and what has become of them.

    results, failed: by the trial's key. now: what is being done with some of them.
    """

    trials: list[Trial] = field(default_factory=list)
    results: dict[str, TrialResult] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    now: str = ""

    @property
    def missing(self) -> list[Trial]:
        """The trials that have no result."""
        return [trial for trial in self.trials if trial.key not in self.results]

    @property
    def state(self) -> str:
        """What is happening to it, in a word or two."""
        if self.now:
            return self.now
        if self.failed:
            return f"{len(self.failed)} failed"
        return "waiting" if self.missing else "done"

    def reason(self, trial: Trial) -> str:
        """Say why a trial has no result."""
        return self.failed.get(trial.key, "not run")

    def published(self, measure: str) -> Published | None:
        """Return the paper's figure, where it has one."""
        return published(self.trials[0].experiment, self.trials[0].method, measure)

    def summary(self, measure: str) -> Summary | None:
        """Mean and spread of a measure so far; None before there is a figure."""
        return summary_of(result.metrics.get(measure) for result in self.results.values())


class TimeLeft(NamedTuple):
    """How long the rest should take: seconds for what can be told, and how many trials nothing tells of."""

    seconds: float
    unknown: int


class RunStatus:
    """The trials of a run, row by row, up to date with what the engine yields.

    clock: seconds that go on, whatever the time of day.
    """

    def __init__(
        self, trials: Sequence[Trial], records: Records, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rows: dict[tuple[str, str], Row] = {}
        self.clock, self.began = clock, clock()
        self.fresh: list[TrialResult] = []
        self.tally: Tally | None = None
        self._stacks: dict[str, _Stack] = {}  # by unit; one without a name where there are no units
        for trial in trials:
            row = self.rows.setdefault((trial.experiment, trial.method), Row())
            row.trials.append(trial)
            if found := records.find(trial):
                row.results[trial.key] = found

    @property
    def wanted(self) -> int:
        """How many trials were asked for."""
        return sum(len(row.trials) for row in self.rows.values())

    @property
    def done(self) -> int:
        """How many of them have a result."""
        return sum(len(row.results) for row in self.rows.values())

    @property
    def missing(self) -> list[Trial]:
        """The trials without a result, in the order asked for."""
        return [trial for row in self.rows.values() for trial in row.missing]

    @property
    def share(self) -> float:
        """How much of the run is done, 0-1, each trial counted alike."""
        begun = sum(stack.share * len(trials) for stack, trials in self._under_way())
        return (self.done + begun) / max(self.wanted, 1)

    def update(self, advance: Advance) -> None:
        """Note what the engine yields."""
        if advance.kind in ("tally", "note"):
            self.tally = advance.tally or self.tally
            return
        if advance.kind == "finished" and advance.result is not None:
            self.fresh.append(advance.result)
            self._row(advance.result.trial).results[advance.result.trial.key] = advance.result
        elif advance.kind == "failed":
            for trial in advance.trials:
                self._row(trial).failed[trial.key] = advance.message
        else:
            before = self._stacks.get(advance.unit, _Stack(()))
            self._stacks[advance.unit] = before.after(advance, self.clock())
        for row in self.rows.values():
            row.now = ""
        for stack, trials in self._under_way():
            for trial in trials:
                self._row(trial).now = stack.doing

    def left(self) -> TimeLeft:
        """How long the rest should take, by nothing but the work of this run.

        A stack under way is taken to go on at its pace. A trial yet to come is taken to cost what those of
        its experiment cost; before there is one, it is counted as unknown. Units that are under way at the
        same time share what is left.
        """
        now, costs, under_way = self.clock(), self._costs(), self._under_way()
        keys = {trial.key for _, trials in under_way for trial in trials}
        coming = [trial for trial in self._to_come() if trial.key not in keys]
        known = [costs[trial.experiment] for trial in coming if trial.experiment in costs]
        rests = [(stack.left(now), len(trials)) for stack, trials in under_way]
        seconds = sum(known) + sum(rest or 0.0 for rest, _ in rests)
        unknown = len(coming) - len(known) + sum(number for rest, number in rests if rest is None)
        return TimeLeft(seconds / max(1, len(under_way)), unknown)

    def _costs(self) -> dict[str, float]:
        """Seconds that a trial of each experiment costs, by its finished ones, else by the stack's pace."""
        costs: dict[str, float] = {}
        for stack in self._stacks.values():
            total = stack.total()
            if total is not None:
                costs |= {trial.experiment: total / len(stack.trials) for trial in stack.trials}
        by_experiment: dict[str, list[float]] = {}
        for result in self.fresh:
            by_experiment.setdefault(result.trial.experiment, []).append(result.seconds)
        return costs | {name: fmean(seconds) for name, seconds in by_experiment.items()}

    def _to_come(self) -> list[Trial]:
        return [trial for trial in self.missing if trial.key not in self._row(trial).failed]

    def _under_way(self) -> list[tuple[_Stack, list[Trial]]]:
        """Give the stacks under way, each with those of its trials that have neither result nor failed."""
        waiting = {trial.key for trial in self._to_come()}
        pairs = [(each, [one for one in each.trials if one.key in waiting]) for each in self._stacks.values()]
        return [(stack, trials) for stack, trials in pairs if trials]

    def _row(self, trial: Trial) -> Row:
        return self.rows[trial.experiment, trial.method]


@dataclass(frozen=True)
class _Stack:
    """The trials that are trained together now, and the pace at which it goes.

    first, share: the share of their work that was done at the first report, and at the last.
    began, latest: when those were. training: whether it is past loading, from where on the pace counts.
    learning: whether the training is over, and classes are taken in one by one. doing: for people.
    """

    trials: tuple[Trial, ...]
    first: float = 0.0
    share: float = 0.0
    began: float = 0.0
    latest: float = 0.0
    training: bool = False
    learning: bool = False
    doing: str = ""

    def after(self, advance: Advance, now: float) -> _Stack:
        """Go on to the next report; other trials are another stack.

        Loading data says nothing of the pace, and of a training that was resumed a share was done before.
        Learning class by class, after the training, has a pace of its own.
        """
        begins = advance.kind == "learning" and not self.learning
        if advance.trials == self.trials and self.training and not begins:
            doing = _in_words(advance)
            return replace(self, share=max(self.share, advance.share), latest=now, doing=doing)
        share, training = advance.share, advance.kind != "loading"
        start, began = (0.0, self.latest) if begins else (share, now)
        return _Stack(advance.trials, start, share, began, now, training, begins, _in_words(advance))

    def total(self) -> float | None:
        """Seconds that all of the work takes at this pace; None before there is one."""
        if self.share - self.first < _ENOUGH:
            return None
        return (self.latest - self.began) / (self.share - self.first)

    def left(self, now: float) -> float | None:
        total = self.total()
        return None if total is None else max(total * (1 - self.share) - (now - self.latest), 0.0)


def _in_words(advance: Advance) -> str:
    """Say what is done with trials now."""
    counted = advance.kind in ("training", "learning")
    return f"{advance.kind} {100 * advance.share:.0f} %" if counted else advance.kind


def document_of(status: RunStatus) -> dict[str, Any]:
    """Give a run as plain data, for JSON."""
    rows = []
    for (experiment, method), row in status.rows.items():
        missing = [{"trial": trial.seed, "reason": row.reason(trial)} for trial in row.missing]
        about = {"experiment": experiment, "method": method, "wanted": len(row.trials)}
        rows.append(about | {"done": len(row.results), "missing": missing, "metrics": _figures(row)})
    spent = status.clock() - status.began
    return {"rows": rows, "wanted": status.wanted, "done": status.done, "seconds": spent}


def _figures(row: Row) -> dict[str, dict[str, Any]]:
    """Give a row's measures as plain data, the paper's figure in each that it has."""
    out: dict[str, dict[str, Any]] = {}
    for measure in measures_of(row.trials[0].experiment):
        ours, theirs = row.summary(measure), row.published(measure)
        out[measure] = asdict(ours) if ours else {"n": 0}
        if theirs is not None:
            inside = theirs.contains(ours.mean) if ours else None
            out[measure]["published"] = {"mean": theirs.mean, "sd": theirs.sd, "contains_ours": inside}
    return out
