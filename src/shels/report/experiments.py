"""The report on experiments: our figures in tables and charts laid out as the paper's, beside the paper's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from shels._version import __version__
from shels.errors import DataError
from shels.experiments.published import TRIALS, Published
from shels.experiments.statistics import Summary
from shels.experiments.trials import TrialResult
from shels.files import write_whole
from shels.report import experiment_classes, experiment_figures, experiment_inside, experiment_learning
from shels.report import experiment_tables as tables
from shels.report.chart import Chart
from shels.report.experiment_courses import courses
from shels.report.experiment_csv import summary_csv, trials_csv
from shels.report.experiment_dots import MANY, dots
from shels.report.experiment_figures import series_of
from shels.report.experiment_groups import Group, Study, method_title, studies
from shels.report.experiment_machine import duration, machines, precision, settings, taking, times
from shels.report.experiment_tables import FRACTIONS, comparisons, few, figure, measure_name
from shels.report.markdown import markdown
from shels.report.page import Block, Fold, Page, Section, html
from shels.report.trained import count

_FIGURES = "figures"
_MOST_NAMED = 16
_FAMILIES = {
    "within": ("Within data sets", "within data sets"),
    "across": ("Across data sets", "across data sets"),
    "incremental": ("Learning class by class", ""),
    "other": ("Other experiments", "in experiments of one's own"),
}
_INTRODUCTIONS = {
    "within": "Some classes of a data set are known, the others novel. Each trial draws its classes anew, "
    "the same for every method.",
    "across": "All classes of one data set are known, all of another novel. Trials differ in their seed.",
    "other": "These experiments are not in the paper's tables.",
}
_MEASURES = (
    "Novel accuracy (the paper's OOD) is the share of novel samples that are rejected. Known accuracy (ID) "
    "is the share of known samples that are accepted and given the right class. Combined accuracy is the "
    "mean of the two. AUROC is the chance that a known sample scores higher than a novel one, whatever the "
    "threshold: 1 is perfect, 0.5 a coin."
)


def write_report(results: Sequence[TrialResult], directory: Path) -> list[Path]:
    """Write report.html, report.md, trials.csv, summary.csv and the charts, and return where they lie.

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
    files |= {f"{_FIGURES}/{chart.name}.png": chart.png for chart in _charts(page)}
    for name, content in files.items():
        write_whole(directory / name, content)
    return [directory / name for name in files]


def report_page(found: Sequence[Study]) -> Page:
    """Return all that the report says."""
    families = {name: [study for study in found if study.family == name] for name in _FAMILIES}
    sections = [
        Section("In short", [*_in_short(found), *_measures(found)]),
        *(_family(name, members) for name, members in families.items() if members),
        *(_inside(study) for study in found),
        Section("Machine and time", [machines(found), times(found)]),
    ]
    return Page(
        _title(found),
        _lead(found),
        sections,
        _facts(found),
        settings(found),
        f"Written by shels {__version__}.",
        contents=True,
    )


def _charts(page: Page) -> Iterator[Chart]:
    blocks = [block for section in page.sections for block in section.blocks]
    blocks += [inner for block in blocks if isinstance(block, Fold) for inner in block.blocks]
    yield from (block for block in blocks if isinstance(block, Chart))


def _groups(found: Sequence[Study]) -> list[tuple[Study, Group]]:
    return [(study, group) for study in found for group in study.groups]


# In words ----------------------------------------------------------------------------------------------


def _title(found: Sequence[Study]) -> str:
    kinds = ["Novelty detection"] * any(not study.learning for study in found)
    kinds += ["learning class by class"] * any(study.learning for study in found)
    what = " and ".join(kinds)
    return f"{what[0].upper()}{what[1:]} with SHELS"


def _measures(found: Sequence[Study]) -> list[str]:
    detection = [_MEASURES] * any(not study.learning for study in found)
    return detection + [experiment_learning.MEASURES] * any(study.learning for study in found)


def _lead(found: Sequence[Study]) -> str:
    number = sum(len(group.results) for _, group in _groups(found))
    methods = list(dict.fromkeys(method_title(group.method) for _, group in _groups(found)))
    names = methods[0] if len(methods) == 1 else f"{len(methods)} methods ({'; '.join(methods)})"
    words = f"{count(number, 'trial')} of {count(len(found), 'experiment')} with {names}"
    compared = any(True for _, group in _groups(found) for _ in comparisons(group))
    return words + (", beside the figures of the paper (CoLLAs 2022)." if compared else ".")


def _facts(found: Sequence[Study]) -> list[tuple[str, str]]:
    groups = _groups(found)
    facts = []
    inside = [theirs.contains(ours.mean) for _, _, ours, theirs in _faithful(found)]
    if inside:
        facts.append(("published means met, within ± sd", f"{sum(inside)} of {len(inside)}"))
    number = sum(len(group.results) for _, group in groups)
    seconds = sum(result.seconds for _, group in groups for result in group.results)
    facts += [
        ("trials", f"{number:,}"),
        ("experiment" if len(found) == 1 else "experiments", str(len(found))),
    ]
    facts.append(("of computing, all trials added up", duration(seconds)))
    return facts


def _faithful(found: Sequence[Study]) -> list[tuple[str, str, Summary, Published]]:
    """Return what was measured with the paper's settings beside the paper's figure: where, measure, both."""
    return [
        (_where(study, group), *each)
        for study, group in _groups(found)
        if not group.departures()
        for each in comparisons(group)
    ]


