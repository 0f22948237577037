"""Reading image files: one after the other at full size, as it once was, against several at a time.

    python benchmarks/reading.py --small 2000 --large 200 --side 64

Makes JPEGs of about 100 pixels, and of 12 million, from scikit-learn's two photos, in a temporary folder.
Times are the best of --rounds, in which the ways take turns; CPU seconds are of all threads together.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from PIL import Image, ImageOps
from sklearn.datasets import load_sample_images
from torch import Tensor

from shels.data import own, reading


class Cost(NamedTuple):
    """Seconds on the clock, and of the CPU."""

    clock: float
    cpu: float


def make_small(folder: Path, count: int) -> None:
    """Write cuttings of 90 to 120 pixels."""
    random = np.random.default_rng(0)
    photos = [Image.fromarray(each) for each in load_sample_images().images]
    for number in range(count):
        side, left, top = (int(random.integers(*each)) for each in ((90, 121), (0, 520), (0, 300)))
        cutting = photos[number % 2].crop((left, top, left + side, top + side))
        cutting.save(folder / f"{number:05d}.jpg", quality=90)


def make_large(folder: Path, count: int) -> None:
    """Write four photos of 4000 x 3000 pixels with a camera's noise, and links to them for the others."""
    random = np.random.default_rng(0)
    photos = [Image.fromarray(each) for each in load_sample_images().images]
    for number in range(count):
        path = folder / f"{number:05d}.jpg"
        if number < 4:
            enlarged = np.asarray(photos[number % 2].resize((4000, 3000), Image.Resampling.LANCZOS))
            noisy = enlarged + random.normal(0, 4, enlarged.shape)
            Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(path, quality=90)
        else:
            os.link(folder / f"{number % 4:05d}.jpg", path)


def one_by_one(paths: Sequence[Path], side: int) -> Tensor:
    """Read every header, then decode every file at full size, one after the other: the way before."""
    for path in paths:
        with _checked(path), Image.open(path) as image:
            image.getexif()
    made = []
    for path in paths:
        with _checked(path), Image.open(path) as image:
            upright = ImageOps.exif_transpose(image)
        with _checked(path):
            pixels = np.array(upright.convert("RGB").resize((side, side), Image.Resampling.BILINEAR))
        made.append(torch.from_numpy(pixels.transpose(2, 0, 1).copy()))
    return torch.stack(made)


@contextmanager
def _checked(path: Path) -> Iterator[None]:
    """Look at what is there and keep warnings away, as each step did."""
    path.stat()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def together(paths: Sequence[Path], side: int) -> Tensor:
    """Read them as shels does; the header of each is looked at, as channels are not given."""
    return own.read_images(paths, side)[0]


def alone(paths: Sequence[Path], side: int) -> Tensor:
    """Read them as shels does, in one thread."""
    with patch.object(reading, "_cpus", lambda: 1):
        return together(paths, side)


WAYS: dict[str, Callable[[Sequence[Path], int], Tensor]] = {
    "before": one_by_one,
    "one thread": alone,
    "now": together,
}


def measure(paths: Sequence[Path], side: int, rounds: int) -> tuple[dict[str, Cost], dict[str, Tensor]]:
    """Let the ways take turns; return the best time of each, and what it read."""
    costs: dict[str, list[Cost]] = {name: [] for name in WAYS}
    pixels: dict[str, Tensor] = {}
    for _ in range(rounds):
        for name, way in WAYS.items():
            clock, cpu = time.perf_counter(), time.process_time()
            pixels[name] = way(paths, side)
            costs[name].append(Cost(time.perf_counter() - clock, time.process_time() - cpu))
    best = {name: Cost(*(min(column) for column in zip(*each, strict=True))) for name, each in costs.items()}
    return best, pixels


def main() -> None:
    """Measure small and large files and print a line for each way."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", type=int, default=2000, help="JPEGs of about 100 pixels")
    parser.add_argument("--large", type=int, default=200, help="JPEGs of 12 million pixels")
    parser.add_argument("--side", type=int, default=64, help="what they are brought to")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    for name, make, count in (("small", make_small, given.small), ("large", make_large, given.large)):
        with TemporaryDirectory(prefix="shels-") as folder:
            make(Path(folder), count)
            costs, pixels = measure(sorted(Path(folder).iterdir()), given.side, given.rounds)
        apart = (pixels["now"].float() - pixels["before"].float()).abs()
        print(f"{count} {name}, grey levels apart: mean {apart.mean():.3f}, at most {apart.max():.0f}")
        for way, cost in costs.items():
            ratio = costs["before"].clock / cost.clock
            print(f"  {way:<12}{cost.clock:8.2f} s {cost.cpu:8.2f} CPU s   {ratio:5.2f} x")


if __name__ == "__main__":
    main()
