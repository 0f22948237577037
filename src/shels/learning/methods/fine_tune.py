"""Fine-tuning: go on training, on the new class alone.

The lower bound of every comparison: nothing is kept and nothing is held, so what happens is forgetting. The
rivals that hold something train as this one does, but for what they add.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from shels.config import FineTune, TrainingSettings
from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.learning.protocol import Given, Lesson, Memory, Method, Stores, Taken, course, relabelled, slowed
from shels.model.growth import add_class
from shels.model.networks import Network
from shels.runtime import derived_seed, generator
from shels.training.batches import TrialData
from shels.training.courses import Fit, TrialTraining
from shels.training.loop import shels_loss


def unsparing(training: TrainingSettings, divisor: float, epochs: int) -> TrainingSettings:
    """Return how an ordinary classifier is trained on a new class: slowed, without SHELS's sparsity."""
    return replace(slowed(training, divisor, epochs), alpha=0.0)


@dataclass(frozen=True)
class FineTuneMethod(Method):
    """Training on the new class alone; it keeps nothing."""

    settings: FineTune

    stores: ClassVar[Stores] = "nothing"

    def remember(self, network: Network, samples: Samples, prepare: Preparation) -> Memory:
        """Return nothing."""
        del network, samples, prepare
        return {}

    def lesson(self, given: Given) -> Lesson:
        """Return the training of all weights by cross-entropy on the new class."""
        network, _memory, samples, prepare, training, seed = given
        position = len(network.head.weight)
        data = TrialData.of(relabelled(samples, position), None, prepare)
        grown = add_class(network, generator(seed, "head", position))
        settings = unsparing(training, self.settings.rate_divisor, self.settings.epochs)

        def finish(went: Fit) -> Taken:
            return Taken(grown, {}, course(self.settings.kind, went))

        trial = TrialTraining(grown, data, derived_seed(seed, self.settings.kind, position))
        return Lesson(trial, shels_loss(grown, settings), settings, finish)
