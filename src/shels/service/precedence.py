"""Verdicts go before work: a thread that learns stands back while requests are answered.

An interpreter runs one thread at a time, and does not know which of them somebody waits for. A request gives
the interpreter up a few times, whenever it reads or writes; a thread that learns takes it then, and whoever
waits for a verdict waits for that thread too. So such a thread looks, between any two functions that it
calls, whether a request is under way, and sleeps until there is none.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_AT_MOST, _TURN = 0.004, 0.001
"""Seconds that work waits where requests never end, and how long it then goes on: a fifth of the time."""


class Precedence:
    """Which requests are under way, and what waits for them. One thread answers, any number work."""

    def __init__(self) -> None:
        self.under_way = 0
        self._none = threading.Event()
        self._none.set()

    def begin(self) -> None:
        """Say that a request is to be answered."""
        self.under_way += 1
        if self.under_way == 1:
            self._none.clear()

    def end(self) -> None:
        """Say that it is."""
        self.under_way -= 1
        if not self.under_way:
            self._none.set()

    @contextmanager
    def standing_back(self) -> Iterator[None]:
        """Have this thread wait, in whatever it calls meanwhile, as long as a request is under way."""
        before = sys.getprofile()
        sys.setprofile(self._look())
        try:
            yield
        finally:
            sys.setprofile(before)

    def _look(self) -> Any:
        until = 0.0

        def look(frame: FrameType, event: str, what: object) -> None:
            del frame, event, what
            nonlocal until
            if not self.under_way or time.perf_counter() < until:
                return
            if not self._none.wait(_AT_MOST):
                until = time.perf_counter() + _TURN

        return look
