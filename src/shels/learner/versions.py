r"""Versions of a model on disk: numbered directories, each written whole, and a pointer to one of them.

    HOME/current          the text "0002\n": the version in use
    HOME/models/0001/ …   every version, each a model directory; once there, never changed or deleted

A plain model has neither: its `model.json` stands in the directory itself. `current` alone decides which of
the two a directory is.
"""

import filecmp
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from shels.errors import ModelFileError
from shels.files import require_regular, write_whole

_NUMBER = re.compile(r"[0-9]{4,9}")
_LEFTOVER = re.compile(
    r"\.(current|[0-9]{4,9}|(model|pending|batch|groups)\.json|.+\.safetensors)\.[0-9a-f]{8}"
)


def resolve(directory: Path) -> Path:
    """Return the model directory behind a path: of a home its current version, else the path itself."""
    if is_home(directory):
        return version_path(directory, read_current(directory))
    if not (directory / "model.json").exists() and versions(directory):
        raise ModelFileError(_no_pointer(directory))
    return directory


def is_home(directory: Path) -> bool:
    """Return whether a directory keeps versions of a model, not just one model."""
    with _reading(directory):
        return (directory / "current").is_file()


def read_current(directory: Path) -> int:
    """Return the number of the version in use."""
    pointer = directory / "current"
    require_regular(pointer)
    try:
        text = pointer.read_text(encoding="ascii")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ModelFileError(_no_pointer(directory)) from error
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{pointer} is damaged: {error}; {_advice(directory)}") from error
    if not _is_name(text.removesuffix("\n")):
        raise ModelFileError(f"{pointer} is damaged: it holds {text[:40]!r}; {_advice(directory)}")
    return int(text)


def write_current(directory: Path, version: int) -> None:
    """Make a version the one in use, at once for every reader."""
    write_whole(directory / "current", f"{version_name(version)}\n")
    _sync(directory)


def versions(directory: Path) -> list[int]:
    """Return the numbers of all versions in a home, in order."""
    models = directory / "models"
    with _reading(directory):
        if not models.is_dir():
            return []
        return sorted(int(path.name) for path in models.iterdir() if _is_name(path.name) and path.is_dir())


def version_name(version: int) -> str:
    """Return a version as people and files know it: 0001."""
    return f"{version:04d}"


def version_path(directory: Path, version: int) -> Path:
    """Return the model directory of a version; one that is not there is refused with those that are."""
    path = directory / "models" / version_name(version)
    if not (path / "model.json").is_file():
        known = _advice(directory, "choose")
        raise ModelFileError(f"{directory} has no whole version {version_name(version)}; {known}")
    return path


def next_version(directory: Path) -> int:
    """Return the number of the version that is added next, above all that exist."""
    return max([0, *versions(directory)]) + 1


def add_version(directory: Path, write: Callable[[Path], None]) -> int:
    """Put what `write` writes in place as a new version, whole or not at all, and return its number.

    `current` stays. Only the one that holds the home's lock may call this.
    """
    name = version_name(next_version(directory))
    models = directory / "models"
    models.mkdir(exist_ok=True)
    temporary = models / f".{name}.{secrets.token_hex(4)}"
    try:
        temporary.mkdir()
        write(temporary)
        _sync(temporary)
        temporary.rename(models / name)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    _sync(models)
    return int(name)


def link_files(paths: Iterable[Path], to: Path) -> None:
    """Put files into another directory too, sharing their space on disk where the file system can."""
    for path in paths:
        try:
            os.link(path, to / path.name)
        except OSError:  # a file system without links
            write_whole(to / path.name, path.read_bytes())


def share_files(directory: Path, before: Path) -> None:
    """Link an earlier version's tensor files into a new one's directory, before a model is saved there.

    Those whose content the model has too need not be written again, nor waited for until they are on disk.
    Saving removes the others, and writes none in place, which would reach the earlier version.
    """
    for path in before.glob("*-*.safetensors"):
        if path.is_file() and not path.is_symlink():
            with suppress(OSError):  # a file system without links
                os.link(path, directory / path.name)


def equal_files(one: Path, other: Path) -> bool:
    """Return whether both files exist and hold the same bytes."""
    try:
        return filecmp.cmp(one, other, shallow=False)
    except FileNotFoundError:
        return False


def remove_leftovers(directory: Path) -> None:
    """Delete what was being written when an earlier run was cut off; for the one that holds the lock."""
    for inside in (directory, directory / "models", directory / "novel"):
        for path in list(inside.glob(".*")):
            if _LEFTOVER.fullmatch(path.name) and path.is_dir():
                shutil.rmtree(path)
            elif _LEFTOVER.fullmatch(path.name):
                path.unlink()


def _sync(directory: Path) -> None:
    """Have the names in a directory put on disk, where the system can, so that they outlast a power cut."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _reading(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ModelFileError(f"{directory} cannot be read: {error.strerror or error}") from error


def _is_name(text: str) -> bool:
    return bool(_NUMBER.fullmatch(text)) and int(text) > 0 and text == version_name(int(text))


def _no_pointer(directory: Path) -> str:
    if not versions(directory):
        return f"{directory} keeps no versions of a model; begin there with one, or adopt the one it holds"
    return f"{directory / 'current'} is missing, so no version is in use; {_advice(directory)}"


def _advice(directory: Path, what_to_do: str = "write into it") -> str:
    names = [version_name(number) for number in versions(directory)]
    return f"{what_to_do} one of {', '.join(names)}" if names else "no version is left; train a model anew"
