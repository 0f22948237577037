"""What a saved model holds: the table of each part, for the one checker.

Symbols: classes, all that the learner knows; rows, those of the head; high and shared, the widths of both
kinds of features; inputs, the first dimension of an input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from shels.config import OWN, Gaussian, Settings
from shels.errors import ModelFileError
from shels.learner.pairing import score_name
from shels.learning.protection import parts
from shels.learning.registry import method_of
from shels.learning.replay_buffer import kept_samples
from shels.model.activations import HEAD, weight_layers
from shels.model.chains import shapes
from shels.model.networks import Network, pooled_sides
from shels.schema import (
    COVARIANCE,
    DEFINITE,
    FINITE,
    MEAN_AND_SD,
    NOT_NEGATIVE,
    NOT_POSITIVE,
    PIXELS,
    POSITIVE,
    RISING,
    RISING_OFF_ZERO,
    SINGLE,
    SYMMETRIC,
    WHOLE,
    Check,
    Spec,
    Table,
    between,
    check_tensors,
    flag,
    label,
    listed,
    number,
    or_none,
    plain,
    record,
    text,
    whole,
)

Tensors = Mapping[str, Tensor]

# model.json -----------------------------------------------------------------------------------------------

_LOSS, _SHARE, _SECONDS = number(-1e30, 1e30), number(0, 1), number(0, 1e12)
CHECK = record(
    {
        "step": whole(0),
        "epoch": number(0, 1e12),
        "training_loss": _LOSS,
        "validation_loss": or_none(_LOSS),
        "validation_accuracy": or_none(_SHARE),
    }
)
_TAKEN_IN = record({"class": label, "images": whole(1), "method": text(), "seconds": _SECONDS}, others=plain)
_REPORT = record(
    {
        "training_samples": whole(1),
        "held_out_samples": whole(1),
        "best": CHECK,
        "checks": listed(CHECK, least=1),
        "stopped_early": flag,
        "seconds": _SECONDS,
        "held_out_acceptance": _SHARE,
        "exclusivity": _SHARE,
        "taken_in": listed(_TAKEN_IN),
    },
    optional={"last_change": record({"kind": text()}, others=plain)},
    others=plain,
)
_DIGEST = text("[0-9a-f]{64}")
_PARTS = ("network", "preparation", "detector", "memory", "projection")
_SETTING_LIMITS = {"epochs": 10**5, "steps": 10**8, "projections": 2**15, "image_size": 2**13}
"""Of whole numbers in settings, where they decide how long something takes or how much room it needs."""
_MOST_SETTING = 10**7


def _settings(value: Any, where: str) -> None:
    """Check what no settings of ours go beyond; their own rules are checked when they are made."""
    plain(value, where)
    for name, each in value.items() if isinstance(value, dict) else ():
        if isinstance(each, dict):
            _settings(each, f"{where}.{name}")
        elif isinstance(each, int):
            whole(0, _SETTING_LIMITS.get(name, _MOST_SETTING))(int(each), f"{where}.{name}")


DOCUMENT: Check = record(
    {
        "shels_version": text(),
        "classes": listed(label, least=2),
        "taught": listed(or_none(label), least=2),
        "thresholds": listed(number(-3.5e38, 3.5e38), least=2),
        "settings": _settings,
        "seed": whole(0),
        "temperature": number(1e-9, 1e9),  # what fitting it can come to
        "novel_label": or_none(label),
        "preparation": record({"shape": listed(whole(1, 2**16), least=1), "image_fit": text("resize|pad")}),
        "network": listed(plain, least=1),
        "files": record({**dict.fromkeys(_PARTS, _DIGEST), "class": listed(_DIGEST)}),
        "report": _REPORT,
    },
    others=plain,
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


# Tensors --------------------------------------------------------------------------------------------------

_COUNT, _ONE = between(1, 2**53), Spec("", between(1, 2**53), WHOLE)
_SUMS = {
    "counts": Spec("first", _COUNT, WHOLE),
    "means": Spec("first width"),
    "scatter": Spec("width width", COVARIANCE),
}
_TIED = {**_SUMS, "added": Spec("later width")}


def _under(prefix: str, table: Table, **symbols: str) -> dict[str, Spec]:
    """Return a table whose names begin with a prefix, some of its symbols called otherwise."""
    out = {}
    for name, spec in table.items():
        dims = " ".join(symbols.get(dim, dim) for dim in spec.dims.split())
        out[prefix + name] = Spec(dims, spec.rule, spec.kinds)
    return out


SCORES: dict[str, Table] = {
    "react": {"clip": Spec("", NOT_NEGATIVE)},
    "vim": {"origin": Spec("high"), "residual": Spec("high left"), "alpha": Spec("")},
    "fdbd": {"count": _ONE, "mean": Spec("high")},
    "knn": {"bank": Spec("stored high", kinds=SINGLE)},
    "mahalanobis": _under("", _TIED, width="high"),
    "relative-mahalanobis": _under("", _TIED, width="high"),
    "mahalanobis-layers": {
        **_under("shared/", _TIED, width="shared"),
        **_under("high/", _TIED, width="high"),
        "usual": Spec("2 2"),
    },
    "openmax": {
        "means": Spec("rows rows"),
        "shapes": Spec("rows", POSITIVE),
        "scales": Spec("rows", POSITIVE),
    },
}
"""What each score remembers; those that are not named remember nothing."""

_LIMITS = {"thresholds": Spec("classes"), "calibration": Spec("classes most", RISING)}
_SHELS = {"thresholds": Spec("classes"), "calibration": Spec("classes most", RISING_OFF_ZERO)}
_GAUSSIANS = {
    f"{view}/{name}": spec
    for view in ("shared", "high")
    for name, spec in {
        "centre": Spec(view),
        "directions": Spec(f"{view} {view}-kept"),
        "prior": Spec(f"{view}-near {view}-near", DEFINITE),
    }.items()
}
_CLASS_SUMS = {
    f"{view}/{name}": spec
    for view in ("shared", "high")
    for name, spec in {
        "count": _ONE,
        "mean": Spec(f"{view}-kept"),
        "scatter": Spec(f"{view}-kept {view}-kept", COVARIANCE),
    }.items()
}
_BUFFER = {"labels": Spec("kept", between(0, 2**31), WHOLE), "seen": _ONE}
_REPLAY = {
    "gaussian.mean": Spec("rows flat"),
    "gaussian.factor": Spec("rows rank flat"),
    "gaussian.residual": Spec("rows flat", NOT_NEGATIVE),
    "gaussian.floor": Spec("rows", NOT_POSITIVE),
    "gaussian.count": Spec("rows", _COUNT, WHOLE),
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


def network_table(network: Network) -> Table:
    """Return what the network's file must hold, from the network that model.json describes."""
    values = network.state_dict().items()
    return {name: Spec(" ".join(map(str, value.shape)), FINITE, SINGLE) for name, value in values}


