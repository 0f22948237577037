"""The tables of a report on experiments, after the paper's Tables 1, 2, 9 and 10."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

from shels.experiments.published import TRIALS, Published, published
from shels.experiments.statistics import Comparison, Summary, stars
from shels.report.experiment_groups import BASELINE, EXCLUSIVITY, MEASURES, Group, Study, method_title
from shels.report.page import Cell, Mark, Table
from shels.report.trained import count

FRACTIONS = ("auroc", EXCLUSIVITY)
"""Measures that are shown as fractions, as in the paper; the others in per cent."""

_NAMES = {
    "novel_accuracy": "novel accuracy",
    "known_accuracy": "known accuracy",
    "combined_accuracy": "combined accuracy",
    "closed_set_accuracy": "closed-set accuracy",
    "acceptance": "known samples accepted",
    "auroc": "AUROC",
    "fpr95": "novel accepted where 95 % of known are",
    EXCLUSIVITY: "exclusivity",
}
_LEARNING_NAMES = _NAMES | {
    "closed_set_accuracy": "final accuracy",
    "added_accuracy": "accuracy of added classes",
    "first_accuracy": "first classes",
    "known_accuracy": "accuracy with rejection",
    "novel_accuracy": "next rejected",
    "combined_accuracy": "combined",
    "acceptance": "accepted",
    "fpr95": "next at 95 %",
}
_LOWEST = ("forgetting",)  # the best of these is the lowest
_NUMBERS = {4: "four", 5: "five"}


def figure(measure: str, value: float | None, *, sign: bool = False) -> str:
    """Return a figure in the paper's units: accuracies in per cent, AUROC and exclusivity as fractions."""
    if value is None or not math.isfinite(value):
        return "–"
    shown = f"{value:.3f}" if measure in FRACTIONS else f"{100 * value:.2f}"
    shown = shown.replace("-", "−") if float(shown) else shown.removeprefix("-")
    return f"+{shown}" if sign and float(value) > 0 and shown.strip("0.") else shown


def spread(measure: str, found: Summary | Published) -> str:
    """Return mean ± standard deviation; of a single trial the figure alone."""
    mean = figure(measure, found.mean)
    return mean if found.sd is None else f"{mean} ± {figure(measure, found.sd)}"


def measure_name(measure: str, *, learning: bool = False) -> str:
    """Return what a measure is called in a row of its own, without its unit."""
    return (_LEARNING_NAMES if learning else _NAMES).get(measure, measure.replace("_", " "))


def p_value(value: float | None) -> str:
    """Return a probability as the paper prints it."""
    if value is None or not math.isfinite(value):
        return "–"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def overview(studies: Sequence[Study], caption: str) -> Table:
    """Return mean ± sd of each measure, a row for each method, beside what was published.

    studies: of one kind, so that they have the same measures.
    """
    rows = [row for study in studies for row in _overview_rows(study)]
    columns = (
        "Data",
        "Method",
        *(name + ("" if key == "auroc" else ", %") for key, name in studies[0].measures.items()),
    )
    note = "Mean ± standard deviation over the trials."
    if any(len(study.groups) > 1 for study in studies):
        note += (
            f" The best of our figures for the same data is bold{_aside(studies)}. Stars: differs from the "
            "first method's by a "
            f"two-tailed t test after Holm's adjustment over the {_number(studies)} measures, * p < 0.05, "
            f"** p < 0.01, *** p < 0.001; the trials are {_pairing(studies)}."
        )
    note += " Slanted: what the paper published." if any(map(_paper_rows, studies)) else ""
    return Table((*columns, "Trials"), rows, caption, note, left=2, merged=True)


def against_published(studies: Sequence[Study], caption: str) -> Table | None:
    """Return our figures beside the published ones; None where the paper has none."""
    rows = [row for study in studies for row in _published_rows(study)]
    if not rows:
        return None
    columns = ("Data", "Measure", "Ours", "Published", "Difference", "Within mean ± sd?")
    note = (
        "Accuracies in per cent. Difference: our mean less the published one. Within: our mean lies between "
        "the published mean less and plus the published standard deviation over its "
        f"{TRIALS} trials. It says “as published, give or take what their trials gave or took”; it is no "
        "test of equality."
    )
    note += _contradictions(studies)
    return Table(columns, rows, caption, note, left=2, merged=True)


