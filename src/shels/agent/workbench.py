"""A home at which a person works: images come in, what is novel is kept in groups, each can be named.

All that changes classes, groups or the rule is decided here, whatever face asks for it. Observing and
changing may happen in two threads; changes come one after another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shels.agent import events
from shels.agent.groups import REST, Group, Groups, read_groups, write_groups
from shels.agent.history import Change, Said, changes_of, said_of_images
from shels.agent.inbox import Inbox, ranges
from shels.agent.index import EventIndex
from shels.agent.intake import Intake
from shels.agent.observation import AgentSettings, ProposalSettings, Separating, propose
from shels.agent.separation import SeparationSettings, separate
from shels.agent.versioned import VersionedLearner, halves_of
from shels.data.splits import known_class, match_class, new_class
from shels.detection.protocol import rows_of
from shels.errors import DataError, ModelFileError, SettingsError
from shels.learner.rule import held_out_false_alarms

if TYPE_CHECKING:
    from shels.agent.home import Home
    from shels.learner.learner import Learner
    from shels.model.networks import Views
    from shels.training import Progress

FOR_PEOPLE = AgentSettings(
    proposals=ProposalSettings(separation=SeparationSettings(least_gap=4.2, most_between=0.3))
)
"""How novel images are grouped for a person: a class in two groups is named twice, two in one must be cut."""
_MOST_GROUPED = 2000


@dataclass(frozen=True)
class Outcome:
    """A change that was made, and what it did to the false alarms on held-out samples."""

    change: Change
    false_alarms_before: float
    false_alarms_after: float


class Workbench:
    """A home with its learner, the images that wait, their groups and the history of changes.

    Whoever opens one holds the home's lock for as long as it is in use.
    """

    def __init__(
        self,
        home: Home,
        device: str = "auto",
        settings: AgentSettings | None = None,
        separating: Separating = separate,
    ) -> None:
        self._separating = separating
        home.settle()
        home.adopt()
        self.home = home
        self.settings = settings or FOR_PEOPLE
        self.model = VersionedLearner(home.load(device), home)
        self.index = EventIndex(home)
        self.inbox = Inbox(self.model.buffers, self.index.last_number())
        self.inbox.forget_after(self.index.last_number())
        self.changes: list[Change] = []
        self.said: dict[int, Said] = {}
        self._refresh()
        groups, log = read_groups(home)
        self._written = True
        self.groups = groups.after(each for each in self.changes if each.id > log).without(self.said)
        self.intake = Intake(home, self.model, self.inbox, self.index, self.settings.alarm)

    @property
    def learner(self) -> Learner:
        """What is known by now."""
        return self.model.learner

    # Groups -----------------------------------------------------------------------------------------------

    def waiting(self) -> list[int]:
        """List the images of which nobody has said what they are."""
        return [number for number in self.inbox.numbers() if number not in self.said]

    def listed(self) -> list[Group]:
        """List the groups of one moment, the largest first, and the images in none as the rest."""
        found = sorted(self.groups.found, key=lambda each: -len(each.members))
        grouped = {number for each in found for number in each.members}
        rest = tuple(number for number in self.waiting() if number not in grouped)
        return [*found, Group(REST, rest, purity=0.0)] if rest else found

    def ungrouped(self) -> list[int]:
        """List the images that wait and are in no group."""
        return [number for each in self.listed() if each.id == REST for number in each.members]

    def members(self, group: str, chosen: Sequence[int] | None = None) -> list[int]:
        """List the images of a group, or those that were chosen when it was shown, as long as they wait.

        Other groups may have been proposed since: what was chosen stands, whatever group it is in by now.
        """
        if chosen is None:
            return self.ungrouped() if group == REST else list(self.groups.of(group).members)
        strangers = sorted(set(chosen) - set(self.waiting()))
        if strangers:
            raise DataError(f"image {strangers[0]} does not wait in group {group}; reload the group")
        return sorted(set(chosen))

    def regroup(self) -> Groups:
        """Propose groups anew for all that waits; what the model knows by now is left out of them.

        Changes may be made meanwhile; what they say counts.
        """
        learner = self.learner
        with self.model.writing:
            numbers = [each for each in self.waiting() if each not in self.groups.fixed][-_MOST_GROUPED:]
            features = self.inbox.features(numbers, learner) if numbers else None
            inputs = self.inbox.inputs(numbers)
        found: list[list[int]] = []
        purity: tuple[float, ...] = ()
        drift = None
        if features is not None:
            rows = learner.judge_features(features).novel.cpu().nonzero()[:, 0]
            own, settings, apart = rows_of(features, rows), self.settings.proposals, self._separating
            proposal = propose(learner, inputs[rows], settings, features=own, separating=apart)
            places = [rows[proposal.groups == place].tolist() for place in range(len(proposal.purity))]
            found, purity = [[numbers[row] for row in rows] for rows in places], proposal.purity
            drift = proposal.drift.reason if proposal.drift else None
        with self.model.writing:
            gone = self.groups.fixed | self.said.keys() | {each for each in numbers if each not in self.inbox}
            left = [[each for each in group if each not in gone] for group in found]
            self._set_groups(self.groups.proposed(left, purity, drift), len(inputs))
        return self.groups

    def split_group(self, group: str, by: str, apart: Sequence[int] | None = None) -> Change:
        """Divide a group in two: the chosen images and the rest; without a choice, where it divides best."""
        if apart is None:
            apart = self._one_half(group, self.members(group))
        with self.model.writing:
            chosen = self.members(group, apart)
            after = self.groups.made(chosen) if group == REST else self.groups.divided(group, chosen)
            facts = {"group": group, "to": after.found[-1].id, "members": ranges(apart), "images": len(apart)}
            return self._say(events.GROUP_SPLIT, facts | {"by": by}, after)

    def merge_groups(self, group: str, into: str, by: str) -> Change:
        """Put a group's images into another group."""
        with self.model.writing:
            after = self.groups.merged(group, into)
            members = self.groups.of(group).members
            facts = {"group": group, "to": into, "members": ranges(members), "images": len(members)}
            return self._say(events.GROUPS_MERGED, facts | {"by": by}, after)

    def _one_half(self, group: str, members: list[int]) -> list[int]:
        if len(members) < 2:
            raise DataError(f"group {group} has one image and cannot be divided")
        marks = halves_of(self.learner, self.inbox.features(members, self.learner)).tolist()
        parts = [
            [number for number, mark in zip(members, marks, strict=True) if mark is side]
            for side in (True, False)
        ]
        return min(parts, key=len) or members[:1]

    def _set_groups(self, groups: Groups, images: int) -> None:
        if groups.drift is not None and self.groups.drift is None:
            reason = {"reason": groups.drift, "images": images}
            self.home.record({"kind": events.DRIFT, "batch": "", **reason})
        self._follow(groups)

    def _follow(self, groups: Groups) -> None:
        """Have other groups, and write them down as soon as there is room: what people said is in the log."""
        self._written = self._written and groups == self.groups
        self.groups = groups
        if not self._written:
            with suppress(ModelFileError):
                write_groups(self.home, groups)
                self._written = True

    # What a person says of images -------------------------------------------------------------------------

    def naming(
        self, group: str, name: str, by: str, chosen: Sequence[int] | None = None
    ) -> Generator[Progress, None, Outcome]:
        """Learn a group's images as a class, new or known, reporting on the way.

        Left early, nothing changes.
        """
        members = self.members(group, chosen)
        if not members:
            raise DataError(f"group {group} has no image that waits; reload the groups")
        label = new_class(name, self.learner.classes)
        if label in self.learner.classes and not self.learner.joins:
            raise SettingsError(
                f"{label!r} is a known class, to which this way of learning cannot add; say that these are "
                "not novel"
            )
        with self.model.writing:
            inputs, features = self.inbox.inputs(members), self.inbox.features(members, self.learner)
        facts: dict[str, Any] = {"by": by, "group": group, "members": ranges(members)}
        facts |= {"was": self._was(features), "known": label in self.learner.classes}
        before = held_out_false_alarms(self.learner)
        yield from self.model.accommodating(
            f"novel-{self.model.next_provisional()}", label, inputs, features=features, facts=facts, least=1
        )
        return self._outcome(before)

    def not_novel(self, group: str, by: str, chosen: Sequence[int] | None = None) -> Outcome:
        """Set the thresholds anew with images that a person says are of known classes."""
        members = self.members(group, chosen)
        if not members:
            raise DataError(f"group {group} has no image that waits; reload the groups")
        before, inputs = held_out_false_alarms(self.learner), self.inbox.inputs(members)
        was = self._was(self.inbox.features(members, self.learner))
        self.model.not_novel(inputs, by, group=group, members=ranges(members), was=was)
        return self._outcome(before)

    def dismiss(self, group: str, by: str, chosen: Sequence[int] | None = None) -> Change:
        """Set images aside that are rubbish."""
        members = self.members(group, chosen)
        with self.model.writing:
            facts = {"images": len(members), "members": ranges(members), "group": group, "by": by}
            return self._say(events.DISMISSED, facts, self.groups.without(members))

    # Classes, the rule, versions --------------------------------------------------------------------------

    def rename(self, old: str, new: str, by: str) -> Outcome:
        """Give a class another name."""
        classes = self.learner.classes
        label = known_class(old, classes)
        if match_class(new, classes) is not None:
            raise SettingsError(f"class {new!r} is known already; merge the two, or choose another name")
        before = held_out_false_alarms(self.learner)
        self.model.rename(label, new_class(new, classes), by)
        return self._outcome(before)

    def merge(self, label: str, into: str, by: str) -> Outcome:
        """Declare a class to be another."""
        before, classes = held_out_false_alarms(self.learner), self.learner.classes
        self.model.merge(known_class(label, classes), known_class(into, classes), by)
        return self._outcome(before)

    def unlearn(self, label: str, by: str) -> Outcome:
        """Forget a class."""
        before = held_out_false_alarms(self.learner)
        self.model.unlearn(known_class(label, self.learner.classes), by)
        return self._outcome(before)

    def split(self, label: str, by: str) -> Outcome:
        """Divide a class with a provisional name in two."""
        before = held_out_false_alarms(self.learner)
        self.model.split(known_class(label, self.learner.classes), by)
        return self._outcome(before)

    def set_accept_share(self, share: float, by: str) -> Outcome:
        """Accept another share of known samples."""
        before = held_out_false_alarms(self.learner)
        self.model.set_accept_share(share, by)
        return self._outcome(before)

    def rollback(self, version: int, by: str) -> Outcome:
        """Make an earlier version the one in use."""
        before = held_out_false_alarms(self.learner)
        self.model.rollback(version, by)
        return self._outcome(before)

    def undo(self, change: int, by: str) -> Change:
        """Take a change back: as it was where it was the last, else by its opposite."""
        found = next((each for each in self.changes if each.id == change), None)
        if found is None:
            raise SettingsError(f"there is no change {change}; choose one of the history")
        if not found.undoable:
            raise SettingsError(f"change {change} does not count any more, so there is nothing to take back")
        if found.before is None:
            return self._say_undone(found, by)
        latest = next(each for each in reversed(self.changes) if each.before is not None)
        if latest.id == found.id:
            self.model.rollback(found.before, by, undoes=found.id)
        else:
            self._opposite(found, by)
        return self._restored(found)

    def _restored(self, undone: Change) -> Change:
        """Follow the log, and put images that wait again into the group in which they were."""
        self._refresh()
        group = undone.facts.get("group", REST)
        with self.model.writing:
            back = [each for each in undone.members if each in self.inbox and each not in self.said]
            if back and group != REST:
                self._follow(self.groups.restored(group, back))
        return self.changes[-1]

    def _say_undone(self, change: Change, by: str) -> Change:
        with self.model.writing:
            groups = self.groups
            ids = {each.id for each in groups.found}
            if change.kind == events.GROUP_SPLIT and {change.facts["group"], change.facts["to"]} <= ids:
                groups = groups.merged(change.facts["to"], change.facts["group"])
            if change.kind == events.GROUPS_MERGED and change.facts["to"] in ids:
                back = sorted(set(change.members) & set(groups.of(change.facts["to"]).members))
                groups = groups.divided(change.facts["to"], back, change.facts["group"])
            self._say(events.UNDONE, {"undoes": change.id, "by": by}, groups)
        return self._restored(change) if change.kind == events.DISMISSED else self.changes[-1]

    def _opposite(self, change: Change, by: str) -> None:
        """Undo a change that others were built on, where it has an opposite."""
        line = change.facts
        if change.kind == events.ACCOMMODATED and not line.get("known"):
            self.model.unlearn(line["name"], by, undoes=change.id)
        elif change.kind == events.RENAMED:
            self.model.rename(line["to"], line["from"], by, undoes=change.id)
        elif change.kind == events.RULE_SET and line["from"] is not None:
            self.model.set_accept_share(line["from"], by, undoes=change.id)
        else:
            raise SettingsError(
                f"later changes build on change {change.id}; take those back first, or roll back to version "
                f"{change.before}"
            )

    # ------------------------------------------------------------------------------------------------------

    def _was(self, features: Views) -> dict[str, int]:
        """Count for which classes images were taken, before a person said what they are."""
        predicted = self.learner.judge_features(features).predicted.tolist()
        return dict(Counter(str(self.learner.classes[place]) for place in predicted))

    def _say(self, kind: str, facts: dict[str, Any], groups: Groups) -> Change:
        """Record what changes no model, and the groups as they are then."""
        self.home.record({"kind": kind, "batch": "", **facts})
        self._refresh()
        self._follow(groups.without(self.said))
        return self.changes[-1]

    def _outcome(self, before: float) -> Outcome:
        self._refresh()
        with self.model.writing:
            self._follow(self.groups.without(self.said))
        return Outcome(self.changes[-1], before, held_out_false_alarms(self.learner))

    def _refresh(self) -> None:
        """Follow the log."""
        self.changes = changes_of(self.index.changes(), self.home.version)
        self.said = said_of_images(self.changes)
