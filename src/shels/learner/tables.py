"""What a saved model holds: the table of each part, for the one checker.

Symbols: classes, all that the learner knows; rows, those of the head; high and shared, the widths of both
kinds of features; flat, that of the features which replay draws; inputs, the first dimension of an input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from shels import schema
from shels.config import OWN, Settings
from shels.detection.familiarity import COMPONENTS
from shels.detection.protocol import StoredParts
from shels.detection.rectified import rank_of
from shels.errors import ModelFileError
from shels.learner.pairing import needs_memory, score_name
from shels.learning.gaussian_replay import rank_within
from shels.learning.protection import parts
from shels.learning.registry import method_of
from shels.learning.replay_buffer import buffered_samples
from shels.model.activations import HEAD, weight_layers
from shels.model.chains import shapes
from shels.model.networks import Network, pooled_sides
from shels.schema import Spec, Table, check_tensors, double, integers, listed, record, single, text, whole
from shels.training.checkpoints import CHECK

Tensors = Mapping[str, Tensor]

# model.json -----------------------------------------------------------------------------------------------

_SHARE, _SECONDS = schema.number(0, 1), schema.number(0, 1e12)
_TAKEN_IN = record(
    {"class": schema.label, "images": whole(1), "method": text(), "seconds": _SECONDS}, others=schema.plain
)
_REPORT = record(
    {
        "training_samples": whole(1),
        "held_out_samples": whole(1),
        "best": CHECK,
        "checks": listed(CHECK, least=1),
        "stopped_early": schema.flag,
        "seconds": _SECONDS,
        "held_out": record({"acceptance": _SHARE, "closed_set_accuracy": _SHARE}, others=schema.plain),
        "held_out_acceptance": _SHARE,
        "exclusivity": _SHARE,
        "taken_in": listed(_TAKEN_IN),
    },
    optional={"last_change": record({"kind": text()}, others=schema.plain)},
    others=schema.plain,
)
_DIGEST = text("[0-9a-f]{64}")
_PARTS = ("network", "preparation", "detector", "memory", "projection")
_MOST = {"epochs": 10**5, "steps": 10**8, "projections": 2**15, "rectified": 2**14, "image_size": 2**13}
"""Whole numbers in settings that decide how long something takes or how much room it needs."""


def _settings(value: Any, where: str) -> None:
    """Check what no settings of ours go beyond; their own rules are checked when they are made."""
    schema.plain(value, where)
    for name, each in value.items() if isinstance(value, dict) else ():
        if isinstance(each, dict):
            _settings(each, f"{where}.{name}")
        elif isinstance(each, int):
            whole(0, _MOST.get(name, 10**7))(int(each), f"{where}.{name}")


DOCUMENT: schema.Check = record(
    {
        "shels_version": text(),
        "classes": listed(schema.label, least=2),
        "taught": listed(schema.or_none(schema.label), least=2),
        "thresholds": listed(schema.number(-3.5e38, 3.5e38), least=2),
        "settings": _settings,
        "seed": whole(0),
        "temperature": schema.number(1e-9, 1e9),  # what fitting it can come to
        "novel_label": schema.or_none(schema.label),
        "preparation": record({"shape": listed(whole(1, 2**16), least=1), "image_fit": text("resize|pad")}),
        "network": listed(schema.plain, least=1),
        "files": record({**dict.fromkeys(_PARTS, _DIGEST), "class": listed(_DIGEST)}),
        "report": _REPORT,
    },
    others=schema.plain,
)


def check_document(document: dict[str, Any]) -> None:
    """Raise unless model.json has every field with a value in its range, and its classes agree."""
    DOCUMENT(document, "model.json:")
    classes, taught = document["classes"], [name for name in document["taught"] if name is not None]
    thresholds, novel = document["thresholds"], document["novel_label"]
    if len(set(classes)) != len(classes) or len(thresholds) != len(classes):
        raise ModelFileError(f"model.json has {len(thresholds)} thresholds for the classes {classes}")
    if len(set(taught)) != len(taught) or not set(taught) <= set(classes):
        raise ModelFileError(f"model.json: taught must name classes, each once, got {taught}")
    if novel is not None and novel in classes:
        raise ModelFileError(f"model.json: novel_label {novel!r} is one of the classes")
    if math.prod(document["preparation"]["shape"]) > 2**26:
        raise ModelFileError("model.json: preparation.shape is more than any input has")


# Detectors ------------------------------------------------------------------------------------------------

_ONE = integers("")
_POSITIVE_ROWS = double("rows", schema.POSITIVE)


def _sums(width: str) -> dict[str, Spec]:
    """Classes as Gaussians of one covariance."""
    scatter = double(f"{width} {width}", schema.COVARIANCE)
    return {"counts": integers("first"), "means": double(f"first {width}"), "scatter": scatter}


def _with_later(width: str, prefix: str = "") -> dict[str, Spec]:
    """Give the same, and the means of classes that came later."""
    table = {**_sums(width), "added": double(f"later {width}")}
    return {prefix + name: spec for name, spec in table.items()}


def _fused() -> dict[str, Spec]:
    """Give what all the scores of one forward pass stand on, and the scores to compare with."""
    many = len(COMPONENTS)
    table = {"rows": single("classes high"), "weights": single(f"classes 2 {many}", schema.NOT_NEGATIVE)}
    table["by_class"] = single(f"classes {many} most-compared", schema.RISING)
    table["pooled"] = single(f"{many} all-compared", schema.RISING)
    for view in ("shared", "high"):
        kept = f"{view}-kept"
        table |= {
            f"{view}/centre": single(view),
            f"{view}/directions": single(f"{view} {kept}"),
            f"{view}/prior": double(f"{kept} {kept}", schema.DEFINITE),
            f"{view}/means": single(f"classes {kept}"),
            f"{view}/whitening": single(f"classes {kept} {kept}"),
            f"{view}/prototypes": single(f"classes prototypes {kept}"),
        }
    return table


SCORES: dict[str, Table] = {
    "react": {"clip": Spec("", schema.NOT_NEGATIVE)},
    "vim": {"origin": double("high"), "residual": double("high left"), "alpha": Spec("")},
    "fdbd": {"count": _ONE, "mean": double("high")},
    "knn": {"bank": single("* high")},
    "mahalanobis": _with_later("high"),
    "relative-mahalanobis": _with_later("high"),
    "mahalanobis-layers": {
        **_with_later("shared", "shared/"),
        **_with_later("high", "high/"),
        "usual": Spec("2 2"),
    },
    **dict.fromkeys(("fused", "fused-learned"), _fused()),
    "openmax": {"means": double("rows rows"), **dict.fromkeys(("shapes", "scales"), _POSITIVE_ROWS)},
}
"""What each score remembers; those that are not named remember nothing."""

_SHELS = {"thresholds": single("classes"), "calibration": single("classes most", schema.RISING_OFF_ZERO)}
_BESIDE_A_LEARNER = {
    "thresholds": single("classes"),
    "calibration": single("classes most", schema.RISING),
    "means": single("classes high"),
}
_PROJECTION: dict[str, Spec] = {"usual": Spec("2 2", schema.MEAN_AND_SD), "common": Spec("*")}
_CLASS: dict[str, Spec] = {}
for _view in ("shared", "high"):
    _PROJECTION |= {
        f"{_view}/centre": single(_view),
        f"{_view}/directions": single(f"{_view} {_view}-kept"),
        f"{_view}/prior": double(f"{_view}-near {_view}-near", schema.DEFINITE),
    }
    _CLASS |= {
        f"{_view}/count": _ONE,
        f"{_view}/mean": double(f"{_view}-kept"),
        f"{_view}/scatter": double(f"{_view}-kept {_view}-kept", schema.COVARIANCE),
    }


@dataclass(frozen=True, eq=False)
class Model:
    """What is known of a model once its network is, and what its other parts are checked against."""

    network: Network
    settings: Settings
    shape: tuple[int, ...]
    sizes: dict[str, int]

    @staticmethod
    def of(network: Network, settings: Settings, shape: tuple[int, ...], classes: int) -> Model:
        """Return the sizes that follow from a network, the shape of inputs and the number of classes."""
        after = [(1, *shape), *shapes(network.body, (1, *shape))]
        rows, high = network.head.weight.shape
        maps = after[network.shared_depth][1:]
        shared = maps[0] * math.prod(pooled_sides(maps)) if len(maps) == 3 else math.prod(maps)
        flat = math.prod(after[len(parts(network).shared)][1:])
        sizes = {"classes": classes, "rows": rows, "high": high, "shared": shared, "flat": flat}
        return Model(network, settings, shape, {**sizes, "inputs": shape[0]})

    def check(self, tensors: Tensors, table: Table, where: str, **more: int) -> dict[str, int]:
        """Raise unless tensors are as their table says; return all sizes that they have."""
        sizes = {**self.sizes, **more}
        check_tensors(tensors, table, sizes, f"the {where} file")
        return sizes

    @property
    def width(self) -> Spec:
        """The number of shared features, where a file repeats it."""
        return integers("", self.sizes["shared"], self.sizes["shared"])


def network_table(network: Network) -> dict[str, Spec]:
    """Return what the network's file must hold, from the network that model.json describes."""
    rules = {"running_var": schema.NOT_NEGATIVE, "sd": schema.POSITIVE, "spread": schema.POSITIVE}
    return {
        name: Spec(
            " ".join(map(str, value.shape)), rules.get(name.rsplit(".", 1)[-1], schema.FINITE), (value.dtype,)
        )
        for name, value in network.state_dict().items()
    }


