"""The rule that tells known from novel, changed after training: another share, or more known samples.

Both give a new learner on the scores that the old one keeps, in milliseconds; nothing is trained.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from shels import runtime
from shels.config import AcceptShare
from shels.detection.rules import most_rejected, rule_of, threshold
from shels.errors import SettingsError

if TYPE_CHECKING:
    from shels.learner.learner import Learner


def promised_share(learner: Learner) -> float | None:
    """Give the share of known samples that is to be accepted; None where the rule promises none."""
    return rule_of(learner.settings.rule).promises(learner.settings.rule)


def promised_false_alarms(learner: Learner) -> float | None:
    """Bound the share of known samples that is called novel, as far as held-out scores can mark it.

    On average over held-out sets; of each class, where it has scores enough of its own. None where the rule
    promises nothing.
    """
    if promised_share(learner) is None:
        return None
    return max(most_rejected(learner.settings.rule, len(each)) for each in learner.detector.compared)


def with_accept_share(learner: Learner, share: float) -> Learner:
    """Make a learner that accepts another share of known samples, as if it had been trained so.

    Thresholds are those that training with this share gives, but for a class that had too few held-out
    samples of its own for the old share: it goes on borrowing the scores of all. Where all together are too
    few for the new share, a warning says so.
    """
    now = learner.settings.rule
    calibration = now.calibration if isinstance(now, AcceptShare) else "held-out"
    rule = AcceptShare(share, calibration=calibration)
    made = replace(learner, detector=learner.detector.with_rule(rule))
    return _recalibrated(made, {"kind": "rule-set", "from": promised_share(learner), "to": share})


def with_known(learner: Learner, inputs: Tensor) -> Learner:
    """Make a learner whose thresholds are set with more known samples: inputs that were called novel.

    Each joins the held-out scores of the class that it is most like, and the threshold is that class's rank
    again. So the promise stands for samples that come like the old and the new ones together; as only samples
    with low scores are ever said to be known, thresholds fall or stay (between two scores one may rise by a
    sliver of the gap), and fewer samples are called novel than the promise allows rather than more.
    """
    if promised_share(learner) is None:
        raise SettingsError(
            f"the rule {learner.settings.rule.kind} promises no share, so it cannot learn from what is not "
            "novel; set one first, such as --accept 0.95"
        )
    detector = learner.detector.with_known(learner.views(inputs))
    change = {"kind": "not-novel", "images": len(inputs), "members": ""}
    return _recalibrated(replace(learner, detector=detector), change)


def held_out_false_alarms(learner: Learner) -> float:
    """Share of the samples that thresholds were set on which they call novel, over all classes.

    It says what the rule costs on known samples, and follows every change of classes and rule.
    """
    pairs = zip(learner.detector.compared, learner.detector.thresholds, strict=True)
    under = [(int((scores <= limit).sum()), len(scores)) for scores, limit in pairs]
    return sum(count for count, _ in under) / max(1, sum(size for _, size in under))


def doubt(learner: Learner) -> str:
    """Say where there are too few held-out scores for the share that is promised; nothing where there are.

    Of n scores the lowest marks n in n + 1.
    """
    share, fewest = promised_share(learner), min(map(len, learner.detector.compared))
    if share is None or share <= fewest / (fewest + 1) + 1e-9:
        return ""
    marked, left = 100 * fewest / (fewest + 1), 100 / (fewest + 1)
    return (
        f"{fewest} held-out scores can mark {marked:.1f} %, not {100 * share:g} %: false alarms may come to "
        f"{left:.1f} %"
    )


def expected_false_alarms(learner: Learner) -> tuple[float, str | None]:
    """Give the share of known samples that is expected to be called novel, and what it was last measured at.

    That is "training", or the kind of the change that set thresholds anew since; None where an older model
    does not tell.
    """
    report = learner.report
    last = report.get("last_change", {}).get("kind", "training")
    told = last if last in ("training", "rule-set", "not-novel") else None
    return 1 - float(report["held_out_acceptance"]), report.get("acceptance_measured_at", told)


def _recalibrated(learner: Learner, change: dict[str, Any]) -> Learner:
    """Put the rule into the settings, and into the report what it comes to on held-out scores."""
    settings = replace(learner.settings, rule=learner.detector.rule)
    measured = {"held_out_acceptance": _halves_acceptance(learner), "acceptance_measured_at": change["kind"]}
    return replace(learner, settings=settings, report=learner.report | measured | {"last_change": change})


def _halves_acceptance(learner: Learner) -> float:
    """Share of held-out scores accepted by thresholds that were set on the other half of them.

    Scores are all that is left after training, where `measured_acceptance` sets the whole detector anew on
    half of the samples. A class that borrows counts by what it borrowed, so there are more than samples.
    """
    accepted = total = 0
    for place, scores in enumerate(learner.detector.compared):
        draws = runtime.generator(learner.seed, "halves", place)
        halves = scores[torch.randperm(len(scores), generator=draws)].tensor_split(2)
        for mine, other in (halves, halves[::-1]) if len(scores) > 1 else ():
            accepted += int((mine > threshold(learner.detector.rule, other, other)).sum())
            total += len(mine)
    return accepted / total if total else 1.0
