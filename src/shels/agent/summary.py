"""What happened on a stream, batch by batch, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shels.agent.events import ALARM, KINDS, OBSERVED, Line

if TYPE_CHECKING:
    from shels.data.splits import ClassSplit
    from shels.data.streams import StreamBatch

_SERIES = {kind.name: kind.series for kind in KINDS.values() if kind.series}
_FACTS = ("batch", "name", "images", "seen", "purity", "by", "version", "seconds", "reason")


@dataclass
class RunSummary:
    """What happened so far, an earlier run's part included; split: the truth, where there is one."""

    split: ClassSplit | None
    batches: int = 0
    skipped: int = 0
    alarms: int = 0
    false_alarms: int = 0
    never: bool = False
    """Whether a batch came that could not have raised an alarm."""
    series: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {n: [] for n in _SERIES.values()})

    def add(self, batch: StreamBatch, events: Sequence[Line]) -> None:
        """Add what happened on the next batch of the stream."""
        alarm = any(event["kind"] == ALARM for event in events)
        self.batches += 1
        self.alarms += alarm
        if self.split is not None and alarm:
            known = {str(name) for name in self.split.known} | self._names()
            self.false_alarms += {str(label) for label in batch.labels or ()} <= known
        self.never |= any(event["kind"] == OBSERVED and event["threshold"] > 1 for event in events)
        for event in events:
            if event["kind"] in _SERIES:
                facts = {fact: event[fact] for fact in _FACTS if fact in event}
                self.series[_SERIES[event["kind"]]].append(facts | {"batch": batch.name})

    def result(self) -> dict[str, Any]:
        """Return it as plain data."""
        out = {"batches": self.batches, "skipped": self.skipped, "alarms": self.alarms, **self.series}
        if self.split is None:
            return out
        found = [name for name in self.split.novel if str(name) in self._names()]
        missed = [name for name in self.split.novel if name not in found]
        return out | {"found": found, "missed": missed, "false_alarms": self.false_alarms}

    def _names(self) -> set[str]:
        return {str(facts["name"]) for facts in self.series["taken_in"]}


def events_by_batch(log: Sequence[Line]) -> tuple[dict[str, list[Line]], list[Line]]:
    """Return the events of every batch that is done with, by its key, and those after the last of them.

    A batch that was cut off and taken up again has the events of both times.
    """
    found: dict[str, list[Line]] = {}
    pending: list[Line] = []
    for event in log:
        pending.append(event)
        if "done" in event:
            found[event["done"]] = _of_batch(pending, event.get("batch", ""))
            pending = []
    return found, pending


def _of_batch(events: Sequence[Line], name: str) -> list[Line]:
    """Return the events of a batch among those that lead up to its end.

    A class that was learned just before a crash is in the log without its batch, and belongs to this one.
    """
    begun = any(event.get("batch") == name for event in events)
    return [e for e in events if e.get("batch") == name or (begun and e.get("by") == "recovered")]
