"""What happened on a stream, batch by batch, in words and in numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shels.cli.display import percent, share_bar

if TYPE_CHECKING:
    from shels.data.splits import ClassSplit
    from shels.data.streams import StreamBatch

Told = Mapping[str, Any]
"""An event as the log has it: kind, batch and facts."""

_SERIES = {"accommodated": "taken_in", "declined": "declined", "drift": "drift", "undecided": "undecided"}
_FACTS = ("batch", "name", "images", "seen", "purity", "by", "version", "seconds", "reason")
HEADINGS = f"{'batch':<16}{'size':>6}  {'novel share':<20} {'novel':>7} / {'alarm':<7} what came of it"


@dataclass
class Story:
    """What happened so far, an earlier run's part included; split: the truth, where there is one."""

    split: ClassSplit | None
    batches: int = 0
    skipped: int = 0
    alarms: int = 0
    false_alarms: int = 0
    never: bool = False
    """Whether a batch came that could not have raised an alarm."""
    series: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {n: [] for n in _SERIES.values()})

    def add(self, batch: StreamBatch, events: Sequence[Told]) -> None:
        """Add what happened on the next batch of the stream."""
        alarm = any(event["kind"] == "alarm" for event in events)
        self.batches += 1
        self.alarms += alarm
        if self.split is not None and alarm:
            known = {str(name) for name in self.split.known} | self._names()
            self.false_alarms += {str(label) for label in batch.labels or ()} <= known
        self.never |= any(event.get("threshold", 0) > 1 for event in events)
        for event in events:
            if event["kind"] in _SERIES:
                told = {fact: event[fact] for fact in _FACTS if fact in event}
                self.series[_SERIES[event["kind"]]].append(told | {"batch": batch.name})

    def result(self) -> dict[str, Any]:
        """Return it as plain data."""
        out = {"batches": self.batches, "skipped": self.skipped, "alarms": self.alarms, **self.series}
        if self.split is None:
            return out
        found = [name for name in self.split.novel if str(name) in self._names()]
        missed = [name for name in self.split.novel if name not in found]
        return out | {"found": found, "missed": missed, "false_alarms": self.false_alarms}

    def _names(self) -> set[str]:
        return {str(told["name"]) for told in self.series["taken_in"]}


def events_by_batch(log: Sequence[Told]) -> tuple[dict[str, list[Told]], list[Told]]:
    """Return the events of every batch that is done with, by its key, and those after the last of them.

    A batch that was cut off and taken up again has the events of both times.
    """
    found: dict[str, list[Told]] = {}
    pending: list[Told] = []
    for event in log:
        pending.append(event)
        if "done" in event:
            found[event["done"]] = of_batch(pending, event["batch"])
            pending = []
    return found, pending


def of_batch(events: Sequence[Told], name: str) -> list[Told]:
    """Return the events of a batch among those that lead up to its end.

    A class that was learned just before a crash is in the log without its batch, and belongs to this one.
    """
    begun = any(event["batch"] == name for event in events)
    return [e for e in events if e["batch"] == name or (begun and e.get("by") == "recovered")]


def batch_line(events: Sequence[Told]) -> str:
    """Return a line on a batch: how much is novel, beside the share that alarms, and what came of it."""
    seen = events[0]
    limit = percent(seen["threshold"]) if seen["threshold"] <= 1 else "never"
    bar = share_bar(seen["share"], seen["threshold"])
    shares = f"{percent(seen['share']):>7} / {limit:<7}"
    return f"{seen['batch']:<16}{seen['size']:>6}  {bar} {shares} {_verdict(events)}"


def _verdict(events: Sequence[Told]) -> str:
    said = [_words(event) for event in events if event["kind"] in _SERIES]
    return "; ".join(said) if said else "nothing new"


def _words(event: Told) -> str:
    if event["kind"] == "accommodated":
        return f"{event['name']} taken in, {event['images']} images by {event['by']}"
    name = f"{event['name']} " if event["kind"] == "declined" else ""
    return f"{name}{event['kind']}: {event['reason']}"
