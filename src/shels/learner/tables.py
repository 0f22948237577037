"""What a saved model is checked against once its network is known, for the tables of its parts.

Symbols: classes, all that the learner knows; rows, those of the head; high and shared, the widths of both
kinds of features; flat, that of the features which replay draws; inputs, the first dimension of an input.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from shels import schema
from shels.config import Settings
from shels.detection.rectified import rank_of
from shels.errors import ModelFileError
from shels.learning.protection import parts
from shels.model.chains import shapes
from shels.model.networks import Network, pooled_sides
from shels.schema import Spec, Table, check_tensors, double, integers, single

Tensors = Mapping[str, Tensor]
ONE = integers("")


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


def class_sums(width: str) -> dict[str, Spec]:
    """Classes as Gaussians of one covariance."""
    scatter = double(f"{width} {width}", schema.COVARIANCE)
    return {"counts": integers("first"), "means": double(f"first {width}"), "scatter": scatter}


def rectified_of(model: Model) -> int:
    """Return how many random, rectified projections name classes."""
    return int(getattr(model.settings.accommodation, "rectified", 0))


def factored(many: int, prefix: str, *, classes: str = "") -> dict[str, Spec]:
    """Give the sums of a class on so many projections, or of classes beside each other."""
    table = {
        "count": integers(classes),
        "mean": single(f"{classes} {many}", schema.NOT_NEGATIVE),
        "factor": single(f"{classes} {rank_of(many)} {many}"),
        "residual": single(f"{classes} {many}", schema.NOT_NEGATIVE),
    }
    return {prefix + name: spec for name, spec in table.items()}
