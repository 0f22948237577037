"""What each way of taking in classes keeps of the old ones; see `tables` for the symbols."""

from __future__ import annotations

from collections.abc import Callable

import torch

from shels import schema
from shels.errors import ModelFileError
from shels.learner.pairing import needs_memory
from shels.learner.tables import ONE, Model, Tensors, class_sums, factored, network_table, rectified_of
from shels.learning.gaussian_replay import rank_within
from shels.learning.protection import parts
from shels.learning.registry import method_of
from shels.learning.replay_buffer import buffered_samples
from shels.model.activations import HEAD, weight_layers
from shels.model.networks import Network
from shels.schema import Spec, Table, double, integers, single


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
    return {"importance.count": ONE, **_units(model.network, "importance.sum.", maps=maps)}


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
    return {"samples": samples, "labels": integers("kept", 0, model.sizes["classes"] - 1), "seen": ONE}


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
    many = rectified_of(model)
    own = {"mean": double("classes kept"), "scatter": double("classes kept kept", schema.COVARIANCE)}
    own = factored(many, "", classes="classes") if many else {"count": integers("classes"), **own}
    return {"centre": single("shared"), "directions": single("shared kept"), **own}


MEMORIES: dict[str, Table | Callable[[Model], Table]] = {
    "gaussian": _gaussian,
    "proximal": _proximal,
    "penalty": _penalty,
    "maha": class_sums("width"),
    "slda": class_sums("width"),
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
