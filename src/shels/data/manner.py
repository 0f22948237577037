"""How files are read while it lasts: what stops it, who is told how far it is, what is counted and said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shels.data.finding import LeftOut
from shels.data.samples import Label


class ReadProgress(NamedTuple):
    """How many of the files have been read."""

    done: int
    total: int


@dataclass
class ReadingReport:
    """What was read and what was left out, and why, of all files while it lasts; see `file_reading`.

    read: how many files, by class, None where classes are unknown. grey: how many of them were grey among
    colour ones, which all became RGB. others: files that are no images, by suffix.
    """

    read: Counter[Label | None] = field(default_factory=Counter)
    grey: Counter[Label | None] = field(default_factory=Counter)
    left_out: list[LeftOut] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def by_class(self) -> dict[str, dict[str, int]]:
        """Count what was read and left out in each class, in order of their names."""
        out = Counter(each.label for each in self.left_out)
        names = sorted({name for name in (*self.read, *out) if name is not None}, key=str)
        return {str(name): {"read": self.read[name], "left_out": out[name]} for name in names}

    def told_by_colour(self) -> list[str]:
        """Name the classes of which every image is grey, where those of other classes are not.

        A model would learn that they are grey, whatever they show.
        """
        all_grey = [
            name for name, count in self.grey.items() if name is not None and count == self.read[name]
        ]
        return sorted(map(str, all_grey))

    def plain(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        left_out = [{"file": each.name, "class": each.label, "reason": each.reason} for each in self.left_out]
        return {
            "read": self.read.total(),
            "grey_among_colour": self.grey.total(),
            "left_out": left_out,
            "classes": self.by_class(),
            "other_files": dict(sorted(self.others.items())),
            "seconds": self.seconds,
        }


@dataclass(frozen=True)
class Manner:
    """How files are read: whether the first bad one stops it, who is told how far it is, who counts."""

    strict: bool = False
    each: Callable[[ReadProgress], object] | None = None
    report: ReadingReport | None = None


_USUAL = Manner()
_manner: ContextVar[Manner] = ContextVar("manner of reading", default=_USUAL)


def current_manner() -> Manner:
    """Return how files are read now."""
    return _manner.get()


@contextmanager
def file_reading(
    *, strict: bool = False, each: Callable[[ReadProgress], object] | None = None
) -> Iterator[ReadingReport]:
    """Read files in this manner while it lasts, whoever reads them, and count what was read and left out.

    strict: the first file that cannot be read is an error. Otherwise it is left out, and the report has it;
    without a report a warning names it. each: is called with how far it is.

    >>> from shels.data.own import read_images
    >>> with file_reading(strict=True) as report:
    ...     read_images(["none.png"])
    Traceback (most recent call last):
    shels.errors.MissingDataError: none.png is not there
    """
    report = ReadingReport()
    token = _manner.set(Manner(strict, each, report))
    try:
        yield report
    finally:
        _manner.reset(token)
