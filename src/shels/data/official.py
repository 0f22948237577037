"""The files of well-known data sets, as their makers distribute them, into samples.

`find_files` says where the files lie under a data directory, or raises; `read_X` reads them.
"""

from __future__ import annotations

import csv
import io
import math
import struct
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shels.data import cifar, images
from shels.data.decoding import decoding, read_bounded
from shels.data.own import read_npz, track_groups, whole_set
from shels.data.samples import DataSet, Samples
from shels.errors import DataError, MissingDataError

IDX_FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
SIGN_SIDE = 48
SIGN_CLASSES = 43
SIGN_TEST_LABELS = "GT-final_test.csv"


def find_files(name: str, directory: Path) -> list[Path]:
    """Return where a named set's files lie under a data directory, in the order in which they are read.

    A file may also lie there without .gz. CIFAR-10 is its six batches, or the one archive that holds them;
    GTSRB its training images, test images and test labels, each a folder or file or an archive.
    """
    if name != "gtsrb":
        return _find(name, directory, _PLACES[name])
    return [_find(f"gtsrb ({what})", directory, forms)[0] for what, forms in _SIGN_PLACES.items()]


def read_idx(name: str, files: Sequence[Path]) -> DataSet:
    """Return MNIST or Fashion-MNIST: 28 x 28 grey, the classes 0-9."""
    parts = []
    for pixels, labels in (files[:2], files[2:]):
        parts.append(_samples(_idx_array(pixels, 3)[:, None], _idx_array(labels, 1), 10, str(pixels)))
    return whole_set(name, parts[0], parts[1])


def read_cifar10(name: str, files: Sequence[Path]) -> DataSet:
    """Return CIFAR-10: 32 x 32 RGB, the classes 0-9."""
    batches = cifar.read_batches(files)
    origin = files[0] if len(files) == 1 else files[0].parent
    pixels, labels = (np.concatenate(arrays) for arrays in zip(*batches[:-1], strict=True))
    train = _samples(pixels, labels, 10, f"{origin} train")
    return DataSet(name, train, _samples(*batches[-1], 10, f"{origin} test"))


def read_svhn(name: str, files: Sequence[Path]) -> DataSet:
    """Return SVHN's cropped digits: 32 x 32 RGB, 0-9."""
    return DataSet(name, _read_mat(files[0]), _read_mat(files[1]))


def read_gtsrb(name: str, files: Sequence[Path], size: int = SIGN_SIDE) -> DataSet:
    """Return the German traffic signs, resized to size x size RGB: classes 0-42.

    groups: the physical sign, of which each training image is one of about thirty frames.
    """
    train, test, labels = files
    signs = _inside(train)
    train_rows = [row for number in range(SIGN_CLASSES) for row in _training_signs(signs, number)]
    if not train_rows:
        raise DataError(
            f"{train} holds no training images 00000/ to {SIGN_CLASSES - 1:05d}/; unpack it again"
        )
    folder = _inside(test)
    if isinstance(folder, zipfile.Path):
        folder = folder / "GTSRB" / "Final_Test" / "Images"
    listed = _read_csv(_inside(labels) / SIGN_TEST_LABELS if labels.suffix == ".zip" else labels)
    test_rows = [(folder / row["Filename"], int(row["ClassId"])) for row in listed]
    samples = _signs(train_rows, size, f"{train}")
    tracks = torch.tensor([_track(file.name) for file, _ in train_rows])
    samples = replace(samples, groups=track_groups(samples.labels, tracks))
    return DataSet(name, samples, _signs(test_rows, size, f"{test}"))


def read_digits(name: str, files: Sequence[Path] = ()) -> DataSet:  # noqa: ARG001 - read like the others
    """Return the 8 x 8 digits that come with scikit-learn: no file, 30 % of each class to test on."""
    from sklearn.datasets import load_digits  # noqa: PLC0415
    from sklearn.model_selection import train_test_split  # noqa: PLC0415

    digits = load_digits()
    pixels = np.round(digits.images * (255 / 16)).astype(np.uint8)[:, None]
    every = _samples(pixels, digits.target, 10, "digits")
    train, test = train_test_split(
        np.arange(len(every)), test_size=0.3, stratify=digits.target, random_state=0
    )
    return DataSet(name, every.take(torch.from_numpy(train)), every.take(torch.from_numpy(test)))


