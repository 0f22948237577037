"""Millions of images as one numbered list that is walked, never held: what is in it, and its parts.

A list is told from others by a digest of each part of it: names, sizes and times of change, no pixels.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, islice
from pathlib import Path
from typing import NamedTuple, Protocol

from shels.data import archives, finding, own, parquet, path_lists, remote
from shels.data.decoding import kind_of
from shels.data.finding import Entry, ImageFile
from shels.errors import DataError


class Stretch(NamedTuple):
    """Rows of a list that one text tells from others."""

    rows: int
    stamp: str


class Source(Protocol):
    """One of the inputs that were given, as a list of images."""

    @property
    def name(self) -> str:
        """What it was called by."""

    def stretches(self) -> Iterator[Stretch]:
        """Walk it without reading any image."""

    def entries(self, wanted: Sequence[range]) -> Iterator[Entry]:
        """List the images of some rows, in rising order."""

    def pieces(self, wanted: Sequence[range]) -> Iterator[Piece]:
        """Give the same as values that can be sent away, one for each range."""


@dataclass(frozen=True)
class Piece:
    """Some rows of a list: the images themselves, or which rows of a Parquet file."""

    files: tuple[Entry, ...] = ()
    table: parquet.ParquetFile | None = None
    rows: range = range(0)

    def entries(self) -> Iterator[Entry]:
        """List its images."""
        return iter(self.files) if self.table is None else self.table.entries(self.rows)


@dataclass(frozen=True)
class Walked:
    """A source that is walked from its start: a folder, an archive, a list of paths, an address, arrays."""

    name: str
    walk: Callable[[Counter[str]], Iterator[Entry]]
    stamp: str = ""
    others: Counter[str] = field(default_factory=Counter)

    def stretches(self) -> Iterator[Stretch]:
        """Walk it without reading any image."""
        self.others.clear()
        for entry in self.walk(self.others):
            stamp = entry.stamp if isinstance(entry, ImageFile) else entry.reason
            yield Stretch(1, f"{entry.name}\0{stamp}{self.stamp}\n")

    def entries(self, wanted: Sequence[range]) -> Iterator[Entry]:
        """List the images of some rows, in rising order."""
        walk, at = self.walk(Counter()), 0
        for rows in wanted:
            yield from islice(walk, rows.start - at, rows.stop - at)
            at = rows.stop

    def pieces(self, wanted: Sequence[range]) -> Iterator[Piece]:
        """Give the same as values that can be sent away, one for each range."""
        entries = self.entries(wanted)
        return (Piece(tuple(islice(entries, len(rows)))) for rows in wanted)


@dataclass(frozen=True)
class Table:
    """A Parquet file as a source: its rows are found without a walk."""

    file: parquet.ParquetFile

    @property
    def name(self) -> str:
        """What it was called by."""
        return self.file.place

    def stretches(self) -> Iterator[Stretch]:
        """Give all of it at once."""
        yield Stretch(self.file.rows, f"{self.name}\0{self.file.stamp}\n")

    def entries(self, wanted: Sequence[range]) -> Iterator[Entry]:
        """List the images of some rows, in rising order."""
        return (entry for rows in wanted for entry in self.file.entries(rows))

    def pieces(self, wanted: Sequence[range]) -> Iterator[Piece]:
        """Give the same as values that can be sent away, one for each range."""
        return (Piece(table=self.file, rows=rows) for rows in wanted)


class ListedPart(NamedTuple):
    """So many rows of a list, and the digest that tells them from others."""

    rows: int
    digest: str


@dataclass(frozen=True)
class Listing:
    """Every image of some inputs, numbered, in parts of the same length (the last may be shorter)."""

    sources: tuple[Source, ...]
    lengths: tuple[int, ...]
    parts: tuple[ListedPart, ...]
    at_once: int

    def __len__(self) -> int:
        return sum(self.lengths)

    def rows_of(self, part: int) -> range:
        """Return the numbers of a part's rows."""
        return range(part * self.at_once, part * self.at_once + self.parts[part].rows)

    def entries(self, wanted: Sequence[range]) -> Iterator[Entry]:
        """List the images of some rows, in rising order; what is not there as it was is an error."""
        for source, length, rows in self._by_source(wanted):
            due = sum(map(len, rows))
            beyond = range(rows[-1].start, rows[-1].stop + (rows[-1].stop == length))  # nothing may follow
            walk = source.entries([*rows[:-1], beyond])
            given = yield from _counted(islice(walk, due))
            if given < due or next(walk, None) is not None:
                raise DataError(f"{source.name} changed while its images were judged; wait until it is whole")

    def pieces(self, wanted: Sequence[range]) -> Iterator[tuple[Piece, ...]]:
        """Give what can be sent away for each range; a range may reach over several sources."""
        opened = {id(source): source.pieces(rows) for source, _, rows in self._by_source(wanted)}
        for rows in wanted:
            yield tuple(next(opened[id(source)]) for source, _, _ in self._by_source([rows]))

    def _by_source(self, wanted: Sequence[range]) -> Iterator[tuple[Source, int, list[range]]]:
        """Give the rows that are wanted of each source, as it numbers them, and how many it has."""
        starts = accumulate(self.lengths, initial=0)
        for source, start, length in zip(self.sources, starts, self.lengths, strict=False):
            cut = (range(max(rows.start - start, 0), min(rows.stop - start, length)) for rows in wanted)
            rows = [each for each in cut if each]
            if rows:
                yield source, length, rows

    @property
    def others(self) -> Counter[str]:
        """Files that are no images and were passed over, by suffix."""
        walked = [source.others for source in self.sources if isinstance(source, Walked)]
        return sum(walked, Counter())


