"""Batch normalisation with ReLU and pooling in it, for trials side by side, and its gradients.

Maps are laid out (trials, n, height, width, channels), float32 or bfloat16; sums are float32. Maps are read
once for their statistics and once for what comes out, and as often on the way back: nothing else of their
size is made. No sum depends on the order in which programs run, so a trial comes out the same every time.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from shels.kernels.convolution import folded
from shels.kernels.launching import launch


@triton.jit
def _corner(q, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """Return the first pixel of the q-th window of 2 x 2."""
    row, column = q // (WIDTH // 2) % (HEIGHT // 2), q % (WIDTH // 2)
    return (q // ((HEIGHT // 2) * (WIDTH // 2)) * HEIGHT + 2 * row) * WIDTH + 2 * column


@triton.jit(do_not_specialize=["images", "parts"])
def _moments(
    maps, there, sums, images, parts, PIXELS: tl.constexpr, CHANNELS: tl.constexpr, BM: tl.constexpr
) -> None:
    """Sum values and their squares over one part of the pixels."""
    part, trial = tl.program_id(0), tl.program_id(1).to(tl.int64)
    pixels, c = images * PIXELS, tl.arange(0, CHANNELS)
    maps += trial * pixels * CHANNELS
    share = tl.cdiv(pixels, parts * BM) * BM
    total, squares = tl.zeros((CHANNELS,), dtype=tl.float32), tl.zeros((CHANNELS,), dtype=tl.float32)
    for start in range(part * share, min((part + 1) * share, pixels), BM):
        m = start + tl.arange(0, BM)
        present = tl.load(there + trial * images + m // PIXELS, mask=m < pixels, other=0) != 0
        x = tl.load(maps + m[:, None] * CHANNELS + c[None, :], mask=present[:, None], other=0.0).to(
            tl.float32
        )
        total += tl.sum(x, axis=0)
        squares += tl.sum(x * x, axis=0)
    at = sums + (part * tl.num_programs(1) + trial) * 2 * CHANNELS + c
    tl.store(at, total)
    tl.store(at + CHANNELS, squares)


@triton.jit(do_not_specialize=["images"])
def _rectify(
    maps,
    there,
    scale,
    shift,
    out,
    won,
    images,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    POOL: tl.constexpr,
    BM: tl.constexpr,
) -> None:
    """Scale, shift, close what is negative; with POOL keep the greatest of each window and which it was."""
    trial = tl.program_id(1).to(tl.int64)
    cells: tl.constexpr = (HEIGHT // 2) * (WIDTH // 2) if POOL else HEIGHT * WIDTH
    q, c = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, CHANNELS)
    valid = q < images * cells
    present = tl.load(there + trial * images + q // cells, mask=valid, other=0) != 0
    maps += trial * images * HEIGHT * WIDTH * CHANNELS
    a = tl.load(scale + trial * CHANNELS + c)[None, :]
    b = tl.load(shift + trial * CHANNELS + c)[None, :]
    at = (trial * images * cells + q)[:, None] * CHANNELS + c[None, :]
    if POOL:
        first = _corner(q, HEIGHT, WIDTH)[:, None] * CHANNELS + c[None, :]
        best = tl.zeros((BM, CHANNELS), dtype=tl.float32)
        winner = tl.full((BM, CHANNELS), 4, dtype=tl.int32)
        for k in tl.static_range(4):
            x = tl.load(maps + first + (k // 2 * WIDTH + k % 2) * CHANNELS, mask=present[:, None], other=0.0)
            z = x.to(tl.float32) * a + b
            winner = tl.where(z > best, k, winner)
            best = tl.maximum(best, z, propagate_nan=tl.PropagateNan.ALL)  # a NaN must come to light
        best = tl.where(present[:, None], best, 0.0)
        tl.store(won + at, tl.where(present[:, None], winner, 4).to(tl.uint8), mask=valid[:, None])
    else:
        x = tl.load(maps + q[:, None] * CHANNELS + c[None, :], mask=present[:, None], other=0.0)
        best = tl.maximum(x.to(tl.float32) * a + b, 0.0, propagate_nan=tl.PropagateNan.ALL)
        best = tl.where(present[:, None], best, 0.0)  # else what is not there could grow from layer to layer
    tl.store(out + at, best.to(out.dtype.element_ty), mask=valid[:, None])


@triton.jit
def _opened(
    maps, gradient, won, scale, shift, at, q, present,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr, POOL: tl.constexpr,
):  # fmt: skip
    """Return gradients that pass the ReLU, and the values that they are of: (cells, channels) each."""
    g = tl.load(gradient + at, mask=present[:, None], other=0.0).to(tl.float32)
    c = tl.arange(0, CHANNELS)
    if POOL:
        winner = tl.load(won + at, mask=present[:, None], other=4).to(tl.int32)
        place = (_corner(q, HEIGHT, WIDTH)[:, None] + winner // 2 * WIDTH + winner % 2) * CHANNELS + c[
            None, :
        ]
        x = tl.load(maps + place, mask=present[:, None] & (winner < 4), other=0.0).to(tl.float32)
        return tl.where(winner < 4, g, 0.0), x
    x = tl.load(maps + q[:, None] * CHANNELS + c[None, :], mask=present[:, None], other=0.0).to(tl.float32)
    return tl.where(x * scale[None, :] + shift[None, :] > 0, g, 0.0), x


@triton.jit(do_not_specialize=["images", "parts"])
def _back_sums(
    maps,
    there,
    gradient,
    won,
    scale,
    shift,
    sums,
    images,
    parts,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    POOL: tl.constexpr,
    BM: tl.constexpr,
) -> None:
    """Sum gradients, and gradients times values, over one part of the cells that came out."""
    part, trial = tl.program_id(0), tl.program_id(1).to(tl.int64)
    cells: tl.constexpr = (HEIGHT // 2) * (WIDTH // 2) if POOL else HEIGHT * WIDTH
    many, c = images * cells, tl.arange(0, CHANNELS)
    maps += trial * images * HEIGHT * WIDTH * CHANNELS
    a, b = tl.load(scale + trial * CHANNELS + c), tl.load(shift + trial * CHANNELS + c)
    share = tl.cdiv(many, parts * BM) * BM
    total, product = tl.zeros((CHANNELS,), dtype=tl.float32), tl.zeros((CHANNELS,), dtype=tl.float32)
    for start in range(part * share, min((part + 1) * share, many), BM):
        q = start + tl.arange(0, BM)
        present = tl.load(there + trial * images + q // cells, mask=q < many, other=0) != 0
        at = (trial * many + q)[:, None] * CHANNELS + c[None, :]
        g, x = _opened(maps, gradient, won, a, b, at, q, present, HEIGHT, WIDTH, CHANNELS, POOL)
        total += tl.sum(g, axis=0)
        product += tl.sum(g * x, axis=0)
    place = sums + (part * tl.num_programs(1) + trial) * 2 * CHANNELS + c
    tl.store(place, total)
    tl.store(place + CHANNELS, product)


@triton.jit(do_not_specialize=["images"])
def _back(
    maps,
    there,
    gradient,
    won,
    scale,
    shift,
    slope,
    level,
    out,
    images,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    POOL: tl.constexpr,
    BM: tl.constexpr,
) -> None:
    """Return the gradient of maps: scale times what passes the ReLU, and through the statistics the rest."""
    trial = tl.program_id(1).to(tl.int64)
    cells: tl.constexpr = (HEIGHT // 2) * (WIDTH // 2) if POOL else HEIGHT * WIDTH
    q, c = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, CHANNELS)
    valid = q < images * cells
    present = tl.load(there + trial * images + q // cells, mask=valid, other=0) != 0
    maps += trial * images * HEIGHT * WIDTH * CHANNELS
    out += trial * images * HEIGHT * WIDTH * CHANNELS
    own = trial * CHANNELS + c
    a, b, s, v = tl.load(scale + own), tl.load(shift + own), tl.load(slope + own), tl.load(level + own)
    at = (trial * images * cells + q)[:, None] * CHANNELS + c[None, :]
    if POOL:
        g = tl.load(gradient + at, mask=present[:, None], other=0.0).to(tl.float32) * a[None, :]
        winner = tl.load(won + at, mask=present[:, None], other=4).to(tl.int32)
        first = _corner(q, HEIGHT, WIDTH)[:, None] * CHANNELS + c[None, :]
        for k in tl.static_range(4):
            place = first + (k // 2 * WIDTH + k % 2) * CHANNELS
            x = tl.load(maps + place, mask=present[:, None], other=0.0).to(tl.float32)
            back = tl.where(winner == k, g, 0.0) + x * s[None, :] + v[None, :]
            back = tl.where(present[:, None], back, 0.0)
            tl.store(out + place, back.to(out.dtype.element_ty), mask=valid[:, None])
    else:
        g, x = _opened(maps, gradient, won, a, b, at, q, present, HEIGHT, WIDTH, CHANNELS, POOL)
        back = tl.where(present[:, None], g * a[None, :] + x * s[None, :] + v[None, :], 0.0)
        tl.store(out + q[:, None] * CHANNELS + c[None, :], back.to(out.dtype.element_ty), mask=valid[:, None])


_TILE = 4096
"""Values that a program looks at together."""


def _tile(maps: Tensor) -> int:
    return max(16, _TILE // maps.shape[-1])


def _parts(maps: Tensor, rows: int) -> int:
    """Return how many parts a sum over so many rows is cut into: some programs for each processor."""
    return max(1, min(1024 // len(maps), rows // (4 * _tile(maps)), 128))


def moments(maps: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sums of values and of their squares over the samples that are there: (trials, channels).

    maps: (trials, n, h, w, c), contiguous. there: (trials, n).
    """
    trials, images, height, width, channels = maps.shape
    parts = _parts(maps, images * height * width)
    sums = torch.empty(parts, trials, 2, channels, device=maps.device)
    sizes = {"PIXELS": height * width, "CHANNELS": channels, "BM": _tile(maps)}
    launch(_moments, (parts, trials), maps, there, sums, images, parts, **sizes)
    total, squares = folded(sums).unbind(1)
    return total, squares


