"""What a method remembers of the classes learned so far, as named tensors beside the network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from torch import Tensor

from shels.model.networks import Network

Memory: TypeAlias = dict[str, Tensor]
"""All that is remembered of old classes, by name; names with a prefix belong together."""


def placed(memory: Memory, network: Network) -> Memory:
    """Return the memory on the network's device."""
    return {name: value.to(network.head.weight.device) for name, value in memory.items()}


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin with the prefix, without it.

    >>> list(under("mask/", {"mask/a": Tensor([1]), "b": Tensor([2])}))
    ['a']
    """
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with a prefix before each name."""
    return {prefix + name: value for name, value in tensors.items()}


def counts(marks: Mapping[str, Tensor]) -> dict[str, int]:
    """Return how many units of each layer are marked."""
    return {name: int(mark.sum()) for name, mark in marks.items()}
