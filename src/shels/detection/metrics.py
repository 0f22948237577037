"""Measures: how well known and novel are separated, class by class too, and how exclusive features are."""

from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, bincount

from shels.data.samples import Label
from shels.detection.calibration import Verdicts

Array = NDArray[Any]


@dataclass(frozen=True)
class Measure:
    """What a figure of a trial or an evaluation is called and means: a fraction 0-1, unless it counts.

    key: its name in records and files. heading: over a column; title: in a row of its own; meaning: one line.
    learning: heading and title where classes are learned one by one, if they differ there.
    percent: whether people see it in per cent. counts: whether it is no fraction but a number of things.
    higher_is_better: else the lowest is best.
    in_detection, in_learning, in_open_world: whether the overview tables of such experiments show it.
    """

    key: str
    heading: str
    title: str
    meaning: str
    learning: tuple[str, str] = ("", "")
    percent: bool = True
    counts: bool = False
    higher_is_better: bool = True
    in_detection: bool = False
    in_learning: bool = False
    in_open_world: bool = False

    def heading_in(self, *, learning: bool) -> str:
        """Name the column of a detection or of a learning experiment.

        >>> MEASURES["known_accuracy"].heading_in(learning=True)
        'with rejection'
        """
        return (learning and self.learning[0]) or self.heading

    def title_in(self, *, learning: bool) -> str:
        """Name the row of a detection or of a learning experiment."""
        return (learning and self.learning[1]) or self.title


MEASURES: dict[str, Measure] = {
    measure.key: measure
    for measure in (
        Measure(
            "closed_set_accuracy",
            "closed set",
            "closed-set accuracy",
            "right class, were nothing ever rejected",
            learning=("final", "final accuracy"),
            in_learning=True,
            in_open_world=True,
        ),
        Measure(
            "acceptance",
            "accepted",
            "known samples accepted",
            "known samples accepted, right or not",
            learning=("accepted", "accepted"),
        ),
        Measure("first_accuracy", "first", "first classes", "right class, of the classes known at first"),
        Measure(
            "added_accuracy",
            "added",
            "accuracy of added classes",
            "right class, of the classes taken in, each counted alike",
            in_learning=True,
        ),
        Measure(
            "forgetting",
            "forgetting",
            "forgetting",
            "lost of the best accuracy that each class ever had",
            higher_is_better=False,
            in_learning=True,
        ),
        Measure(
            "known_accuracy",
            "known",
            "known accuracy",
            "known samples accepted and right",
            learning=("with rejection", "accuracy with rejection"),
            in_detection=True,
            in_learning=True,
            in_open_world=True,
        ),
        Measure(
            "novel_accuracy",
            "novel",
            "novel accuracy",
            "novel samples rejected",
            learning=("next rejected", "next rejected"),
            in_detection=True,
        ),
        Measure(
            "combined_accuracy",
            "combined",
            "combined accuracy",
            "mean of known and novel accuracy",
            learning=("combined", "combined"),
            in_detection=True,
        ),
        Measure(
            "auroc",
            "AUROC",
            "AUROC",
            "known separated from novel by score; 50 % is chance",
            percent=False,
            in_detection=True,
            in_learning=True,
        ),
        Measure(
            "fpr95",
            "FPR at 95 %",
            "novel accepted where 95 % of known are",
            "novel accepted where 95 % of known are",
            learning=("next at 95 %", "next at 95 %"),
            higher_is_better=False,
        ),
        Measure("aupr_known", "AUPR known", "aupr known", "area under precision and recall of known samples"),
        Measure("aupr_novel", "AUPR novel", "aupr novel", "area under precision and recall of novel samples"),
        Measure(
            "exclusivity",
            "exclusivity",
            "exclusivity",
            "features that stand for one of two classes alone, mean over all pairs",
            percent=False,
        ),
        Measure(
            "exclusivity_by_firing",
            "exclusivity by firing",
            "exclusivity by firing",
            "the same where a feature stands for every class that it fires on, whatever its weight",
            percent=False,
        ),
        Measure(
            "novel_accuracy_by_class",
            "novel by class",
            "novel accuracy by class",
            "novel samples rejected, each class counted alike",
        ),
        Measure(
            "held_out_acceptance",
            "held-out accepted",
            "held out acceptance",
            "held-out samples of known classes accepted",
        ),
        Measure(
            "found_share",
            "found",
            "novel classes found",
            "novel classes that an agent took in",
            in_open_world=True,
        ),
        Measure(
            "batches_to_detection",
            "batches",
            "batches until detection",
            "batches with a novel class until it was taken in, mean over the novel classes; 1 is at first "
            "sight, and a class never taken in counts as one batch more than showed it",
            percent=False,
            counts=True,
            higher_is_better=False,
            in_open_world=True,
        ),
        Measure(
            "false_alarms_per_1000",
            "alarms per 1,000",
            "false alarms per 1,000 known samples",
            "alarms on batches of known classes alone, for each 1,000 samples in such batches",
            percent=False,
            counts=True,
            higher_is_better=False,
            in_open_world=True,
        ),
        Measure(
            "false_alarm_share",
            "known as novel",
            "known samples judged novel",
            "samples that an agent met of classes that it knew then, and judged novel",
            higher_is_better=False,
            in_open_world=True,
        ),
        Measure(
            "false_alarm_rate",
            "false alarms",
            "false-alarm rate",
            "test samples of all classes that are known at the end, judged novel",
            higher_is_better=False,
        ),
        Measure(
            "added_false_alarm_rate",
            "added false alarms",
            "false-alarm rate of added classes",
            "test samples of the classes taken in, judged novel, each class counted alike",
            higher_is_better=False,
        ),
        Measure(
            "ami",
            "AMI",
            "adjusted mutual information",
            "of true class and class named in the end, over test samples of the novel classes; 0 is chance",
            percent=False,
            in_open_world=True,
        ),
    )
}
"""Every measure by its key, in the order in which tables show them."""


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


