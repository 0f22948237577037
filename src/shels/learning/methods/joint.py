"""Joint training: with every class, a fresh network on all samples of all classes, as at first.

No method of its own but the bound that others are measured by: what the same network and training come to
where nothing old is ever taken away.

What differs from the first training: nothing is held out, so the weights kept are the last. The network is
drawn afresh also where the first one began from pretrained weights, which are not kept anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from shels.config import Joint
from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.learning.protocol import Given, Lesson, Memory, Method, Stores, Taken, course, placed, relabelled
from shels.learning.replay_buffer import joined, kept_memory
from shels.model.growth import fresh
from shels.model.networks import Network
from shels.runtime import derived_seed, generator
from shels.training.batches import TrialData
from shels.training.courses import Fit, TrialTraining
from shels.training.loop import shels_loss


@dataclass(frozen=True)
class JointMethod(Method):
    """Training afresh on everything; what it keeps are all samples."""

    settings: Joint

    stores: ClassVar[Stores] = "old data"

    def remember(self, network: Network, samples: Samples, prepare: Preparation) -> Memory:
        """Return all samples."""
        del network, prepare
        samples.require_every_class()
        return kept_memory(samples, len(samples))

    def lesson(self, given: Given) -> Lesson:
        """Return the training of a fresh network on all samples, the new ones among them."""
        network, memory, samples, prepare, training, seed = given
        position = len(network.head.weight)
        new = relabelled(samples, position).to(network.head.weight.device)
        every = joined(placed(memory, network), new)
        started = fresh(network, position + 1, generator(seed, "start", position))
        settings = replace(training, patience=None)  # with nothing held out, nothing says when to stop

        def finish(went: Fit) -> Taken:
            told = course(self.settings.kind, went, memory=len(every))
            return Taken(started, kept_memory(every, len(every)), told)

        order = derived_seed(seed, self.settings.kind, position)
        trial = TrialTraining(started, TrialData.of(every, None, prepare), order)
        return Lesson(trial, shels_loss(started, settings), settings, finish)
