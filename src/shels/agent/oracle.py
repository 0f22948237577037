"""The oracle of experiments: it knows the truth about every image, and is asked like a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from shels.agent.agent import Request, Supplier, Supply
from shels.data.samples import DataSet, Label, Samples, fingerprints
from shels.data.splits import match_class, new_class
from shels.errors import DataError


class Truth(NamedTuple):
    """The class of most of some images, and its share of them."""

    name: Label
    share: float


class Truths:
    """What every image of some samples shows."""

    def __init__(self, samples: Samples) -> None:
        names = [samples.classes[position] for position in samples.labels.tolist()]
        self._names = dict(zip(fingerprints(samples.inputs), names, strict=True))

    def of(self, inputs: Tensor) -> Truth:
        """Return what most of these images show; none may be a stranger."""
        found = fingerprints(inputs)
        strangers = sum(content not in self._names for content in found)
        if strangers:
            raise DataError(f"{strangers} of {len(found)} images are not among those whose truth is known")
        name, most = Counter(self._names[content] for content in found).most_common(1)[0]
        return Truth(name, most / len(found))


class Oracle:
    """A supplier that gives all training images of what most of the images asked about show, with its name.

    known: gives the learner's classes by now; of a class among them it gives nothing.
    """

    def __init__(self, truths: Truths, train: Samples, known: Callable[[], Sequence[Label]]) -> None:
        self.truths = truths
        self.train = train
        self.known = known

    def __call__(self, request: Request) -> Supply | None:
        """Return the training images of the class that is meant, or None for one that is known."""
        name = self.truths.of(request.inputs).name
        if match_class(name, self.known()) is not None:
            return None
        found = self.train.only([name])
        return Supply(found.inputs, name, by="oracle", groups=found.groups)


def data_set_supplier(data: DataSet, known: Callable[[], Sequence[Label]]) -> Supplier:
    """Make the oracle of a data set, which names a class as the model would, and leaves strangers alone."""
    oracle = Oracle(Truths(data.test), data.train, known)

    def supply(request: Request) -> Supply | None:
        try:
            found = oracle(request)
        except DataError:  # some of it was seen in another stream
            return None
        return found and replace(found, name=new_class(str(found.name), known()))

    return supply