def _where(study: Study, group: Group) -> str:
    return study.short if group.title == "SHELS" else f"{study.short}: {group.title}"


def _in_short(found: Sequence[Study]) -> Iterator[str]:
    compared = _faithful(found)
    if compared:
        outside = [each for each in compared if not each[3].contains(each[2].mean)]
        yield (
            f"The paper publishes {count(len(compared), 'mean')} for what was run here with its settings. "
            f"{len(compared) - len(outside)} of ours lie within the published mean ± standard deviation, "
            f"{len(outside)} {'does' if len(outside) == 1 else 'do'} not{_listed(map(_outlier, outside))}."
        )
    short = [
        f"{_where(study, group)} ({len(group.results)})"
        for study, group in _groups(found)
        if few(group) and not study.learning
    ]
    if short:
        yield f"Fewer than {TRIALS} trials, the paper's number, stand behind{_listed(short, ' ')}."
    yield from experiment_learning.in_short([study for study in found if study.learning])
    departed = [f"{what} in {', '.join(where)}" for what, where in _departures(found).items()]
    if departed:
        yield (
            "Run with other settings than the paper's, so that their difference from the published figures "
            f"means little{_listed(departed)}."
        )
    mixed = [_where(study, group) for study, group in _groups(found) if len(_conditions(group)) > 1]
    if mixed:
        yield f"Trained on more than one kind of device, or in more than one precision{_listed(mixed)}."


def _outlier(each: tuple[str, str, Summary, Published]) -> str:
    where, measure, ours, theirs = each
    difference = figure(measure, ours.mean - theirs.mean, sign=True)
    unit = "" if measure in FRACTIONS else " points"
    return f"{where}, {measure_name(measure)} ({difference}{unit})"


def _departures(found: Sequence[Study]) -> dict[str, list[str]]:
    """Return what is not as in the paper, with where: an experiment's name stands for all of its groups."""
    places: dict[str, list[str]] = {}
    for study in found:
        for name, where in _departed(study).items():
            every = len(where) == len(study.groups)
            places.setdefault(name, []).extend([study.short] if every else where)
    return places


def _departed(study: Study) -> dict[str, list[str]]:
    places: dict[str, list[str]] = {}
    for group in study.groups:
        for name, (ours, theirs) in group.departures().items():
            places.setdefault(f"{name} {ours} (paper: {theirs})", []).append(_where(study, group))
    return places


def _conditions(group: Group) -> set[tuple[str, str]]:
    return {(result.device, precision(result)) for result in group.results}


def _listed(names: Iterable[str], before: str = ": ") -> str:
    every = list(names)
    more = f"; and {len(every) - _MOST_NAMED} more, see the tables" if len(every) > _MOST_NAMED else ""
    return before + "; ".join(every[:_MOST_NAMED]) + more if every else ""


# In tables and charts ----------------------------------------------------------------------------------


def _family(name: str, members: Sequence[Study]) -> Section:
    title, kind = _FAMILIES[name]
    blocks: list[Block] = []
    if name == "incremental":
        blocks += [experiment_learning.introduction(members), tables.overview(members, title)]
        blocks += [*courses(members), *filter(None, [taking(members)])]
    else:
        blocks += [_INTRODUCTIONS[name], tables.overview(members, f"Novelty detection {kind}")]
        drawn = dots if len(series_of(members)) > MANY else experiment_figures.bars
        blocks.append(drawn(f"detection-{name}", members, kind))
    beside = tables.against_published(members, "Ours beside the published figures")
    note = experiment_learning.FURTHER if name == "incremental" else "Accuracies and shares in per cent."
    tests, further = tables.statistics(members), tables.further(members, note)
    blocks += [beside] if beside else []
    blocks += [Fold("All statistical tests", [tests])] if tests else []
    blocks += [Fold("Further measures", [further])] if further else []
    return Section(title, blocks)


def _inside(study: Study) -> Section:
    """Return what lies behind an experiment's figures, as far as its trials have kept it."""
    training, matrices = experiment_inside.training(study), experiment_inside.exclusivity(study)
    stages = experiment_learning.stages(study)
    classes, by_class = experiment_classes.classes(study), experiment_classes.class_tables(study)
    shown = [each for each in (training, *_exclusivity(study), matrices) if each is not None]
    folded = [each for each in (classes, *by_class) if each is not None]
    if not shown and not folded and not stages:
        shown.append("Its trials have kept no details of training, exclusivity or classes.")
    folds = [Fold("Stage by stage", [stages])] if stages else []
    folds += [Fold("Class by class", folded)] if folded else []
    title = f"Learning {study.title}" if study.learning else study.title
    return Section(title, [_composition(study), *shown, *folds])


def _composition(study: Study) -> str:
    numbers = {group.title: count(len(group.results), "trial") for group in study.groups}
    if len({*numbers.values()}) == 1:
        return f"{study.name}: {next(iter(numbers.values()))} with {' · '.join(numbers)}."
    return f"{study.name}: " + "; ".join(f"{number} with {title}" for title, number in numbers.items()) + "."


def _exclusivity(study: Study) -> list[str]:
    means = experiment_inside.exclusivities(study)
    words = "Mean exclusivity of two classes, mean ± standard deviation over the trials: "
    return [f"{words}{'; '.join(means)}."] if means else []
