"""The table of `shels reproduce`: in a terminal it stays in place, elsewhere each trial gets a line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from threading import Lock
from typing import TYPE_CHECKING

import typer
from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column
from rich.text import Text

from shels.cli.display import Shown, duration, percent, results, say, table
from shels.detection.measures import MEASURES
from shels.experiments.status import Row, RunStatus, columns_of

if TYPE_CHECKING:
    from rich.table import Table

    from shels.experiments.advances import Advance
    from shels.experiments.trials import Trial, TrialResult

LEGEND = "Percent, mean ± sd over trials."
COUNTED = "Percent, batches and alarms in numbers; mean ± sd over trials."
_MOST_BESIDE = 4  # columns that fit 80 characters with mean and spread beside each other
_TELL = 30.0  # seconds between two lines on how units stand
BESIDE = "Below them the paper's, with ✓ where our mean lies within one sd of theirs."


class LiveTable(Shown):
    """A run of experiments as the user sees it."""

    def __init__(self, status: RunStatus, *, quiet: bool) -> None:
        self.status = status
        self._quiet = quiet
        self._console = results()
        words = TextColumn("{task.description}", markup=False, table_column=Column())
        self._bar = Progress(BarColumn(bar_width=20), words)
        self._task = self._bar.add_task("", total=1.0)
        self._told, self._told_at = "", -_TELL
        self._lock = Lock()  # the table is drawn by a thread of its own, so that its clock never stands still
        if self._console.is_terminal and not quiet:
            self._live = Live(self, console=self._console, transient=True, refresh_per_second=2)

    def update(self, advance: Advance) -> None:
        """Show what the engine yields."""
        with self._lock:
            self.status.update(advance)
        if advance.kind == "note":
            say(f"note: {advance.message}")
        elif advance.kind == "tally":
            self._say_tally()
        elif advance.kind == "failed":
            say(f"failed: {_named(advance.trials)}: {advance.message}")
        elif advance.result is not None and self._live is None and not self._quiet:
            progress = f"{self.status.done}/{self.status.wanted}"
            typer.echo(f"{progress} {trial_line(advance.result)}, {advance.result.seconds:.1f} s")

    def _say_tally(self) -> None:
        """Where nothing is drawn, tell now and then how units stand."""
        now, text = self.status.clock(), str(self.status.tally)
        if self._live is None and not self._quiet and text != self._told and now - self._told_at >= _TELL:
            self._told, self._told_at = text, now
            typer.echo(text)

    def __rich__(self) -> Group:
        """Draw the table and the line below it as of now."""
        with self._lock:
            rows = list(self.status.rows.values())
            lines = 2 if self._console.width >= 100 else 3  # of a row, where "method, state" takes two
            room = self._console.height - 4 - (self.status.tally is not None) - sum(map(_head, _kinds(rows)))
            shown = _most_telling(rows, max(room // lines, 1))
            hidden = len(rows) - len(shown)
            whole = sum(not row.missing for row in rows)
            more = [Text(f"and {hidden} more rows; {whole} of all {len(rows)} are done")] if hidden else []
            more += [Text(str(self.status.tally))] if self.status.tally else []
            self._bar.update(self._task, completed=self.status.share, description=time_line(self.status))
            return Group(*_tables(shown), *more, self._bar)

    def final(self) -> None:
        """Show the table that stays."""
        rows = list(self.status.rows.values())
        for each in _tables(rows):
            self._console.print(each)
        compared = any(row.published(measure) for row in rows for measure in _columns(row))
        counted = any(MEASURES[measure].counts for row in rows for measure in _columns(row))
        legend = COUNTED if counted else LEGEND
        typer.echo(f"{legend} {BESIDE}" if compared else legend)


def _tables(rows: Sequence[Row]) -> list[Table]:
    """Lay rows out as a table for each kind of experiment: our figures so far, and the paper's below them."""
    return [
        table("experiment", "done", *columns, rows=map(_cells, some), numbers=columns)
        for columns, some in _kinds(rows).items()
    ]


def _head(columns: Sequence[str]) -> int:
    """Count the lines that a table needs beside its rows: its headings, a rule, and space around it."""
    return 3 + max(heading.count("\n") + 1 for heading in columns)


