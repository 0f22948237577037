"""Data from the disk in the form that a model takes: the right size and channels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from shels.data import sources
from shels.data.images import conform
from shels.data.samples import DataSet, Samples

if TYPE_CHECKING:
    from shels.data.preparation import Preparation


def load_in_form(spec: str, data_dir: Path | None, preparation: Preparation) -> DataSet:
    """Load a data set in the form that a model takes."""
    size, channels = form(preparation)
    if has_many_sizes(spec):
        return sources.load(spec, data_dir, size, channels)
    data = sources.load(spec, data_dir)
    return replace(data, train=in_form(data.train, channels), test=in_form(data.test, channels))


def form(preparation: Preparation) -> tuple[int | None, str | None]:
    """Give the size and channels to read images with; a size of None leaves it to the preparation."""
    if len(preparation.shape) != 3:
        return None, None
    channels, height, width = preparation.shape
    as_stored = preparation.image_fit == "pad" or height != width
    return None if as_stored else height, "grey" if channels == 1 else "rgb"


def has_many_sizes(spec: str) -> bool:
    """Tell whether the images of a data set may differ in size."""
    if spec in sources.NAMED:
        return sources.NAMED[spec].any_size
    return Path(spec).expanduser().is_dir()


def in_form(samples: Samples, channels: str | None) -> Samples:
    """Convert images to a model's channels; vectors stay, for the model to accept or refuse."""
    return conform(samples, None, channels) if samples.inputs.ndim == 4 else samples
