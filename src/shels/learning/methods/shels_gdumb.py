"""SHELS-GDumb: the loss of SHELS's accommodation, on GDumb's balanced memory.

M. Gummadi, D. Kent, J. Mendez, E. Eaton: SHELS: Exclusive Feature Sets for Novelty Detection and Continual
Learning Without Class Boundaries, CoLLAs 2022, which tries this combination beside its own method. GDumb:
A. Prabhu, P. Torr, P. Dokania, ECCV 2020.

What differs here, or is left open there: how long to train, which is a setting; classes are named by the head
as it was trained, since old and new rows learn side by side; the memory is balanced once a class. The paper
gives no β for it. Adam rescales the gradient, so its accommodation's β of 2000 holds the weights of old units
about where they were and leaves little to learn with; hence a smaller one.
"""

from shels.config import Adam, Penalty, ShelsGdumb, TrainingSettings
from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.learning.methods.penalty import PenaltyMethod, merged
from shels.learning.protocol import Accommodated, Memory, NewClass, Requests, counts
from shels.learning.replay_buffer import NAMES, begun, buffered_samples, extended, room
from shels.learning.trained import TrainedMethod
from shels.model.growth import add_class
from shels.model.networks import Network


class ShelsGdumbMethod(TrainedMethod):
    """The paper's accommodation on a replay buffer; it remembers that, and how much each unit fired."""

    settings: ShelsGdumb
    stores = "old data"
    normalised = False

    def remember(self, network: Network, samples: Samples, prepare: Preparation) -> Memory:
        """Return the balanced memory, and the activations of all samples, in it or not."""
        return begun(self.settings, samples) | self._paper.remember(network, samples, prepare)

    def check(self, shape: tuple[int, ...], classes: int) -> None:
        """Refuse a memory of fewer samples than classes."""
        room(self.settings, 0, classes)

    def take_in(self, new: NewClass) -> Requests:
        """Train on the memory, the new class in it, under the penalty on changes."""
        memory, paper = new.remembered, self._paper
        own = new.labelled.to(new.network.head.weight.device)
        buffer = extended(self.settings, memory, own, new.draw("memory"))
        known = buffered_samples(buffer, new.position + 1)
        before = {name: value for name, value in memory.items() if name not in NAMES}
        network = add_class(new.network, new.draw("start"))
        settings = TrainingSettings(  # the first training's loss at a rate and length of its own
            Adam(self.settings.learning_rate),
            batch_size=self.settings.batch_size,
            epochs=self.settings.epochs,
            alpha=new.training.alpha,
            depth_weights=new.training.depth_weights,
        )
        fit = yield self.request(new, network, known, *paper.protected(network, before, settings))
        after = merged(before, paper.remember(network, own, new.prepare))
        free = {"before": counts(paper.unused(before)), "after": counts(paper.unused(after))}
        return Accommodated(network, buffer | after, self.report(fit, memory=len(known), free_units=free))

    @property
    def _paper(self) -> PenaltyMethod:
        """The accommodation whose loss, importances and masks these are."""
        return PenaltyMethod(Penalty(beta=self.settings.beta))
