"""An experiment: what its trials have in common, and which they are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from shels.config import Precision, Settings
from shels.data.samples import Label
from shels.data.sources import named_set
from shels.data.splits import AUTHORS_ORDERS, ClassSplit, authors_split, draw_classes
from shels.errors import SettingsError
from shels.experiments.methods import Method, Task
from shels.experiments.trials import MeasuredOn, Trial
from shels.experiments.variant import MARK, Variant, base_name
from shels.learner.pairing import least_images

Point: TypeAlias = tuple[tuple[str, Any], ...]
"""A point of a sweep: names and values of training settings, or "images", of each new class."""


@dataclass(frozen=True)
class Experiment:
    """One row of a table: what its trials have in common.

    title: for people. known_data, novel_data: data sets; within a data set both are the same.
    settings: what a method starts from. known_count: how many classes are known; None takes all of
    known_data, and all of novel_data as novel. novel_count: how many of the others are novel; None takes all.
    task: what methods are to do: tell novel samples from known ones, learn the novel classes one by one, or
    find and learn them as an agent that is told nothing.
    sweep: the points at which each trial is run, as fields of its training settings, or the number of images
    that new classes are learned from; one, unless it is a study of such a setting. measured_on: which images.
    splits: the known classes of the first trials, where somebody published them.
    methods: names or families of those that it is about, run where nobody says which; empty for our own.
    trial_count: how many trials it is run with where nobody says.
    variant: what makes it another experiment than the one of the same name before the "@".
    """

    name: str
    title: str
    known_data: str
    novel_data: str
    settings: Settings
    task: Task = "detection"
    known_count: int | None = None
    novel_count: int | None = None
    sweep: tuple[Point, ...] = ((),)
    methods: tuple[str, ...] = ()
    trial_count: int = 10
    measured_on: MeasuredOn = "test"
    variant: Variant | None = None
    splits: tuple[tuple[int, ...], ...] = ()

    def takes(self, method: Method) -> bool:
        """Tell whether a method has something to do here."""
        only = self.variant.methods if self.variant else ()
        return method.task == self.task and (not only or method.name in only)

    @property
    def base(self) -> str:
        """The experiment that it is a variant of, or itself, by name."""
        return base_name(self.name)

    @property
    def indented(self) -> str:
        """Its name in a list, a variant's set in under the experiment that it is of."""
        return f"  {self.name}" if self.variant else self.name

    @property
    def summary(self) -> str:
        """What it is, or what is otherwise than in the experiment that it is a variant of."""
        return f"  … {self.variant.label}" if self.variant else self.title

    @property
    def paired(self) -> bool:
        """Whether methods are compared seed by seed, on the same classes: within a data set.

        Across data sets all trials have the same classes, and the paper compares them as independent.
        """
        return self.known_data == self.novel_data

    def classes(self, seed: int) -> tuple[tuple[Label, ...], tuple[Label, ...]]:
        """Return the known and the novel classes of a trial, the same for every method.

        Of ten classes the trials 0-9 take the authors' orders, the first ones known, unless there are splits.
        Later trials draw their classes from the seed; so do all of GTSRB, whose orders the paper does not
        give.
        """
        known = tuple(range(named_set(self.known_data).class_count))
        if self.known_count is None:
            return known, tuple(range(named_set(self.novel_data).class_count))
        if seed < len(self.splits):
            split = ClassSplit(
                self.splits[seed], tuple(name for name in known if name not in self.splits[seed])
            )
        elif len(known) == 10 and seed < len(AUTHORS_ORDERS) and not self.splits:
            split = authors_split(seed, self.known_count)
        else:
            split = draw_classes(known, self.known_count, seed)
        return split.known, split.novel[: self.novel_count]

    def trials(
        self,
        method: Method,
        count: int,
        *,
        epochs: int | None = None,
        weights: str | None = None,
        precision: Precision = "float32",
    ) -> list[Trial]:
        """Return the trials 0 to count - 1 of a method; the first ones are the same whatever the count.

        epochs: another length of training. weights: a file of VGG16's pretrained weights, for experiments
        that train VGG16; others go without. precision: what convolutions multiply in. All three make other
        trials.
        """
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise SettingsError(f"the number of trials must be a whole number, 1 or more, got {count!r}")
        if method.task != self.task:
            ways = f"{method.name} is a way of {method.task}, and {self.name} asks for {self.task}"
            raise SettingsError(ways)
        if not self.takes(method):
            raise SettingsError(f"{self.name} is about {', '.join(self.methods)}, not about {method.name}")
        settings = method.settings(_changed(self.settings, epochs, weights), self.known_data)
        sets = (self.known_data, self.novel_data)
        return [
            Trial(self.name, method.name, seed, *sets, *classes, made, precision, self.measured_on, images)
            for seed, classes in enumerate(map(self.classes, range(count)))
            for made, images in self._points(settings)
        ]

    def _points(self, settings: Settings) -> list[tuple[Settings, int | None]]:
        """Give the settings and the number of images at each point of the sweep that these settings allow."""
        found = []
        for point in map(dict, self.sweep):
            images = point.pop("images", None)
            made = replace(settings, training=replace(settings.training, **point))
            if images is None or images >= least_images(made):
                found.append((made, images))
        return found

    def varied(self, variant: Variant) -> Experiment:
        """Give the same experiment with one choice made otherwise.

        >>> from shels.experiments.catalogue import CATALOGUE
        >>> from shels.experiments.variants import VARIANTS
        >>> CATALOGUE["within/digits"].varied(VARIANTS["last-weights"]).name
        'within/digits@last-weights'
        """
        start, colon, rest = self.title.partition(":")
        return replace(
            self,
            name=f"{self.name}{MARK}{variant.name}",
            title=f"{start}, {variant.label}{colon}{rest}",
            settings=variant.applied(self.settings),
            measured_on=variant.measured_on,
            methods=variant.methods or self.methods,
            variant=variant,
        )


def _changed(settings: Settings, epochs: int | None, weights: str | None) -> Settings:
    if epochs is not None:
        settings = replace(settings, training=replace(settings.training, epochs=epochs, steps=None))
    if weights is not None and settings.network.architecture == "vgg16":
        settings = replace(settings, network=replace(settings.network, weights=weights))
    return settings
