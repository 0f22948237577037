"""The oracle of experiments: it knows the truth about every image, and is asked like a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from shels.agent.agent import Request, Supply
from shels.data.samples import DataSet, Label, Samples
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
        self._names = dict(zip(contents(samples.inputs), names, strict=True))

    def of(self, inputs: Tensor) -> Truth:
        """Return what most of these images show; none may be a stranger."""
        found = contents(inputs)
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
        return Supply(self.train.only([name]).inputs, name, by="oracle")


class DataSetSupplier:
    """A supplier that knows the truth of a data set, and gives its training images of a class that is new.

    classes: gives the model's classes by now. Of a class that is known already it gives nothing.
    """

    def __init__(self, data: DataSet, classes: Callable[[], Sequence[Label]]) -> None:
        self.oracle = Oracle(Truths(data.test), data.train, classes)
        self.classes = classes

    def __call__(self, request: Request) -> Supply | None:
        """Return more of what a request is about."""
        try:
            supply = self.oracle(request)
        except DataError:  # some of it was seen in another stream
            return None
        return supply and replace(supply, name=new_class(str(supply.name), self.classes()))


def contents(inputs: Tensor) -> list[bytes]:
    """Give what tells each image from others: its content."""
    return [image.cpu().contiguous().numpy().tobytes() for image in inputs]
