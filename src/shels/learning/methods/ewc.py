"""Elastic weight consolidation: a weight's change costs by how much the network's answers depend on it.

J. Kirkpatrick et al.: Overcoming catastrophic forgetting in neural networks, PNAS 2017.

The paper keeps a Fisher diagonal and an anchor for each task. Here, as in the online form, there is one
diagonal, the sum over all that was learned so far, and one anchor, the latest weights: learning many classes
one by one would otherwise cost a copy of the network each. All classes share one head; its row for a new
class is free. The Fisher information is that of the network's own answers: labels are drawn from what it
predicts, not taken from the data.
"""

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.func import functional_call

from shels.config import Ewc, TrainingSettings
from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.learning.protocol import Memory, NewClass, prefixed, under
from shels.learning.trained import TrainedMethod, weights_before
from shels.model.chains import shapes
from shels.model.networks import Network
from shels.runtime import generator
from shels.training import Batch, Loss, Objective, Params, State, shels_loss

_FISHER = "fisher/"
_VALUES = 2**26
"""Values of patches that a convolution reads, held at once: 256 MB."""


def own_labels(scores: Tensor, draws: Tensor) -> Tensor:
    """Return a label for each sample, drawn from the softmax of its scores: (n, classes), (n,) -> (n,).

    draws: uniform in 0-1, so that they can be made on the CPU for every device.
    """
    reached = torch.softmax(scores, dim=1).cumsum(dim=1)
    below = (reached < draws.to(reached)[:, None]).sum(dim=1)
    return below.clamp(max=scores.shape[1] - 1)  # the last sum may fall short of 1 by rounding


@torch.enable_grad()
def squared_gradients(network: Network, params: Params, inputs: Tensor, labels: Tensor) -> Params:
    """Return, by parameter, the squared gradients of log p(label | input), summed over the samples.

    A sample's gradient of a layer's weights is the product of what the layer reads and the gradient of what
    it gives; so one pass through the network serves all samples, and of a linear layer, which may have
    millions of weights, no sample's gradient is ever held by itself.
    """
    read: dict[str, Tensor] = {}
    made: list[Tensor] = []
    x = inputs
    for index, layer in enumerate(network.body):
        if isinstance(layer, nn.Conv2d | nn.Linear):
            read[f"body.{index}"] = x.detach()
            x = functional_call(layer, under(f"body.{index}.", params), (x,))
            made.append(x if x.requires_grad else x.requires_grad_())
        else:
            x = layer(x)
    scores = functional_call(network.head, under("head.", params), (x,))
    grads = torch.autograd.grad(F.cross_entropy(scores, labels, reduction="sum"), made)
    out = _head_squares(network.head, under("head.", params), x.detach(), labels)
    for (name, rows), grad in zip(read.items(), grads, strict=True):
        out |= prefixed(f"{name}.", _layer_squares(network.get_submodule(name), rows, grad))
    return out


def _layer_squares(layer: nn.Module, rows: Tensor, grad: Tensor) -> Params:
    """Return the sums of squares by kind of parameter. rows: what it reads, grad: of what it gives."""
    if isinstance(layer, nn.Linear) and rows.ndim == 2:
        squares = {"weight": grad.square().T @ rows.square(), "bias": grad.square().sum(dim=0)}
    else:  # it reads many places of a sample, whose gradients are added up
        if isinstance(layer, nn.Conv2d):
            patches, each = _patches(layer, rows), grad.flatten(2)
        else:
            patches, each = (value.flatten(1, -2).transpose(1, 2) for value in (rows, grad))
        weights = torch.bmm(each, patches.transpose(1, 2)).square().sum(dim=0)
        like: Tensor = layer.weight  # type: ignore[assignment]
        squares = {"weight": weights.view_as(like), "bias": each.sum(dim=2).square().sum(dim=0)}
    return squares if layer.bias is not None else {"weight": squares["weight"]}


