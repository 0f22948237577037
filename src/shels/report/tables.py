"""The tables of a report on experiments, after the paper's Tables 1, 2, 9 and 10."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from shels.experiments.published import TRIALS, Literature, Published, literature, published
from shels.experiments.statistics import Comparison, Summary, stars
from shels.report.page import Cell, Mark, Table
from shels.report.studies import BASELINE, Group, Study, every_group, further_measures, method_title
from shels.report.words import count, figure, measure, p_value, prose, spread

_NUMBERS = dict(enumerate(["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]))


def overview(studies: Sequence[Study], caption: str) -> Table:
    """Give mean ± sd of each measure, a row for each method, beside what was published.

    studies: of one family, so that they have the same measures.
    """
    learning = studies[0].learning
    found = [measure(key) for key in studies[0].measures]
    headings = (each.heading_in(learning=learning) + ", %" * each.percent for each in found)
    rows = [row for study in studies for row in _overview_rows(study)]
    note = prose(
        "overview_note",
        several=any(len(study.groups) > 1 for study in studies),
        compared=any(study.compared for study in studies),
        bounds_aside=bounds_aside(studies),
        measures="" if len(found) == 1 else _NUMBERS[len(found)],
        kinds=_paired(studies),
        published=any(map(_paper_rows, studies)),
    )
    return Table(("Data", "Method", *headings, "Trials"), rows, caption, note, left=2, merged=True)


def against_published(studies: Sequence[Study], caption: str) -> Table | None:
    """Put our figures beside the published ones; None where the paper has none."""
    rows = [row for study, group in every_group(studies) for row in _published_rows(study, group)]
    if not rows:
        return None
    columns = ("Data", "Measure", "Ours", "Published", "Difference", "Within mean ± sd?")
    note = prose("published_note", trials=TRIALS, contradictions=_contradictions(studies))
    return Table(columns, rows, caption, note, left=2, merged=True)


def statistics(studies: Sequence[Study]) -> Table | None:
    """Give every test in full, after the paper's Tables 9 and 10; None where one method stands alone."""
    rows = [
        _test_row(study, group, key, test)
        for study in studies
        for group, tests in study.compared.items()
        for key, test in tests.items()
    ]
    if not rows:
        return None
    columns = ("Data: method", "Measure", "Difference", "t", "p", "Holm p", f"{_rank_test(studies)} p")
    return Table((*columns, "Effect", "n"), rows, "", _test_note(studies), left=2, merged=True)


def further(studies: Sequence[Study]) -> Table | None:
    """Give what was measured beyond the overview's, a column for each measure; None where nothing was."""
    keys = further_measures([group for _, group in every_group(studies)])
    if not keys:
        return None
    rows: list[list[Cell]] = []
    for study, group in every_group(studies):
        found = [(key, group.summary(key)) for key in keys]
        rows.append([study.short, group.title, *(spread(key, each) if each else None for key, each in found)])
    titles = (measure(key).title_in(learning=studies[0].learning) for key in keys)
    note = prose("further_note", learning=studies[0].learning)
    return Table(("Data", "Method", *titles), rows, "", note, left=2, merged=True)


def significance(test: Comparison | None) -> str:
    """Give the stars of a test by its adjusted p; none where there is no test."""
    return "" if test is None else stars(test.p_holm)


def bounds_aside(studies: Sequence[Study]) -> str:
    """Say that bounds are not in the running, where there are any."""
    return ", bounds aside" if any(study.contenders != study.groups for study in studies) else ""


# The overview ------------------------------------------------------------------------------------------


def _overview_rows(study: Study) -> list[list[Cell]]:
    best = {key: _best(study, key) for key in study.measures}
    rows: list[list[Cell]] = []
    for group in study.groups:
        cells = [_overview_cell(study, group, key, best[key]) for key in study.measures]
        number = len(group.results)
        trials: Cell = Mark(f"only {number}", "no") if group.short_of_trials else number
        rows.append([study.short, group.title, *cells, trials])
    return rows + _paper_rows(study)


def _overview_cell(study: Study, group: Group, key: str, best: str) -> Cell:
    found = group.summary(key)
    if found is None:
        return None
    first = group in study.contenders and figure(key, found.mean) == best
    kind: Literal["best", "plain"] = "best" if first else "plain"
    return Mark(spread(key, found), kind, significance(study.compared.get(group, {}).get(key)))


