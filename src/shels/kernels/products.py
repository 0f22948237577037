"""The kernels of convolutions of 3 x 3 with ReLU and pooling in them, for trials side by side.

Tensors are laid out (trials, n, height, width, channels), weights (trials, out, 3, 3, in). Operands are
float32, multiplied as TF32, or bfloat16; sums are float32. No sum depends on the order in which programs
run, nor on the number of trials, so a trial comes out the same again and again.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _place(m, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """Return image, row and column of the m-th pixel where the four of a window follow each other."""
    window, quarter = m // 4, m % 4
    column = (window % (WIDTH // 2)) * 2 + quarter % 2
    rest = window // (WIDTH // 2)
    return rest // (HEIGHT // 2), (rest % (HEIGHT // 2)) * 2 + quarter // 2, column


@triton.jit
def _patches(source, image, row, column, valid, k, HEIGHT, WIDTH, READ):
    """Return the surroundings of pixels with few channels: (pixels, 9 * channels and nothing up to k)."""
    place, channel = k // READ, k % READ
    r = row[:, None] + place[None, :] // 3 - 1
    c = column[:, None] + place[None, :] % 3 - 1
    inside = valid[:, None] & (place[None, :] < 9) & (r >= 0) & (r < HEIGHT) & (c >= 0) & (c < WIDTH)
    offset = ((image[:, None] * HEIGHT + r) * WIDTH + c) * READ + channel[None, :]
    return tl.load(source + offset, mask=inside, other=0.0)


@triton.jit(do_not_specialize=["images"])
def convolve(
    source,
    weight,
    bias,
    below,
    out,
    won,
    sums,
    images,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    READ: tl.constexpr,
    WRITTEN: tl.constexpr,
    BACK: tl.constexpr,
    POOL: tl.constexpr,
    RELU: tl.constexpr,
    ACROSS: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
) -> None:
    """Convolve one tile of pixels.

    Forward: add the bias, with RELU close what is negative, and with POOL (which needs RELU) keep the
    greatest of each window and note which it was. BACK: the gradient of the input; with RELU stopped where
    that came from a closed ReLU, with POOL laid out over the four pixels that each input value was the
    greatest of. Either way its sum over the tile's pixels is the tile's part of the gradient of the bias
    below. ACROSS: the weights are laid out as forward.
    """
    trial = tl.program_id(2).to(tl.int64)
    pixels = images * HEIGHT * WIDTH
    source += trial * pixels * READ
    weight += trial * 9 * READ * WRITTEN
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    if POOL and not BACK:
        image, row, column = _place(m, HEIGHT, WIDTH)
    else:
        image, row, column = m // (HEIGHT * WIDTH), m // WIDTH % HEIGHT, m % WIDTH
    valid = m < pixels
    total = tl.zeros((BM, BN), dtype=tl.float32)
    if READ < 16:  # all nine places in one product
        k = tl.arange(0, BK)
        a = _patches(source, image, row, column, valid, k, HEIGHT, WIDTH, READ)
        b = tl.load(weight + n[None, :] * 9 * READ + k[:, None], mask=(k < 9 * READ)[:, None], other=0.0)
        total = tl.dot(a, b, total)
    else:
        chunks: tl.constexpr = READ // BK
        pixel = (image * HEIGHT + row) * WIDTH + column
        for step in range(9 * chunks):
            place = step // chunks
            channel = (step % chunks) * BK + tl.arange(0, BK)
            if BACK:
                down, right = 1 - place // 3, 1 - place % 3
            else:
                down, right = place // 3 - 1, place % 3 - 1
            r, c = row + down, column + right
            inside = valid & (r >= 0) & (r < HEIGHT) & (c >= 0) & (c < WIDTH)
            at = (pixel + down * WIDTH + right)[:, None] * READ + channel[None, :]
            a = tl.load(source + at, mask=inside[:, None], other=0.0)
            if ACROSS:
                b = tl.load(weight + (channel[:, None] * 9 + place) * WRITTEN + n[None, :])
            else:
                b = tl.load(weight + (n[None, :] * 9 + place) * READ + channel[:, None])
            total = tl.dot(a, b, total)
    if BACK and POOL:
        at = (trial * pixels + m)[:, None] * WRITTEN + n[None, :]
        winner = tl.load(won + at, mask=valid[:, None], other=4)
        total = tl.where(winner < 4, total, 0.0)
        corner = (image * HEIGHT + row) * 4 * WIDTH + column * 2  # in a map of twice the sides
        value = total.to(out.dtype.element_ty)
        for quarter in tl.static_range(4):
            cell = trial * pixels * 4 + corner + (quarter // 2) * 2 * WIDTH + quarter % 2
            mine = tl.where(winner == quarter, value, 0.0)
            tl.store(out + cell[:, None] * WRITTEN + n[None, :], mine, mask=valid[:, None])
    elif BACK:
        at = (trial * pixels + m)[:, None] * WRITTEN + n[None, :]
        if RELU:
            total = tl.where(tl.load(below + at, mask=valid[:, None], other=0.0) > 0, total, 0.0)
        tl.store(out + at, total.to(out.dtype.element_ty), mask=valid[:, None])
    if BACK:
        place = tl.program_id(0) * tl.num_programs(2) + trial
        tl.store(sums + place * WRITTEN + n, tl.sum(tl.where(valid[:, None], total, 0.0), axis=0))
    else:
        total += tl.load(bias + trial * WRITTEN + n)[None, :]
        if RELU:
            total = tl.maximum(total, 0.0, propagate_nan=tl.PropagateNan.ALL)  # a NaN must come to light
        if POOL:
            best, winner = tl.max(tl.reshape(total, (BM // 4, 4, BN)), axis=1, return_indices=True)
            q = tl.program_id(0) * (BM // 4) + tl.arange(0, BM // 4)
            at = (trial * (pixels // 4) + q)[:, None] * WRITTEN + n[None, :]
            inside = (q < pixels // 4)[:, None]
            tl.store(out + at, best.to(out.dtype.element_ty), mask=inside)
            tl.store(won + at, tl.where(best > 0, winner, 4).to(tl.uint8), mask=inside)
        else:
            at = (trial * pixels + m)[:, None] * WRITTEN + n[None, :]
            tl.store(out + at, total.to(out.dtype.element_ty), mask=valid[:, None])


@triton.jit(do_not_specialize=["images", "parts"])
def sum_products(
    below,
    gradient,
    sums,
    images,
    parts,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    READ: tl.constexpr,
    WRITTEN: tl.constexpr,
    WIDE: tl.constexpr,
    BC: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
) -> None:
    """Sum the gradient of weights over one part of the pixels, for three places of the nine.

    WIDE: the three in one product, for layers that read so few channels that one place is too narrow.
    """
    part, trial = tl.program_id(0), tl.program_id(2).to(tl.int64)
    blocks: tl.constexpr = (WRITTEN // BN) * (READ // BC if READ >= 16 else 1)
    line, block = tl.program_id(1) // blocks, tl.program_id(1) % blocks
    n = (block % (WRITTEN // BN)) * BN + tl.arange(0, BN)
    pixels = images * HEIGHT * WIDTH
    below += trial * pixels * READ
    gradient += trial * pixels * WRITTEN
    place = part * tl.num_programs(2) + trial
    sums += place * WRITTEN * 9 * READ
    share = tl.cdiv(pixels, parts * BK) * BK
    first = block // (WRITTEN // BN) * BC
    rows: tl.constexpr = 4 * BC if WIDE else BC
    k = tl.arange(0, rows)
    left = tl.zeros((rows, BN), dtype=tl.float32)
    middle = tl.zeros((rows, BN), dtype=tl.float32)
    right = tl.zeros((rows, BN), dtype=tl.float32)
    for start in range(part * share, min((part + 1) * share, pixels), BK):
        m = start + tl.arange(0, BK)
        valid = m < pixels
        row, column = m // WIDTH % HEIGHT, m % WIDTH
        # Nothing but products may read g: Triton 3.6 gives a tile that is also summed too few buffers for the
        # products still under way, and overwrites what they read.
        g = tl.load(gradient + m[:, None] * WRITTEN + n[None, :], mask=valid[:, None], other=0.0)
        if READ < 16:
            x = _patches(below, m // (HEIGHT * WIDTH), row, column, valid, k, HEIGHT, WIDTH, READ)
            left = tl.dot(tl.trans(x), g, left)
        else:
            inside = valid & (row + line >= 1) & (row + line <= HEIGHT)
            at = below + (m + (line - 1) * WIDTH)[:, None] * READ
            if WIDE:
                c = column[:, None] + (k // BC)[None, :] - 1
                here = inside[:, None] & (k < 3 * BC)[None, :] & (c >= 0) & (c < WIDTH)
                at += ((k // BC - 1) * READ + first + k % BC)[None, :]
                left = tl.dot(tl.trans(tl.load(at, mask=here, other=0.0)), g, left)
            else:
                at += first + k[None, :]
                x = tl.load(at - READ, mask=(inside & (column > 0))[:, None], other=0.0)
                left = tl.dot(tl.trans(x), g, left)
                x = tl.load(at, mask=inside[:, None], other=0.0)
                middle = tl.dot(tl.trans(x), g, middle)
                x = tl.load(at + READ, mask=(inside & (column < WIDTH - 1))[:, None], other=0.0)
                right = tl.dot(tl.trans(x), g, right)
    if READ < 16:
        tl.store(sums + n[None, :] * 9 * READ + k[:, None], left, mask=(k < 9 * READ)[:, None])
    elif WIDE:
        at = sums + (n[None, :] * 9 + line * 3 + (k // BC)[:, None]) * READ + (first + k % BC)[:, None]
        tl.store(at, left, mask=(k < 3 * BC)[:, None])
    else:
        at = sums + (n[None, :] * 9 + line * 3) * READ + (first + k)[:, None]
        tl.store(at, left)
        tl.store(at + READ, middle)
        tl.store(at + 2 * READ, right)


@triton.jit(do_not_specialize=["cells"])
def spread(
    gradient, won, out, sums, cells, WIDTH: tl.constexpr, CHANNELS: tl.constexpr, BM: tl.constexpr
) -> None:
    """Lay a pooled gradient out over the pixels that won."""
    trial = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.arange(0, CHANNELS)
    valid = (m < cells)[:, None]
    at = (trial * cells + m)[:, None] * CHANNELS + n[None, :]
    value = tl.load(gradient + at, mask=valid, other=0.0)
    winner = tl.load(won + at, mask=valid, other=4)
    corner = trial * cells * 4 + m // WIDTH * 4 * WIDTH + m % WIDTH * 2
    for quarter in tl.static_range(4):
        cell = corner + (quarter // 2) * 2 * WIDTH + quarter % 2
        mine = tl.where(winner == quarter, value, 0.0)
        tl.store(out + cell[:, None] * CHANNELS + n[None, :], mine, mask=valid)
    place = tl.program_id(0) * tl.num_programs(1) + trial
    value = tl.where(winner < 4, value.to(tl.float32), 0.0)
    tl.store(sums + place * CHANNELS + n, tl.sum(value, axis=0))


@triton.jit(do_not_specialize=["parts"])
def fold(values, out, parts, size, BP: tl.constexpr, BS: tl.constexpr) -> None:
    """Add up parts of a sum: (parts, size) -> (size,)."""
    k = tl.program_id(0) * BS + tl.arange(0, BS)
    total = tl.zeros((BP, BS), dtype=tl.float32)
    for start in range(0, parts, BP):
        p = start + tl.arange(0, BP)
        inside = (p < parts)[:, None] & (k < size)[None, :]
        total += tl.load(values + p[:, None].to(tl.int64) * size + k[None, :], mask=inside, other=0.0)
    tl.store(out + k, tl.sum(total, axis=0), mask=k < size)
