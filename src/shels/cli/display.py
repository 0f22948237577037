"""What the user sees: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

import typer
from rich import box
from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from shels import training
    from shels.data.manner import ReadProgress

Value = TypeVar("Value")
Document: TypeAlias = dict[str, Any]

_WIDE = 160  # columns where there is no terminal, so that no name is broken in a pipe or a file


def results() -> Console:
    """Make the console for results: standard output, nothing in them taken for markup."""
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _WIDE
    return console


def messages() -> Console:
    """Make the console for progress, notes and errors: standard error."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def say(text: str) -> None:
    """Write a line to standard error."""
    typer.echo(text, err=True)


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document; a number that is not finite becomes null, a byte that is no text an escape."""
    text = json.dumps(plain(document), indent=1, ensure_ascii=False, allow_nan=False)
    typer.echo(text.encode(errors="backslashreplace").decode())


def print_result(result: Document, show: Callable[[Document], None], *, as_json: bool) -> None:
    """Print what a command came to: as one JSON document, or as its own function shows it to people."""
    if as_json:
        print_json(result)
    else:
        show(result)


def plain(value: Any) -> Any:
    """Make of a value what JSON can hold."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # arrays and their numbers
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)


def print_facts(facts: Mapping[str, object]) -> None:
    """Print what came out, one fact a line under a short name."""
    for name, text in facts.items():
        typer.echo(f"{name:<13}{text}")


def table(
    *headings: str, rows: Iterable[Sequence[object]], numbers: Sequence[str] = (), names: Sequence[str] = ()
) -> Table:
    """Lay out a table; columns under `numbers` are set to the right, those under `names` never broken."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        right, whole = heading in numbers, heading in (*numbers, *names)
        made.add_column(heading, justify="right" if right else "left", no_wrap=whole, overflow="fold")
    for row in rows:
        made.add_row(*(str(cell) for cell in row))
    return made


def print_table(
    *headings: str, rows: Iterable[Sequence[object]], numbers: Sequence[str] = (), names: Sequence[str] = ()
) -> None:
    """Print a table as `table` lays it out."""
    results().print(table(*headings, rows=rows, numbers=numbers, names=names))


def percent(share: float | None) -> str:
    """Write a fraction as a percentage; what is missing is a dash.

    >>> percent(0.953), percent(None)
    ('95.3 %', '–')
    """
    return "–" if share is None or not math.isfinite(share) else f"{100 * share:.1f} %"


def duration(seconds: float) -> str:
    """Write a time as people say it.

    >>> duration(42), duration(185), duration(7800)
    ('42 s', '3 min 05 s', '2 h 10 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def listed(names: Iterable[object], most: int = 12) -> str:
    """Write names with commas between, cut after some.

    >>> listed("abcd", most=2)
    'a, b, … (4 in all)'
    """
    all_names = [str(name) for name in names]
    more = f", … ({len(all_names)} in all)" if len(all_names) > most else ""
    return ", ".join(all_names[:most]) + more


class Shown:
    """Something that is on the screen while work goes on, where there is a terminal."""

    _live: Live | Progress | None = None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Take it away, so that something else can be said or asked; a stream's next foot brings it back."""
        if self._live is not None:
            self._live.stop()


class TrainingBar(Shown):
    """A training's progress: a bar in a terminal; ten lines in a log, and none beside JSON."""

    def __init__(self, label: str, *, quiet: bool, faster: str = "") -> None:
        """Show a training. faster: what would take less time, said where it takes long."""
        console = messages()
        self._lines = not console.is_terminal and not quiet
        self._quiet, self._faster = quiet, faster
        self._first: tuple[int, float] | None = None
        self._estimated = False
        self._tenth = 0
        self._stage = ""
        self._live = self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=16),
            TextColumn("{task.fields[step]}"),
            TextColumn("{task.fields[accuracy]}"),
            TimeRemainingColumn(),
            TextColumn("left at most"),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task(label, total=None, step="starting", accuracy="")

    def follow(self, work: Generator[training.Progress, None, Value]) -> Value:
        """Run a generator of progress to its end, show how far it is, and return what it returns."""
        from shels.runtime import finished  # noqa: PLC0415

        return finished(work, each=self._show)

    def show_reading(self, progress: ReadProgress) -> None:
        """Show how many files have been read, before a training."""
        files = f"{progress.done}/{progress.total} files"
        self._bar.update(self._task, description="reading", step=files)
        self._bar.update(self._task, completed=progress.done, total=progress.total)

    def _show(self, progress: training.Progress) -> None:
        if progress.resumed:
            say(f"resuming from step {progress.step}")
        if progress.stage != "training":
            self._show_stage(progress)
            return
        self._estimate(progress)
        accuracy = progress.check.validation_accuracy if progress.check else None
        self._bar.update(self._task, completed=progress.step, total=progress.steps)
        self._bar.update(self._task, step=f"step {progress.step}/{progress.steps}")
        if accuracy is not None:
            self._bar.update(self._task, accuracy=f"validation {percent(accuracy)}")
            before, self._tenth = self._tenth, 10 * progress.step // max(progress.steps, 1)
            if self._lines and self._tenth != before:
                say(f"step {progress.step}/{progress.steps}, validation accuracy {percent(accuracy)}")

    def _show_stage(self, progress: training.Progress) -> None:
        """Show work before or after the training's steps, counted where it has several."""
        counted = progress.step < progress.steps
        step = f"{progress.step}/{progress.steps}" if counted else ""
        total = progress.steps if counted else None
        self._bar.update(self._task, description=progress.stage, total=total, step=step, accuracy="")
        self._bar.update(self._task, completed=progress.step if counted else 0)
        if self._lines and progress.stage != self._stage:
            say(progress.stage)
        self._stage = progress.stage

    def _estimate(self, progress: training.Progress) -> None:
        """Say once how long it will take, by the first steps, where that is half a minute or more."""
        if self._first is None:
            self._first = progress.step, time.monotonic()
        taken = progress.step - self._first[0]
        if self._estimated or self._quiet or taken < 5:
            return
        self._estimated = True
        left = (time.monotonic() - self._first[1]) / taken * (progress.steps - progress.step)
        if left >= 30:
            also = f"; {self._faster}" if self._faster else ""
            say(f"about {_rough(left)} left at most, by the first {progress.step} steps{also}")