def _best(study: Study, key: str) -> str:
    """Give the best mean as it is shown, or nothing where there is nothing to choose."""
    found = [each.mean for group in study.contenders if (each := group.summary(key))]
    best = max if measure(key).higher_is_better else min
    return figure(key, best(found)) if len({figure(key, mean) for mean in found}) > 1 else ""


def _paper_rows(study: Study) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for method in dict.fromkeys((*(group.method for group in study.groups), "shels", BASELINE)):
        found = {key: published(study.name, method, key) for key in study.measures}
        if all(found.values()):
            cells = [Mark(spread(key, each), "quiet") for key, each in found.items() if each]
            name = Mark(f"{method_title(method)}, published", "quiet")
            rows.append([study.short, name, *cells, Mark(str(TRIALS), "quiet")])
    return rows + [_literature_row(study, each) for each in literature(study.name)]


def _literature_row(study: Study, each: Literature) -> list[Cell]:
    """Give what others print on the same splits: an AUROC, of networks and trainings of their own."""
    found = {"auroc": each.auroc}
    cells = [figure(key, value) if (value := found.get(key)) is not None else None for key in study.measures]
    quiet = [None if cell is None else Mark(cell, "quiet") for cell in cells]
    return [study.short, Mark(f"{each.title} ({each.paper}), published", "quiet"), *quiet, Mark("5", "quiet")]


# Beside the published figures --------------------------------------------------------------------------


def _published_rows(study: Study, group: Group) -> list[list[Cell]]:
    who = "" if group.title == "SHELS" else f", {group.title}"
    who += f" ({count(len(group.results), 'trial')} only)" if group.short_of_trials else ""
    rows: list[list[Cell]] = []
    for key, ours, theirs in group.comparisons():
        difference = figure(key, ours.mean - theirs.mean, sign=True)
        cells = (spread(key, ours), spread(key, theirs), difference, _answer(ours, theirs))
        rows.append([study.short, measure(key).title + who, *cells])
    return rows


def _answer(ours: Summary, theirs: Published) -> Mark:
    if theirs.contains(ours.mean):
        return Mark("✓ yes", "yes")
    side = "above" if ours.mean > theirs.mean else "below"
    return Mark(f"✗ {side}, {abs(ours.mean - theirs.mean) / theirs.sd:.1f} sd away", "no")


def _contradictions(studies: Sequence[Study]) -> list[str]:
    """Say where the paper does not agree with itself about these figures."""
    notes: dict[str, dict[str, str]] = {}
    for study, group in every_group(studies):
        for key, _, theirs in group.comparisons():
            name = measure(key).title
            notes.setdefault(theirs.note, {})[f"{study.short}, {name}"] = name
    notes.pop("", None)
    return [
        f"{'; '.join(places if len(places) < 3 else sorted({*places.values()}))}: {note}."
        for note, places in notes.items()
    ]


# Tests -------------------------------------------------------------------------------------------------


def _test_row(study: Study, group: Group, key: str, test: Comparison) -> list[Cell]:
    t = None if test.t is None else f"t({test.df}) = {test.t:.2f}".replace("-", "−")
    effect = None if test.effect is None else f"{test.effect:+.2f}".replace("-", "−")
    adjusted = Mark(p_value(test.p_holm), after=significance(test))
    title = measure(key).title_in(learning=study.learning).replace(" ", "\N{NO-BREAK SPACE}")
    start = [f"{study.short}: {group.title}", title, figure(key, test.difference, sign=True)]
    return [*start, t, p_value(test.p), adjusted, p_value(test.wilcoxon_p), effect, test.n]


def _test_note(studies: Sequence[Study]) -> str:
    tests = [test for study in studies for found in study.compared.values() for test in found.values()]
    return prose(
        "tests_note",
        first=dict.fromkeys(method_title(study.groups[0].method) for study in studies),
        kinds=_paired(studies),
        measures="" if len(studies[0].measures) == 1 else _NUMBERS[len(studies[0].measures)],
        learning=studies[0].learning,
        rank_test=_rank_test(studies),
        reasons=dict.fromkeys(test.reason.partition(", got")[0] for test in tests if test.reason),
        left_out=max((test.left_out for test in tests), default=0),
    )


def _rank_test(studies: Sequence[Study]) -> str:
    kinds = _paired(studies)
    return "Rank test" if len(kinds) == 2 else ("Wilcoxon" if True in kinds else "Mann–Whitney")


def _paired(studies: Sequence[Study]) -> set[bool]:
    """Give the ways in which groups are compared: in pairs (True), or not, or both."""
    compared = {study.pairs(group) for study in studies for group in study.compared}
    return compared or {study.paired for study in studies}
