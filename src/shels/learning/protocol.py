"""What every way to take in a class must offer, so that a learner can use any of them.

A method takes a class in as a coroutine: it yields each training that it needs as a value, is sent how that
went, and returns the new network and what to remember. So the same method is trained alone by a learner, and
beside others of its kind by an experiment.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, ClassVar, Literal, ParamSpec, TypeAlias, TypeVar

import torch
from torch import Tensor

from shels.config import TrainingSettings
from shels.data.preparation import Preparation, channels_last
from shels.data.samples import Samples
from shels.detection.protocol import Naming
from shels.errors import AccommodationError, ArchitectureError, DataError, TrainingError
from shels.model.networks import Network, Views
from shels.model.normalisation import BatchNorm2d
from shels.runtime import finished, generator
from shels.training import Fit, Objective, Progress, TrainingRequest, fitting, shels_loss

Stores: TypeAlias = Literal["nothing", "statistics", "old data"]
Given = ParamSpec("Given")
Value = TypeVar("Value")
Memory: TypeAlias = dict[str, Tensor]
"""All that is remembered of old classes, by name; names with a prefix belong together."""


@dataclass(frozen=True, eq=False)
class Accommodated:
    """A network that knows one class more (or less) than before, and what goes with it.

    report: plain data on how it came about: free units of each layer before and after, steps, last loss.
    """

    network: Network
    memory: Memory
    report: dict[str, Any]


@dataclass(frozen=True, eq=False)
class NewClass:
    """A class to take in, and what there is when it comes; none of it is changed.

    network, memory: those that know the classes so far. samples: the new class alone, every label 0.
    training: how the network was trained at first. features: what the network makes of the samples, where
    that is known already.
    """

    network: Network
    memory: Memory
    samples: Samples
    prepare: Preparation
    training: TrainingSettings
    seed: int
    features: Views | None = None

    @property
    def position(self) -> int:
        """The place of the new class's row in a head that grows."""
        return len(self.network.head.weight)

    @property
    def labelled(self) -> Samples:
        """The samples under the label of that row."""
        return relabelled(self.samples, self.position)

    @property
    def remembered(self) -> Memory:
        """The memory on the network's device."""
        return placed(self.memory, self.network)

    def draw(self, purpose: str) -> torch.Generator:
        """Return a generator for one purpose of this class's own."""
        return generator(self.seed, purpose, self.position)


Requests: TypeAlias = Generator[TrainingRequest, Fit, Accommodated]
"""The trainings by which a class is taken in; closed forms yield none."""


@dataclass(frozen=True)
class LearningMethod(ABC):
    """A way to take in a class.

    stores: what it remembers of old classes, beside the network. frozen_features: whether a sample's features
    stay as they are when a class is taken in. grows_head: whether the network's last layer gets a row for the
    new class. names_by_products: whether a class is named by w_c · f, as SHELS does, whatever the head; else
    by the head as it was trained. normalised: whether it works with batch normalisation, whose running
    averages follow the new class alone. settings: those of the method, with its `kind`.
    """

    settings: Any
    stores: ClassVar[Stores]
    frozen_features: ClassVar[bool] = False
    grows_head: ClassVar[bool] = True
    names_by_products: ClassVar[bool] = False
    normalised: ClassVar[bool] = True

    def initial(self, network: Network, training: TrainingSettings) -> Objective:
        """Return how the network is trained on its first classes: by the loss of SHELS, unless it says so."""
        self.require_layers(network)
        return Objective(shels_loss(network, training), training)

    def require_layers(self, network: Network) -> None:
        """Refuse a network with layers that the method cannot hold on to."""
        if network.backbone is not None and not self.frozen_features:
            raise ArchitectureError(
                f"accommodation {self.settings.kind!r} trains the whole network on each new class and would "
                "undo a backbone; take a way that leaves features as they are: gaussian, slda, fecam, ranpac"
            )
        if not self.normalised and any(isinstance(layer, BatchNorm2d) for layer in network.body):
            raise ArchitectureError(
                f"accommodation {self.settings.kind!r} holds weights, not the running averages of batch "
                "normalisation, which a new class would carry away; take a network without, or another way"
            )

    def about_initial(self) -> tuple[Any, ...]:
        """Return what of its settings decides that training; methods with the same share their network."""
        return ()

    @abstractmethod
    def remember(self, network: Network, samples: Samples, prepare: Preparation) -> Memory:
        """Return what must be remembered of the classes that a network was just trained on."""

    def first_memory(
        self, network: Network, samples: Samples, prepare: Preparation, features: Views
    ) -> Memory:
        """Return what `remember` does of the first classes, given what the network makes of the samples."""
        del features
        self.require_layers(network)
        return self.remember(network, samples, prepare)

    @abstractmethod
    def take_in(self, new: NewClass) -> Requests:
        """Make a network that knows one class more, asking for the trainings that it takes."""

    def naming(self, network: Network, memory: Memory) -> Naming:
        """Return what tells how like each class samples are; the highest names the class."""
        if not self.names_by_products:
            return lambda views: network.head(views.high).detach()
        weights = network.head.weight.detach()
        return lambda views: views.high @ weights.T

    def drop(self, network: Network, memory: Memory, position: int) -> Accommodated:
        """Return a new network without one class, or raise AccommodationError where the method cannot."""
        raise AccommodationError(
            f'accommodation "{self.settings.kind}" cannot unlearn a class: its training moved weights that '
            "other classes use; roll back to the version before it"
        )

    def check(self, shape: tuple[int, ...], classes: int) -> None:  # noqa: B027 - most refuse nothing
        """Raise SettingsError where it cannot work with inputs of this shape, or so many first classes."""


