"""Joint training: with every class, a fresh network on all samples of all classes, as at first.

No method of its own but the bound that others are measured by: what the same network and training come to
where nothing old is ever taken away.

What differs from the first training: nothing is held out, so the weights kept are the last. The network is
drawn afresh also where the first one began from pretrained weights, which are not kept anywhere.
"""

from dataclasses import replace

from shels.config import Joint
from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.learning.protocol import Accommodated, Memory, NewClass, Requests
from shels.learning.replay_buffer import as_memory, joined
from shels.learning.trained import TrainedMethod
from shels.model.growth import add_class, fresh
from shels.model.networks import Network
from shels.training import Objective, shels_loss


class JointMethod(TrainedMethod):
    """Training afresh on everything; what it remembers are all samples."""

    settings: Joint
    stores = "old data"

    def remember(self, network: Network, samples: Samples, prepare: Preparation) -> Memory:
        """Return all samples."""
        samples.require_every_class()
        return as_memory(samples, len(samples))

    def keep(self, new: NewClass) -> Accommodated:
        """Keep a class's samples, with an untrained row, for the training that comes with a later class."""
        samples = joined(new.remembered, new.labelled.to(new.network.head.weight.device))
        network = add_class(new.network, new.draw("start"))
        return Accommodated(network, as_memory(samples, len(samples)), {"memory": len(samples)})

    def take_in(self, new: NewClass) -> Requests:
        """Train a fresh network on all samples, the new ones among them."""
        samples = joined(new.remembered, new.labelled.to(new.network.head.weight.device))
        network = fresh(new.network, new.position + 1, new.draw("start"))
        settings = replace(new.training, patience=None)  # with nothing held out, nothing says when to stop
        fit = yield self.request(new, network, samples, Objective(shels_loss(network, settings), settings))
        memory = as_memory(samples, len(samples))
        return Accommodated(network, memory, self.report(fit, memory=len(samples)))
