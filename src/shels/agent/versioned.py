"""A learner whose every change is a version in its home: what the agent learns and what a person corrects."""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Generator, Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from shels.agent import events
from shels.agent.buffers import UNNAMED, Buffers
from shels.agent.home import Home
from shels.agent.journal import BatchNote
from shels.data.samples import Label
from shels.errors import DataError, ModelFileError, SettingsError
from shels.learner.changes import taking_in
from shels.learner.learner import Learner
from shels.learner.pairing import LEAST_IMAGES, detector_name
from shels.learner.rule import promised_share
from shels.learning.protocol import trained_alone
from shels.model.chains import describe
from shels.model.networks import Views
from shels.runtime import to_end
from shels.training import Fit, TrainingRequest

_PROVISIONAL = re.compile(r"novel-([0-9]+)")


class VersionedLearner:
    """A learner with its home: it learns classes, renames, merges, splits, forgets them and goes back.

    Each change is a version and an event of the log, both or neither, however the program ends. Images of a
    class with a provisional name are kept, for a person to see what it is and to split it; they go when it
    gets a name of its own. Without a home all of it is in memory alone. writing: held while anything is
    written, so that one thread may observe while another learns; what takes long is worked out before.
    """

    def __init__(self, learner: Learner, home: Home | None = None) -> None:
        if home is not None and home.settle():
            learner = home.load(str(learner.device))
        self.learner = learner
        self.home = home
        self.writing = threading.RLock()
        self.buffers = Buffers(home)
        self._version = 0 if home is None else home.version
        self._before: tuple[int, Learner | None] = (0, None)
        self.last_number = self._logged = 0  # of provisional names; the log need not speak of the last
        if home is not None:
            self._take_up(home)

    @property
    def version(self) -> int:
        """The number of the model in use; without a home, one more than the classes taken in."""
        return self.home.version if self.home else 1 + len(self.learner.report["taken_in"])

    # What the agent does ----------------------------------------------------------------------------------

    def taking_in(
        self,
        provisional: str,
        name: Label,
        inputs: Tensor,
        seed: int = 0,
        *,
        features: Views | None = None,
        groups: Tensor | None = None,
        batch: str = "",
        facts: Mapping[str, Any] | None = None,
        least: int = LEAST_IMAGES,
    ) -> Generator[TrainingRequest, Fit, None]:
        """Learn a class under a name, asking for the trainings that it takes; left early, nothing changes.

        Under the name of a known class, the images are added to that class. features: of the inputs, where
        they are known. groups: samples that are held out together. batch, facts: what the log is to say.
        least: how many different images are enough.
        """
        known = name in self.learner.classes
        if provisional in self.learner.classes:
            provisional = f"novel-{self.reserve(1)}"
        label = provisional if known else name
        new = yield from taking_in(
            self.learner, inputs, label, seed=seed, groups=groups, features=features, least=least
        )
        if known:
            new = new.merge(provisional, name)
        self.last_number = max(self.last_number, _number(provisional))
        note = {"name": name, "images": len(inputs), "by": "person", **(facts or {})}
        note |= {"provisional": provisional, "seconds": new.report["taken_in"][-1]["seconds"]}
        hold = {UNNAMED + provisional: inputs} if name == provisional else {}
        self.change(events.ACCOMMODATED, note, new, batch=batch, hold=hold)

    accommodating = trained_alone(taking_in)
    accommodate = to_end(accommodating)

    def reserve(self, count: int) -> int:
        """Return the first of so many numbers for provisional names, none of which is given again."""
        first = self.next_provisional()
        self.last_number = first + count - 1
        return first

    def next_provisional(self) -> int:
        """Return the first number of a provisional name that was never used."""
        return 1 + max([self.last_number, *(_number(name) for name in self.learner.classes)])

    @property
    def log_has_all_numbers(self) -> bool:
        """Whether the numbers that were given are all in the log, or in the names of classes."""
        return self.last_number <= max([self._logged, *(_number(name) for name in self.learner.classes)])

    def record(self, kind: str, batch: str, facts: dict[str, Any]) -> None:
        """Write an event that changes nothing to the home's log."""
        events.kind_of(kind)
        with self.writing:
            if self.home is not None:
                self.home.record({"kind": kind, "batch": batch, **facts})
            self._note_numbers(facts)

    def finished_batches(self) -> set[str]:
        """Return the keys of all batches that are done with, as the log has them."""
        log = self.home.events() if self.home is not None else []
        return {event["done"] for event in log if "done" in event}

    # What a person does -----------------------------------------------------------------------------------

    def rename(self, old: Label, new: Label, by: str = "person", **more: Any) -> None:
        """Give a class another name. more: what else the log is to say."""
        _differ(old, new)
        facts = {"from": old, "to": new, "by": by, **more}
        self.change(events.RENAMED, facts, self.learner.rename(old, new), drop=[f"{UNNAMED}{old}"])

    def merge(self, label: Label, into: Label, by: str = "person") -> None:
        """Declare a class to be another, which may be one that was known from the first."""
        _differ(label, into)
        images = [self.buffers.of_class(name) for name in (into, label)]
        both = [each for each in images if each is not None]
        hold = {f"{UNNAMED}{into}": torch.cat(both)} if len(both) == 2 else {}
        facts = {"from": label, "to": into, "by": by}
        new = self.learner.merge(label, into)
        self.change(events.MERGED, facts, new, hold=hold, drop=[f"{UNNAMED}{label}"])

    def unlearn(self, label: Label, by: str = "person", **more: Any) -> None:
        """Forget a class. more: what else the log is to say."""
        facts = {"name": label, "by": by, **more}
        self.change(events.UNLEARNED, facts, self.learner.unlearn(label), drop=[f"{UNNAMED}{label}"])

    def split(self, label: Label, by: str = "person") -> tuple[str, str]:
        """Divide a class with a provisional name into two by its images, and return their names."""
        self.learner.detector.check("split", self.learner.settings.accommodation.kind)
        images = self.buffers.of_class(label)
        if images is None or len(images) < _count(self.learner, label):
            raise DataError(
                f"there are no images of all of {label!r} to split it by: they are kept of classes taken in "
                "under a provisional name alone, and until it is named; unlearn it, and take in the parts"
            )
        halves = halves_of(self.learner, self.learner.views(images))
        least = min(int(halves.sum()), int((~halves).sum()))
        if least < 5:
            raise DataError(f"{label!r} does not divide in two: one part would have {least} images")
        first = self.next_provisional()
        names = f"novel-{first}", f"novel-{first + 1}"
        parts = dict(zip(names, (images[halves], images[~halves]), strict=True))
        new = self.learner.unlearn(label)
        for name, part in parts.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the halves of one class look alike
                new = new.accommodate(part, name)
        self.last_number = first + 1
        facts = {"from": label, "to": list(names)}
        new = replace(new, report=new.report | {"last_change": {"kind": events.SPLIT, **facts}})
        hold = {UNNAMED + name: part for name, part in parts.items()}
        self.change(events.SPLIT, facts | {"by": by}, new, hold=hold, drop=[f"{UNNAMED}{label}"])
        return names

    def rollback(self, version: int, by: str = "person", **more: Any) -> None:
        """Return to an earlier version. more: what else the log is to say."""
        if self.home is None:
            raise SettingsError("there is no home with earlier versions; give the agent one")
        learner = self._version_of(self.home, version)
        event = {"kind": events.ROLLED_BACK, "batch": "", "to": version, "by": by, **more}
        with self.writing:
            now = self._version, self.learner
            self._version = self.home.change(event, version=version)
            self._remember(now, learner)
            self.learner = learner

    def _remember(self, before: tuple[int, Learner], now: Learner) -> None:
        """Keep the model that was in use, to which a person may return; not with a network of its own."""
        self._before = before if before[1].network is now.network else (0, None)

    def _version_of(self, home: Home, version: int) -> Learner:
        """Give an earlier version: the one before as it was, others from disk.

        On the network of the model in use where theirs is the same, for images that it has seen need not pass
        it again.
        """
        number, before = self._before
        if number == version and before is not None and version in home.versions():
            return before
        found = home.load(str(self.learner.device), version)
        same = describe(found.network.body) == describe(self.learner.network.body)
        mine, theirs = (each.network.state_dict() for each in (self.learner, found))
        same = same and mine.keys() == theirs.keys()
        if same and all(torch.equal(mine[name], theirs[name]) for name in mine):
            found.network = self.learner.network
        return found

    def set_accept_share(self, share: float, by: str = "person", **more: Any) -> None:
        """Accept another share of known samples, on the scores that there are; nothing is trained."""
        before = promised_share(self.learner)
        facts = {"from": before, "to": share, "by": by, **more}
        self.change(events.RULE_SET, facts, self.learner.with_accept_share(share))

    def not_novel(self, inputs: Tensor, by: str = "person", **more: Any) -> None:
        """Set the thresholds anew with images that a person says are of known classes."""
        facts = {"images": len(inputs), "by": by, **more}
        self.change(events.NOT_NOVEL, facts, self.learner.with_known(inputs))

    def refit(self, learner: Learner) -> None:
        """Put a learner in use that has another way of learning or detecting, on the same network."""
        names = {"learner": learner.settings.accommodation.kind, "detector": detector_name(learner.settings)}
        self.change(events.REFITTED, names, learner)

    # ------------------------------------------------------------------------------------------------------

    def change(
        self,
        kind: str,
        facts: Mapping[str, Any],
        learner: Learner,
        *,
        batch: str = "",
        hold: Mapping[str, Tensor] | None = None,
        drop: Iterable[str] = (),
    ) -> None:
        """Put a learner in use: with a home, as a new version with its event, and images that come and go."""
        events.kind_of(kind)
        with self.writing:
            self._change({"kind": kind, "batch": batch, **facts}, learner, hold or {}, drop)
            self._note_numbers(facts)

    def _change(
        self, event: Mapping[str, Any], learner: Learner, hold: Mapping[str, Tensor], drop: Iterable[str]
    ) -> None:
        come = self.buffers.numbered(hold)
        if self.home is not None:
            with self.home.lock():
                self.home.settle()
                if self.home.version != self._version:
                    raise ModelFileError(
                        f"{self.home.directory} is at version {self.home.version}, no longer at "
                        f"{self._version}: somebody changed it meanwhile; load it again"
                    )
                tensors = {name: each.tensors() for name, each in come.items()}
                now = self._version, self.learner
                self._version = self.home.change(event, learner, hold=tensors, drop=drop)
                self._remember(now, learner)
        self.learner = learner
        self.buffers.changed(come, drop)

    def _note_numbers(self, facts: Mapping[str, Any]) -> None:
        self._logged = max([self._logged, *(_number(name) for name in events.names_in(facts))])

    def _take_up(self, home: Home) -> None:
        """Take up the log: numbers that were given, and a change that an earlier release did not log.

        It wrote `current` before the log, and no note of the change under way.
        """
        log = home.events()
        for event in log:
            self._note_numbers(event)
        self.last_number = self._logged
        note = BatchNote.read(home)
        if note is not None:
            self.last_number = max(self.last_number, note.last)
            if self.log_has_all_numbers and any(e.get("done") == note.key for e in home.events(note.log)):
                home.write_batch_note(None)
        logged = {event["version"] for event in log if events.changes_model(event)}
        change = self.learner.report.get("last_change")
        if home.version not in logged and change:
            home.record({"batch": "", **change, "by": "recovered", "version": home.version})


def _differ(old: Label, new: Label) -> None:
    if old == new:
        raise SettingsError(f"both names are {old!r}; give two different ones")


def _number(name: object) -> int:
    match = _PROVISIONAL.fullmatch(name) if isinstance(name, str) else None
    return int(match[1]) if match else 0


def _count(learner: Learner, label: Label) -> int:
    """Return from how many images a class was learned, as far as that is known."""
    place = learner.classes.index(label) if label in learner.classes else -1
    return learner.detector.counts().get(place, 0)


def halves_of(learner: Learner, features: Views) -> Tensor:
    """Return a mark for each image that divides them into the two parts that lie farthest apart: (n,)."""
    from sklearn.cluster import KMeans  # noqa: PLC0415

    rows = learner.detector.clustering_rows(features)
    found = KMeans(2, n_init=10, random_state=0).fit_predict(rows.cpu().numpy())
    return torch.from_numpy(found == 0)
