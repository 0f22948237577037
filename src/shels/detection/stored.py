"""Detectors as tensors, by the file that each part goes to, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from shels.config import ThresholdRule
from shels.detection.gaussians import Projection, Sums
from shels.detection.scores.gaussian import GaussianDetector, Part
from shels.detection.scores.shels import Detector

Tensors = dict[str, Tensor]
_VIEWS = ("shared", "high")


def parts_of(detector: Detector | GaussianDetector) -> tuple[Tensors, Tensors, list[Tensors]]:
    """Return what changes with each class, what never does, and the sums of each Gaussian."""
    if isinstance(detector, Detector):
        return {"thresholds": detector.thresholds, "calibration": detector.calibration}, {}, []
    changing = {"owners": torch.tensor([part.owner for part in detector.parts])}
    for place, part in enumerate(detector.parts):
        numbers = {"usual": part.usual, "calibration": part.calibration, "threshold": part.threshold}
        changing |= {f"{place}/{name}": value.clone() for name, value in numbers.items()}  # views of others
    fixed = {"usual": detector.usual, "common": detector.common, "width": torch.tensor(detector.width)}
    for view, projection, prior in zip(_VIEWS, detector.projections, detector.priors, strict=True):
        fixed |= {f"{view}/centre": projection.centre, f"{view}/directions": projection.directions}
        fixed[f"{view}/prior"] = prior
    return changing, fixed, [_sums_tensors(part) for part in detector.parts]


def shels_detector(changing: Tensors, weights: Tensor, rule: ThresholdRule) -> Detector:
    """Return SHELS's detector from its tensors and the head's weights."""
    detector = Detector(weights, rule)
    detector.thresholds = changing["thresholds"].to(weights.device)
    detector.calibration = changing["calibration"].to(weights.device)
    return detector


def gaussian_detector(
    changing: Tensors, fixed: Tensors, sums: Sequence[Tensors], rule: ThresholdRule, device: torch.device
) -> GaussianDetector:
    """Return the Gaussian detector from its tensors."""
    changing, fixed = _moved(changing, device), _moved(fixed, device)
    owners = changing["owners"].tolist()
    parts = [_part(owner, place, changing, _moved(sums[place], device)) for place, owner in enumerate(owners)]
    projections = [Projection(fixed[f"{view}/centre"], fixed[f"{view}/directions"]) for view in _VIEWS]
    priors = [fixed[f"{view}/prior"] for view in _VIEWS]
    return GaussianDetector(
        rule=rule,
        width=int(fixed["width"]),
        projections=(projections[0], projections[1]),
        priors=(priors[0], priors[1]),
        usual=fixed["usual"],
        common=fixed["common"],
        parts=tuple(parts),
    )


def _sums_tensors(part: Part) -> Tensors:
    out: Tensors = {}
    for view, sums in zip(_VIEWS, (part.shared, part.high), strict=True):
        out |= {f"{view}/count": torch.tensor(sums.count), f"{view}/mean": sums.mean}
        out[f"{view}/scatter"] = sums.scatter
    return out


def _part(owner: int, place: int, changing: Tensors, sums: Tensors) -> Part:
    pair = [Sums(int(sums[f"{v}/count"]), sums[f"{v}/mean"], sums[f"{v}/scatter"]) for v in _VIEWS]
    return Part(
        owner=owner,
        shared=pair[0],
        high=pair[1],
        usual=changing[f"{place}/usual"],
        calibration=changing[f"{place}/calibration"],
        threshold=changing[f"{place}/threshold"],
    )


def _moved(tensors: Mapping[str, Tensor], device: torch.device) -> Tensors:
    return {name: value.to(device) for name, value in tensors.items()}
