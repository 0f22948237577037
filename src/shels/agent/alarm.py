"""When a batch holds so many novel verdicts that the agent should stop and look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from shels.config.checks import Checked, Rule, number, whole
from shels.errors import DataError, SettingsError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SHARE = number(0, 1).holds
_UNDER_ONE = Rule("a number, 0 or more and under 1", lambda value: _SHARE(value) and value < 1, float)
_BETWEEN = Rule("a number over 0 and under 1", lambda value: _SHARE(value) and 0 < value < 1, float)


class PresetShare(Checked, kind="preset-share"):
    """The paper's rule: alarm where more than a preset share of the batch is judged novel."""

    share: Annotated[float, _UNDER_ONE]
    """Chosen for each data set: the paper's runs took 0.75 for MNIST and 0.3 for FMNIST."""


class FalseAlarmRate(Checked, kind="false-alarm-rate"):
    """Alarm where known classes alone would hardly ever give so many novel verdicts."""

    probability: Annotated[float, _BETWEEN] = 0.001
    """The chance, at most, that a batch of known classes alarms."""
    least_effect: Annotated[float, _UNDER_ONE] = 0.05
    """The share of novel verdicts beyond the expected false ones that is worth an alarm, however certain."""


AlarmRule: TypeAlias = PresetShare | FalseAlarmRate


def alarm_count(rule: AlarmRule, size: int, false_alarms: int, judged: int) -> int:
    """Return the smallest number of novel verdicts in a batch of `size` that raises an alarm.

    false_alarms of `judged` held-out known samples were called novel; a preset share does not need them.
    An answer of size + 1 means never: no batch of this size can tell novel classes from false alarms.
    Beta-binomial: the rate is known only from those samples (Jeffreys prior), so few of them give a
    higher count. It holds for samples drawn as the held-out ones were: a batch that is mostly of one class
    with a higher rate than the others alarms more often than `probability`.

    >>> alarm_count(PresetShare(0.3), size=10, false_alarms=0, judged=0)
    4
    """
    _check_counts(size, false_alarms, judged)
    if isinstance(rule, PresetShare):
        return next(count for count in range(size + 1) if count / size > rule.share)
    if not isinstance(rule, FalseAlarmRate):
        raise SettingsError(f"an alarm rule must be PresetShare(...) or FalseAlarmRate(...), got {rule!r}")
    if judged == 0:
        raise DataError(
            "judged must be 1 or more, got 0: without held-out known samples the false-alarm rate is not "
            "known; hold some out, or use PresetShare"
        )
    worth_it = expected_share(false_alarms, judged) + rule.least_effect
    chance = _chance_of_at_least(size, false_alarms + 0.5, judged - false_alarms + 0.5)
    for count in range(1, size + 1):
        if chance[count] <= rule.probability and count / size >= worth_it:
            return count
    return size + 1


def most_by_chance(size: int, false_alarms: int, judged: int, probability: float = 0.001) -> int:
    """Return the number of novel verdicts that a batch of known classes exceeds only with this probability.

    By the same reckoning as `alarm_count`, and for samples drawn as there.

    >>> most_by_chance(500, 50, 1000)
    46
    """
    _check_counts(size, false_alarms, judged)
    chance = _chance_of_at_least(size, false_alarms + 0.5, judged - false_alarms + 0.5)
    return next((count - 1 for count in range(1, size + 1) if chance[count] <= probability), size)


def expected_share(false_alarms: int, judged: int) -> float:
    """Return the share of a batch of known classes that is expected to be called novel."""
    return (false_alarms + 0.5) / (judged + 1)


def _chance_of_at_least(size: int, novel: float, known: float) -> NDArray[Any]:
    """Return P(X >= count) for each count of 0 to size, X beta-binomial: (size + 1,).

    Summed from the far end, so that small chances keep their digits.
    """
    import numpy as np  # noqa: PLC0415
    from scipy.special import betaln, gammaln  # noqa: PLC0415

    count = np.arange(size + 1)
    ways = gammaln(size + 1) - gammaln(count + 1) - gammaln(size - count + 1)
    chance = np.exp(ways + betaln(count + novel, size - count + known) - betaln(novel, known))
    at_least: NDArray[Any] = chance[::-1].cumsum()[::-1]
    return at_least


def _check_counts(size: int, false_alarms: int, judged: int) -> None:
    for name, value, low in (("size", size, 1), ("false_alarms", false_alarms, 0), ("judged", judged, 0)):
        whole(low).checked(name, value)
    if false_alarms > judged:
        raise SettingsError(f"false_alarms must be at most judged ({judged}), got {false_alarms}")
