"""Devices and random draws, chosen here and nowhere else; and how work that reports on its way is run."""

from __future__ import annotations

import hashlib
import numbers
import platform
import secrets
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import wraps
from itertools import islice
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np
import torch

from shels.errors import SettingsError

Arguments = ParamSpec("Arguments")
Other = TypeVar("Other")
Report = TypeVar("Report")
Value = TypeVar("Value")

_SEEDS = 2**63
"""Seeds are under it: a saved model holds no larger one."""


def device(name: str | torch.device = "auto") -> torch.device:
    """Return the device to compute on; "auto" takes a CUDA GPU where there is one."""
    if isinstance(name, torch.device):
        return name
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(name)
    except (RuntimeError, TypeError):
        chosen = torch.device("meta")
    if chosen.type not in ("cpu", "cuda"):
        raise SettingsError(f'device must be "auto", "cpu" or "cuda", got {name!r}')
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise SettingsError(
            f'device {name!r} was asked for, but no CUDA GPU is usable here; use "auto" or "cpu"'
        )
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise SettingsError(
            f"device {name!r} was asked for, but there are {torch.cuda.device_count()} GPUs here"
        )
    return chosen


def device_name(place: torch.device) -> str:
    """Name a device as the record of a trial does: a GPU's model, or the CPU and its threads."""
    if place.type == "cuda":
        return torch.cuda.get_device_name(place)
    threads = torch.get_num_threads()
    return f"{platform.processor() or platform.machine()} CPU, {threads} thread{'s' * (threads > 1)}"


def derived_seed(seed: int, *purpose: object) -> int:
    """Return a seed of its own for one purpose, so that a new draw never shifts the others.

    >>> derived_seed(7, "batches", 0) == derived_seed(7, "batches", 0) != derived_seed(7, "batches", 1)
    True
    """
    text = repr((int(seed), *map(str, purpose)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Compute with so many threads inside; None leaves their number as it is.

    Threads that share little work wait for each other most of the time, and burn what others could use: on
    two busy cores a step on a few hundred vectors takes 20 times longer with two threads than with one.
    """
    before = torch.get_num_threads()
    if count is None or count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def generator(seed: int, *purpose: object) -> torch.Generator:
    """Return a CPU generator for one purpose: `generator(7, "batches", epoch)`.

    Draws are made on the CPU and moved, so a run sees the same numbers on every device.
    """
    return torch.Generator().manual_seed(derived_seed(seed, *purpose))


def seed_from(random_state: int | np.random.RandomState | None) -> int:
    """Return a seed from what scikit-learn calls a random state; None draws one that nobody chose."""
    if random_state is None:
        return secrets.randbelow(2**31)
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if _is_seed(random_state):
        return int(random_state)
    raise SettingsError(
        "random_state must be None, a RandomState or an int of 0 or more and under 2**63, got "
        f"{random_state!r}"
    )


def check_seed(seed: object) -> None:
    """Raise unless a seed is one that a saved model may have, before anything is trained with it.

    >>> check_seed(-1)
    Traceback (most recent call last):
    shels.errors.SettingsError: seed must be a whole number, 0 or more and under 2**63, got -1
    """
    if not _is_seed(seed):
        raise SettingsError(f"seed must be a whole number, 0 or more and under 2**63, got {seed!r}")


def _is_seed(value: object) -> bool:
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return whole and 0 <= int(value) < _SEEDS  # type: ignore[call-overload]


def row_parts(rows: torch.Tensor, at_once: int) -> tuple[torch.Tensor, ...]:
    """Split rows, so that no more than so many are worked on at once.

    In an exported graph, which is made for any number of rows, all of them are one part.

    >>> [len(part) for part in row_parts(torch.zeros(5, 3), at_once=2)]
    [2, 2, 1]
    """
    return (rows,) if exporting() else torch.split(rows, at_once)


def exporting() -> bool:
    """Tell whether what is computed now is being written down as a graph, for inputs of any number."""
    return torch.compiler.is_compiling()


def lone(rows: torch.Tensor) -> bool:
    """Tell whether it is a single row on the CPU, which may then be looked up without a batch of its like.

    >>> lone(torch.zeros(1, 3)), lone(torch.zeros(2, 3))
    (True, False)
    """
    return not exporting() and rows.shape[0] == 1 and not rows.is_cuda


class _Followed(Generic[Report, Value]):
    """A generator to loop over; `value` is what it returned."""

    value: Value

    def __init__(self, work: Generator[Report, None, Value]) -> None:
        self._work = work

    def __iter__(self) -> Iterator[Report]:
        self.value = yield from self._work


def finished(work: Generator[Report, None, Value], each: Callable[[Report], object] | None = None) -> Value:
    """Run a generator to its end and give what it returns. each: is called with all that it yields.

    >>> def counting():
    ...     yield "half"
    ...     return 2
    >>> finished(counting(), each=print)
    half
    2
    """
    followed = _Followed(work)
    for report in followed:
        if each is not None:
            each(report)
    return followed.value


def to_end(function: Callable[Arguments, Generator[Any, None, Value]]) -> Callable[Arguments, Value]:
    """Return what runs a generator function to its end and gives what it returns.

    >>> def counting(most):
    ...     yield from range(most)
    ...     return f"{most} in all"
    >>> to_end(counting)(3)
    '3 in all'
    """

    @wraps(function)
    def run(*given: Arguments.args, **named: Arguments.kwargs) -> Value:
        return finished(function(*given, **named))

    return run


def mapped(
    work: Generator[Report, None, Value], function: Callable[[Report], Other]
) -> Generator[Other, None, Value]:
    """Do what a generator does, and yield a function of what it yields.

    >>> def counting():
    ...     yield 1
    ...     return 2
    >>> list(mapped(counting(), lambda number: -number))
    [-1]
    """
    followed = _Followed(work)
    for report in followed:
        yield function(report)
    return followed.value


def in_order(
    items: Iterable[Other], work: Callable[[Other], Value], threads: int, ahead: int
) -> Generator[Value, None, None]:
    """Do the same to each item, several at a time, and give what came of it, in order.

    ahead: how many at most are under way or wait to be taken. threads: 0 for none; they serve for what lets
    others run, as decoding and computing do.

    >>> list(in_order("abc", str.upper, threads=2, ahead=2))
    ['A', 'B', 'C']
    """
    if threads < 1:
        yield from map(work, items)
        return
    pool = ThreadPoolExecutor(threads, thread_name_prefix="in order")
    try:
        submitted = (pool.submit(copy_context().run, work, item) for item in items)
        waiting = deque(islice(submitted, ahead))
        while waiting:
            yield waiting.popleft().result()
            waiting.extend(islice(submitted, 1))
    finally:
        pool.shutdown(cancel_futures=True)