def statistics(studies: Sequence[Study]) -> Table | None:
    """Return every test in full, after the paper's Tables 9 and 10; None where one method stands alone."""
    rows: list[list[Cell]] = []
    for study in studies:
        for group, tests in study.compared.items():
            name = f"{study.short}: {group.title}"
            named = {measure_name(each, learning=study.learning): each for each in tests}
            rows += [_test_row(name, what, each, tests[each]) for what, each in named.items()]
    if not rows:
        return None
    columns = ("Data: method", "Measure", "Difference", "t", "p", "Holm p", f"{_rank_test(studies)} p")
    return Table((*columns, "Effect", "n"), rows, "", _test_note(studies), left=2, merged=True)


def _test_note(studies: Sequence[Study]) -> str:
    first = "; ".join(dict.fromkeys(method_title(study.groups[0].method) for study in studies))
    custom = "" if studies[0].learning else ", as in the paper"
    note = (
        f"Each method is compared with the first of its experiment ({first}), where settings vary with the "
        "one that has the same. Difference: its mean less the first's, accuracies in points of per cent. t: "
        f"Student's, two-tailed, {_pairing(studies)}, with its degrees of freedom. Holm p: adjusted over the "
        f"{_number(studies)} measures of an experiment{custom}. {_rank_test(studies)}: by ranks, so that no "
        "outlier can sway. Effect: the difference in standard deviations (Cohen's dz of pairs, else Hedges' "
        "g). n: pairs, or all trials."
    )
    tests = [test for study in studies for found in study.compared.values() for test in found.values()]
    reasons = dict.fromkeys(test.reason.partition(", got")[0] for test in tests if test.reason)
    note += "".join(f" Where there is no test: {reason}." for reason in reasons)
    left_out = max((test.left_out for test in tests), default=0)
    return note + (f" At most {count(left_out, 'trial')} had no partner or no such measure." * bool(left_out))


def further(studies: Sequence[Study], note: str) -> Table | None:
    """Return what was measured beyond the overview's, a column for each measure; None where nothing was."""
    groups = [(study, group) for study in studies for group in study.groups]
    names = further_measures([group for _, group in groups])
    if not names:
        return None
    rows: list[list[Cell]] = []
    for study, group in groups:
        found = [group.summary(name) for name in names]
        cells = (
            None if each is None else spread(name, each) for name, each in zip(names, found, strict=True)
        )
        rows.append([study.short, group.title, *cells])
    learning = studies[0].learning
    columns = ("Data", "Method", *(measure_name(name, learning=learning) for name in names))
    return Table(columns, rows, "", note, left=2, merged=True)


def further_measures(groups: Sequence[Group]) -> list[str]:
    """Return the names of what was measured beyond the overview's; exclusivity is one of them."""
    names = {
        name for group in groups for each in group.results for name in {*each.metrics} - {*group.measures}
    }
    names |= {EXCLUSIVITY} if any(group.values(EXCLUSIVITY) for group in groups) else set()
    return sorted(names)


def comparisons(group: Group) -> Iterator[tuple[str, Summary, Published]]:
    """Give each measure of a group that the paper has a figure for: its name, ours and the paper's."""
    for measure in (*group.measures, EXCLUSIVITY):
        ours, theirs = group.summary(measure), group.published(measure)
        if ours is not None and theirs is not None:
            yield measure, ours, theirs


def significance(test: Comparison | None) -> str:
    """Return the stars of a test by its adjusted p; none where there is no test."""
    return "" if test is None or test.p_holm is None else stars(test.p_holm)


def few(group: Group) -> bool:
    """Tell whether a group rests on fewer trials than the paper's figures, where it prints any."""
    return len(group.results) < TRIALS and group.measures == MEASURES


# Rows --------------------------------------------------------------------------------------------------


def _overview_rows(study: Study) -> list[list[Cell]]:
    best = {measure: _best(study, measure) for measure in study.measures}
    rows: list[list[Cell]] = []
    for group in study.groups:
        cells = [_overview_cell(study, group, measure, best[measure]) for measure in study.measures]
        number = len(group.results)
        trials: Cell = Mark(f"only {number}", "no") if few(group) else number
        rows.append([study.short, group.title, *cells, trials])
    return rows + _paper_rows(study)


