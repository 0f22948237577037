"""Data from the disk in the form that a model takes: the right size and channels."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from shels.data import own, reading, sources
from shels.data.finding import LeftOut, class_folders
from shels.data.images import with_channels
from shels.data.samples import DataSet, Label, Samples
from shels.data.splits import ClassChoice, ClassSplit, divide
from shels.errors import DataError, SettingsError, unknown_name

if TYPE_CHECKING:
    from shels.config import NetworkSettings
    from shels.data.preparation import Preparation

PARTS = ("test", "train", "all")


class Part(NamedTuple):
    """Samples of a data set, and which of its parts they are."""

    samples: Samples
    name: str


def load_known(
    spec: str,
    data_dir: Path | None,
    network: NetworkSettings,
    choice: ClassChoice,
    *,
    channels: str | None = None,
    seed: int = 0,
) -> tuple[Samples, tuple[Label, ...]]:
    """Load the samples to learn from, and name the novel classes that are left out of them.

    Images of many sizes are read at the network's size.

    >>> from shels.config import NetworkSettings
    >>> samples, novel = load_known("digits", None, NetworkSettings(), ClassChoice(known=["0", "1", "2"]))
    >>> samples.classes, novel
    ((0, 1, 2), (3, 4, 5, 6, 7, 8, 9))
    """
    size = network.image_size if network.image_fit == "resize" and _has_many_sizes(spec) else None
    train = sources.load(spec, data_dir, size, channels).train
    if network.image_size is not None and train.inputs.ndim == 2:
        raise SettingsError(
            f"size is for images, and {spec} holds vectors; leave --size out, or use another preset"
        )
    if "novel" in train.classes:
        raise DataError("a class is called 'novel', which is the word for no class; rename it")
    split = choice.split(train.classes, seed)
    if choice.open:  # classes of the test part alone are there to be noticed
        counts = torch.bincount(train.labels, minlength=len(train.classes)).tolist()
        there = tuple(name for name, count in zip(train.classes, counts, strict=True) if count)
        split = ClassSplit(there, tuple(name for name in train.classes if name not in there))
    samples = train.only(split.known)
    samples.require_every_class()
    return samples, split.novel


def load_validation(
    spec: str, data: str, data_dir: Path | None, samples: Samples, classes: Sequence[Label] | None = None
) -> Samples:
    """Load the samples that somebody holds out of training, in the form and with the classes of `samples`.

    spec: a data set as any other, or the name of a folder (val, valid) in the folder `data`.
    """
    inside = Path(data).expanduser() / spec
    spec = str(inside) if Path(data).expanduser().is_dir() and inside.is_dir() else spec
    size = channels = None
    if samples.inputs.ndim == 4:
        height, width = samples.inputs.shape[2:]
        size = height if height == width else None
        channels = "grey" if samples.inputs.shape[1] == 1 else "rgb"
    loaded = sources.load(spec, data_dir, size, channels)
    known, _ = divide(choose_part(loaded, "all").samples, classes or samples.classes)
    if not len(known):
        raise DataError(f"{spec} has no sample of the classes {list(samples.classes)} to validate on")
    return known


def load_in_form(spec: str, data_dir: Path | None, preparation: Preparation) -> DataSet:
    """Load a data set in the form that a model takes."""
    size, channels = form(preparation)
    if _has_many_sizes(spec):
        return sources.load(spec, data_dir, size, channels)
    data = sources.load(spec, data_dir)
    parts = (data.train, data.test)
    train, test = (replace(part, inputs=with_channels(part.inputs, channels)) for part in parts)
    return replace(data, train=train, test=test)


def form(preparation: Preparation) -> tuple[int | None, str | None]:
    """Give the size and channels to read images with; a size of None leaves it to the preparation."""
    if len(preparation.shape) != 3:
        return None, None
    channels, height, width = preparation.shape
    as_stored = preparation.image_fit == "pad" or height != width
    return None if as_stored else height, "grey" if channels == 1 else "rgb"


class InputGroup(NamedTuple):
    """Unlabelled inputs that are judged together, a name for each, and files that could not be read."""

    inputs: Tensor
    names: list[str]
    left_out: list[LeftOut]


def input_groups(paths: Sequence[Path], preparation: Preparation) -> Iterator[InputGroup]:
    """Read unlabelled inputs from image files, folders, zips, CSVs and .npz files, in groups that fit memory.

    A path that does not exist is an error before anything is read; a file that cannot be read is left out.
    """
    for path in paths:
        if not os.path.lexists(path):
            hint = "; named sets are for `shels evaluate`" if str(path) in sources.NAMED else ""
            raise DataError(f"there is no file or folder {path}{hint}")
    size, channels = form(preparation)
    for are_arrays, some in groupby(paths, _is_npz):
        if are_arrays:
            for path in some:
                inputs = with_channels(own.read_npz_inputs(path), channels)
                yield InputGroup(inputs, [f"{path}#{row}" for row in range(len(inputs))], [])
            continue
        for group in reading.read_groups(own.image_files(some), size, channels or "rgb"):
            yield InputGroup(group.inputs, [file.name for file in group.files], group.left_out)


def read_inputs(path: Path, preparation: Preparation) -> list[tuple[Tensor, list[str]]]:
    """Read unlabelled inputs as `input_groups` does, all that can be read of one path.

    More than one group where images of different sizes must stay as they are, or where they are many.
    """
    return [(inputs, names) for inputs, names, _ in _some_read([path], preparation)]


def read_class(paths: Sequence[Path], preparation: Preparation) -> Tensor:
    """Read all images of one class, from files, folders and .npz files together.

    Images of several sizes or kinds are brought to the model's size, as the model would bring them. What has
    several labels is refused.
    """
    for path in paths:
        _require_one_class(path)
    parts = [group.inputs for group in _some_read(paths, preparation)]
    for part in parts:
        preparation.check(part)
    for path in paths:
        _warn_of_conversion(path, preparation)
    if len({(part.shape[1:], part.dtype) for part in parts}) > 1:
        parts = [replace(preparation, mean=None, sd=None)(part) for part in parts]
    return torch.cat(parts)


def _require_one_class(path: Path) -> None:
    labels = own.labels_in(path)
    if len(labels) < 2:
        return
    some = ", ".join(labels[:6]) + ", …" * (len(labels) > 6)
    advice = "give those of one class alone"
    if path.is_dir():
        folder = class_folders(path)[labels[0]]
        advice = f"name one folder, such as {folder}, or each of them where all show the same class"
    raise DataError(f"{path} holds images of {len(labels)} classes ({some}), where one is learned; {advice}")


def _some_read(paths: Sequence[Path], preparation: Preparation) -> list[InputGroup]:
    """Return the groups that have inputs; where there is none, say what is wrong with the first."""
    groups = list(input_groups(paths, preparation))
    found = [group for group in groups if group.names]
    if not found:
        raise reading.none_readable([each for group in groups for each in group.left_out])
    return found


def choose_part(data: DataSet, wanted: str | None) -> Part:
    """Take the samples of a part; by default the test part where there is one, else all."""
    if wanted is not None and wanted not in PARTS:
        raise SettingsError(unknown_name("part", wanted, PARTS))
    name = wanted or ("test" if len(data.test) else "all")
    if name == "test" and not len(data.test):
        raise DataError(f"{data.name} has no test part; use --part all")
    if name == "all" and len(data.test):
        whole = data.train.followed_by(data.test)
        return Part(replace(whole, origin=data.train.origin.removesuffix(" train")), name)
    return Part(data.test if name == "test" else data.train, name)


def _warn_of_conversion(path: Path, preparation: Preparation) -> None:
    """Warn of arrays that are not what the model takes; image files are made for being converted."""
    if not _is_npz(path):
        return
    shape = tuple(own.read_npz_inputs(path).shape[1:])
    checked = 1 if preparation.image_fit == "pad" else 3
    if shape[:checked] != preparation.shape[:checked]:
        warnings.warn(
            f"{path} holds arrays of shape {shape}; the model was trained on {preparation.describe()}, and "
            "they were converted to that",
            UserWarning,
            stacklevel=3,
        )


def _has_many_sizes(spec: str) -> bool:
    if spec in sources.NAMED:
        return sources.NAMED[spec].any_size
    return own.holds_files(Path(spec).expanduser())


def _is_npz(path: Path) -> bool:
    return path.suffix.lower() == ".npz"
