"""Many image files into one tensor: several at a time, and what cannot be read is named and left out."""

from __future__ import annotations

import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TypeAlias, TypeVar

import torch
from torch import Tensor

from shels import runtime
from shels.data import images
from shels.data.decoding import QUIET
from shels.data.finding import Entry, Found, ImageFile, LeftOut
from shels.data.images import Header
from shels.data.manner import ReadProgress, current_manner
from shels.data.samples import Label
from shels.errors import DataError, MissingExtraError

Item = TypeVar("Item")
Value = TypeVar("Value")
Fault: TypeAlias = DataError | MissingExtraError

_MOST_THREADS = 8
_SAMPLED = 300
"""Headers that tell how large the images of a folder typically are."""


class FilesRead(NamedTuple):
    """Images of one size and kind, (n, channels, height, width), uint8; their files; what was left out."""

    inputs: Tensor
    files: list[ImageFile]
    left_out: list[LeftOut]


class _Form(NamedTuple):
    """What an image is brought to.

    channels: None leaves it grey or RGB, as it is. side: None leaves it its own size, up to 64 pixels.
    expected: the height and width that it must then have, where all have the same.
    """

    channels: str | None
    side: int | None
    expected: tuple[int, int] | None = None


def read_files(found: Found, size: int | None = None, channels: str | None = None) -> FilesRead:
    """Read images, each brought to one size and one kind of pixel as it is decoded.

    size None keeps the size where all images have the same and no side is over 64; else 64 x 64, unless
    `images.side_limit` allows more.
    channels None takes what the files have: RGB as soon as one of them is in colour.
    What cannot be read is left out, unless that is all of it, or all of a class; see `file_reading`.
    """
    images.check_form(size, channels)
    out, kept, grey = _LeavingOut(found), list[ImageFile](), Counter[Label | None]()
    form = _common_form(found.files, size, channels)
    inputs = torch.empty(0, dtype=torch.uint8)
    for file, image in out.kept(found.files, lambda file: _pixels(file, form)):
        if not kept:
            inputs = image.new_empty((len(found.files), *image.shape))
        if image.shape[0] > inputs.shape[1]:
            inputs = images.with_channels(inputs, "rgb")
        grey[file.label] += image.shape[0] == 1
        inputs[len(kept)] = image  # of one channel it fills all three
        kept.append(file)
    out.require(kept)
    out.report(kept, grey if inputs.ndim == 4 and inputs.shape[1] == 3 else None)
    return FilesRead(inputs[: len(kept)], kept, out.left_out)


def read_groups(found: Found, size: int | None, channels: str, at_once: int = 256) -> Iterator[FilesRead]:
    """Read images in groups, so that never all of them lie in memory; the last one has what was left out.

    size None leaves each image its own size, up to 64 pixels, in a group of its own.
    """
    images.check_form(size, channels)
    out, form = _LeavingOut(found), _Form(channels, size)
    every: list[ImageFile] = []
    pixels = out.kept(found.files, lambda file: _pixels(file, form))
    while group := list(islice(pixels, at_once if size else 1)):
        files = [file for file, _ in group]
        every += files
        yield FilesRead(torch.stack([image for _, image in group]), files, [])
    out.report(every)
    yield FilesRead(torch.empty(0, dtype=torch.uint8), [], out.left_out)


