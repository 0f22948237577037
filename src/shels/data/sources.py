"""The data sets that shels knows by name, and one way to load those and your own."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from shels.config import Augmentation
from shels.data import official, own
from shels.data.decoding import kind_of
from shels.data.images import check_form, conform
from shels.data.samples import DataSet
from shels.errors import DataError, MissingDataError, SettingsError, unknown_name

VARIABLE = "SHELS_DATA"


@dataclass(frozen=True)
class OfficialFile:
    """A file as its makers distribute it; md5 is the checksum that they or torchvision publish."""

    name: str
    url: str
    md5: str


@dataclass(frozen=True)
class NamedSet:
    """A well-known data set: what it is, where it comes from, how it is read.

    files: none where the set needs none. read: takes its name and what `official.find_files` finds.
    any_size: its images have many sizes, and `read` takes the one to resize them to. flips: an image mirrored
    left to right is still one of its class; a digit, a letter or a sign is not.
    """

    name: str
    title: str
    class_count: int
    train_count: int
    test_count: int
    files: tuple[OfficialFile, ...]
    homepage: str
    licence: str
    read: Callable[..., DataSet]
    any_size: bool = False
    flips: bool = False


@dataclass(frozen=True)
class Listed:
    """One line of the listing: a named set, whether it is here, where, and what is wrong with it."""

    name: str
    title: str
    classes: int
    train: int
    test: int
    present: bool
    where: str
    problem: str = ""


def _files(base: str, *files: tuple[str, str]) -> tuple[OfficialFile, ...]:
    return tuple(OfficialFile(name, base + name, md5) for name, md5 in files)


_SETS = (
    NamedSet(
        "digits",
        "scikit-learn's 8x8 digits",
        10,
        1257,
        540,
        (),
        "https://scikit-learn.org/stable/datasets/toy_dataset.html",
        "CC BY 4.0 (UCI)",
        official.read_digits,
    ),
    NamedSet(
        "mnist",
        "MNIST handwritten digits",
        10,
        60_000,
        10_000,
        _files(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            ("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
            ("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
            ("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
            ("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
        ),
        "http://yann.lecun.com/exdb/mnist/",
        "none stated (LeCun, Cortes, Burges)",
        official.read_idx,
    ),
    NamedSet(
        "fmnist",
        "Fashion-MNIST articles of clothing",
        10,
        60_000,
        10_000,
        _files(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            ("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
            ("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
            ("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
            ("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
        ),
        "https://github.com/zalandoresearch/fashion-mnist",
        "MIT",
        official.read_idx,
        flips=True,
    ),
    NamedSet(
        "cifar10",
        "CIFAR-10 photographs of things",
        10,
        50_000,
        10_000,
        _files(
            "https://www.cs.toronto.edu/~kriz/",
            ("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),
        ),
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        "none stated (Krizhevsky)",
        official.read_cifar10,
        flips=True,
    ),
    NamedSet(
        "svhn",
        "Street View House Numbers, cropped",
        10,
        73_257,
        26_032,
        _files(
            "http://ufldl.stanford.edu/housenumbers/",
            ("train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
            ("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
        ),
        "http://ufldl.stanford.edu/housenumbers/",
        "non-commercial use",
        official.read_svhn,
    ),
    NamedSet(
        "gtsrb",
        "German traffic signs",
        43,
        39_209,
        12_630,
        _files(
            "https://sid.erda.dk/public/archives/daaeac0d7ce1152aea9b61d9f1e19370/",
            ("GTSRB_Final_Training_Images.zip", "f33fd80ac59bff73c82d25ab499e03a3"),
            ("GTSRB_Final_Test_Images.zip", "c7e4e6327067d32654124b0fe9e82185"),
            ("GTSRB_Final_Test_GT.zip", "fe31e9c9270bbcd7b84b7f21a9d9d9e5"),
        ),
        "https://benchmark.ini.rub.de/gtsrb_dataset.html",
        "none stated (Stallkamp and others)",
        official.read_gtsrb,
        any_size=True,
    ),
)
NAMED: dict[str, NamedSet] = {each.name: each for each in _SETS}


def named_set(name: str) -> NamedSet:
    """Return what is known about a named set."""
    if name not in NAMED:
        raise SettingsError(unknown_name("data set", name, NAMED))
    return NAMED[name]


def suited(augmentation: Augmentation, name: str) -> Augmentation:
    """Return an augmentation without mirror images where these would not be of their class.

    >>> [suited(Augmentation(crop=0.1, flip=0.5), name).flip for name in ("cifar10", "svhn", "photos.npz")]
    [0.5, 0.0, 0.5]
    """
    return replace(augmentation, flip=0.0) if name in NAMED and not NAMED[name].flips else augmentation


def data_directory(explicit: str | Path | None = None) -> Path:
    """Return where data lie: the one given, else $SHELS_DATA, else ~/.shels/data."""
    chosen = explicit or os.environ.get(VARIABLE) or Path.home() / ".shels" / "data"
    return Path(chosen).expanduser()


def load_named(name: str, data_dir: str | Path | None = None, size: int | None = None) -> DataSet:
    """Return a named set from DIR/NAME.npz or its official files; size resizes the images."""
    wanted = named_set(name)
    check_form(size, None)
    directory = data_directory(data_dir)
    packed = directory / f"{name}.npz"
    if wanted.files and packed.is_file():
        return _conformed(official.read_named_npz(packed, name, wanted.class_count), size)
    try:
        files = official.find_files(name, directory) if wanted.files else []
        if wanted.any_size and size is not None:
            return wanted.read(name, files, size)
        return _conformed(wanted.read(name, files), size)
    except MissingDataError as error:
        raise MissingDataError(
            f"{error}, nor is there {packed}; run `shels data download {name}`, or fetch the files by hand "
            f"from {wanted.homepage}, or put {packed.name} there with x_train, y_train, x_test and y_test"
        ) from error


def listing(data_dir: str | Path | None = None) -> list[Listed]:
    """Return one line for each named set: whether it is here, where, and how much it holds."""
    return [_listed(each, data_directory(data_dir)) for each in NAMED.values()]


def load(
    spec: str | Path, data_dir: str | Path | None = None, size: int | None = None, channels: str | None = None
) -> DataSet:
    """Return a named set, an .npz file or image files (`own.read_image_files`), whichever `spec` is.

    A Path, or text that is no name of a set, is a path. size and channels give images their form.
    Data without a test part get an empty one.

    >>> data = load("digits", size=16)
    >>> tuple(data.train.inputs.shape), data.test.classes
    ((1257, 1, 16, 16), (0, 1, 2, 3, 4, 5, 6, 7, 8, 9))
    """
    path = Path(spec).expanduser()
    if isinstance(spec, str) and spec in NAMED:
        return _conformed(load_named(spec, data_dir, size), None, channels)
    if own.holds_files(path):
        return own.read_image_files(path, size, channels)
    if kind_of(path):
        if path.suffix.lower() != ".npz":
            raise DataError(
                f"{path} is neither a folder nor a .zip, .csv or .npz file; give one, or a data set's name"
            )
        return _conformed(own.read_npz(path), size, channels)
    message = unknown_name("data set", spec, NAMED)
    raise MissingDataError(f"{message}, and there is no file or folder {str(path)!r} either")


def _conformed(data: DataSet, size: int | None, channels: str | None = None) -> DataSet:
    return replace(data, train=conform(data.train, size, channels), test=conform(data.test, size, channels))


def _listed(each: NamedSet, directory: Path) -> Listed:
    counts = each.class_count, each.train_count, each.test_count
    line = Listed(each.name, each.title, *counts, present=True, where="")
    packed = directory / f"{each.name}.npz"
    if not each.files:
        return replace(line, where="comes with scikit-learn")
    if packed.is_file():
        line = replace(line, where=str(packed))
        try:
            labels = own.npz_arrays(packed, only=("y_train", "y_test"))
        except DataError as error:
            return replace(line, problem=str(error))
        missing = [key for key in ("y_train", "y_test") if key not in labels]
        if missing:
            return replace(line, problem=f"{packed} has no array {missing[0]!r}")
        return replace(line, train=len(labels["y_train"]), test=len(labels["y_test"]))
    try:
        files = official.find_files(each.name, directory)
    except MissingDataError:
        return replace(line, present=False)
    return replace(line, where=str(files[0] if len(files) == 1 else files[0].parent))
