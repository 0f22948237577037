"""Chains of layers as plain data, so that any chain can be saved, and loaded without executing anything."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn

from shels.errors import ArchitectureError, unknown_name
from shels.model.backbone import Backbone, described, own_module, remade
from shels.model.backbone_library import bare_module
from shels.model.normalisation import BatchNorm2d

Shape = tuple[int, ...]


class Shared(nn.Identity):
    """Marks the features of a chain that all classes share: those that come in, which it passes on.

    A chain without it has its shared features after its last convolution, or its first hidden layer.

    >>> chain = nn.Sequential(Shared(), nn.Linear(4, 8), nn.ReLU())  # the vectors themselves
    """


# Each layer that a chain may hold, with the arguments that describe it whole.
_LAYERS: dict[str, tuple[type[nn.Module], tuple[str, ...]]] = {
    "Conv2d": (nn.Conv2d, ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation")),
    "Linear": (nn.Linear, ("in_features", "out_features")),
    "ReLU": (nn.ReLU, ()),
    "MaxPool2d": (
        nn.MaxPool2d,
        ("kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode"),
    ),
    "AvgPool2d": (
        nn.AvgPool2d,
        ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"),
    ),
    "AdaptiveAvgPool2d": (nn.AdaptiveAvgPool2d, ("output_size",)),
    "AdaptiveMaxPool2d": (nn.AdaptiveMaxPool2d, ("output_size",)),
    "Flatten": (nn.Flatten, ("start_dim", "end_dim")),
    "Dropout": (nn.Dropout, ("p",)),
    "Dropout2d": (nn.Dropout2d, ("p",)),
    "Identity": (nn.Identity, ()),
    "Shared": (Shared, ()),
    "BatchNorm2d": (BatchNorm2d, ("num_features", "eps", "momentum")),
}
_SIZE, _WINDOW, _DEPTH = range(1, 2**24), range(1, 2**14), range(-4, 5)
# What each argument may be: a range of whole numbers, or of pairs of them, or one of a few other values.
_RANGES: dict[str, tuple[range, tuple[object, ...]]] = {
    **dict.fromkeys(
        ("in_channels", "out_channels", "in_features", "out_features", "num_features"), (_SIZE, ())
    ),
    **dict.fromkeys(("kernel_size", "stride", "dilation"), (_WINDOW, ())),
    "padding": (range(2**14), ("same", "valid")),
    "output_size": (_WINDOW, (None,)),
    "divisor_override": (_SIZE, (None,)),
    **dict.fromkeys(("start_dim", "end_dim"), (_DEPTH, ())),
    **dict.fromkeys(("ceil_mode", "count_include_pad", "bias"), (range(0), (True, False))),
    "return_indices": (range(0), (False,)),
}
_SHARES = {"p", "eps", "momentum"}
_PAIRS = {"kernel_size", "stride", "dilation", "padding", "output_size"}
_MOST_VALUES = 2**27
"""What a chain may make of one sample in any layer: half a gigabyte."""
_MOST_LAYERS = 1000
_KEEPS_FEATURES = {"MaxPool2d", "AvgPool2d", "AdaptiveAvgPool2d", "AdaptiveMaxPool2d"}
_KEEPS_FEATURES |= {"Flatten", "Dropout", "Dropout2d", "Identity", "Shared"}


def feature_count(body: nn.Sequential, shape: Shape) -> int:
    """Return the width of a chain's features; a chain that SHELS cannot work on is refused."""
    kinds = [type(layer).__name__ for layer in body]
    if not {"Conv2d", "Linear"} & set(kinds):
        raise ArchitectureError(
            "the chain has no layer with weights; add nn.Conv2d or nn.Linear, then nn.ReLU"
        )
    last = next((kind for kind in reversed(kinds) if kind not in _KEEPS_FEATURES), "nothing")
    if last != "ReLU":
        raise ArchitectureError(
            f"the chain must end in ReLU, then pooling, Flatten or Dropout at most; it ends in {last}. "
            "A class is told by which features fire, so features must not be negative: add nn.ReLU()"
        )
    try:
        out = shapes(body, (2, *shape))[-1]
    except (RuntimeError, ValueError, IndexError) as error:
        raise ArchitectureError(
            f"the chain does not fit inputs of shape {shape} (is an nn.Flatten() missing?): {error}"
        ) from error
    if len(out) != 2 or out[0] != 2:
        raise ArchitectureError(
            f"the chain turns 2 samples of shape {shape} into {out}, not (2, features); "
            "end it in nn.Flatten()"
        )
    return out[1]


