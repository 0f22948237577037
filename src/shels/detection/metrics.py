"""How well known and novel are separated and known classes told apart, class by class too."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from shels.data.samples import Label
from shels.detection.calibration import Verdicts

Array = NDArray[Any]


def evaluated(
    known: Verdicts,
    labels: Tensor,
    classes: Sequence[Label],
    novel: Verdicts | None = None,
    novel_labels: Tensor | None = None,
    novel_classes: Sequence[Label] = (),
) -> dict[str, Any]:
    """Measure verdicts on samples of known classes and on samples of others, class by class too.

    labels: (n,) positions in `classes`, and of the novel samples in `novel_classes`.
    """
    predicted, score, rejected = (_array(each) for each in (known.predicted, known.score, known.novel))
    truth, others, their_scores = _array(labels), np.zeros(0), np.zeros(0)
    if novel is not None:
        others, their_scores = _array(novel.novel), _array(novel.score)
    out: dict[str, Any] = open_set_measures(
        truth, predicted, rejected, score, novel_judged=others, novel_scores=their_scores
    )
    right = ~rejected & (predicted == truth)
    out["per_class"] = _rates(truth, classes, accepted=~rejected, right=right)
    if novel is not None and novel_labels is not None:
        out["per_novel_class"] = _rates(_array(novel_labels), novel_classes, rejected=others)
    return out


def _array(values: Tensor) -> Array:
    return np.asarray(values.cpu())


def _rates(labels: Array, classes: Sequence[Label], **marks: Array) -> dict[str, dict[str, float]]:
    """Count the samples of each class that has some, and give their share under each mark."""
    out: dict[str, dict[str, float]] = {}
    for position, name in enumerate(classes):
        mine = labels == position
        if mine.any():
            shares = {mark: float(values[mine].mean()) for mark, values in marks.items()}
            out[str(name)] = {"samples": int(mine.sum())} | shares
    return out


def open_set_measures(
    labels: Array, predicted: Array, novel: Array, scores: Array, *, novel_judged: Array, novel_scores: Array
) -> dict[str, float]:
    """Return the paper's measures over samples of known classes and samples of novel ones, fractions 0-1.

    labels, predicted, novel, scores: (n,) of the known samples; novel_judged, novel_scores: (m,) of the novel
    ones. Scores: higher is more familiar. Where there is no novel sample, what needs one is left out.
    """
    right = predicted == labels
    out = {"closed_set_accuracy": float(right.mean()), "known_accuracy": float((right & ~novel).mean())}
    out["acceptance"] = float((~novel).mean())
    if len(novel_scores):
        out["novel_accuracy"] = float(novel_judged.mean())
        out["combined_accuracy"] = (out["known_accuracy"] + out["novel_accuracy"]) / 2
        out |= separation(scores, novel_scores)
    return out


def separation(known: Array, novel: Array) -> dict[str, float]:
    """Return how well scores alone separate known from novel, whatever the threshold.

    fpr95: share of novel samples accepted where 95 % of the known ones are. aupr_known and aupr_novel: area
    under precision and recall with that side as the one sought. A score that is no number counts as lowest.
    All from one sort: experiments ask for this thousands of times, and a library sorts for each anew.
    """
    accepted_known, accepted_novel = _accepted(known, novel)
    true, false = accepted_known / len(known), accepted_novel / len(novel)
    heights = (true + np.concatenate([[0.0], true[:-1]])) / 2
    return {
        "auroc": float((np.diff(false, prepend=0.0) * heights).sum()),
        "fpr95": float(false[np.argmax(true >= 0.95)]),
        "aupr_known": _precision(accepted_known, accepted_novel),
        "aupr_novel": _precision(_reversed(accepted_novel), _reversed(accepted_known)),
    }


def _accepted(known: Array, novel: Array) -> tuple[Array, Array]:
    """Return how many known and novel samples score so high or higher, at each score from the highest."""
    scores = np.concatenate([known, novel]).astype(np.float64)
    scores = np.nan_to_num(scores, nan=np.finfo(np.float64).min)
    order = np.argsort(-scores, kind="stable")
    last = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)  # of samples that score alike
    count = np.cumsum(order < len(known))[last]
    return count, last + 1 - count


def _reversed(accepted: Array) -> Array:
    """Return how many samples score so low or lower, at each score from the lowest."""
    return np.asarray(accepted[-1] - np.concatenate([[0], accepted[:-1]])[::-1])


def _precision(found: Array, wrong: Array) -> float:
    """Return the average precision, over steps of recall, as more and more samples are taken."""
    return float((np.diff(found, prepend=0) * found / (found + wrong)).sum() / found[-1])


def adjusted_mutual_information(truth: Sequence[Label], named: Sequence[Label]) -> float:
    """Tell how far the names given to samples divide them as their true classes do, whatever the names are.

    1: exactly so; 0: as chance would (Vinh, Epps, Bailey, JMLR 2010; the arithmetic mean of the entropies).

    >>> adjusted_mutual_information([3, 3, 8, 8], ["a", "a", "b", "b"])
    1.0
    """
    from sklearn.metrics import adjusted_mutual_info_score  # noqa: PLC0415

    places = [{name: place for place, name in enumerate(dict.fromkeys(each))} for each in (truth, named)]
    true, given = ([place[name] for name in each] for place, each in zip(places, (truth, named), strict=True))
    return float(adjusted_mutual_info_score(true, given))
