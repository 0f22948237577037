"""Verdicts on many images as files of about 100,000 rows, each whole or absent, that outlast a crash.

    verdicts.parquet/_manifest.json       the model and the list of images that they are of
    verdicts.parquet/part-00000.parquet   …

As .csv or .jsonl, the parts lie in a folder beside the file until all are there, and are then joined to it.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from shels.data.listing import Listing
from shels.errors import DataError, MissingExtraError, ModelFileError, SettingsError
from shels.files import check_writable, locked, write_whole
from shels.learner.assessment import FileVerdict

ROWS = 780 * 128
"""Rows of a shard: about 100,000, in whole groups of what is judged at once."""
COLUMNS = tuple(each.name for each in fields(FileVerdict))
_MANIFEST = "_manifest.json"
_FORMAT = "shels-verdicts"
_LEFTOVER = re.compile(r"\.(part-[0-9]+\.[a-z]+|_manifest\.json)\.[0-9a-f]{8}")


@dataclass
class Counts:
    """How many images were judged, how many of them are novel, and how many could not be read."""

    samples: int = 0
    novel: int = 0
    unreadable: int = 0

    def add(self, judged: Sequence[bool | None]) -> None:
        """Count images by whether they are novel; None where one could not be read."""
        unreadable = sum(each is None for each in judged)
        self.samples += len(judged) - unreadable
        self.novel += sum(each is True for each in judged)
        self.unreadable += unreadable


class _Format(NamedTuple):
    """How verdicts are written as the content of a file, and how to read from one which are novel."""

    encode: Callable[[Sequence[FileVerdict]], bytes]
    novel: Callable[[Path], list[bool | None]]


class Shards:
    """The files that verdicts on a list of images go to; one run at a time is `opened` in them.

    model: what tells the model from others. settings: what else decides about verdicts, by name.
    """

    def __init__(self, out: Path, model: str, listing: Listing, settings: dict[str, Any]) -> None:
        self.out = out
        self.listing = listing
        self.suffix = check_out(out)
        self.folder = out if self.suffix == ".parquet" else out.with_name(f"{out.name}.parts")
        self._pins = {"format": _FORMAT, "format_version": 1, "model": model, "settings": settings}

    @contextmanager
    def opened(self) -> Iterator[list[int]]:
        """Keep other runs out, refuse what another model or other images began, and give the parts to do."""
        self._check_target()
        check_writable(self.folder)
        with locked(self.folder, "another run writes into it; wait for it, or choose another --out"):
            manifest = self.folder / _MANIFEST
            if manifest.exists():
                self._compare(_read_manifest(manifest))
            else:
                # parts without a manifest are of a run that nothing is known of
                for stale in self.folder.glob(f"part-[0-9]*{self.suffix}"):
                    stale.unlink()
                write_whole(manifest, json.dumps(self._manifest(), indent=1) + "\n")
            for path in self.folder.iterdir():
                if _LEFTOVER.fullmatch(path.name):
                    path.unlink(missing_ok=True)
            yield [part for part in range(len(self.listing.parts)) if not self.path(part).exists()]

    def path(self, part: int) -> Path:
        """Return the file of a part."""
        return self.folder / f"part-{part:05d}{self.suffix}"

    def write(self, part: int, verdicts: Sequence[FileVerdict]) -> None:
        """Write the verdicts of a part, whole."""
        if len(verdicts) != self.listing.parts[part].rows:
            raise DataError(
                f"part {part} has {len(verdicts)} verdicts for {self.listing.parts[part].rows} images"
            )
        write_whole(self.path(part), _FORMATS[self.suffix].encode(verdicts))

    def counted(self, parts: Sequence[int]) -> Counts:
        """Count what earlier runs wrote."""
        counts = Counts()
        for part in parts:
            counts.add(_FORMATS[self.suffix].novel(self.path(part)))
        return counts

    def finish(self) -> None:
        """Join the parts to one file, where that is what was asked for."""
        if self.folder == self.out:
            return
        joined = self.folder / f"joined{self.suffix}"
        with joined.open("wb") as file:
            for part in range(len(self.listing.parts)):
                content = self.path(part).read_bytes()
                if part and self.suffix == ".csv":
                    content = content.partition(b"\n")[2]  # the heading stands above all
                file.write(content)
        joined.replace(self.out)
        # the manifest first: what is left where this is cut off then counts for nothing
        (self.folder / _MANIFEST).unlink()
        shutil.rmtree(self.folder)

    def _check_target(self) -> None:
        begun = (self.folder / _MANIFEST).is_file()
        if not begun and self.out.exists() and (self.folder != self.out or any(self.out.iterdir())):
            raise SettingsError(f"{self.out} is there already; choose another --out, or delete it")

    def _manifest(self) -> dict[str, Any]:
        parts = [each._asdict() for each in self.listing.parts]
        return self._pins | {"rows": len(self.listing), "parts": parts}

    def _compare(self, before: dict[str, Any]) -> None:
        """Raise where the verdicts so far are not of this model on these images."""
        advice = f"choose another --out, or delete {self.folder} to begin anew"
        now = self._manifest()
        if before.get("model") != now["model"]:
            raise ModelFileError(f"{self.folder} holds verdicts of another model than this one; {advice}")
        if before.get("settings") != now["settings"]:
            raise SettingsError(f"{self.folder} was begun with {before.get('settings')}; {advice}")
        if before != now:
            changed = _first_change(before.get("parts"), now["parts"])
            raise DataError(
                f"{self.folder} holds verdicts on other images ({before.get('rows')}, now {now['rows']}): "
                f"names, sizes or times of change differ from part {changed:05d} on; {advice}"
            )


def check_out(out: Path) -> str:
    """Return the suffix of a file for verdicts, or raise where none can be written so.

    >>> check_out(Path("verdicts.parquet"))
    '.parquet'
    """
    suffix = out.suffix.lower()
    if suffix not in _FORMATS:
        raise SettingsError(f"--out must end in {', '.join(_FORMATS)}, got {str(out)!r}")
    if suffix == ".parquet":
        _pyarrow()
    return suffix


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelFileError(f"{path} is damaged: {error}; delete {path.parent} to begin anew") from error
    if not isinstance(found, dict) or found.get("format") != _FORMAT or found.get("format_version") != 1:
        raise ModelFileError(f"{path} is no list of verdicts that this shels knows; choose another --out")
    return found


def _first_change(before: Any, now: Sequence[dict[str, Any]]) -> int:
    before = before if isinstance(before, list) else []
    pairs = enumerate(zip(before, now, strict=False))
    return next((place for place, (old, new) in pairs if old != new), min(len(before), len(now)))


def _csv(verdicts: Sequence[FileVerdict]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(vars, verdicts))
    return text.getvalue().encode(errors="surrogateescape")


def _csv_novel(path: Path) -> list[bool | None]:
    with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
        return [{"True": True, "False": False}.get(row["novel"]) for row in csv.DictReader(file)]


def _jsonl(verdicts: Sequence[FileVerdict]) -> bytes:
    """Write a line for each; a number that is not finite becomes null."""
    return "".join(f"{json.dumps(_finite(each), allow_nan=False)}\n" for each in verdicts).encode()


def _finite(verdict: FileVerdict) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in vars(verdict).items()
    }


def _jsonl_novel(path: Path) -> list[bool | None]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line)["novel"] for line in file]


def _parquet(verdicts: Sequence[FileVerdict]) -> bytes:
    """Write columns; classes are text, as "novel" and "unreadable" are."""
    arrow, parquet = _pyarrow()
    types = {"score": arrow.float64(), "threshold": arrow.float64(), "p_value": arrow.float64()}
    types |= {"novel": arrow.bool_()}
    columns = {}
    for name in COLUMNS:
        values = [getattr(each, name) for each in verdicts]
        columns[name] = arrow.array(
            values if name in types else map(_text, values), types.get(name, arrow.string())
        )
    content = io.BytesIO()
    parquet.write_table(arrow.table(columns), content)
    return content.getvalue()


def _text(value: object) -> str | None:
    """Return a name as Parquet can hold it: a byte that is no UTF-8 becomes a question mark."""
    return None if value is None else str(value).encode(errors="replace").decode()


def _parquet_novel(path: Path) -> list[bool | None]:
    novel: list[bool | None] = _pyarrow()[1].read_table(path, columns=["novel"])["novel"].to_pylist()
    return novel


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa  # noqa: PLC0415
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("pyarrow", "parquet", "writing .parquet files") from error
    return pa, parquet


_FORMATS = {
    ".parquet": _Format(_parquet, _parquet_novel),
    ".csv": _Format(_csv, _csv_novel),
    ".jsonl": _Format(_jsonl, _jsonl_novel),
}