def check_preparation(model: Model, tensors: Tensors) -> None:
    """Check what inputs are divided by, and the range of image statistics."""
    pairs = (("mean", "sd"), ("look/low", "look/high"))
    specs = {"mean": Spec("inputs"), "sd": Spec("inputs", POSITIVE)}
    specs |= dict.fromkeys(pairs[1], Spec("classes statistics"))
    wanted = [name for pair in pairs if set(pair) & set(tensors) for name in pair]
    sizes = model.check(tensors, {name: specs[name] for name in wanted}, "preparation")
    if sizes.get("statistics", 0) not in ((0, 4) if len(model.shape) == 3 else (0,)):
        raise ModelFileError(f"the preparation file: {sizes['statistics']} statistics do not fit the inputs")
    if "look/low" in tensors and bool((tensors["look/low"] > tensors["look/high"]).any()):
        raise ModelFileError("the preparation file: look/low must not be over look/high")


def check_detector(model: Model, changing: Tensors, fixed: Tensors, sums: list[dict[str, Tensor]]) -> None:
    """Check what tells known from novel, by the settings' kind of detector."""
    score = score_name(model.settings)
    if score == OWN and isinstance(model.settings.accommodation, Gaussian):
        _check_gaussians(model, changing, fixed, sums)
        return
    classes, shared = model.sizes["classes"], model.sizes["shared"]
    table = dict(_SHELS)
    if score != OWN:
        remembered = _under("score/", SCORES.get(score, {}))
        counts = {"among": Spec("classes", between(1, classes), WHOLE)}
        width = {"width": Spec("", between(shared, shared), WHOLE)}
        table = {**_LIMITS, **counts, **width, "means": Spec("classes high"), **remembered}
    sizes = model.check(changing, table, "detector")
    if "first" in sizes and sizes["first"] + sizes["later"] != classes:
        raise ModelFileError(f"the detector file: {sizes['first']} and {sizes['later']} are not {classes}")
    if 0 in (sizes.get("first", 1), sizes.get("stored", 1)):
        raise ModelFileError("the detector file: nothing is remembered in it")
    model.check(fixed, {}, "projection")
    if sums:
        raise ModelFileError("model.json lists files of class sums, which belong to the Gaussian detector")


