"""The log as a person reads it: every change with who made it, whether it still counts, how to take it back.

A change of the model counts for as long as the version in use comes from the one that it made; what a person
said of images counts until it is taken back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from shels.agent import events
from shels.agent.events import Line
from shels.agent.inbox import numbers_of

Placed = tuple[int, Line]
"""Where an event's line ends in the log, and the event."""
SAID = (events.DISMISSED, events.GROUP_SPLIT, events.GROUPS_MERGED)
"""What a person says of images that leaves the model as it is."""
CHANGES = (*(name for name, kind in events.KINDS.items() if kind.changes), *SAID, events.UNDONE)


@dataclass(frozen=True)
class Change:
    """One change. id: where its line ends in the log.

    version: in use after it; before: the one before, None where the model stayed. images: how many it was
    made from. members: their numbers. counts: whether it still does. undoes: the change that it takes back.
    """

    id: int
    kind: str
    time: str
    by: str
    words: str
    version: int
    before: int | None
    images: int
    members: tuple[int, ...]
    counts: bool
    undoes: int | None
    facts: Line

    @property
    def undoable(self) -> bool:
        """Whether it can be taken back: an undone one cannot, nor one that nobody made."""
        return self.counts and self.kind not in (events.UNDONE, events.REFITTED)


def changes_of(log: Iterable[Placed], version: int) -> list[Change]:
    """List every change of a log in order. version: the one in use now.

    >>> line = {"kind": "renamed", "from": "novel-1", "to": "cow", "by": "Ada", "version": 2, "time": ""}
    >>> [(change.words, change.before, change.counts) for change in changes_of([(90, line)], version=2)]
    [('novel-1 renamed to cow, by Ada', 1, True)]
    """
    lines = [(place, line) for place, line in log if line["kind"] in CHANGES]
    before = _versions_before(lines)
    lineage = _lineage(lines, before, version)
    back = _taken_back(lines)
    found = []
    for place, line in lines:
        model = events.changes_model(line)
        counts = place not in back and (not events.makes_version(line) or line["version"] in lineage)
        found.append(
            Change(
                id=place,
                kind=line["kind"],
                time=line.get("time", ""),
                by=line.get("by", ""),
                words=events.in_words(line),
                version=line["version"],
                before=before.get(place) if model else None,
                images=line.get("images", 0),
                members=tuple(numbers_of(line.get("members", ""))),
                counts=counts,
                undoes=line.get("undoes"),
                facts=line,
            )
        )
    return found


def _versions_before(lines: Sequence[Placed]) -> dict[int, int]:
    """Tell which version was in use before each change of the model.

    Before the first it was the one that the change was made from; a return to a version made none.
    """
    found, current = {}, None
    for place, line in lines:
        if events.changes_model(line):
            first = line["version"] - events.makes_version(line)
            found[place] = first if current is None else current
            current = line["version"]
    return found


def _lineage(lines: Sequence[Placed], before: dict[int, int], version: int) -> set[int]:
    """List the versions that the one in use came from, itself among them."""
    parents = {line["version"]: before[place] for place, line in lines if events.makes_version(line)}
    found = set()
    while version not in found:
        found.add(version)
        version = parents.get(version, version)
    return found


def _taken_back(lines: Sequence[Placed]) -> set[int]:
    """List the places of changes that a later one takes back; one that is itself taken back does not."""
    found: set[int] = set()
    for place, line in reversed(lines):
        if "undoes" in line and place not in found and line["kind"] != events.ROLLED_BACK:
            found.add(line["undoes"])
    return found


@dataclass(frozen=True)
class Said:
    """What was said of an image: kind of the change, the class where it got one, whether that was known."""

    kind: str
    name: Any
    change: int
    known: bool = False


def said_of_images(changes: Iterable[Change]) -> dict[int, Said]:
    """Tell what was said of each image, by its number; the last word counts."""
    kinds = (events.ACCOMMODATED, events.NOT_NOVEL, events.DISMISSED)
    found: dict[int, Said] = {}
    for change in changes:
        if change.counts and change.kind in kinds:
            said = Said(change.kind, change.facts.get("name"), change.id, bool(change.facts.get("known")))
            found |= dict.fromkeys(change.members, said)
    return found
