"""One Gaussian of the Gaussian detector, and how it is written and read."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from shels.detection.gaussians import Sums
from shels.detection.protocol import Tensors
from shels.detection.rectified import FactoredSums, factored_from, factored_tensors, rectified

VIEWS = ("shared", "high")
"""What the two projections are of."""


@dataclass(frozen=True, eq=False)
class Part:
    """One Gaussian, of a class or of a part of one.

    owner: the class's position. sums: on the projections of shared and high-level features. scale: (2, 2),
    mean and standard deviation of the logarithm of its samples' distances there. calibration: scores in
    rising order. naming: sums by which it is named, where that is on random, rectified projections.
    """

    owner: int
    sums: tuple[Sums, Sums]
    scale: Tensor
    calibration: Tensor
    threshold: Tensor
    naming: FactoredSums | None = None


def described(
    rows: tuple[Tensor, Tensor], near: int, random: Tensor | None
) -> tuple[tuple[Sums, Sums], FactoredSums | None]:
    """Sum up a class by its projected features, and by what names it where that is something else.

    random: the directions of the rectified projection, where there is one; then `near` directions of the
    shared features are enough, those that tell known from novel.
    """
    if random is None:
        return (Sums.of(rows[0]), Sums.of(rows[1])), None
    return (Sums.of(rows[0][:, :near]), Sums.of(rows[1])), FactoredSums.of(rectified(rows[0], random))


def part_tensors(part: Part) -> Tensors:
    """Write the sums of a Gaussian as tensors, a file of their own."""
    out: Tensors = {}
    for view, sums in zip(VIEWS, part.sums, strict=True):
        out |= {f"{view}/count": torch.tensor(sums.count), f"{view}/mean": sums.mean}
        out[f"{view}/scatter"] = sums.scatter
    return out | (factored_tensors(part.naming, "naming/") if part.naming is not None else {})


def part_from(at: int, changing: Tensors, sums: Tensors) -> Part:
    """Read a Gaussian from its numbers in the detector's file, at its place there, and from its own file."""
    owner = int(changing["owners"][at])
    pair = [Sums(int(sums[f"{v}/count"]), sums[f"{v}/mean"], sums[f"{v}/scatter"]) for v in VIEWS]
    scale, calibration, limit = (changing[f"{at}/{name}"] for name in ("usual", "calibration", "threshold"))
    naming = factored_from(sums, "naming/") if "naming/mean" in sums else None
    return Part(owner, (pair[0], pair[1]), scale, calibration, limit, naming)