def _check_gaussians(model: Model, changing: Tensors, fixed: Tensors, sums: list[dict[str, Tensor]]) -> None:
    classes, shared = model.sizes["classes"], model.sizes["shared"]
    table: dict[str, Spec] = {"owners": Spec(str(len(sums)), between(0, classes - 1), WHOLE)}
    for place in range(len(sums)):
        table[f"{place}/usual"] = Spec("2 2", MEAN_AND_SD)
        table[f"{place}/calibration"] = Spec("*", RISING)
        table[f"{place}/threshold"] = Spec("")
    model.check(changing, table, "detector")
    if sorted(set(changing["owners"].tolist())) != list(range(classes)):
        raise ModelFileError(f"the detector file does not fit {classes} classes")
    width = Spec("", between(shared, shared), WHOLE)
    rest = {"usual": Spec("2 2", MEAN_AND_SD), "common": Spec("*"), "width": width}
    sizes = model.check(fixed, _GAUSSIANS | rest, "projection")
    for each in sums:
        check_tensors(each, _CLASS_SUMS, sizes, "a class file")
    for view in ("shared", "high"):
        if not 0 < sizes[f"{view}-near"] <= sizes[f"{view}-kept"]:
            raise ModelFileError(f"the projection file: {view}/prior does not fit {view}/directions")


# What each way of taking in classes keeps -----------------------------------------------------------------


def check_memory(model: Model, memory: Tensors) -> None:
    """Check what the way of taking in classes keeps of the old ones."""
    method = model.settings.accommodation
    if score_name(model.settings) == OWN and isinstance(method, Gaussian):
        model.check(memory, {}, "memory")
        return
    where = getattr(method, "features", "shared")
    width = model.sizes["high" if where == "high" else "shared"]
    first = model.sizes["classes"]
    table = _MEMORIES[method.kind]
    model.check(memory, table(model) if callable(table) else table, "memory", width=width, first=first)
    if "samples" in memory:
        kept = kept_samples(dict(memory), first)  # refuses inputs and labels that cannot be used
        kept.require_every_class()
    if method_of(method).grows_head and model.sizes["rows"] != first:
        raise ModelFileError(f"model.json: {first} classes, but {model.sizes['rows']} were taught")


def _units(network: Network, prefix: str, *, maps: bool) -> dict[str, Spec]:
    """Return the table of a value for each unit; maps: of a convolution's unit a whole map."""
    out = {}
    layers = weight_layers(network)
    params = dict(network.named_parameters())
    counts = {layer.units: len(params[layer.weight]) for layer in layers if layer.units != HEAD}
    for layer in layers:
        if layer.inputs is not None and layer.inputs not in counts:  # flattened maps
            counts[layer.inputs] = params[layer.weight].shape[1]
    for name, count in counts.items():
        spread = maps and any(l.units == name and params[l.weight].ndim == 4 for l in layers)  # noqa: E741
        out[prefix + name] = Spec(f"{count}{' * *' if spread else ''}", NOT_NEGATIVE, SINGLE)
    return out


def _penalty(model: Model) -> Table:
    maps = getattr(model.settings.accommodation, "importance", "mean") == "map-norm"
    return {"importance.count": _ONE, **_units(model.network, "importance.sum.", maps=maps)}


def _proximal(model: Model) -> Table:
    return {**_REPLAY, **_units(parts(model.network).tail, "activation.", maps=True)}


def _buffer(model: Model) -> Table:
    sides = "* *" if len(model.shape) == 3 else ""
    return {**_BUFFER, "samples": Spec(f"kept inputs {sides}", FINITE, PIXELS)}


def _ewc(model: Model) -> Table:
    named = network_table(model.network).items()
    return {f"fisher/{name}": Spec(spec.dims, NOT_NEGATIVE, SINGLE) for name, spec in named}


def _ranpac(model: Model) -> Table:
    many = model.settings.accommodation.projections  # type: ignore[union-attr]
    where = getattr(model.settings.accommodation, "features", "shared")
    width = between(model.sizes[where], model.sizes[where])
    gram = {"gram": Spec(f"{many} {many}", SYMMETRIC), "sums": Spec(f"{many} classes")}
    return {**gram, "ridge": Spec("", NOT_NEGATIVE), "width": Spec("", width, WHOLE)}


_MEMORIES: dict[str, Table | Callable[[Model], Table]] = {
    "gaussian": {
        "centre": Spec("shared"),
        "directions": Spec("shared kept"),
        "count": Spec("classes", _COUNT, WHOLE),
        "mean": Spec("classes kept"),
        "scatter": Spec("classes kept kept", COVARIANCE),
    },
    "proximal": _proximal,
    "penalty": _penalty,
    "maha": _SUMS,
    "slda": _SUMS,
    "fecam": {
        "mean": Spec("classes width", NOT_NEGATIVE),
        "covariance": Spec("classes width width", COVARIANCE),
    },
    "ranpac": _ranpac,
    "ags-cl": lambda model: {
        "lessons": Spec("", between(0, 2**53), WHOLE),
        **_units(model.network, "importance/", maps=False),
    },
    "ewc": _ewc,
    "lwf": {},
    "fine-tune": {},
    "joint": _buffer,
    "gdumb": _buffer,
    "shels-gdumb": lambda model: {**_buffer(model), **_penalty(model)},
}
