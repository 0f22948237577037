"""GDumb: keep a few samples of every class, as many of each, and train on nothing else.

A. Prabhu, P. Torr, P. Dokania: GDumb: A Simple Approach that Questions Our Progress in Continual Learning,
ECCV 2020. CutMix: S. Yun et al.: CutMix: Regularization Strategy to Train Strong Classifiers with Localizable
Features, ICCV 2019.

What differs here: a class comes as a whole, so the memory is balanced once a class instead of at each sample;
training starts from the network as it is (as in the SHELS paper's comparison) unless `start` is "scratch", as
in the original; the last weights count, where the original reports the best accuracy on its test set;
restarts follow the warm-up at once, where the original's come an epoch later; CutMix pairs a batch with
itself in reverse order, which is as random as its order is. Training data is not augmented in any other way.

The authors' network has batch normalisation, which bears a rate of 0.05; the SHELS paper's have none. At 112
pixels (GTSRB), where 25,088 values meet in one linear layer, the first cycles at that rate drive every
unit of the last convolution below 0 for all images, nothing passes any more, and the loss stays that of
guessing, log(classes). So where the loss is no better than guessing at the end of a cycle, training starts
again from the same network at a quarter of the rate. The report says which rate it was.
"""

import math

import torch
from torch import Tensor

from shels.config import Gdumb, TrainingSettings, WarmRestarts
from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.errors import SettingsError, TrainingError
from shels.learning.protocol import Accommodated, Memory, NewClass, Requests
from shels.learning.replay_buffer import begun, buffered_samples, extended, room
from shels.learning.trained import TrainedMethod
from shels.model.growth import add_class, fresh
from shels.model.networks import Network
from shels.training import (
    Batch,
    Ceiling,
    Loss,
    Objective,
    Params,
    State,
    class_scores,
    cross_entropy,
    shels_loss,
)
from shels.training.data import PADDING

CHANCE = 0.9
"""Of the loss of guessing: a network whose loss is over it tells classes no better than by guessing."""
SLOWER = 4.0
"""What the rate is divided by then: just under the one that kills a network, most units die as well."""
_SURE = {"warm": 7, "scratch": 31}
"""Epochs after which a loss like that means that the network is dead: one from scratch begins like that."""


def draws(like: Tensor) -> Tensor:
    """Return what one batch's mixing is decided by, four uniform numbers on the device of the inputs.

    Whether to mix, λ ~ Beta(1, 1), and the centre of the box down and across.
    """
    return torch.rand(4, device=like.device, dtype=like.dtype)


def partners(labels: Tensor) -> Tensor:
    """Return whom each sample is mixed with, the batch in reverse order: (n,) -> places (n,).

    Samples that are not there stand at the end and are paired among themselves, so a batch is mixed the same
    way whether it is filled up or not.
    """
    count = (labels != PADDING).sum()
    return (count - 1 - torch.arange(len(labels), device=labels.device)) % len(labels)


def cut_box(numbers: Tensor, height: int, width: int, chance: float) -> Tensor:
    """Return which pixels come from the other image: (height, width), none where nothing is mixed.

    A box of the image's proportions and 1 - λ of its area, about any pixel; what reaches out is cut off.
    numbers: four in 0-1, see `draws`.
    """
    scale = (1 - numbers[1]).sqrt()
    inside = []
    for side, number in ((height, numbers[2]), (width, numbers[3])):
        centre, half = (number * side).floor(), (side * scale / 2).floor()
        places = torch.arange(side, device=numbers.device)
        inside.append((places >= centre - half) & (places < centre + half))
    return inside[0][:, None] & inside[1][None, :] & (numbers[0] < chance)


def cutmix_loss(network: Network, chance: float) -> Loss:
    """Return cross-entropy over batches of which this share is mixed by CutMix.

    A mixed image counts for both labels, each by its share of the pixels.
    """

    def loss(params: Params, batch: Batch, state: State) -> Tensor:
        inputs, labels = batch
        height, width = inputs.shape[-2:]
        box = cut_box(draws(inputs), height, width, chance)
        others = partners(labels)
        both = (labels != PADDING) & (labels[others] != PADDING)
        mixed = torch.where(box & both[:, None, None, None], inputs[others], inputs)
        scores = class_scores(network, params, mixed, state)
        share = box.to(inputs.dtype).mean()
        other_labels = torch.where(both, labels[others], labels)
        return (1 - share) * cross_entropy(scores, labels) + share * cross_entropy(scores, other_labels)

    return loss


def ceiling_of(classes: int, settings: Gdumb) -> Ceiling:
    """Return the loss that a training on so many classes must be under where cycles of its rate end.

    >>> found = ceiling_of(8, Gdumb())
    >>> round(found.loss, 3), sorted(found.epochs)
    (1.872, [7, 15, 31, 63])
    """
    ends = (2**power - 1 for power in range(1, settings.epochs.bit_length() + 1))
    return Ceiling(CHANCE * math.log(classes), frozenset(e for e in ends if e >= _SURE[settings.start]))


class GdumbMethod(TrainedMethod):
    """Training on a small balanced memory; what it remembers are the samples in it."""

    settings: Gdumb
    stores = "old data"

    def remember(self, network: Network, samples: Samples, prepare: Preparation) -> Memory:
        """Return as many samples of each class, drawn at random."""
        return begun(self.settings, samples)

    def check(self, shape: tuple[int, ...], classes: int) -> None:
        """Refuse a memory of fewer samples than classes, and CutMix on vectors."""
        room(self.settings, 0, classes)
        if self.settings.cutmix and len(shape) != 3:
            raise SettingsError(
                f"cutmix must be 0 for vectors of {shape[0]}: it mixes images, got {self.settings.cutmix:g}"
            )

    def take_in(self, new: NewClass) -> Requests:
        """Train on the memory once the new class has its share of it, whatever the first training was."""
        self.check(new.prepare.shape, new.position + 1)
        samples = new.labelled.to(new.network.head.weight.device)
        memory = extended(self.settings, new.remembered, samples, new.draw("memory"))
        known = buffered_samples(memory, new.position + 1)
        warm, rate, mixed = self.settings.start == "warm", self.settings.learning_rate, self.settings.cutmix
        while True:
            draw = new.draw("start")
            network = add_class(new.network, draw) if warm else fresh(new.network, new.position + 1, draw)
            settings = self._training(rate)
            loss = cutmix_loss(network, mixed) if mixed else shels_loss(network, settings)
            ceiling = ceiling_of(new.position + 1, self.settings)
            try:
                fit = yield self.request(new, network, known, Objective(loss, settings), ceiling=ceiling)
                break
            except TrainingError:
                rate /= SLOWER
                if rate < self.settings.lowest_rate:
                    raise
        return Accommodated(network, memory, self.report(fit, memory=len(known), learning_rate=rate))

    def _training(self, rate: float) -> TrainingSettings:
        settings = self.settings
        return TrainingSettings(
            WarmRestarts(rate, settings.lowest_rate, clip=settings.clip),
            batch_size=settings.batch_size,
            epochs=settings.epochs,
            alpha=0.0,
        )