def _rough(seconds: float) -> str:
    """Write a duration as a person would.

    >>> _rough(34), _rough(150), _rough(7000)
    ('35 seconds', '3 minutes', '1.9 hours')
    """
    if seconds < 90:
        return f"{5 * math.ceil(seconds / 5)} seconds"
    return f"{math.ceil(seconds / 60)} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


class DownloadBar(Shown):
    """A bar for each file that comes in."""

    def __init__(self) -> None:
        name, console = TextColumn("{task.description}", markup=False), messages()
        columns = (name, BarColumn(), DownloadColumn(), TimeRemainingColumn())
        self._live = self._bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self._tasks: dict[str, Any] = {}

    def __call__(self, name: str, so_far: int, total: int) -> None:
        """Show how much of a file has come."""
        if name not in self._tasks:
            self._tasks[name] = self._bar.add_task(name)
        self._bar.update(self._tasks[name], completed=so_far, total=total or None)


class CountingBar(Shown):
    """A bar of things done out of so many, in a terminal."""

    def __init__(self, label: str, *, quiet: bool) -> None:
        console = messages()
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn())
        hidden = quiet or not console.is_terminal
        self._live = self._bar = Progress(*columns, console=console, disable=hidden, transient=True)
        self._task = self._bar.add_task(label, total=None)

    def __call__(self, done: int, total: int) -> None:
        """Show how many are done."""
        self._bar.update(self._task, completed=done, total=total)


class StreamDisplay(Shown):
    """A stream under way: a line for each batch and, in a terminal, a foot with what is known by now."""

    _live: Live | None = None

    def __init__(self, title: str, *, quiet: bool) -> None:
        self._console = results()
        self._title = title
        self._quiet = quiet
        if self._console.is_terminal and not quiet:
            self._live = Live(console=self._console, transient=True, refresh_per_second=8)

    def line(self, text: str, *, stands_out: bool = False) -> None:
        """Show a line that stays."""
        if self._live is not None:
            self._console.print(Text(text, style="bold" if stands_out else ""))
        elif not self._quiet:
            typer.echo(text)

    def foot(self, text: str) -> None:
        """Show what is known by now, and what goes on."""
        if self._live is not None:
            self._live.update(Panel(Text(text), title=Text(self._title), title_align="left", box=box.ROUNDED))
            self._live.start()


def share_bar(share: float, threshold: float, width: int = 20) -> str:
    """Draw a share as a bar with a mark where an alarm begins; none where nothing can raise one."""
    filled = round(share * width)
    cells = ["█"] * filled + ["░"] * (width - filled)
    if threshold <= 1:
        cells[min(int(threshold * width), width - 1)] = "┃"
    return "".join(cells)
