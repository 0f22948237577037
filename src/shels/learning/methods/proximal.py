"""Accommodation by gradient steps that forgets nothing: what old classes stand on is frozen, to the bit.

A new class gets free units of its own: units that are silent on the old classes or that nothing reads, and
fresh ones where those are few. Old classes' rows of the head have weight 0 on them, so old scores w_c · f
never change, whatever is learned. One class alone has no negatives; samples of the old classes' Gaussians on
the shared features take their place, and no old sample is kept. The cosine of the head then does the rest:
a unit that fires for an old class lowers that class's cosine, so free units learn to be silent for it.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from shels.config import Adam, Proximal, TrainingSettings
from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.errors import AccommodationError
from shels.learning import gaussian_replay as replay
from shels.learning import protection, protocol
from shels.learning.protocol import Accommodated, Memory, NewClass, Requests, counts, prefixed, under
from shels.learning.trained import TrainedMethod
from shels.model.activations import total_sums
from shels.model.growth import add_class, add_units, copied, drop_class
from shels.model.networks import Network
from shels.model.sparsity import depth_weights
from shels.runtime import derived_seed, generator
from shels.training import AfterStep, Batch, Loss, Objective, Params, State, class_scores, shels_loss
from shels.training.losses import average

_GAUSSIAN, _ACTIVATION = "gaussian.", "activation."
_MOST = 4.0
"""How much more than the old classes' mean a new class's mean score may become, to win its own samples."""
_EACH = 200
"""Samples of each old class's Gaussian that tell how it scores."""


def proximal_sparsity(network: Network, alpha: float, learning_rate: float) -> AfterStep:
    """Return the group sparsity of the first training as an `after_step`; set its loss's own alpha to 0.

    Each group shrinks by learning rate · α · (1 - μ) a step.
    """
    names = network.weight_names()
    mu = depth_weights(len(names))

    def after_step(params: Params, state: State) -> Params:
        del state
        by = {name: learning_rate * alpha * (1 - m) for name, m in zip(names, mu, strict=True) if m < 1}
        return {name: protection.shrunk(params[name], amount) for name, amount in by.items()}

    return after_step


def replay_loss(tail: Network, each: int, new_share: float) -> Loss:
    """Return cross-entropy over cosines of the new class's features and of draws of the old classes.

    each: draws of each old class in a step. new_share: what the new class counts, however few its samples.
    The state holds the old classes' Gaussians.
    """

    def loss(params: Params, batch: Batch, state: State) -> Tensor:
        drawn = replay.draw(under(_GAUSSIAN, state), each)
        old = torch.arange(len(drawn), device=drawn.device).repeat_interleave(each)
        inputs = torch.cat([batch.inputs, drawn.flatten(0, 1)])
        labels = torch.cat([batch.labels, old])
        each_loss = F.cross_entropy(class_scores(tail, params, inputs, state), labels, reduction="none")
        new = len(batch.labels)
        return new_share * average(each_loss[:new], batch.labels) + (1 - new_share) * each_loss[new:].mean()

    return loss


