"""What people said, beside what was promised: false alarms seen, and what was taken for what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shels.agent import events
from shels.learner.estimates import Estimate, proportion

if TYPE_CHECKING:
    from shels.agent.history import Change
    from shels.agent.index import EventIndex


@dataclass(frozen=True)
class Seen:
    """False alarms that people found, among the samples of known classes that came in.

    Samples that were accepted count as known. Those called novel count when somebody said that they are
    known; the others may be either, and are left out.
    """

    false_alarms: int
    known: int

    @property
    def rate(self) -> Estimate | None:
        """The share of known samples called novel, with its 95 % interval."""
        return proportion(self.false_alarms, self.known)


def seen_false_alarms(changes: Sequence[Change], index: EventIndex) -> Seen:
    """Count false alarms since the accepted share was last set."""
    since = max((each.id for each in changes if each.counts and each.kind == events.RULE_SET), default=0)
    observed, novel = index.observed_since(since)
    wrong = {
        number
        for each in changes
        if each.counts and each.id > since and says_known(each)
        for number in each.members
    }
    return Seen(len(wrong), observed - novel + len(wrong))


def says_known(change: Change) -> bool:
    """Tell whether a change says that images called novel are of a known class."""
    joined = change.kind == events.ACCOMMODATED and bool(change.facts.get("known"))
    return joined or change.kind == events.NOT_NOVEL


def corrections_of(changes: Iterable[Change]) -> list[tuple[tuple[str, str], int]]:
    """Count what images were taken for, and what people said they are; the most frequent first."""
    words = {events.NOT_NOVEL: "not novel", events.DISMISSED: "rubbish"}
    found: Counter[tuple[str, str]] = Counter()
    for change in changes:
        for was, count in change.facts.get("was", {}).items() if change.counts else ():
            found[was, words.get(change.kind, str(change.facts.get("name")))] += count
    return found.most_common()
