"""The trial axis: what is written for one trial and computed for many.

A network and a loss are written for one trial; `torch.vmap` gives them the axis. Where an operation has a
faster form that knows the axis, `over_trials` lets the single-trial code call it without knowing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

_PRECISION: ContextVar[torch.dtype | None] = ContextVar("precision", default=None)


@contextmanager
def stacking(precision: torch.dtype) -> Iterator[None]:
    """Let what is computed inside use the kernels for stacked trials, and TF32 in products of float32.

    precision: what the kernels' convolutions multiply in.
    """
    token, before = _PRECISION.set(precision), torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        _PRECISION.reset(token)


def precision() -> torch.dtype | None:
    """Return what stacked trials multiply in, or None where no stack is being computed."""
    return _PRECISION.get()


def has_kernels(value: Tensor) -> bool:
    """Tell whether this is a stack's computation that the kernels can take: float32 on a GPU, with Triton."""
    stacked = _PRECISION.get() is not None
    return stacked and value.is_cuda and value.dtype == torch.float32 and _triton_is_here()


@cache
def _triton_is_here() -> bool:
    return find_spec("triton") is not None


def over_trials(operation: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return an operation on tensors with a leading trial axis as one of a single trial, under `torch.vmap`.

    Arguments that are not tensors are passed on as they are.
    """

    class Slice(torch.autograd.Function):
        @staticmethod
        def forward(*args: Any) -> Tensor:
            raise NotImplementedError("an operation over trials runs under torch.vmap alone")

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Tensor, int]:
            pairs = zip(args, in_dims, strict=True)
            return operation(*(_trials_first(arg, dim, info.batch_size) for arg, dim in pairs)), 0

    return Slice.apply


def _trials_first(value: Any, dim: int | None, trials: int) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.expand(trials, *value.shape) if dim is None else value.movedim(dim, 0)