def _overview_cell(study: Study, group: Group, measure: str, best: str) -> Cell:
    found = group.summary(measure)
    if found is None:
        return None
    test = study.compared.get(group, {}).get(measure)
    first = group in study.rivals and figure(measure, found.mean) == best
    kind: Literal["best", "plain"] = "best" if first else "plain"
    return Mark(spread(measure, found), kind, significance(test))


def _best(study: Study, measure: str) -> str:
    """Return the best mean as it is shown, or nothing where there is nothing to choose."""
    found = [each.mean for each in (group.summary(measure) for group in study.rivals) if each is not None]
    shown = {figure(measure, mean) for mean in found}
    best = min if measure in _LOWEST else max
    return figure(measure, best(found)) if len(shown) > 1 else ""


def _paper_rows(study: Study) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for method in dict.fromkeys((*(group.method for group in study.groups), "shels", BASELINE)):
        found = {measure: published(study.name, method, measure) for measure in study.measures}
        if all(found.values()):
            cells = [Mark(spread(name, each), "quiet") for name, each in found.items() if each]
            name = Mark(f"{method_title(method)}, published", "quiet")
            rows.append([study.short, name, *cells, Mark(str(TRIALS), "quiet")])
    return rows


def _published_rows(study: Study) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for group in study.groups:
        who = "" if group.title == "SHELS" else f", {group.title}"
        who += f" ({count(len(group.results), 'trial')} only)" if few(group) else ""
        for measure, ours, theirs in comparisons(group):
            inside = theirs.contains(ours.mean)
            answer = Mark("✓ yes", "yes") if inside else Mark(f"✗ {_away(ours, theirs)}", "no")
            difference = figure(measure, ours.mean - theirs.mean, sign=True)
            cells = (spread(measure, ours), spread(measure, theirs), difference, answer)
            rows.append([study.short, measure_name(measure) + who, *cells])
    return rows


def _contradictions(studies: Sequence[Study]) -> str:
    """Return where the paper does not agree with itself about these figures."""
    notes: dict[str, dict[str, str]] = {}
    for study in studies:
        for group in study.groups:
            for measure, _, theirs in comparisons(group):
                name = measure_name(measure)
                notes.setdefault(theirs.note, {})[f"{study.short}, {name}"] = name
    told = [
        f"{'; '.join(places if len(places) < 3 else sorted({*places.values()}))}: {note}."
        for note, places in notes.items()
        if note
    ]
    return f" On the paper's own figures: {' '.join(told)}" if told else ""


def _away(ours: Summary, theirs: Published) -> str:
    side = "above" if ours.mean > theirs.mean else "below"
    return f"{side}, {abs(ours.mean - theirs.mean) / theirs.sd:.1f} sd away"


def _test_row(name: str, called: str, measure: str, test: Comparison) -> list[Cell]:
    t = None if test.t is None else f"t({test.df}) = {test.t:.2f}".replace("-", "−")
    effect = None if test.effect is None else f"{test.effect:+.2f}".replace("-", "−")
    adjusted = Mark(p_value(test.p_holm), after=significance(test))
    what = called.replace(" ", "\N{NO-BREAK SPACE}")
    difference = figure(measure, test.difference, sign=True)
    return [name, what, difference, t, p_value(test.p), adjusted, p_value(test.wilcoxon_p), effect, test.n]


def _number(studies: Sequence[Study]) -> str:
    """Return how many measures are tested together, in words."""
    return _NUMBERS[len(studies[0].measures)]


def _aside(studies: Sequence[Study]) -> str:
    return ", bounds aside" if any(study.rivals != study.groups for study in studies) else ""


def _pairing(studies: Sequence[Study]) -> str:
    kinds = _kinds(studies)
    if len(kinds) == 2:
        return "paired where trials of one seed share their classes or their network, unpaired elsewhere"
    return "paired by seed, since trials of one seed share their classes" if True in kinds else "unpaired"


def _rank_test(studies: Sequence[Study]) -> str:
    kinds = _kinds(studies)
    return "Rank test" if len(kinds) == 2 else ("Wilcoxon" if True in kinds else "Mann–Whitney")


def _kinds(studies: Sequence[Study]) -> set[bool]:
    return {study.pairs(group) for study in studies for group in study.compared} or {
        study.paired for study in studies
    }
