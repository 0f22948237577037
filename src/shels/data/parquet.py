"""Parquet files of images: a column of contents, or of paths; rows are read some at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from shels.data import path_lists, remote
from shels.data.decoding import decoding, kind_of
from shels.data.finding import Entry, ImageFile, LeftOut
from shels.errors import DataError, MissingDataError, MissingExtraError

SUFFIX = ".parquet"
_AT_ONCE = 256
_BUFFER = 2**20
"""Bytes of a column that are fetched at a time, however long its row groups are."""


class _Columns(NamedTuple):
    """Columns of contents and of paths; nested: whether contents stand in a column with a field bytes."""

    content: str | None
    path: str | None
    nested: bool = False


@dataclass(frozen=True)
class ParquetFile:
    """The images of a Parquet file, by their rows; a path or an address."""

    place: str

    @cached_property
    def rows(self) -> int:
        """How many images it lists."""
        return sum(self._groups)

    @property
    def stamp(self) -> str:
        """What tells its content from another's without reading it."""
        if remote.is_address(self.place):
            found = next(remote.entries(self.place, Counter()))
            return found.stamp if isinstance(found, ImageFile) else found.reason
        return ImageFile(self.place, Path(self.place)).stamp

    def entries(self, wanted: range) -> Iterator[Entry]:
        """List the images of some rows; row groups before them are not read."""
        start = 0
        for group, count in enumerate(self._groups):
            inside = range(max(wanted.start, start), min(wanted.stop, start + count))
            if inside:
                yield from self._of_group(group, start, inside)
            start += count

    def _of_group(self, group: int, start: int, inside: range) -> Iterator[Entry]:
        columns = self._columns
        names = [name for name in columns[:2] if name is not None]
        file = _opened(self.place)
        batches = file.iter_batches(_AT_ONCE, row_groups=[group], columns=names, use_threads=False)
        while start < inside.stop:
            with decoding(self.place, "cannot be read as Parquet", "write it again"):
                batch = next(batches)
            wanted = range(max(inside.start, start), min(inside.stop, start + len(batch)))
            if wanted:
                some = batch.slice(wanted.start - start, len(wanted)).to_pydict()
                for row, at in enumerate(wanted):
                    yield self._entry(at, {name: some[name][row] for name in names})
            start += len(batch)

    def _entry(self, row: int, values: dict[str, Any]) -> Entry:
        columns = self._columns
        content = values.get(columns.content or "")
        path = values.get(columns.path or "")
        if columns.nested and content is not None:
            content, path = content["bytes"], path or content.get("path")
        if content is not None:
            return ImageFile(path or f"{self.place}#{row}", content)
        if path:
            return path_lists.named_file(Path(self.place), path)
        return LeftOut(f"{self.place}#{row}", "has neither an image nor a path")

    @cached_property
    def _groups(self) -> list[int]:
        about = _opened(self.place).metadata
        return [about.row_group(number).num_rows for number in range(about.num_row_groups)]

    @cached_property
    def _columns(self) -> _Columns:
        schema = _opened(self.place).schema_arrow
        columns = _columns_of(schema)
        if columns.content is None and columns.path is None:
            raise DataError(
                f"{self.place} has no column of contents (binary) or of paths, only {schema.names}; call it "
                "image or path"
            )
        return columns


def files_of(place: str) -> list[ParquetFile]:
    """Return a Parquet file, or those of a directory that is called as one, in name order."""
    path = Path(place)
    if remote.is_address(place) or kind_of(path) == "file":
        return [ParquetFile(place)]
    inside = sorted(path.glob(f"[!._]*{SUFFIX}"))
    if not inside:
        raise MissingDataError(f"{place} holds no file of its own that ends in {SUFFIX}")
    return [ParquetFile(str(each)) for each in inside]


def _columns_of(schema: Any) -> _Columns:
    """Choose the columns: contents by their type, paths by their name."""
    from pyarrow import types  # noqa: PLC0415

    texts = [
        field.name for field in schema if types.is_string(field.type) or types.is_large_string(field.type)
    ]
    path = path_lists.columns_of(texts).path
    for field in schema:
        if types.is_binary(field.type) or types.is_large_binary(field.type):
            return _Columns(field.name, path)
        if types.is_struct(field.type) and field.type.get_field_index("bytes") >= 0:
            return _Columns(field.name, path, nested=True)
    return _Columns(None, path)


def _opened(place: str) -> Any:
    try:
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("pyarrow", remote.EXTRA, f"reading {place}") from error
    with decoding(place, "cannot be read as Parquet", "write it again"):
        source: Any = place
        if remote.is_address(place):
            system, path = remote.filesystem(place)
            source = system.open_input_file(path)
        return parquet.ParquetFile(source, buffer_size=_BUFFER, pre_buffer=False)
