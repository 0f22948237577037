"""SHELS-GDumb: the loss of SHELS's accommodation, on GDumb's balanced memory.

M. Gummadi, D. Kent, J. Mendez, E. Eaton: SHELS: Exclusive Feature Sets for Novelty Detection and Continual
Learning Without Class Boundaries, CoLLAs 2022, which tries this combination beside its own method. GDumb:
A. Prabhu, P. Torr, P. Dokania, ECCV 2020.

What differs here, or is left open there: how long to train, which is a setting; classes are named by the head
as it was trained, since old and new rows learn side by side; the memory is balanced once a class. The paper
gives no β for it. Adam rescales the gradient, so its accommodation's β of 2000 holds the weights of old units
about where they were and leaves little to learn with; hence a smaller one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from shels.config import Adam, Penalty, ShelsGdumb, TrainingSettings
from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.learning.methods.penalty import PenaltyMethod, hold, masked, merged, penalty_loss
from shels.learning.protocol import (
    Given,
    Lesson,
    Memory,
    Method,
    Stores,
    Taken,
    counts,
    course,
    placed,
    relabelled,
)
from shels.learning.replay_buffer import NAMES, begun, extended, kept_samples, room
from shels.model.growth import add_class
from shels.model.networks import Network
from shels.runtime import derived_seed, generator
from shels.training.batches import TrialData
from shels.training.courses import Fit, TrialTraining


@dataclass(frozen=True)
class ShelsGdumbMethod(Method):
    """The paper's accommodation on kept samples; it keeps them, and the sum of each unit's activations."""

    settings: ShelsGdumb

    stores: ClassVar[Stores] = "old data"

    def remember(self, network: Network, samples: Samples, prepare: Preparation) -> Memory:
        """Return the balanced memory, and the activations of all samples, kept or not."""
        return begun(self.settings, samples) | self._paper.remember(network, samples, prepare)

    def check(self, shape: tuple[int, ...], classes: int) -> None:
        """Refuse a memory of fewer samples than classes."""
        del shape
        room(self.settings, 0, classes)

    def lesson(self, given: Given) -> Lesson:
        """Return the training on the memory, the new class in it, under the penalty on changes."""
        network, memory, samples, prepare, training, seed = given
        position, memory = len(network.head.weight), placed(memory, network)
        new = relabelled(samples, position).to(network.head.weight.device)
        kept = extended(self.settings, memory, new, generator(seed, "memory", position))
        known = kept_samples(kept, position + 1)
        units = {name: value for name, value in memory.items() if name not in NAMES}
        grown = add_class(network, generator(seed, "start", position))
        state = self._paper.protection(grown, units)
        hold(grown, state)
        settings = self._training(training)

        def finish(went: Fit) -> Taken:
            after = merged(units, self._paper.remember(grown, new, prepare))
            free = {"before": counts(self._paper.unused(units)), "after": counts(self._paper.unused(after))}
            told = course(self.settings.kind, went, memory=len(known), free_units=free)
            return Taken(grown, kept | after, told)

        order = derived_seed(seed, self.settings.kind, position)
        trial = TrialTraining(grown, TrialData.of(known, None, prepare), order, state)
        return Lesson(trial, penalty_loss(grown, settings, self.settings.beta), settings, finish, masked)

    @property
    def _paper(self) -> PenaltyMethod:
        """The accommodation whose loss, importances and masks these are."""
        return PenaltyMethod(Penalty(beta=self.settings.beta))

    def _training(self, first: TrainingSettings) -> TrainingSettings:
        """Return how to train on the memory: the first training's loss at a rate and length of its own."""
        settings = self.settings
        return TrainingSettings(
            Adam(settings.learning_rate),
            batch_size=settings.batch_size,
            epochs=settings.epochs,
            alpha=first.alpha,
            depth_weights=first.depth_weights,
        )
