"""Images that were called novel and are kept for a person: each has a number, and it never gets another.

A log that says "12-15,20" speaks of the same five images for as long as they are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from shels.errors import DataError
from shels.model.networks import Views

if TYPE_CHECKING:
    from shels.agent.buffers import Buffers
    from shels.learner.learner import Learner

SEEN = "seen-"
"""How images that a person has still to look at are called in a home: seen- and the first one's number."""
MOST_IMAGES, MOST_BYTES = 20_000, 2**29
"""How many images are kept, and how much of them; the oldest go first."""


def ranges(numbers: Iterable[int]) -> str:
    """Write numbers as the log has them.

    >>> ranges([3, 1, 2, 7])
    '1-3,7'
    """
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in found)


def numbers_of(text: str) -> list[int]:
    """Read what `ranges` wrote.

    >>> numbers_of("1-3,7")
    [1, 2, 3, 7]
    """
    found: list[int] = []
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        end = int(high or low)
        if end - int(low) > 10 * MOST_IMAGES:  # no log of ours says so
            raise DataError(f"{part} are too many images")
        found.extend(range(int(low), end + 1))
    return found


class Inbox:
    """The images that are kept, by number. last: the last number that was given."""

    def __init__(self, buffers: Buffers, last: int = 0) -> None:
        self._buffers = buffers
        self._places: dict[int, tuple[str, int]] = {}
        for name, buffer in buffers.named(SEEN):
            self._enter(name, len(buffer.inputs))
        self.last = max([last, *self._places])

    def __contains__(self, number: int) -> bool:
        return number in self._places

    def numbers(self) -> list[int]:
        """List the numbers of all images that are kept, in the order in which they came."""
        return list(self._places)

    def add(self, inputs: Tensor, features: Views, learner: Learner) -> list[int]:
        """Keep images, on disk when this returns, and return their numbers."""
        if not len(inputs):
            return []
        name = f"{SEEN}{self.last + 1:09d}"
        self._buffers.keep(name, inputs.cpu(), features, learner.network)
        self._enter(name, len(inputs))
        first, self.last = self.last + 1, self.last + len(inputs)
        self._trim()
        return list(range(first, self.last + 1))

    def forget_after(self, number: int) -> None:
        """Let images go that no line of the log speaks of: a run was cut off before it told anybody."""
        names = {name for name, _ in self._places.values() if int(name.removeprefix(SEEN)) > number}
        self._drop(names)
        self.last = max([number, *self._places])

    def inputs(self, numbers: Sequence[int]) -> Tensor:
        """Return images by their numbers: (n, ...)."""
        found = dict(self._buffers.named(SEEN))
        rows = []
        for number in numbers:
            if number not in self._places:
                raise DataError(f"image {number} is not kept any more; choose among those that are listed")
            name, row = self._places[number]
            rows.append(found[name].inputs[row])
        return torch.stack(rows) if rows else torch.empty(0)

    def features(self, numbers: Sequence[int], learner: Learner) -> Views:
        """Return what a learner's network makes of images; what it has seen before is not computed again."""
        self._buffers.prepare({self._places[number][0] for number in numbers}, learner)
        rows = []
        for number in numbers:
            name, row = self._places[number]
            rows.append(tuple(view[row] for view in self._buffers.features(name, learner)))
        return Views(*(torch.stack(column) for column in zip(*rows, strict=True)))

    def _enter(self, name: str, count: int) -> None:
        first = int(name.removeprefix(SEEN))
        self._places |= {first + row: (name, row) for row in range(count)}

    def _trim(self) -> None:
        buffers = self._buffers.named(SEEN)
        count = sum(len(each.inputs) for _, each in buffers)
        size = sum(each.inputs.nbytes for _, each in buffers)
        gone = set()
        for name, each in buffers[:-1]:
            if count <= MOST_IMAGES and size <= MOST_BYTES:
                break
            gone.add(name)
            count, size = count - len(each.inputs), size - each.inputs.nbytes
        self._drop(gone)

    def _drop(self, names: set[str]) -> None:
        if names:
            self._places = {number: place for number, place in self._places.items() if place[0] not in names}
            self._buffers.drop(names)
