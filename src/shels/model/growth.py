"""Growth: a network with one more class, or with more units in a layer, that says the same as before."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from shels.errors import ArchitectureError
from shels.model.activations import weight_layers
from shels.model.backbone import own_module
from shels.model.chains import describe, rebuild, same_layers, unset
from shels.model.head import resized
from shels.model.networks import Network, initialise


def copied(network: Network) -> Network:
    """Return a network of its own with the same weights."""
    return _rebuilt(network, network.state_dict(), {})


def fresh(network: Network, classes: int, draw: torch.Generator) -> Network:
    """Return a network of the same layers that knows nothing yet, drawn as a new one is, body before head.

    Nothing of the given weights is in it. Drawn on the CPU, so the same numbers on every device.
    """
    body = same_layers(network.body)
    with torch.device("meta"):
        head = resized(network.head, network.head.weight.shape[1], classes)
    started = Network(body, unset(head, "cpu"))
    initialise(started, draw)
    like = network.head.weight
    return started.to(like.device, like.dtype).train(network.training)


def add_class(network: Network, draw: torch.Generator) -> Network:
    """Return the network with one more row of the head, Xavier-initialised; the old rows are the same.

    >>> from shels.config import NetworkSettings
    >>> from shels.model.networks import build
    >>> network = build(NetworkSettings("vectors"), shape=(10,), classes=3, seed=0)
    >>> grown = add_class(network, torch.Generator().manual_seed(0))
    >>> grown(torch.zeros(5, 10)).shape, bool((grown.head.weight[:3] == network.head.weight).all())
    (torch.Size([5, 4]), True)
    """
    state = network.state_dict()
    old = state["head.weight"]
    state["head.weight"] = torch.cat([old, _xavier(old, len(old) + 1, draw)[-1:]])
    if "head.bias" in state:
        state["head.bias"] = torch.cat([state["head.bias"], old.new_zeros(1)])
    return _rebuilt(network, state, {})


def drop_class(network: Network, position: int) -> Network:
    """Return the network without one row of its head; the other rows are the same."""
    state = network.state_dict()
    if not 0 <= position < len(state["head.weight"]):
        raise ArchitectureError(
            f"the network has classes 0 to {len(state['head.weight']) - 1}, got {position}"
        )
    for name in ("head.weight", "head.bias"):
        if name in state:
            state[name] = torch.cat([state[name][:position], state[name][position + 1 :]])
    return _rebuilt(network, state, {})


def growable(network: Network) -> list[str]:
    """Return the names of the linear layers that can be given more units, in order of depth."""
    return [layer.units for layer in weight_layers(network)[:-1] if _is_linear(network, layer.units)]


def add_units(network: Network, units: Mapping[str, int], draw: torch.Generator) -> Network:
    """Return the network with more units in linear layers: {"body.15": 64}.

    New units read what the old ones of their layer read, by Xavier-initialised weights and zero biases.
    Nothing that was there reads them, so old units and the scores w_c · f stay the same. A cosine is w_c · f
    over lengths, and the feature vector becomes longer: cosines shrink alike and keep their order.
    """
    state = network.state_dict()
    layers = weight_layers(network)
    for place, layer in enumerate(layers[:-1]):
        more = units.get(layer.units, 0)
        if more < 0 or (more and not _is_linear(network, layer.units)):
            raise ArchitectureError(f"units can be added to linear layers, 0 or more, not {more} to {layer}")
        if not more:
            continue
        weight = state[layer.weight]
        state[layer.weight] = torch.cat([weight, _xavier(weight, len(weight) + more, draw)[-more:]])
        if layer.bias is not None:
            state[layer.bias] = torch.cat([state[layer.bias], weight.new_zeros(more)])
        reader = layers[place + 1].weight
        state[reader] = torch.cat([state[reader], state[reader].new_zeros(len(state[reader]), more)], dim=1)
    return _rebuilt(network, state, units)


def _is_linear(network: Network, name: str) -> bool:
    return isinstance(network.get_submodule(name), nn.Linear)


def _xavier(like: Tensor, rows: int, draw: torch.Generator) -> Tensor:
    """Return a fresh weight as the whole layer would have it with this many rows; drawn on the CPU."""
    fresh = torch.empty(rows, like.shape[1], dtype=like.dtype)
    return nn.init.xavier_uniform_(fresh, generator=draw).to(like.device)


def _rebuilt(network: Network, state: Mapping[str, Tensor], more: Mapping[str, int]) -> Network:
    """Return a new network of the same layers, some of them wider, holding copies of these weights."""
    layers = describe(network.body)
    before = 0
    for index, item in enumerate(layers):
        if item["kind"] == "Linear":
            item["in_features"] += before
            before = more.get(f"body.{index}", 0)
            item["out_features"] += before
    rows, width = state["head.weight"].shape
    with torch.device("meta"):
        head = resized(network.head, width, rows)
    device = str(network.head.weight.device)
    grown = Network(rebuild(layers, device, own_module(network.body)), unset(head, device))
    grown.load_state_dict(dict(state))
    return grown.train(network.training)
