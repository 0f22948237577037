"""Results put in order: trials that belong in one mean, beside those that they are compared with."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby
from typing import Any

import numpy as np

from shels.config import to_dict
from shels.detection.exclusivity import mean_exclusivity
from shels.detection.measures import MEASURES as EVERY_MEASURE
from shels.errors import DataError
from shels.experiments.catalogue import AT_BEST, CATALOGUE
from shels.experiments.catalogue import FAMILIES as EXPERIMENTS
from shels.experiments.methods import FAMILIES as METHOD_FAMILIES
from shels.experiments.methods import METHODS
from shels.experiments.published import TRIALS, Published, published
from shels.experiments.statistics import Comparison, Summary, compare_measures, summary_of
from shels.experiments.trials import FEW_SHOT_MEASURES, LEARNING_MEASURES, MEASURES, TrialResult, measures_of
from shels.report.words import NOTHING, flat

EXCLUSIVITY = "exclusivity"
BASELINE = "scaled-cosine"
"""The method that the paper compares its own with; here it may have nothing but published figures."""

LENGTH = "training.epochs"
"""The setting that shortens an experiment."""

FAMILIES = {
    "within": ("Within data sets", "within data sets"),
    "across": ("Across data sets", "across data sets"),
    "exclusivity": ("Exclusivity of features", ""),
    "group-sparsity": ("The weight of group sparsity", ""),
    "incremental": ("Learning class by class", ""),
    "open-world": ("Without class boundaries", ""),
    "few-shot": ("From few images", ""),
    "osr": ("The open-set protocol", "on the protocol of the open-set literature"),
    "other": ("Other experiments", "in experiments of one's own"),
}
"""Kinds of experiments in the order of a report: the title of each and, of detection, the words for it."""

_WEIGHTS, _DATA = "network.weights", ("known data", "novel data")
_PRECISION, _IMAGES = "precision", "images"

Variant = tuple[tuple[str, str], ...]


@dataclass(frozen=True, eq=False)
class Group:
    """Trials of one experiment and method that differ in nothing but their seed and their classes.

    variant: names and values of what tells it from other groups of its experiment; empty in most cases.
    standard: whether it alone of its method has the catalogue's settings, so that its name says enough.
    """

    experiment: str
    method: str
    variant: Variant
    results: tuple[TrialResult, ...]
    standard: bool = False

    @cached_property
    def title(self) -> str:
        """The method, and what is particular about it."""
        name = method_title(self.method)
        if self.standard:
            return name
        return name + "".join(f", {key.rpartition('.')[2]} {value}" for key, value in self.variant)

    @cached_property
    def settings(self) -> dict[str, str]:
        """All settings by their whole names, as text."""
        return _settings(self.results[0])

    @property
    def measures(self) -> tuple[str, ...]:
        """Keys of the measures that its tables show."""
        return measures_of(self.experiment)

    @property
    def short_of_trials(self) -> bool:
        """Whether it rests on fewer trials than the paper's figures, where the paper prints any."""
        learned = {each.name: each.trial_count for each in EXPERIMENTS["incremental"]}  # as in the paper
        theirs = TRIALS if self.measures == MEASURES else learned.get(self.experiment, 0)
        return len(self.results) < theirs

    def values(self, measure: str) -> list[float]:
        """Give the measure of each trial that has it; exclusivity as the mean over pairs of classes."""
        found = [result.metrics.get(measure, math.nan) for result in self.results]
        found = [value for value in found if math.isfinite(value)]
        if measure == EXCLUSIVITY and not found:
            matrices = [np.asarray(matrix) for matrix in self.details("exclusivity")]
            return [mean_exclusivity(matrix) for matrix in matrices if len(matrix) > 1]
        return found

    def summary(self, measure: str) -> Summary | None:
        """Give mean and spread, or None where nothing was measured."""
        return summary_of(self.values(measure))

    def published(self, measure: str) -> Published | None:
        """Look up the paper's figure for it, where it has one."""
        return published(self.experiment, self.method, measure)

    def comparisons(self) -> Iterator[tuple[str, Summary, Published]]:
        """Give each measure that the paper has a figure for: its key, our mean and the paper's."""
        for measure in dict.fromkeys((*self.measures, EXCLUSIVITY)):
            ours, theirs = self.summary(measure), self.published(measure)
            if ours is not None and theirs is not None:
                yield measure, ours, theirs

    @property
    def as_catalogued(self) -> bool:
        """Whether it has the catalogue's settings for its experiment and method."""
        return not _differences(self.experiment, self.method, self.settings)

    def departures(self) -> dict[str, tuple[str, str]]:
        """List the settings that are not the paper's, each with its value here and there."""
        if published(self.experiment, "shels", "auroc") is None:
            return {}
        ours = self.settings
        pairs = _differences(self.experiment, self.method, ours)
        if ours[_WEIGHTS] == NOTHING and ours["network.architecture"] == "vgg16":
            pairs[_WEIGHTS] = (NOTHING, "pretrained on ImageNet")
        return pairs

    @property
    def other_length(self) -> str:
        """What the length of its training is where it is not the paper's; else nothing."""
        length = self.departures().get(LENGTH)
        return f"{length[0]} of {length[1]} epochs" if length else ""

    def details(self, name: str) -> list[Any]:
        """Give a detail of each trial that has it."""
        return [result.details[name] for result in self.results if result.details.get(name)]


