"""What every way to take in a class must offer, so that a learner can use any of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from shels.config import TrainingSettings
from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.detection.protocol import Naming
from shels.errors import AccommodationError, DataError
from shels.model.networks import Network, Views
from shels.training.courses import Fit, Progress, TrialTraining
from shels.training.loop import fit, shels_loss
from shels.training.stepping import AfterStep, Loss

Memory = dict[str, Tensor]
"""All that is kept of the classes learned so far, beside the network."""

Stores = Literal["nothing", "statistics", "old data"]

Watcher = Callable[[Progress], None]


@dataclass(frozen=True, eq=False)
class Taken:
    """A network that knows one class more (or less) than before, and what goes with it.

    report: plain data on how it came about: free units of each layer before and after, steps, last loss.
    """

    network: Network
    memory: Memory
    report: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Lesson:
    """A training by which a class is taken in, as a value: trainings that are alike can be run together.

    trial: the network, which is trained in place, its data, seed and state. loss, after_step: written for one
    trial; what is particular to it they read from its state alone. finish: what to make of the trained
    network.
    """

    trial: TrialTraining
    loss: Loss
    settings: TrainingSettings
    finish: Callable[[Fit], Taken]
    after_step: AfterStep | None = None


class First(NamedTuple):
    """How a network is trained at first."""

    loss: Loss
    settings: TrainingSettings
    after_step: AfterStep | None = None


class Given(NamedTuple):
    """What there is when a new class comes; none of it is changed.

    network, memory: those that know the classes so far. samples: the new class alone, every label 0.
    training: how the network was trained at first.
    """

    network: Network
    memory: Memory
    samples: Samples
    prepare: Preparation
    training: TrainingSettings
    seed: int


class Method(Protocol):
    """A way to take in a class.

    stores: what it keeps of old classes, beside the network. frozen_features: whether a sample's features
    stay as they are when a class is taken in. grows_head: whether the network's last layer gets a row for the
    new class. settings: those of the method, with its `kind`.
    """

    settings: Any
    stores: ClassVar[Stores]
    frozen_features: ClassVar[bool] = False
    grows_head: ClassVar[bool] = True

    def first(self, network: Network, training: TrainingSettings) -> First:
        """Return how the network is trained on its first classes: by the loss of SHELS, unless it says so."""
        return First(shels_loss(network, training), training)

    def about_first(self) -> tuple[Any, ...]:
        """Return what of its settings decides that training; methods with the same share their network."""
        return ()

    def remember(self, network: Network, samples: Samples, prepare: Preparation) -> Memory:
        """Return what must be kept of the classes that a network was just trained on."""
        ...

    def lesson(self, given: Given) -> Lesson | Taken:
        """Return how a new network comes to know one class more, or that network where nothing is trained."""
        ...

    def naming(self, network: Network, memory: Memory) -> Naming:
        """Return what tells how like each class samples are; the highest names the class."""
        del memory
        return by_head(network)

    def drop(self, network: Network, memory: Memory, position: int) -> Taken:
        """Return a new network without one class, or raise AccommodationError where the method cannot."""
        del network, memory, position
        raise AccommodationError(
            f'accommodation "{self.settings.kind}" cannot unlearn a class: its training moved weights that '
            "other classes use; roll back to the version before it"
        )

    def check(self, shape: tuple[int, ...], classes: int) -> None:
        """Raise SettingsError where it cannot work with inputs of this shape, or so many first classes."""
        del shape, classes


def take_in(method: Method, given: Given, progress: Watcher | None = None) -> Taken:
    """Return a new network that knows one class more, once it is trained."""
    lesson = method.lesson(given)
    return lesson if isinstance(lesson, Taken) else lesson.finish(train(lesson, progress))


def train(lesson: Lesson, progress: Watcher | None = None) -> Fit:
    """Train a lesson's network in place and return how it went."""
    trial = lesson.trial
    return fit(
        trial.network,
        lesson.loss,
        trial.data,
        lesson.settings,
        seed=trial.seed,
        state=trial.state,
        after_step=lesson.after_step,
        progress=progress,
    )


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


def course(method: str, went: Fit, **facts: Any) -> dict[str, Any]:
    """Return the report of one accommodation by training.

    facts: what else there is to tell, such as free_units: under "before" and "after", free units by layer.
    """
    last = went.checks[-1]
    told = {"method": method, **facts, "steps": last.step}
    return told | {"final_loss": last.training_loss, "seconds": went.seconds}


def slowed(training: TrainingSettings, divisor: float, epochs: int) -> TrainingSettings:
    """Return how to train on a new class: as at first, at a lower rate, for so many passes."""
    slow = training.optimiser.learning_rate / divisor
    optimiser = replace(training.optimiser, learning_rate=slow)
    return replace(training, optimiser=optimiser, epochs=epochs, steps=None, patience=None)


def by_products(network: Network) -> Naming:
    """Return SHELS's naming: the products w_c · f, whatever the head."""
    weights = network.head.weight.detach()
    return lambda views: views.high @ weights.T


def by_head(network: Network) -> Naming:
    """Return the naming of the network's last layer, as it was trained."""
    return lambda views: network.head(views.high).detach()


@torch.no_grad()
def views_of(network: Network, samples: Samples, prepare: Preparation) -> Views:
    """Return shared and high-level features of all samples."""
    network.eval()
    parts = [network.views(batch) for batch in batches(network, samples, prepare)]
    return Views(*(torch.cat(each) for each in zip(*parts, strict=True)))
