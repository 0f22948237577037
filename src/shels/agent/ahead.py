"""Batches that are read and looked at before the agent comes to them; it alone decides, one after the other.

What a network makes of a batch does not depend on other batches. So others may compute it, several batches at
a time, while the agent decides or learns. What was made by a network that is no longer the agent's is made
again; events are those of a run that looks at each batch when it comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import NamedTuple, Protocol, TypeVar

from shels.data.streams import StreamBatch
from shels.learner.learner import Learner
from shels.model.networks import Network, Views

Note = TypeVar("Note")

_WAITING = 4
"""Batches that are read ahead, beside one for each looker."""


class Lookers(Protocol):
    """Who takes batches through a learner's network."""

    @property
    def count(self) -> int:
        """How many batches they look at, at the same time."""

    def submit(self, learner: Learner, batch: StreamBatch) -> Callable[[], Views]:
        """Have a batch looked at; the answer waits until that is done."""

    def close(self) -> None:
        """Stop, and forget what was not asked for."""


class Threads:
    """One thread of this process: the network itself takes the cores that there are."""

    count = 1

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(self.count, thread_name_prefix="looking")

    def submit(self, learner: Learner, batch: StreamBatch) -> Callable[[], Views]:
        """Have a batch looked at; the answer waits until that is done."""
        return self._pool.submit(learner.views, batch.inputs).result

    def close(self) -> None:
        """Stop, and forget what was not asked for."""
        self._pool.shutdown(cancel_futures=True)


class _Looked(NamedTuple):
    """By which network a batch is looked at, and what waits for the answer."""

    network: Network
    answer: Callable[[], Views]


class Ahead:
    """Reads batches ahead and has them looked at by the learner of the moment. learner: gives that."""

    def __init__(self, learner: Callable[[], Learner], lookers: Lookers) -> None:
        self._learner = learner
        self._lookers = lookers
        self._looked: dict[int, _Looked] = {}

    def read(
        self, found: Iterator[tuple[StreamBatch, Note | None]]
    ) -> Generator[tuple[StreamBatch, Note | None], None, None]:
        """Give batches in order, some read ahead; those without a note are looked at."""
        reader = ThreadPoolExecutor(1, thread_name_prefix="reading")
        waiting: deque[Future[tuple[StreamBatch, Note | None] | None]] = deque()
        try:
            for _ in range(_WAITING + self._lookers.count):
                waiting.append(reader.submit(copy_context().run, self._next, found))
            while (each := waiting.popleft().result()) is not None:
                yield each
                self._looked.pop(id(each[0]), None)
                waiting.append(reader.submit(copy_context().run, self._next, found))
        finally:
            reader.shutdown(cancel_futures=True)
            self._lookers.close()

    def look(self, learner: Learner, batch: StreamBatch) -> Views:
        """Return what a learner's network makes of a batch, made ahead where it was by that network."""
        looked = self._looked.pop(id(batch), None)
        if looked is None or looked.network is not learner.network:
            return learner.views(batch.inputs)
        return looked.answer()

    def _next(
        self, found: Iterator[tuple[StreamBatch, Note | None]]
    ) -> tuple[StreamBatch, Note | None] | None:
        """Read one more batch; what is wrong with it is said when the agent comes to it."""
        each = next(found, None)
        if each is not None and each[1] is None:
            learner = self._learner()
            answer = self._lookers.submit(learner, each[0])
            self._looked[id(each[0])] = _Looked(learner.network, answer)
        return each