def shapes(body: nn.Sequential, shape: Shape) -> list[Shape]:
    """Return the shape of a batch after each layer of a chain, without computing or drawing anything.

    >>> chain = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten())
    >>> shapes(chain, (10, 1, 8, 8))
    [(10, 4, 6, 6), (10, 4, 6, 6), (10, 144)]
    """
    out = []
    for layer in flat(body):
        shape = _shape_after(layer, shape)
        if math.prod(shape[1:]) > _MOST_VALUES:
            raise ValueError(f"{layer} would make {shape[1:]} of one sample, more than fits into memory")
        out.append(shape)
    return out


def _shape_after(layer: nn.Module, shape: Shape) -> Shape:
    if isinstance(layer, BatchNorm2d | nn.BatchNorm2d) and (
        len(shape) != 4 or shape[1] != layer.num_features
    ):
        raise ValueError(f"{type(layer).__name__} of {layer.num_features} channels got {shape[1:]}")
    if isinstance(layer, nn.ReLU | nn.Identity | BatchNorm2d | nn.BatchNorm2d):
        return shape
    if isinstance(layer, Backbone):
        return layer.shape_after(shape)
    if isinstance(layer, nn.Conv2d | nn.MaxPool2d) and len(shape) == 4:
        sides = _sides_after(layer, shape[2:])
        reads = layer.in_channels if isinstance(layer, nn.Conv2d) else shape[1]
        if sides is not None and reads == shape[1]:
            return (shape[0], layer.out_channels if isinstance(layer, nn.Conv2d) else shape[1], *sides)
    if isinstance(layer, nn.Linear) and shape[-1] == layer.in_features:
        return (*shape[:-1], layer.out_features)
    if isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) == (1, -1):
        return (shape[0], math.prod(shape[1:]))
    # All else is left to torch, which also says what does not fit, but takes a second to get ready for that.
    meta = rebuild(describe(nn.Sequential(layer)), device="meta").eval()
    return tuple(meta(torch.zeros(*shape, device="meta")).shape)


