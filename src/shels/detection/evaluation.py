"""What verdicts and features come to: measures, class by class too, and how exclusive the classes are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from shels.data.samples import Label
from shels.detection import metrics
from shels.detection.calibration import Verdicts
from shels.detection.scores.shels import signatures


def measures_of(
    known: Verdicts,
    labels: Tensor,
    classes: Sequence[Label],
    novel: Verdicts | None = None,
    novel_labels: Tensor | None = None,
    novel_classes: Sequence[Label] = (),
) -> dict[str, Any]:
    """Return the measures of verdicts on samples of known classes and on samples of others, class by class.

    labels: (n,) positions in `classes`, and of the novel samples in `novel_classes`.
    """
    mine = _arrays(known)
    others = _arrays(novel) if novel is not None else None
    truth, empty = labels.cpu().numpy(), np.zeros(0)
    out: dict[str, Any] = metrics.open_set_measures(
        truth,
        mine["predicted"],
        mine["novel"],
        mine["score"],
        novel_judged=others["novel"] if others else empty,
        novel_scores=others["score"] if others else empty,
    )
    right = ~mine["novel"] & (mine["predicted"] == truth)
    out["per_class"] = _rates(truth, classes, accepted=~mine["novel"], right=right)
    if others and novel_labels is not None:
        out["per_novel_class"] = _rates(novel_labels.cpu().numpy(), novel_classes, rejected=others["novel"])
    return out


def _arrays(verdicts: Verdicts) -> dict[str, np.ndarray[Any, Any]]:
    names = ("predicted", "score", "threshold", "p_value", "novel")
    return {name: getattr(verdicts, name).cpu().numpy() for name in names}


def _rates(
    labels: np.ndarray[Any, Any], classes: Sequence[Label], **marks: np.ndarray[Any, Any]
) -> dict[str, dict[str, float]]:
    """Return, for each class that has samples, their count and the share under each mark."""
    out: dict[str, dict[str, float]] = {}
    for position, name in enumerate(classes):
        mine = labels == position
        if mine.any():
            out[str(name)] = {"samples": int(mine.sum())} | {
                k: float(v[mine].mean()) for k, v in marks.items()
            }
    return out


def exclusivity(weights: Tensor, features: Tensor, labels: Tensor) -> np.ndarray[Any, Any]:
    """Return the exclusivity of each two classes' features: (classes, classes)."""
    means = signatures(features, labels, len(weights))
    return metrics.exclusivity(metrics.active_features(means.cpu().numpy(), weights.cpu().numpy()))
