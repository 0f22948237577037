"""Cosine scores and their cross-entropy for trials side by side: values and gradients in one pass each."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from shels.kernels.launching import launch


@triton.jit(do_not_specialize=["n", "classes"])
def _cosines(
    features,
    weights,
    out,
    lengths,
    sizes,
    n,
    classes,
    WIDTH: tl.constexpr,
    BN: tl.constexpr,
    BC: tl.constexpr,
    BK: tl.constexpr,
) -> None:
    trial = tl.program_id(1).to(tl.int64)
    row, c, k = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BC), tl.arange(0, BK)
    dots = tl.zeros((BN, BC), dtype=tl.float32)
    squares, own = tl.zeros((BN,), dtype=tl.float32), tl.zeros((BC,), dtype=tl.float32)
    for start in range(0, WIDTH, BK):
        inside = (start + k < WIDTH)[None, :]
        at = (trial * n + row)[:, None] * WIDTH + start + k[None, :]
        f = tl.load(features + at, mask=(row < n)[:, None] & inside, other=0.0)
        at = (trial * classes + c)[:, None] * WIDTH + start + k[None, :]
        w = tl.load(weights + at, mask=(c < classes)[:, None] & inside, other=0.0)
        dots = tl.dot(f, tl.trans(w), dots, input_precision="ieee")
        squares += tl.sum(f * f, axis=1)
        own += tl.sum(w * w, axis=1)
    length, size = tl.sqrt(squares), tl.sqrt(own)
    length = tl.where(length > 0, length, 1.0)
    size = tl.where(size > 0, size, 1.0)
    tl.store(lengths + trial * n + row, length, mask=row < n)
    tl.store(sizes + trial * classes + c, size, mask=c < classes)
    at = (trial * n + row)[:, None] * classes + c[None, :]
    tl.store(
        out + at, dots / (length[:, None] * size[None, :]), mask=(row < n)[:, None] & (c < classes)[None, :]
    )


@triton.jit(do_not_specialize=["n", "classes"])
def _cosines_back(
    gradient,
    cosines,
    features,
    weights,
    lengths,
    sizes,
    to_features,
    to_weights,
    n,
    classes,
    WIDTH: tl.constexpr,
    BN: tl.constexpr,
    BC: tl.constexpr,
    BK: tl.constexpr,
) -> None:
    trial = tl.program_id(1).to(tl.int64)
    c, k = tl.arange(0, BC), tl.program_id(0) * BK + tl.arange(0, BK)
    inside = (k < WIDTH)[None, :]
    at_weights = (trial * classes + c)[:, None] * WIDTH + k[None, :]
    w = tl.load(weights + at_weights, mask=(c < classes)[:, None] & inside, other=0.0)
    size = tl.load(sizes + trial * classes + c, mask=c < classes, other=1.0)
    total = tl.zeros((BC, BK), dtype=tl.float32)
    along = tl.zeros((BC,), dtype=tl.float32)
    for start in range(0, n, BN):
        row = start + tl.arange(0, BN)
        there = (row < n)[:, None]
        at = (trial * n + row)[:, None] * classes + c[None, :]
        known = there & (c < classes)[None, :]
        g = tl.load(gradient + at, mask=known, other=0.0)
        cosine = tl.load(cosines + at, mask=known, other=0.0)
        length = tl.load(lengths + trial * n + row, mask=row < n, other=1.0)
        at_features = (trial * n + row)[:, None] * WIDTH + k[None, :]
        f = tl.load(features + at_features, mask=there & inside, other=0.0)
        scaled = g / (length[:, None] * size[None, :])
        back = tl.dot(scaled, w, input_precision="ieee")
        back -= (tl.sum(g * cosine, axis=1) / (length * length))[:, None] * f
        tl.store(to_features + at_features, back, mask=there & inside)
        total = tl.dot(tl.trans(scaled), f, total, input_precision="ieee")
        along += tl.sum(g * cosine, axis=0)
    total -= (along / (size * size))[:, None] * w
    tl.store(to_weights + at_weights, total, mask=(c < classes)[:, None] & inside)


@triton.jit(do_not_specialize=["n", "classes"])
def _cross_entropy(scores, labels, losses, gradient, n, classes, BN: tl.constexpr, BC: tl.constexpr) -> None:
    trial = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BC)
    count, total = 0, 0.0
    for start in range(0, n, BN):
        row = start + tl.arange(0, BN)
        label = tl.load(labels + trial * n + row, mask=row < n, other=-1)
        count += tl.sum((label >= 0).to(tl.int32))
    for start in range(0, n, BN):
        row = start + tl.arange(0, BN)
        at = (trial * n + row)[:, None] * classes + c[None, :]
        there = (row < n)[:, None] & (c < classes)[None, :]
        label = tl.load(labels + trial * n + row, mask=row < n, other=-1)
        score = tl.load(scores + at, mask=there, other=-float("inf"))
        score -= tl.where(row < n, tl.max(score, axis=1), 0.0)[:, None]
        power = tl.exp(score)
        mass = tl.where(row < n, tl.sum(power, axis=1), 1.0)
        mine = c[None, :] == label[:, None]
        loss = tl.log(mass) - tl.sum(tl.where(mine, score, 0.0), axis=1)
        total += tl.sum(tl.where(label >= 0, loss, 0.0))
        g = tl.where((label >= 0)[:, None], power / mass[:, None] - tl.where(mine, 1.0, 0.0), 0.0) / count
        tl.store(gradient + at, g, mask=there)
    tl.store(losses + trial, total / count)


class _Cosines(torch.autograd.Function):
    @staticmethod
    def forward(ctx, features: Tensor, weights: Tensor) -> Tensor:
        features, weights = features.contiguous(), weights.contiguous()
        (trials, n, width), classes = features.shape, weights.shape[1]
        out = features.new_empty(trials, n, classes)
        lengths, sizes = features.new_empty(trials, n), features.new_empty(trials, classes)
        tile = {"BN": 32, "BC": max(16, triton.next_power_of_2(classes)), "BK": 64, "num_warps": 4}
        grid = (triton.cdiv(n, 32), trials)
        launch(_cosines, grid, features, weights, out, lengths, sizes, n, classes, width, **tile)
        ctx.save_for_backward(out, features, weights, lengths, sizes)
        return out

    @staticmethod
    def backward(ctx, gradient: Tensor):
        _, features, weights, _, _ = ctx.saved_tensors
        (trials, n, width), classes = features.shape, weights.shape[1]
        grads = torch.empty_like(features), torch.empty_like(weights)
        tile = {"BN": 32, "BC": max(16, triton.next_power_of_2(classes)), "BK": 64, "num_warps": 4}
        grid, given = (triton.cdiv(width, 64), trials), (gradient.contiguous(), *ctx.saved_tensors)
        launch(_cosines_back, grid, *given, *grads, n, classes, width, **tile)
        return grads


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scores: Tensor, labels: Tensor) -> Tensor:
        scores, labels = scores.contiguous(), labels.contiguous()
        trials, n, classes = scores.shape
        losses, gradient = scores.new_empty(trials), torch.empty_like(scores)
        width = triton.next_power_of_2(classes)
        launch(_cross_entropy, (trials,), scores, labels, losses, gradient, n, classes, BN=32, BC=width)
        ctx.save_for_backward(gradient)
        return losses

    @staticmethod
    def backward(ctx, gradient: Tensor):
        (each,) = ctx.saved_tensors
        return each * gradient[:, None, None], None


def cosines(features: Tensor, weights: Tensor) -> Tensor:
    """Return cosines: features (trials, n, d), weights (trials, classes, d) -> (trials, n, classes)."""
    return _Cosines.apply(features, weights)  # type: ignore[no-any-return, no-untyped-call]


def cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy of each trial over its samples with a label of 0 or more: (trials,)."""
    return _CrossEntropy.apply(scores, labels)  # type: ignore[no-any-return, no-untyped-call]
