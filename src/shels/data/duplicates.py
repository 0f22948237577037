"""Images that show the same: copies, and near duplicates, also turned, mirrored, resized or encoded again.

Grey pictures of 8 x 8 pixels, compared in all eight ways to turn and mirror one of the two, find candidates;
such of 32 x 32 confirm them. What counts is the correlation of the pixels, so brightness and contrast do not.
(A hash of 64 bits by the signs of neighbours' differences was tried: no faster, and a sky, where these are
small, has bits at random, so that one photo in four was lost as a JPEG of quality 30.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor

from shels.data import images
from shels.data.finding import ImageFile
from shels.data.reading import outcomes
from shels.data.samples import fingerprints
from shels.errors import SettingsError

Array: TypeAlias = NDArray[Any]

SIDE = 32
"""Of the small grey pictures that images are compared by."""
TINY = 8
"""Of the pictures that find candidates."""
ROUGHLY = 0.9
"""Correlation of these, on the way to a closer look."""
LIKENESS = 0.95
"""Correlation of the small pictures of near duplicates, at least; more where all images are alike."""
FLAT = 3.0
"""Standard deviation of grey levels under which an image shows too little to be like another."""

SMALLEST = 16
"""Side of images under which only exact copies are looked for: different ones are too alike."""

_AT_ONCE = 2**22
_SAMPLE = 500
_TURNS = tuple((quarters, mirrored) for mirrored in (False, True) for quarters in range(4))
"""The eight ways to turn and mirror a square; the first leaves it as it is."""


class Pair(NamedTuple):
    """Two images that show the same, by their places, first < second.

    exact: whether they are equal to the last bit. likeness: correlation of their small pictures, 1 at most.
    """

    first: int
    second: int
    exact: bool
    likeness: float


class Looks(NamedTuple):
    """What is kept of images to compare them: small grey pictures (n, 32, 32) uint8, and contents (n,).

    contents: what is the same for images that are equal. Vectors and tiny images have no pictures.
    """

    pictures: Array
    contents: Sequence[Any]

    def __len__(self) -> int:
        return len(self.contents)


def looks_of(inputs: Tensor) -> Looks:
    """Look at inputs: images (n, channels, h, w), or vectors, of which only exact copies can be found.

    >>> looks_of(torch.rand(3, 1, 64, 48)).pictures.shape
    (3, 32, 32)
    """
    if inputs.ndim != 4 or min(inputs.shape[2:]) < SMALLEST:
        return Looks(np.zeros((0, SIDE, SIDE), np.uint8), fingerprints(inputs))
    parts = [_small(part) for part in torch.split(inputs, 1024)]
    return Looks(torch.cat(parts).cpu().numpy(), fingerprints(inputs))


def _small(inputs: Tensor) -> Tensor:
    grey = inputs.float().mean(dim=1, keepdim=True) * (1 if inputs.dtype == torch.uint8 else 255)
    small = F.interpolate(grey, (SIDE, SIDE), mode="bilinear", antialias=True, align_corners=False)
    return small[:, 0].round().clamp(0, 255).to(torch.uint8)


class Look(NamedTuple):
    """A small picture of one file (32, 32) and what tells its content; or why it cannot be read."""

    picture: Array
    content: bytes
    problem: str = ""


def look_at_files(paths: Sequence[Path]) -> Iterator[Look]:
    """Look at image files, several at a time, in their order; no more than a few are decoded at once."""
    blank: Array = np.zeros((SIDE, SIDE), np.uint8)
    for _, found in outcomes([ImageFile(str(path), path) for path in paths], _look):
        yield found if isinstance(found, Look) else Look(blank, b"", str(found))


def _look(file: ImageFile) -> Look:
    picture = images.read_pixels(file.opened(), file.title, "grey", SIDE)[0].numpy()
    with images.usable(file.title):
        return Look(picture, hashlib.blake2b(Path(file.name).read_bytes(), digest_size=16).digest())


def pairs(looks: Looks, labels: Array | None = None, likeness: float | None = None) -> list[Pair]:
    """Find all pairs of images that show the same, exact copies first, then by likeness.

    likeness: what near duplicates have at least. Without it 0.95 or, with labels (n,), more where images of
    different classes come near to it, as drawings on white do. Every two are compared, a few million at a
    time: ten thousand take seconds.
    """
    if likeness is not None and not 0.5 <= likeness <= 1:
        raise SettingsError(f"likeness must lie between 0.5 and 1, got {likeness:g}")
    found = {(a, b): Pair(a, b, exact=True, likeness=1.0) for a, b in _copies(looks.contents)}
    if len(looks.pictures):
        for a, b, how_like in _near(looks.pictures, labels, likeness):
            found.setdefault((a, b), Pair(a, b, exact=False, likeness=how_like))
    return sorted(found.values(), key=lambda pair: (not pair.exact, -pair.likeness, pair[:2]))


def components(count: int, found: Sequence[Pair]) -> Array:
    """Give images (count,) numbers, those that show the same, directly or over others, the same one."""
    from scipy.sparse import coo_array  # noqa: PLC0415
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415

    first, second = (np.array([pair[end] for pair in found], dtype=np.int64) for end in (0, 1))
    graph = coo_array((np.ones(len(first)), (first, second)), shape=(count, count))
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)


def _copies(contents: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Give pairs of equal contents, each copy with the first of its kind."""
    first: dict[Any, int] = {}
    for place, content in enumerate(contents):
        if first.setdefault(content, place) != place:
            yield first[content], place


