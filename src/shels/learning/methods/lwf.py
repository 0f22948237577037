"""Learning without forgetting: on the new class's samples, old classes must be answered as before.

Z. Li, D. Hoiem: Learning without Forgetting, ECCV 2016 (and TPAMI 2018).

Here all classes share one head, learned one class at a time. So the cross-entropy of the new class is over
all classes, where the paper has a softmax for each task, and the old classes' answers are one softened
softmax over all of them. The paper first trains the new head by itself and adds weight decay; here all
weights are trained from the start, as every rival trains.
"""

import torch
from torch import Tensor

from shels.config import Lwf
from shels.learning.protocol import NewClass, under
from shels.learning.trained import TrainedMethod, weights_before
from shels.model.growth import copied
from shels.model.networks import Network
from shels.training import Batch, Loss, Objective, Params, State, class_scores, cross_entropy
from shels.training.losses import average


def distillation(scores: Tensor, answers: Tensor, temperature: float) -> Tensor:
    """Return how far scores are from a teacher's, each sample's cross-entropy of softened softmaxes.

    scores, answers: (n, classes) -> (n,).
    """
    wanted = torch.softmax(answers / temperature, dim=1)
    return -(wanted * torch.log_softmax(scores / temperature, dim=1)).sum(dim=1)


def lwf_loss(network: Network, teacher: Network, strength: float, temperature: float) -> Loss:
    """Return cross-entropy on the new class, and λ_o times the distillation of the old classes.

    teacher: the layers of the network before, in evaluation mode; its weights are the state's, under
    `before/NAME`, its classes the first of the network's.
    """

    def loss(params: Params, batch: Batch, state: State) -> Tensor:
        answers = class_scores(teacher, under("before/", state), batch.inputs, {})
        scores = class_scores(network, params, batch.inputs, state)
        forgotten = distillation(scores[:, : answers.shape[1]], answers, temperature)
        return cross_entropy(scores, batch.labels) + strength * average(forgotten, batch.labels)

    return loss


class LwfMethod(TrainedMethod):
    """Training on the new class and on the old network's answers; it remembers nothing else."""

    settings: Lwf
    stores = "nothing"
    normalised = False

    def objective(self, new: NewClass, network: Network) -> tuple[Objective, State]:
        """Return the loss in which the network as it is now teaches, and the teacher's weights."""
        teacher = copied(new.network).eval()  # of its own: the loop sets the trained network's mode
        loss = lwf_loss(network, teacher, self.settings.strength, self.settings.temperature)
        return Objective(loss, self.continued(new.training)), weights_before(new.network)
