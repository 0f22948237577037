"""Image files into small arrays of one size and one kind of pixel."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from shels.data.decoding import decoding
from shels.data.samples import Samples
from shels.errors import DataError, MissingDataError, SettingsError, unknown_name

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = frozenset([".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".webp", ".tif", ".tiff"])
DEFAULT_SIDE = 64
ORIENTATION = 0x0112  # the EXIF tag; values 5-8 turn the image by a quarter

MAX_PIXELS = 50_000_000
"""Of one image, unless more are allowed: what a decoder unpacks in a second or two."""
PIXELS_VARIABLE = "SHELS_MAX_PIXELS"
_allowed: ContextVar[int | None] = ContextVar("allowed pixels", default=None)


@contextmanager
def pixel_limit(most: int) -> Iterator[None]:
    """Allow images of so many pixels while this lasts, instead of $SHELS_MAX_PIXELS or 50 million.

    >>> with pixel_limit(10**8):
    ...     max_pixels()
    100000000
    """
    token = _allowed.set(_pixel_count(most, "most"))
    try:
        yield
    finally:
        _allowed.reset(token)


def max_pixels() -> int:
    """Return how many pixels an image may have: see `pixel_limit`."""
    chosen, variable = _allowed.get(), os.environ.get(PIXELS_VARIABLE)
    if chosen is not None or not variable:
        return chosen or MAX_PIXELS
    return _pixel_count(int(variable) if variable.isdecimal() else variable, PIXELS_VARIABLE)


def _pixel_count(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise SettingsError(f"{name} must be a whole number of pixels, 1 or more, got {value!r}")
    return value


@dataclass(frozen=True)
class Header:
    """What an image file says about itself before its pixels are decoded."""

    width: int
    height: int
    grey: bool


def check_form(size: int | None, channels: str | None) -> None:
    """Raise unless size and channels are forms that images can be brought to."""
    if size is not None:
        _pixel_count(size, "size")
    if channels not in (None, "grey", "rgb"):
        raise SettingsError(unknown_name("channels", channels, ("grey", "rgb")))


def read_files(paths: Sequence[Path], size: int | None = None, channels: str | None = None) -> Tensor:
    """Return images of one size and one kind of pixel: (n, channels, height, width), uint8.

    size None keeps the size where all images have the same and no side is over 64; else 64 x 64.
    channels None takes what the files have, which must then be the same in all.
    """
    check_form(size, channels)
    headers = [read_header(path) for path in paths]
    kind = channels or _common_channels(paths, headers)
    sizes = {(header.width, header.height) for header in headers}
    small = len(sizes) == 1 and max(*sizes.pop()) <= DEFAULT_SIDE
    side = size or (None if small else DEFAULT_SIDE)
    return torch.stack([read_pixels(path, path, kind, side) for path in paths])


def read_pixels(source: Path | IO[bytes], name: object, channels: str, side: int | None) -> Tensor:
    """Return one image, resized to side x side where given: (channels, height, width), uint8."""
    from PIL import Image  # noqa: PLC0415

    image = decode(source, name)
    with usable(name):
        image = to_kind(image, channels)
        if side is not None and image.size != (side, side):
            image = image.resize((side, side), Image.Resampling.BILINEAR)
    return to_tensor(image)


def read_header(path: Path) -> Header:
    """Return the size and kind of an image file, upright."""
    with _opened(path, path) as image:
        width, height = image.size
        if width != height and image.getexif().get(ORIENTATION, 1) >= 5:
            width, height = height, width
        return Header(width, height, is_grey(image))


def decode(source: Path | IO[bytes], name: object) -> Image:
    """Return an image upright with its pixels loaded; an error calls it `name`."""
    from PIL import ImageOps  # noqa: PLC0415

    with _opened(source, name) as image:
        image.load()
        return ImageOps.exif_transpose(image)


@contextmanager
def _opened(source: Path | IO[bytes], name: object) -> Iterator[Image]:
    """Open an image whose header promises no more pixels than allowed; nothing is decoded yet."""
    from PIL import Image  # noqa: PLC0415

    if isinstance(source, Path) and not os.path.lexists(source):
        raise MissingDataError(f"no image file {name}")
    most = max_pixels()
    if Image.MAX_IMAGE_PIXELS is not None and most > Image.MAX_IMAGE_PIXELS:
        Image.MAX_IMAGE_PIXELS = most  # Pillow has a limit of its own, and it is asked to allow more
    advice = f"more than {most} pixels; make it smaller, or allow more by --max-pixels or {PIXELS_VARIABLE}"
    with usable(name), ExitStack() as stack:
        try:
            image = stack.enter_context(Image.open(source))
        except Image.DecompressionBombError as error:
            raise DataError(f"{name} has {advice}") from error
        width, height = image.size
        if width * height > most:
            raise DataError(f"{name} has {width} x {height}, {advice}")
        if image.format == "EPS":  # Pillow would hand it to another program, which runs what is in it
            raise DataError(f"{name} is a program for printers; save it as PNG")
        yield image


def usable(name: object) -> AbstractContextManager[None]:
    """Turn whatever fails while an image is decoded or converted into an error that names it."""
    return decoding(name, "is not an image that can be used", "repair or remove it")


def is_grey(image: Image) -> bool:
    """Return whether an image has one channel, alpha not counted."""
    return image.mode in ("1", "L", "LA", "La", "F") or image.mode.startswith("I")


def to_kind(image: Image, channels: str) -> Image:
    """Return an image with 8 bits a channel, grey (L) or RGB; alpha is dropped."""
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    if image.mode.startswith("I") or image.mode == "F":
        image = _eight_bits(image)
    return image.convert("L" if channels == "grey" else "RGB")


def to_tensor(image: Image) -> Tensor:
    """Return an L or RGB image as (channels, height, width), uint8."""
    pixels = np.array(image, dtype=np.uint8)
    return torch.from_numpy(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1).copy())


def resize(image: Tensor, size: int) -> Tensor:
    """Return one image (channels, height, width) resized to size x size, bilinear and antialiased."""
    from PIL import Image  # noqa: PLC0415

    if tuple(image.shape[1:]) == (size, size):
        return image
    bilinear = Image.Resampling.BILINEAR
    planes = [Image.fromarray(plane.numpy()).resize((size, size), bilinear) for plane in image]
    return torch.from_numpy(np.stack([np.asarray(plane) for plane in planes]))


def conform(samples: Samples, size: int | None, channels: str | None) -> Samples:
    """Return samples with images of this size and these channels; None leaves them as they are."""
    check_form(size, channels)
    if size is None and channels is None:
        return samples
    if samples.inputs.ndim != 4:
        raise SettingsError(f"{samples.origin}: size and channels are for images, and these are vectors")
    inputs = with_channels(samples.inputs, channels)
    if size is not None and tuple(inputs.shape[2:]) != (size, size):
        resized = [resize(image, size) for image in inputs]
        inputs = torch.stack(resized) if resized else inputs.new_empty((0, inputs.shape[1], size, size))
    return replace(samples, inputs=inputs)


def with_channels(inputs: Tensor, channels: str | None) -> Tensor:
    """Return images with these channels; vectors stay, for the model to accept or refuse."""
    if inputs.ndim != 4 or channels is None or inputs.shape[1] == {"grey": 1, "rgb": 3}[channels]:
        return inputs
    if channels == "rgb":
        return inputs.expand(-1, 3, -1, -1).contiguous()
    luma = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
    grey = (inputs * luma).sum(dim=1, keepdim=True)
    return grey.round().to(torch.uint8) if inputs.dtype == torch.uint8 else grey.clamp(0, 1)


def _common_channels(paths: Sequence[Path], headers: Iterable[Header]) -> str:
    first: dict[bool, Path] = {}
    for path, header in zip(paths, headers, strict=True):
        first.setdefault(header.grey, path)
    if len(first) == 2:
        raise DataError(
            f"grey and colour images are mixed: {first[True]} is grey, {first[False]} is not; "
            'choose channels "rgb" or "grey" for all (--channels on the command line)'
        )
    return "grey" if True in first else "rgb"


def _eight_bits(image: Image) -> Image:
    from PIL import Image as Pillow  # noqa: PLC0415

    values: np.ndarray[Any, Any] = np.asarray(image).astype(np.float64)
    top = 1.0 if image.mode == "F" else 65535.0  # files of 16 bits open as I or I;16
    low, high = float(values.min()), float(values.max())
    if not (low >= 0 and high <= top):
        raise ValueError(
            f"pixels of mode {image.mode} must lie in 0 to {top:g}, got {low:g} to {high:g}; "
            "save the image with 8 or 16 bits a pixel"
        )
    return Pillow.fromarray(np.round(values * (255 / top)).astype(np.uint8))
