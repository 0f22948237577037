"""Preparation: what stands between stored inputs and what a network is shown; saved with the network."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from shels.config import NetworkSettings
from shels.data.images import DEFAULT_SIDE
from shels.errors import DataError

BACKBONE_SIDE = 128
"""Side of the images that a backbone is shown, unless another is chosen: a third of the time of 224."""
_IMAGENET_MEAN = (0.485, 0.456, 0.406)
_IMAGENET_SD = (0.229, 0.224, 0.225)
LEAST_OF_EMBEDDING = 128
"""Values that vectors have at least where they are taken for features already; shorter ones are a table."""
_ONE_UNIT = 30
"""How many times the median value's spread any value of an embedding may have."""


@dataclass(frozen=True, eq=False)
class Preparation:
    """Brings inputs to the shape and scale of a network, a batch at a time, on the device they are on.

    shape: (channels, height, width) for images, (d,) for vectors.
    mean, sd: what is taken off and divided by; per channel for images, per value for vectors.
    """

    shape: tuple[int, ...]
    image_fit: Literal["resize", "pad"] = "resize"
    mean: Tensor | None = None
    sd: Tensor | None = None

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return float32 inputs of `shape`: (n, *shape)."""
        self.check(inputs)
        x = inputs.float() / 255 if inputs.dtype == torch.uint8 else inputs.float()
        if len(self.shape) == 3:
            x = fitted(x, self.shape[1:], self.image_fit)
        if self.mean is not None and self.sd is not None:
            view = (-1, 1, 1) if len(self.shape) == 3 else (-1,)
            x = (x - self.mean.to(x.device).view(view)) / self.sd.to(x.device).view(view)
        return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x

    def to(self, device: torch.device) -> Preparation:
        """Return the same with its numbers on a device, so that no batch waits for them."""
        if self.mean is None or self.sd is None:
            return self
        return replace(self, mean=self.mean.to(device), sd=self.sd.to(device))

    def same_as(self, other: Preparation) -> bool:
        """Tell whether another preparation does the same to every input."""
        if (self.shape, self.image_fit) != (other.shape, other.image_fit):
            return False
        pairs = ((self.mean, other.mean), (self.sd, other.sd))
        return all(a is b or (a is not None and b is not None and torch.equal(a, b)) for a, b in pairs)

    @property
    def evaluation_batch(self) -> int:
        """How many inputs to take through a network at once where no gradient is kept."""
        return max(32, min(512, 2**22 // math.prod(self.shape)))

    def check(self, inputs: Tensor) -> None:
        """Raise unless these inputs are of the kind that the network was trained on."""
        same_kind = inputs.ndim == len(self.shape) + 1
        if not same_kind or inputs.shape[1] != self.shape[0]:
            got = (
                _describe(inputs.shape[1:])
                if inputs.ndim in (2, 4)
                else f"an array of shape {tuple(inputs.shape)}"
            )
            colour = {1: "grey", 3: "RGB"}.get(self.shape[0])
            hint = f"; convert them to {colour}" if same_kind and inputs.ndim == 4 else ""
            alone = inputs.ndim == 4 and inputs.shape[1] == 1 and inputs.shape[3] == self.shape[0] == 3
            if (inputs.ndim == 2 and len(self.shape) == 3) or alone:
                hint = "; one image alone is x[None]"
            raise DataError(f"the model was trained on {self.describe()}, got {got}{hint}")

    def describe(self) -> str:
        """Return the expected inputs in words."""
        return _describe(self.shape)


def channels_last(x: Tensor) -> Tensor:
    """Have a CPU's convolutions and pooling take images of one channel with channels last, as those of more.

    In memory the two are the same for one channel, and PyTorch takes the other, in which to pool maps takes
    as long as to compute them: a network of grey images is a fifth to a half quicker so.
    """
    if x.ndim != 4 or x.shape[1] != 1 or x.is_cuda or not x.is_contiguous():
        return x
    height, width = x.shape[2:]
    return x.as_strided(x.shape, (height * width, 1, width, 1))


def prepare_for(inputs: Tensor, settings: NetworkSettings) -> Preparation:
    """Return the preparation for a network trained on these inputs.

    Vectors are standardised by the training data, embeddings by one spread for all values.
    """
    if inputs.ndim == 2:
        return _prepare_vectors(inputs)
    channels = inputs.shape[1]
    height, width = (min(side, DEFAULT_SIDE) for side in inputs.shape[2:])
    if settings.image_size is not None or settings.backbone is not None:
        height = width = settings.image_size or BACKBONE_SIDE
    shape = (channels, height, width)
    if settings.pixels == "unit":
        return Preparation(shape, settings.image_fit)
    if channels != 3:
        raise DataError(f"ImageNet normalisation needs RGB images, got {channels} channel(s)")
    return Preparation(shape, settings.image_fit, torch.tensor(_IMAGENET_MEAN), torch.tensor(_IMAGENET_SD))


def _prepare_vectors(inputs: Tensor) -> Preparation:
    """Centre vectors and bring each value to a spread of 1; those of an embedding all by the same number.

    These have one unit: a value that hardly varies says little, and stretched it would be noise. Where one
    spreads many times as far as most, the units differ after all. A constant value is only centred.
    """
    exact = inputs.double()  # in float32 the spread of a constant is rounding noise, not 0
    varies = inputs.amax(dim=0) > inputs.amin(dim=0)
    sd = torch.where(varies, exact.std(dim=0, correction=0), 1.0)
    if len(sd) >= LEAST_OF_EMBEDDING and bool(varies.any()):
        spread = sd[varies]
        if spread.max() <= _ONE_UNIT * spread.median():
            sd = spread.square().mean().sqrt().expand_as(sd)
    return Preparation((inputs.shape[1],), mean=exact.mean(dim=0).float(), sd=sd.float().contiguous())


def fitted(images: Tensor, size: tuple[int, ...], how: str) -> Tensor:
    """Return images of values 0-1 at this size, resampled or set in a black frame: (n, c, h, w)."""
    height, width = images.shape[2:]
    if (height, width) == tuple(size):
        return images
    if how == "pad" and height <= size[0] and width <= size[1]:
        top, left = (size[0] - height) // 2, (size[1] - width) // 2
        return F.pad(images, (left, size[1] - width - left, top, size[0] - height - top))
    return F.interpolate(images, size=list(size), mode="bilinear", antialias=True).clamp(0, 1)


def _describe(shape: torch.Size | tuple[int, ...]) -> str:
    if len(shape) == 3:
        colour = {1: "grey", 3: "RGB"}.get(shape[0], f"{shape[0]}-channel")
        return f"{colour} images of {shape[1]}x{shape[2]} pixels"
    return f"vectors of {shape[0]} values"
