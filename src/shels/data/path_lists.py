"""A table of paths and labels (CSV) as a list of image files."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from shels.data.decoding import decoding, read_bounded
from shels.data.finding import READ_PARTS, Found, ImageFile, LeftOut
from shels.errors import DataError

SUFFIXES = (".csv", ".tsv")
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
    found = Found()
    for number, row in _rows(path, "path"):
        if row.path:
            found.files.append(_file(path, row.path))
        else:
            found.left_out.append(LeftOut(f"{path}:{number}", "has no path"))
    return found


def _take(found: Found, path: Path, number: int, row: Columns, seen: dict[str, str]) -> None:
    text, label, part = row.path, row.label, (row.part or "train").lower()
    if not text or not label:
        found.left_out.append(LeftOut(f"{path}:{number}", f"has no {'label' if text else 'path'}"))
        return
    file = _file(path, text)
    before = seen.get(file.name)
    if before is None:
        seen[file.name] = label
        found.files.append(replace(file, label=label, part=part))
    elif before == label:
        found.left_out.append(LeftOut(f"{path}:{number}", f"names {text} again", label))
    else:
        raise DataError(f"{path}:{number}: {text} is listed as {label!r}, before as {before!r}; choose one")


def _file(table: Path, text: str) -> ImageFile:
    """Return the file that a cell names, relative to the table's folder; backslashes are Windows' slashes."""
    place = table.parent / text
    if "\\" in text and not place.exists():
        place = table.parent / text.replace("\\", "/")
    return ImageFile(str(place), place)


def _rows(path: Path, *required: str) -> Iterator[tuple[int, Columns]]:
    """Give what each row has in the columns of paths, labels and parts, with the number of its line."""
    text = _text(path).lstrip("\r\n")
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=_delimiter(text.split("\n", 1)[0]), strict=True
    )
    with decoding(path, "cannot be read as CSV", "save it again"):
        names = next(reader, [])
        columns = columns_of(names)
        for name in required:
            if getattr(columns, name) is None:
                raise DataError(f"{path} has no column of {name}s, only {names}; {_ADVICE}")
        rows = [(reader.line_num, row) for row in reader if row]
    places = [None if name is None else names.index(name) for name in columns]
    for number, row in rows:
        yield number, Columns(*(None if place is None else _cell(row, place) for place in places))


def _cell(row: Sequence[str], place: int) -> str:
    return row[place].strip() if place < len(row) else ""


def _text(path: Path) -> str:
    content = read_bounded(path, "cannot be read", "save it again as CSV")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not in UTF-8 ({error.reason}); save it as CSV in UTF-8") from error


def _delimiter(line: str) -> str:
    """Choose what stands between the columns: the commonest of comma, semicolon and tab in the first line."""
    return max(",;\t", key=line.count)


def _first(plain: Mapping[str, str], wanted: Sequence[str]) -> str | None:
    return next((name for each in wanted for name, text in plain.items() if text == each), None)
