"""What people send, as checked inputs of a model: images, .npz and .npy files, JSON. Nothing is unpickled.

Sizes are checked before anything is unpacked; what is sent never becomes a path.
"""

from __future__ import annotations

import ast
import io
import json
import math
import struct
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shels.data.arrays import images_or_vectors
from shels.data.decoding import decoding
from shels.data.images import Header, pixel_limit, read_header, read_pixels, with_channels
from shels.data.inputs import form
from shels.data.preparation import Preparation
from shels.errors import DataError, TooLargeError
from shels.service.limits import Limits
from shels.service.problems import RefusedError

NPZ, NPY, JSON = "application/x-npz", "application/x-npy", "application/json"
_ARCHIVES = (NPZ, "application/zip", "application/octet-stream", "application/x-zip-compressed")
_SAMPLES = "samples"


@dataclass(frozen=True)
class File:
    """A file as it was sent; its name is only ever shown."""

    name: str
    content: bytes


class Decoder:
    """Reads what is sent for one model within limits."""

    def __init__(self, preparation: Preparation, limits: Limits) -> None:
        self.preparation = preparation
        self.limits = limits

    def body(self, kind: str, content: bytes) -> Tensor:
        """Read a body that is no form: an archive, an array, JSON or a single image."""
        if not content:
            raise RefusedError(422, "the body is empty; send images, an .npz file with x, or JSON", "body")
        if kind in _ARCHIVES or kind == NPY:
            return self.checked(self._array(content, "the body"))
        if kind == JSON:
            return self.checked(self._from_json(content))
        if kind.startswith("image/"):
            return self.images([File("the image", content)])
        raise RefusedError(
            415,
            f"{kind or 'a body without a content type'} is not taken; send multipart/form-data with images, "
            f"{NPZ}, {NPY}, {JSON} or image/*",
            "content-type",
        )

    def files(self, files: Sequence[File]) -> Tensor:
        """Read the files of a form: images, or one .npz or .npy file."""
        if not files:
            raise RefusedError(422, "the form holds no file; add images, or one .npz file with x", "files")
        arrays = [file for file in files if file.content[:4] == b"PK\x03\x04" or _is_npy(file.content)]
        if not arrays:
            return self.images(files)
        if len(files) > 1:
            raise RefusedError(422, "send one .npz file, or images, not both", "files")
        return self.checked(self._array(files[0].content, files[0].name))

    def images(self, files: Sequence[File]) -> Tensor:
        """Read image files, each at the size that the model takes."""
        if len(self.preparation.shape) != 3:
            raise RefusedError(422, f"the model takes {self.preparation.describe()}, not images; send JSON")
        self._check_count(len(files))
        left, found = self.limits.all_pixels, []
        size, channels = form(self.preparation)
        with pixel_limit(self.limits.pixels):
            for file in files:
                header = self._header(file)
                left -= header.width * header.height
                if left < 0:
                    most = self.limits.all_pixels
                    raise RefusedError(
                        413, f"the images have over {most} pixels together; send fewer", "files"
                    )
                found.append(read_pixels(io.BytesIO(file.content), file.name, channels, size))
        if len({image.shape for image in found}) == 1:
            return self.checked(torch.stack(found))
        bring = replace(self.preparation, mean=None, sd=None)
        return self.checked(torch.cat([bring(image[None]) for image in found]))

    def _header(self, file: File) -> Header:
        try:
            return read_header(io.BytesIO(file.content), file.name)
        except TooLargeError as error:
            words = f"{file.name} has more than {self.limits.pixels} pixels; send it smaller"
            raise RefusedError(413, words, "files") from error

    def checked(self, inputs: Tensor) -> Tensor:
        """Refuse what is not what the model was trained on."""
        self._check_count(len(inputs))
        self.preparation.check(inputs)
        return inputs

    def tensor(self, values: Any, shape: Sequence[int] | None, name: str, kind: str | None = None) -> Tensor:
        """Read nested lists, or flat ones with a shape, as inputs. kind: of the numbers."""
        try:
            array = np.asarray(values)
            if array.dtype.kind in "buif" and kind is not None:
                with np.errstate(over="ignore"):
                    array = array.astype(kind)
            array = array if shape is None else array.reshape(tuple(shape))
        except (ValueError, TypeError, OverflowError) as error:
            raise RefusedError(422, f"{name} is not one array of numbers ({error})", name) from error
        if array.dtype.kind not in "buif":
            raise RefusedError(422, f"{name} must hold numbers alone, all rows of one length", name)
        return self._inputs(array, name)

    def _inputs(self, array: np.ndarray[Any, Any], name: str) -> Tensor:
        self._check_count(len(array) if array.ndim else 0)
        inputs = images_or_vectors(array, name)
        return with_channels(inputs, form(self.preparation)[1])

    def _check_count(self, count: int) -> None:
        if count > self.limits.samples:
            words = f"{count} samples in one request; {self.limits.samples} are the most, send them in parts"
            raise RefusedError(413, words, _SAMPLES)
        if not count:
            raise RefusedError(422, "there is no sample; send one or more", _SAMPLES)

    def _from_json(self, content: bytes) -> Tensor:
        try:
            found = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise RefusedError(422, f"the body is not JSON ({error})", "body") from error
        if not isinstance(found, dict) or "inputs" not in found:
            raise RefusedError(422, 'send {"inputs": [[…], …]}, a row for each sample', "inputs")
        return self.tensor(found["inputs"], None, "inputs")

    def _array(self, content: bytes, name: str) -> Tensor:
        if _is_npy(content):
            return self._inputs(self._npy(content, name), name)
        with (
            decoding(name, "is not a whole .npz file", "write it with np.savez(file, x=inputs)"),
            zipfile.ZipFile(io.BytesIO(content)) as archive,
        ):
            names = archive.namelist()
            member = "x.npy" if "x.npy" in names else names[0] if len(names) == 1 else ""
            if not member.endswith(".npy"):
                raise ValueError("it has no array x")
            size = archive.getinfo(member).file_size
            if size > 8 * self.limits.body:
                raise RefusedError(413, f"{name} would unpack to {size} bytes; send it in parts", "x")
            array = self._npy(archive.read(member), name)
        return self._inputs(array, name)

    def _npy(self, content: bytes, name: str) -> np.ndarray[Any, Any]:
        """Read an .npy file that holds as much as its head says; objects are refused by their kind."""
        with decoding(name, "is not a whole .npy array", "write it with np.save(file, inputs)"):
            start, head = _npy_head(content)
            dtype, shape = np.dtype(head["descr"]), tuple(head["shape"])
            if dtype.hasobject or dtype.kind not in "buif":
                raise DataError(f"{name} holds {dtype}, not numbers; nothing is unpickled")
            count = math.prod(shape)
            if count * dtype.itemsize != len(content) - start:
                raise ValueError("its size is not what its head says")
            array = np.frombuffer(content, dtype, count, start)
            return array.reshape(shape, order="F" if head["fortran_order"] else "C")


def _is_npy(content: bytes) -> bool:
    return content[:6] == b"\x93NUMPY"


def _npy_head(content: bytes) -> tuple[int, dict[str, Any]]:
    """Read the head of an .npy file: where the numbers begin, and what they are."""
    wide = content[6] >= 2
    length = struct.unpack("<I" if wide else "<H", content[8 : 12 if wide else 10])[0]
    start = (12 if wide else 10) + length
    if length > 10_000:
        raise ValueError("its head is too long")
    return start, _literal(content[start - length : start])


@lru_cache(maxsize=256)
def _literal(text: bytes) -> dict[str, Any]:
    """Read a literal, which is never run."""
    head: dict[str, Any] = ast.literal_eval(text.decode("latin1"))
    whole = isinstance(head, dict) and set(head) == {"descr", "fortran_order", "shape"}
    if not whole or not isinstance(head["descr"], str) or not all(_is_size(each) for each in head["shape"]):
        raise ValueError("its head is not one of an array of numbers")
    return head


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
