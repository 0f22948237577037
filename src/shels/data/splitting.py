"""A data set of one's own divided into parts to train, validate and test on, with no leak between them.

Bursts of one object and near duplicates stay on one side, and every class is on every side in the shares
that were asked for. By default nothing is copied: lists of paths and labels are written.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shels.data import duplicates, finding, own
from shels.data.arrays import label_list
from shels.data.decoding import kind_of
from shels.data.duplicates import Looks, Pair
from shels.data.partition import merged_groups, stratified
from shels.errors import DataError, MissingDataError, SettingsError

Array = NDArray[Any]

PARTS = ("train", "validation", "test")


class Item(NamedTuple):
    """An image file, its class, and what it is called: its path below the data set.

    problem: why it cannot be used, where that is known before it is opened.
    """

    path: Path
    label: str
    name: str
    problem: str = ""


@dataclass(frozen=True)
class Shares:
    """How much of each class is tested and validated on; the rest is trained on."""

    test: float = 0.2
    validation: float = 0.0

    def __post_init__(self) -> None:
        for name in ("test", "validation"):
            value = getattr(self, name)
            if not 0 <= value < 1:
                raise SettingsError(f"the share to {name} on must be 0 or more and under 1, got {value:g}")
        if self.test + self.validation >= 1:
            raise SettingsError(f"shares of {self.test:g} and {self.validation:g} leave nothing to train on")
        if self.test + self.validation == 0:
            raise SettingsError("there is nothing to split off: give a share to test or to validate on")

    @property
    def by_part(self) -> list[float]:
        """The share of each of `PARTS`."""
        return [1 - self.test - self.validation, self.validation, self.test]

    @property
    def parts(self) -> list[str]:
        """The parts that have a share."""
        return [part for part, share in zip(PARTS, self.by_part, strict=True) if share]


@dataclass(frozen=True)
class Splitting:
    """A division of samples, by places. names: what samples are called; labels: their classes.

    parts: places by part, empty parts left out. pairs: near duplicates and copies. groups: how many things
    were dealt out, a sample alone or those that stay together. left_out: what cannot be read, and why.
    """

    names: Sequence[str]
    labels: Sequence[Any]
    parts: Mapping[str, Array]
    groups: int
    pairs: Sequence[Pair] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)

    def counts(self) -> dict[str, dict[str, int]]:
        """Count samples by class and part."""
        found = {part: Counter(str(self.labels[at]) for at in places) for part, places in self.parts.items()}
        classes = dict.fromkeys(str(label) for label in self.labels)
        return {name: {part: found[part][name] for part in self.parts} for name in classes}

    def conflicts(self) -> list[Pair]:
        """Give pairs that show the same under two labels: one of them must be wrong."""
        return [pair for pair in self.pairs if self.labels[pair.first] != self.labels[pair.second]]


# Files -------------------------------------------------------------------------------------------------


def labelled_files(path: Path) -> list[Item]:
    """List the files of a folder of class folders, or of a table (CSV) with the columns path and label."""
    if kind_of(path) == "folder" and finding.is_parted(finding.subfolders(path)):
        raise DataError(f"{path} is divided already; to divide one part again, give {path / 'train'}")
    if not own.holds_files(path) or path.suffix.lower() == ".zip":
        raise MissingDataError(
            f"there is no folder or .csv file {path}; give a folder that holds a folder of images for each "
            "class, a table with the columns path,label, or an .npz file"
        )
    folder = path if kind_of(path) == "folder" else path.parent
    found = own.labelled_files(path)
    items = [Item(Path(file.name), str(file.label), _name(file.name, folder)) for file in found.files]
    bad = [Item(Path(e.name), str(e.label), _name(e.name, folder), e.reason) for e in found.left_out]
    return [*items, *bad]


def _name(path: str, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


def split_files(
    items: Sequence[Item],
    shares: Shares,
    *,
    by: str = "file",
    group: str | None = None,
    near: bool = True,
    likeness: float | None = None,
    seed: int = 0,
    each: Callable[[int, int], object] | None = None,
) -> Splitting:
    """Divide files. by: "file", or "folder" for files of one folder below their class to stay together.

    group: a regular expression that is searched for in each name; files with the same match, or the same
    parenthesised parts of it, stay together. near: whether near duplicates do; likeness: what makes them so,
    see `duplicates.pairs`. each: is told how far it is.
    """
    usable = [item for item in items if not item.problem]
    looks, unreadable = _looked_at(usable, each) if near else (None, {})
    left_out = {item.name: item.problem for item in items if item.problem} | unreadable
    kept = [item for item in usable if item.name not in unreadable]
    labels = _numbers([item.label for item in kept])
    groups = _groups(kept, by, group)
    pairs = duplicates.pairs(looks, labels, likeness) if looks is not None else []
    names, classes = [item.name for item in kept], [item.label for item in kept]
    return _divided(names, classes, groups, pairs, shares, seed, left_out)


def _looked_at(
    items: Sequence[Item], each: Callable[[int, int], object] | None
) -> tuple[Looks, dict[str, str]]:
    """Look at every file; what cannot be read is left out."""
    pictures, contents, left_out = [], [], {}
    for done, (item, look) in enumerate(
        zip(items, duplicates.look_at_files([i.path for i in items]), strict=True)
    ):
        if each is not None:
            each(done + 1, len(items))
        if look.problem:
            left_out[item.name] = look.problem
        else:
            pictures.append(look.picture)
            contents.append(look.content)
    if not pictures:
        raise DataError(f"none of the {len(items)} files can be read: {next(iter(left_out.values()))}")
    return Looks(np.stack(pictures), contents), left_out


def _groups(items: Sequence[Item], by: str, pattern: str | None) -> Array:
    if pattern is not None:
        return _numbers(_matches(items, pattern))
    if by == "folder":
        return _numbers([i.name if len(Path(i.name).parts) < 3 else str(Path(i.name).parent) for i in items])
    return np.arange(len(items))


def _matches(items: Sequence[Item], pattern: str) -> list[Any]:
    """Give what a pattern finds in each name; a name in which it finds nothing stands alone."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise SettingsError(f"--group {pattern!r} is no regular expression: {error}") from error
    found = [compiled.search(item.name) for item in items]
    if not any(found):
        raise SettingsError(
            f"--group {pattern!r} is in no name; it is looked for in names such as {items[0].name!r}"
        )
    return [
        (match.groups() or match.group()) if match else (None, item.name)
        for item, match in zip(items, found, strict=True)
    ]