@dataclass(frozen=True, eq=False)
class Study:
    """One experiment: its groups, the first method's first."""

    name: str
    groups: tuple[Group, ...]

    @cached_property
    def compared(self) -> dict[Group, dict[str, Comparison]]:
        """The tests of each group against its reference, by measure; the reason where there can be none."""
        tests = {}
        for group in self.groups:
            reference, keys = self.reference(group), group.measures
            if reference is group:
                continue
            try:
                tests[group] = compare_measures(group.results, reference.results, self.pairs(group), keys)
            except DataError as error:
                tests[group] = dict.fromkeys(keys, Comparison(0, reason=str(error)))
        return tests

    @property
    def title(self) -> str:
        """What the paper calls it; of an experiment that is not the paper's, its name."""
        return CATALOGUE[self.name].title if self.name in CATALOGUE else self.name

    @property
    def short(self) -> str:
        """The title's beginning, enough beside others of its family."""
        start = self.title.partition(":")[0]
        variant = self.name.removesuffix(AT_BEST).partition("@")[2]
        several = self.family == "open-world" or "-all" in self.name  # of one data set
        if several and (entry := CATALOGUE.get(self.name)):
            numbers = f" {entry.known_count} + {entry.novel_count}".replace(" ", "\N{NO-BREAK SPACE}")
            start += numbers + (f", {variant}" if variant and self.family == "open-world" else "")
        return start.replace(" known", "\N{NO-BREAK SPACE}known").replace(" novel", "\N{NO-BREAK SPACE}novel")

    @property
    def family(self) -> str:
        """The kind of experiment, one of FAMILIES."""
        kind = self.name.partition("/")[0]
        return kind if kind in FAMILIES else "other"

    @property
    def learning(self) -> bool:
        """Whether its methods learn class by class; if not, they detect novel samples."""
        return self.measures in (LEARNING_MEASURES, FEW_SHOT_MEASURES)

    @property
    def swept(self) -> bool:
        """Whether it varies a setting on purpose, from trial to trial."""
        return self.name in CATALOGUE and len(CATALOGUE[self.name].sweep) > 1

    @property
    def measures(self) -> tuple[str, ...]:
        """Keys of the measures that its tables show."""
        return self.groups[0].measures

    @property
    def contenders(self) -> tuple[Group, ...]:
        """The groups that the best is chosen of: all but bounds, unless there is nothing else."""
        bounds = METHOD_FAMILIES.get("bounds", ())
        found = tuple(group for group in self.groups if METHODS.get(group.method) not in bounds)
        return found or self.groups

    @property
    def paired(self) -> bool:
        """Whether trials are compared in pairs: as the catalogue says, else where classes follow the seed."""
        if self.name in CATALOGUE:
            return CATALOGUE[self.name].paired
        trials = [result.trial for group in self.groups for result in group.results]
        seeds = {(trial.seed, trial.known, trial.novel) for trial in trials}
        classes = {(trial.known, trial.novel) for trial in trials}
        return len(classes) > 1 and len(seeds) == len({trial.seed for trial in trials})

    def pairs(self, group: Group) -> bool:
        """Whether a group is compared seed by seed: as its study is, or since it shares its networks."""
        return self.paired or _same_network(group, self.reference(group))

    def reference(self, group: Group) -> Group:
        """Choose what a group is compared with: the first method, with settings that differ as its own."""
        first = self.groups[0].method
        alike = (each for each in self.groups if each.method == first and each.variant == group.variant)
        return next(alike, group)


