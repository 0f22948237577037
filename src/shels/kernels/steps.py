"""Optimiser steps for trials side by side, each at a step of its own; a trial that rests is not touched."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from shels.kernels.launching import as_they_lie, launch


@triton.jit
def _adam(values, grads, means, squares, table, size, beta1, beta2, epsilon, BLOCK: tl.constexpr) -> None:
    trial = tl.program_id(1).to(tl.int64)
    rate, spread = tl.load(table + 2 * trial), tl.load(table + 2 * trial + 1)
    if spread > 0:
        k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = k < size
        at = trial * size + k
        grad = tl.load(grads + at, mask=inside)
        mean = tl.load(means + at, mask=inside)
        square = tl.load(squares + at, mask=inside)
        mean += (1 - beta1) * (grad - mean)
        square = beta2 * square + (1 - beta2) * grad * grad
        change = rate * mean / (tl.sqrt(square) / spread + epsilon)
        tl.store(values + at, tl.load(values + at, mask=inside) - change, mask=inside)
        tl.store(means + at, mean, mask=inside)
        tl.store(squares + at, square, mask=inside)


@triton.jit
def _sgd(values, grads, buffers, table, size, momentum, decay, BLOCK: tl.constexpr) -> None:
    trial = tl.program_id(1).to(tl.int64)
    rate = tl.load(table + 2 * trial)
    if tl.load(table + 2 * trial + 1) > 0:
        k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = k < size
        at = trial * size + k
        value = tl.load(values + at, mask=inside)
        buffer = momentum * tl.load(buffers + at, mask=inside) + tl.load(grads + at, mask=inside)
        buffer += decay * value
        tl.store(values + at, value - rate * buffer, mask=inside)
        tl.store(buffers + at, buffer, mask=inside)


def adam(tensors: tuple[Tensor, ...], table: Tensor, betas: tuple[float, float, float]) -> None:
    """Move one parameter of all trials by Adam, in place.

    tensors: the parameter, its gradient, its mean and its square, laid out alike.
    table: (trials, 2), the rate over the first bias correction and the root of the second, 0 for rest.
    betas: of the mean, of the square, and the term that keeps the quotient finite.
    """
    _launch(_adam, tensors, table, betas)


def sgd(tensors: tuple[Tensor, ...], table: Tensor, momentum: float, decay: float) -> None:
    """Move one parameter of all trials by stochastic gradient descent, in place.

    tensors: the parameter, its gradient and its momentum, laid out alike. table: (trials, 2), the rate, and 0
    for rest. decay: the weight decay.
    """
    _launch(_sgd, tensors, table, (momentum, decay))


def _launch(kernel: Any, tensors: tuple[Tensor, ...], table: Tensor, numbers: tuple[float, ...]) -> None:
    size = tensors[0][0].numel()
    grid = (triton.cdiv(size, 2048), len(tensors[0]))
    launch(kernel, grid, *as_they_lie(tensors), table, size, *numbers, BLOCK=2048, num_warps=8)