def listing(inputs: Sequence[str], at_once: int) -> Listing:
    """Walk inputs once, and number their images in parts of so many rows.

    inputs: image files, folders, .zip, .csv or .txt lists of paths, .parquet, .npz, or addresses.

    >>> from tempfile import mkdtemp
    >>> folder = Path(mkdtemp())
    >>> for name in "abc":
    ...     (folder / f"{name}.png").touch()
    >>> [part.rows for part in listing([str(folder)], at_once=2).parts]
    [2, 1]
    """
    if not inputs:
        raise DataError("no image was given; name at least one image file or folder")
    sources = tuple(source for text in inputs for source in _sources(text))
    lengths: list[int] = []
    parts = _Parts(at_once)
    for source in sources:
        before = parts.rows
        for stretch in source.stretches():
            parts.add(stretch)
        if parts.rows == before:
            raise DataError(f"no image in {source.name}; looked for {finding.suffixes()}")
        lengths.append(parts.rows - before)
    return Listing(sources, tuple(lengths), parts.closed(), at_once)


def entries_of(text: str) -> Iterator[Entry]:
    """List the images of one input, as `listing` numbers them, as far as they are asked for."""
    for source in _sources(text):
        if isinstance(source, Walked):
            yield from source.walk(Counter())
        elif isinstance(source, Table):
            yield from source.file.entries(range(source.file.rows))


class _Parts:
    """Digests of a list, part by part."""

    def __init__(self, at_once: int) -> None:
        self.rows = 0
        self._at_once = at_once
        self._done: list[ListedPart] = []
        self._inside = 0
        self._digest = hashlib.blake2b(digest_size=16)

    def add(self, stretch: Stretch) -> None:
        """Put rows behind those so far; a stretch may reach over several parts."""
        given = 0
        while given < stretch.rows:
            some = min(stretch.rows - given, self._at_once - self._inside)
            self._digest.update(f"{given} {some} {stretch.stamp}".encode(errors="surrogateescape"))
            given += some
            self._inside += some
            if self._inside == self._at_once:
                self._close()
        self.rows += stretch.rows

    def closed(self) -> tuple[ListedPart, ...]:
        """Return all parts."""
        if self._inside:
            self._close()
        return tuple(self._done)

    def _close(self) -> None:
        self._done.append(ListedPart(self._inside, self._digest.hexdigest()))
        self._inside, self._digest = 0, hashlib.blake2b(digest_size=16)


def _sources(text: str) -> Iterator[Source]:
    path, suffix = Path(text).expanduser(), Path(text).suffix.lower()
    if remote.is_address(text) and suffix != parquet.SUFFIX:
        yield Walked(text, partial(remote.entries, text))
        return
    if not remote.is_address(text) and not os.path.lexists(path):
        raise DataError(f"there is no file or folder {path}")
    if suffix == parquet.SUFFIX:
        yield from map(Table, parquet.files_of(text if remote.is_address(text) else str(path)))
    else:
        stamp = ImageFile(str(path), path).stamp if suffix == ".npz" else ""  # its rows have none
        yield Walked(str(path), _walk(path, suffix), stamp)


def _walk(path: Path, suffix: str) -> Callable[[Counter[str]], Iterator[Entry]]:
    if kind_of(path) == "folder":
        return partial(finding.entries_below, path)
    if suffix == ".zip":
        return partial(archives.entries, path)
    if suffix in (*path_lists.SUFFIXES, path_lists.PLAIN):
        return lambda _: path_lists.entries(path)
    return lambda _: _rows_of_arrays(path) if suffix == ".npz" else iter([ImageFile(str(path), path)])


def _rows_of_arrays(path: Path) -> Iterator[Entry]:
    """List the rows of an .npz file, which is unpacked whole."""
    for row, inputs in enumerate(own.read_npz_inputs(path)):
        yield ImageFile(f"{path}#{row}", inputs)


def _counted(entries: Iterable[Entry]) -> Generator[Entry, None, int]:
    """Give entries, and return how many there were."""
    given = 0
    for entry in entries:
        given += 1
        yield entry
    return given