def take_in(method: LearningMethod, new: NewClass) -> Accommodated:
    """Return a network that knows one class more, each training that it takes run by itself."""
    return finished(train_alone(method.take_in(new)))


def train_alone(requests: Generator[TrainingRequest, Fit, Value]) -> Generator[Progress, None, Value]:
    """Train what a coroutine asks for, one request after another, and report on the way.

    It is told of a training that failed where it asked for it.
    """
    try:
        request = next(requests)
        while True:
            try:
                result = yield from fitting(request)
            except TrainingError as error:  # a method may have another way
                request = requests.throw(error)
            else:
                request = requests.send(result)
    except StopIteration as end:
        value: Value = end.value
        return value


def trained_alone(
    function: Callable[Given, Generator[TrainingRequest, Fit, Value]],
) -> Callable[Given, Generator[Progress, None, Value]]:
    """Return what does as a coroutine function, each training that it asks for run by itself."""

    @wraps(function)
    def run(*given: Given.args, **named: Given.kwargs) -> Generator[Progress, None, Value]:
        return train_alone(function(*given, **named))

    return run


def batches(network: Network, samples: Samples, prepare: Preparation) -> Iterator[Tensor]:
    """Yield all inputs, prepared, on the network's device, in the batches of an evaluation."""
    device = network.head.weight.device
    for part in torch.split(samples.inputs, prepare.evaluation_batch):
        yield prepare(part.to(device))


@torch.no_grad()
def views_of(network: Network, inputs: Tensor, prepare: Preparation, batch_size: int | None = None) -> Views:
    """Give shared and high-level features of any number of inputs, of none too."""
    prepare.check(inputs)
    if network.training:  # to walk through all layers takes as long as a small one computes
        network.eval()
    device = network.head.weight.device
    chunks = torch.split(inputs, batch_size or prepare.evaluation_batch) if len(inputs) else ()
    parts = [network.views(channels_last(prepare(chunk.to(device)))) for chunk in chunks]
    if not parts:
        blank = torch.zeros(1, *inputs.shape[1:], dtype=inputs.dtype, device=device)
        return Views(*(view[:0] for view in network.views(prepare(blank))))
    if len(parts) == 1:
        return parts[0]
    return Views(*(torch.cat(view) for view in zip(*parts, strict=True)))


def relabelled(samples: Samples, position: int) -> Samples:
    """Return samples of one class as the class at this position among as many as that takes."""
    if not len(samples):
        raise DataError(f"{samples.origin}: no sample of the new class; give some")
    labels = torch.full_like(samples.labels, position)
    return replace(samples, labels=labels, classes=tuple(range(position + 1)))


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