def _near(pictures: Array, labels: Array | None, likeness: float | None) -> Iterator[tuple[int, int, float]]:
    shown, rows = _standardised(pictures)
    least = likeness or (LIKENESS if labels is None else demanded(rows, labels[shown]))
    tiny, best = _tiny(rows), dict[tuple[int, int], float]()
    for turn in _TURNS:
        theirs, other = (_turned(each, turn) for each in (rows, tiny))
        for a, b in _candidates(tiny, other):
            like = np.einsum("ij,ij->i", rows[a], theirs[b])
            for place in np.flatnonzero(like >= least):
                key = int(shown[a[place]]), int(shown[b[place]])
                best[key] = max(best.get(key, 0.0), min(float(like[place]), 1.0))
    yield from ((a, b, value) for (a, b), value in best.items())


def _tiny(rows: Array) -> Array:
    """Average rows of 32 x 32 pixels to 8 x 8, of mean 0 and length 1 again: (n, 1024) -> (n, 64)."""
    small = (
        rows.reshape(len(rows), TINY, SIDE // TINY, TINY, SIDE // TINY)
        .mean(axis=(2, 4))
        .reshape(len(rows), TINY * TINY)
    )
    return np.asarray(small / np.maximum(np.linalg.norm(small, axis=1, keepdims=True), 1e-12))


def _standardised(pictures: Array) -> tuple[Array, Array]:
    """Find images that show something, (m,), and give them as rows of mean 0 and length 1, (m, 1024)."""
    rows = pictures.reshape(len(pictures), -1).astype(np.float32)
    rows -= rows.mean(axis=1, keepdims=True)
    deviation = rows.std(axis=1, keepdims=True)
    shown = np.flatnonzero(deviation >= FLAT)
    return shown, rows[shown] / (deviation[shown] * SIDE)


def demanded(rows: Array, labels: Array) -> float:
    """Choose the likeness of near duplicates: halfway from what images of different classes reach to 1.

    rows: (n, d) of mean 0 and length 1, labels: (n,). What they reach is what one image in a hundred does
    with the image of another class that it is most like; wrong labels of a few copies do not count.
    """
    some, others = (
        np.linspace(0, len(rows) - 1, min(len(rows), most)).astype(int) for most in (_SAMPLE, 4 * _SAMPLE)
    )
    if not len(rows) or len(np.unique(labels[others])) < 2:
        return LIKENESS
    like = np.where(labels[some, None] != labels[None, others], rows[some] @ rows[others].T, -1.0)
    return max(LIKENESS, (1 + float(np.quantile(like.max(axis=1), 0.99))) / 2)


def _turned(rows: Array, turn: tuple[int, bool]) -> Array:
    """Turn pictures by quarters, mirrored or not: (n, side * side) -> the same."""
    side = round(rows.shape[1] ** 0.5)
    square, (quarters, mirrored) = rows.reshape(len(rows), side, side), turn
    return np.rot90(square[:, :, ::-1] if mirrored else square, quarters, (1, 2)).reshape(rows.shape)


def _candidates(tiny: Array, other: Array) -> Iterator[tuple[Array, Array]]:
    """Give places of images, a before b, whose tiny pictures are roughly alike, a block at a time."""
    rows = max(1, _AT_ONCE // max(1, len(tiny)))
    for start in range(0, len(tiny), rows):
        a, b = np.nonzero(tiny[start : start + rows] @ other[start:].T >= ROUGHLY)
        a, b = a[b > a] + start, b[b > a] + start
        for at in range(0, len(a), 2**14):
            yield a[at : at + 2**14], b[at : at + 2**14]
