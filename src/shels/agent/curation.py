"""What an agent knows and keeps, and what a person may do to it: each change is a new version in the log."""

from __future__ import annotations

import re
import warnings
from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from shels.agent.home import BATCH, TAKEN, Home
from shels.data.samples import Label
from shels.errors import DataError, ModelFileError, SettingsError
from shels.learner.learner import Learner
from shels.runtime import to_end
from shels.training import Progress

_PROVISIONAL = re.compile(r"novel-([0-9]+)")
_MOST_KEPT = 5000
_CHANGES = ("accommodated", "renamed", "merged", "unlearned", "split", "rolled-back", "refitted")


class Curator:
    """A learner with its home: takes classes in, renames, merges, splits, forgets and goes back.

    Images of a class with a provisional name are kept, for a person to see what it is and to split it; they
    go when it gets a name of its own.
    """

    def __init__(self, learner: Learner, home: Home | None = None) -> None:
        self.learner = learner
        self.home = home
        self._kept: dict[str, Tensor] = {}
        self._last = self._order = self._version = 0
        if home is not None:
            held = sorted(home.buffered().items(), key=lambda item: int(item[1].get("order", 0)))
            self._kept = {name: tensors["inputs"] for name, tensors in held}
            self._order = max([0, *(int(tensors.get("order", 0)) for _, tensors in held)])
            self._version = home.version
            self._recover(home)

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
        batch: str = "",
        facts: Mapping[str, Any] | None = None,
    ) -> Generator[Progress, None, None]:
        """Learn a class under a name; under that of a known class, add the images to that class.

        batch, facts: what the log is to say beside.
        """
        known = name in self.learner.classes
        if provisional in self.learner.classes:
            provisional = f"novel-{self.reserve(1)}"
        new = yield from self.learner.accommodating(inputs, provisional if known else name, seed=seed)
        if known:
            new = new.merge(provisional, name)
        yield Progress(0, 0, stage="keeping")  # the last moment at which it may be called off
        if name == provisional:
            self._hold(TAKEN + provisional, inputs)
        self._adopt(new)
        self._last = max(self._last, _number(provisional))
        told = {"name": name, "images": len(inputs), "by": "person", **(facts or {})}
        seconds = new.report["taken_in"][-1]["seconds"]
        told |= {"provisional": provisional, "version": self.version, "seconds": seconds}
        self.record("accommodated", batch, told)

    take_in = to_end(taking_in)

    def keep(self, batch: str, inputs: Tensor) -> None:
        """Keep novel images until it is clear what they are."""
        self._hold(f"{BATCH}{batch}", inputs)
        names, count = [name for name in reversed(self._kept) if name.startswith(BATCH)], 0
        for name in names:
            if count >= _MOST_KEPT:
                self._drop([name])
                continue
            count += len(self._kept[name])

    def kept(self) -> Tensor:
        """Return the novel images of which it is not clear what they are, the latest 5,000 of one form."""
        held = [images for name, images in self._kept.items() if name.startswith(BATCH)]
        alike = [
            each for each in held if each.dtype == held[-1].dtype and each.shape[1:] == held[-1].shape[1:]
        ]
        return torch.cat(alike)[-_MOST_KEPT:]

    def release(self, batch: str | None = None) -> None:
        """Drop the images that were kept for the agent, of one batch or of all."""
        if batch is None:
            self._drop([name for name in self._kept if name.startswith(BATCH)])
        elif BATCH + batch in self._kept:
            self._drop([BATCH + batch])

    def next_provisional(self) -> int:
        """Return the first number of a provisional name that was never used."""
        return 1 + max([self._last, *(_number(name) for name in self.learner.classes)])

    def reserve(self, count: int) -> int:
        """Return the first of so many numbers for provisional names, none of which is given again."""
        first = self.next_provisional()
        self._last = first + count - 1
        return first

    def record(self, kind: str, batch: str, facts: dict[str, Any]) -> None:
        """Write an event to the home's log."""
        if self.home is not None:
            self.home.record({"kind": kind, "batch": batch, **facts})

    def finished_batches(self) -> set[str]:
        """Return the keys of all batches that are done with, as the log has them."""
        events = self.home.events() if self.home is not None else []
        return {event["done"] for event in events if "done" in event}

    # What a person does -----------------------------------------------------------------------------------

    def rename(self, old: Label, new: Label, by: str = "person") -> None:
        """Give a class another name."""
        _differ(old, new)
        self._adopt(self.learner.rename(old, new))
        self._named("renamed", old, {"from": old, "to": new, "by": by})

    def merge(self, label: Label, into: Label, by: str = "person") -> None:
        """Declare a class to be another, which may be one that was known from the first."""
        _differ(label, into)
        self._adopt(self.learner.merge(label, into))
        both = [self._kept.get(f"{TAKEN}{name}") for name in (into, label)]
        if both[0] is not None and both[1] is not None:
            self._hold(f"{TAKEN}{into}", torch.cat([both[0], both[1]]))
        self._named("merged", label, {"from": label, "to": into, "by": by})

    def unlearn(self, label: Label, by: str = "person") -> None:
        """Forget a class."""
        self._adopt(self.learner.unlearn(label))
        self._named("unlearned", label, {"name": label, "by": by})

    def split(self, label: Label, by: str = "person") -> tuple[str, str]:
        """Divide a class with a provisional name into two by its images, and return their names."""
        self.learner.detector.check("split", self.learner.settings.accommodation.kind)
        images = self._kept.get(f"{TAKEN}{label}")
        if images is None or len(images) < _count(self.learner, label):
            raise DataError(
                f"there are no images of all of {label!r} to split it by: they are kept of classes taken in "
                "under a provisional name alone, and until it is named; unlearn it, and take in the parts"
            )
        halves = _halves(self.learner, images)
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
            self._hold(TAKEN + name, part)
        self._last = first + 1
        change = {"kind": "split", "from": label, "to": list(names)}
        self._adopt(replace(new, report=new.report | {"last_change": change}))
        self._named("split", label, {"from": label, "to": list(names), "by": by})
        return names

    def rollback(self, version: int, by: str = "person") -> None:
        """Return to an earlier version."""
        if self.home is None:
            raise SettingsError("there is no home with earlier versions; give the agent one")
        self._version = self.home.rollback(version)
        self.learner = self.home.load(str(self.learner.device))
        self.record("rolled-back", "", {"to": version, "by": by})

    def images_of(self, label: Label) -> Tensor | None:
        """Return the kept images of a class with a provisional name, to look at."""
        return self._kept.get(f"{TAKEN}{label}")

    # ------------------------------------------------------------------------------------------------------

    def _adopt(self, learner: Learner) -> None:
        if self.home is not None:
            with self.home.lock():
                if self.home.version != self._version:
                    raise ModelFileError(
                        f"{self.home.directory} is at version {self.home.version}, no longer at "
                        f"{self._version}: somebody changed it meanwhile; load it again"
                    )
                self._version = self.home.commit(learner)
        self.learner = learner

    def _named(self, kind: str, label: Label, facts: dict[str, Any]) -> None:
        self._drop([f"{TAKEN}{label}"])
        self.record(kind, "", facts | {"version": self.version})

    def _hold(self, name: str, inputs: Tensor) -> None:
        self._kept.pop(name, None)
        self._kept[name] = inputs
        self._order += 1
        if self.home is not None:
            self.home.buffer(name, {"inputs": inputs, "order": torch.tensor(self._order)})

    def _drop(self, names: list[str]) -> None:
        for name in names:
            self._kept.pop(name, None)
        if self.home is not None:
            self.home.clear(names)

    def _recover(self, home: Home) -> None:
        """Take up the log: numbers that were used, and a class that was taken in just before a crash."""
        events = home.events()
        self._last = max([0, *(_number(name) for event in events for name in _names(event))])
        logged = {event["version"] for event in events if event.get("kind") in _CHANGES}
        change = self.learner.report.get("last_change")
        if home.version not in logged and change:
            home.record({"batch": "", **change, "by": "recovered", "version": home.version})


def _names(event: Mapping[str, Any]) -> list[Any]:
    """Return every name of a class that an event speaks of."""
    found = [event.get(key) for key in ("name", "provisional", "from", "to")]
    return [name for each in found for name in (each if isinstance(each, list) else [each])]


def _differ(old: Label, new: Label) -> None:
    if old == new:
        raise SettingsError(f"both names are {old!r}; give two different ones")


def _number(name: object) -> int:
    match = _PROVISIONAL.fullmatch(name) if isinstance(name, str) else None
    return int(match[1]) if match else 0


def _count(learner: Learner, label: Label) -> int:
    """Return from how many images a class was learned, as far as that is known."""
    if label not in learner.classes:
        return 0
    return learner.detector.counts().get(learner.classes.index(label), 0)


def _halves(learner: Learner, images: Tensor) -> Tensor:
    """Return a mark for each image that divides them into the two parts that lie farthest apart: (n,)."""
    from sklearn.cluster import KMeans  # noqa: PLC0415

    rows = learner.detector.clustering_rows(learner.views(images))
    found = KMeans(2, n_init=10, random_state=0).fit_predict(rows.cpu().numpy())
    return torch.from_numpy(found == 0)
