"""The report on experiments: our figures in tables and charts laid out as the paper's, beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shels._version import __version__
from shels.errors import DataError
from shels.experiments.trials import TrialResult
from shels.files import write_whole
from shels.report import charts, findings, machine, tables
from shels.report.breakdown import class_tables, stage_table
from shels.report.drawing import Figure
from shels.report.page import Block, Fold, Page, Section, Table, figures, html, markdown
from shels.report.spreadsheet import summary_csv, trials_csv
from shels.report.studies import EXCLUSIVITY, FAMILIES, Study, studies
from shels.report.words import count, prose, spread

_FIGURES = "figures"


_KINDS = {
    "detection": "novelty detection",
    "exclusivity": "exclusive features",
    "learning": "learning class by class",
    "open_world": "the open world",
}
"""What a report can be about, in the order of its title; each has its measures explained."""
_KIND_OF = {"exclusivity": "exclusivity", "incremental": "learning", "open-world": "open_world"}


def write_report(results: Sequence[TrialResult], directory: Path) -> list[Path]:
    """Write report.html, report.md, trials.csv, summary.csv and the charts, and list where they lie.

    The same results give the same files, byte for byte.
    """
    if not results:
        raise DataError("there is no result to report on; run a trial first")
    found = studies(results)
    page = report_page(found)
    files: dict[str, str | bytes] = {
        "report.html": html(page),
        "report.md": markdown(page, _FIGURES),
        "trials.csv": trials_csv(found),
        "summary.csv": summary_csv(found),
    }
    files |= {f"{_FIGURES}/{figure.name}.png": figure.png() for figure in figures(page)}
    for name, content in files.items():
        write_whole(directory / name, content)
    return [directory / name for name in files]


def report_page(found: Sequence[Study]) -> Page:
    """Put together all that the report says."""
    tasks = {_KIND_OF.get(study.family, "detection") for study in found}
    kinds = {kind: words for kind, words in _KINDS.items() if kind in tasks}
    families = {name: [study for study in found if study.family == name] for name in FAMILIES}
    sections = [
        Section("In short", [*findings.in_short(found), *(prose(f"{kind}_measures") for kind in kinds)]),
        *(_family(name, members) for name, members in families.items() if members),
        *(_behind(study) for study in found),
        Section("Machine and time", [machine.machines(found), machine.times(found)]),
    ]
    title = " and ".join(kinds.values())
    title, lead = f"{title[0].upper()}{title[1:]} with SHELS", findings.lead(found)
    footer = f"Written by shels {__version__}."
    return Page(title, lead, sections, findings.facts(found), machine.settings(found), footer, contents=True)


def _family(name: str, members: Sequence[Study]) -> Section:
    title, kind = FAMILIES[name]
    learning = members[0].learning
    caption = f"Novelty detection {kind}" if kind else title
    words = prose("introduction", family=name, bounds=findings.bounds(members))
    drawn = charts.drawn(charts.FAMILY, name, members)
    times = machine.learning_times(members) if learning else None
    published = tables.against_published(members, "Ours beside the published figures")
    overview = tables.overview(members, caption)
    if any(study.swept for study in members):  # dozens of rows that the chart shows
        blocks: list[Block] = [words, *drawn, *_folds("Every point", [overview])]
    else:
        blocks = [words, overview, *drawn]
    blocks += _present(times, published)
    blocks += _folds("All statistical tests", _present(tables.statistics(members)))
    blocks += _folds("Further measures", _present(tables.further(members)))
    return Section(title, blocks)


def _behind(study: Study) -> Section:
    """Show what lies behind an experiment's figures, as far as its trials have kept it."""
    drawn = [] if study.swept else charts.drawn(charts.STUDY, "networks", study)  # else a line for each value
    stages = _present(stage_table(study))
    classes: list[Figure | Table] = [*charts.drawn(charts.STUDY, "classes", study)]
    classes += class_tables(study)
    blocks: list[Block] = [_composition(study), *_exclusivity(study), *drawn]
    if len(blocks) == 1 and not stages and not classes and not study.swept:
        blocks.append("Its trials have kept no details of training, exclusivity or classes.")
    blocks += [*_folds("Stage by stage", stages), *_folds("Class by class", classes)]
    return Section(f"Learning {study.title}" if study.learning else study.title, blocks)


def _composition(study: Study) -> str:
    numbers = {group.title: count(len(group.results), "trial") for group in study.groups}
    if study.swept:
        every = count(sum(len(group.results) for group in study.groups), "trial")
        return f"{study.name}: {every} at {count(len(study.groups), 'point')} of the sweep."
    if len({*numbers.values()}) == 1:
        return f"{study.name}: {next(iter(numbers.values()))} with {' · '.join(numbers)}."
    return f"{study.name}: " + "; ".join(f"{number} with {title}" for title, number in numbers.items()) + "."


def _exclusivity(study: Study) -> list[str]:
    """Give the mean exclusivity of two classes over the trials, for each network; a sweep has too many."""
    found: dict[str, list[str]] = {}
    for group in () if study.swept else study.groups:
        if mean := group.summary(EXCLUSIVITY):
            found.setdefault(spread(EXCLUSIVITY, mean), []).append(group.title)
    means = "; ".join(f"{' · '.join(titles)} {figures}" for figures, titles in found.items())
    words = "Mean exclusivity of two classes, mean ± standard deviation over the trials"
    return [f"{words}: {means}."] if means else []


def _present(*found: Table | None) -> list[Table]:
    return [table for table in found if table is not None]


def _folds(title: str, blocks: Sequence[Figure | Table]) -> list[Fold]:
    return [Fold(title, blocks)] if blocks else []
