"""Methods that take a class in by training the network: what they have in common."""

from dataclasses import replace
from typing import Any

from torch import Tensor

from shels.config import TrainingSettings
from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.learning.protocol import Accommodated, LearningMethod, Memory, NewClass, Requests, prefixed
from shels.model.growth import add_class
from shels.model.networks import Network
from shels.runtime import derived_seed
from shels.training import (
    Ceiling,
    Fit,
    Objective,
    State,
    TrainingRequest,
    TrialData,
    TrialTraining,
    shels_loss,
)

_NOTHING: State = {}


class TrainedMethod(LearningMethod):
    """Training that goes on, on the new class alone, by cross-entropy: forgetting, if nothing is added.

    A subclass adds what holds old classes (`objective`) and what it remembers, or trains otherwise
    by a `take_in` of its own.
    """

    def remember(self, network: Network, samples: Samples, prepare: Preparation) -> Memory:
        """Return nothing."""
        return {}

    def take_in(self, new: NewClass) -> Requests:
        """Train all weights of the network, a row longer."""
        network = add_class(new.network, new.draw("head"))
        fit = yield self.request(new, network, new.labelled, *self.objective(new, network))
        return Accommodated(network, self.updated(new, network), self.report(fit))

    def objective(self, new: NewClass, network: Network) -> tuple[Objective, State]:
        """Return how to train on the new class, and what that needs to know of a trial.

        As at first, but slower and without SHELS's sparsity.
        """
        settings = self.continued(new.training)
        return Objective(shels_loss(network, settings), settings), {}

    def updated(self, new: NewClass, network: Network) -> Memory:
        """Return what is remembered once the network is trained."""
        return self.remember(network, new.samples, new.prepare)

    def continued(self, training: TrainingSettings) -> TrainingSettings:
        """Return how an ordinary classifier goes on training, by the method's own rate and epochs."""
        return replace(slowed(training, self.settings.rate_divisor, self.settings.epochs), alpha=0.0)

    def request(
        self,
        new: NewClass,
        network: Network,
        samples: Samples,
        objective: Objective,
        state: State = _NOTHING,
        ceiling: Ceiling | None = None,
    ) -> TrainingRequest:
        """Return the training of a network on samples of which none is held out. ceiling: of its loss."""
        seed = derived_seed(new.seed, self.settings.kind, new.position)
        data = TrialData.of(samples, None, new.prepare)
        trial = TrialTraining(network, data, seed, state, ceiling=ceiling)
        how = (objective.loss, objective.settings, objective.after_step)
        return TrainingRequest(trial, *how, products=self.names_by_products)

    def report(self, fit: Fit, **facts: Any) -> dict[str, Any]:
        """Return the report of a class taken in by one training.

        facts: what else there is to tell, such as free_units: under "before" and "after", by layer.
        """
        last = fit.checks[-1]
        facts = {"method": self.settings.kind, **facts, "steps": last.step}
        return facts | {"final_loss": last.training_loss, "seconds": fit.seconds}


def slowed(training: TrainingSettings, divisor: float, epochs: int) -> TrainingSettings:
    """Return how to train on a new class: as at first, at a lower rate, for so many passes."""
    slow = training.optimiser.learning_rate / divisor
    optimiser = replace(training.optimiser, learning_rate=slow)
    return replace(training, optimiser=optimiser, epochs=epochs, steps=None, patience=None)


def weights_before(network: Network) -> dict[str, Tensor]:
    """Return a network's weights as a state, `before/NAME`, which its training leaves as they are."""
    return prefixed("before/", {name: value.detach().clone() for name, value in network.named_parameters()})
