"""Pretrained VGG16 weights from a local file, under torchvision's names."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from shels.errors import ModelFileError
from shels.files import read_tensors

_CLASSIFIER = {"classifier.0": "33", "classifier.3": "36"}  # torchvision's place -> ours


def load_vgg16(own: Mapping[str, Tensor], path: Path) -> None:
    """Copy torchvision's VGG16 weights into a chain's parameters; what the file lacks starts fresh."""
    found = read_tensors(path)
    fresh: list[str] = []
    for name, target in own.items():
        theirs = _their_name(name)
        if theirs in found:
            _copy(found[theirs], target, theirs, path)
        elif theirs.startswith("classifier."):
            fresh.append(theirs)
        else:
            raise ModelFileError(f"{path} has no {theirs!r}: it is not a VGG16 under torchvision's key names")
    if fresh:
        warnings.warn(f"{path.name} has no {', '.join(fresh)}: these start fresh", UserWarning, stacklevel=2)


def _their_name(name: str) -> str:
    layer, kind = name.rsplit(".", 1)
    place = {ours: theirs for theirs, ours in _CLASSIFIER.items()}.get(layer, f"features.{layer}")
    return f"{place}.{kind}"


def _copy(value: Tensor, target: Tensor, name: str, path: Path) -> None:
    if value.shape != target.shape:
        raise ModelFileError(f"{path}: {name} has shape {tuple(value.shape)}, expected {tuple(target.shape)}")
    with torch.no_grad():
        target.copy_(value)