def studies(results: Sequence[TrialResult]) -> list[Study]:
    """Sort results by experiment, the paper's in its order, others by name; of a trial the last counts."""
    latest = {result.trial.key: result for result in results}
    ordered = sorted(latest.values(), key=_order)
    by_experiment = groupby(ordered, key=lambda result: result.trial.experiment)
    return [Study(name, _groups(list(found))) for name, found in by_experiment]


def every_group(found: Sequence[Study]) -> list[tuple[Study, Group]]:
    """Give the groups of several studies in order, each with its study."""
    return [(study, group) for study in found for group in study.groups]


def further_measures(groups: Sequence[Group]) -> list[str]:
    """Give the keys of what was measured beyond the groups' own measures; exclusivity is one of them."""
    keys = {key for group in groups for each in group.results for key in {*each.metrics} - {*group.measures}}
    keys |= {EXCLUSIVITY} if any(group.values(EXCLUSIVITY) for group in groups) else set()
    return [key for key in EVERY_MEASURE if key in keys] + sorted(keys - {*EVERY_MEASURE})


def method_title(name: str) -> str:
    """Give a method's name for readers; a method of somebody's own has but its key."""
    return METHODS[name].title if name in METHODS else name


def _order(result: TrialResult) -> tuple[Any, ...]:
    trial, names, methods = result.trial, list(CATALOGUE), list(METHODS)
    place = names.index(trial.experiment) if trial.experiment in names else len(names)
    rank = methods.index(trial.method) if trial.method in methods else len(methods)
    return place, trial.experiment, rank, trial.method, trial.seed, trial.key


def _settings(result: TrialResult) -> dict[str, str]:
    trial = result.trial
    data = zip(_DATA, (trial.known_data, trial.novel_data), strict=True)
    found = flat(to_dict(trial.settings)) | dict(data) | {_PRECISION: trial.precision}
    return found if trial.images is None else found | {_IMAGES: str(trial.images)}


def _groups(results: Sequence[TrialResult]) -> tuple[Group, ...]:
    """Divide an experiment's results by method and, where one was run with several settings, by those."""
    by_method: dict[str, dict[Variant, list[TrialResult]]] = {}
    for result in results:
        whole = tuple(_settings(result).items())
        by_method.setdefault(result.trial.method, {}).setdefault(whole, []).append(result)
    varied = {
        name
        for kinds in by_method.values()
        for name in {name for kind in kinds for name, _ in kind}
        if len({dict(kind).get(name) for kind in kinds}) > 1
    }
    made, experiment = [], results[0].trial.experiment
    for method, kinds in by_method.items():
        standard = [kind for kind in kinds if not _differences(experiment, method, dict(kind))]
        others = sorted((kind for kind in kinds if kind not in standard), key=partial(_by_size, varied))
        for kind in [*standard, *others]:
            variant = tuple(each for each in kind if each[0] in varied)
            alone = standard == [kind] and method in METHODS
            made.append(Group(experiment, method, variant, tuple(kinds[kind]), alone))
    return tuple(made)


def _by_size(varied: Collection[str], kind: Variant) -> list[tuple[bool, float, str]]:
    """Order settings by what is varied in them: numbers by their size, then words."""
    return [_size(value) for name, value in kind if name in varied]


def _size(value: str) -> tuple[bool, float, str]:
    try:
        return False, float(value), value
    except ValueError:
        return True, 0.0, value


def _differences(experiment: str, method: str, ours: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """List the settings that are not the catalogue's, each with its value here and there.

    Where a file of weights lies is no difference, nor is the precision, of which the paper does not speak.
    """
    if experiment not in CATALOGUE or method not in METHODS:
        return {}
    entry = CATALOGUE[experiment]
    theirs = flat(to_dict(METHODS[method].settings(entry.settings, entry.known_data)))
    names = [name for name in {**ours, **theirs} if name not in (*_DATA, _WEIGHTS, _PRECISION, _IMAGES)]
    pairs = {name: (ours.get(name, NOTHING), theirs.get(name, NOTHING)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _same_network(one: Group, other: Group) -> bool:
    """Whether two methods use the same trained networks: they are then no independent samples."""
    if one.method not in METHODS or other.method not in METHODS:
        return False
    trials = (one.results[0].trial, other.results[0].trial)
    losses = [METHODS[t.method].loss for t in trials]
    parts = [(t.settings.network, t.settings.training, t.precision) for t in trials]
    return losses[0] is losses[1] and parts[0] == parts[1]
