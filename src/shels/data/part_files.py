"""The parts that a data set was divided into, as files: lists of paths and labels, copies, or arrays."""

from __future__ import annotations

import csv
import io
import os
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shels.data import finding
from shels.data.splitting import PARTS, Item, Splitting
from shels.errors import SettingsError
from shels.files import check_writable, write_whole

Array = NDArray[Any]

_FOLDERS = {"train": "train", "validation": "val", "test": "test"}
"""What copies are put in, as readers of folders know it."""


def check_target(out: Path, *, force: bool, parts: Collection[str] = PARTS) -> None:
    """Raise unless parts can be written into a folder without losing what is there.

    parts: those that are to be written. Another, of an earlier division, must not stay beside them: its
    samples are in these parts as well.
    """
    there = [out / f"{part}{end}" for part in PARTS for end in (".csv", ".npz")]
    there = [path for path in (*there, *(out / name for name in _FOLDERS.values())) if path.exists()]
    if there and not force:
        raise SettingsError(f"{there[0]} is there already; choose another --out, or replace it with --force")
    folders = [path for path in there if path.is_dir()]
    if folders:
        raise SettingsError(
            f"{folders[0]} is a folder of files, which is never replaced; choose another --out"
        )
    stale = [path for path in there if path.stem not in parts]
    if stale:
        raise SettingsError(
            f"{stale[0]} is of another division, and would share samples with this one; delete it, or choose "
            "another --out"
        )
    check_writable(out)


def write_lists(found: Splitting, items: Sequence[Item], out: Path) -> dict[str, Path]:
    """Write a table path,label for each part, paths relative to it; returns the files."""
    paths = {item.name: item.path for item in items}
    here, written = out.resolve(), {}
    for part, places in found.parts.items():
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("path", "label"))
        for place in places:
            file = Path(os.path.relpath(paths[found.names[place]].absolute(), here)).as_posix()
            writer.writerow((file, found.labels[place]))
        written[part] = out / f"{part}.csv"
        write_whole(written[part], text.getvalue())
    return written


def write_copies(found: Splitting, items: Sequence[Item], out: Path) -> dict[str, Path]:
    """Copy files into a folder for each part and class; returns the parts' folders."""
    paths = {item.name: item.path for item in items}
    for label in {str(label) for label in found.labels}:
        if label in ("", ".", "..") or "/" in label or "\\" in label or finding.hidden(label):
            raise SettingsError(
                f"class {label!r} cannot be the name of a folder; leave --copy out, for lists"
            )
    written = {}
    for part, places in found.parts.items():
        written[part] = out / _FOLDERS[part]
        for place in places:
            folder = written[part] / str(found.labels[place])
            folder.mkdir(parents=True, exist_ok=True)
            source = paths[found.names[place]]
            shutil.copy2(source, _free(folder, source))
    return written


def _free(folder: Path, source: Path) -> Path:
    """Find a name for a copy that no file has yet: files of different folders may be called the same."""
    name, number = folder / source.name, 2
    while name.exists():
        name, number = folder / f"{source.stem}-{number}{source.suffix}", number + 1
    return name


def write_arrays(found: Splitting, inputs: Array, out: Path) -> dict[str, Path]:
    """Write an .npz file with x and y for each part; returns the files."""
    written = {}
    for part, places in found.parts.items():
        content = io.BytesIO()
        np.savez_compressed(content, x=inputs[places], y=np.array([found.labels[at] for at in places]))
        written[part] = out / f"{part}.npz"
        write_whole(written[part], content.getvalue())
    return written
