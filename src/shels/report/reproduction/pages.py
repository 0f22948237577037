"""Writes docs/reproduction.md with its figures, fidelity.md and best.md beside it, README's tables, costs."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mode
from typing import Any

from PIL import Image

from shels.errors import DataError
from shels.experiments.catalogue import AT_BEST
from shels.experiments.estimate import TABLE, costs_of, table_of
from shels.experiments.published import TRIALS
from shels.experiments.trials import TrialResult
from shels.experiments.variants import VARIANTS
from shels.files import write_whole
from shels.report import machine
from shels.report.page import Table, rendered, unbroken
from shels.report.reproduction.best import best_in_short, best_page
from shels.report.reproduction.fidelity import fidelity_page
from shels.report.reproduction.figures import Beside, as_published, beside_published, idle
from shels.report.reproduction.remarks import FILE, Remarks, read_remarks
from shels.report.reproduction.sections import Part, parts, shown, times, total_seconds
from shels.report.studies import BASELINE, Study, every_group, studies
from shels.report.words import count, duration, figure, prose, spread

BEGIN, END = "<!-- {}: begin -->", "<!-- {}: end -->"
"""What a table of the README stands between, by its name: reproduction, best."""

_IMAGES = "images/reproduction"


@dataclass(frozen=True)
class Pages:
    """What is written, by its path in the repository, and what hand-written sentences still lack.

    problems: figures outside the published interval that no sentence explains, and sentences on none.
    """

    files: Mapping[str, str | bytes]
    problems: Sequence[str]


def make_pages(results: Sequence[TrialResult], remarks: Remarks, readme: str, *, drawn: bool = True) -> Pages:
    """Make all pages from packed results. readme: the README as it is. drawn: whether figures are drawn too.

    The same results and remarks give the same pages.
    """
    every = studies(results)
    found = [study for study in every if not study.name.endswith(AT_BEST)]
    made = parts(found, remarks)
    page = rendered("reproduction.md", folder=_IMAGES, parts=made, **_values(found))
    files: dict[str, str | bytes] = {
        "docs/reproduction.md": unbroken(page),
        "docs/fidelity.md": unbroken(fidelity_page(found, list(VARIANTS.values()), remarks)),
        "docs/best.md": unbroken(best_page(every, remarks)),
        "README.md": _with_tables(
            readme, {"reproduction": _short_table(found), "best": best_in_short(every)}
        ),
        f"src/shels/experiments/{TABLE}": table_of(costs_of(results)),
    }
    if drawn:
        figures = [figure for part in made.values() for figure in part.figures]
        files |= {f"docs/{_IMAGES}/{figure.name}.png": _small(figure.png()) for figure in figures}
    return Pages(files, _problems(made, beside_published(shown(found), shortened=True), remarks))


def write_pages(results: Sequence[TrialResult], directory: Path, root: Path) -> tuple[list[Path], list[str]]:
    """Write all pages into a repository, and return their files and what sentences still lack.

    directory: where packed results lie, and the sentences beside them. Figures that no page shows any
    more are removed.
    """
    readme = root / "README.md"
    if not readme.is_file():
        raise DataError(f"{root} is no root of the repository: it has no README.md")
    made = make_pages(results, read_remarks(directory), readme.read_text("utf-8"))
    for name, content in made.files.items():
        write_whole(root / name, content)
    for path in (root / "docs" / _IMAGES).glob("*.png"):
        if f"docs/{_IMAGES}/{path.name}" not in made.files:
            path.unlink()
    return [root / name for name in made.files], list(made.problems)


def _small(png: bytes) -> bytes:
    """Make a picture a third as large: charts have few colours."""
    buffer = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(128).save(buffer, "png", optimize=True)
    return buffer.getvalue()


def _problems(made: Mapping[str, Part], found: Sequence[Beside], remarks: Remarks) -> list[str]:
    open_ones = [each for part in made.values() for each in part.differences if not each.sentence]
    problems = [
        f"no sentence in {FILE} says why {experiment}, {method}, {key} lies outside the published interval"
        for each in open_ones
        for experiment, method, key in (beside.key for beside in each.figures)
    ]
    unused = idle(found, remarks.differences)
    return problems + [
        f"a sentence in {FILE} on {remark.experiment} explains no figure outside the published interval"
        for remark in unused
    ]


# What the page says -------------------------------------------------------------------------------------


def _values(found: Sequence[Study]) -> dict[str, Any]:
    answer, points = _answer(found)
    return {
        "answer": answer,
        "points": points,
        "trials": TRIALS,
        "few": _few(shown(found)),
        "machines": machine.machines(found),
        "times": times(found),
        "total": duration(total_seconds(found)),
    }


def _answer(found: Sequence[Study]) -> tuple[str, list[str]]:
    """Say how much of the paper is reached: in a paragraph, and in points below it."""
    chosen = as_published(beside_published(shown(found)))
    shels, rival = (
        {
            family: _tally([each for each in chosen if each.key[1] == method and _is(each, family)])
            for family in ("within", "across")
        }
        for method in ("shels", BASELINE)
    )
    figures = {
        each.group.title: (figure(each.measure, each.ours.mean), figure(each.measure, each.theirs.mean))
        for each in chosen
        if each.study.name == "exclusivity"
    }
    every = beside_published(shown(found), shortened=True)
    points = [prose("reproduction_rival", **rival)] if any(total for _, total in rival.values()) else []
    if other := [each for each in every if each.group.other_length and each.key[1] == "shels"]:
        names = list(dict.fromkeys(f"{each.study.short} ({each.group.other_length})" for each in other))
        points += [prose("reproduction_lengths", names=names, inside=_tally(other))]
    points += [prose("reproduction_exclusivity", figures=figures)] if figures else []
    return prose("reproduction_answer", **shels), points


def _is(each: Beside, family: str) -> bool:
    return each.study.family == family


def _tally(some: Sequence[Beside]) -> tuple[int, int]:
    """Count the figures within the published interval, and all of them."""
    return sum(each.inside for each in some), len(some)


def _few(found: Sequence[Study]) -> list[str]:
    """Name the experiments with fewer trials than the paper's, and how many most of their groups have."""
    short = {
        f"`{study.name}`": mode(len(group.results) for group in study.groups)
        for study, group in every_group(found)
        if group.short_of_trials
    }
    return [f"{name} ({count(number, 'trial')})" for name, number in short.items()]


