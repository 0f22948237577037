"""Samples that a learner keeps, as tensors of its memory, and the rule by which a small memory is balanced.

A memory of them holds "samples" (n, ...), inputs as they came; "labels" (n,), int64; "seen", a count of all
training samples so far, kept or not.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from shels.config import Gdumb, ShelsGdumb
from shels.data.preparation import fitted
from shels.data.samples import Samples
from shels.errors import SettingsError
from shels.learning.protocol import Memory
from shels.runtime import generator

NAMES = ("samples", "labels", "seen")
"""What of a memory is about samples."""

LEAST = 10
"""Samples of a class that a share keeps at least; of a thousand images 1 % would be one of each class."""


def as_memory(samples: Samples, seen: int) -> Memory:
    """Return samples as a memory. seen: how many there have been in all."""
    count = torch.tensor(seen, device=samples.labels.device)
    return {"samples": samples.inputs, "labels": samples.labels, "seen": count}


def buffered_samples(memory: Memory, classes: int) -> Samples:
    """Return the samples that a memory holds, to train on or to measure with; a class is its position."""
    return Samples(
        memory["samples"], memory["labels"], tuple(range(classes)), origin="the samples that were kept"
    )


def joined(memory: Memory, new: Samples) -> Samples:
    """Return the samples in the buffer and, after them, those of a new class, which has its label already."""
    old = buffered_samples(memory, len(new.classes) - 1)
    new = replace(new, inputs=in_form_of(new.inputs, old.inputs))
    inputs, labels = (torch.cat(pair) for pair in ((old.inputs, new.inputs), (old.labels, new.labels)))
    return Samples(inputs, labels, new.classes, origin=old.origin)


def in_form_of(inputs: Tensor, buffered: Tensor) -> Tensor:
    """Return inputs in the form of those in the buffer: their size, and bytes or values 0-1 as they are."""
    if inputs.dtype == buffered.dtype and inputs.shape[1:] == buffered.shape[1:]:
        return inputs
    values = inputs.float() / 255 if inputs.dtype == torch.uint8 else inputs
    if inputs.ndim == 4:
        values = fitted(values.float(), buffered.shape[2:], "resize")
    if buffered.dtype == torch.uint8:
        return (values * 255).round().clamp(0, 255).to(torch.uint8)
    return values.to(buffered.dtype)


def room(settings: Gdumb | ShelsGdumb, seen: int, classes: int) -> int:
    """Return K, how many samples may be kept: so many, or a share of all seen, ten a class at least."""
    if settings.size is None:
        return max(LEAST * classes, round(settings.share * seen))
    if settings.size < classes:
        raise SettingsError(
            f"size must be one sample a class or more, so {classes} or more by now, got {settings.size}"
        )
    return settings.size


def quotas(available: Sequence[int], most: int) -> list[int]:
    """Return how many samples of each class to keep: the same of each, at most so many in all.

    What a class has too few samples for is left to the others; what does not divide evenly goes to those
    that have the most.
    """
    out, left = [0] * len(available), most
    order = sorted(range(len(available)), key=lambda c: available[c])
    for place, c in enumerate(order):
        out[c] = min(available[c], left // (len(order) - place))
        left -= out[c]
    return out


def chosen(samples: Samples, each: Sequence[int], draw: torch.Generator) -> Samples:
    """Return so many samples of each class, drawn at random, in the order they were in."""
    labels, out = samples.labels.cpu(), []
    for position, number in enumerate(each):
        places = (labels == position).nonzero()[:, 0]
        out.append(places[torch.randperm(len(places), generator=draw)[:number]])
    return samples.take(torch.cat(out).sort().values.to(samples.labels.device))


def begun(settings: Gdumb | ShelsGdumb, samples: Samples) -> Memory:
    """Return the balanced memory of the first classes."""
    samples.require_every_class()
    counts = torch.bincount(samples.labels, minlength=len(samples.classes)).tolist()
    each = quotas(counts, room(settings, len(samples), len(counts)))
    return as_memory(chosen(samples, each, generator(0, "memory")), len(samples))


def extended(settings: Gdumb | ShelsGdumb, memory: Memory, new: Samples, draw: torch.Generator) -> Memory:
    """Return the balanced memory with a new class in it, for which old samples leave at random.

    The new class gets its equal share, or as much as the largest old class where that has more: what old
    classes cannot fill, because their samples are gone, must not all be the new one's.
    """
    seen = int(memory["seen"]) + len(new)
    every = joined(memory, new)
    *old, own = torch.bincount(every.labels, minlength=len(new.classes)).tolist()
    most = room(settings, seen, len(new.classes))
    own = min(own, max(most // len(new.classes), *old))
    return as_memory(chosen(every, quotas([*old, own], most), draw), seen)
