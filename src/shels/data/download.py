"""Fetching the official files of a named set, whole and with the right checksum, or not at all."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

from shels.data.sources import NamedSet, OfficialFile, data_directory, named_set
from shels.errors import DataError, MissingDataError, MissingExtraError

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with the name of a file, the bytes that have come so far, and all its bytes (0: unknown)."""


def download(name: str, data_dir: str | Path | None = None, progress: Progress | None = None) -> Path:
    """Fetch the official files of a named set and return their folder, DIR/NAME.

    A file that is already there with the right checksum is not fetched again.
    """
    wanted = named_set(name)
    folder = data_directory(data_dir) / name
    if not wanted.files:
        return folder
    try:
        import pooch  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("pooch", "download", "downloading data") from error
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"the folder {folder} cannot be made ({error}); choose another data directory"
        ) from error
    for file in wanted.files:
        target = folder / file.name
        if not (target.is_file() and _checksum(pooch, target) == file.md5):
            _fetch(pooch, wanted, file, target, progress)
    return folder


def _checksum(pooch: ModuleType, path: Path) -> str:
    return str(pooch.file_hash(str(path), alg="md5"))


def _fetch(
    pooch: ModuleType, wanted: NamedSet, file: OfficialFile, target: Path, progress: Progress | None
) -> None:
    """Fetch one file under a temporary name, and rename it into place once its checksum is right."""
    by_hand = f"or fetch it by hand ({wanted.homepage}) and put it at {target}"
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".download-") as scratch:
        partial = Path(scratch) / file.name
        try:
            bar = None if progress is None else _Bar(file.name, progress)
            pooch.HTTPDownloader(progressbar=bar)(file.url, str(partial), None)
        except OSError as error:  # every failure of the network and of the disk is one
            raise MissingDataError(
                f"{file.url} could not be downloaded ({error}); try again later, {by_hand}"
            ) from error
        found = _checksum(pooch, partial)
        if found != file.md5:
            raise DataError(
                f"{file.url} gave a file with the md5 checksum {found} instead of {file.md5}, "
                f"so it was thrown away; try again, {by_hand}"
            )
        partial.replace(target)


class _Bar:
    """What pooch calls while a file comes in, passed on as (name, so far, all)."""

    def __init__(self, name: str, progress: Progress) -> None:
        self.total = 0
        self._name = name
        self._progress = progress
        self._so_far = 0

    def update(self, count: int) -> None:
        """Count bytes that have come; pooch counts the last piece as a full one."""
        self._so_far += count
        shown = min(self._so_far, self.total) if self.total else self._so_far
        self._progress(self._name, shown, self.total)

    def reset(self) -> None:
        """Start the count again, as pooch does before it reports all bytes at the end."""
        self._so_far = 0

    def close(self) -> None:
        """Do nothing: the progress is the caller's to end."""
