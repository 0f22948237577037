"""Our figures beside the published ones, each with whether it lies in the interval and why it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from shels.experiments.published import AS_PUBLISHED, Published
from shels.experiments.statistics import Summary
from shels.report.page import Cell, Mark, Table
from shels.report.reproduction.remarks import Difference
from shels.report.studies import LENGTH, Group, Study, every_group
from shels.report.tables import significance
from shels.report.words import figure, measure, prose, spread


@dataclass(frozen=True, eq=False)
class Beside:
    """A mean of ours, and what the paper published for it."""

    study: Study
    group: Group
    measure: str
    ours: Summary
    theirs: Published

    @property
    def inside(self) -> bool:
        """Whether our mean lies within the published mean ± sd."""
        return self.theirs.contains(self.ours.mean)

    @property
    def key(self) -> tuple[str, str, str]:
        """Experiment, method and measure, as remarks name them."""
        return self.study.name, self.group.method, self.measure


def beside_published(studies: Sequence[Study], *, shortened: bool = False) -> list[Beside]:
    """Give all figures that the paper has too, of trials with the catalogue's settings.

    shortened: those of a training of another length too, which no count of what reproduces has.
    """
    return [
        Beside(study, group, *each)
        for study, group in every_group(studies)
        if group.departures().keys() <= ({LENGTH} if shortened else set())
        for each in group.comparisons()
        if each[0] in group.measures
    ]


def as_published(found: Sequence[Beside]) -> list[Beside]:
    """Choose, where an experiment has variants, the one in whose setting the published row was made."""
    names = {each.study.name for each in found}
    bases = {name.partition("@")[0] for name in names}
    chosen = {AS_PUBLISHED[base] if AS_PUBLISHED.get(base) in names else base for base in bases}
    return [each for each in found if each.study.name in chosen]


def table_beside(found: Sequence[Beside]) -> Table | None:
    """Put every figure that the paper has too beside the published one; None without any."""
    rows: list[list[Cell]] = []
    for _, some in groupby(found, key=lambda each: (each.study.name, each.group.title)):
        rows += [_row(each, first=not place) for place, each in enumerate(some)]
    columns = ("Data", "Method", "Trials", "Measure", "Ours", "Published", "Difference", "Within?")
    return Table(columns, rows, left=4, merged=True) if rows else None


def _row(each: Beside, *, first: bool) -> list[Cell]:
    method = ", ".join(filter(None, (each.group.title, each.group.other_length)))
    who: list[Cell] = [method, str(len(each.group.results))] if first else ["", ""]
    figures = (spread(each.measure, each.ours), spread(each.measure, each.theirs))
    difference = figure(each.measure, each.ours.mean - each.theirs.mean, sign=True)
    answer = Mark("yes") if each.inside else Mark("no", "best")  # bold
    return [each.study.short, *who, measure(each.measure).heading, *figures, difference, answer]


def table_alone(studies: Sequence[Study]) -> Table | None:
    """Give the methods that the paper does not have, with the stars of their tests against the first."""
    rows: list[list[Cell]] = []
    for study, group in every_group(studies):
        if any(group.comparisons()):
            continue
        tests = study.compared.get(group, {})
        means = [(key, group.summary(key)) for key in group.measures]
        cells = [Mark(spread(key, each), after=significance(tests.get(key))) for key, each in means if each]
        rows.append([study.short, group.title, len(group.results), *cells])
    headings = (measure(key).heading for key in studies[0].measures)
    columns = ("Data", "Method", "Trials", *headings)
    return Table(columns, rows, "", prose("alone_note"), left=3, merged=True) if rows else None


# Why they differ ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Explained:
    """Figures outside the published interval, and the sentence that says why; none yet where it is empty."""

    figures: Sequence[Beside]
    sentence: str

    @property
    def places(self) -> str:
        """What it speaks of: data, method and measures.

        Measures that belong to the same data and method are named together.
        """
        named: dict[tuple[str, str], list[str]] = {}
        for each in self.figures:
            place = (each.study.short, each.group.title)
            named.setdefault(place, []).append(measure(each.measure).heading)
        return "; ".join(f"{data}, {who}: {', '.join(keys)}" for (data, who), keys in named.items())


def explained(found: Sequence[Beside], differences: Sequence[Difference]) -> list[Explained]:
    """Give the figures outside the interval with their sentences, those of one sentence together."""
    outside = [each for each in found if not each.inside]
    made: dict[str, list[Beside]] = {}
    for each in outside:
        words = [remark.sentence for remark in differences if remark.explains(*each.key)]
        made.setdefault(" ".join(words[:1]), []).append(each)
    return [Explained(figures, sentence) for sentence, figures in made.items()]


def idle(found: Sequence[Beside], differences: Sequence[Difference]) -> list[Difference]:
    """Find sentences on experiments that were run, but of which no figure lies outside the interval."""
    present = {each.key for each in found}
    outside = {each.key for each in found if not each.inside}
    return [
        remark
        for remark in differences
        if any(remark.explains(*key) for key in present) and not any(remark.explains(*key) for key in outside)
    ]
