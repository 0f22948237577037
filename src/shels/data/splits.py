"""Which samples train and which validate; which classes are known and which novel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from shels import runtime
from shels.config import AcceptShare, Settings, TrainingSettings
from shels.data.samples import DataSet, Label, Samples
from shels.errors import SettingsError, unknown_name

# The class orders of the ten trials in the authors' own runs; the first classes are the known ones.
AUTHORS_ORDERS: tuple[tuple[int, ...], ...] = (
    (9, 5, 2, 4, 7, 1, 0, 8, 6, 3),
    (2, 1, 0, 4, 6, 5, 7, 8, 3, 9),
    (2, 4, 8, 3, 9, 0, 5, 7, 6, 1),
    (6, 9, 3, 5, 7, 0, 2, 8, 4, 1),
    (6, 0, 2, 8, 9, 1, 3, 4, 5, 7),
    (2, 0, 6, 3, 8, 7, 5, 9, 4, 1),
    (2, 6, 7, 8, 0, 1, 5, 4, 3, 9),
    (0, 8, 3, 6, 7, 1, 9, 4, 5, 2),
    (2, 6, 3, 8, 1, 7, 0, 4, 5, 9),
    (6, 9, 7, 1, 5, 8, 0, 4, 2, 3),
)


@dataclass(frozen=True)
class ClassSplit:
    """Classes to learn and classes to notice.

    known: two or more, in the order of the labels.
    novel: the others, none of them known; empty where there is nothing to notice.
    """

    known: tuple[Label, ...]
    novel: tuple[Label, ...]

    def __post_init__(self) -> None:
        if len(self.known) < 2:
            raise SettingsError(f"at least 2 classes must be known, got {list(self.known)}; name or add more")
        for part, classes in (("known", self.known), ("novel", self.novel)):
            if len(set(classes)) != len(classes):
                raise SettingsError(f"a {part} class is listed twice in {list(classes)}; name each once")
        both = [name for name in self.known if name in self.novel]
        if both:
            raise SettingsError(f"class {both[0]!r} is both known and novel; leave it in one of the two")


def hold_out(samples: Samples, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Return positions to train on and positions to validate on, so that no class lacks either.

    Of each class of two or more, about `share` is held out: at least one sample, never all. Samples
    with groups are held out by whole groups. Both (n,) int64, sorted, disjoint, together everything.

    >>> samples = Samples(torch.eye(6), torch.tensor([0, 0, 0, 1, 1, 1]), ("cat", "dog"))
    >>> [len(part) for part in hold_out(samples, 0.3, seed=0)]
    [4, 2]
    """
    return hold_out_labels(samples.labels, samples.groups, share, seed)


