"""Images in buckets and on other machines, by addresses such as s3://bucket/photos, through pyarrow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any

from shels.data import finding
from shels.data.decoding import decoding
from shels.data.finding import Entry, ImageFile
from shels.errors import MissingDataError, MissingExtraError

EXTRA = "parquet"
"""What brings pyarrow."""


def is_address(text: str) -> bool:
    """Tell an address from a path.

    >>> is_address("s3://bucket/photos"), is_address("photos/cats")
    (True, False)
    """
    return "://" in text


@dataclass(frozen=True)
class RemoteFile:
    """A file at an address; stamp: its size and time of change, where they are known."""

    address: str
    stamp: str = ""

    def read(self) -> bytes:
        """Fetch its content."""
        system, path = filesystem(self.address)
        with system.open_input_stream(path) as file:
            return bytes(file.read())


def named_file(address: str) -> ImageFile:
    """Give the image at an address, which is not looked for yet."""
    return ImageFile(address, RemoteFile(address))


def entries(address: str, others: Counter[str]) -> Iterator[Entry]:
    """List the images at an address and all below it, in name order; a file is listed whatever its name."""
    system, path = filesystem(address)
    with decoding(address, "cannot be listed", "see that it is there and may be read"):
        found = system.get_file_info(path)
        folder = found.type.name == "Directory"
        inside = [found] if not folder else system.get_file_info(_selector(path))
    if found.type.name == "NotFound":
        raise MissingDataError(f"there is nothing at {address}")
    for each in sorted(inside, key=lambda each: PurePosixPath(each.path).parts):
        names = PurePosixPath(each.path.removeprefix(path)).parts
        if each.type.name != "File" or any(map(finding.hidden, names)):
            continue
        if folder and not finding.is_image(each.path):
            others[PurePosixPath(each.path).suffix.lower() or names[-1]] += 1
            continue
        called = f"{address.partition('://')[0]}://{each.path}"
        yield ImageFile(called, RemoteFile(called, f"{each.size} {each.mtime_ns}"))


def filesystem(address: str) -> tuple[Any, str]:
    """Return what reads files there, and the path that it knows an address by."""
    scheme, _, rest = address.partition("://")
    system, root = _opened(f"{scheme}://{rest.partition('/')[0]}/")
    return system, f"{root}/{rest.partition('/')[2]}".rstrip("/")


@lru_cache(maxsize=8)
def _opened(root: str) -> tuple[Any, str]:
    """Open the bucket or machine of an address once; what it asks for is for pyarrow to know."""
    try:
        from pyarrow.fs import FileSystem  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("pyarrow", EXTRA, f"reading {root}") from error
    with decoding(root, "cannot be reached", "see docs/judging.md for addresses"):
        system, path = FileSystem.from_uri(root)
    return system, str(path).rstrip("/")


def _selector(path: str) -> Any:
    from pyarrow.fs import FileSelector  # noqa: PLC0415

    return FileSelector(path, recursive=True)