def typical_side(files: Sequence[ImageFile | Path | str]) -> int:
    """Return the median of the shorter sides of images, from the headers of some hundred of them at most.

    Files that cannot be read do not count, unless none can.

    >>> from tempfile import mkdtemp
    >>> from PIL import Image
    >>> path = Path(mkdtemp()) / "a.png"
    >>> Image.new("RGB", (640, 480)).save(path)
    >>> typical_side([path])
    480
    """
    every = [file if isinstance(file, ImageFile) else ImageFile(str(file), Path(file)) for file in files]
    some = every[:: -(-len(every) // _SAMPLED) or 1]
    found = [result for _, result in outcomes(some, _header)]
    sides = [min(each.width, each.height) for each in found if isinstance(each, Header)]
    if sides:
        return int(median(sides))
    raise next((each for each in found if isinstance(each, Exception)), DataError("no image was given"))


def outcomes(
    files: Sequence[ImageFile], work: Callable[[ImageFile], Value]
) -> Iterator[tuple[ImageFile, Value | Fault]]:
    """Do the same to each file, several at a time, and give what came of it, in order; few lie in memory."""
    threads = threads_to_read(len(files))
    with closing(
        runtime.in_order(files, lambda file: _attempt(work, file), threads, ahead=4 * threads)
    ) as done:
        yield from zip(files, done, strict=True)


def threads_to_read(most: int = _MOST_THREADS) -> int:
    """Return how many threads decode files here; 0 where one after the other is as good."""
    threads = min(_MOST_THREADS, _cpus(), most)
    return threads if threads > 1 else 0


@dataclass(frozen=True, eq=False)
class Decoded:
    """Images of a list, decoded: those of one form together.

    stacks: images of one size and kind (n, channels, height, width), with their places in the list. names:
    of all. reasons: why there is none at a place.
    """

    names: list[str]
    stacks: list[tuple[list[int], Tensor]]
    reasons: dict[int, str]


def decoded(entries: Iterable[Entry], size: int | None, channels: str | None) -> Decoded:
    """Decode images, one after the other, as `read_groups` does; what cannot be read has a reason."""
    form = _Form(channels or "rgb", size)
    names, reasons = list[str](), dict[int, str]()
    stacks: dict[Any, tuple[list[int], list[Tensor]]] = {}
    with QUIET:
        for place, entry in enumerate(entries):
            names.append(entry.name)
            found = entry if isinstance(entry, LeftOut) else _attempt(partial(_pixels, form=form), entry)
            if isinstance(found, Tensor):
                places, pixels = stacks.setdefault((found.shape, found.dtype), ([], []))
                places.append(place)
                pixels.append(found)
            else:
                fault = found if isinstance(found, LeftOut) else LeftOut.because(entry.name, found)
                reasons[place] = fault.reason
    return Decoded(names, [(places, torch.stack(pixels)) for places, pixels in stacks.values()], reasons)


def none_readable(left_out: Sequence[LeftOut]) -> DataError:
    """Make the error to raise where none of some files can be read."""
    first, many = left_out[0], len(left_out)
    which = f"none of {many} files can be read; the first: " if many > 1 else ""
    return DataError(f"{which}{first.name} {first.reason}")


class _LeavingOut:
    """What is left out of one reading, as the manner of reading says."""

    def __init__(self, found: Found) -> None:
        self.manner = current_manner()
        self.others = found.others
        self.left_out = list(found.left_out)
        self.first: Fault | None = None
        self.begun = time.perf_counter()
        if self.manner.strict and found.left_out:
            raise DataError(f"{found.left_out[0].name} {found.left_out[0].reason}")

    def kept(
        self, files: Sequence[ImageFile], work: Callable[[ImageFile], Value]
    ) -> Iterator[tuple[ImageFile, Value]]:
        """Give what could be done, and keep in mind what could not."""
        for done, (file, result) in enumerate(outcomes(files, work), 1):
            if self.manner.each is not None:
                self.manner.each(ReadProgress(done, len(files)))
            if not isinstance(result, DataError | MissingExtraError):
                yield file, result
                continue
            if self.manner.strict:
                raise result
            self.first = self.first or result
            self.left_out.append(LeftOut.because(file.name, result, file.label))

    def require(self, kept: Iterable[ImageFile]) -> None:
        """Raise where everything was left out, or everything of a class."""
        there = {file.label for file in kept}
        if not there:
            if isinstance(self.first, MissingExtraError) or (self.first and len(self.left_out) == 1):
                raise self.first
            raise none_readable(self.left_out) if self.left_out else DataError("no image was given")
        for each in self.left_out:
            if each.label is not None and each.label not in there:
                raise DataError(
                    f"no file of the class {each.label!r} can be read; the first, {each.name}, {each.reason}"
                )

    def report(self, kept: Sequence[ImageFile], grey: Counter[Label | None] | None = None) -> None:
        """Count what was read and left out for who asked for it; warn where nobody did.

        grey: those that were grey, by class, where all became RGB.
        """
        report = self.manner.report
        if report is None:
            self._warn(len(kept))
            return
        report.read += Counter(file.label for file in kept)
        report.grey += grey or Counter()
        report.left_out += self.left_out
        report.others += self.others
        report.seconds += time.perf_counter() - self.begun

    def _warn(self, kept: int) -> None:
        if self.left_out:
            few = "; ".join(f"{each.name} {each.reason}" for each in self.left_out[:3])
            more = f"; and {len(self.left_out) - 3} more" if len(self.left_out) > 3 else ""
            count = f"{len(self.left_out)} of {kept + len(self.left_out)} files"
            warnings.warn(f"{count} were left out: {few}{more}", UserWarning, stacklevel=4)


def _attempt(work: Callable[[ImageFile], Value], file: ImageFile) -> Value | Fault:
    try:
        return work(file)
    except (DataError, MissingExtraError) as error:
        if isinstance(error.__cause__, MemoryError):  # no fault of the file's
            raise error.__cause__ from None
        return error


def _header(file: ImageFile) -> Header:
    return images.read_header(file.opened(), file.title)


def _pixels(file: ImageFile, form: _Form) -> Tensor:
    if isinstance(file.place, Tensor):  # arrays keep their size, which is the preparation's matter
        return images.with_channels(file.place[None], form.channels)[0]
    source, side = file.opened(), form.side
    if side is None and form.expected is None:
        header = images.read_header(source, file.title)
        most = images.largest_side()
        side = most if max(header.width, header.height) > most else None
    pixels = images.read_pixels(source, file.title, form.channels, side)
    if form.expected is not None and tuple(pixels.shape[1:]) != form.expected:
        raise DataError(f"{file.name} has another size than its header says; save it again")
    return pixels


def _common_form(files: Sequence[ImageFile], size: int | None, channels: str | None) -> _Form:
    """Choose the size of all; headers are looked at until they show that images cannot stay as they are."""
    if size is not None:
        return _Form(channels, size)
    common: tuple[int, int] | None = None
    most = images.largest_side()
    for _, header in outcomes(files, _header):
        if isinstance(header, Header):
            each = (header.height, header.width)
            if max(each) > most or each != (common or each):
                return _Form(channels, images.common_side(typical_side(files)))
            common = each
    return _Form(channels, None, common)


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