# The README's tables ------------------------------------------------------------------------------------


def _with_tables(readme: str, tables: Mapping[str, Table]) -> str:
    """Put short tables into a README, between the marks of each."""
    for name, table in tables.items():
        begin, end = BEGIN.format(name), END.format(name)
        if readme.count(begin) != 1 or readme.count(end) != 1:
            raise DataError(f"the README must have {begin} and {end} once each, for the table between them")
        text = "\n*Not run yet: there are no records of it.*\n"
        if table.rows:
            text = unbroken(rendered("short_table.md", table=table, folder=""))
        start, stop = readme.index(begin) + len(begin), readme.index(end)
        readme = f"{readme[:start]}\n{text}\n{readme[stop:]}"
    return readme


def _short_table(found: Sequence[Study]) -> Table:
    rows = [
        row for study in shown(found) if study.family in ("within", "across") for row in _short_rows(study)
    ]
    columns = ("Data", "known, %", "published", "novel, %", "published", "AUROC", "published", "Trials")
    return Table(columns, rows)


def _short_rows(study: Study) -> list[list[Any]]:
    """Give the row of SHELS, beside what was published."""
    rows: list[list[Any]] = []
    for group in study.groups:
        theirs = {key: published for key, _, published in group.comparisons()}
        ours = {key: group.summary(key) for key in ("known_accuracy", "novel_accuracy", "auroc")}
        if group.method == "shels" and not group.departures():
            pairs = [
                (spread(key, mean), spread(key, theirs[key]))
                for key, mean in ours.items()
                if mean and key in theirs
            ]
            rows.append([study.short, *(cell for pair in pairs for cell in pair), len(group.results)])
    return rows