def check_preparation(model: Model, tensors: Tensors) -> None:
    """Check what inputs are divided by, and the range of image statistics."""
    table = {"mean": single("inputs"), "sd": single("inputs", schema.POSITIVE)}
    table |= dict.fromkeys(("look/low", "look/high"), single("classes statistics"))
    for pair in (("mean", "sd"), ("look/low", "look/high")):  # each may be left out, both together
        if not tensors.keys() & set(pair):
            table = {name: spec for name, spec in table.items() if name not in pair}
    sizes = model.check(tensors, table, "preparation")
    if sizes.get("statistics", 0) not in ((0, 4) if len(model.shape) == 3 else (0,)):
        raise ModelFileError(f"the preparation file: {sizes['statistics']} statistics do not fit the inputs")
    if "look/low" in tensors and bool((tensors["look/low"] > tensors["look/high"]).any()):
        raise ModelFileError("the preparation file: look/low must not be over look/high")


def check_detector(model: Model, stored: StoredParts) -> None:
    """Check what tells known from novel, by the settings' kind of detector."""
    changing, fixed, sums = stored
    score, classes = score_name(model.settings), model.sizes["classes"]
    if not needs_memory(model.settings):
        _check_gaussians(model, stored)
        return
    table: dict[str, Spec] = dict(_SHELS)
    if score != OWN:
        table = {**_BESIDE_A_LEARNER, "among": integers("classes", 1, classes), "width": model.width}
        table |= {f"score/{name}": spec for name, spec in SCORES.get(score, {}).items()}
        weights = "score/weights"
        if weights in table and getattr(changing.get(weights), "ndim", 0) == 2:  # once the same for all
            table[weights] = replace(table[weights], dims=table[weights].dims.removeprefix("classes "))
    sizes = model.check(changing, table, "detector")
    if "first" in sizes and (sizes["first"] + sizes["later"] != classes or not sizes["first"]):
        raise ModelFileError(f"the detector file: {sizes['first']} and {sizes['later']} are not {classes}")
    model.check(fixed, {}, "projection")
    if sums:
        raise ModelFileError("model.json lists files of class sums, which belong to the Gaussian detector")


