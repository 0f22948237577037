"""Files of others: whatever a decoder makes of a damaged one, a DataError comes out, in bounded memory."""

from __future__ import annotations

import gzip
import stat
import threading
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from shels.errors import DataError, ShelsError
from shels.files import require_regular

MOST_BYTES = 2**30
"""What a file of an official set may unpack to; the largest has a fifth of it. More is an archive bomb."""


class _Quiet:
    """No warnings while any thread is inside: the filters belong to all, and the last one out restores them.

    `warnings.catch_warnings` in each thread would put back what another had set, in any order.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._before = warnings.catch_warnings()
                self._before.__enter__()
                warnings.simplefilter("ignore")
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._before.__exit__(None, None, None)


QUIET = _Quiet()
"""To be inside once, for many files: each `decoding` is then so for less."""


@contextmanager
def decoding(name: object, fault: str, advice: str = "fetch it again") -> Iterator[None]:
    """Turn whatever is raised while a file is decoded into a DataError: NAME FAULT (why); ADVICE.

    Decoders raise anything on damaged input, so everything is caught here and nowhere else. What they only
    complain of, such as odd metadata, does no harm. A path that is no plain file is never opened.

    >>> with decoding("a.mat", "is not a whole MATLAB file"):
    ...     raise NotImplementedError("HDF reader")
    Traceback (most recent call last):
    shels.errors.DataError: a.mat is not a whole MATLAB file (HDF reader); fetch it again
    """
    try:
        if isinstance(name, Path):
            require_regular(name, DataError)
        with QUIET:
            yield
    except ShelsError:
        raise
    except Exception as error:
        raise DataError(f"{name} {fault} ({str(error) or type(error).__name__}); {advice}") from error


def kind_of(path: Path) -> Literal["file", "folder", "other", ""]:
    """Return what is at a path; nothing where there is none, or where no path can be called so.

    other: a named pipe or a device, which `decoding` refuses.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return ""
    return "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"


def read_bounded(
    path: Path | zipfile.Path, fault: str = "cannot be read", advice: str = "fetch it again"
) -> bytes:
    """Return the content of a file, unpacked, or of an archive's member, unless it is longer than allowed."""
    with decoding(path, fault, advice):
        if isinstance(path, Path) and path.suffix == ".gz":
            with gzip.open(path) as file:
                content = file.read(MOST_BYTES + 1)
            if len(content) > MOST_BYTES:
                raise ValueError(f"it unpacks to more than {MOST_BYTES} bytes")
            return content
        size = path.stat().st_size if isinstance(path, Path) else path.root.getinfo(path.at).file_size
        if size > MOST_BYTES:
            raise ValueError(f"it would unpack to {size} bytes")
        return bytes(path.read_bytes())
