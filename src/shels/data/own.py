"""Your own data: arrays, an .npz file, a folder of class folders, or a torch data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from shels.data import images
from shels.data.arrays import from_arrays, images_or_vectors, label_list, positions, sorted_classes
from shels.data.decoding import decoding, kind_of
from shels.data.samples import DataSet, Label, Samples
from shels.errors import DataError, MissingDataError

PARTS = {"train", "test", "val", "valid"}
KEYS = "x_train, y_train, x_test, y_test, or x and y"
_MOST_PACKED = 200
"""How many times smaller a large array may be packed; real images come to ten times at most."""


def npz_arrays(path: Path, only: Sequence[str] | None = None) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays of an .npz file, or of those only these; nothing in it is unpickled."""
    if kind_of(path) in ("folder", ""):
        raise MissingDataError(f"no file {path}; give the path of an .npz file")
    with decoding(path, "is not a whole .npz file", "write it again with np.savez"), path.open("rb") as file:
        try:
            archive = np.load(file, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                raise DataError(f"{path} holds one bare array; write {KEYS} with np.savez")
            return {key: _member(archive, key, path) for key in archive.files if only is None or key in only}
        except ValueError as error:
            if "Object arrays" in str(error):
                raise DataError(
                    f"{path} holds an array of Python objects, which is never unpickled; save inputs as "
                    "numbers of one shape and labels with np.array(labels, dtype=str)"
                ) from error
            if "pickle" in str(error):  # numpy's last resort for what it does not know
                raise ValueError("it is no zip archive") from error
            raise


def _member(archive: Any, key: str, path: Path) -> np.ndarray[Any, Any]:
    """Return one array of an .npz file, unless it is none or an archive bomb."""
    info = next(each for each in archive.zip.infolist() if each.filename in (key, f"{key}.npy"))
    if info.file_size > max(_MOST_PACKED * info.compress_size, 2**28):
        raise DataError(f"{path}: {key!r} would unpack to {info.file_size} bytes of next to nothing")
    value = archive[key]
    if not isinstance(value, np.ndarray):
        raise DataError(f"{path}: {key!r} is no array; write {KEYS} with np.savez")
    return value


def read_npz(path: str | Path, classes: Sequence[Label] | None = None) -> DataSet:
    """Return the data set in an .npz file; without a test part, `test` has no samples.

    Keys: x_train, y_train, x_test, y_test, or x and y; track_train numbers the frames of one object.
    """
    path = Path(path)
    arrays = npz_arrays(path)
    parts = [("x", "y")] if "x" in arrays and "x_train" not in arrays else [("x_train", "y_train")]
    if "x_test" in arrays or "y_test" in arrays:
        parts.append(("x_test", "y_test"))
    for key in (key for part in parts for key in part):
        if key not in arrays:
            raise DataError(f"{path} has no array {key!r}, only {sorted(arrays)}; expected {KEYS}")
    labels = [label_list(arrays[key], f"{path}: {key}") for _, key in parts]
    names = sorted_classes(label for part in labels for label in part) if classes is None else classes
    samples = [
        from_arrays(arrays[key], part, f"{path}: {key}", names)
        for (key, _), part in zip(parts, labels, strict=True)
    ]
    train = _with_tracks(samples[0], arrays.get("track_train"))
    return whole_set(path.stem, train, samples[1] if len(samples) == 2 else nothing(train))


def read_npz_inputs(path: str | Path) -> Tensor:
    """Return the unlabelled inputs of an .npz file: its array x, else x_test, else its only array."""
    path = Path(path)
    arrays = npz_arrays(path)
    wanted = ("x", "x_test") if len(arrays) != 1 else tuple(arrays)
    found = [key for key in wanted if key in arrays]
    if not found:
        raise DataError(f"{path} has no array 'x' or 'x_test', only {sorted(arrays)}; save the inputs as x")
    return images_or_vectors(arrays[found[0]], f"{path}: {found[0]}")


def read_folder(path: str | Path, size: int | None = None, channels: str | None = None) -> DataSet:
    """Return the images in a folder of class folders; a class is called as its folder.

    Where the folder holds `train` and `test` (`val` and `valid` are left alone), these are the parts.
    size, channels: as in `images.read_files`, over both parts together.
    """
    path = Path(path)
    folders = _subfolders(path)
    parted = "train" in folders and set(folders) <= PARTS
    train = _class_files(folders["train"] if parted else path)
    test = _class_files(folders["test"]) if parted and "test" in folders else []
    files = [file for _, file in (*train, *test)]
    inputs = images.read_files(files, size, channels)
    labels = [label for label, _ in (*train, *test)]
    names = tuple(sorted(set(labels)))
    called = tuple(map(str, files))
    every = Samples(inputs, positions(labels, names, str(path)), names, origin=str(path), names=called)
    rows = torch.arange(len(files))
    return DataSet(path.resolve().name, every.take(rows < len(train)), every.take(rows >= len(train)))


def read_images(
    paths: Sequence[str | Path], size: int | None = None, channels: str | None = None
) -> tuple[Tensor, list[str]]:
    """Return unlabelled images from files and folders (all below, in name order), and each one's name.

    The images: (n, channels, height, width), uint8; size and channels as in `images.read_files`.
    """
    files: list[Path] = []
    for path in map(Path, paths):
        found = _image_files(path) if kind_of(path) == "folder" else [path]
        if not found:
            raise DataError(f"no image in the folder {path}; looked for {_suffixes()}")
        files += found
    if not files:
        raise DataError("no image was given; name at least one image file or folder")
    return images.read_files(files, size, channels), [str(file) for file in files]


def from_torch_dataset(dataset: Any, origin: str = "the data set", side: int | None = None) -> Samples:
    """Return every (image, label) of a map-style torch data set; labels stay as they are.

    An image: a PIL image, a tensor (c, h, w) or (h, w), an array (h, w) or (h, w, c), or a vector (d,).
    Images of one size keep it; those of differing sizes are brought to side x side, or 64 x 64.
    """
    images.check_form(side, None)
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
        raise DataError(
            f"{origin}: a data set that can only be iterated has no fixed samples to hold out; "
            "give one with __getitem__ and __len__, or collect it into arrays"
        )
    if not hasattr(dataset, "__len__") or len(dataset) == 0:
        raise DataError(f"{origin}: the data set is empty or has no length; it needs at least one sample")
    items = [_item(dataset[row], f"{origin}: item {row}") for row in range(len(dataset))]
    inputs = _one_size([image for image, _ in items], origin, side)
    labels = label_list([label for _, label in items], origin)
    names = tuple(sorted_classes(labels))
    return Samples(inputs, positions(labels, names, origin), names, origin=origin)


def nothing(like: Samples) -> Samples:
    """Return no samples, of the same shape and classes: the test part of data that has none."""
    return replace(like.take(torch.zeros(0, dtype=torch.int64)), origin=f"{like.origin} (no test part)")


def whole_set(name: str, train: Samples, test: Samples) -> DataSet:
    """Return a data set whose parts agree in the shape of a sample."""
    if train.inputs.shape[1:] != test.inputs.shape[1:]:
        raise DataError(
            f"{test.origin}: samples have shape {tuple(test.inputs.shape[1:])}, but in {train.origin} "
            f"{tuple(train.inputs.shape[1:])}; bring both to one shape"
        )
    return DataSet(name, train, test)


def track_groups(labels: Tensor, tracks: Tensor) -> Tensor:
    """Return one group number for each (class, track), as tracks are numbered anew in each class: (n,)."""
    groups: Tensor = torch.unique(torch.stack([labels, tracks]), dim=1, return_inverse=True)[1]
    return groups


def _with_tracks(samples: Samples, track: Any) -> Samples:
    if track is None:
        return samples
    if track.shape != (len(samples),) or track.dtype.kind not in "iu":
        raise DataError(f"{samples.origin}: track_train must hold one whole number for each of x_train")
    return replace(samples, groups=track_groups(samples.labels, torch.from_numpy(track.astype(np.int64))))


def _subfolders(path: Path) -> dict[str, Path]:
    if kind_of(path) != "folder":
        raise MissingDataError(
            f"no folder {path}; give a folder that holds a folder of images for each class"
        )
    return {item.name: item for item in sorted(path.iterdir()) if item.is_dir() and not hidden(item.name)}


def _class_files(path: Path) -> list[tuple[str, Path]]:
    folders = _subfolders(path)
    if not folders:
        raise DataError(f"{path} holds no class folders; put the images of each class in a folder of its own")
    found: list[tuple[str, Path]] = []
    for name, folder in folders.items():
        files = _image_files(folder)
        if not files:
            raise DataError(
                f"the class folder {folder} holds no image ({_suffixes()}); add some or remove it"
            )
        found += [(name, file) for file in files]
    return found


def _image_files(folder: Path) -> list[Path]:
    below = (p for p in folder.rglob("*") if not any(map(hidden, p.relative_to(folder).parts)))
    return sorted(p for p in below if p.suffix.lower() in images.SUFFIXES and p.is_file())


def hidden(name: str) -> bool:
    """Tell whether a file or folder is no data: the system's own, or what archives leave behind."""
    return name.startswith(".") or name == "__MACOSX"


def _suffixes() -> str:
    return ", ".join(sorted(images.SUFFIXES))


def _item(item: Any, name: str) -> tuple[Tensor, Any]:
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise DataError(f"{name} must be a pair (image, label), got {type(item).__name__}")
    image, label = item
    if hasattr(image, "convert"):  # a PIL image
        with images.usable(name):
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


def _one_size(inputs: list[Tensor], origin: str, side: int | None) -> Tensor:
    for row, image in enumerate(inputs):
        same = image.ndim == inputs[0].ndim and image.dtype == inputs[0].dtype
        if not same or image.shape[0] != inputs[0].shape[0]:
            raise DataError(
                f"{origin}: item {row} has shape {tuple(image.shape)} and {image.dtype}, but item 0 "
                f"{tuple(inputs[0].shape)} and {inputs[0].dtype}; give all items one kind of input"
            )
    differ = len({image.shape for image in inputs}) > 1
    if inputs[0].ndim == 3 and differ:
        inputs = [images.resize(image, side or images.DEFAULT_SIDE) for image in inputs]
    return torch.stack(inputs)