def class_means(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Average the features of each class: (n, d), (n,) -> (classes, d).

    >>> import torch
    >>> class_means(torch.tensor([[1.0, 0.0], [3.0, 2.0], [5.0, 5.0]]), torch.tensor([0, 0, 1]), 2)
    tensor([[2., 1.],
            [5., 5.]])
    """
    sums = features.new_zeros(classes, features.shape[1]).index_add_(0, labels, features)
    return sums / bincount(labels, minlength=classes).clamp(min=1).unsqueeze(1)


def feature_exclusivity(weights: Tensor, features: Tensor, labels: Tensor) -> NDArray[np.float64]:
    """Measure how exclusive the features of each two classes are: (classes, classes).

    weights: (classes, d) of the head; features: (n, d), labels: (n,) of samples.
    """
    means = class_means(features, labels, len(weights))
    return exclusivity(active_features(_array(means), _array(weights)))


def active_features(signatures: Array, weights: Array) -> NDArray[np.bool_]:
    """Return which features stand for each class: those whose mean, times the class's weight, is over 0.

    signatures, weights: (classes, d) -> (classes, d). This reading of "active" gives the published figures;
    firing at all does not.
    """
    return np.asarray(signatures * weights > 0)


def exclusivity(active: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return how exclusive the feature sets of each two classes are, Eq. (7): features of one of the two
    over features of either. 1 is wholly exclusive. active: (classes, d) -> (classes, classes), diagonal 0.
    """  # noqa: D205
    a, b = active[:, None, :], active[None, :, :]
    either = (a | b).sum(axis=2)
    return np.asarray((a ^ b).sum(axis=2) / np.maximum(either, 1))


def exclusive(s: AbstractSet[Any], t: AbstractSet[Any]) -> bool:
    """Tell whether each of two sets has an element that the other lacks (Definition 1).

    No set is exclusive with its subset, and none with the empty set.

    >>> exclusive({"beak", "wing"}, {"wing", "fin"}), exclusive({"wing"}, {"wing", "fin"})
    (True, False)
    """
    return bool(s - t) and bool(t - s)


def exclusive_collection(sets: Collection[AbstractSet[Any]]) -> bool:
    """Tell whether every two different sets of a collection are exclusive (Definition 2).

    >>> exclusive_collection([{1, 2}, {2, 3}, {1, 3}]), exclusive_collection([{1, 2}, {2, 3}, {2}])
    (True, False)
    """
    return all(exclusive(s, t) for s, t in combinations(sets, 2) if s != t)


def mean_exclusivity(matrix: NDArray[np.float64]) -> float:
    """Return the mean over all pairs of different classes."""
    return float(matrix[~np.eye(len(matrix), dtype=bool)].mean())
