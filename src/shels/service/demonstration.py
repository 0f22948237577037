"""The demonstration, live: seven digits are known, and the others come in among them, again and again."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from shels import runtime
from shels.agent.home import Home
from shels.config.presets import preset
from shels.data.sources import load_named
from shels.data.splits import draw_classes, split_data
from shels.demo import KNOWN_COUNT
from shels.errors import ShelsError
from shels.learner.learner import learning
from shels.service.owner import Service
from shels.training import Progress

_EVERY_SECONDS, _AT_ONCE, _KNOWN_FIRST = 0.5, 8, 10


def preparing(directory: Path, seed: int = 0, device: str = "auto") -> Generator[Progress, None, None]:
    """Teach seven digits to a model and make its home, unless there is one already."""
    home = Home(directory)
    if home.exists:
        return
    data = load_named("digits")
    taught, _, _ = split_data(data, draw_classes(data.train.classes, KNOWN_COUNT, seed))
    learner = yield from learning(taught, preset("default"), seed=seed, device=device)
    home.begin(learner)


@contextmanager
def streaming(service: Service, seed: int = 0) -> Iterator[None]:
    """Feed digits in while this lasts: known ones first, then new ones among them."""
    ended = threading.Event()
    thread = threading.Thread(target=_feed, args=(service, seed, ended), name="digits", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _feed(service: Service, seed: int, ended: threading.Event) -> None:
    data = load_named("digits")
    split = draw_classes(data.train.classes, KNOWN_COUNT, seed)
    _, known, new_test = split_data(data, split)
    pools = known.inputs, torch.cat([new_test.inputs, data.train.only(split.novel).inputs])
    draws = runtime.generator(seed, "live digits")
    orders = [torch.randperm(len(pool), generator=draws) for pool in pools]
    for number in range(10**9):
        if ended.wait(_EVERY_SECONDS):
            return
        new = 0 if number < _KNOWN_FIRST else _AT_ONCE // 2
        counts = (_AT_ONCE - new, new)
        rows = [
            pool[order[torch.arange(number * _AT_ONCE, number * _AT_ONCE + count) % len(order)]]
            for pool, order, count in zip(pools, orders, counts, strict=True)
        ]
        try:
            service.observe(torch.cat(rows), by="digits")
        except ShelsError:  # the disk is full; the page says so
            continue
