"""Requests that come at the same time judged in one pass: what waits while one runs is the next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
from torch import Tensor

from shels.service import views
from shels.service.jobs import BusyError
from shels.service.owner import Service
from shels.service.snapshot import Snapshot

Answer = tuple[int, list[views.Judged]]
"""The version that judged, and what it said."""
_TOGETHER = 512
"""Samples that are judged in one pass, where they come from several requests."""
_FEW = 8
"""Samples that are judged in the thread of the requests themselves, by a model that is quick."""


class Batcher:
    """Judges for one event loop: few samples in its thread, more in another. most: requests that may wait."""

    def __init__(self, service: Service, most: int) -> None:
        self._service = service
        self._most = most
        self._waiting: list[tuple[Tensor, asyncio.Future[Answer]]] = []
        self._running = False
        self._thread = ThreadPoolExecutor(1, "judging")

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    def check_room(self) -> None:
        """Refuse a request before it is read, where too many wait already."""
        if len(self._waiting) >= self._most:
            raise BusyError(f"{self._most} requests wait to be judged; try again in a moment")

    async def judge(self, inputs: Tensor) -> Answer:
        """Judge inputs by the model in use, together with what others sent meanwhile."""
        self.check_room()
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((inputs, future))
        if not self._running:
            self._running = True
            asyncio.get_running_loop().create_task(self._run())
        return await future

    async def run(self, work: Callable[[], list[views.Judged]]) -> list[views.Judged]:
        """Have something else judged in the same thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """Let the thread end."""
        self._thread.shutdown()

    async def _run(self) -> None:
        try:
            while self._waiting:
                taken = self._take()
                now = self._service.snapshot
                inputs = [each for each, _ in taken]
                try:
                    if now.quick and sum(map(len, inputs)) <= _FEW:
                        found = _judged(now, inputs)
                    else:
                        found = await self.run(partial(_judged, now, inputs))
                except Exception as error:  # noqa: BLE001 - each that waits gets it
                    for _, future in taken:
                        if not future.done():
                            future.set_exception(error)
                    continue
                _give(taken, now.version, found)
        finally:
            self._running = False

    def _take(self) -> list[tuple[Tensor, asyncio.Future[Answer]]]:
        """Take the first that waits, and others of its form as long as they fit."""
        first = self._waiting[0][0]
        taken: list[tuple[Tensor, asyncio.Future[Answer]]] = []
        rest, count = [], 0
        for each in self._waiting:
            alike = each[0].shape[1:] == first.shape[1:] and each[0].dtype == first.dtype
            if not taken or (alike and count + len(each[0]) <= _TOGETHER):
                taken.append(each)
                count += len(each[0])
            else:
                rest.append(each)
        self._waiting = rest
        return taken


def _judged(now: Snapshot, inputs: list[Tensor]) -> list[views.Judged]:
    return now.judge(inputs[0] if len(inputs) == 1 else torch.cat(inputs))


def _give(
    taken: list[tuple[Tensor, asyncio.Future[Answer]]], version: int, found: list[views.Judged]
) -> None:
    end = 0
    for inputs, future in taken:
        start, end = end, end + len(inputs)
        if not future.done():  # whoever asked may be gone
            future.set_result((version, found[start:end]))
