"""A zip of class folders, read where it lies: nothing is unpacked to disk, and no member leads out of it."""

from __future__ import annotations

import stat
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TypeAlias

from shels.data import finding
from shels.data.decoding import decoding
from shels.data.finding import Entry, Found, ImageFile, LeftOut
from shels.errors import DataError

_MOST_PACKED = 200
"""How many times smaller than its content a large member may be; photos hardly get smaller at all."""
_LARGE = 2**26
_MOST_BYTES = 2**29

Member: TypeAlias = tuple[tuple[str, ...], zipfile.ZipInfo]
"""The names of the folders and the file, and where it is in the archive."""


def class_files(path: Path) -> Found:
    """Find the images in a zip of class folders, or of `train` and `test` with such in them.

    One folder around all of it, as archives of a folder have, is no class.
    """
    archive, found = _opened(path), Found()
    every = list(_members(archive, path, found.others))
    found.left_out += [each for each in every if isinstance(each, LeftOut)]
    members = _inside_one([each for each in every if not isinstance(each, LeftOut)])
    parted = finding.is_parted({names[0] for names, _ in members if len(names) > 1})
    for names, info in members:
        inner = names[1:] if parted else names
        part = names[0] if parted else "train"
        if len(inner) < 2:
            found.left_out.append(LeftOut(f"{path}/{info.filename}", "lies in no class folder"))
        elif part in finding.READ_PARTS:
            found.files.append(_file(archive, path, info, inner[0], part))
    if not found.files:
        raise DataError(f"{path} holds no class folders with images in them ({finding.suffixes()})")
    return found


def image_files(path: Path) -> Found:
    """Find all images in a zip, in name order, whatever folders they are in."""
    others: Counter[str] = Counter()
    return Found.of(entries(path, others), others)


def entries(path: Path, others: Counter[str]) -> Iterator[Entry]:
    """List all images in a zip, in name order. others: is told of members that are no images."""
    archive = _opened(path)
    for member in _members(archive, path, others):
        yield member if isinstance(member, LeftOut) else _file(archive, path, member[1])


def _file(
    archive: zipfile.ZipFile, path: Path, info: zipfile.ZipInfo, label: str | None = None, part: str = "train"
) -> ImageFile:
    return ImageFile(f"{path}/{info.filename}", (archive, info), label, part)


class _Archive(zipfile.ZipFile):
    """An archive that another process, to which one of its members is sent, opens anew."""

    def __reduce__(self) -> tuple[Callable[[Path], _Archive], tuple[Path]]:
        return _kept_open, (Path(self.filename or "").absolute(),)


@lru_cache(maxsize=2)
def _kept_open(path: Path) -> _Archive:
    return _opened(path)


def _opened(path: Path) -> _Archive:
    with decoding(path, "is not a whole zip archive", "make it again"):
        archive = _Archive(path)
        packed = sum(info.compress_size for info in archive.infolist())
        if packed > path.stat().st_size:
            raise DataError(f"{path}: its members lie over each other, as in an archive bomb; make it again")
        return archive


def _members(archive: zipfile.ZipFile, path: Path, others: Counter[str]) -> Iterator[Member | LeftOut]:
    """Give the images of an archive in name order."""
    for info in sorted(archive.infolist(), key=lambda info: info.filename):
        names = _safe_names(info.filename, path)
        if info.is_dir() or any(map(finding.hidden, names)):
            continue
        if not finding.is_image(names[-1]):
            others[PurePosixPath(names[-1]).suffix.lower() or names[-1]] += 1
        elif stat.S_ISLNK(info.external_attr >> 16):
            yield LeftOut(f"{path}/{info.filename}", "is a link in an archive")
        else:
            _refuse_bomb(info, path)
            yield names, info


def _safe_names(name: str, path: Path) -> tuple[str, ...]:
    """Return the folders and the file that a member is called by, unless they lead out of the archive."""
    names = PurePosixPath(name.replace("\\", "/")).parts
    if not names or ".." in names or name[0] in "/\\" or PureWindowsPath(name).drive:
        raise DataError(f"{path}: the member {name!r} leads out of the archive; make it again without that")
    return names


def _refuse_bomb(info: zipfile.ZipInfo, path: Path) -> None:
    if info.file_size > min(max(_MOST_PACKED * info.compress_size, _LARGE), _MOST_BYTES):
        raise DataError(
            f"{path}: {info.filename!r} would unpack to {info.file_size} bytes from {info.compress_size}, "
            "as an archive bomb does; take it out"
        )


def _inside_one(members: list[Member]) -> list[Member]:
    """Take the one folder off that is around all class folders, if there is one."""
    outer = {names[0] for names, _ in members}
    wrapped = len(outer) == 1 and all(len(names) > 2 for names, _ in members)
    return [(names[1:], info) for names, info in members] if wrapped else members