def rectify(
    maps: Tensor, there: Tensor, scale: Tensor, shift: Tensor, *, pool: bool
) -> tuple[Tensor, Tensor]:
    """Return ReLU of maps times scale plus shift, pooled or not, and which pixel won (empty if not pooled).

    What is not there is 0. scale, shift: (trials, channels).
    """
    trials, images, height, width, channels = maps.shape
    sides = (height // 2, width // 2) if pool else (height, width)
    out = maps.new_empty(trials, images, *sides, channels)
    won = maps.new_empty(out.shape if pool else 0, dtype=torch.uint8)
    bm = _tile(maps)
    grid = (triton.cdiv(images * sides[0] * sides[1], bm), trials)
    sizes = (images, height, width, channels, pool, bm)
    launch(_rectify, grid, maps, there, scale, shift, out, won, *sizes)
    return out, won


def back_sums(
    maps: Tensor, there: Tensor, gradient: Tensor, won: Tensor, scale: Tensor, shift: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the sums of gradients that pass the ReLU, and of these times the maps: (trials, channels)."""
    trials, images, height, width, channels = maps.shape
    parts = _parts(maps, gradient[0].numel() // channels)
    sums = torch.empty(parts, trials, 2, channels, device=maps.device)
    sizes = (images, parts, height, width, channels, won.numel() > 0, _tile(maps))
    launch(_back_sums, (parts, trials), maps, there, gradient, won, scale, shift, sums, *sizes)
    total, product = folded(sums).unbind(1)
    return total, product


def back(
    maps: Tensor,
    there: Tensor,
    gradient: Tensor,
    won: Tensor,
    scale: Tensor,
    shift: Tensor,
    slope: Tensor,
    level: Tensor,
) -> Tensor:
    """Return scale times the gradient that passes the ReLU, plus slope times the maps, plus level."""
    trials, images, height, width, channels = maps.shape
    out, bm = torch.empty_like(maps), _tile(maps)
    grid = (triton.cdiv(gradient[0].numel() // channels, bm), trials)
    given = (maps, there, gradient, won, scale, shift, slope, level, out)
    launch(_back, grid, *given, images, height, width, channels, won.numel() > 0, bm)
    return out
