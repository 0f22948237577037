"""Which image files there are, in folders, archives and lists, and what is left out; none is decoded yet."""

from __future__ import annotations

import io
import os
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeAlias

from torch import Tensor

from shels.data import images
from shels.data.decoding import decoding, kind_of
from shels.data.samples import Label
from shels.errors import DataError, MissingDataError
from shels.files import require_regular

READ_PARTS = ("train", "test")
PARTS = (*READ_PARTS, "val", "valid")
"""Folders that are parts of a data set, not classes; what is in the last two is left alone."""
_NO_DATA = ("__MACOSX", "@eaDir", "#recycle", "$RECYCLE.BIN")


class Elsewhere(Protocol):
    """A file that is on no disk here, such as one in a bucket."""

    @property
    def stamp(self) -> str:
        """What is known of its content without reading it."""

    def read(self) -> bytes:
        """Fetch its content."""


Place: TypeAlias = Path | tuple[zipfile.ZipFile, zipfile.ZipInfo] | bytes | Tensor | Elsewhere
"""Where an image is: a file, a member of an archive, a file's content, pixels already, or far away."""


@dataclass(frozen=True)
class ImageFile:
    """An image on disk or in an archive, and what it is called in verdicts and errors.

    label: its class, where that is known. part: "train" or "test".
    """

    name: str
    place: Place
    label: Label | None = None
    part: str = "train"

    def opened(self) -> images.Source:
        """Return the file to read from; what is no file of its own is unpacked or fetched into memory."""
        place = self.place
        if isinstance(place, Path):
            return place
        if isinstance(place, tuple):
            with decoding(self.name, "cannot be unpacked", "make the archive again"):
                return io.BytesIO(place[0].read(place[1]))
        with decoding(self.name, "cannot be fetched", "see that it is there and may be read"):
            if isinstance(place, Tensor):
                raise TypeError("it is an array, not a file")
            return io.BytesIO(place if isinstance(place, bytes) else place.read())

    @property
    def stamp(self) -> str:
        """What tells its content from another's without reading it: size and time, or a checksum."""
        if isinstance(self.place, Path):
            with suppress(OSError):
                facts = self.place.stat()
                return f"{facts.st_size} {facts.st_mtime_ns}"
        elif isinstance(self.place, tuple):
            return f"{self.place[1].file_size} {self.place[1].CRC}"
        elif not isinstance(self.place, bytes | Tensor):
            return self.place.stamp
        return ""

    @property
    def title(self) -> Path | str:
        """What an error calls it: a path is checked to be a plain file before it is opened."""
        return self.place if isinstance(self.place, Path) else self.name


@dataclass(frozen=True)
class LeftOut:
    """A file that is not among the samples, and why."""

    name: str
    reason: str
    label: Label | None = None

    @classmethod
    def because(cls, name: str, error: Exception, label: Label | None = None) -> LeftOut:
        """Make one of an error that begins with the file's name."""
        return cls(name, str(error).removeprefix(f"{name} "), label)


Entry: TypeAlias = ImageFile | LeftOut
"""What a list of images has at one place: a file, or why there is none."""


@dataclass
class Found:
    """Files to read; those that cannot be; how many others were passed over, by suffix."""

    files: list[ImageFile] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, entries: Iterable[Entry], others: Counter[str] | None = None) -> Found:
        """Put what was listed one by one into lists. others: where the lister counts what it passes over."""
        found = cls()
        for entry in entries:
            if isinstance(entry, LeftOut):
                found.left_out.append(entry)
            else:
                found.files.append(entry)
        found.others = Counter() if others is None else others
        return found

    def add(self, more: Found, *, label: str | None = None, part: str | None = None) -> None:
        """Put more files behind these, as members of a class or of a part."""
        self.files += [
            replace(file, label=label or file.label, part=part or file.part) for file in more.files
        ]
        self.left_out += [replace(each, label=label or each.label) for each in more.left_out]
        self.others += more.others


