"""What stands beside the service: the same images through the network and through judging, without HTTP."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serving.started import Array, processor_seconds

PLAIN, NETWORK, JUDGING = "network(x) of PyTorch", "the network as judging has it", "judging without HTTP"


def bare(home: Path, batch: Array, seconds: float) -> dict[str, tuple[float, float]]:
    """Measure in this process, without HTTP: images a second, processor time an image.

    With as many threads as are the quickest: the network called as a module of PyTorch, as judging calls it,
    with channels last, and judging with its thresholds and p-values.
    """
    import torch  # noqa: PLC0415

    from shels.agent.home import Home  # noqa: PLC0415

    learner = Home(home).load("cpu")
    inputs = torch.from_numpy(batch)[:, None]
    network, prepare = learner.network, learner.preparation
    ways: dict[str, Callable[[Any], Any]] = {
        PLAIN: torch.no_grad()(lambda batch: network(prepare(batch))),
        NETWORK: learner.views,
        JUDGING: learner.judge,
    }
    found = dict[str, tuple[float, float]]()
    for what, work in ways.items():
        each = []
        for threads in sorted({1, os.cpu_count() or 1}):
            torch.set_num_threads(threads)
            rate, cost = _alone(work, inputs, seconds / 3)
            each.append((rate, cost))
            print(f"{f'{what}, {threads} thread(s)':38}{rate:10.0f}{'':19}{1e6 * cost:10.1f}", flush=True)
        found[what] = max(each)
    return found


def _alone(work: Callable[[Any], Any], inputs: Any, seconds: float) -> tuple[float, float]:
    work(inputs)
    count, began, used = 0, time.perf_counter(), processor_seconds()
    while time.perf_counter() - began < seconds:
        work(inputs)
        count += len(inputs)
    return count / (time.perf_counter() - began), (processor_seconds() - used) / count
