"""Group norms and their gradient for trials side by side, one pass over the weights each."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from shels.kernels.launching import launch


@triton.jit(do_not_specialize=["total", "offset", "rows", "factor"])
def _norms(
    weight, out, weighted, total, offset, groups, rows, factor, BR: tl.constexpr, BG: tl.constexpr
) -> None:
    trial = tl.program_id(1).to(tl.int64)
    g = tl.program_id(0) * BG + tl.arange(0, BG)
    inside = g < groups
    squares = tl.zeros((BR, BG), dtype=tl.float32)
    for start in range(0, rows, BR):
        r = start + tl.arange(0, BR)
        at = (trial * rows + r)[:, None] * groups + g[None, :]
        value = tl.load(weight + at, mask=(r < rows)[:, None] & inside[None, :], other=0.0)
        squares += value * value
    norm = tl.sqrt(tl.sum(squares, axis=0))
    tl.store(out + trial * total + offset + g, norm, mask=inside)
    tl.store(weighted + trial * total + offset + g, norm * factor, mask=inside)


@triton.jit(do_not_specialize=["total", "offset", "factor"])
def _directions(weight, norms, scale, out, total, offset, groups, factor, size, BLOCK: tl.constexpr) -> None:
    trial = tl.program_id(1).to(tl.int64)
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = k < size
    norm = tl.load(norms + trial * total + offset + k % groups, mask=inside, other=1.0)
    value = tl.load(weight + trial * size + k, mask=inside, other=0.0)
    value *= factor * tl.load(scale + trial) / tl.where(norm > 0, norm, 1.0)
    tl.store(out + trial * size + k, value, mask=inside)


def norms(weight: Tensor, out: Tensor, weighted: Tensor, offset: int, factor: float) -> None:
    """Write the norm of each group of a weight (trials, rows, groups), plain and times a factor."""
    trials, rows, groups = weight.shape
    bg = min(16, triton.next_power_of_2(groups))
    br = 4096 // bg if groups < 16 else 256
    grid, sizes = (triton.cdiv(groups, bg), trials), (out.shape[1], offset, groups, rows)
    launch(_norms, grid, weight, out, weighted, *sizes, factor, BR=br, BG=bg, num_warps=8)


def directions(weight: Tensor, found: Tensor, scale: Tensor, out: Tensor, offset: int, factor: float) -> None:
    """Write each weight over its group's norm, times its trial's scale (trials,) and a factor, into `out`."""
    trials, rows, groups = weight.shape
    if not scale.is_contiguous():
        raise ValueError("the scale of each trial must lie beside the next one's")
    size = rows * groups
    grid, numbers = (triton.cdiv(size, 2048), trials), (found.shape[1], offset, groups, factor, size)
    launch(_directions, grid, weight, found, scale, out, *numbers, BLOCK=2048, num_warps=8)