def _kinds(rows: Sequence[Row]) -> dict[tuple[str, ...], list[Row]]:
    """Group rows by their columns: detecting novelty and learning are measured otherwise."""
    kinds: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        headings = tuple(name.replace(" ", "\n") for name in _columns(row).values())
        kinds.setdefault(headings, []).append(row)
    return kinds


def _columns(row: Row) -> dict[str, str]:
    return columns_of(row.trials[0].experiment)


def _cells(row: Row) -> list[str]:
    """Write a row: our figures and, where there is room for them, the paper's below."""
    wide = len(_columns(row)) > _MOST_BESIDE
    cells, below = [], ""
    for measure in _columns(row):
        ours, theirs = row.summary(measure), None if wide else row.published(measure)
        cell = _spread(measure, ours.mean, ours.sd, "\n" * wide) if ours else "–"
        if theirs:
            below = "paper"
            mark = "✓" if ours and theirs.contains(ours.mean) else ""
            cell += f"\n{mark}{_spread(measure, theirs.mean, theirs.sd)}"
        cells.append(cell)
    done = f"{len(row.results)}/{len(row.trials)}\n{below}"
    return [f"{row.trials[0].experiment}\n{row.trials[0].method}, {row.state}", done, *cells]


def _spread(measure: str, mean: float, sd: float | None, between: str = "") -> str:
    scale = 1 if MEASURES[measure].counts else 100
    return f"{scale * mean:.1f}" if sd is None else f"{scale * mean:.1f}{between}±{scale * sd:.1f}"


def _most_telling(rows: Sequence[Row], most: int) -> list[Row]:
    """Choose as many rows as fit: those under way first, then failed, begun, waiting; in the old order."""

    def dullness(row: Row) -> int:
        signs = (row.now, row.failed, row.results and row.missing, row.missing)
        return next((place for place, sign in enumerate(signs) if sign), len(signs))

    shown = sorted(range(len(rows)), key=lambda place: dullness(rows[place]))[:most]
    return [rows[place] for place in sorted(shown)]


def _named(trials: Sequence[Trial]) -> str:
    """Write trials in short: within/svhn shels 0-9, within/svhn standard-linear 0-9."""
    rows: dict[tuple[str, str], list[Trial]] = {}
    for trial in trials:
        rows.setdefault((trial.experiment, trial.method), []).append(trial)
    return ", ".join(f"{experiment} {method} {seeds(some)}" for (experiment, method), some in rows.items())


def time_line(status: RunStatus) -> str:
    """Tell how far a run is and how long it may take, in one line."""
    spent = duration(status.clock() - status.began)
    text = f"{status.done} of {status.wanted} trials done, {spent} so far"
    left = status.left()
    if not status.missing:
        return text
    if left.unknown and not left.seconds:
        return f"{text}, time left not known yet"
    if left.unknown:
        return f"{text}, over {duration(left.seconds)} left: nothing is known yet of {left.unknown} trials"
    return f"{text}, about {duration(left.seconds)} left"


def trial_line(result: TrialResult) -> str:
    """Tell what a trial came to, in one line."""
    trial = result.trial
    columns = columns_of(trial.experiment)
    figures = (f"{name} {_figure(measure, result.metrics.get(measure))}" for measure, name in columns.items())
    return f"{trial.experiment} {trial.method} trial {trial.seed}: {', '.join(figures)}"


def _figure(measure: str, value: float | None) -> str:
    return f"{value:.2f}" if MEASURES[measure].counts and value is not None else percent(value)


def missing_lines(status: RunStatus) -> list[str]:
    """Tell how many trials have no result, and which for what reason."""
    if not status.missing:
        return []
    count = f"{len(status.missing)} of {status.wanted} trials have no result"
    lines = [f"error: {count}; the same command tries them again"]
    for (experiment, method), row in status.rows.items():
        for reason in dict.fromkeys(map(row.reason, row.missing)):
            alike = [trial for trial in row.missing if row.reason(trial) == reason]
            lines.append(f"  {experiment} {method}, trial {seeds(alike)}: {reason}")
    return lines


def seeds(trials: Iterable[Trial]) -> str:
    """Write trials of one row by their numbers, runs of them as one: 0-3, 7."""
    numbers = enumerate(sorted(trial.seed for trial in trials))
    texts = []
    for _, run in groupby(numbers, key=lambda pair: pair[1] - pair[0]):  # the same for all of a run
        (_, first), *others = run
        texts.append(f"{first}-{others[-1][1]}" if others else str(first))
    return ", ".join(texts)
