"""Augmentation: training images changed at random, a whole batch at once, by operations on tensors alone.

Numbers are drawn first and then decide everything, so that the same numbers give the same images: alone, in a
stack of trials, in a CUDA graph. Nothing here waits for a GPU.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from shels.config import Augmentation


class Numbers(NamedTuple):
    """What decides how each image is changed: uniform numbers in 0-1, (n,) each."""

    crop_down: Tensor
    crop_across: Tensor
    flip: Tensor
    down: Tensor
    across: Tensor
    rotation: Tensor
    zoom: Tensor
    brightness: Tensor
    contrast: Tensor
    cutout_down: Tensor
    cutout_across: Tensor


def drawn(images: Tensor) -> Numbers:
    """Draw numbers for each of the images, on their device, from torch's own generator."""
    count = len(Numbers._fields)
    return Numbers(*torch.rand(count, len(images), device=images.device, dtype=images.dtype))


def augmented(images: Tensor, numbers: Numbers, settings: Augmentation, *, unit: bool) -> Tensor:
    """Return images as these numbers change them: (n, channels, height, width), laid out channels-last.

    unit: values are 0-1 and stay so.

    >>> images = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    >>> augmented(images, drawn(images), Augmentation(flip=1.0), unit=False).tolist()
    [[[[2.0, 1.0], [4.0, 3.0]]]]
    """
    x = images
    if settings.crop or settings.flip:
        x = _cropped(x, numbers, settings)
    if settings.rotation or settings.translation or settings.zoom:
        x = _moved(x, numbers, settings)
    if settings.brightness or settings.contrast:
        x = _lit(x, numbers, settings)
        x = x.clamp(0, 1) if unit else x
    if settings.cutout:
        x = x * ~_square(x, numbers, settings.cutout)
    return x.contiguous(memory_format=torch.channels_last)


def _cropped(images: Tensor, numbers: Numbers, settings: Augmentation) -> Tensor:
    """Move images by whole pixels, and mirror them: each value is read from its place."""
    height, width = images.shape[2:]
    down = _places(height, numbers.crop_down, settings)[:, :, None]
    across = _places(width, numbers.crop_across, settings)
    across = torch.where((numbers.flip < settings.flip)[:, None], across.flip(1), across)[:, None, :]
    there = (down >= 0) & (down < height) & (across >= 0) & (across < width)
    each = torch.arange(len(images), device=images.device)[:, None, None]
    pixels = images.permute(0, 2, 3, 1)[each, down.clamp(0, height - 1), across.clamp(0, width - 1)]
    return (pixels * there[..., None]).permute(0, 3, 1, 2)


def _places(side: int, draw: Tensor, settings: Augmentation) -> Tensor:
    """Give the row, or column, from which each one of a moved image comes: (n, side)."""
    most = round(settings.crop * side)
    moved = (draw * (2 * most + 1)).long().clamp(max=2 * most) - most
    at = torch.arange(side, device=draw.device) + moved[:, None]
    if settings.border == "zeros":
        return at
    return (side - 1 - (side - 1 - at.abs()).abs()).clamp(0, side - 1)  # mirrored about the outermost pixels


def _moved(images: Tensor, numbers: Numbers, settings: Augmentation) -> Tensor:
    """Rotate, move and zoom images about their middle, in one resampling."""
    height, width = images.shape[2:]
    y, x = ((torch.arange(s, device=images.device) + 0.5 - s / 2).to(images.dtype) for s in (height, width))
    angle = (_either(numbers.rotation) * math.radians(settings.rotation))[:, None, None]
    zoom = 1 + (_either(numbers.zoom) * settings.zoom)[:, None, None]
    down, across = (_either(draw) * settings.translation for draw in (numbers.down, numbers.across))
    y, x = y[:, None] - (down * height)[:, None, None], x - (across * width)[:, None, None]
    cosine, sine = 2 * angle.cos() / zoom, 2 * angle.sin() / zoom
    grid = torch.stack([(cosine * x + sine * y) / width, (cosine * y - sine * x) / height], dim=-1)
    mode = "zeros" if settings.border == "zeros" else "reflection"
    return F.grid_sample(images, grid, mode="bilinear", padding_mode=mode, align_corners=False)


def _lit(images: Tensor, numbers: Numbers, settings: Augmentation) -> Tensor:
    """Change each image's contrast about its mean, and its brightness."""
    mean = images.mean(dim=(1, 2, 3), keepdim=True)
    more = 1 + _either(numbers.contrast) * settings.contrast
    added = _either(numbers.brightness) * settings.brightness
    return (images - mean) * more.view(-1, 1, 1, 1) + mean + added.view(-1, 1, 1, 1)


def _square(images: Tensor, numbers: Numbers, share: float) -> Tensor:
    """Tell which pixels lie in a square about any pixel, cut off at the edge: (n, 1, height, width)."""
    inside = []
    for side, draw in zip(images.shape[2:], (numbers.cutout_down, numbers.cutout_across), strict=True):
        long = round(share * side)
        first = (draw * side).long().clamp(max=side - 1)[:, None] - long // 2
        at = torch.arange(side, device=images.device)
        inside.append((at >= first) & (at < first + long))
    return (inside[0][:, :, None] & inside[1][:, None, :])[:, None]


def _either(draw: Tensor) -> Tensor:
    """Bring 0-1 to between -1 and 1."""
    return 2 * draw - 1
