"""What experiments came to, in words: the headline figures, and what a reader must know about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from shels.experiments.methods import METHODS
from shels.experiments.published import TRIALS, Published
from shels.experiments.statistics import Summary
from shels.report.breakdown import FINAL
from shels.report.machine import precision
from shels.report.studies import Group, Study, every_group, method_title
from shels.report.tables import bounds_aside
from shels.report.words import count, duration, figure, measure, spread

DETECTION_MEASURES = (
    "Novel accuracy (the paper's OOD) is the share of novel samples that are rejected. Known accuracy (ID) "
    "is the share of known samples that are accepted and given the right class. Combined accuracy is the "
    "mean of the two. AUROC is the chance that a known sample scores higher than a novel one, whatever the "
    "threshold: 1 is perfect, 0.5 a coin."
)
LEARNING_MEASURES = (
    "Final accuracy is the share of test samples of all classes, first ones and added ones, that are given "
    "the right class at the end; nothing is rejected. Added accuracy is the same of the classes taken in, "
    "each counted alike. Forgetting is what a class has lost at the end of the best accuracy it ever had, "
    "mean over all classes but the last one: here the lowest is best. With rejection, a sample must also be "
    "accepted to count. AUROC is the chance that a sample of a known class scores higher than one of the "
    "next class, before that is taken in, mean over the stages: 1 is perfect, 0.5 a coin."
)
FURTHER_LEARNING = (
    "In per cent. First classes: their accuracy at the end, nothing rejected. Accepted: samples of all "
    "classes at the end, named rightly or not. Next rejected: of the next class, before it is taken in, mean "
    "over the stages. Combined: the mean of that and of the accuracy with rejection. Next at 95 %: how much "
    "of the next class is accepted by the threshold that accepts 95 % of the known samples."
)
INTRODUCTIONS = {
    "within": "Some classes of a data set are known, the others novel. Each trial draws its classes anew, "
    "the same for every method.",
    "across": "All classes of one data set are known, all of another novel. Trials differ in their seed.",
    "incremental": "A learner knows the first classes of a data set and takes in more, one after another. "
    "Before the first of these and after each it is measured on test samples of all classes that it knows by "
    "then. Each trial has classes and an order of its own, the same for every method. The paper prints "
    "curves of this, without numbers, so nothing stands beside our figures.",
    "other": "These experiments are not in the paper's tables.",
}
"""What is measured, by family."""

_BOUNDS = {
    "fine-tune": "which does nothing against forgetting",
    "joint": "which starts afresh with all samples of all classes each time",
}
_MOST_NAMED = 16


def lead(found: Sequence[Study]) -> str:
    """Say in one sentence what was run."""
    groups = [group for _, group in every_group(found)]
    methods = list(dict.fromkeys(method_title(group.method) for group in groups))
    names = methods[0] if len(methods) == 1 else f"{len(methods)} methods ({'; '.join(methods)})"
    trials = count(sum(len(group.results) for group in groups), "trial")
    words = f"{trials} of {count(len(found), 'experiment')} with {names}"
    compared = any(any(group.comparisons()) for group in groups)
    return words + (", beside the figures of the paper (CoLLAs 2022)." if compared else ".")


def facts(found: Sequence[Study]) -> list[tuple[str, str]]:
    """Give the headline figures, each with its name."""
    results = [result for _, group in every_group(found) for result in group.results]
    met = [theirs.contains(ours.mean) for _, _, ours, theirs in _faithful(found)]
    facts = [("published means met, within ± sd", f"{sum(met)} of {len(met)}")] if met else []
    seconds = sum(result.seconds for result in results)
    return [
        *facts,
        ("trials", f"{len(results):,}"),
        ("experiment" if len(found) == 1 else "experiments", str(len(found))),
        ("of computing, all trials added up", duration(seconds)),
    ]


def bounds(studies: Sequence[Study]) -> str:
    """Name the methods that are no rivals but bounds, where they were run."""
    methods = {group.method for _, group in every_group(studies)}
    found = [f"{METHODS[name].title}, {words}" for name, words in _BOUNDS.items() if name in methods]
    return f" Bounds, not rivals: {'; '.join(found)}." if found else ""


def in_short(found: Sequence[Study]) -> Iterator[str]:
    """Give what the experiments came to, and what stands between our figures and the paper's."""
    compared = _faithful(found)
    if compared:
        outside = [each for each in compared if not each[3].contains(each[2].mean)]
        yield (
            f"The paper publishes {count(len(compared), 'mean')} for what was run here with its settings. "
            f"{len(compared) - len(outside)} of ours lie within the published mean ± standard deviation, "
            f"{len(outside)} {'does' if len(outside) == 1 else 'do'} not{_listed(map(_outlier, outside))}."
        )
    short = _places(found, lambda group: [f"{len(group.results)}"] if group.short_of_trials else [])
    if short:
        named = [f"{place} ({number})" for number, places in short.items() for place in places]
        yield f"Fewer than {TRIALS} trials, the paper's number, stand behind{_listed(named, ' ')}."
    yield from learning_in_short([study for study in found if study.learning])
    departed = [f"{what} in {', '.join(where)}" for what, where in _places(found, _departures).items()]
    if departed:
        yield (
            "Run with other settings than the paper's, so that their difference from the published figures "
            f"means little{_listed(departed)}."
        )
    mixed = [_where(study, group) for study, group in every_group(found) if len(_conditions(group)) > 1]
    if mixed:
        yield f"Trained on more than one kind of device, or in more than one precision{_listed(mixed)}."


