"""Changes one after another in a thread of their own, with progress, so that judging never waits for them."""

from __future__ import annotations

import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from shels.errors import SettingsError, ShelsError
from shels.service import views
from shels.training import Progress

Work = Generator[Progress, None, views.Done]
_KEPT = 200
MOST_WAITING = 32
"""Changes that may wait for their turn; more are refused."""


class BusyError(ShelsError):
    """Too much waits already."""


class CancelledError(ShelsError):
    """A person cancelled it; nothing was changed."""


@dataclass
class _Job:
    id: int
    what: str
    by: str
    work: Callable[[], Work]
    future: Future[views.Done] = field(default_factory=Future)
    state: str = "waiting"
    progress: float = 0.0
    stage: str = ""
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None
    cancel: threading.Event = field(default_factory=threading.Event)
    error: str | None = None


class Jobs:
    """The queue of changes. around: what each of them is made in."""

    def __init__(self, around: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._around = around
        self._queue: queue.Queue[_Job | None] = queue.Queue(MOST_WAITING)
        self._jobs: OrderedDict[int, _Job] = OrderedDict()
        self._last = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="changes", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Cancel what is under way and wait until it has ended."""
        for job in list(self._jobs.values()):
            job.cancel.set()
        self._queue.put(None)
        self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether changes can be made."""
        return self._thread.is_alive()

    @property
    def waiting(self) -> int:
        """How many changes wait or are under way."""
        return sum(job.state in ("waiting", "running") for job in list(self._jobs.values()))

    def submit(self, what: str, by: str, work: Callable[[], Work]) -> tuple[int, Future[views.Done]]:
        """Have a change made when its turn comes."""
        with self._lock:
            job = _Job(self._last + 1, what, by, work)
            try:
                self._queue.put_nowait(job)
            except queue.Full as error:
                raise BusyError(f"{MOST_WAITING} changes wait already; try again in a moment") from error
            self._last += 1
            self._jobs[job.id] = job
            while len(self._jobs) > _KEPT:
                self._jobs.popitem(last=False)
        return job.id, job.future

    def view(self, number: int) -> views.Job:
        """Show a job."""
        return _view(self._job(number))

    def shown(self) -> list[views.Job]:
        """Show what waits, what is under way and what ended lately, the newest first."""
        return [_view(job) for job in reversed(list(self._jobs.values()))]

    def cancel(self, number: int) -> views.Job:
        """Have a job given up; one that has ended stays as it is."""
        job = self._job(number)
        job.cancel.set()
        return _view(job)

    def _job(self, number: int) -> _Job:
        if number not in self._jobs:
            raise SettingsError(f"unknown job {number}; it may have ended long ago: see the history")
        return self._jobs[number]

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            self._do(job)

    def _do(self, job: _Job) -> None:
        job.state, job.began = "running", time.monotonic()
        try:
            with self._around():
                done = _followed(job)
        except BaseException as error:  # noqa: BLE001 - whoever waits for it gets it, whatever it is
            job.state = "cancelled" if isinstance(error, CancelledError) else "failed"
            job.error, job.ended = str(error) or type(error).__name__, time.monotonic()
            job.future.set_exception(error)
            return
        job.state, job.progress, job.ended = "done", 1.0, time.monotonic()
        job.future.set_result(done)


def _followed(job: _Job) -> views.Done:
    """Take a change to its end, unless it is cancelled on the way."""
    if job.cancel.is_set():
        raise CancelledError(f"{job.what} was cancelled; nothing was changed")
    work: Generator[Any, None, views.Done] = job.work()
    while True:
        try:
            step = next(work)
        except StopIteration as end:
            done: views.Done = end.value
            return done
        job.stage = step.stage
        job.progress = step.step / step.steps if step.steps else 0.0
        if job.cancel.is_set():
            work.close()
            raise CancelledError(f"{job.what} was cancelled; nothing was changed")


def _view(job: _Job) -> views.Job:
    ended = time.monotonic() if job.ended is None else job.ended
    done = job.future.result() if job.state == "done" else None
    spent = round(ended - job.began, 3)
    return views.Job(job.id, job.what, job.by, job.state, job.progress, job.stage, spent, done, job.error)
