"""Your own data on disk: an .npz file; images in class folders, in a zip of such, or listed in a CSV."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shels.data import archives, finding, path_lists, reading
from shels.data.arrays import from_arrays, images_or_vectors, label_list, positions, sorted_classes
from shels.data.decoding import decoding, kind_of
from shels.data.finding import Found, ImageFile
from shels.data.samples import DataSet, Label, Samples
from shels.errors import DataError, MissingDataError

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


def read_image_files(path: str | Path, size: int | None = None, channels: str | None = None) -> DataSet:
    """Return the images of a folder or a zip of class folders, or of a CSV of paths and labels.

    A class is called as its folder, or as its label in the table. Where a folder holds `train` and `test`
    (`val` and `valid` are left alone), these are the parts; in a table the column `split` names them.
    size, channels: as in `reading.read_files`, over both parts together.
    """
    path = Path(path)
    read = reading.read_files(labelled_files(path), size, channels)
    labels = [str(file.label) for file in read.files]
    names = tuple(sorted(set(labels)))
    called = tuple(file.name for file in read.files)
    labelled = positions(labels, names, str(path))
    every = Samples(read.inputs, labelled, names, origin=str(path), names=called)
    train = torch.tensor([file.part == "train" for file in read.files])
    name = path.resolve().name if kind_of(path) == "folder" else path.stem
    return DataSet(name, every.take(train), every.take(~train))


def labelled_files(path: Path) -> Found:
    """Find the files of a folder or a zip of class folders, or of a CSV; nothing of them is read yet."""
    if kind_of(path) == "folder":
        return finding.class_files(path)
    if not holds_files(path):
        raise MissingDataError(
            f"no folder {path}; give a folder that holds a folder of images for each class, a zip of such, "
            "or a CSV with path and label"
        )
    return archives.class_files(path) if _is_zip(path) else path_lists.class_files(path)


def labels_in(path: Path) -> list[str]:
    """Name the classes that a folder, zip, CSV or .npz file labels its inputs with, if it does.

    Of an .npz file those of the array that `read_npz_inputs` takes; of a folder those that hold an image.
    """
    if path.suffix.lower() == ".npz":
        arrays = npz_arrays(path)
        labels = arrays.get("y" if "x" in arrays else "y_test")
        return [] if labels is None or labels.ndim != 1 else sorted(set(map(str, labels.tolist())))
    if kind_of(path) == "folder":
        return sorted(finding.class_folders(path))
    if not holds_files(path):
        return []
    try:
        return sorted({str(file.label) for file in labelled_files(path).files})
    except DataError:  # what is wrong with its images is said where they are read
        return []


def holds_files(path: Path) -> bool:
    """Tell whether a path is a folder, or by its suffix a zip or CSV of image files."""
    kind = kind_of(path)
    return kind == "folder" or (kind == "file" and path.suffix.lower() in (".zip", *path_lists.SUFFIXES))


def image_files(paths: Iterable[Path]) -> Found:
    """Find the images that files, folders (all below, in name order), zips and CSVs give, without labels."""
    found, given = Found(), list(paths)
    for path in given:
        inside = _unlabelled(path)
        if not inside.files and not inside.left_out:
            raise DataError(f"no image in the folder {path}; looked for {finding.suffixes()}")
        found.add(inside)
    if not given:
        raise DataError("no image was given; name at least one image file or folder")
    return found


def read_images(
    paths: Sequence[str | Path], size: int | None = None, channels: str | None = None
) -> tuple[Tensor, list[str]]:
    """Return images from files, folders (all below, in name order), zips and CSVs, and their names.

    The images: (n, channels, height, width), uint8; size and channels as in `reading.read_files`.
    """
    read = reading.read_files(image_files(map(Path, paths)), size, channels)
    return read.inputs, [file.name for file in read.files]


def _unlabelled(path: Path) -> Found:
    if not holds_files(path):
        return Found([ImageFile(str(path), path)])
    if kind_of(path) == "folder":
        return finding.files_below(path)
    return archives.image_files(path) if _is_zip(path) else path_lists.image_files(path)


def _is_zip(path: Path) -> bool:
    return path.suffix.lower() == ".zip"


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