def learning_in_short(studies: Sequence[Study]) -> Iterator[str]:
    """Give the best final accuracy of each experiment."""
    best = [words for words in map(_best, studies) if words]
    if best:
        yield f"Final accuracy after all classes were taken in{bounds_aside(studies)}: {'; '.join(best)}."


def _best(study: Study) -> str:
    """Say who named most at the end, and where that is another, what the first method did."""
    found = {group: ours for group in study.contenders if (ours := group.summary(FINAL))}
    if not found:
        return ""
    shown = {
        group: f"{group.title} " + f"{spread(FINAL, ours)} %".replace(" ", "\N{NO-BREAK SPACE}")
        for group, ours in found.items()
    }
    best, first = max(found, key=lambda group: found[group].mean), next(iter(found))
    words = f"{study.short} with {shown[best]}"
    words += f", the best of {len(found)} methods" if len(found) > 1 else ""
    return words if first is best else f"{words} ({shown[first]})"


# Beside the paper --------------------------------------------------------------------------------------


def _faithful(found: Sequence[Study]) -> list[tuple[str, str, Summary, Published]]:
    """List what was measured with the paper's settings: where, the measure, our mean and the paper's."""
    return [
        (_where(study, group), *each)
        for study, group in every_group(found)
        if not group.departures()
        for each in group.comparisons()
    ]


def _where(study: Study, group: Group) -> str:
    return study.short if group.title == "SHELS" else f"{study.short}: {group.title}"


def _outlier(each: tuple[str, str, Summary, Published]) -> str:
    where, key, ours, theirs = each
    difference = figure(key, ours.mean - theirs.mean, sign=True)
    return f"{where}, {measure(key).title} ({difference}{' points' * measure(key).percent})"


def _places(found: Sequence[Study], remarks: Callable[[Group], Iterable[str]]) -> dict[str, list[str]]:
    """Say of each remark on a group where it holds; an experiment's name stands for all of its groups."""
    places: dict[str, list[str]] = {}
    for study in found:
        where: dict[str, list[str]] = {}
        for group in study.groups:
            for remark in remarks(group):
                where.setdefault(remark, []).append(_where(study, group))
        for remark, names in where.items():
            places.setdefault(remark, []).extend([study.short] if len(names) == len(study.groups) else names)
    return places


def _departures(group: Group) -> list[str]:
    return [f"{name} {ours} (paper: {theirs})" for name, (ours, theirs) in group.departures().items()]


def _conditions(group: Group) -> set[tuple[str, str]]:
    return {(result.device, precision(result)) for result in group.results}


def _listed(names: Iterable[str], before: str = ": ") -> str:
    every = list(names)
    more = f"; and {len(every) - _MOST_NAMED} more, see the tables" if len(every) > _MOST_NAMED else ""
    return before + "; ".join(every[:_MOST_NAMED]) + more if every else ""
