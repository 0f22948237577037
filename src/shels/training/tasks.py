"""Work that reports on its way, as a loop over its reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Event, Thread
from typing import TypeVar

Report = TypeVar("Report")


class _StoppedError(Exception):
    """Nobody waits for the work any more."""


def following(work: Callable[[Callable[[Report], None]], object]) -> Iterator[Report]:
    """Give what `work(tell)` tells while it runs, and raise what it raises; at the end it is finished.

    Where the loop is left early, `tell` raises in the work, so that it stops at its next report.
    """
    stop = Event()
    queue: SimpleQueue[tuple[str, Report | BaseException | None]] = SimpleQueue()

    def tell(report: Report) -> None:
        if stop.is_set():
            raise _StoppedError
        queue.put(("report", report))

    def run() -> None:
        try:
            work(tell)
        except BaseException as error:  # noqa: BLE001 - raised again where the work was asked for
            queue.put(("error", error))
        else:
            queue.put(("end", None))

    thread = Thread(target=run, daemon=True)
    thread.start()
    try:
        while True:
            kind, value = queue.get()
            if kind == "error" and isinstance(value, BaseException):
                try:
                    raise value
                finally:
                    del value  # or error and frame keep each other, and all that the work held
            if kind == "end":
                return
            yield value  # type: ignore[misc]
    finally:
        stop.set()
        thread.join()  # also where the loop is left early: nothing goes on behind the caller's back
