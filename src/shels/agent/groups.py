"""Novel images in groups that a person can name: proposed again as images come, each keeping its id.

What a person has divided or put together stays as it is. The groups stand in HOME/novel/groups.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from shels.agent import events
from shels.agent.inbox import numbers_of, ranges
from shels.errors import DataError, SettingsError, unknown_name
from shels.files import require_regular, unharmed, write_whole

if TYPE_CHECKING:
    from shels.agent.history import Change
    from shels.agent.home import Home

REST = "rest"
"""The id under which images are listed that are in no group."""


@dataclass(frozen=True)
class Group:
    """Images that look like one new class. members: their numbers. fixed: whether a person made it so."""

    id: str
    members: tuple[int, ...]
    purity: float = 1.0
    fixed: bool = False

    def without(self, numbers: Iterable[int]) -> Group:
        """Leave some images out."""
        gone = set(numbers)
        return replace(self, members=tuple(each for each in self.members if each not in gone))


@dataclass(frozen=True)
class Groups:
    """All groups of a home. last: the number of the last id that was given. drift: why there are none."""

    found: tuple[Group, ...] = ()
    last: int = 0
    drift: str | None = None

    @property
    def fixed(self) -> set[int]:
        """The images that are in groups which a person made."""
        return {number for each in self.found if each.fixed for number in each.members}

    def of(self, group: str) -> Group:
        """Give a group by its id."""
        for each in self.found:
            if each.id == group:
                return each
        raise SettingsError(unknown_name("group", group, [each.id for each in self.found]))

    def without(self, numbers: Iterable[int]) -> Groups:
        """Leave images out, and groups in which none is left."""
        gone = set(numbers)
        rest = (each.without(gone) for each in self.found)
        return replace(self, found=tuple(each for each in rest if each.members))

    def proposed(
        self, members: Sequence[Sequence[int]], purity: Sequence[float], drift: str | None = None
    ) -> Groups:
        """Replace all groups but the fixed ones; a new one takes the id of the old one that it mostly is.

        >>> before = Groups((Group("g1", (1, 2, 3)),), last=1)
        >>> [(each.id, each.members) for each in before.proposed([[7, 8], [1, 2, 3, 4]], [1, 1]).found]
        [('g2', (7, 8)), ('g1', (1, 2, 3, 4))]
        """
        fixed = [each for each in self.found if each.fixed]
        old = {each.id: set(each.members) for each in self.found if not each.fixed}
        ids, last = [""] * len(members), self.last
        pairs = [
            (len(mine & set(new)), place, name)
            for place, new in enumerate(members)
            for name, mine in old.items()
        ]
        for shared, place, name in sorted(pairs, key=lambda pair: -pair[0]):
            if (
                shared
                and not ids[place]
                and name in old
                and 2 * shared > min(len(members[place]), len(old[name]))
            ):
                ids[place] = name
                del old[name]
        made = []
        for place, new in enumerate(members):
            if not new:
                continue
            if not ids[place]:
                last += 1
            made.append(Group(ids[place] or f"g{last}", tuple(new), float(purity[place])))
        return Groups((*fixed, *made), last, drift)

    def divided(self, group: str, apart: Sequence[int], name: str = "") -> Groups:
        """Put some images of a group into one of their own."""
        whole = self.of(group)
        inside = tuple(each for each in whole.members if each in set(apart))
        rest = whole.without(inside)
        if not inside or not rest.members:
            raise DataError(f"{group} must keep an image and lose one; choose some of its images, not all")
        new = Group(name or f"g{self.last + 1}", inside, whole.purity, fixed=True)
        others = tuple(each for each in self.found if each.id != group)
        return replace(
            self, found=(*others, replace(rest, fixed=True), new), last=max(self.last, _number(new.id))
        )

    def made(self, numbers: Sequence[int], name: str = "") -> Groups:
        """Make a group of images that are in none, or in others."""
        new = Group(name or f"g{self.last + 1}", tuple(numbers), fixed=True)
        rest = self.without(numbers)
        return replace(rest, found=(*rest.found, new), last=max(self.last, _number(new.id)))

    def merged(self, group: str, into: str) -> Groups:
        """Put the images of a group into another."""
        if group == into:
            raise SettingsError(f"both groups are {group}; give two different ones")
        one, other = self.of(group), self.of(into)
        joined = replace(other, members=tuple(sorted({*other.members, *one.members})), fixed=True)
        others = tuple(each for each in self.found if each.id not in (group, into))
        return replace(self, found=(*others, joined))

    def restored(self, group: str, numbers: Sequence[int]) -> Groups:
        """Put images back into a group, or into a new one of that id."""
        found = {each.id: each for each in self.without(numbers).found}
        there = found.get(group, Group(group, ()))
        found[group] = replace(there, members=tuple(sorted({*there.members, *numbers})))
        return replace(self, found=tuple(found.values()))

    def after(self, changes: Iterable[Change]) -> Groups:
        """Follow changes of the log that were made after these groups were written down."""
        now = self
        for change in changes:
            group, to = str(change.facts.get("group")), str(change.facts.get("to"))
            here = {each.id for each in now.found}
            divides = change.counts and change.kind == events.GROUP_SPLIT
            joins = change.counts and change.kind == events.GROUPS_MERGED
            if divides and group == REST:
                now = now.made(change.members, to)
            elif divides and group in here and not set(now.of(group).members) <= set(change.members):
                now = now.divided(group, change.members, to)
            elif joins and {group, to} <= here:
                now = now.merged(group, to)
        return now


def read_groups(home: Home) -> tuple[Groups, int]:
    """Read the groups of a home, and how long the log was then; what is damaged is proposed anew."""
    path = home.directory / "novel" / "groups.json"
    require_regular(path)
    try:
        found = json.loads(path.read_bytes())
        groups = tuple(_group(each) for each in found["groups"])
        return Groups(groups, int(found["last"]), found["drift"] and str(found["drift"])), int(found["log"])
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return Groups(last=_last_in_log(home)), 0


def write_groups(home: Home, groups: Groups) -> None:
    """Write the groups down."""
    rows = [
        {"id": each.id, "members": ranges(each.members), "purity": each.purity, "fixed": each.fixed}
        for each in groups.found
    ]
    text = json.dumps({"groups": rows, "last": groups.last, "drift": groups.drift, "log": home.log.size})
    with unharmed(home.directory, "what it holds is"):
        write_whole(home.directory / "novel" / "groups.json", text)


def _group(found: dict[str, Any]) -> Group:
    members = tuple(numbers_of(str(found["members"])))
    return Group(str(found["id"]), members, float(found["purity"]), bool(found["fixed"]))


def _last_in_log(home: Home) -> int:
    names = [str(line.get(key, "")) for line in home.events() for key in ("group", "to")]
    return max(map(_number, names), default=0)


def _number(name: str) -> int:
    digits = name.removeprefix("g")
    return int(digits) if name.startswith("g") and digits.isdecimal() and len(digits) < 12 else 0
