"""Convolutions of 3 x 3 with ReLU and pooling in them, for trials side by side, and their gradients.

Tensors are laid out (trials, n, height, width, channels), weights (trials, out, 3, 3, in), both contiguous.
Operands are float32, multiplied as TF32, or bfloat16; sums are float32.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from shels.kernels import products
from shels.kernels.launching import launch


def folded(values: Tensor) -> Tensor:
    """Return the sum over the leading axis of few or many parts, always in the same order."""
    parts, out = len(values), torch.empty_like(values[0])
    bp = min(64, triton.next_power_of_2(parts))
    bs = 1024 if bp <= 8 else 64
    launch(products.fold, (triton.cdiv(out.numel(), bs),), values, out, parts, out.numel(), BP=bp, BS=bs)
    return out


def tiles(read: int, written: int, *, back: bool, exact: bool) -> dict[str, int]:
    """Return the tile of a product: pixels, channels written, channels read at a time; measured on an H200.

    exact: operands of float32.
    """
    narrow = exact or (back and read != 128)
    bk = triton.next_power_of_2(9 * read) if read < 16 else min(read, 32 if narrow else 64)
    bn = min(written, 64 if exact and back else 128)
    bm = 256 if read == written == 32 else 64 if written > 64 and not back else 128
    return {"BM": bm, "BN": bn, "BK": bk, "num_warps": 4, "num_stages": 3}


def sum_tiles(read: int, written: int, pixels: int, *, exact: bool) -> dict[str, int]:
    """Return the tile of a sum over pixels, and how many parts to cut it into; trials play no role.

    Wide layers have enough tiles to keep a GPU busy; narrow ones, and large maps, are cut into parts.
    """
    plan = {"WIDE": False, "BN": min(written, 64), "BK": 64, "num_warps": 4, "num_stages": 3}
    if read < 16:
        wanted, more = 64, {"BC": triton.next_power_of_2(9 * read), "BK": 128, "num_stages": 2}
    elif exact:
        wanted, more = 256 // read, {"BC": min(read, 32), "num_stages": 2}
    else:
        wanted, more = 256 // read, {"BC": min(read, 64), "WIDE": read < 64}
    return plan | more | {"parts": max(1, min(max(wanted, pixels // 8192), pixels // 512))}


def forward(
    x: Tensor, weight: Tensor, bias: Tensor, *, pool: bool, relu: bool = True
) -> tuple[Tensor, Tensor]:
    """Return ReLU of the convolution, pooled or not, and which pixel of each window won (empty if not).

    relu: without it the convolution itself comes out, not pooled.

    x: (trials, n, h, w, in), weight: (trials, out, 3, 3, in), bias: (trials, out).
    """
    trials, images, height, width, read = x.shape
    written, scale = weight.shape[1], 2 if pool else 1
    out = x.new_empty(trials, images, height // scale, width // scale, written)
    won = x.new_empty(out.shape if pool else 0, dtype=torch.uint8)
    plan = tiles(read, written, back=False, exact=x.dtype == torch.float32)
    grid = (triton.cdiv(images * height * width, plan["BM"]), written // plan["BN"], trials)
    sizes, flags = (images, height, width, read, written), (False, pool, relu, False)
    launch(products.convolve, grid, x, weight, bias, x, out, won, x, *sizes, *flags, **plan)
    return out, won


def backward_input(gradient: Tensor, weight: Tensor, below: Tensor, won: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient for the layer below before its ReLU, and that of its bias.

    gradient: (trials, n, h, w, out), this layer's before its ReLU. below: this layer's input. won: where that
    was pooled, which pixels it came from; the gradient is then that of the map before, of twice the sides.
    """
    return _backward(gradient, weight, below, won, mask=not won.numel())


def backward_first(gradient: Tensor, weight: Tensor, below: Tensor) -> Tensor:
    """Return the gradient of inputs that came from no ReLU of these layers: (trials, n, h, w, in).

    in: 16 channels or more.
    """
    return _backward(gradient, weight, below, below.new_empty(0, dtype=torch.uint8), mask=False)[0]


def _backward(
    gradient: Tensor, weight: Tensor, below: Tensor, won: Tensor, *, mask: bool
) -> tuple[Tensor, Tensor]:
    trials, images, height, width, written = below.shape
    read, pool = weight.shape[1], won.numel() > 0
    scale = 2 if pool else 1
    out = below.new_empty(trials, images, height * scale, width * scale, written)
    exact = below.dtype == torch.float32  # TF32 products want both operands with the summed axis innermost
    weight = weight.transpose(1, 4).contiguous() if exact else weight
    plan = tiles(read, written, back=True, exact=exact)
    grid = (triton.cdiv(images * height * width, plan["BM"]), written // plan["BN"], trials)
    sums = torch.empty(grid[0], trials, written, device=below.device)
    sizes, flags = (images, height, width, read, written), (True, pool, mask, not exact)
    launch(products.convolve, grid, gradient, weight, weight, below, out, won, sums, *sizes, *flags, **plan)
    return out, folded(sums)


def backward_weights(gradient: Tensor, below: Tensor) -> Tensor:
    """Return the gradient of weight, float32: (trials, out, 3, 3, in)."""
    trials, images, height, width, read = below.shape
    written = gradient.shape[-1]
    plan = sum_tiles(read, written, images * height * width, exact=below.dtype == torch.float32)
    parts = plan["parts"]
    out = torch.empty(parts, trials, written, 3, 3, read, device=below.device)
    blocks = written // plan["BN"] * (1 if read < 16 else 3 * (read // plan["BC"]))
    sizes = {"HEIGHT": height, "WIDTH": width, "READ": read, "WRITTEN": written}
    grid = (parts, blocks, trials)
    launch(products.sum_products, grid, below, gradient, out, images, **sizes, **plan)
    return folded(out)


def spread(gradient: Tensor, maps: Tensor, won: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient of the last layer before its ReLU, and that of its bias, from that of its maps.

    gradient, maps: (trials, n, h, w, c); where the layer pools, the gradient is of twice the sides.
    """
    if not won.numel():
        out = gradient * (maps > 0)
        return out, out.sum(dim=(1, 2, 3), dtype=torch.float32)
    trials, images, height, width, channels = gradient.shape
    out = gradient.new_empty(trials, images, 2 * height, 2 * width, channels)
    cells = images * height * width
    grid = (triton.cdiv(cells, 32), trials)
    sums = torch.empty(grid[0], trials, channels, device=out.device)
    launch(products.spread, grid, gradient, won, out, sums, cells, width, channels, 32)
    return out, folded(sums)
