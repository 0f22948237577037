"""Learning without forgetting: on the new class's samples, old classes must be answered as before.

Z. Li, D. Hoiem: Learning without Forgetting, ECCV 2016 (and TPAMI 2018).

Here all classes share one head, learned one class at a time. So the cross-entropy of the new class is over
all classes, where the paper has a softmax for each task, and the old classes' answers are one softened
softmax over all of them. The paper first trains the new head by itself and adds weight decay; here all
weights are trained from the start, as every rival trains.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from shels.config import Lwf
from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.learning.methods.fine_tune import unsparing
from shels.learning.protocol import Given, Lesson, Memory, Method, Stores, Taken, course, relabelled, under
from shels.model.growth import add_class, copied
from shels.model.networks import Network
from shels.runtime import derived_seed, generator
from shels.training.batches import Batch, TrialData
from shels.training.checkpoints import Params
from shels.training.courses import Fit, TrialTraining
from shels.training.losses import average, cross_entropy
from shels.training.stepping import Loss, State, class_scores


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


@dataclass(frozen=True)
class LwfMethod(Method):
    """Training on the new class and on the old network's answers; it keeps nothing beside that network."""

    settings: Lwf

    stores: ClassVar[Stores] = "nothing"

    def remember(self, network: Network, samples: Samples, prepare: Preparation) -> Memory:
        """Return nothing: the network itself is asked at the next lesson."""
        del network, samples, prepare
        return {}

    def lesson(self, given: Given) -> Lesson:
        """Return the training on the new class, taught by the network as it is now."""
        network, _memory, samples, prepare, training, seed = given
        position = len(network.head.weight)
        data = TrialData.of(relabelled(samples, position), None, prepare)
        teacher = copied(network).eval()  # of its own: the loop sets the trained network's mode
        grown = add_class(network, generator(seed, "head", position))
        before = {f"before/{name}": value.detach() for name, value in teacher.named_parameters()}

        def finish(went: Fit) -> Taken:
            return Taken(grown, {}, course(self.settings.kind, went))

        return Lesson(
            TrialTraining(grown, data, derived_seed(seed, self.settings.kind, position), before),
            lwf_loss(grown, teacher, self.settings.strength, self.settings.temperature),
            unsparing(training, self.settings.rate_divisor, self.settings.epochs),
            finish,
        )