def _rectified(model: Model) -> int:
    """Return how many random, rectified projections name classes."""
    return int(getattr(model.settings.accommodation, "rectified", 0))


def _factored(many: int, prefix: str, *, classes: str = "") -> dict[str, Spec]:
    """Give the sums of a class on so many projections, or of classes beside each other."""
    table = {
        "count": integers(classes),
        "mean": single(f"{classes} {many}", schema.NOT_NEGATIVE),
        "factor": single(f"{classes} {rank_of(many)} {many}"),
        "residual": single(f"{classes} {many}", schema.NOT_NEGATIVE),
    }
    return {prefix + name: spec for name, spec in table.items()}


def _class_table(many: int) -> dict[str, Spec]:
    """Give what the file of one Gaussian holds."""
    if not many:
        return _CLASS
    near = {"shared/mean": double("shared-near")}
    near["shared/scatter"] = double("shared-near shared-near", schema.COVARIANCE)
    return {**_CLASS, **near, **_factored(many, "naming/")}


def _check_gaussians(model: Model, stored: StoredParts) -> None:
    (changing, fixed, sums), classes, many = stored, model.sizes["classes"], _rectified(model)
    table = {"owners": integers(str(len(sums)), 0, classes - 1)}
    for place in range(len(sums)):
        table[f"{place}/usual"] = Spec("2 2", schema.MEAN_AND_SD)
        table[f"{place}/calibration"] = Spec("*", schema.RISING)
        table[f"{place}/threshold"] = Spec("")
    if many:
        table |= {"naming/weights": single(f"{len(sums)} {many}"), "naming/offsets": single(str(len(sums)))}
    model.check(changing, table, "detector")
    if sorted(set(changing["owners"].tolist())) != list(range(classes)):
        raise ModelFileError(f"the detector file does not fit {classes} classes")
    sizes = model.check(fixed, {**_PROJECTION, "width": model.width}, "projection")
    for each in sums:
        check_tensors(each, _class_table(many), sizes, "a class file")
    if any(sizes[f"{view}-near"] > sizes[f"{view}-kept"] for view in ("shared", "high")):
        raise ModelFileError("the projection file: a prior does not fit its directions")


