"""A backbone: a pretrained network that stands in front of a chain and makes features of photos.

It is one layer of the chain. Its normalisation and dropout always compute as in evaluation; of its weights
the first are fixed, the last may be trained.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from shels import schema
from shels.errors import ArchitectureError, ModelFileError

OWN = "own"
"""What a backbone is called that was given as a module: whoever loads the model must give it again."""
_SHARE, _COLOURS = schema.number(0, 1), schema.number(-1e3, 1e3)


@dataclass(frozen=True)
class Origin:
    """Where a backbone is from and what it is to be shown; stored in the model.

    name: as `--backbone` takes it. weights: SHA-256 of the weights as they came. licence: of the weights, as
    far as the package says. mean, sd: what pixels (0-1) of each colour are normalised by. size: the side of
    images that it was pretrained on.
    """

    name: str
    weights: str
    licence: str
    mean: tuple[float, ...]
    sd: tuple[float, ...]
    size: int


class Backbone(nn.Module):
    """Makes features of images: (n, 1 or 3, height, width), values 0-1 -> (n, features).

    tuned: the share of its weights, counted from the last, that training may change. centre, spread: what
    features are taken off and divided by, (features,); as they are, unless that is set.
    """

    mean: Tensor
    sd: Tensor
    centre: Tensor
    spread: Tensor

    def __init__(self, module: nn.Module, origin: Origin, features: int, tuned: float) -> None:
        super().__init__()
        self.module = module.eval()
        self.origin, self.features, self.tuned = origin, features, tuned
        self.register_buffer("mean", torch.tensor(origin.mean).view(-1, 1, 1))
        self.register_buffer("sd", torch.tensor(origin.sd).view(-1, 1, 1))
        self.register_buffer("centre", torch.zeros(features))
        self.register_buffer("spread", torch.ones(features))
        _fix(self.module, tuned)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return features; grey images are shown in three equal colours, maps are averaged over space."""
        colours = inputs.expand(-1, len(self.mean), -1, -1)
        shown = ((colours - self.mean) / self.sd).contiguous(memory_format=torch.channels_last)
        found: Tensor = self.module(shown)
        features = found.mean(dim=(2, 3)) if found.ndim == 4 else found.flatten(1)
        return (features - self.centre) / self.spread

    def shape_after(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a batch's features, or raise ValueError where it is none of images."""
        if len(shape) != 4 or shape[1] not in (1, len(self.mean)):
            raise ValueError(f"a backbone needs grey or RGB images, got inputs of shape {shape[1:]}")
        return (shape[0], self.features)

    def train(self, mode: bool = True) -> Backbone:
        """Set the mode of the layer; what is inside computes as in evaluation whatever the mode."""
        self.training = mode
        return self


def _fix(module: nn.Module, tuned: float) -> None:
    """Fix all weights but the last share."""
    weights = list(module.parameters())
    fixed = len(weights) - round(tuned * len(weights))
    for place, value in enumerate(weights):
        value.requires_grad_(place >= fixed)


def described(layer: Backbone) -> dict[str, Any]:
    """Return a backbone as plain data, fit for JSON; its weights are stored with the network's."""
    origin = {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(layer.origin).items()}
    stored = getattr(layer.module, "model", None)
    size = {"bytes": len(stored)} if isinstance(stored, Tensor) else {}
    return {"kind": "Backbone", **origin, "features": layer.features, "tuned": layer.tuned, **size}


_ITEM = schema.record(
    {
        "kind": schema.text("Backbone"),
        "name": schema.text("[^\n]{1,200}"),
        "weights": schema.text("[0-9a-f]{64}"),
        "licence": schema.text("[^\n]{0,200}"),
        "mean": schema.listed(_COLOURS, least=1),
        "sd": schema.listed(schema.number(1e-6, 1e3), least=1),
        "size": schema.whole(1, 2**13),
        "features": schema.whole(1, 2**20),
        "tuned": _SHARE,
    },
    optional={"bytes": schema.whole(1, 2**31)},
)


def remade(item: Mapping[str, Any], make: Callable[[str, Mapping[str, Any]], nn.Module]) -> Backbone:
    """Return the backbone that `described` told of, its weights unset, on the device that torch is set to.

    make: gives a module of a backbone's name, without weights.
    """
    try:
        _ITEM(item, "backbone")
    except ModelFileError as error:
        raise ArchitectureError(str(error)) from error
    if len(item["mean"]) != len(item["sd"]) or len(item["mean"]) not in (1, 3):
        raise ArchitectureError("a backbone has a mean and an sd for each of 1 or 3 colours")
    facts = {name: item[name] for name in ("name", "weights", "licence", "size")}
    origin = Origin(**facts, mean=tuple(item["mean"]), sd=tuple(item["sd"]))
    return Backbone(make(item["name"], item), origin, item["features"], item["tuned"])


def own_module(body: nn.Module) -> nn.Module | None:
    """Return the module of a backbone that was given as one, which no description can bring back."""
    for layer in body.children():
        if isinstance(layer, Backbone) and layer.origin.name == OWN:
            return layer.module
    return None


def skeleton(module: nn.Module) -> nn.Module:
    """Return a module of its own with the same layers, without memory for its weights."""
    return copy.deepcopy(module).to("meta")


def digest(module: nn.Module) -> str:
    """Return the SHA-256 of a module's weights."""
    found = hashlib.sha256()
    for name, value in module.state_dict().items():
        found.update(name.encode())
        found.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
