"""The page on fidelity: each choice that the text leaves open, and what it does to our figures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shels.experiments.preparing import training_key
from shels.experiments.statistics import Summary, differences, summary_of
from shels.experiments.trials import LEARNING_MEASURES, MEASURES, TrialResult
from shels.experiments.variant import Variant, base_name
from shels.report.page import Cell, Table, rendered
from shels.report.reproduction.remarks import Remarks
from shels.report.studies import Group, Study
from shels.report.words import NOTHING, count, figure, measure

SAME, AGAIN, OTHER = "same networks", "networks trained again", "networks of its own"
"""What stands behind an effect: the choice alone, a second training too, or a training that it changes."""


@dataclass(frozen=True)
class Effect:
    """What a choice does to a group's measures: variant less base on the same seeds, by measure.

    networks: whether both were judged on the same ones.
    """

    choice: Variant
    study: Study
    group: Group
    found: Mapping[str, Summary]
    networks: str = ""

    @property
    def trials(self) -> int:
        """How many pairs stand behind it."""
        return max(each.n for each in self.found.values())

    @property
    def sentence(self) -> str:
        """The effect in words."""
        shown = ", ".join(
            f"{measure(key).heading} {with_error(key, each)}" for key, each in self.found.items()
        )
        about = ", ".join(filter(None, (count(self.trials, "trial"), self.networks)))
        return f"{self.study.name}, {self.group.title}: {shown} ({about})"


def fidelity_page(found: Sequence[Study], choices: Sequence[Variant], remarks: Remarks) -> str:
    """Write the page: tables of the measured effects, then every choice in words."""
    effects = {choice.name: list(effects_of(choice, found)) for choice in choices}
    every = [each for some in effects.values() for each in some if not each.choice.measures]
    tables = {
        "Detection": _table([each for each in every if not each.study.learning], MEASURES),
        "Learning class by class": _table([each for each in every if each.study.learning], LEARNING_MEASURES),
    }
    return rendered(
        "fidelity.md",
        choices=choices,
        effects=effects,
        tables={title: table for title, table in tables.items() if table.rows},
        notes=remarks.notes.get("fidelity", ()),
        folder="",
    )


def effects_of(choice: Variant, found: Sequence[Study]) -> Iterator[Effect]:
    """Give the effect of a choice on each experiment and method that it was run with."""
    by_name = {study.name: study for study in found}
    if choice.measures:
        yield from _recorded_effects(choice, choice.measures, found)
        return
    for base in choice.experiments:
        varied, plain = by_name.get(f"{base}@{choice.name}"), by_name.get(base)
        for group in varied.groups if varied and plain else ():
            other = _like(group, choice.against or group.method, plain) if plain else None
            if varied and other and (effect := _effect(group, other)):
                yield Effect(choice, varied, group, effect, _networks(group, other))


def _networks(group: Group, other: Group) -> str:
    """Say whether two groups were judged on the same networks, or on some that should be equal and are not.

    A network trained beside another number of trials is rounded otherwise, and soon is another one.
    """
    ours, theirs = ({each.trial.seed: each for each in some.results} for some in (group, other))
    pairs = [(ours[seed], theirs[seed]) for seed in ours.keys() & theirs.keys()]
    if any(training_key(one.trial) != training_key(two.trial) for one, two in pairs):
        return OTHER
    same = all(_trained(one) == _trained(two) for one, two in pairs)
    return SAME if same else AGAIN


def _trained(result: TrialResult) -> tuple[Any, ...]:
    details = result.details
    return details.get("stacked"), details.get("best_epoch"), result.metrics.get("exclusivity")


def with_error(key: str, found: Summary) -> str:
    """Write a difference with its standard error; of a single pair the difference alone.

    >>> with_error("auroc", Summary(0.01, 0.02, 4, None, None))
    '+0.010 ± 0.010'
    """
    mean = figure(key, found.mean, sign=True)
    return mean if found.sd is None else f"{mean} ± {figure(key, found.sd / math.sqrt(found.n))}"


def _like(group: Group, method: str, study: Study) -> Group | None:
    """Find the group of the plain experiment that a variant's is compared with: as the catalogue has it."""
    same = [each for each in study.groups if each.method == method and each.as_catalogued]
    precision = group.results[0].trial.precision
    return next((each for each in same if each.results[0].trial.precision == precision), None)


def _effect(group: Group, other: Group) -> dict[str, Summary]:
    found = {key: summary_of(differences(group.results, other.results, key)) for key in group.measures}
    return {key: each for key, each in found.items() if each is not None}


def _recorded_effects(choice: Variant, keys: tuple[str, str], found: Sequence[Study]) -> Iterator[Effect]:
    """Give the difference of two measures that every trial has, for SHELS on each plain experiment."""
    for study in found:
        for group in study.groups:
            if "@" in study.name or group.method != "shels" or study.swept:
                continue
            both = [(each.metrics.get(keys[0]), each.metrics.get(keys[1])) for each in group.results]
            if effect := summary_of(None if one is None or two is None else one - two for one, two in both):
                yield Effect(choice, study, group, {keys[0]: effect})


def _table(effects: Sequence[Effect], keys: Sequence[str]) -> Table:
    rows: list[list[Cell]] = []
    for each in effects:
        cells = [with_error(key, each.found[key]) if key in each.found else NOTHING for key in keys]
        about: list[Cell] = [each.choice.label, base_name(each.study.name), each.group.title]
        rows.append([*about, *cells, each.trials, each.networks])
    learning = bool(effects) and effects[0].study.learning
    headings = (measure(key).heading_in(learning=learning) for key in keys)
    return Table(("Choice", "On", "Method", *headings, "Trials", "Judged on"), rows, left=3, merged=True)
