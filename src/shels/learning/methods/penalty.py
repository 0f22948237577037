"""Accommodation as the paper prints it: train on the new class alone, and let changes to used units cost.

The text leaves open how a convolution's unit is weighed and when a unit counts as unused; the settings name
both choices. Measured, this way holds old knowledge badly: Adam rescales the gradient, so a penalty makes
protected weights swing about their value instead of holding them, and one class alone has no negatives.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from shels.config import Penalty, TrainingSettings
from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.errors import AccommodationError
from shels.learning.protocol import Accommodated, Memory, NewClass, Requests, batches, counts, prefixed, under
from shels.learning.trained import TrainedMethod, slowed, weights_before
from shels.model.activations import HEAD, WeightLayer, importance, total_sums, weight_layers
from shels.model.growth import add_class, add_units, growable
from shels.model.networks import Network
from shels.training import Batch, Loss, Objective, Params, State, shels_loss

_COUNT, _SUM = "importance.count", "importance.sum."


def change_penalty(
    params: Mapping[str, Tensor],
    before: Mapping[str, Tensor],
    importances: Mapping[str, Tensor],
    layers: Sequence[WeightLayer],
) -> Tensor:
    """Sum over layers each unit's importance times the norm of the change of its incoming weights and bias.

    This is what the change of weights costs before β. importances: by unit layer, (units,).
    """
    terms = []
    for layer in layers:
        change = (params[layer.weight] - before[layer.weight]).flatten(1)
        if layer.bias is not None:
            change = torch.cat([change, (params[layer.bias] - before[layer.bias])[:, None]], dim=1)
        terms.append((importances[layer.units] * torch.linalg.vector_norm(change, dim=1)).sum())
    return torch.stack(terms).sum()


def penalty_loss(network: Network, training: TrainingSettings, beta: float) -> Loss:
    """Return the loss of Eq. (6): the loss of the first training, and β times the cost of changes.

    Its state holds the weights before under `before/NAME` and importances under `importance/UNITS`.
    """
    first = shels_loss(network, training)
    layers = weight_layers(network)

    def loss(params: Params, batch: Batch, state: State) -> Tensor:
        total = first(params, batch, state)  # comes first: gradients are added up in the order of the terms
        if not beta:
            return total
        changes = change_penalty(params, under("before/", state), under("importance/", state), layers)
        return total + beta * changes

    return loss


def transfer_masks(
    layers: Sequence[WeightLayer], unused: Mapping[str, Tensor], shapes: Mapping[str, torch.Size]
) -> dict[str, Tensor]:
    """Return, by weight, 0 where an unused unit would feed a used one and 1 elsewhere.

    What an unused unit will learn must not reach what old classes stand on. unused: by unit layer, (units,).
    """
    out = {}
    for layer in layers:
        if layer.inputs is not None:
            mask = ~(~unused[layer.units][:, None] & unused[layer.inputs][None, :])
            out[layer.weight] = mask.view(*mask.shape, *[1] * (len(shapes[layer.weight]) - 2)).float()
    return out


def masked(params: Mapping[str, Tensor], state: State) -> Params:
    """Return the weights that have a mask in the state, masked: an `after_step` of the training loop."""
    return {name: params[name] * mask for name, mask in under("mask/", state).items()}


class PenaltyMethod(TrainedMethod):
    """The paper's accommodation; what it remembers is the sum of each unit's activations, and a count."""

    settings: Penalty
    stores = "statistics"
    normalised = False
    names_by_products = True

    def remember(self, network: Network, samples: Samples, prepare: Preparation) -> Memory:
        """Return the sum of each unit's activations over the samples, and their number."""
        sums = total_sums(network, batches(network, samples, prepare))
        memory: Memory = {_COUNT: torch.tensor(len(samples), device=network.head.weight.device)}
        for name, value in sums.items():
            spread = value.ndim > 1 and self.settings.importance == "mean"
            memory[_SUM + name] = value.flatten(1).mean(dim=1) if spread else value
        return memory

    def importances(self, memory: Memory) -> dict[str, Tensor]:
        """Return the importance of each unit, by unit layer."""
        about = int(memory[_COUNT]), self.settings.importance
        return {name: importance(value, *about) for name, value in under(_SUM, memory).items()}

    def unused(self, memory: Memory) -> dict[str, Tensor]:
        """Return which units are free, by unit layer: importance 0, or within the tolerance of it."""
        share = self.settings.tolerance
        return {name: value <= share * value.max() for name, value in self.importances(memory).items()}

    def take_in(self, new: NewClass) -> Requests:
        """Train on the new class under the penalty; its samples then join the importance."""
        free = {"before": counts(self.unused(new.remembered))}
        network, memory = self._grown(new.network, new.remembered, new.draw("units"))
        network = add_class(network, new.draw("head"))
        settings = slowed(new.training, self.settings.rate_divisor, self.settings.epochs)
        fit = yield self.request(new, network, new.labelled, *self.protected(network, memory, settings))
        after = merged(memory, self.remember(network, new.samples, new.prepare), self.settings.merging)
        free["after"] = counts(self.unused(after))
        report = self.report(fit, free_units=free, grown_units=self.settings.grow)
        return Accommodated(network, after, report)

    def _grown(self, network: Network, memory: Memory, draw: torch.Generator) -> tuple[Network, Memory]:
        """Return the network with free units added to its last linear layer, and the memory with theirs."""
        names = growable(network)
        if not self.settings.grow:
            return network, memory
        if not names:
            raise AccommodationError("the network has no linear layer to add units to; set grow to 0")
        sums = memory[_SUM + names[-1]]
        grown = add_units(network, {names[-1]: self.settings.grow}, draw)
        return grown, memory | {_SUM + names[-1]: torch.cat([sums, sums.new_zeros(self.settings.grow)])}

    @torch.no_grad()
    def protected(
        self, network: Network, memory: Memory, settings: TrainingSettings
    ) -> tuple[Objective, dict[str, Tensor]]:
        """Return the training under the penalty and its state; what is masked is 0 from where it starts.

        Old classes' rows of the head have importance 1, the new row 0.
        """
        rows = torch.ones_like(network.head.weight[:, 0])
        rows[-1] = 0
        params = dict(network.named_parameters())
        shapes = {name: value.shape for name, value in params.items()}
        masks = transfer_masks(weight_layers(network), {**self.unused(memory), HEAD: rows == 0}, shapes)
        state = prefixed("mask/", masks) if self.settings.zeroed != "never" else {}
        for name, value in masked(params, state).items():
            params[name].copy_(value)
        state |= prefixed("importance/", {**self.importances(memory), HEAD: rows}) | weights_before(network)
        held = masked if self.settings.zeroed == "held" else None
        return Objective(penalty_loss(network, settings, self.settings.beta), settings, held), state


def merged(one: Memory, other: Memory, how: str = "average") -> Memory:
    """Return two memories of one network's units as one; equal to the union's while the network is.

    how: "average", the mean over all samples; "sum", the two means added up: the second is weighed as if it
    had as many samples as the first, and the count stays.
    """
    whole = {name: other[name].to(value.device) for name, value in one.items()}
    if how == "average":
        return {name: value + whole[name] for name, value in one.items()}
    share = one[_COUNT] / whole[_COUNT]
    return {name: value if name == _COUNT else value + share * whole[name] for name, value in one.items()}
