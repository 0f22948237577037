"""The open world as batches: protocols drawn from a test set, and streams that lie on disk."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shels import runtime
from shels.config.checks import whole
from shels.data import finding, images, listing, own, parquet, path_lists, reading
from shels.data.arrays import images_or_vectors, label_list
from shels.data.decoding import kind_of
from shels.data.finding import Entry, Found
from shels.data.samples import Label, Samples, check_inputs
from shels.data.splits import ClassSplit
from shels.errors import DataError, MissingDataError, SettingsError

_A_STREAM = (
    "a stream is a directory of batches, an .npz file with x and optional y, or a list of images: a folder "
    "of images alone, .zip, .csv, .txt or .parquet"
)
PHASES = ("known", "novel", "")


@dataclass(frozen=True, eq=False)
class StreamBatch:
    """What an agent meets at one time.

    name: the same at every reading, so that an agent that was cut off can skip what it has seen.
    inputs: as in `Samples`, at least one.
    labels: the truth where it is known, one for each input: for measuring, never shown to the agent.
    phase: "novel" where a class appears for the first time, "known" where none does, "" where nobody knows.
    """

    name: str
    inputs: Tensor
    labels: tuple[Label, ...] | None = None
    phase: str = ""

    def __post_init__(self) -> None:
        check_inputs(self.inputs, self.name)
        if not len(self.inputs):
            raise DataError(f"{self.name}: a batch must hold at least one sample, got none; leave it out")
        if self.labels is not None and len(self.labels) != len(self.inputs):
            raise DataError(
                f"{self.name}: {len(self.inputs)} inputs but {len(self.labels)} labels; give one to each"
            )
        if self.phase not in PHASES:
            raise SettingsError(f'phase must be "known", "novel" or "", got {self.phase!r}')

    def __len__(self) -> int:
        return len(self.inputs)


def paper_stream(
    test: Samples,
    known: Sequence[Label],
    novel: Sequence[Label],
    *,
    batch_size: int,
    seed: int,
    known_epochs: int = 3,
) -> Iterator[StreamBatch]:
    """Return the paper's open world: `known_epochs` batches of known classes, then one of a novel class.

    A novel class counts as known after its batch; after the last one come `known_epochs` batches of all.
    A batch holds random samples of its classes, none twice: `batch_size`, or all where there are fewer.

    >>> from shels.data.sources import load
    >>> stream = paper_stream(load("digits").test, (0, 1), (2,), batch_size=5, seed=0, known_epochs=1)
    >>> [(batch.name, batch.phase, len(batch)) for batch in stream]
    [('paper-0-0001', 'known', 5), ('paper-0-0002', 'novel', 5), ('paper-0-0003', 'known', 5)]
    """
    pools = _pools(test, known, novel)
    whole().checked("batch_size", batch_size)
    whole().checked("known_epochs", known_epochs)
    plan: list[tuple[str, list[Label]]] = []
    for arrived, name in enumerate(novel):
        plan += [("known", [*known, *novel[:arrived]])] * known_epochs + [("novel", [name])]
    plan += [("known", [*known, *novel])] * known_epochs

    def draw(place: int, phase: str, classes: list[Label]) -> StreamBatch:
        draws = runtime.generator(seed, "stream", place)
        rows = _some(_joined(pools, classes), batch_size, draws)
        return _batch(f"paper-{seed}-{place + 1:04d}", test, rows, phase)

    return (draw(place, phase, classes) for place, (phase, classes) in enumerate(plan))


def mixed_stream(
    test: Samples, known: Sequence[Label], novel: Sequence[Label], *, batches: int, batch_size: int, seed: int
) -> Iterator[StreamBatch]:
    """Return a harder open world: every batch a random mix, novel classes appearing at random times.

    Nothing new is in the first batch or the last, so that every class is met again once it could be learned.
    Each novel class first appears in any batch between, and belongs to the mix from then on. At most two
    appear at once: with three novel classes or more that happens in every stream, with two in about half of
    them. Where it first appears, one alone fills half of the batch and two a quarter each, rounded up, as far
    as their samples go. The rest is drawn evenly from all samples of the classes that appeared before; no
    sample comes twice in a batch.
    """
    pools = _pools(test, known, novel)
    enough = whole(len(novel) + 2)
    words = f"{enough.words} (a first, a last, and one for each novel class)"
    replace(enough, words=words).checked("batches", batches)
    whole(2).checked("batch_size", batch_size)
    appear = _arrivals(novel, batches, seed)

    def draw(place: int) -> StreamBatch:
        draws = runtime.generator(seed, "stream", place)
        new = appear.get(place, ())
        before = [name for at in sorted(appear) if at < place for name in appear[at]]
        quota = -(-batch_size // (2 * len(new))) if new else 0
        fresh = [_some(pools[name], quota, draws) for name in new]
        room = batch_size - sum(map(len, fresh))
        rows = torch.cat([*fresh, _some(_joined(pools, [*known, *before]), room, draws)])
        rows = _some(rows, len(rows), draws)
        return _batch(f"mixed-{seed}-{place + 1:04d}", test, rows, "novel" if new else "known")

    return (draw(place) for place in range(batches))


def read_stream(
    path: Path, *, size: int | None = None, channels: str | None = None, batch_size: int = 500
) -> Iterator[StreamBatch]:
    """Return the batches of a stream on disk, one read at a time, in an order that stays the same.

    path: a directory whose entries are batches, in name order (2 before 10): an .npz file with x and, where
    known, y; or a folder of images, or of class folders, which then name the labels. Or a list of images that
    is cut into batches of `batch_size`: a folder of nothing but images, a .zip, .csv, .txt or .parquet file.
    Or one .npz file, cut so too; it is unpacked whole.
    size, channels: what images are brought to, as in `reading.read_files`; arrays keep their size.
    """
    path = Path(path)
    images.check_form(size, channels)
    whole().checked("batch_size", batch_size)
    if _is_list(path):
        return _read_list(path, size, channels, batch_size)
    if kind_of(path) == "folder":
        entries = _entries(path)
        return (
            _read_folder(entry, size, channels) if entry.is_dir() else next(_read_npz(entry, channels))
            for entry in entries
        )
    if not kind_of(path):
        raise MissingDataError(f"there is no stream {path}; give a directory of batches or an .npz file")
    if not _is_npz(path):
        raise DataError(f"{path} is no stream; {_A_STREAM}")
    return _read_npz(path, channels, batch_size)


def _pools(test: Samples, known: Sequence[Label], novel: Sequence[Label]) -> dict[Label, Tensor]:
    """Return the positions of each class's samples, once the classes are known to be usable."""
    split = ClassSplit(tuple(known), tuple(novel))
    labels = test.labels.cpu()
    pools: dict[Label, Tensor] = {}
    for name in (*split.known, *split.novel):
        if name not in test.classes:
            raise DataError(f"{test.origin} has no class {name!r}; its classes: {list(test.classes)}")
        pools[name] = (labels == test.classes.index(name)).nonzero()[:, 0]
        if not len(pools[name]):
            raise DataError(f"{test.origin}: class {name!r} has no sample; add some or leave the class out")
    return pools