class ProximalMethod(TrainedMethod):
    """Accommodation with exact protection; what it remembers is a Gaussian per class and which units fire."""

    settings: Proximal
    stores = "statistics"
    names_by_products = True

    @torch.no_grad()
    def remember(self, network: Network, samples: Samples, prepare: Preparation) -> Memory:
        """Return the Gaussian of each class on the shared features, and how much each later unit fires."""
        samples.require_every_class()
        memory: Memory = {}
        for position in range(len(network.head.weight)):
            mine = samples.take(samples.labels == position)
            memory = self._extended(network, memory, shared_features(network, mine, prepare))
        return memory

    def _extended(self, network: Network, memory: Memory, features: Tensor) -> Memory:
        """Return the memory with one more class, of which these are the shared features."""
        old = under(_GAUSSIAN, memory) or None
        new = replay.describe_class(features, self.settings.rank, derived_seed(0, "directions"), old)
        statistics = new if old is None else replay.joined(old, new)
        sums = total_sums(protection.parts(network).tail, torch.split(features, 4096))
        before = under(_ACTIVATION, memory)
        for name in before.keys() & sums.keys():
            more = len(sums[name]) - len(before[name])
            sums[name] = sums[name] + F.pad(before[name].to(sums[name].device), (0, more))
        return prefixed(_GAUSSIAN, statistics) | prefixed(_ACTIVATION, sums)

    def initial(self, network: Network, training: TrainingSettings) -> Objective:
        """Return the loss of SHELS with its sparsity applied in proximal steps, after each step."""
        if self.settings.base_alpha == 0:
            return super().initial(network, training)
        steps = proximal_sparsity(network, self.settings.base_alpha, training.optimiser.learning_rate)
        plain = replace(training, alpha=0.0)
        return Objective(shels_loss(network, plain), plain, steps)

    def about_initial(self) -> tuple[Any, ...]:
        """Return the strength of those steps."""
        return (self.settings.kind, self.settings.base_alpha) if self.settings.base_alpha else ()

    def take_in(self, new: NewClass) -> Requests:
        """Train units of the new class's own, after which old classes score as before."""
        memory = new.remembered
        own = shared_features(new.network, new.labelled, new.prepare)
        old = under(_GAUSSIAN, memory)
        features = replay.filled(own, old, self.settings.batch_size, new.draw("few samples"))
        free = {"before": _free_counts(new.network, memory)}
        network, chosen, more = self._room(new.network, memory, new.seed)
        tail = protection.parts(network).tail
        state = protection.protection(tail, chosen) | prefixed(_GAUSSIAN, old)
        on_features = replace(new, prepare=Preparation((features.shape[1],)))
        labels = torch.full((len(features),), new.position, device=features.device)
        samples = Samples(features, labels, tuple(range(new.position + 1)), origin="the new class's features")
        request = self.request(on_features, tail, samples, self._objective(tail), state)
        # By its products the row is read once it has its length, see `_scale`; until then by cosines.
        fit = yield replace(request, products=False, front=partial(_shared_rows, network, new.prepare))
        self._scale(tail, features, memory, new.seed)
        after = self._extended(network, memory, own)
        free["after"] = _free_counts(network, after)
        return Accommodated(network, after, self.report(fit, free_units=free, grown_units=more))

    def _objective(self, tail: Network) -> Objective:
        """Return how the new class's units are trained, at a rate and length of their own."""
        settings, old = self.settings, len(tail.head.weight) - 1
        share = settings.batch_size / (settings.batch_size + settings.replay)
        training = TrainingSettings(
            Adam(settings.learning_rate),
            batch_size=settings.batch_size,
            steps=settings.steps,
            check_every=settings.steps,
        )
        loss = replay_loss(tail, max(1, settings.replay // old), share)
        return Objective(loss, training, protection.protected(settings.alpha * settings.learning_rate))

    def drop(self, network: Network, memory: Memory, position: int) -> Accommodated:
        """Return the network without a class's row; units that no other row reads are free again."""
        if len(network.head.weight) < 3:
            raise AccommodationError("a network needs 2 classes or more; the last two cannot be unlearned")
        smaller, memory = drop_class(network, position), protocol.placed(memory, network)
        memory |= prefixed(_GAUSSIAN, replay.without(under(_GAUSSIAN, memory), position))
        free = {"before": _free_counts(network, memory), "after": _free_counts(smaller, memory)}
        return Accommodated(smaller, memory, {"method": self.settings.kind, "free_units": free})

    def _room(self, network: Network, memory: Memory, seed: int) -> tuple[Network, dict[str, Tensor], int]:
        """Return the network with a row for a new class, the units that it may shape, how many were added.

        Those units are cut off from all that was there and start afresh; where they are too few, more are
        added.
        """
        position = len(network.head.weight)
        grown = copied(network)
        split = protection.parts(grown)
        free = protection.free_units(split.tail, under(_ACTIVATION, memory))
        chosen = protection.first_of(free, self.settings.grow)
        protection.cut_off(split.tail, chosen, generator(seed, "free units", position))
        more = {name: max(0, self.settings.grow - int(mark.sum())) for name, mark in chosen.items()}
        there = {split.whole(name): count for name, count in more.items()}
        grown = add_units(grown, there, generator(seed, "units", position))
        grown = add_class(grown, generator(seed, "head", position))
        chosen = {name: F.pad(mark, (0, more[name]), value=True) for name, mark in chosen.items()}
        protection.isolate(protection.parts(grown).tail, chosen)
        return grown, chosen, sum(more.values())

    @torch.no_grad()
    def _scale(self, tail: Network, features: Tensor, memory: Memory, seed: int) -> None:
        """Scale the new row so that its scores w_c · f compare with those of the old rows.

        Cosines know no length, but novelty is judged, and a class chosen, by w_c · f. The new class's mean
        score becomes the mean of the old classes' on their own draws; where that would leave too many of its
        samples to old classes, as much more as its share needs.
        """
        tail.eval()
        weight = tail.head.weight
        drawn = replay.draw(under(_GAUSSIAN, memory), _EACH, generator(seed, "scale", len(weight)))
        pairs = zip(drawn, weight[:-1], strict=True)
        typical = torch.stack([(tail.features(x) @ row).mean() for x, row in pairs])
        high = torch.cat([tail.features(x) for x in torch.split(features, 4096)])
        own, others = high @ weight[-1], (high @ weight[:-1].T).amax(dim=1)
        if own.mean() <= 0 or typical.mean() <= 0:
            raise AccommodationError(
                "the class could not be learned: samples do not fire their class's units"
            )
        needed = torch.quantile(others.clamp(min=0) / own.clamp(min=1e-9), self.settings.own_share)
        mean = typical.mean() / own.mean()
        weight[-1] *= torch.clamp(needed, mean, _MOST * mean)


@torch.no_grad()
def shared_features(network: Network, samples: Samples, prepare: Preparation) -> Tensor:
    """Return the samples' shared features as rows, which no accommodation changes: (n, d)."""
    network.eval()
    return _shared_rows(network, prepare, samples.inputs)


@torch.no_grad()
def _shared_rows(network: Network, prepare: Preparation, inputs: Tensor) -> Tensor:
    shared, device = protection.parts(network).shared, network.head.weight.device
    parts = torch.split(inputs, prepare.evaluation_batch)
    return torch.cat([shared(prepare(part.to(device))).flatten(1) for part in parts])


def _free_counts(network: Network, memory: Memory) -> dict[str, int]:
    """Return how many units of each linear layer are free, by the layer's name in the whole network."""
    split = protection.parts(network)
    free = counts(protection.free_units(split.tail, under(_ACTIVATION, memory)))
    return {split.whole(name): count for name, count in free.items()}
