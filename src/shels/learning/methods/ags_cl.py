"""AGS-CL: proximal steps that clear nodes which no task uses and hold those that one does.

S. Jung, H. Ahn, S. Cha, T. Moon: Continual Learning with Node-Importance based Adaptive Group Sparse
Regularization, NeurIPS 2020.

The paper has a head for each task, which later tasks leave alone. Here all classes share one head, learned
one class at a time: old rows are held as they are, to the bit, and the new row is trained on cross-entropy
over all classes; rows of the head have neither sparsity nor pull. The proximal steps follow every gradient
step, as proximal gradient descent has it; the authors' code takes them once an epoch. Where maps are
flattened, each position is a node of its own; theirs are as important as their channel. The first network is
cleared when its first new class comes, which is when a method may first change it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from shels.config import AgsCl, TrainingSettings
from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.learning.methods.penalty import masked, transfer_masks
from shels.learning.protocol import Accommodated, Memory, NewClass, Requests, batches, counts, prefixed, under
from shels.learning.trained import TrainedMethod, weights_before
from shels.model.activations import WeightLayer, importance, total_sums, weight_layers
from shels.model.growth import add_class, copied
from shels.model.networks import Network
from shels.runtime import generator
from shels.training import AfterStep, Objective, Params, State, shels_loss

_IMPORTANCE, _LESSONS = "importance/", "lessons"


def shrinking(norms: Tensor, by: float | Tensor) -> Tensor:
    """Return what makes each norm less by `by`, to exactly 0 where it is no more: (units,) -> (units,)."""
    return torch.where(norms > by, 1 - by / norms, 0.0)


def drawn_to(
    layer: WeightLayer, params: Mapping[str, Tensor], centre: Mapping[str, Tensor], by: float | Tensor
) -> Params:
    """Return a layer's weights and biases after the proximal step of Σ by · ‖θ - centre‖.

    θ: a node's incoming weights and bias, one group. It arrives at the centre exactly once it is near.
    by: (units,), or one for all.
    """
    names = [layer.weight] if layer.bias is None else [layer.weight, layer.bias]
    away = {name: params[name] - centre[name] for name in names}
    rows = torch.cat([value.flatten(1) if value.ndim > 1 else value[:, None] for value in away.values()], 1)
    keep = shrinking(torch.linalg.vector_norm(rows, dim=1), by)
    return {name: centre[name] + _by_unit(keep, value) * value for name, value in away.items()}


def sparse_steps(network: Network, mu: float, rate: float) -> AfterStep:
    """Return the `after_step` of the first training: every node's incoming weights shrink, by μ · rate."""
    layers = weight_layers(network)[:-1]

    def after_step(params: Params, state: State) -> Params:
        del state
        zero = {name: torch.zeros_like(value) for name, value in params.items()}
        out: Params = {}
        for layer in layers:
            out |= drawn_to(layer, params, zero, mu * rate)
        return out

    return after_step


def proximal_steps(network: Network, settings: AgsCl, rate: float) -> AfterStep:
    """Return the `after_step` of a new class: unused nodes shrink, used ones are pulled to where they were.

    The state holds the weights before under `before/NAME`, each node's importance Ω under `importance/UNITS`,
    0 for an unused one, and under `mask/NAME` 0 where an unused node would feed a used one. A used node is
    pulled by λ · Ω · rate. Old rows of the head are put back; the last row, the new one, is left.
    """
    *layers, head = weight_layers(network)

    def after_step(params: Params, state: State) -> Params:
        before, held = under("before/", state), params | masked(params, state)
        out: Params = {}
        for layer in layers:
            omega = state[_IMPORTANCE + layer.units]
            used = omega > 0
            names = [name for name in (layer.weight, layer.bias) if name is not None]
            centre = {name: torch.where(_by_unit(used, before[name]), before[name], 0.0) for name in names}
            by = rate * torch.where(used, settings.lam * omega, settings.mu)
            out |= drawn_to(layer, held, centre, by)
        for name in (head.weight, head.bias):
            if name is not None:
                out[name] = torch.cat([before[name][:-1], params[name][-1:]])
        return out

    return after_step


