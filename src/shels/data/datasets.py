"""Data sets of other libraries: torch and torchvision, Hugging Face, pandas."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from shels.data import images, manner, own, path_lists, reading, sources
from shels.data.arrays import images_or_vectors, label_list, positions, sorted_classes
from shels.data.finding import Found, ImageFile
from shels.data.samples import Label, Samples
from shels.errors import DataError, SettingsError


def samples_of(x: Any, y: Any, side: int | None = None) -> Samples | None:
    """Return the samples of data that bring their files or labels; None for anything else, arrays above all.

    x: a torch or Hugging Face data set; a pandas frame with a column of paths or images and one of labels;
    what `sources.load` takes: these without y. Or, with y, a list or a column of paths or of images of any
    size. Files that cannot be read are left out, and a warning names them.
    """
    column = _column(x)
    if column is not None:
        return _from_column(column, _labels(x) if y is None else y, side)
    kind = _kind(x)
    if kind is None:
        return None
    if y is not None:
        raise SettingsError(f"a {_called(x)} brings its own labels: call fit without y")
    return kind(x, side)


def inputs_of(x: Any, size: int | None, channels: str | None, side: int | None = None) -> Tensor | None:
    """Return the inputs of what `samples_of` takes, labels or not; a file that cannot be read is an error.

    size: what image files are brought to. channels: what all images are brought to. side: of images in data
    sets that differ in size.
    """
    if _is_path(x):
        return _below(Path(x).expanduser(), size, channels)
    if isinstance(x, Dataset):
        return images.with_channels(from_torch_dataset(x, side=side).inputs, channels)
    if is_hugging_face(x):
        image, _ = _hugging_face_columns(x)
        found = from_torch_dataset(_Rows(x, image, None), side=side).inputs
        return images.with_channels(found, channels)
    column = [x] if hasattr(x, "convert") else _column(x)  # a PIL image alone is one of many
    if column is None:
        return None
    with manner.file_reading(strict=True):
        if _is_path(column[0]):
            return reading.read_files(_path_files(column), size, channels).inputs
        found = from_torch_dataset([(image, 0) for image in column], "X", side).inputs
        return images.with_channels(found, channels)


def _below(path: Path, size: int | None, channels: str | None) -> Tensor:
    """Return the images of a file, of a folder and all below it, a zip or a CSV, or what an .npz has."""
    if not path.exists():
        raise DataError(f"X: there is no file or folder {path}")
    if path.suffix.lower() == ".npz":
        return images.with_channels(own.read_npz_inputs(path), channels)
    with manner.file_reading(strict=True):
        return own.read_images([path], size, channels)[0]


def _kind(x: Any) -> Callable[[Any, int | None], Samples] | None:
    """Choose how a whole data set is read; None where it is none."""
    if isinstance(x, str | os.PathLike):
        return lambda data, side: sources.load(data, size=side).train
    if isinstance(x, Dataset | IterableDataset):
        return lambda data, side: from_torch_dataset(data, side=side)
    return from_hugging_face if is_hugging_face(x) else None


def _called(x: Any) -> str:
    return "torch Dataset" if isinstance(x, Dataset) else f"{type(x).__module__.split('.')[0]} data set"


def _column(x: Any) -> list[Any] | None:
    """Return the values of a list or a column of paths or images; None where it holds anything else.

    Of a frame, its column of that name.
    """
    if hasattr(x, "columns") and hasattr(x, "iloc"):
        name = path_lists.columns_of([str(name) for name in x.columns]).path
        return None if name is None else _column(x[name])
    one_each = isinstance(x, list | tuple) or (getattr(x, "ndim", None) == 1 and not isinstance(x, Tensor))
    if not one_each or not len(x):
        return None
    first = x.iloc[0] if hasattr(x, "iloc") else x[0]
    image = hasattr(first, "convert") or (isinstance(first, np.ndarray | Tensor) and first.ndim in (2, 3))
    return list(x) if image or _is_path(first) else None


def _labels(x: Any) -> Any:
    """Return the column of labels of a frame; None where there is none."""
    columns = path_lists.columns_of([str(name) for name in getattr(x, "columns", ())])
    return None if columns.label is None else x[columns.label]


def _from_column(column: list[Any], y: Any, side: int | None) -> Samples:
    if y is None:
        raise SettingsError("paths and images need labels: fit(frame['path'], frame['label'])")
    labels = label_list(y, "y")
    if len(labels) != len(column):
        raise DataError(f"X and y: {len(column)} inputs but {len(labels)} labels; give one label to each")
    if not _is_path(column[0]):
        return from_torch_dataset(list(zip(column, labels, strict=True)), "X", side)
    read = reading.read_files(_path_files(column, labels), side)
    kept = [file.label for file in read.files]
    names = tuple(sorted_classes(kept))
    called = tuple(file.name for file in read.files)
    return Samples(read.inputs, positions(kept, names, "X"), names, origin="X", names=called)


def _path_files(column: Sequence[Any], labels: Sequence[Label] | None = None) -> Found:
    for row, path in enumerate(column):
        if not _is_path(path):
            raise DataError(f"X: row {row} holds {path!r}, the rows before paths; give a path in every row")
    pairs = zip(column, labels or [None] * len(column), strict=True)
    return Found([ImageFile(str(path), Path(path), label) for path, label in pairs])


def _is_path(value: Any) -> bool:
    return isinstance(value, str | os.PathLike)


def is_hugging_face(data: Any) -> bool:
    """Tell whether this is a `datasets.Dataset`, or several by name; the package need not be there."""
    return hasattr(data, "column_names") and (hasattr(data, "features") or isinstance(data, Mapping))


def from_hugging_face(data: Any, side: int | None = None) -> Samples:
    """Return the images and labels of a Hugging Face `datasets.Dataset`; labels stay as they are.

    Images: the column whose feature is an Image, else one called image, img or like it; decoded, as bytes or
    as paths. Labels: the column whose feature is a ClassLabel, else one called label, class or like it.
    """
    image, label = _hugging_face_columns(data)
    if label is None:
        raise DataError(f"the data set has no column of labels, only {data.column_names}; name one 'label'")
    return from_torch_dataset(_Rows(data, image, label), side=side)


def _hugging_face_columns(data: Any) -> tuple[str, str | None]:
    """Name the columns of images and of labels."""
    if isinstance(data, Mapping):
        raise DataError(f"the data set has the parts {list(data)}; choose one, such as data['train']")
    kinds = {name: type(kind).__name__ for name, kind in (data.features or {}).items()}
    names = list(data.column_names or ())
    columns = path_lists.columns_of(names)
    image = next((name for name in names if kinds.get(name) == "Image"), columns.path)
    if image is None:
        raise DataError(f"the data set has no column of images, only {names}; name one 'image'")
    return image, next((name for name in names if kinds.get(name) == "ClassLabel"), columns.label)


class _Rows:
    """Pairs of image and label from rows that are dictionaries; without a label, all are of one class."""

    def __init__(self, rows: Any, image: str, label: str | None) -> None:
        self.rows, self.image, self.label = rows, image, label

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> tuple[Any, Any]:
        item = self.rows[row]
        return _decoded(item[self.image], f"row {row}"), 0 if self.label is None else item[self.label]


def _decoded(image: Any, name: str) -> Any:
    """Decode an image that comes as its file's bytes or path; others stay as they are."""
    if isinstance(image, Mapping) and image.get("bytes"):
        return images.decode(io.BytesIO(image["bytes"]), name)
    path: Any = image.get("path") if isinstance(image, Mapping) else image
    return images.decode(Path(path), Path(path)) if _is_path(path) else image


