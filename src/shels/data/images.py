"""Image files into small arrays of one size and one kind of pixel."""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from shels.data.samples import Samples
from shels.errors import DataError, MissingDataError, SettingsError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from PIL.Image import Image

SUFFIXES = frozenset([".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".webp", ".tif", ".tiff"])
DEFAULT_SIDE = 64
ORIENTATION = 0x0112  # the EXIF tag; values 5-8 turn the image by a quarter


@dataclass(frozen=True)
class Header:
    """What an image file says about itself before its pixels are decoded."""

    width: int
    height: int
    grey: bool


def check_form(size: int | None, channels: str | None) -> None:
    """Raise unless size and channels are forms that images can be brought to."""
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
        raise SettingsError(f"size must be a whole number of pixels, 1 or more, got {size!r}")
    if channels not in (None, "grey", "rgb"):
        raise SettingsError(unknown_name("channels", channels, ("grey", "rgb")))


def is_image(path: Path) -> bool:
    """Return whether the name of a file is that of an image."""
    return path.suffix.lower() in SUFFIXES


def read_files(paths: Sequence[Path], size: int | None = None, channels: str | None = None) -> Tensor:
    """Return images of one size and one kind of pixel: (n, channels, height, width), uint8.

    size None keeps the size where all images have the same and no side is over 64; else 64 x 64.
    channels None takes what the files have, which must then be the same in all.
    """
    check_form(size, channels)
    headers = [read_header(path) for path in paths]
    kind = channels or _common_channels(paths, headers)
    side = size or _needed_side(headers)
    return torch.stack([read_pixels(path, path, kind, side) for path in paths])


def read_pixels(source: Path | IO[bytes], name: object, channels: str, side: int | None) -> Tensor:
    """Return one image, resized to side x side where given: (channels, height, width), uint8."""
    from PIL import Image  # noqa: PLC0415

    image = decode(source, name)
    with _naming(name):
        image = to_kind(image, channels)
        if side is not None and image.size != (side, side):
            image = image.resize((side, side), Image.Resampling.BILINEAR)
    return to_tensor(image)


def read_header(path: Path) -> Header:
    """Return the size and kind of an image file, upright."""
    from PIL import Image  # noqa: PLC0415

    with _naming(path), Image.open(path) as image:
        width, height = image.size
        if width != height and image.getexif().get(ORIENTATION, 1) >= 5:
            width, height = height, width
        return Header(width, height, is_grey(image))


def decode(source: Path | IO[bytes], name: object) -> Image:
    """Return an image upright with its pixels loaded; an error calls it `name`."""
    from PIL import Image, ImageOps  # noqa: PLC0415

    with _naming(name), Image.open(source) as image:
        image.load()
        return ImageOps.exif_transpose(image)


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
    inputs = samples.inputs if channels is None else _with_channels(samples.inputs, channels)
    if size is not None and tuple(inputs.shape[2:]) != (size, size):
        resized = [resize(image, size) for image in inputs]
        inputs = torch.stack(resized) if resized else inputs.new_empty((0, inputs.shape[1], size, size))
    return replace(samples, inputs=inputs)


def _with_channels(inputs: Tensor, channels: str) -> Tensor:
    if channels == "rgb":
        return inputs.expand(-1, 3, -1, -1).contiguous() if inputs.shape[1] == 1 else inputs
    if inputs.shape[1] == 1:
        return inputs
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


def _needed_side(headers: Sequence[Header]) -> int | None:
    sizes = {(header.width, header.height) for header in headers}
    kept = len(sizes) == 1 and max(max(size) for size in sizes) <= DEFAULT_SIDE
    return None if kept else DEFAULT_SIDE


def _eight_bits(image: Image) -> Image:
    from PIL import Image as Pillow  # noqa: PLC0415

    values: np.ndarray[Any, Any] = np.asarray(image).astype(np.float64)
    top = 1.0 if image.mode == "F" else 65535.0  # files of 16 bits open as I or I;16
    low, high = float(values.min()), float(values.max())
    if not (low >= 0 and high <= top):
        raise DataError(
            f"pixels of mode {image.mode} must lie in 0 to {top:g}, got {low:g} to {high:g}; "
            "save the image with 8 or 16 bits a pixel"
        )
    return Pillow.fromarray(np.round(values * (255 / top)).astype(np.uint8))


@contextmanager
def _naming(name: object) -> Iterator[None]:
    """Turn whatever a decoder raises into a DataError that names the file."""
    from PIL import Image  # noqa: PLC0415

    try:
        with warnings.catch_warnings():
            # What a decoder only complains of, such as odd metadata, does no harm to the pixels.
            warnings.simplefilter("ignore", UserWarning)
            yield
    except FileNotFoundError as error:
        raise MissingDataError(f"no image file {name}") from error
    except (
        OSError,
        SyntaxError,
        ValueError,
        EOFError,
        IndexError,
        KeyError,
        TypeError,
        OverflowError,
        struct.error,
        zlib.error,
        Image.DecompressionBombError,
    ) as error:
        raise DataError(f"{name} is not an image that can be used ({error}); repair or remove it") from error
