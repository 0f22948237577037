"""Networks: chains of layers with a head."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from shels.config import NetworkSettings
from shels.errors import ModelFileError, SettingsError, unknown_name
from shels.files import read_tensors
from shels.model.architectures import ARCHITECTURES, automatic, linear_chain
from shels.model.backbone import Backbone
from shels.model.backbone_library import open_backbone
from shels.model.chains import Shape, Shared, feature_count, flat, rebuild, same_layers, unset
from shels.model.head import CosineHead, LinearHead, ScaledCosineHead
from shels.model.normalisation import BatchNorm2d
from shels.model.trunk import run
from shels.runtime import generator

_HEADS: dict[str, type[CosineHead | LinearHead]] = {
    "cosine": CosineHead,
    "linear": LinearHead,
    "scaled-cosine": ScaledCosineHead,
}


class Views(NamedTuple):
    """What a network makes of n samples at two depths.

    shared: (n, s), low-level features, s at most 2048. high: (n, d), the features that the head sees.
    """

    shared: Tensor
    high: Tensor


MOST_SHARED = 2048
ADDED = 256
"""Units of the layer that stands between a backbone and the head: the high-level features."""


def pooled(maps: Tensor) -> Tensor:
    """Return feature maps as rows of at most 2048 values, averaged over neighbours where there are more."""
    if maps.ndim == 4:
        sides = pooled_sides(tuple(maps.shape[1:]))
        if sides == (1, 1):  # as a mean it has a trial axis
            maps = maps.mean((-2, -1), keepdim=True)
        maps = maps if sides == tuple(maps.shape[2:]) else F.adaptive_avg_pool2d(maps, sides)
    return maps.flatten(1)


def pooled_sides(shape: Shape) -> tuple[int, int]:
    """Return height and width to which maps (channels, height, width) are averaged: 2048 values at most."""
    channels, height, width = shape
    if channels * height * width <= MOST_SHARED:
        return height, width
    side = max(1, int((MOST_SHARED / channels) ** 0.5))
    return min(side, height), min(side, width)


class Network(nn.Module):
    """A chain of layers that ends in high-level features, and a head with one row of weights per class."""

    def __init__(self, body: nn.Sequential, head: CosineHead | LinearHead) -> None:
        super().__init__()
        self.body = body
        self.head = head

    def features(self, inputs: Tensor) -> Tensor:
        """Return the high-level features that the head sees: (n, *shape) -> (n, d), none negative."""
        return run(list(self.body), inputs)

    def views(self, inputs: Tensor) -> Views:
        """Return low-level and high-level features of inputs in one pass, see `Views`."""
        layers, depth = list(self.body), self.shared_depth
        maps = run(layers[:depth], inputs)
        return Views(pooled(maps), run(layers[depth:], maps))

    @property
    def shared_depth(self) -> int:
        """How many layers lead to the shared features: those up to the mark, or to what is general."""
        marks = [place for place, layer in enumerate(self.body, 1) if isinstance(layer, Shared)]
        return marks[0] if marks else self.general_depth

    @property
    def general_depth(self) -> int:
        """How many layers serve every class: all before the first linear layer, or up to that one.

        Features after the last convolution serve every class; later ones each serve few. Where there is no
        convolution, the first hidden layer's features do. In chains with batch normalisation, maps are
        shared before they are averaged over space, not after. A backbone serves every class.
        """
        kinds = [type(layer).__name__ for layer in self.body]
        if "Backbone" in kinds:
            return kinds.index("Backbone") + 1
        if "Conv2d" in kinds:
            last = len(kinds) - kinds[::-1].index("Conv2d")
            ends = {"Linear", "Flatten"} | ({"AdaptiveAvgPool2d"} if "BatchNorm2d" in kinds else set())
            return next((i for i in range(last, len(kinds)) if kinds[i] in ends), len(kinds))
        return kinds.index("ReLU") + 1

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the class scores that training uses, cosines with the cosine head: (n, classes)."""
        scores: Tensor = self.head(self.features(inputs))
        return scores

    def weight_names(self) -> list[str]:
        """Return the names of the weight matrices in order of depth, the head last (no biases).

        Those inside a backbone are left out: its units are pretrained, and sparsity would undo them.
        """
        inside = tuple(f"body.{i}." for i, layer in enumerate(self.body) if isinstance(layer, Backbone))
        names = [name for name, value in self.named_parameters() if value.ndim > 1]
        return [name for name in names if not name.startswith(inside)]

    @property
    def backbone(self) -> Backbone | None:
        """The backbone that the chain begins with, if it has one."""
        first = next(iter(self.body), None)
        return first if isinstance(first, Backbone) else None