def from_torch_dataset(dataset: Any, origin: str = "the data set", side: int | None = None) -> Samples:
    """Return every (image, label) of a map-style torch data set, torchvision's too; labels stay as they are.

    An image: a PIL image, a tensor (c, h, w) or (h, w), an array (h, w) or (h, w, c), or a vector (d,).
    Images of one size keep it, unless a side is over four times `side` or 64 pixels; others are brought to
    side x side, or 64 x 64, as they come.
    """
    images.check_form(side, None)
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
        raise DataError(
            f"{origin}: a data set that can only be iterated has no fixed samples to hold out; "
            "give one with __getitem__ and __len__, or collect it into arrays"
        )
    if not hasattr(dataset, "__len__") or len(dataset) == 0:
        raise DataError(f"{origin}: the data set is empty or has no length; it needs at least one sample")
    inputs, labels = _Gathered(origin, side), []
    for row in range(len(dataset)):
        image, label = _item(dataset[row], f"{origin}: item {row}")
        inputs.add(image)
        labels.append(label)
    named = label_list(labels, origin)
    names = tuple(sorted_classes(named))
    return Samples(torch.stack(inputs.found), positions(named, names, origin), names, origin=origin)


class _Gathered:
    """Images as they come: as they are while they have one moderate size, else brought to one side.

    Grey ones among colour ones become RGB.
    """

    def __init__(self, origin: str, side: int | None) -> None:
        self.origin = origin
        self.side = side or images.largest_side()
        self.found: list[Tensor] = []
        self._resized = False

    def add(self, image: Tensor) -> None:
        """Put one more image to those that came."""
        image = self._coloured(image)
        first = self.found[0] if self.found else image
        if (image.ndim, image.dtype, image.shape[0]) != (first.ndim, first.dtype, first.shape[0]):
            self._refuse(image, first)
        if image.ndim == 3 and not self._resized:
            self._resized = image.shape != first.shape or max(image.shape[1:]) > 4 * self.side
            if self._resized:
                self.found = [images.resize(each, self.side) for each in self.found]
        elif image.shape != first.shape and not self._resized:
            self._refuse(image, first)
        self.found.append(images.resize(image, self.side) if self._resized else image)

    def _coloured(self, image: Tensor) -> Tensor:
        """Give an image the three colours that others have, or those others the three that it has."""
        first = self.found[0] if self.found else image
        if image.ndim != 3 or first.ndim != 3 or image.shape[0] == first.shape[0]:
            return image
        if image.shape[0] == 3:
            self.found = [images.with_channels(each[None], "rgb")[0] for each in self.found]
            return image
        return images.with_channels(image[None], "rgb")[0]

    def _refuse(self, image: Tensor, first: Tensor) -> None:
        raise DataError(
            f"{self.origin}: item {len(self.found)} has shape {tuple(image.shape)} and {image.dtype}, but "
            f"item 0 {tuple(first.shape)} and {first.dtype}; give all items one kind of input"
        )


def _item(item: Any, name: str) -> tuple[Tensor, Any]:
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise DataError(f"{name} must be a pair (image, label), got {type(item).__name__}")
    image, label = item
    if hasattr(image, "convert"):  # a PIL image
        with images.usable(name):
            image = images.upright(image)
            return images.to_tensor(images.to_kind(image, "grey" if images.is_grey(image) else "rgb")), label
    if not isinstance(image, Tensor | np.ndarray) or image.ndim not in (1, 2, 3):
        shape = f" of shape {tuple(image.shape)}" if hasattr(image, "shape") else ""
        raise DataError(
            f"{name}: the image must be a PIL image, a tensor (c, h, w) or (h, w), an array (h, w, c), "
            f"or a vector (d,), got {type(image).__name__}{shape}"
        )
    if isinstance(image, Tensor) and image.ndim == 3:
        image = image.permute(1, 2, 0)
    try:
        return images_or_vectors(image[None], name)[0], label
    except DataError as error:
        hint = " (leave Normalize out of the transform)" if "0-1" in str(error) else ""
        raise DataError(f"{error}{hint}") from error
