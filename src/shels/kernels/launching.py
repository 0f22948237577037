"""Kernels are compiled when first launched; here all that a piece of work needs are compiled side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

_local = threading.local()


def launch(kernel: Any, grid: tuple[int, ...], *args: Any, **options: Any) -> None:
    """Run a Triton kernel, or only note it down where `compile_for` asks what is needed.

    A kernel reads memory one value after another, whatever a tensor's strides say: each must be contiguous.
    """
    for place, value in enumerate(args):
        if isinstance(value, Tensor) and not value.is_contiguous():
            about = f"argument {place} of shape {tuple(value.shape)} has strides {value.stride()}"
            raise ValueError(f"a kernel reads contiguous tensors: {about}")
    planned = getattr(_local, "planned", None)
    if planned is None:
        kernel[grid](*args, **options)
    else:
        kernel.cache_key  # noqa: B018 - older Triton works it out only once safely if threads do not race for it
        planned.append(lambda: kernel.warmup(*args, grid=grid, **options))


def as_they_lie(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Give the values of tensors laid out alike in the order of their memory, (values,), without a copy.

    For kernels that take value by value, whatever it is: channels-last weights are fine, gaps are not.

    >>> weight = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).T
    >>> as_they_lie([weight, weight * 10])
    [tensor([1., 2., 3., 4., 5., 6.]), tensor([10., 20., 30., 40., 50., 60.])]
    """
    first = tensors[0]
    order = sorted(range(first.ndim), key=first.stride, reverse=True)
    for value in tensors:
        if value.shape != first.shape or not value.permute(order).is_contiguous():
            about = f"{tuple(value.shape)} with strides {value.stride()} beside {tuple(first.shape)}"
            raise ValueError(
                f"values that a kernel takes in turn must be laid out alike, without gaps: {about}"
            )
    return [value.permute(order).view(-1) for value in tensors]


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
