"""What a saved detector holds, by the score that it judges by; see `tables` for the symbols."""

from __future__ import annotations

from dataclasses import replace

from shels import schema
from shels.config import OWN
from shels.detection.familiarity import COMPONENTS
from shels.detection.protocol import StoredParts
from shels.errors import ModelFileError
from shels.learner.pairing import needs_memory, score_name
from shels.learner.tables import ONE, Model, class_sums, factored, rectified_of
from shels.schema import Spec, Table, check_tensors, double, integers, single

_POSITIVE_ROWS = double("rows", schema.POSITIVE)


def _with_later(width: str, prefix: str = "") -> dict[str, Spec]:
    """Give the same, and the means of classes that came later."""
    table = {**class_sums(width), "added": double(f"later {width}")}
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
    "fdbd": {"count": ONE, "mean": double("high")},
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
        f"{_view}/count": ONE,
        f"{_view}/mean": double(f"{_view}-kept"),
        f"{_view}/scatter": double(f"{_view}-kept {_view}-kept", schema.COVARIANCE),
    }


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


def _class_table(many: int) -> dict[str, Spec]:
    """Give what the file of one Gaussian holds."""
    if not many:
        return _CLASS
    near = {"shared/mean": double("shared-near")}
    near["shared/scatter"] = double("shared-near shared-near", schema.COVARIANCE)
    return {**_CLASS, **near, **factored(many, "naming/")}


def _check_gaussians(model: Model, stored: StoredParts) -> None:
    (changing, fixed, sums), classes, many = stored, model.sizes["classes"], rectified_of(model)
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
