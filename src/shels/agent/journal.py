"""The events of the batch under way, each in the log once: a run that was cut off goes on in its middle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shels.agent import events
from shels.agent.events import ACCOMMODATED, ACCOMMODATING, DECLINED, Event
from shels.agent.home import Home
from shels.agent.notes import BatchNote, Plan
from shels.agent.versioned import VersionedLearner

_ADDED = ("kind", "batch", "time", "done", "provisional")  # what the log has beside an event's own facts


class Journal:
    """What a batch came to so far, in the log and in the note on it.

    Where a run was cut off in this very batch, under the same settings, and nobody changed the model since,
    events that are in the log are given again instead of being recorded twice, and the plan stands.
    """

    def __init__(self, model: VersionedLearner, batch: str, key: str, settings: str) -> None:
        self.model = model
        self.batch = batch
        self.note = BatchNote(key, settings, 0, model.last_number)
        self._written = False
        self._logged: list[dict[str, Any]] = []
        if model.home is not None:
            self._take_up(model.home)

    @property
    def plan(self) -> Plan | None:
        """What was decided about the batch."""
        return self.note.plan

    def begin(self) -> None:
        """Write down that the batch is under way."""
        if not self._written:
            self._write(self.note)

    def decide(self, plan: Plan) -> Plan:
        """Write down what is new in the batch, once for all."""
        self._write(replace(self.note, plan=plan, last=self.model.last_number))
        return plan

    def record(self, kind: str, facts: dict[str, Any], *, done: bool = False) -> Event:
        """Give an event that is in the log; where it is there already, it is not recorded again."""
        found = next((line for line in self._logged if _same(line, kind, facts)), None)
        if found is not None:
            self._logged.remove(found)
            return self._again(found)
        self.model.record(kind, self.batch, facts | ({"done": self.note.key} if done else {}))
        return Event(kind, self.batch, facts)

    def given(self, *kinds: str) -> list[Event]:
        """Give again those events of these kinds that are in the log."""
        return [self._again(line) for line in self._logged if line["kind"] in kinds]

    def decided(self, request: str) -> list[Event]:
        """Give the events of a proposed class that is learned or declined already; none where it is not."""
        lines = [line for line in self._logged if line.get("request") == request]
        if not lines or lines[-1]["kind"] not in (ACCOMMODATED, DECLINED):
            return []
        return [self._again(line) for line in lines]

    def close(self) -> None:
        """Remove the note on a batch that is done, unless it alone knows which numbers were given."""
        if self._written and self.model.home is not None and self.model.log_has_all_numbers:
            self.model.home.write_batch_note(None)

    def _take_up(self, home: Home) -> None:
        found = BatchNote.read(home)
        if found is not None and (found.key, found.settings) == (self.note.key, self.note.settings):
            since = home.events(found.log)
            done = any(line.get("done") == found.key for line in since)
            changed = any(events.changes_model(line) and line["batch"] != self.batch for line in since)
            if not done and not changed:
                self.note, self._written = found, True
                self._logged = [line for line in since if line.get("batch") == self.batch]
                return
        self.note = replace(self.note, log=home.log_size)

    def _write(self, note: BatchNote) -> None:
        self.note, self._written = note, True
        if self.model.home is not None:
            note.write(self.model.home)

    def _again(self, line: Mapping[str, Any]) -> Event:
        added = _ADDED if events.makes_version(line) else (*_ADDED, "version")
        facts = {name: value for name, value in line.items() if name not in added}
        return Event(line["kind"], self.batch, facts)


def _same(line: Mapping[str, Any], kind: str, facts: Mapping[str, Any]) -> bool:
    """Tell whether a line of the log is this event; a person may have answered otherwise meanwhile."""
    if kind == ACCOMMODATING:
        return line["kind"] == kind and {**line, **facts} == line
    return line["kind"] == kind and line.get("request") == facts.get("request")
