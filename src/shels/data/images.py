"""Image files into small arrays of one size and one kind of pixel."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from shels.data.decoding import decoding, kind_of
from shels.data.samples import Samples
from shels.errors import (
    DataError,
    MissingDataError,
    MissingExtraError,
    SettingsError,
    TooLargeError,
    unknown_name,
)

if TYPE_CHECKING:
    from PIL.Image import Image

Source: TypeAlias = Path | IO[bytes]

_PHOTOS = (".jpg", ".jpeg", ".jfif", ".webp", ".avif", ".heic", ".heif", ".hif")
SUFFIXES = frozenset([*_PHOTOS, ".png", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff"])
DEFAULT_SIDE = 64
ORIENTATION = 0x0112  # the EXIF tag; values 5-8 turn the image by a quarter
DRAFT = 3
"""A large JPEG is decoded at a half, a quarter or an eighth, but no smaller than so many times its target."""

_HEIF_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")

MAX_PIXELS = 50_000_000
"""Of one image, unless more are allowed: what a decoder unpacks in a second or two."""
PIXELS_VARIABLE = "SHELS_MAX_PIXELS"
_allowed: ContextVar[int | None] = ContextVar("allowed pixels", default=None)
_largest: ContextVar[int] = ContextVar("largest side", default=DEFAULT_SIDE)


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


@contextmanager
def side_limit(most: int) -> Iterator[None]:
    """Let images be read with sides of so many pixels while this lasts, where no size is asked for.

    Beyond 64, the limit of small networks, images are never enlarged: those of many sizes are brought to what
    they typically have, or to the limit.
    """
    token = _largest.set(_pixel_count(most, "most"))
    try:
        yield
    finally:
        _largest.reset(token)


def common_side(typical: int) -> int:
    """Return the side that images of several sizes are brought to, by what they typically have.

    >>> common_side(200), common_side(40)
    (64, 64)
    >>> with side_limit(128):
    ...     common_side(200), common_side(40)
    (128, 40)
    """
    most = largest_side()
    return most if most <= DEFAULT_SIDE else min(most, typical)


def largest_side() -> int:
    """Return the largest side that images keep where no size is asked for: see `side_limit`."""
    return _largest.get()


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


def read_pixels(source: Source, name: object, channels: str | None, side: int | None) -> Tensor:
    """Return one image, resized to side x side where given: (channels, height, width), uint8.

    channels: "grey" or "rgb"; None leaves it what it is of these.
    """
    from PIL import Image  # noqa: PLC0415

    image = decode(source, name, side)
    with usable(str(name)):
        image = to_kind(image, channels or ("grey" if is_grey(image) else "rgb"))
        if side is not None and image.size != (side, side):
            image = image.resize((side, side), Image.Resampling.BILINEAR)
    return to_tensor(image)


def read_header(source: Source, name: object = None) -> Header:
    """Return the size and kind of an image, upright; an error calls it `name`, by default its path."""
    with _opened(source, name or source) as image:
        return Header(*_upright_size(image), is_grey(image))


def _upright_size(image: Image) -> tuple[int, int]:
    """Return the width and height; small images, whose sizes are compared, are decoded to be sure of them."""
    width, height = image.size
    if width == height:
        return width, height
    if max(width, height) <= DEFAULT_SIDE:
        image.load()
        return upright(image).size
    turned = "exif" in image.info and _orientation(image) >= 5
    return (height, width) if turned else (width, height)


def decode(source: Source, name: object, side: int | None = None) -> Image:
    """Return the first frame of an image upright with its pixels loaded; an error calls it `name`.

    side: where it will be brought to; of a JPEG far larger than that, fewer pixels are decoded.
    """
    with _opened(source, name) as image:
        if side is not None:
            image.draft(None, (DRAFT * side, DRAFT * side))
        image.load()
        return upright(image)


def upright(image: Image) -> Image:
    """Return an image turned as its EXIF data say; where these are damaged, as it is stored."""
    from PIL.Image import Transpose  # noqa: PLC0415

    orientation = _orientation(image)
    if orientation == 1:
        return image
    mirrors = {2: Transpose.FLIP_LEFT_RIGHT, 4: Transpose.FLIP_TOP_BOTTOM}
    turns = {3: Transpose.ROTATE_180, 6: Transpose.ROTATE_270, 8: Transpose.ROTATE_90}
    both = {5: Transpose.TRANSPOSE, 7: Transpose.TRANSVERSE}
    return image.transpose((mirrors | turns | both)[orientation])


def _orientation(image: Image) -> int:
    value: object = None
    with suppress(Exception):  # anything may stand in a file, and the picture can be whole all the same
        value = image.getexif().get(ORIENTATION)
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


@contextmanager
def _opened(source: Source, name: object) -> Iterator[Image]:
    """Open an image whose header promises no more pixels than allowed; nothing is decoded yet."""
    from PIL import Image  # noqa: PLC0415

    if isinstance(source, Path) and not kind_of(source):
        require_target(source)
    most = max_pixels()
    if Image.MAX_IMAGE_PIXELS is not None and most > Image.MAX_IMAGE_PIXELS:
        Image.MAX_IMAGE_PIXELS = most  # Pillow has a limit of its own, and it is asked to allow more
    advice = f"more than {most} pixels; make it smaller, or allow more by --max-pixels or {PIXELS_VARIABLE}"
    with usable(name), ExitStack() as stack:
        try:
            image = stack.enter_context(_identified(source, name))
        except Image.DecompressionBombError as error:
            raise TooLargeError(f"{name} has {advice}") from error
        width, height = image.size
        if width * height > most:
            raise TooLargeError(f"{name} has {width} x {height}, {advice}")
        if image.format == "EPS":  # Pillow would hand it to another program, which runs what is in it
            raise DataError(f"{name} is a program for printers; save it as PNG")
        yield image


def _identified(source: Source, name: object) -> Image:
    """Open what Pillow knows, and HEIC where pillow-heif is there for it, whatever its name ends in."""
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415

    try:
        return Image.open(source)
    except UnidentifiedImageError as error:
        start = _start(source)
        if start[4:8] != b"ftyp" or start[8:12] not in _HEIF_BRANDS:
            what = "it is of no kind that Pillow knows" if start else "it is empty"
            raise ValueError(what) from error
    try:
        from pillow_heif import register_heif_opener  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("pillow-heif", "heic", f"{name} is a HEIC photo: reading it") from error
    register_heif_opener()
    return Image.open(source)


def _start(source: Source) -> bytes:
    if isinstance(source, Path):
        with source.open("rb") as file:
            return file.read(12)
    source.seek(0)
    start = source.read(12)
    source.seek(0)
    return start


def require_target(path: Path) -> None:
    """Raise where there is no file, or only a link to none."""
    if not os.path.lexists(path):
        raise MissingDataError(f"{path} is not there")
    if path.is_symlink() and not kind_of(path):
        there = path.readlink()
        raise MissingDataError(f"{path} is a link to {there}, which cannot be reached; mend or remove it")


def usable(name: object) -> AbstractContextManager[None]:
    """Turn whatever fails while an image is decoded or converted into an error that names it."""
    return decoding(name, "is not an image that can be used", "repair or remove it")


def is_grey(image: Image) -> bool:
    """Return whether an image has one channel, alpha not counted."""
    return image.mode in ("1", "L", "LA", "La", "F") or image.mode.startswith("I")


def to_kind(image: Image, channels: str) -> Image:
    """Return an image with 8 bits a channel, grey (L) or RGB; what is transparent lies on white."""
    if image.mode.startswith("I") or image.mode == "F":
        image = _eight_bits(image)
    if image.has_transparency_data:
        image = _on_white(image)
    mode = "L" if channels == "grey" else "RGB"
    return image if image.mode == mode else image.convert(mode)


def _on_white(image: Image) -> Image:
    from PIL import Image as Pillow  # noqa: PLC0415

    image = image.convert("RGBA")
    return Pillow.alpha_composite(Pillow.new("RGBA", image.size, "white"), image)


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
