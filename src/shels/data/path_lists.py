"""A table of paths and labels (CSV) as a list of image files."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import IO, NamedTuple, TypeVar

from shels.data import remote
from shels.data.decoding import decoding
from shels.data.finding import READ_PARTS, Entry, Found, ImageFile, LeftOut
from shels.errors import DataError

Value = TypeVar("Value")

SUFFIXES = (".csv", ".tsv")
PLAIN = ".txt"
"""A list without labels: a path on each line."""
PATHS = (
    "path",
    "file",
    "filename",
    "filepath",
    "image",
    "imagepath",
    "imagefile",
    "imagename",
    "img",
    "photo",
)
LABELS = ("label", "class", "classname", "target", "category", "species", "y")
_PARTS = ("split", "part", "subset", "set")
_ADVICE = "the first line must name the columns, such as path,label"


class Columns(NamedTuple):
    """Names of the columns of paths, labels and parts, or what a row has in them; None where none has."""

    path: str | None
    label: str | None
    part: str | None


def columns_of(names: Sequence[str]) -> Columns:
    """Find the columns of paths, labels and parts among names, however these are written.

    >>> columns_of(["ID", "Image Path", "class_name"])
    Columns(path='Image Path', label='class_name', part=None)
    """
    plain = {name: "".join(c for c in name.lower() if c.isalnum()) for name in names}
    return Columns(*(_first(plain, each) for each in (PATHS, LABELS, _PARTS)))


def class_files(path: Path) -> Found:
    """Find the images in a table with a column of paths and one of labels; paths are relative to it.

    A column split, part or subset, where there is one, names the part: train or test, others are left alone.
    """
    found, seen = Found(), dict[str, str]()
    for number, row in _rows(path, "path", "label"):
        if (row.part or "train").lower() in READ_PARTS:
            _take(found, path, number, row, seen)
    if not found.files and not found.left_out:
        raise DataError(f"{path} lists no image; give a line with path,label and one for each image")
    return found


def image_files(path: Path) -> Found:
    """Find the images in a table with a column of paths; labels are not looked at."""
    return Found.of(entries(path))


def entries(path: Path) -> Iterator[Entry]:
    """List the images in a table with a column of paths, or in a text with a path on each line."""
    for number, text in _lines(path) if path.suffix.lower() == PLAIN else _paths(path):
        if text:
            yield named_file(path, text)
        elif path.suffix.lower() != PLAIN:
            yield LeftOut(f"{path}:{number}", "has no path")


def _paths(path: Path) -> Iterator[tuple[int, str | None]]:
    return ((number, row.path) for number, row in _rows(path, "path"))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with _opened(path) as file:
        for rows in _some(((number, line.strip()) for number, line in enumerate(file, 1)), path):
            yield from rows


def _take(found: Found, path: Path, number: int, row: Columns, seen: dict[str, str]) -> None:
    text, label, part = row.path, row.label, (row.part or "train").lower()
    if not text or not label:
        found.left_out.append(LeftOut(f"{path}:{number}", f"has no {'label' if text else 'path'}"))
        return
    file = named_file(path, text)
    before = seen.get(file.name)
    if before is None:
        seen[file.name] = label
        found.files.append(replace(file, label=label, part=part))
    elif before == label:
        found.left_out.append(LeftOut(f"{path}:{number}", f"names {text} again", label))
    else:
        raise DataError(f"{path}:{number}: {text} is listed as {label!r}, before as {before!r}; choose one")


def named_file(table: Path, text: str) -> ImageFile:
    """Give the file that a cell names, relative to the table's folder; backslashes are Windows' slashes."""
    if "://" in text:
        return remote.named_file(text)
    place = table.parent / text
    if "\\" in text and not place.exists():
        place = table.parent / text.replace("\\", "/")
    place = _straight(place) if ".." in place.parts else place
    return ImageFile(str(place), place)


def _straight(place: Path) -> Path:
    """Leave `folder/..` out of a path where the rest leads to the same file, as it does but for links."""
    straight = Path(os.path.normpath(place))
    return straight if straight.exists() and place.exists() and straight.samefile(place) else place


def _rows(path: Path, *required: str) -> Iterator[tuple[int, Columns]]:
    """Give what each row has in the columns of paths, labels and parts, with the number of its line."""
    with _opened(path) as file:
        first = next(_some((line for line in file if line.strip("\r\n")), path, 1), [""])
        reader = csv.reader(chain(first, file), delimiter=_delimiter(first[0]), strict=True)
        names = next(_some(reader, path, 1), [[]])[0]
        columns = columns_of(names)
        for name in required:
            if getattr(columns, name) is None:
                raise DataError(f"{path} has no column of {name}s, only {names}; {_ADVICE}")
        places = [None if name is None else names.index(name) for name in columns]
        for rows in _some(((reader.line_num, row) for row in reader if row), path):
            for number, row in rows:
                yield number, Columns(*(None if place is None else _cell(row, place) for place in places))


def _opened(path: Path) -> IO[str]:
    with decoding(path, "cannot be read", "save it again as CSV"):
        return path.open(encoding="utf-8-sig", newline="")


def _some(items: Iterator[Value], path: Path, count: int = 4096) -> Iterator[list[Value]]:
    """Give what is read of a file, some at a time; a fault in it is called by the file's name."""
    while True:
        with decoding(path, "cannot be read as CSV", "save it again"):
            try:
                some = list(islice(items, count))
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{path} is not in UTF-8 ({error.reason}); save it as CSV in UTF-8"
                ) from error
        if not some:
            return
        yield some


def _cell(row: Sequence[str], place: int) -> str:
    return row[place].strip() if place < len(row) else ""


def _delimiter(line: str) -> str:
    """Choose what stands between the columns: the commonest of comma, semicolon and tab in the first line."""
    return max(",;\t", key=line.count)


def _first(plain: Mapping[str, str], wanted: Sequence[str]) -> str | None:
    return next((name for each in wanted for name, text in plain.items() if text == each), None)
