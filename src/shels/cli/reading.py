"""Image files as commands read them: a bar while they are read, then what was left out, and why."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from shels.cli.display import Shown, listed, messages, say, table

if TYPE_CHECKING:
    from shels.data.manner import ReadingReport, ReadProgress

_LINES = 10
"""Files that are named on the screen; JSON has them all."""
_ROWS = 30
"""Classes up to which all of them stand in the table, else those alone that something was left out of."""


class FileReading(Shown):
    """What reads image files within it does so in this manner; `report` counts what came of it.

    strict: the first file that cannot be read is an error. quiet: show nothing, beside JSON.
    each: shows how far it is, in place of a bar.
    """

    report: ReadingReport

    def __init__(
        self, *, strict: bool, quiet: bool, each: Callable[[ReadProgress], object] | None = None
    ) -> None:
        console = messages()
        self._strict = strict
        self._quiet = quiet
        self._each = each or self._update
        self._said = 0
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=16),
            TextColumn("{task.completed}/{task.total} files"),
            TimeRemainingColumn(),
            console=console,
            disable=quiet or not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("reading", total=None)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        from shels.data.manner import file_reading  # noqa: PLC0415

        self.report = self._stack.enter_context(file_reading(strict=self._strict, each=self._each))
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()
        self._stack.close()

    def _update(self, progress: ReadProgress) -> None:
        if progress.done == 1:
            self._bar.start()
        self._bar.update(self._task, completed=progress.done, total=progress.total)
        if progress.done == progress.total:
            self._bar.stop()

    def show_table(self) -> None:
        """Show what was read and left out of each class, where something was left out, and what was grey."""
        self._say_grey()
        left_out, classes = self.report.left_out, self.report.by_class()
        if self._quiet or not left_out:
            return
        if len(classes) > _ROWS:
            classes = {name: counts for name, counts in classes.items() if counts["left_out"]}
        rows = [(name, counts["read"], counts["left_out"]) for name, counts in classes.items()]
        if rows:
            messages().print(table("class", "read", "left out", rows=rows, numbers=("read", "left out")))
        self.say_new()

    def say_new(self) -> None:
        """Name the files that were left out since this was last asked for."""
        new = self.report.left_out[self._said :]
        self._said = len(self.report.left_out)
        if self._quiet or not new:
            return
        for each in new[:_LINES]:
            say(f"left out: {each.name} {each.reason}")
        if len(new) > _LINES:
            say(f"… and {len(new) - _LINES} more; --json names them all")

    def _say_grey(self) -> None:
        """Say how many images were grey among colour ones, and where that gives a class away."""
        count, classes = self.report.grey.total(), self.report.told_by_colour()
        if self._quiet or not count:
            return
        which = f"{count} of {self.report.read.total()} images are grey, the others in colour"
        say(f"{which}: all are read as RGB (--channels grey makes all of them grey)")
        if classes:
            say(
                f"every image of {listed(classes)} is grey: colour alone would tell it from the others; "
                "--channels grey leaves only what is shown"
            )

    def result(self) -> dict[str, Any] | None:
        """Return the report for JSON; None where no files were read."""
        return self.report.plain() if self.report.read or self.report.left_out else None


def in_words(files: dict[str, Any]) -> str:
    """Say in a line what was read and left out.

    >>> in_words({"read": 9, "left_out": [{}], "other_files": {".txt": 2}, "seconds": 1.5})
    '9 read in 1.5 seconds, 1 left out; passed over, as no images: 2 .txt'
    """
    left_out = f", {len(files['left_out'])} left out" * bool(files["left_out"])
    others = listed(f"{count} {suffix}" for suffix, count in files["other_files"].items())
    passed = f"; passed over, as no images: {others}" * bool(others)
    return f"{files['read']} read in {files['seconds']:.1f} seconds{left_out}{passed}"