def _by_unit(values: Tensor, like: Tensor) -> Tensor:
    """Return a value for each unit, (units,), in the shape that multiplies a weight or a bias."""
    return values.view(-1, *[1] * (like.ndim - 1))


@torch.no_grad()
def cleared(network: Network, unused: Mapping[str, Tensor], refresh: float, draw: torch.Generator) -> Network:
    """Return a network in which nothing reads unused nodes, a share of which has fresh incoming weights.

    Where unused nodes are silent, it says what it said. unused: by unit layer, (units,). A fresh node may
    read other unused ones, as in the authors' code: what is used reads neither.
    """
    out = copied(network)
    params, layers = dict(out.named_parameters()), weight_layers(network)
    for layer in layers:
        if layer.inputs is not None:
            params[layer.weight][:, unused[layer.inputs]] = 0
    for layer in layers[:-1]:
        weight = params[layer.weight]
        places = unused[layer.units].nonzero()[:, 0]
        order = torch.randperm(len(places), generator=draw)[: round(refresh * len(places))]
        places = places[order.to(places.device)]
        fresh = nn.init.xavier_uniform_(torch.empty(weight.shape), generator=draw)
        weight[places] = fresh.to(weight)[places]
        if layer.bias is not None:
            params[layer.bias][places] = 0
    return out


class AgsClMethod(TrainedMethod):
    """AGS-CL with a single head; what it remembers is each node's importance, and how many classes came."""

    settings: AgsCl
    stores = "statistics"
    normalised = False

    def initial(self, network: Network, training: TrainingSettings) -> Objective:
        """Return cross-entropy, with the sparsity of all nodes in proximal steps."""
        self.require_layers(network)
        plain = replace(training, alpha=0.0)
        steps = sparse_steps(network, self.settings.mu, training.optimiser.learning_rate)
        return Objective(shels_loss(network, plain), plain, steps)

    def about_initial(self) -> tuple[Any, ...]:
        """Return the strength of those steps."""
        return self.settings.kind, self.settings.mu

    def remember(self, network: Network, samples: Samples, prepare: Preparation) -> Memory:
        """Return the mean activation of each node, by unit layer; no class came since."""
        sums = total_sums(network, batches(network, samples, prepare))
        means = {name: importance(value, len(samples)) for name, value in sums.items()}
        none = torch.zeros((), dtype=torch.int64, device=network.head.weight.device)
        return prefixed(_IMPORTANCE, means) | {_LESSONS: none}

    def take_in(self, new: NewClass) -> Requests:
        """Train unused nodes and the new row, the used ones pulled back."""
        network, memory = new.network, new.remembered
        unused = unused_nodes(memory)
        if not int(memory[_LESSONS]):
            network = cleared(network, unused, self.settings.refresh, generator(new.seed, "first nodes"))
        network = add_class(network, new.draw("head"))
        settings = self.continued(new.training)
        steps = proximal_steps(network, self.settings, settings.optimiser.learning_rate)
        objective = Objective(shels_loss(network, settings), settings, steps)
        shapes = {name: value.shape for name, value in network.named_parameters()}
        masks = transfer_masks(weight_layers(network)[:-1], unused, shapes)
        lessons = memory.pop(_LESSONS)
        state = memory | weights_before(network) | prefixed("mask/", masks)
        fit = yield self.request(new, network, new.labelled, objective, state)
        more = self.remember(network, new.samples, new.prepare)  # Ω = η · Ω before + Ω on the new class
        after = {name: self.settings.decay * value + more[name] for name, value in memory.items()}
        after[_LESSONS] = lessons + 1
        left = unused_nodes(after)
        ready = cleared(network, left, self.settings.refresh, new.draw("nodes"))
        free = {"before": counts(unused), "after": counts(left)}
        return Accommodated(ready, after, self.report(fit, free_units=free))


def unused_nodes(memory: Memory) -> dict[str, Tensor]:
    """Return which nodes no class has ever fired, by unit layer."""
    return {name: value == 0 for name, value in under(_IMPORTANCE, memory).items()}
