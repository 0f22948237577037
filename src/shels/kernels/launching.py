"""Kernels are compiled when first launched; here all that a piece of work needs are compiled side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

_local = threading.local()


def launch(kernel: Any, grid: tuple[int, ...], *args: Any, **options: Any) -> None:
    """Run a Triton kernel, or only note it down where `compile_for` asks what is needed."""
    planned = getattr(_local, "planned", None)
    if planned is None:
        kernel[grid](*args, **options)
    else:
        kernel.cache_key  # noqa: B018 - older Triton works it out only once safely if threads do not race for it
        planned.append(lambda: kernel.warmup(*args, grid=grid, **options))


def compile_for(work: Callable[[], object]) -> None:
    """Compile every kernel that some work launches; the work itself is done without them, on garbage."""
    planned: list[Callable[[], object]] = []
    _local.planned = planned
    try:
        with torch.autograd.set_multithreading_enabled(False):  # gradients in this thread, where it counts
            work()
    finally:
        _local.planned = None
    device = torch.cuda.current_device()
    with ThreadPoolExecutor(16, initializer=torch.cuda.set_device, initargs=(device,)) as pool:
        for done in [pool.submit(each) for each in planned]:
            done.result()