def read_named_npz(path: Path, name: str, class_count: int) -> DataSet:
    """Return a named set from NAME.npz: x_train, y_train, x_test, y_test, perhaps track_train."""
    data = read_npz(path, classes=range(class_count))
    if not len(data.test):
        raise DataError(f"{path} has no test part; add x_test and y_test")
    if data.train.inputs.ndim != 4:
        raise DataError(f"{path}: x_train must be images (n, h, w) or (n, h, w, 3), not vectors")
    return replace(data, name=name)


def _in_folders(folders: Sequence[str], files: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [tuple(f"{folder}/{file}".lstrip("/") for file in files) for folder in folders]


def _sign_places(*choices: str) -> list[tuple[str, ...]]:
    forms: list[tuple[str, ...]] = []
    for choice in choices:
        clear = Path(choice).suffix != "" and "/" not in choice  # a file's name that fits nothing else
        forms += _in_folders(("gtsrb/GTSRB", "GTSRB", "gtsrb", *([""] if clear else [])), (choice,))
    return forms


_CIFAR_FOLDERS = ("cifar10", "CIFAR10", "")
_FASHION_FOLDERS = ("fmnist", "fmnist/raw", "FashionMNIST/raw", "FashionMNIST", "fashion-mnist")
_PLACES = {
    "mnist": _in_folders(("mnist", "mnist/raw", "MNIST/raw", "MNIST"), IDX_FILES),
    "fmnist": _in_folders(_FASHION_FOLDERS, IDX_FILES),
    "cifar10": [],
    "svhn": _in_folders(("svhn", "SVHN", ""), ("train_32x32.mat", "test_32x32.mat")),
}
for _kind in (cifar.BINARY, cifar.PYTHON):
    _PLACES["cifar10"] += _in_folders([f"{place}/{_kind.folder}" for place in _CIFAR_FOLDERS], _kind.batches)
    _PLACES["cifar10"] += _in_folders(_CIFAR_FOLDERS, (_kind.archive,))
_LABELS_INSIDE = f"Final_Test/Images/{SIGN_TEST_LABELS}"
_SIGN_PLACES = {
    "training images": _sign_places("Final_Training/Images", "GTSRB_Final_Training_Images.zip", "Training"),
    "test images": _sign_places("Final_Test/Images", "GTSRB_Final_Test_Images.zip"),
    "test labels": _sign_places(_LABELS_INSIDE, SIGN_TEST_LABELS, "GTSRB_Final_Test_GT.zip"),
}


def _find(name: str, directory: Path, forms: Sequence[tuple[str, ...]]) -> list[Path]:
    """Return the files of the first form that is complete; a file may also lie there without .gz."""
    nearly = ""
    for form in forms:
        found = [_existing(directory / file) for file in form]
        if None not in found:
            return [path for path in found if path is not None]
        lacking = [file for file, path in zip(form, found, strict=True) if path is None]
        if len(lacking) < len(form) and not nearly:
            nearly = f"; {directory} lacks only {', '.join(lacking)}"
    files = dict.fromkeys(Path(file).name for form in forms for file in form)
    places = dict.fromkeys(str((directory / file).parent) for form in forms for file in form)
    raise MissingDataError(
        f"{name} was not found: no {' or '.join(files) if len(forms[0]) == 1 else ', '.join(files)}"
        f" in {', '.join(places)}{nearly}"
    )


def _existing(path: Path) -> Path | None:
    plain = path.with_suffix("") if path.name.endswith("ubyte.gz") else path
    return plain if plain.exists() else path if path.exists() else None


def _samples(pixels: Any, labels: Any, class_count: int, origin: str) -> Samples:
    """Return samples from pixels (n, channels, h, w), uint8, and whole-number labels (n,)."""
    inputs = torch.from_numpy(np.array(pixels, dtype=np.uint8, order="C"))
    positions = torch.from_numpy(np.array(labels, dtype=np.int64))
    return Samples(inputs, positions, tuple(range(class_count)), origin=origin)


def _idx_array(path: Path, dimensions: int) -> np.ndarray[Any, Any]:
    """Return the array in an IDX file of unsigned bytes, once its header and length agree."""
    content = read_bounded(path, "cannot be unpacked")
    start = 4 + 4 * dimensions
    magic = bytes([0, 0, 8, dimensions])
    if content[:4] != magic or len(content) < start:
        raise DataError(
            f"{path} is not an IDX file of unsigned bytes in {dimensions} dimensions: "
            f"it must start with {magic.hex()}, got {content[:4].hex()}"
        )
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    expected = start + math.prod(shape)
    if len(content) != expected:
        raise DataError(
            f"{path} is damaged: its header says {expected} bytes, it has {len(content)}; fetch it again"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _read_mat(path: Path) -> Samples:
    from scipy.io import loadmat  # noqa: PLC0415

    with decoding(path, "is not a whole MATLAB file"):
        arrays = loadmat(path, variable_names=("X", "y"))
        pixels, labels = arrays.get("X"), arrays.get("y")
        if pixels is None or labels is None or pixels.ndim != 4 or pixels.dtype != np.uint8:
            raise DataError(f"{path} must hold X (h, w, 3, n) as uint8 and y (n, 1); fetch it again")
        labels = labels.ravel()
        return _samples(pixels.transpose(3, 2, 0, 1), np.where(labels == 10, 0, labels), 10, str(path))


def _inside(path: Path) -> Path | zipfile.Path:
    if path.suffix != ".zip":
        return path
    with decoding(path, "is not a whole zip archive"):
        return zipfile.Path(path)


def _training_signs(folder: Path | zipfile.Path, number: int) -> list[tuple[Path | zipfile.Path, int]]:
    if isinstance(folder, zipfile.Path):
        folder = folder / "GTSRB" / "Final_Training" / "Images"
    place = folder / f"{number:05d}"
    table = place / f"GT-{number:05d}.csv"
    if table.is_file():
        return [(place / row["Filename"], int(row["ClassId"])) for row in _read_csv(table)]
    files = place.iterdir() if place.is_dir() else ()
    return sorted(
        ((file, number) for file in files if file.name.endswith(".ppm")), key=lambda row: row[0].name
    )


def _read_csv(path: Path | zipfile.Path) -> list[dict[str, str]]:
    with decoding(path, "cannot be read"):
        text = read_bounded(path).decode()
        rows = list(csv.DictReader(io.StringIO(text), delimiter=";"))
    for row in rows:
        if not (row.get("Filename") and _is_number(row.get("ClassId") or "")):
            raise DataError(f"{path}: every line needs a Filename and a ClassId, separated by ';', got {row}")
    return rows


def _signs(rows: Sequence[tuple[Path | zipfile.Path, int]], size: int, origin: str) -> Samples:
    pixels = []
    for file, _ in rows:
        content = read_bounded(file, "is listed but cannot be read", "unpack the archive again")
        pixels.append(images.read_pixels(io.BytesIO(content), str(file), "rgb", size))
    labels = torch.tensor([label for _, label in rows])
    return Samples(torch.stack(pixels), labels, tuple(range(SIGN_CLASSES)), origin=origin)


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) < 10


def _track(file_name: str) -> int:
    """Return the number of the physical sign: 12 for 00012_00029.ppm."""
    number = file_name.split("_", maxsplit=1)[0]
    if not _is_number(number):
        raise DataError(
            f"the training image {file_name} is not called TRACK_FRAME.ppm; unpack the archive again"
        )
    return int(number)