def _arrivals(novel: Sequence[Label], batches: int, seed: int) -> dict[int, tuple[Label, ...]]:
    """Return which novel classes first appear in which batch of a mixed stream, counted from 0."""
    draws = runtime.generator(seed, "stream", "arrivals")
    order = [novel[i] for i in torch.randperm(len(novel), generator=draws).tolist()]
    fewest, most = min(1, len(novel) // 3), len(novel) // 2
    pairs = int(torch.randint(fewest, most + 1, (1,), generator=draws))
    groups = [tuple(order[2 * pair : 2 * pair + 2]) for pair in range(pairs)]
    groups += [(name,) for name in order[2 * pairs :]]
    places = (1 + torch.randperm(batches - 2, generator=draws)[: len(groups)]).tolist()
    return dict(zip(places, groups, strict=True))


def _joined(pools: dict[Label, Tensor], classes: Sequence[Label]) -> Tensor:
    return torch.cat([pools[name] for name in classes])


def _some(rows: Tensor, count: int, draws: torch.Generator) -> Tensor:
    """Return `count` of the rows in random order, or all of them where there are fewer."""
    return rows[torch.randperm(len(rows), generator=draws)[:count]]


def _batch(name: str, test: Samples, rows: Tensor, phase: str) -> StreamBatch:
    taken = test.take(rows.to(test.labels.device))
    labels = tuple(test.classes[position] for position in taken.labels.tolist())
    return StreamBatch(name, taken.inputs, labels, phase)


def _entries(path: Path) -> list[Path]:
    """Return what is a batch in a directory, in name order; anything else in it is refused."""
    entries = [entry for entry in path.iterdir() if not finding.hidden(entry.name)]
    strange = [entry for entry in entries if not entry.is_dir() and not _is_npz(entry)]
    if strange:
        raise DataError(
            f"{min(strange)} is no batch; a stream's directory holds .npz files and folders of images only: "
            "put images in a folder for each batch, and move everything else away"
        )
    if all(entry.is_dir() and not any(finding.entries_below(entry, Counter())) for entry in entries):
        raise DataError(f"{path} holds no batch; put .npz files or folders of images in it")
    return sorted(entries, key=_name_order)


def _name_order(entry: Path) -> tuple[list[str | int], str]:
    parts = re.split(r"([0-9]+)", entry.name)  # text and number in turn, so like meets like
    return [int(part) if place % 2 else part for place, part in enumerate(parts)], entry.name


def _is_npz(path: Path) -> bool:
    return kind_of(path) == "file" and path.suffix.lower() == ".npz"


def _read_folder(folder: Path, size: int | None, channels: str | None) -> StreamBatch:
    inputs, files = own.read_images([folder], size, channels)
    places = [Path(file).relative_to(folder).parts for file in files]
    below = [place[0] for place in places if len(place) > 1]
    if below and len(below) < len(places):
        raise DataError(
            f"{folder} holds images beside folders of images; put all of them in class folders, or none"
        )
    return StreamBatch(folder.name, inputs, tuple(below) or None)


def _is_list(path: Path) -> bool:
    """Tell a list of images that is to be cut into batches from a directory of batches."""
    if path.suffix.lower() in (".zip", parquet.SUFFIX, *path_lists.SUFFIXES, path_lists.PLAIN):
        return bool(kind_of(path))
    if kind_of(path) != "folder":
        return False
    inside = [entry for entry in path.iterdir() if not finding.hidden(entry.name)]
    return bool(inside) and all(finding.is_image(entry.name) and not entry.is_dir() for entry in inside)


def _read_list(path: Path, size: int | None, channels: str | None, batch_size: int) -> Iterator[StreamBatch]:
    """Return so many images at a time as a batch, named by their places in the list."""
    entries = listing.entries_of(str(path))
    first = list(islice(entries, 1))
    if not first:
        raise DataError(f"{path} is no stream; {_A_STREAM}, and this lists no image")
    return _cut(path.name, chain(first, entries), size, channels, batch_size)


def _cut(
    name: str, entries: Iterator[Entry], size: int | None, channels: str | None, batch_size: int
) -> Iterator[StreamBatch]:
    start = 0
    while some := list(islice(entries, batch_size)):
        inputs = reading.read_files(Found.of(some), size, channels).inputs
        yield StreamBatch(f"{name}#{start:04d}-{start + len(some) - 1:04d}", inputs)
        start += len(some)


def _read_npz(path: Path, channels: str | None, batch_size: int | None = None) -> Iterator[StreamBatch]:
    """Yield a file's samples in batches, named by their rows; without a batch size as one, named by the file.

    Checks of values are made batch by batch.
    """
    x, labels = _npz_x_and_y(path)
    step = batch_size or len(x)
    for start in range(0, len(x), step):
        end = min(start + step, len(x))
        rows = "" if batch_size is None else f"#{start:04d}-{end - 1:04d}"
        inputs = images.with_channels(images_or_vectors(x[start:end], f"{path}{rows}: x"), channels)
        yield StreamBatch(path.name + rows, inputs, None if labels is None else labels[start:end])


def _npz_x_and_y(path: Path) -> tuple[np.ndarray[Any, Any], tuple[Label, ...] | None]:
    arrays = own.npz_arrays(path, only=("x", "y"))
    if "x" not in arrays:
        raise DataError(
            f"{path} has no array 'x', only {sorted(own.npz_arrays(path))}; save the inputs as x and their "
            "labels, where known, as y"
        )
    x = arrays["x"]
    if x.ndim < 2 or not len(x):
        images_or_vectors(x, f"{path}: x")  # says what is wrong with it
    if "y" not in arrays:
        return x, None
    labels = tuple(label_list(arrays["y"], f"{path}: y"))
    if len(labels) != len(x):
        raise DataError(
            f"{path}: {len(x)} inputs but {len(labels)} labels; give one label to each, or leave y out"
        )
    return x, labels