def _numbers(keys: Sequence[Any]) -> Array:
    places: dict[Any, int] = {}
    return np.array([places.setdefault(key, len(places)) for key in keys], dtype=np.int64)


def _divided(
    names: Sequence[str],
    labels: Sequence[Any],
    groups: Array,
    pairs: Sequence[Pair],
    shares: Shares,
    seed: int,
    left_out: Mapping[str, str],
) -> Splitting:
    together = merged_groups(groups, duplicates.components(len(names), pairs))
    part = stratified(_numbers(labels), together, shares.by_part, seed)
    places = {name: np.flatnonzero(part == number) for number, name in enumerate(PARTS)}
    parts = {name: each for name, each in places.items() if len(each)}
    return Splitting(names, labels, parts, len(np.unique(together)), pairs, left_out)


# Arrays ------------------------------------------------------------------------------------------------


def split_arrays(
    path: Path, shares: Shares, *, near: bool = True, likeness: float | None = None, seed: int = 0
) -> tuple[Splitting, Array]:
    """Divide the samples of an .npz file (x and y, or x_train and y_train); returns its inputs, too."""
    arrays = own.npz_arrays(path)
    if "x_test" in arrays:
        raise DataError(f"{path} is divided already: it has x_test; leave that out to divide the rest again")
    samples = own.read_npz(path).train
    x, y = (arrays[f"{key}_train" if f"{key}_train" in arrays else key] for key in "xy")
    labels = label_list(y, str(path))
    alone = np.arange(len(labels)) if samples.groups is None else samples.groups.numpy()
    looks, places = duplicates.looks_of(samples.inputs), samples.labels.numpy()
    pairs = duplicates.pairs(looks, places, likeness) if near else []
    names = [f"{path}#{row}" for row in range(len(labels))]
    return _divided(names, labels, alone, pairs, shares, seed, {}), x