def hidden(name: str) -> bool:
    """Tell whether a file or folder is no data: the system's own, or what archives leave behind."""
    return name.startswith(".") or name in _NO_DATA


def is_image(name: str) -> bool:
    """Tell by its suffix whether a file is an image."""
    return Path(name).suffix.lower() in images.SUFFIXES


def suffixes() -> str:
    """Name the suffixes of images, for people."""
    return ", ".join(sorted(images.SUFFIXES))


def subfolders(path: Path) -> dict[str, Path]:
    """Return the folders in a folder by name, links to folders among them."""
    if kind_of(path) != "folder":
        raise MissingDataError(
            f"no folder {path}; give a folder that holds a folder of images for each class"
        )
    return {item.name: item for item in sorted(path.iterdir()) if item.is_dir() and not hidden(item.name)}


def files_below(folder: Path) -> Found:
    """Find the images in a folder and all below it, in name order, as `entries_below` lists them."""
    others: Counter[str] = Counter()
    return Found.of(entries_below(folder, others), others)


def entries_below(folder: Path, others: Counter[str]) -> Iterator[Entry]:
    """List the images in a folder and all below it, in name order, one folder at a time in memory.

    Links to files are followed; links to folders are not, so that nothing goes round in a circle.
    others: is told of files that are no images.
    """
    try:
        inside = sorted(_inside(folder))
    except OSError as error:
        yield LeftOut(str(error.filename), f"cannot be opened ({error.strerror})")
        return
    for name, kind in inside:
        path = folder / name
        if kind == "folder" and path.is_symlink():
            yield LeftOut(str(path), "is a link to a folder, which is not followed")
        elif kind == "folder":
            yield from entries_below(path, others)
        elif not is_image(name):
            others[path.suffix.lower() or name] += 1
        else:
            yield ImageFile(str(path), path) if kind == "file" else _no_file(path)


def _inside(folder: Path) -> Iterator[tuple[str, str]]:
    """Give the names in a folder, each with what is there, as `kind_of` says it; only links are looked up."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if hidden(entry.name):
                continue
            if entry.is_symlink():
                yield entry.name, kind_of(Path(entry.path))
            else:
                yield entry.name, "folder" if entry.is_dir() else "file" if entry.is_file() else "other"


def _no_file(path: Path) -> LeftOut:
    try:
        images.require_target(path)
        require_regular(path, DataError)
    except DataError as error:
        return LeftOut.because(str(path), error)
    return LeftOut(str(path), "cannot be read")


def class_files(path: Path) -> Found:
    """Find the images in a folder of class folders, or of `train` and `test` with such in them."""
    folders = subfolders(path)
    if not is_parted(folders):
        return _classes(path)
    found = Found()
    for part in READ_PARTS:
        if part in folders:
            found.add(_classes(folders[part]), part=part)
    return found


def class_folders(path: Path) -> dict[str, Path]:
    """Return the class folders in a folder, or in its `train` and `test`, that hold an image, by name."""
    folders = subfolders(path)
    parts = [folders[part] for part in READ_PARTS if part in folders] if is_parted(folders) else [path]
    classes = [each for part in parts for each in subfolders(part).items()]
    return {name: folder for name, folder in classes if any(entries_below(folder, Counter()))}


def is_parted(folders: Iterable[str]) -> bool:
    """Tell whether folders of these names are parts of a data set."""
    names = set(folders)
    return "train" in names and names <= set(PARTS)


def _classes(path: Path) -> Found:
    folders = subfolders(path)
    if not folders:
        raise DataError(f"{path} holds no class folders; put the images of each class in a folder of its own")
    found = Found()
    for name, folder in folders.items():
        inside = files_below(folder)
        if not inside.files and not inside.left_out:
            raise DataError(f"the class folder {folder} holds no image ({suffixes()}); add some or remove it")
        found.add(inside, label=name)
    loose = [item for item in sorted(path.iterdir()) if is_image(item.name) and not hidden(item.name)]
    found.left_out += [LeftOut(str(item), "lies in no class folder") for item in loose if not item.is_dir()]
    return found
