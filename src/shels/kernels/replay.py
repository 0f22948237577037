"""Short computations on a GPU as CUDA graphs: launching many small kernels takes longer than they run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from threading import Lock
from typing import Any, TypeAlias

import torch
from torch import Tensor

Tensors: TypeAlias = tuple[Tensor, ...]

_OFTEN = 3
"""Inputs of one shape are worth a recording from the time they come this often."""
_MOST = 4
"""Shapes that are recorded at most; a stream has one, and a last batch."""


class Replay:
    """One function of tensors, replayed on a GPU once its inputs have come in one shape a few times.

    It is given anew at each call and not kept: as a method of whoever owns this it would keep its owner, with
    all tensors, until garbage is collected.

    >>> replay = Replay()
    >>> replay(lambda x: (2 * x,), torch.tensor([1.0, 2.0]))
    (tensor([2., 4.]),)
    """

    def __init__(self) -> None:
        self._seen: Counter[Any] = Counter()
        self._recorded: dict[Any, tuple[torch.cuda.CUDAGraph, Tensors, Tensors]] = {}
        self._lock = Lock()  # recordings share their room; what is queued in turn runs in turn

    def __reduce__(self) -> tuple[type[Replay], tuple[()]]:
        return Replay, ()  # recordings stay with their process

    @torch.no_grad()
    def __call__(self, work: Callable[..., Tensors], *inputs: Tensor) -> Tensors:
        """Compute, or replay.

        work: the same at each call. It asks nothing of the GPU on its way, and gives new tensors. On a CPU it
        is called as it is, and so it is for shapes that come seldom. The results are the same, to the bit.
        """
        if not inputs[0].is_cuda or torch.cuda.is_current_stream_capturing():
            return work(*inputs)
        key = tuple((value.shape, value.dtype) for value in inputs)
        with self._lock:
            self._seen[key] += 1
            if key not in self._recorded:
                if self._seen[key] < _OFTEN or len(self._recorded) == _MOST:
                    return work(*inputs)
                self._recorded[key] = _recorded(work, inputs)
            graph, held, results = self._recorded[key]
            for mine, new in zip(held, inputs, strict=True):
                mine.copy_(new)
            graph.replay()
            return tuple(value.clone() for value in results)


def _recorded(work: Callable[..., Tensors], inputs: Tensors) -> tuple[torch.cuda.CUDAGraph, Tensors, Tensors]:
    held = tuple(value.clone() for value in inputs)
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work(*held)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
        results = work(*held)
    return graph, held, results