# What each way of taking in classes keeps -----------------------------------------------------------------


def check_memory(model: Model, memory: Tensors) -> None:
    """Check what the way of taking in classes keeps of the old ones."""
    method, classes = model.settings.accommodation, model.sizes["classes"]
    table = MEMORIES[method.kind] if needs_memory(model.settings) else {}
    table = table(model) if callable(table) else table
    model.check(memory, table, "memory", first=classes, width=_width(model))
    if "samples" in memory:
        buffered_samples(dict(memory), classes).require_every_class()
    if method_of(method).grows_head and model.sizes["rows"] != classes:
        raise ModelFileError(f"model.json: {classes} classes, but {model.sizes['rows']} were taught")


def _width(model: Model) -> int:
    """Return how many features a classifier in closed form stands on."""
    high = getattr(model.settings.accommodation, "features", "") == "high"
    return model.sizes["high" if high else "shared"]


def _units(network: Network, prefix: str, *, maps: bool = False) -> dict[str, Spec]:
    """Return the table of a value for each unit; maps: of a convolution's unit a whole map."""
    params = dict(network.named_parameters())
    layers = [(layer, params[layer.weight]) for layer in weight_layers(network)]
    dims = {each.inputs: f"{weight.shape[1]}" for each, weight in layers if each.inputs}  # flattened maps too
    for each, weight in layers:
        dims[each.units] = f"{len(weight)}{' * *' if maps and weight.ndim == 4 else ''}"
    return {prefix + name: single(dim, schema.NOT_NEGATIVE) for name, dim in dims.items() if name != HEAD}


def _penalty(model: Model) -> Table:
    maps = getattr(model.settings.accommodation, "importance", "mean") == "map-norm"
    return {"importance.count": _ONE, **_units(model.network, "importance.sum.", maps=maps)}


def _proximal(model: Model) -> Table:
    rank = rank_within(getattr(model.settings.accommodation, "rank", 1), model.sizes["flat"])
    return {
        "gaussian.mean": single("rows flat"),
        "gaussian.factor": single(f"rows {rank} flat"),
        "gaussian.residual": single("rows flat", schema.NOT_NEGATIVE),
        "gaussian.floor": single("rows", schema.NOT_POSITIVE),
        "gaussian.count": integers("rows"),
        **_units(parts(model.network).tail, "activation.", maps=True),
    }


def _buffer(model: Model) -> Table:
    dims = "kept inputs * *" if len(model.shape) == 3 else "kept inputs"
    samples = Spec(dims, schema.FINITE, (torch.uint8, torch.float32))
    return {"samples": samples, "labels": integers("kept", 0, model.sizes["classes"] - 1), "seen": _ONE}


def _ranpac(model: Model) -> Table:
    many, width = getattr(model.settings.accommodation, "projections", 0), _width(model)
    return {
        "gram": double(f"{many} {many}", schema.SYMMETRIC),  # its factor is taken on loading
        "sums": double(f"{many} classes"),
        "ridge": double("", schema.NOT_NEGATIVE),
        "width": integers("", width, width),
    }


def _ewc(model: Model) -> Table:
    weights = network_table(model.network).items()
    return {f"fisher/{name}": single(spec.dims, schema.NOT_NEGATIVE) for name, spec in weights}


def _gaussian(model: Model) -> Table:
    many = _rectified(model)
    own = {"mean": double("classes kept"), "scatter": double("classes kept kept", schema.COVARIANCE)}
    own = _factored(many, "", classes="classes") if many else {"count": integers("classes"), **own}
    return {"centre": single("shared"), "directions": single("shared kept"), **own}


MEMORIES: dict[str, Table | Callable[[Model], Table]] = {
    "gaussian": _gaussian,
    "proximal": _proximal,
    "penalty": _penalty,
    "maha": _sums("width"),
    "slda": _sums("width"),
    "fecam": {
        "mean": single("classes width", schema.NOT_NEGATIVE),
        "covariance": single("classes width width", schema.COVARIANCE),
    },
    "ranpac": _ranpac,
    "ags-cl": lambda model: {"lessons": integers("", 0), **_units(model.network, "importance/")},
    "ewc": _ewc,
    "lwf": {},
    "fine-tune": {},
    "joint": _buffer,
    "gdumb": _buffer,
    "shels-gdumb": lambda model: {**_buffer(model), **_penalty(model)},
}
"""What each learner remembers, by its kind."""