def build(
    settings: NetworkSettings, shape: Shape, classes: int, seed: int, own: nn.Module | None = None
) -> Network:
    """Return a fresh network for inputs of `shape`, Xavier-initialised from the seed, biases zero.

    own: a module of one's own in place of the settings' backbone.

    >>> network = build(NetworkSettings("vectors"), shape=(10,), classes=3, seed=0)
    >>> network(torch.zeros(5, 10)).shape
    torch.Size([5, 3])
    """
    if settings.backbone is not None:
        backbone = open_backbone(own or settings.backbone, frozen=settings.frozen)
        return on_backbone(backbone, settings, classes, seed)
    name = automatic(shape) if settings.architecture == "auto" else settings.architecture
    if name not in ARCHITECTURES:
        raise SettingsError(unknown_name("architecture", name, ["auto", *ARCHITECTURES]))
    if settings.weights is not None and name != "vgg16":
        raise SettingsError(f'pretrained weights fit the architecture "vgg16", not {name!r}')
    with torch.device("meta"):  # no draw from the global generator
        body = ARCHITECTURES[name](shape)
    initialise(unset(body, "cpu"), generator(seed, "body"))
    if name == "vgg16" and settings.weights is None:
        warnings.warn(
            "VGG16 starts from random weights; pass weights=FILE to start from ImageNet's", stacklevel=2
        )
    if settings.weights is not None:
        load_vgg16(dict(body.named_parameters()), Path(settings.weights))
    return attach_head(body, shape, settings.head, classes, seed, settings.scale)


def on_backbone(backbone: Backbone, settings: NetworkSettings, classes: int, seed: int) -> Network:
    """Return a network of a backbone, one hidden layer of SHELS's own, and a head."""
    with torch.device("meta"):
        added = linear_chain(backbone.features, (ADDED,))
    initialise(unset(added, "cpu"), generator(seed, "body"))
    body = nn.Sequential(backbone, *added)
    shape = (len(backbone.origin.mean), backbone.origin.size, backbone.origin.size)
    return attach_head(body, shape, settings.head, classes, seed, settings.scale)


def behind(backbone: Backbone, network: Network, centre: Tensor | None, spread: Tensor | None) -> Network:
    """Return a network of vectors, which were a backbone's features, behind that backbone.

    centre, spread: what those vectors were taken off and divided by, (features,).
    """
    if centre is not None and spread is not None:
        backbone.centre.copy_(centre)
        backbone.spread.copy_(spread)
    layers, depth = list(network.body), network.shared_depth
    if not any(isinstance(layer, Shared) for layer in layers):
        layers.insert(depth, Shared())  # what they share stays the same, with a backbone in front or without
    return Network(nn.Sequential(backbone, *layers), network.head).eval()


# Torchvision's names for VGG16's linear layers; its convolutions are called features.N there, N here.
_CLASSIFIER = {"33": "classifier.0", "36": "classifier.3"}


@torch.no_grad()
def load_vgg16(own: Mapping[str, Tensor], path: Path) -> None:
    """Copy torchvision's VGG16 weights into a chain's parameters; what the file lacks starts fresh."""
    found = read_tensors(path)
    fresh: list[str] = []
    for name, target in own.items():
        layer, kind = name.rsplit(".", 1)
        theirs = f"{_CLASSIFIER.get(layer, f'features.{layer}')}.{kind}"
        if theirs not in found and layer in _CLASSIFIER:
            fresh.append(theirs)
            continue
        if theirs not in found:
            raise ModelFileError(f"{path} has no {theirs!r}: it is not a VGG16 under torchvision's key names")
        got, expected = tuple(found[theirs].shape), tuple(target.shape)
        if got != expected:
            raise ModelFileError(f"{path}: {theirs} has shape {got}, expected {expected}")
        target.copy_(found[theirs])
    if fresh:
        warnings.warn(f"{path.name} has no {', '.join(fresh)}: these start fresh", UserWarning, stacklevel=2)


def from_chain(
    chain: nn.Sequential, shape: Shape, head: str, classes: int, seed: int, scale: float | None = 1.0
) -> Network:
    """Return a network on a chain of the user's own, its weights kept as they come."""
    body = same_layers(chain)
    weights = flat(chain).state_dict()
    body.load_state_dict({name: weights[name] for name in weights if not name.endswith("_tracked")})
    return attach_head(body, shape, head, classes, seed, scale)


def outline(
    description: Sequence[dict[str, Any]],
    shape: Shape,
    head: str,
    classes: int,
    scale: float | None = 1.0,
    own: nn.Module | None = None,
) -> Network:
    """Return the network that a description tells of, without memory for its weights, to compare first.

    own: the module of a backbone of one's own.
    """
    body = rebuild(description, "meta", own)
    with torch.device("meta"):
        return Network(body, _head(head, feature_count(body, shape), classes, scale))


def attach_head(
    body: nn.Sequential, shape: Shape, head: str, classes: int, seed: int, scale: float | None = 1.0
) -> Network:
    """Return the network with a fresh head, after checking that the chain can carry one."""
    features = feature_count(body, shape)
    with torch.device("meta"):
        module = _head(head, features, classes, scale)
    initialise(unset(module, "cpu"), generator(seed, "head"))
    return Network(body, module)


def _head(name: str, features: int, classes: int, scale: float | None) -> CosineHead | LinearHead:
    return CosineHead(features, classes, scale) if name == "cosine" else _HEADS[name](features, classes)


def initialise(module: nn.Module, draw: torch.Generator) -> None:
    """Fill every weight by Xavier's uniform rule and every bias with zero, as the authors do."""
    for value in module.parameters():
        if value.ndim > 1:
            nn.init.xavier_uniform_(value, generator=draw)
        else:
            nn.init.zeros_(value)
    for part in module.modules():
        if isinstance(part, CosineHead):
            part.start(draw)
        elif isinstance(part, BatchNorm2d):
            part.start()