def _sides_after(layer: nn.Conv2d | nn.MaxPool2d, sides: Shape) -> Shape | None:
    """Return height and width after a window has gone over them, None where that is not so simple."""
    if (isinstance(layer, nn.MaxPool2d) and layer.ceil_mode) or isinstance(layer.padding, str):
        return None
    if isinstance(layer, nn.MaxPool2d) and max(_pair(layer.padding)) * 2 > min(_pair(layer.kernel_size)):
        return None
    windows = [_pair(value) for value in (layer.kernel_size, layer.stride, layer.padding, layer.dilation)]
    if any(min(pair) < least for pair, least in zip(windows, (1, 1, 0, 1), strict=True)):
        raise ValueError(f"kernel, stride and dilation must be 1 or more, padding 0 or more: {layer}")
    out = tuple(
        (side + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
        for side, kernel, stride, padding, dilation in zip(sides, *windows, strict=True)
    )
    return out if min(out) > 0 else None


def _pair(value: object) -> tuple[int, int]:
    return tuple(value) if isinstance(value, tuple | list) else (value, value)


def describe(chain: nn.Sequential) -> list[dict[str, Any]]:
    """Return a chain as plain data, a table per layer, fit for JSON.

    >>> describe(nn.Sequential(nn.Linear(4, 8), nn.ReLU()))
    [{'kind': 'Linear', 'in_features': 4, 'out_features': 8, 'bias': True}, {'kind': 'ReLU'}]
    """
    layers = list(flat(chain))
    with_weights = [layer for layer in layers if list(layer.parameters())]
    if len({id(layer) for layer in with_weights}) != len(with_weights):
        raise ArchitectureError("a layer stands twice in the chain; layers cannot share weights")
    return [_describe_layer(layer) for layer in layers]


def rebuild(
    description: Sequence[dict[str, Any]], device: str = "cpu", own: nn.Module | None = None
) -> nn.Sequential:
    """Return the chain that `describe` told of, its weights unset; every number in it is checked first.

    own: the module of a backbone of one's own, which a description cannot hold.

    >>> rebuild([{"kind": "Linear", "in_features": 2, "out_features": 3, "bias": True}, {"kind": "ReLU"}])
    Sequential(
      (0): Linear(in_features=2, out_features=3, bias=True)
      (1): ReLU()
    )
    """
    if not isinstance(description, Sequence) or len(description) > _MOST_LAYERS:
        raise ArchitectureError(f"a chain must be a list of at most {_MOST_LAYERS} layers")
    with torch.device("meta"):
        layers = [_rebuild_layer(item, own) for item in description]
    return unset(nn.Sequential(*layers), device)


Unset = TypeVar("Unset", bound=nn.Module)


def unset(module: Unset, device: str | torch.device) -> Unset:
    """Return a module made without memory with room for its weights on a device, their values unset.

    What nn.Module.to_empty does, without the half second that torch takes to get ready for that.
    """
    for part in module.modules():
        for name, value in part.named_parameters(recurse=False):
            room = torch.empty(value.shape, dtype=value.dtype, device=device)
            setattr(part, name, nn.Parameter(room, requires_grad=value.requires_grad))
        for name, average in part.named_buffers(recurse=False):
            setattr(part, name, torch.empty(average.shape, dtype=average.dtype, device=device))
    return module


def flat(chain: nn.Module) -> nn.Sequential:
    """Return the same layers with no chain inside the chain."""
    if type(chain).forward is not nn.Sequential.forward:
        raise ArchitectureError(
            f"a network of one's own must be an nn.Sequential of layers, got {type(chain).__name__}, "
            "which computes in its own way"
        )
    layers: list[nn.Module] = []
    for layer in chain._modules.values():  # noqa: SLF001 - children() leaves out a layer that stands twice
        layers += flat(layer) if isinstance(layer, nn.Sequential) else [layer] if layer is not None else []
    return nn.Sequential(*layers)


def same_layers(chain: nn.Sequential, device: str = "cpu") -> nn.Sequential:
    """Return a chain of the same layers, its weights unset."""
    return rebuild(describe(chain), device, own_module(chain))


def _describe_layer(layer: nn.Module) -> dict[str, Any]:
    if isinstance(layer, Backbone):
        return described(layer)
    kind = type(layer).__name__
    if kind not in _LAYERS or type(layer) not in (_LAYERS[kind][0], nn.BatchNorm2d):
        why = (
            "has weights that the group sparsity cannot group" if list(layer.parameters()) else "is not known"
        )
        raise ArchitectureError(f"layer {kind} {why}; a chain may hold: {', '.join(_LAYERS)}")
    if isinstance(layer, nn.MaxPool2d) and layer.return_indices:
        raise ArchitectureError("MaxPool2d must not return indices in a chain")
    if isinstance(layer, nn.Conv2d) and (layer.groups != 1 or layer.padding_mode != "zeros"):
        raise ArchitectureError("Conv2d must have groups=1 and zero padding: a unit is one input channel")
    if isinstance(layer, nn.BatchNorm2d) and not _known_norm(layer):
        raise ArchitectureError(
            "BatchNorm2d must have weights, running averages and a momentum: affine=True, "
            "track_running_stats=True, and a number for momentum"
        )
    out = {"kind": kind, **{name: getattr(layer, name) for name in _LAYERS[kind][1]}}
    if isinstance(layer, nn.Conv2d | nn.Linear):
        out["bias"] = layer.bias is not None
    return out


def _known_norm(layer: nn.BatchNorm2d) -> bool:
    return layer.affine and layer.track_running_stats and layer.momentum is not None


def _rebuild_layer(item: dict[str, Any], own: nn.Module | None = None) -> nn.Module:
    kind = item.get("kind") if isinstance(item, dict) else None
    if kind == "Backbone":
        return remade(item, partial(bare_module, own=own))
    if not isinstance(kind, str) or kind not in _LAYERS:
        raise ArchitectureError(unknown_name("layer", kind, _LAYERS))
    make, names = _LAYERS[kind]
    options = {key: value for key, value in item.items() if key != "kind"}
    odd = [f"{key} is {value!r:.60}" for key, value in options.items() if not _allowed(key, value)]
    lacking = [f"{name} is missing" for name in names if name not in options]
    if odd or lacking:
        raise ArchitectureError(f"layer {kind} cannot be made from {options!r:.200}: {(odd + lacking)[0]}")
    try:
        return make(**{key: tuple(v) if isinstance(v, list) else v for key, v in options.items()})
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArchitectureError(f"layer {kind} cannot be made from {options}: {error}") from error


def _allowed(name: str, value: object) -> bool:
    """Tell whether a layer's argument may have this value."""
    if name in _SHARES:
        return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
    if name not in _RANGES:
        return False
    numbers, others = _RANGES[name]
    if isinstance(value, list | tuple):
        fits = all(_one_allowed(each, numbers, others) for each in value)
        return name in _PAIRS and len(value) == 2 and fits
    return _one_allowed(value, numbers, others)


def _one_allowed(value: object, numbers: range, others: tuple[object, ...]) -> bool:
    if isinstance(value, bool | str) or value is None:
        return value in others
    return isinstance(value, int) and value in numbers
