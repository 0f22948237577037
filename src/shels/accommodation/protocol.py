"""What every way to take in a class must offer, so that a learner can use any of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from shels.config import TrainingSettings
from shels.courses import Fit, Progress
from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.errors import DataError
from shels.model.networks import Network

Memory = dict[str, Tensor]
"""All that is kept of the classes learned so far, beside the network: statistics, never a sample."""

Watcher = Callable[[Progress], None]


@dataclass(frozen=True, eq=False)
class Taken:
    """A network that knows one class more (or less) than before, and what goes with it.

    report: plain data on how it came about: free units of each layer before and after, steps, last loss.
    """

    network: Network
    memory: Memory
    report: dict[str, Any]


class Method(Protocol):
    """A way to take in a class without the old classes' samples."""

    def remember(self, network: Network, samples: Samples, prepare: Preparation) -> Memory:
        """Return what must be kept of the classes that a network was just trained on."""
        ...

    def take_in(
        self,
        network: Network,
        memory: Memory,
        samples: Samples,
        prepare: Preparation,
        training: TrainingSettings,
        *,
        seed: int,
        progress: Watcher | None = None,
    ) -> Taken:
        """Return a new network that knows one class more; the given network and memory stay as they are.

        samples: the new class alone, every label 0.
        training: how the network was trained at first.
        """
        ...

    def drop(self, network: Network, memory: Memory, position: int) -> Taken:
        """Return a new network without one class, or raise AccommodationError where the method cannot."""
        ...


def batches(network: Network, samples: Samples, prepare: Preparation) -> Iterator[Tensor]:
    """Yield all inputs, prepared, on the network's device, in the batches of an evaluation."""
    device = network.head.weight.device
    for part in torch.split(samples.inputs, prepare.evaluation_batch):
        yield prepare(part.to(device))


def placed(memory: Memory, network: Network) -> Memory:
    """Return the memory on the network's device."""
    return {name: value.to(network.head.weight.device) for name, value in memory.items()}


def relabelled(samples: Samples, position: int) -> Samples:
    """Return samples of one class as the class at this position among as many as that takes."""
    if not len(samples):
        raise DataError(f"{samples.origin}: no sample of the new class; give some")
    labels = torch.full_like(samples.labels, position)
    return replace(samples, labels=labels, classes=tuple(range(position + 1)))


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin with the prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def counts(unused: Mapping[str, Tensor]) -> dict[str, int]:
    """Return how many units of each layer are marked."""
    return {name: int(mark.sum()) for name, mark in unused.items()}


def course(method: str, free_units: dict[str, dict[str, int]], grown_units: int, went: Fit) -> dict[str, Any]:
    """Return the report of one accommodation.

    free_units: under "before" and "after", free units by layer. grown_units: how many were added.
    """
    last = went.checks[-1]
    return {
        "method": method,
        "free_units": free_units,
        "grown_units": grown_units,
        "steps": last.step,
        "final_loss": last.training_loss,
        "seconds": went.seconds,
    }
