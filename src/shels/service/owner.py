"""The one that owns a home: judging reads a snapshot, changes make the next one and put it in its place.

Nothing here knows of HTTP. Whatever a page or a client may want to see or do is a method of `Service`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread

from torch import Tensor

from shels.agent.history import Change
from shels.agent.home import Home
from shels.agent.workbench import Outcome, Workbench
from shels.errors import ModelFileError
from shels.learner.rule import held_out_false_alarms
from shels.service import views
from shels.service.grouping import Grouper
from shels.service.jobs import Jobs
from shels.service.memory import give_back
from shels.service.notes import collected
from shels.service.precedence import Precedence
from shels.service.showing import Showing, change_view
from shels.service.snapshot import Snapshot
from shels.training import Progress

_LOG = logging.getLogger("shels.service")


class Service(Showing):
    """A home in use. Make one by `opened`; judging may be asked from any thread."""

    def __init__(self, workbench: Workbench) -> None:
        super().__init__(workbench)
        self.precedence = Precedence()
        self.jobs = Jobs(self.precedence.standing_back)
        self._stale = True
        self._regrouping = False
        self._closing = Event()
        self._grouping = Thread(target=self._group, name="grouping", daemon=True)

    def judge(self, inputs: Tensor) -> list[views.Judged]:
        """Judge inputs by the model in use; nothing is kept of them."""
        return self.snapshot.judge(inputs)

    def observe(
        self, inputs: Tensor, key: str | None = None, by: str = "stream"
    ) -> tuple[views.Observation, list[views.Judged]]:
        """Judge inputs, count them and keep those that are novel; on disk when this returns."""
        now = self.snapshot
        features = now.learner.views(inputs)
        verdicts = now.learner.judge_features(features)
        seen = self.bench.intake.observe(now.learner, inputs, features, verdicts, key=key, by=by)
        judged, recent = now.said(verdicts), self.bench.intake.recent()
        if not seen.repeated:
            self.strip.add(inputs, judged, seen.numbers)
            self._stale = self._stale or bool(seen.novel)
        said = views.Observation(
            seen.place, seen.size, seen.novel, seen.repeated, recent.share, recent.threshold, recent.alarm
        )
        return said, judged

    # Changes: each a job, answered by what it did -----------------------------------------------------------

    def name_group(
        self, group: str, name: str, by: str, images: Sequence[int] | None = None
    ) -> tuple[int, Future[views.Done]]:
        """Learn a group as a class, new or known."""
        return self._submit(f"learn {name}", by, lambda: self.bench.naming(group, name, by, images))

    def not_novel(
        self, group: str, by: str, images: Sequence[int] | None = None
    ) -> tuple[int, Future[views.Done]]:
        """Say that images are of known classes: the thresholds are set with them anew."""
        return self._at_once("not novel", by, lambda: self.bench.not_novel(group, by, images))

    def dismiss(
        self, group: str, by: str, images: Sequence[int] | None = None
    ) -> tuple[int, Future[views.Done]]:
        """Say that images are rubbish."""
        return self._at_once("rubbish", by, lambda: self.bench.dismiss(group, by, images))

    def split_group(
        self, group: str, by: str, images: Sequence[int] | None = None
    ) -> tuple[int, Future[views.Done]]:
        """Divide a group: the given images and the rest, or where it divides best."""
        return self._at_once(f"split {group}", by, lambda: self.bench.split_group(group, by, images))

    def merge_groups(self, group: str, into: str, by: str) -> tuple[int, Future[views.Done]]:
        """Put a group's images into another group."""
        return self._at_once(f"merge {group}", by, lambda: self.bench.merge_groups(group, into, by))

    def rename_class(self, name: str, to: str, by: str) -> tuple[int, Future[views.Done]]:
        """Give a class another name."""
        return self._at_once(f"rename {name}", by, lambda: self.bench.rename(name, to, by))

    def merge_classes(self, name: str, into: str, by: str) -> tuple[int, Future[views.Done]]:
        """Declare a class to be another."""
        return self._at_once(f"merge {name}", by, lambda: self.bench.merge(name, into, by))

    def split_class(self, name: str, by: str) -> tuple[int, Future[views.Done]]:
        """Divide a class with a provisional name."""
        return self._at_once(f"split {name}", by, lambda: self.bench.split(name, by))

    def unlearn(self, name: str, by: str) -> tuple[int, Future[views.Done]]:
        """Forget a class."""
        return self._at_once(f"unlearn {name}", by, lambda: self.bench.unlearn(name, by))

    def set_rule(self, accept: float, by: str) -> tuple[int, Future[views.Done]]:
        """Accept another share of known samples."""
        return self._at_once("rule", by, lambda: self.bench.set_accept_share(accept, by))

    def rollback(self, version: int, by: str) -> tuple[int, Future[views.Done]]:
        """Make an earlier version the one in use."""
        return self._at_once(f"version {version}", by, lambda: self.bench.rollback(version, by))

    def undo(self, change: int, by: str) -> tuple[int, Future[views.Done]]:
        """Take a change back."""
        return self._at_once("undo", by, lambda: self.bench.undo(change, by))

    def _at_once(
        self, what: str, by: str, change: Callable[[], Outcome | Change]
    ) -> tuple[int, Future[views.Done]]:
        def work() -> Generator[Progress, None, Outcome | Change]:
            yield from ()
            return change()

        return self._submit(what, by, work)

    def _submit(
        self, what: str, by: str, work: Callable[[], Generator[Progress, None, Outcome | Change]]
    ) -> tuple[int, Future[views.Done]]:
        def whole() -> Generator[Progress, None, views.Done]:
            began = time.perf_counter()
            with collected() as notes:
                found = yield from work()
                self._swap()
            return self._done(found, time.perf_counter() - began, notes)

        return self.jobs.submit(what, by, whole)

    def _swap(self) -> None:
        """Put the model that a change has made in use, once it is warm."""
        self._stale = True
        if self.bench.learner is not self.snapshot.learner:
            self.snapshot = Snapshot.of(self.bench.learner, self.bench.home.version)
            give_back()

    def _done(self, found: Outcome | Change, seconds: float, notes: list[str]) -> views.Done:
        rate = held_out_false_alarms(self.learner)
        change, before, after = (found, rate, rate) if isinstance(found, Change) else _parts(found)
        names = list(self.snapshot.names)
        words = f"{change.words}; {1000 * seconds:.0f} ms, false alarms {before:.1%} → {after:.1%}"
        return views.Done(change_view(change), round(seconds, 4), before, after, names, words, notes)

    def start(self) -> None:
        """Let changes be made, and group what is novel."""
        self.bench.intake.warm_up()
        self.jobs.start()
        self._grouping.start()

    def close(self) -> None:
        """End what runs beside, and let go of the index."""
        self._closing.set()
        self.jobs.close()
        self._grouping.join()
        self.bench.index.close()

    def _group(self) -> None:
        """Group what is novel anew where something came, a fifth of the time at most."""
        pause = 0.25
        while not self._closing.wait(pause):
            began = time.monotonic()
            if self._stale:
                self._regroup()
            pause = max(0.25, 4 * (time.monotonic() - began))

    @property
    def is_grouped(self) -> bool:
        """Whether all that came in is grouped, so that groups stay as they are until more comes."""
        return not (self._stale or self._regrouping)

    def _regroup(self) -> None:
        self._regrouping = True  # before it is told that nothing is stale
        self._stale = False
        try:
            with self.precedence.standing_back():
                self.bench.regroup()
        except ModelFileError as error:  # the disk is full: what waits is grouped when there is room again
            _LOG.warning("groups cannot be written: %s", error)
            self._stale = True
        finally:
            self._regrouping = False


@contextmanager
def opened(directory: Path, device: str = "auto", *, apart: bool = True) -> Iterator[Service]:
    """Open a home to serve it; another process that uses the same one is kept out meanwhile.

    A plain model becomes a home, as by `shels run`. apart: whether novel images are told apart in a process
    of its own.
    """
    home = Home(directory)
    with ExitStack() as stack:
        stack.enter_context(home.lock())
        grouper = Grouper()
        service = Service(Workbench(home, device, separating=grouper))
        if apart:
            grouper.start()
            stack.callback(grouper.close)
        service.start()
        stack.callback(service.close)
        yield service


def _parts(outcome: Outcome) -> tuple[Change, float, float]:
    return outcome.change, outcome.false_alarms_before, outcome.false_alarms_after
