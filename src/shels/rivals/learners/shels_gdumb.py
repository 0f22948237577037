"""SHELS-GDumb: the loss of SHELS's accommodation, on GDumb's balanced memory.

M. Gummadi, D. Kent, J. Mendez, E. Eaton: SHELS: Exclusive Feature Sets for Novelty Detection and Continual
Learning Without Class Boundaries, CoLLAs 2022, which tries this combination beside its own method. GDumb:
A. Prabhu, P. Torr, P. Dokania, ECCV 2020.

What differs here, or is left open there: how long to train, which is a setting; classes are named by the head
as it was trained, since old and new rows learn side by side; the memory is balanced once a class. Adam
rescales the gradient, so β = 2000 holds the weights of old units about where they were, and little is left to
learn with; that is the method as it was published.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from shels.accommodation.penalty import PenaltyMethod, hold, masked, merged, penalty_loss
from shels.accommodation.protocol import (
    Lesson,
    Memory,
    Method,
    Naming,
    Stores,
    Taken,
    by_head,
    counts,
    course,
    placed,
    relabelled,
    untold,
)
from shels.batches import TrialData
from shels.config import Adam, Penalty, ShelsGdumb, TrainingSettings
from shels.courses import Fit, TrialTraining
from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.model.growth import add_class
from shels.model.networks import Network
from shels.rivals.learners.kept import NAMES, begun, extended, kept_samples
from shels.runtime import derived_seed, generator


@dataclass(frozen=True)
class ShelsGdumbMethod(Method):
    """The paper's accommodation on kept samples; it keeps them, and the sum of each unit's activations."""

    settings: ShelsGdumb

    stores: ClassVar[Stores] = "old data"
    frozen_features: ClassVar[bool] = False
    grows_head: ClassVar[bool] = True

    def remember(self, network: Network, samples: Samples, prepare: Preparation) -> Memory:
        """Return the balanced memory, and the activations of all samples, kept or not."""
        return begun(self.settings, samples) | self._paper.remember(network, samples, prepare)

    def lesson(
        self,
        network: Network,
        memory: Memory,
        samples: Samples,
        prepare: Preparation,
        training: TrainingSettings,
        *,
        seed: int,
    ) -> Lesson:
        """Return the training on the memory, the new class in it, under the penalty on changes."""
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

    def naming(self, network: Network, memory: Memory) -> Naming:
        """Return the naming of the last layer."""
        del memory
        return by_head(network)

    def drop(self, network: Network, memory: Memory, position: int) -> Taken:
        """Refuse: what a class has moved is spread over weights that all classes share."""
        del network, memory, position
        raise untold(self.settings.kind)

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
