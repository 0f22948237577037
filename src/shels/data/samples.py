"""Samples: inputs with labels as tensors, checked once, so that nothing bad flows on."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from shels.errors import DataError

Label: TypeAlias = Hashable

_AT_ONCE = 2**21  # values that are held as whole numbers of eight bytes at a time


@dataclass(frozen=True, eq=False)
class Samples:
    """Inputs with labels.

    inputs: (n, channels, height, width), uint8 0-255 or float32 0-1; or vectors (n, d), float32.
    labels: (n,) int64, positions in `classes`.
    groups: (n,) int64 or None: samples of one group (the frames of one traffic sign) are never split.
    origin: what an error calls them, usually the file or folder.
    names: what each is called, such as its file's path; None where they have no names of their own.

    >>> samples = Samples(torch.eye(4), torch.tensor([0, 1, 1, 2]), ("cat", "dog", "bee"))
    >>> some = samples.only(["bee", "dog"])
    >>> len(some), some.labels.tolist(), some.classes
    (3, [1, 1, 0], ('bee', 'dog'))
    """

    inputs: Tensor
    labels: Tensor
    classes: tuple[Label, ...]
    groups: Tensor | None = None
    origin: str = "the samples"
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        check_inputs(self.inputs, self.origin)
        n = len(self.inputs)
        if self.labels.shape != (n,):
            raise DataError(f"{self.origin}: {n} inputs but labels of shape {tuple(self.labels.shape)}")
        if self.labels.dtype != torch.int64:
            raise DataError(
                f"{self.origin}: labels must be int64 positions in classes, got {self.labels.dtype}"
            )
        if self.groups is not None and self.groups.shape != (n,):
            raise DataError(f"{self.origin}: {n} inputs but groups of shape {tuple(self.groups.shape)}")
        if self.names is not None and len(self.names) != n:
            raise DataError(f"{self.origin}: {n} inputs but {len(self.names)} names")
        if len(set(self.classes)) != len(self.classes):
            raise DataError(f"{self.origin}: a class is listed twice in {list(self.classes)}")
        if n and not (int(self.labels.min()) >= 0 and int(self.labels.max()) < len(self.classes)):
            raise DataError(f"{self.origin}: labels must be positions in the {len(self.classes)} classes")

    def __len__(self) -> int:
        return len(self.inputs)

    def to(self, device: torch.device) -> Samples:
        """Return the same samples on a device."""
        groups = None if self.groups is None else self.groups.to(device)
        return replace(self, inputs=self.inputs.to(device), labels=self.labels.to(device), groups=groups)

    def take(self, index: Tensor) -> Samples:
        """Return the samples at these positions (an int64 index or a mask), all classes kept."""
        groups = None if self.groups is None else self.groups[index]
        some = replace(self, inputs=self.inputs[index], labels=self.labels[index], groups=groups, names=None)
        return some if self.names is None else replace(some, names=self._names_at(index))

    def _names_at(self, index: Tensor) -> tuple[str, ...] | None:
        places = torch.arange(len(self), device=index.device)[index].tolist()
        return None if self.names is None else tuple(self.names[place] for place in places)

    def named(self) -> Samples:
        """Return the same samples, those without names called by their number.

        >>> Samples(torch.eye(2), torch.tensor([0, 1]), ("cat", "dog"), origin="pets.npz").named().names
        ('pets.npz#0', 'pets.npz#1')
        """
        return (
            self if self.names else replace(self, names=tuple(f"{self.origin}#{n}" for n in range(len(self))))
        )

    def only(self, classes: Sequence[Label], *, missing_ok: bool = False) -> Samples:
        """Return the samples of these classes, relabelled to their order in `classes`."""
        index, labels = self.places(classes, missing_ok=missing_ok)
        return replace(self.take(index), labels=labels, classes=tuple(classes))

    def places(self, classes: Sequence[Label], *, missing_ok: bool = False) -> tuple[Tensor, Tensor]:
        """Return where the samples of these classes are, (n,), and their labels in the order of `classes`."""
        missing = [c for c in classes if c not in self.classes]
        if missing and not missing_ok:
            raise DataError(f"{self.origin} has no class {missing[0]!r}; its classes: {list(self.classes)}")
        new_position = torch.full((len(self.classes),), -1, device=self.labels.device)
        for new, name in enumerate(classes):
            if name in self.classes:
                new_position[self.classes.index(name)] = new
        labels = new_position[self.labels]
        index = (labels >= 0).nonzero()[:, 0]
        return index, labels[index]

    def followed_by(self, others: Samples) -> Samples:
        """Return these samples and then others of the same classes, in the same form.

        >>> pets = Samples(torch.eye(2), torch.tensor([0, 1]), ("cat", "dog"))
        >>> pets.followed_by(pets).labels.tolist()
        [0, 1, 0, 1]
        """
        mine, theirs = ((tuple(each.inputs.shape[1:]), each.inputs.dtype) for each in (self, others))
        if mine != theirs or self.classes != others.classes:
            raise DataError(
                f"{others.origin}: samples of shape {theirs[0]} and {theirs[1]} cannot be put to those of "
                f"{self.origin}, of shape {mine[0]} and {mine[1]}; bring both to one form"
            )
        groups = None
        if self.groups is not None or others.groups is not None:  # numbers of the two never meet
            groups = torch.cat([self._own_groups(0), others._own_groups(1)])
        joined = [torch.cat(pair) for pair in ((self.inputs, others.inputs), (self.labels, others.labels))]
        names = (
            None
            if not (self.names or others.names)
            else (*(self.named().names or ()), *(others.named().names or ()))
        )
        return Samples(joined[0], joined[1], self.classes, groups, self.origin, names)

    def _own_groups(self, side: int) -> Tensor:
        own = torch.arange(len(self)) if self.groups is None else self.groups.cpu()
        numbers: Tensor = torch.unique(own, return_inverse=True)[1]
        return 2 * numbers + side

    def require_every_class(self) -> None:
        """Raise unless every class has a sample."""
        counts = torch.bincount(self.labels, minlength=len(self.classes))
        empty = [name for name, count in zip(self.classes, counts.tolist(), strict=True) if count == 0]
        if empty:
            raise DataError(
                f"{self.origin}: class {empty[0]!r} has no sample; add some or leave the class out"
            )


@dataclass(frozen=True, eq=False)
class DataSet:
    """A data set as its makers divided it: samples to learn from and samples to test on."""

    name: str
    train: Samples
    test: Samples


def fingerprints(inputs: Tensor) -> list[int]:
    """Give a number that tells each input from others by its content, computed where the inputs lie.

    The values, as whole numbers, times fixed random ones, summed modulo 2**64: exact in any order, and equal
    for different contents about once in 2**32 pairs at the worst.

    >>> one, other, again = fingerprints(torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]))
    >>> one == again, one == other
    (True, False)
    """
    rows = inputs.flatten(1).contiguous()
    rows = rows.view(torch.int32) if rows.dtype == torch.float32 else rows
    draws = torch.Generator().manual_seed(0)
    weights = torch.randint(-(2**62), 2**62, (rows.shape[1],), generator=draws).to(rows.device)
    some = max(1, _AT_ONCE // rows.shape[1])
    parts = [(part.long() * weights).sum(dim=1) for part in torch.split(rows, some)]
    return torch.cat(parts).tolist() if parts else []


def check_inputs(inputs: Tensor, origin: str) -> None:
    """Raise unless inputs are images or vectors with finite values in range."""
    if inputs.ndim not in (2, 4):
        raise DataError(
            f"{origin}: inputs must be images (n, channels, height, width) or vectors (n, d), "
            f"got shape {tuple(inputs.shape)}"
        )
    if 0 in inputs.shape[1:]:
        raise DataError(f"{origin}: a sample has no values in it: inputs have shape {tuple(inputs.shape)}")
    if inputs.ndim == 4 and inputs.shape[1] not in (1, 3):
        raise DataError(f"{origin}: images must have 1 channel (grey) or 3 (RGB), got {inputs.shape[1]}")
    if inputs.dtype == torch.uint8 and inputs.ndim == 4:
        return
    if inputs.dtype != torch.float32:
        raise DataError(f"{origin}: inputs must be float32 (or uint8 for images), got {inputs.dtype}")
    _check_values(inputs, origin)


def _check_values(inputs: Tensor, origin: str) -> None:
    if not len(inputs):
        return
    bad = ~torch.isfinite(inputs).flatten(1).all(dim=1)
    if bad.any():
        raise DataError(f"{origin}: sample {int(bad.nonzero()[0])} holds NaN or infinity; drop or repair it")
    low, high = float(inputs.min()), float(inputs.max())
    if inputs.ndim == 4 and (low < 0 or high > 1):
        raise DataError(
            f"{origin}: float images must lie in 0-1, got {low:g} to {high:g}; scale them, or pass uint8"
        )