def hold_out_labels(labels: Tensor, groups: Tensor | None, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Return what `hold_out` does, of samples that are given by their labels and groups alone."""
    if not 0 < share < 1:
        raise SettingsError(f"the held-out share must lie between 0 and 1, got {share}")
    draws = runtime.generator(seed, "hold-out")
    held = torch.zeros(len(labels), dtype=torch.bool)
    for position in range(int(labels.max()) + 1 if len(labels) else 0):
        members = (labels == position).nonzero()[:, 0]
        held[members] = _held_of_class(members if groups is None else groups[members], share, draws)
    return (~held).nonzero()[:, 0], held.nonzero()[:, 0]


def training_split(
    labels: Tensor, groups: Tensor | None, settings: TrainingSettings, seed: int
) -> tuple[Tensor, Tensor]:
    """Return positions to train on and to validate on, as settings of a training have it.

    Disjoint, as by `hold_out`, unless what is held out is to be trained on as well.
    """
    training, held = hold_out_labels(labels, groups, settings.validation_share, seed)
    return (torch.arange(len(labels)) if settings.validation == "trained" else training), held


class Division(NamedTuple):
    """Positions of samples to train on, to choose the network by, and to set thresholds on: each (n,).

    The last two are the same samples, unless the rule wants thresholds from samples that chose nothing.
    """

    training: Tensor
    selection: Tensor
    calibration: Tensor


def divided(labels: Tensor, groups: Tensor | None, settings: Settings, seed: int) -> Division:
    """Divide samples as settings have it: what `training_split` holds out is halved where thresholds want it.

    Where the last weights count whatever validation says, nothing is chosen and all of it may set thresholds.
    A class of a single held-out sample, or group, has it set its threshold.
    """
    training, held = training_split(labels, groups, settings.training, seed)
    if not chosen_apart(settings) or not len(held):
        return Division(training, held, held)
    mine = labels[held], None if groups is None else groups[held]
    calibration, selection = hold_out_labels(*mine, 0.5, seed)
    return Division(training, held[selection] if len(selection) else held, held[calibration])


def divided_as_given(training: Samples, validation: Samples, settings: Settings, seed: int) -> Division:
    """Divide samples followed by others that somebody held out: these choose the network and set thresholds.

    Both, unless thresholds want samples that chose nothing; then they are halved.
    """
    held = torch.arange(len(training), len(training) + len(validation))
    if not chosen_apart(settings):
        return Division(torch.arange(len(training)), held, held)
    calibration, selection = hold_out(validation, 0.5, seed)
    chosen = held[selection] if len(selection) else held
    return Division(torch.arange(len(training)), chosen, held[calibration])


def chosen_apart(settings: Settings) -> bool:
    """Tell whether samples that choose the network must not set thresholds."""
    asked = isinstance(settings.rule, AcceptShare) and settings.rule.calibration == "separate"
    return asked and (settings.training.keep == "best" or settings.training.patience is not None)


def whole_groups(labels: Tensor, groups: Tensor | None, share: float, seed: int) -> Tensor:
    """Return the positions of whole groups, drawn from all classes, that are nearest to a share of all.

    A group is one of a class: groups of two classes are two. Without groups each sample is one. Sorted, (n,).

    >>> whole_groups(torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([7, 7, 8, 7, 7, 7]), 0.5, seed=0).tolist()
    [3, 4, 5]
    """
    if not 0 < share < 1:
        raise SettingsError(f"the share must lie between 0 and 1, got {share}")
    own = torch.arange(len(labels)) if groups is None else groups.cpu()
    pairs = torch.stack([labels.cpu(), own])
    _, member_of, sizes = torch.unique(pairs, dim=1, return_inverse=True, return_counts=True)
    order = torch.randperm(len(sizes), generator=runtime.generator(seed, "whole-groups"))
    reached = sizes[order].cumsum(0)
    count = int((reached - round(share * len(labels))).abs().argmin()) + 1
    return torch.isin(member_of, order[:count]).nonzero()[:, 0]


def draw_classes(classes: Sequence[Label], known_count: int, seed: int) -> ClassSplit:
    """Return a random choice of known classes; the others are novel.

    >>> draw_classes(["ant", "bee", "cat", "dog"], 3, seed=0)
    ClassSplit(known=('dog', 'ant', 'bee'), novel=('cat',))
    """
    if not 2 <= known_count < len(classes):
        raise SettingsError(
            f"the number of known classes must be 2 to {len(classes) - 1} of the {len(classes)}, "
            f"so that one at least is novel, got {known_count}"
        )
    order = torch.randperm(len(classes), generator=runtime.generator(seed, "classes")).tolist()
    drawn = [classes[i] for i in order]
    return ClassSplit(tuple(drawn[:known_count]), tuple(drawn[known_count:]))


def exact_classes(
    classes: Sequence[Label], known: Sequence[Label] | None = None, novel: Sequence[Label] | None = None
) -> ClassSplit:
    """Return the split with exactly these classes; where one list is None, it takes the rest.

    A name may be text: "3" finds the class 3. With both lists, classes in neither are left out.

    >>> exact_classes(range(5), known=["0", 3])
    ClassSplit(known=(0, 3), novel=(1, 2, 4))
    """
    if known is None and novel is None:
        raise SettingsError("name the known classes, the novel ones, or both")
    named = [known_class(name, classes) for name in known or ()]
    others = [known_class(name, classes) for name in novel or ()]
    if known is None:
        named = [name for name in classes if name not in others]
    elif novel is None:
        others = [name for name in classes if name not in named]
    return ClassSplit(tuple(named), tuple(others))


def authors_split(trial: int, known_count: int = 5) -> ClassSplit:
    """Return the classes 0-9 as the authors' trial 0-9 divided them, for figures that can be compared."""
    if not 0 <= trial < len(AUTHORS_ORDERS):
        raise SettingsError(f"the authors' trials are 0 to {len(AUTHORS_ORDERS) - 1}, got {trial}")
    order = AUTHORS_ORDERS[trial]
    if not 2 <= known_count < len(order):
        raise SettingsError(f"the number of known classes must be 2 to {len(order) - 1}, got {known_count}")
    return ClassSplit(order[:known_count], order[known_count:])


@dataclass(frozen=True)
class ClassChoice:
    """Which classes a person wants to be known; without any word about it, all of them.

    known, novel: by name. known_count: this many, drawn from a seed. authors_order: the authors' trial 0-9.
    """

    known: Sequence[str] | None = None
    novel: Sequence[str] | None = None
    known_count: int | None = None
    authors_order: int | None = None

    @property
    def open(self) -> bool:
        """Whether nothing was said of which classes to learn."""
        return self == ClassChoice()

    def split(self, classes: tuple[Label, ...], seed: int) -> ClassSplit:
        """Divide the classes of a data set into known and novel ones.

        >>> ClassChoice(known=["0", "2"]).split((0, 1, 2), seed=0)
        ClassSplit(known=(0, 2), novel=(1,))
        """
        if self.authors_order is not None:
            if {str(name) for name in classes} != {str(digit) for digit in range(10)}:
                raise SettingsError("--authors-order is for data with the ten classes 0 to 9; use --known")
            count = 5 if self.known_count is None else self.known_count
            theirs = authors_split(self.authors_order, count)
            return exact_classes(classes, theirs.known, theirs.novel)
        if self.known_count is not None:
            return draw_classes(classes, self.known_count, seed)
        if self.open:
            return ClassSplit(classes, ())
        return exact_classes(classes, self.known, self.novel)


def split_data(data: DataSet, split: ClassSplit) -> tuple[Samples, Samples, Samples]:
    """Return the known classes to train on, the known to test on, and the novel to test on.

    Labels are positions in split.known, split.known and split.novel.
    """
    train_known = data.train.only(split.known)
    train_known.require_every_class()
    return train_known, data.test.only(split.known), data.test.only(split.novel)


def divide(samples: Samples, classes: Sequence[Label]) -> tuple[Samples, Samples]:
    """Return the samples of a model's classes, under its labels, and those of all other classes."""
    texts = [str(name) for name in samples.classes]
    places = [match_class(name, classes) for name in samples.classes]
    for row, name in enumerate(samples.classes):  # 3 and "3" in the data: only what is written the same fits
        if texts.count(str(name)) > 1 and name not in classes:
            places[row] = None
    position = torch.tensor([-1 if place is None else place for place in places])
    mine = samples.take(position[samples.labels] >= 0)
    known = replace(mine, labels=position[mine.labels], classes=tuple(classes))
    others = [name for name, place in zip(samples.classes, places, strict=True) if place is None]
    return known, samples.only(others)


def known_class(name: Label, classes: Sequence[Label]) -> Label:
    """Find the class that is written so.

    >>> known_class("3", [1, 3])
    3
    """
    place = match_class(name, classes)
    if place is None:
        raise SettingsError(unknown_name("class", name, classes))
    return classes[place]


def new_class(name: str, classes: Sequence[Label]) -> Label:
    """Choose a name for a class beside these: a number where they are numbers, unless it is no number.

    The name of a class that is there already comes back as that class.

    >>> new_class("7", [1, 3]), new_class("cow", [1, 3]), new_class("7", ["cat", "dog"])
    (7, 'cow', '7')
    """
    if not name.strip():
        raise SettingsError("a class must have a name, got an empty one")
    if name == "novel":
        raise SettingsError("'novel' is the word for no class; choose another name")
    place = match_class(name, classes)
    if place is not None:
        return classes[place]
    numbers = any(isinstance(other, int) and not isinstance(other, bool) for other in classes)
    as_number = name.isascii() and name.removeprefix("-").isdigit() and str(int(name)) == name
    return int(name) if numbers and as_number else name


def match_class(name: Label, classes: Sequence[Label]) -> int | None:
    """Return the place of a class by its name, or of the only one that is written so ("3" finds 3)."""
    if name in classes:
        return classes.index(name)
    written = [place for place, other in enumerate(classes) if str(other) == str(name)]
    return written[0] if len(written) == 1 else None


def _held_of_class(groups: Tensor, share: float, draws: torch.Generator) -> Tensor:
    """Return which samples of one class are held out: a mask, True for whole groups."""
    distinct, member_of, sizes = torch.unique(groups, return_inverse=True, return_counts=True)
    order = torch.randperm(len(distinct), generator=draws)
    held = torch.zeros(len(distinct), dtype=torch.bool)
    if len(distinct) >= 2:
        reached = sizes[order].cumsum(0)[:-1]  # samples held out with 1, 2, ... groups, never all
        count = int((reached - round(share * len(groups))).abs().argmin()) + 1
        held[order[:count]] = True
    return held[member_of]
