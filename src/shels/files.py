"""Files that are either whole or absent, whatever happens while they are written."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shels.errors import ModelFileError, ShelsError

if TYPE_CHECKING:
    from torch import Tensor


def write_whole(path: Path, content: bytes | str) -> None:
    """Write a file under a temporary name beside it, then rename it into place.

    >>> from tempfile import mkdtemp
    >>> path = Path(mkdtemp()) / "notes.txt"
    >>> write_whole(path, "whole or absent")
    >>> path.read_text()
    'whole or absent'
    """
    write_together([(path, content)])


def require_folder(path: Path) -> None:
    """Raise where a file of this name could lie in no folder, as another file stands in the way."""
    for parent in path.parents:
        if parent.exists() and not parent.is_dir():
            reason = f"{parent} is a file, not a folder; name another place"
            raise NotADirectoryError(errno.ENOTDIR, reason, str(path))


def write_together(contents: Iterable[tuple[Path, bytes | str]]) -> None:
    """Write files that belong together: not one is put in its place before all of them are on disk.

    contents: a file's path and what it holds, which may be made as it is asked for.
    """
    written: list[tuple[Path, Path]] = []
    path: Path | None = None
    try:
        for path, content in contents:
            data = _encoded(content)
            require_folder(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
            written.append((temporary, path))
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        for temporary, path in written:
            temporary.replace(path)
    except BaseException as error:
        for temporary, _ in written:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and path:  # the caller knows the file by its own name
            raise type(error)(error.errno, error.strerror, str(path)) from error
        raise


def append_whole(file: FileIO, line: bytes) -> None:
    """Add a line to an open file, on disk when this returns; where that fails, nothing of it stays.

    The file has no buffer: one would write the rest of a line that was given up when it is closed.
    """
    end = file.seek(0, os.SEEK_END)
    try:
        taken = file.write(line)
        os.fsync(file.fileno())
        whole = taken == len(line)
    except OSError:
        file.truncate(end)
        raise
    if not whole:  # the disk took the first part
        file.truncate(end)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def write_output(path: Path, content: bytes | str) -> None:
    """Write a file that a person named: whole or absent, but into a named pipe or a device where that is one.

    >>> write_output(Path("/dev/null"), "gone")
    """
    with suppress(FileNotFoundError):
        if not (path.is_dir() or stat.S_ISREG(path.stat().st_mode)):
            with path.open("wb") as file:
                file.write(_encoded(content))
            return
    write_whole(path, content)


def _encoded(content: bytes | str) -> bytes:
    """Give the bytes of a content; names of files that are no UTF-8 are the bytes that they have on disk."""
    return content.encode(errors="surrogateescape") if isinstance(content, str) else content


def check_writable(directory: Path) -> None:
    """Make a directory and raise unless files can be written into it, before any work is done for them."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(b"written")
    except OSError as error:
        reason = "it is a file, not a folder" if directory.is_file() else error.strerror
        raise ModelFileError(f"{directory} cannot be written to ({reason}); choose another") from error


@contextmanager
def unharmed(place: Path, what: str) -> Iterator[None]:
    """Turn a failure to write into an error that says that what is there is unharmed."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise ModelFileError(f"{place} cannot be written to ({reason}); {what} unharmed") from error


@contextmanager
def locked(directory: Path, message: str) -> Iterator[None]:
    """Keep every other run out of a directory; the system lets go of it however this one ends.

    message: what to say where another run is in it. The directory is made if need be.
    """
    import fcntl  # noqa: PLC0415 (not on every system, and reading does without)

    with unharmed(directory, "what it holds is"):
        directory.mkdir(parents=True, exist_ok=True)
        require_regular(directory / ".lock")
        file = (directory / ".lock").open("ab")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ModelFileError(f"{directory}: {message}") from error
        except OSError as error:
            raise ModelFileError(
                f"{directory} cannot be locked ({error.strerror}); choose another"
            ) from error
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # also where a forked process holds the file open


def require_regular(path: Path, error: type[ShelsError] = ModelFileError) -> None:
    """Raise where a path is no plain file, before it is opened: a named pipe or a device may never end.

    A path that does not exist is left to whoever opens it, to say what was expected there.

    >>> require_regular(Path("/dev/null"))
    Traceback (most recent call last):
    shels.errors.ModelFileError: /dev/null is a device, not a file; put the file itself there
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OSError, ValueError) as fault:
        raise error(f"{path!s} cannot be read: {fault}") from fault
    if not stat.S_ISREG(mode):
        kind = next((name for is_one, name in _KINDS if is_one(mode)), "a device")
        raise error(f"{path} is {kind}, not a file; put the file itself there")


_KINDS = ((stat.S_ISDIR, "a directory"), (stat.S_ISFIFO, "a named pipe"), (stat.S_ISSOCK, "a socket"))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file; nothing in it can be executed."""
    with _open_tensors(path) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)


def read_metadata(path: Path) -> dict[str, str]:
    """Return the notes that stand at the head of a safetensors file."""
    with _open_tensors(path) as file:
        return dict(file.metadata() or {})


@contextmanager
def _open_tensors(path: Path) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415

    require_regular(path)
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except FileNotFoundError as error:
        raise ModelFileError(f"{path} does not exist") from error
    except (SafetensorError, OSError) as error:
        raise ModelFileError(f"{path} is damaged or not a safetensors file: {error}") from error


def to_bytes(tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    """Return tensors as the content of a safetensors file."""
    from safetensors.torch import save  # noqa: PLC0415

    return save({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, metadata)
