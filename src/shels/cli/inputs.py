"""Data as a model takes them: the right size and channels, and its classes by name."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from shels.data import own, sources
from shels.data.inputs import form, has_many_sizes, in_form
from shels.data.inputs import load_in_form as load_to_judge
from shels.data.samples import DataSet, Samples
from shels.data.splits import known_class, new_class
from shels.errors import DataError, ModelFileError, SettingsError, unknown_name
from shels.learner.versions import is_home

if TYPE_CHECKING:
    from torch import Tensor

    from shels.config import NetworkSettings
    from shels.data.preparation import Preparation
    from shels.learner.learner import Learner

__all__ = ["form", "known_class", "load_to_judge", "new_class"]
PARTS = ("test", "train", "all")


class Part(NamedTuple):
    """Samples of a data set, and which of its parts they are."""

    samples: Samples
    name: str


def load_learner(model: Path, device: str) -> Learner:
    """Return the learner in a directory; a training that was cut off there is told from no model."""
    from shels.learner.learner import Learner  # noqa: PLC0415

    unfinished = (model / "checkpoint.safetensors").is_file() and not (model / "model.json").exists()
    if unfinished and not is_home(model):
        raise ModelFileError(
            f"{model} holds a training that was cut off; run the same `shels train` command again"
        )
    return Learner.load(model, device)


def load_to_train(
    spec: str, data_dir: Path | None, network: NetworkSettings, channels: str | None
) -> DataSet:
    """Return the data set to learn from, read at the network's size where its images have many sizes."""
    size = network.image_size if network.image_fit == "resize" and has_many_sizes(spec) else None
    data = sources.load(spec, data_dir, size, channels)
    if network.image_size is not None and data.train.inputs.ndim == 2:
        raise SettingsError(
            f"size is for images, and {spec} holds vectors; leave --size out, or use another preset"
        )
    return data


def read_to_judge(path: Path, preparation: Preparation) -> list[tuple[Tensor, list[str]]]:
    """Return unlabelled inputs from an image file, a folder or an .npz file, with a name for each.

    More than one group where images of different sizes must stay as they are.
    """
    size, channels = form(preparation)
    if path.suffix.lower() == ".npz":
        inputs = own.read_npz_inputs(path)
        samples = Samples(inputs, torch.zeros(len(inputs), dtype=torch.int64), ("",), origin=str(path))
        inputs = in_form(samples, channels).inputs
        return [(inputs, [f"{path}#{row}" for row in range(len(inputs))])]
    if not path.exists():
        hint = "; named sets are for `shels evaluate`" if str(path) in sources.NAMED else ""
        raise DataError(f"there is no file or folder {path}{hint}")
    inputs, names = own.read_images([path], size, channels)
    if size is not None or len(names) == 1:
        return [(inputs, names)]
    # A mixture would be brought to one size; alone, each image keeps the size that its verdict depends on.
    return [own.read_images([name], size, channels) for name in names]


def read_class(paths: Sequence[Path], preparation: Preparation) -> Tensor:
    """Return all images of one class, from files, folders and .npz files together.

    Images of several sizes or kinds are brought to the model's size, as the model would bring them.
    """
    parts = [inputs for path in paths for inputs, _ in read_to_judge(path, preparation)]
    for part in parts:
        preparation.check(part)
    for path in paths:
        _warn_of_conversion(path, preparation)
    if len({(part.shape[1:], part.dtype) for part in parts}) > 1:
        parts = [replace(preparation, mean=None, sd=None)(part) for part in parts]
    return torch.cat(parts)


def choose_part(data: DataSet, wanted: str | None) -> Part:
    """Return the samples of a part; by default the test part where there is one, else all."""
    if wanted is not None and wanted not in PARTS:
        raise SettingsError(unknown_name("part", wanted, PARTS))
    name = wanted or ("test" if len(data.test) else "all")
    if name == "test" and not len(data.test):
        raise DataError(f"{data.name} has no test part; use --part all")
    if name == "all" and len(data.test):
        return Part(_joined(data.train, data.test), name)
    return Part(data.test if name == "test" else data.train, name)


def _warn_of_conversion(path: Path, preparation: Preparation) -> None:
    """Warn of arrays that are not what the model takes; image files are made for being converted."""
    if path.suffix.lower() != ".npz":
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


def _joined(first: Samples, second: Samples) -> Samples:
    return Samples(
        torch.cat([first.inputs, second.inputs]),
        torch.cat([first.labels, second.labels]),
        first.classes,
        origin=first.origin.removesuffix(" train"),
    )
