"""The table of `shels reproduce`: in a terminal it stays in place, elsewhere each trial gets a line."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from shels.cli.display import Shown, results, say, share_bar, table
from shels.cli.standing import Row, Standing, columns_of, seeds, time_line, trial_line

if TYPE_CHECKING:
    from rich.table import Table

    from shels.experiments.engine import Advance
    from shels.experiments.trials import Trial

LEGEND = "Percent, mean ± sd over trials."
_MOST_BESIDE = 4  # columns that fit 80 characters with mean and spread beside each other
BESIDE = "Below them the paper's, with ✓ where our mean lies within one sd of theirs."


class Board(Shown):
    """A run of experiments as the user sees it."""

    def __init__(self, standing: Standing, *, quiet: bool) -> None:
        self.standing = standing
        self._quiet = quiet
        self._console = results()
        self._lock = Lock()  # the table is drawn by a thread of its own, so that its clock never stands still
        if self._console.is_terminal and not quiet:
            self._live = Live(self, console=self._console, transient=True, refresh_per_second=2)

    def take(self, advance: Advance) -> None:
        """Show what the engine tells."""
        with self._lock:
            self.standing.take(advance)
        if advance.kind == "failed":
            say(f"failed: {_named(advance.trials)}: {advance.message}")
        elif advance.result is not None and self._live is None and not self._quiet:
            progress = f"{self.standing.done}/{self.standing.wanted}"
            typer.echo(f"{progress} {trial_line(advance.result)}, {advance.result.seconds:.1f} s")

    def __rich__(self) -> Group:
        """Return the table and the line below it as of now."""
        with self._lock:
            rows = list(self.standing.rows.values())
            lines = 2 if self._console.width >= 100 else 3  # of a row, where "method, state" takes two
            room = self._console.height - 4 - sum(map(_head, _kinds(rows)))
            shown = _most_telling(rows, max(room // lines, 1))
            hidden = len(rows) - len(shown)
            whole = sum(not row.missing for row in rows)
            more = [Text(f"and {hidden} more rows; {whole} of all {len(rows)} are done")] if hidden else []
            line = Text(f"{share_bar(self.standing.share, 2)} {time_line(self.standing)}")
            return Group(*standing_tables(shown), *more, line)

    def final(self) -> None:
        """Show the table that stays."""
        rows = list(self.standing.rows.values())
        for each in standing_tables(rows):
            self._console.print(each)
        compared = any(row.published(measure) for row in rows for measure in _columns(row))
        typer.echo(f"{LEGEND} {BESIDE}" if compared else LEGEND)


def standing_tables(rows: Sequence[Row]) -> list[Table]:
    """Return rows as a table for each kind of experiment: our figures so far, and the paper's below them."""
    return [
        table("experiment", "done", *columns, rows=map(_cells, some), numbers=columns)
        for columns, some in _kinds(rows).items()
    ]


def _head(columns: Sequence[str]) -> int:
    """Return how many lines a table needs beside its rows: its headings, a rule, and space around it."""
    return 3 + max(heading.count("\n") + 1 for heading in columns)


def _kinds(rows: Sequence[Row]) -> dict[tuple[str, ...], list[Row]]:
    """Return rows by their columns: detecting novelty and learning are measured otherwise."""
    kinds: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        headings = tuple(name.replace(" ", "\n") for name in _columns(row).values())
        kinds.setdefault(headings, []).append(row)
    return kinds


def _columns(row: Row) -> dict[str, str]:
    return columns_of(row.trials[0].experiment)


def _cells(row: Row) -> list[str]:
    if len(_columns(row)) > _MOST_BESIDE:
        found = [row.summary(measure) for measure in _columns(row)]
        return _row(row, "", [_spread(each.mean, each.sd, "\n") if each else "–" for each in found])
    cells, any_published = [], False
    for measure in _columns(row):
        ours, theirs = row.summary(measure), row.published(measure)
        any_published |= theirs is not None
        mark = "✓" if ours and theirs and theirs.contains(ours.mean) else ""
        below = f"{mark}{_spread(theirs.mean, theirs.sd)}" if theirs else ""
        cells.append(f"{_spread(ours.mean, ours.sd) if ours else '–'}\n{below}")
    return _row(row, "paper" if any_published else "", cells)


def _row(row: Row, below: str, cells: Sequence[str]) -> list[str]:
    done = f"{len(row.results)}/{len(row.trials)}\n{below}"
    return [f"{row.trials[0].experiment}\n{row.trials[0].method}, {row.state}", done, *cells]


def _spread(mean: float, sd: float | None, between: str = "") -> str:
    return f"{100 * mean:.1f}" if sd is None else f"{100 * mean:.1f}{between}±{100 * sd:.1f}"


def _most_telling(rows: Sequence[Row], most: int) -> list[Row]:
    """Return as many rows as fit: those under way first, then failed, begun, waiting; in the old order."""

    def dullness(row: Row) -> int:
        signs = (row.now, row.failed, row.results and row.missing, row.missing)
        return next((place for place, sign in enumerate(signs) if sign), len(signs))

    kept = sorted(range(len(rows)), key=lambda place: dullness(rows[place]))[:most]
    return [rows[place] for place in sorted(kept)]


def _named(trials: Sequence[Trial]) -> str:
    """Return trials in short: within/svhn shels 0-9, within/svhn standard-linear 0-9."""
    rows: dict[tuple[str, str], list[Trial]] = {}
    for trial in trials:
        rows.setdefault((trial.experiment, trial.method), []).append(trial)
    return ", ".join(f"{experiment} {method} {seeds(some)}" for (experiment, method), some in rows.items())