def _patches(layer: nn.Conv2d, maps: Tensor) -> Tensor:
    """Return what a convolution reads at each place: (n, channels, height, width) -> (n, values, places)."""
    padding = layer.padding
    if isinstance(padding, str):
        pairs = zip(layer.dilation, layer.kernel_size, strict=True)
        wide = [apart * (size - 1) if padding == "same" else 0 for apart, size in pairs]
        maps = F.pad(maps, [side for all_ in reversed(wide) for side in (all_ // 2, all_ - all_ // 2)])
        padding = (0, 0)
    return F.unfold(maps, layer.kernel_size, layer.dilation, padding, layer.stride)


def _head_squares(head: nn.Module, params: Params, features: Tensor, labels: Tensor) -> Params:
    """Return the sums of squares of the last layer, each sample's gradient by itself: (n, d), (n,)."""

    def surprise(weights: Params, x: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(head, weights, (x[None],)), label[None])

    each = torch.func.vmap(torch.func.grad(surprise), in_dims=(None, 0, 0))(params, features, labels)
    return {f"head.{name}": value.square().sum(dim=0) for name, value in each.items()}


def fisher(network: Network, samples: Samples, prepare: Preparation, most: int) -> Params:
    """Return the diagonal of the Fisher information by parameter: the mean over at most so many samples."""
    network.eval()
    params = {name: value.detach() for name, value in network.named_parameters()}
    draw = generator(0, "fisher", len(params["head.weight"]))
    chosen = torch.randperm(len(samples), generator=draw)[:most]
    draws = torch.rand(len(chosen), generator=draw)
    size = max(1, min(64, _VALUES // _patch_values(network, prepare.shape)))
    total = {name: torch.zeros_like(value) for name, value in params.items()}
    for places, part in zip(torch.split(chosen, size), torch.split(draws, size), strict=True):
        inputs = samples.inputs[places.to(samples.inputs.device)].to(params["head.weight"].device)
        inputs = prepare(inputs).to(params["head.weight"].dtype)
        with torch.no_grad():
            labels = own_labels(network(inputs), part)
        for name, value in squared_gradients(network, params, inputs, labels).items():
            total[name] += value
    return {name: value / len(chosen) for name, value in total.items()}


def _patch_values(network: Network, shape: tuple[int, ...]) -> int:
    """Return how many values the patches have that a convolution reads of one sample, at most."""
    sizes, most = shapes(network.body, (1, *shape)), 1
    for layer, (_, *sides) in zip(network.body, sizes, strict=True):
        if isinstance(layer, nn.Conv2d):
            most = max(most, layer.weight[0].numel() * math.prod(sides[1:]))
    return most


def elastic_penalty(
    params: Mapping[str, Tensor], before: Mapping[str, Tensor], information: Mapping[str, Tensor]
) -> Tensor:
    """Return what the change of weights costs before λ: half the squares, weighed by the information."""
    terms = [(value * (params[name] - before[name]).square()).sum() for name, value in information.items()]
    return torch.stack(terms).sum() / 2


def ewc_loss(network: Network, settings: TrainingSettings, strength: float) -> Loss:
    """Return cross-entropy on the new class and λ times the cost of changes.

    Its state holds the weights before under `before/NAME` and the Fisher diagonal under `fisher/NAME`.
    """
    plain = shels_loss(network, settings)

    def loss(params: Params, batch: Batch, state: State) -> Tensor:
        changes = elastic_penalty(params, under("before/", state), under(_FISHER, state))
        return plain(params, batch, state) + strength * changes

    return loss


def widened(information: Memory, params: Mapping[str, Tensor]) -> Memory:
    """Return the Fisher diagonal with zeros for rows that the parameters have more: the new class is free."""
    out = {}
    for name, value in information.items():
        more = len(params[name.removeprefix(_FISHER)]) - len(value)
        out[name] = torch.cat([value, value.new_zeros(more, *value.shape[1:])]) if more else value
    return out


class EwcMethod(TrainedMethod):
    """Elastic weight consolidation; what it remembers is a number for each weight."""

    settings: Ewc
    stores = "statistics"
    normalised = False

    def remember(self, network: Network, samples: Samples, prepare: Preparation) -> Memory:
        """Return the Fisher diagonal of what the network was just trained on."""
        return prefixed(_FISHER, fisher(network, samples, prepare, self.settings.samples))

    def objective(self, new: NewClass, network: Network) -> tuple[Objective, State]:
        """Return cross-entropy under the penalty, the Fisher diagonal and the anchor."""
        settings = self.continued(new.training)
        state = widened(new.remembered, dict(network.named_parameters())) | weights_before(network)
        return Objective(ewc_loss(network, settings, self.settings.strength), settings), state

    def updated(self, new: NewClass, network: Network) -> Memory:
        """Return the Fisher diagonal with that of the new class added."""
        more = self.remember(network, new.samples, new.prepare)
        known = widened(new.remembered, dict(network.named_parameters()))
        return {name: value + more[name] for name, value in known.items()}
