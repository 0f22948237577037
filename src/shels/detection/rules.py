"""Threshold rules: each turns the scores of a class into the score that a sample must exceed.

To add a rule: write its settings as a dataclass of `shels.config`, and enter it in `RULES`.
"""

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shels.config import AcceptShare, MeanMinusSd, ThresholdRule
from shels.errors import SettingsError, unknown_name

_TAIL = 0.1
"""Share of scores, the lowest ones, by which it is judged how they thin out."""


class Rule(NamedTuple):
    """How thresholds are set by rules of one kind; each function takes the rule's settings first.

    threshold: from scores of the class's correctly classified samples, and the scores that new samples are
    compared with. promises: the share of known samples that it is meant to accept, if it says so. words: a
    sentence, given what the scores are of.
    """

    threshold: Callable[[Any, Tensor, Tensor], Tensor]
    promises: Callable[[Any], float | None]
    words: Callable[[Any, str], str]


def _mean_minus_sd(rule: MeanMinusSd, own: Tensor, calibration: Tensor) -> Tensor:
    del calibration
    return own.mean() - rule.k * own.std(correction=0)


def _mean_minus_sd_words(rule: MeanMinusSd, over: str) -> str:
    deviations = "one standard deviation" if rule.k == 1 else f"{rule.k:g} standard deviations"
    return f"Each threshold is the class's mean {over} less {deviations}."


def _lowest_share(rule: AcceptShare, own: Tensor, calibration: Tensor) -> Tensor:
    del own
    n = len(calibration)  # of n + 1 scores, the new one is as likely the lowest, the second lowest …
    place = (1 - rule.share) * (n + 1) + 1e-9
    rank = min(max(math.floor(place), 1), n)
    low = calibration.kthvalue(rank).values
    if rule.calibration == "separate" and place < 1 and n > 2:
        return _under_the_lowest(calibration, place)
    if rule.calibration == "held-out" or not 1 <= place < n:
        return low
    return low + (place - rank) * (calibration.kthvalue(rank + 1).values - low)


def _under_the_lowest(calibration: Tensor, place: float) -> Tensor:
    """Set a threshold below all scores, where they are too few to have one, by how the lowest thin out.

    The lowest k lie under the next one by k excesses. Where scores thin out exponentially, a new one falls
    more than k (((k + 1) / place)^(1/k) - 1) times their mean below that next one with probability
    place / (n + 1) just, over draws of all of them: excesses add up to a Gamma variable. Of a thinner tail
    fewer fall so low; of a longer one more, but no more than below the lowest score, 1 / (n + 1).
    """
    n = len(calibration)
    many = max(2, min(n - 1, round(n * _TAIL)))
    ordered = calibration.sort().values[: many + 1]
    edge = ordered[many]
    far = many * (((many + 1) / place) ** (1 / many) - 1)
    return torch.minimum(edge - far * (edge - ordered[:many]).mean(), ordered[0])


def _lowest_share_words(rule: AcceptShare, over: str) -> str:
    del over
    share = f"{100 * rule.share:.0f}\N{NO-BREAK SPACE}%"
    return f"The thresholds were set to accept {share} of what is assigned to each class."


RULES: dict[str, Rule] = {
    MeanMinusSd.kind: Rule(_mean_minus_sd, lambda rule: None, _mean_minus_sd_words),  # noqa: ARG005
    AcceptShare.kind: Rule(_lowest_share, lambda rule: float(rule.share), _lowest_share_words),
}
"""Every kind of threshold rule; its settings are a dataclass of `shels.config`."""


def rule_of(rule: ThresholdRule) -> Rule:
    """Look a rule up; one of a kind that is not in the table is refused."""
    if rule.kind not in RULES:
        raise SettingsError(unknown_name("threshold rule", rule.kind, RULES))
    return RULES[rule.kind]


def threshold(rule: ThresholdRule, own: Tensor, calibration: Tensor) -> Tensor:
    """Set the score that a sample of a class must exceed to be accepted.

    own: scores of the class's correctly classified samples. calibration: what new samples are compared with.

    >>> import torch
    >>> threshold(MeanMinusSd(k=1.0), torch.tensor([2.0, 4.0]), torch.tensor([]))
    tensor(2.)
    >>> threshold(AcceptShare(0.95), torch.tensor([]), torch.arange(1.0, 100.0))
    tensor(5.)
    >>> threshold(AcceptShare(0.95, calibration="separate"), torch.tensor([]), torch.arange(1.0, 51.0))
    tensor(2.5500)
    """
    return rule_of(rule).threshold(rule, own, calibration)


def on_held_out(rule: ThresholdRule) -> bool:
    """Tell whether a rule on a class's own scores wants those of held-out samples, whatever the detector."""
    return isinstance(rule, MeanMinusSd) and rule.calibrated_on == "held-out"


def on_all_scores(rule: ThresholdRule) -> bool:
    """Tell whether a new class's threshold is set on what its samples score on every class."""
    return isinstance(rule, MeanMinusSd) and rule.new_class == "all scores"


def enough_for(rule: ThresholdRule) -> int:
    """Count the scores of its own that a class needs: the lowest of 19 marks 1 in 20, of 99 1 in 100.

    A threshold that may lie between two scores needs the second lowest to do so: the gap above the lowest is
    wide, and a point within it says little.

    >>> enough_for(AcceptShare(0.95)), enough_for(AcceptShare(0.99)), enough_for(MeanMinusSd())
    (19, 99, 19)
    >>> enough_for(AcceptShare(0.95, calibration="separate"))
    39
    """
    share = rule_of(rule).promises(rule)
    return 19 if share is None else math.ceil(_ranks(rule) / (1 - share) - 1e-9) - 1


def _ranks(rule: ThresholdRule) -> int:
    return 2 if isinstance(rule, AcceptShare) and rule.calibration == "separate" else 1


def designed_rejection(rule: ThresholdRule) -> float:
    """Share of known samples that a rule rejects by design, 0 where it promises nothing."""
    share = rule_of(rule).promises(rule)
    return 0.0 if share is None else 1 - share


def most_rejected(rule: ThresholdRule, count: int) -> float:
    """Bound the chance that a new sample falls to a threshold set on so many scores that came as it does.

    That is over draws of all of them; of one set of scores the rate varies about it. A threshold at the k-th
    lowest has k / (n + 1), one above it, on the way to the next, less than (k + 1) / (n + 1), one below all
    1 / (n + 1). At least what the rule means to reject; 1 where it promises nothing.

    >>> [round(most_rejected(AcceptShare(share), n), 4) for share, n in ((0.95, 99), (0.99, 40))]
    [0.05, 0.0244]
    >>> round(most_rejected(AcceptShare(0.95, calibration="separate"), 50), 4)
    0.0588
    """
    share = rule_of(rule).promises(rule)
    if share is None:
        return 1.0
    place, between = (1 - share) * (count + 1), _ranks(rule) > 1
    rank = math.ceil(place - 1e-9) if between else math.floor(place + 1e-9)
    return max(1 - share, min(max(rank, 1), count) / (count + 1))


def warn_of_few(count: int, rule: ThresholdRule) -> None:
    """Warn where so few held-out scores cannot mark the share that a rule promises."""
    share = rule_of(rule).promises(rule)
    if share is not None and count < math.ceil(1 / (1 - share) - 1e-9) - 1:
        warnings.warn(
            f"{count} held-out scores cannot mark a share of {share:g}, only {count / (count + 1):.3g}. "
            "Give more samples, hold out a larger share, or accept less",
            UserWarning,
            stacklevel=4,
        )
