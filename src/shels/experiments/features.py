"""What networks make of a data set's samples; that of first networks is kept for all methods on them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from shels.data.preparation import Preparation
from shels.data.samples import DataSet, Label, Samples
from shels.detection.protocol import rows_of
from shels.model.networks import Network, Views
from shels.training.features import views_of

Part: TypeAlias = Literal["train", "test"]


class _Kept(NamedTuple):
    """Features of the samples at these places, (n,) in rising order."""

    places: Tensor
    views: Views

    def rows(self, wanted: Tensor) -> Views | None:
        """Give the features of samples at some of the places, None where others are wanted too."""
        rows = torch.searchsorted(self.places, wanted)
        if not torch.equal(self.places[rows.clamp(max=len(self.places) - 1)], wanted):
            return None
        return rows_of(self.views, rows)


class Features:
    """Features of a data set's samples, by the networks of trials; on a GPU networks compute together.

    Many methods begin on the same first networks, and some never change them: an image passes each of these
    once, whatever the number of methods and classes. inputs, tests: the set's training and test inputs, where
    networks compute. precision: what stacked convolutions multiply in.
    """

    def __init__(self, known: DataSet, inputs: Tensor, tests: Tensor, precision: torch.dtype) -> None:
        self.known, self.precision = known, precision
        self.inputs: dict[Part, Tensor] = {"train": inputs, "test": tests}
        self._kept: WeakKeyDictionary[Network, dict[Part, _Kept]] = WeakKeyDictionary()

    def keep(
        self, networks: Sequence[Network], classes: Sequence[Sequence[Label]], prepare: Preparation
    ) -> None:
        """Compute the features of all samples of each network's classes, where they are not there yet."""
        pairs = zip(networks, classes, strict=True)
        missing = {network: wanted for network, wanted in pairs if network not in self._kept}
        sets: dict[Part, Samples] = {"train": self.known.train, "test": self.known.test}
        for part, samples in sets.items():
            places = [samples.places(wanted)[0] for wanted in missing.values()]
            made = self._computed(part, list(missing), places, prepare)
            for network, mine, views in zip(missing, places, made, strict=True):
                self._kept.setdefault(network, {})[part] = _Kept(mine, views)

    def of(
        self, part: Part, networks: Sequence[Network], places: Sequence[Tensor], prepare: Preparation
    ) -> list[Views]:
        """Give each network's features of samples of its own: places (n,) in the set's inputs."""
        out: dict[int, Views] = {}
        alike: dict[Hashable, list[int]] = {}
        for number, (network, wanted) in enumerate(zip(networks, places, strict=True)):
            kept = self._kept[network][part].rows(wanted) if network in self._kept else None
            if kept is not None:
                out[number] = kept
            else:
                alike.setdefault(shapes_of(network), []).append(number)
        for numbers in alike.values():
            some = [networks[number] for number in numbers], [places[number] for number in numbers]
            out |= zip(numbers, self._computed(part, *some, prepare), strict=True)
        return [out[number] for number in range(len(networks))]

    def _computed(
        self, part: Part, networks: Sequence[Network], places: Sequence[Tensor], prepare: Preparation
    ) -> list[Views]:
        if not networks:
            return []
        inputs = self.inputs[part]
        return views_of(networks, inputs, places, prepare, precision=self.precision, shared=True)


def shapes_of(network: torch.nn.Module) -> Hashable:
    """Give what networks must have in common to compute together."""
    return tuple(value.shape for value in network.parameters())
