"""What happened in a run over a stream, folded from its events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from shels.agent import events
from shels.agent.events import Line
from shels.data.splits import ClassSplit
from shels.data.streams import StreamBatch

_SERIES = {kind.name: kind.series for kind in events.KINDS.values() if kind.series}
_FACTS = ("batch", "name", "images", "seen", "purity", "by", "version", "seconds", "reason")


@dataclass
class RunSummary:
    """What happened so far, an earlier run's part included; split: the truth, where there is one.

    never: whether a batch came that could not have raised an alarm.
    """

    split: ClassSplit | None
    batches: int = 0
    skipped: int = 0
    alarms: int = 0
    false_alarms: int = 0
    never: bool = False
    series: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {n: [] for n in _SERIES.values()})

    def add(self, batch: StreamBatch, lines: Sequence[Line]) -> None:
        """Add what happened on the next batch of the stream."""
        alarm = any(line["kind"] == events.ALARM for line in lines)
        self.batches += 1
        self.alarms += alarm
        if self.split is not None and alarm:
            known = {str(name) for name in self.split.known} | self._names()
            self.false_alarms += {str(label) for label in batch.labels or ()} <= known
        self.never |= any(line["kind"] == events.OBSERVED and line["threshold"] > 1 for line in lines)
        for line in lines:
            if line["kind"] in _SERIES:
                facts = {fact: line[fact] for fact in _FACTS if fact in line}
                self.series[_SERIES[line["kind"]]].append(facts | {"batch": batch.name})

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

    A batch that was cut off and taken up again has the events of both times. A class that was learned just
    before a crash is in the log without its batch, and belongs to the one that was under way.
    """
    found: dict[str, list[Line]] = {}
    pending: list[Line] = []
    for event in log:
        pending.append(event)
        if "done" in event:
            name = event.get("batch", "")
            begun = any(each.get("batch") == name for each in pending)
            found[event["done"]] = [
                each
                for each in pending
                if each.get("batch") == name or (begun and each.get("by") == "recovered")
            ]
            pending = []
    return found, pending
