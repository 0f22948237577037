"""Stored images as PNG."""

from __future__ import annotations

import io

from torch import Tensor

from shels.errors import DataError


def png(image: Tensor) -> bytes:
    """Draw one image, (channels, height, width), uint8 or float 0-1."""
    from PIL import Image  # noqa: PLC0415

    if image.ndim != 3:
        raise DataError("the model was trained on vectors, which have no picture")
    pixels = image if image.dtype.itemsize == 1 else (image.clamp(0, 1) * 255).round().byte()
    array = pixels.permute(1, 2, 0).cpu().numpy()
    file = io.BytesIO()
    Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array).save(file, "PNG")
    return file.getvalue()
