"""What experiments came to, in words: the headline figures, and what a reader must know about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import fmean

from shels.experiments.methods import METHODS
from shels.experiments.published import TRIALS, Published
from shels.experiments.statistics import Summary, differences
from shels.report.breakdown import FINAL
from shels.report.machine import precision
from shels.report.studies import Group, Study, every_group, method_title
from shels.report.tables import bounds_aside
from shels.report.words import count, duration, figure, measure, prose, spread

_BOUNDS = {
    "fine-tune": "which does nothing against forgetting",
    "joint": "which starts afresh with all samples of all classes each time",
    "joint-bound": "which is taught all classes at first",
}


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
    facts += [("trials", f"{len(results):,}"), ("experiment" + "s" * (len(found) > 1), str(len(found)))]
    return [*facts, ("of computing, all trials added up", duration(sum(each.seconds for each in results)))]


def bounds(studies: Sequence[Study]) -> list[str]:
    """Name the methods that are no rivals but bounds, where they were run."""
    methods = {group.method for _, group in every_group(studies)}
    return [f"{METHODS[name].title}, {words}" for name, words in _BOUNDS.items() if name in methods]


def in_short(found: Sequence[Study]) -> Iterator[str]:
    """Give what the experiments came to, and what stands between our figures and the paper's."""
    compared = _faithful(found)
    if compared:
        outside = [_outlier(each) for each in compared if not each[3].contains(each[2].mean)]
        yield prose("published_means", number=len(compared), outside=outside)
    short = _places(found, lambda group: [f"{len(group.results)}"] if group.short_of_trials else [])
    if short:
        named = [f"{place} ({number})" for number, places in short.items() for place in places]
        yield prose("few_trials", number=TRIALS, names=named)
    yield from learning_in_short([study for study in found if study.learning])
    yield from against_joint([study for study in found if study.family == "open-world"])
    departed = [f"{what} in {', '.join(where)}" for what, where in _places(found, _departures).items()]
    if departed:
        yield prose("other_settings", names=departed)
    mixed = [
        _where(study, group)
        for study, group in every_group(found)
        if len({(result.device, precision(result)) for result in group.results}) > 1
    ]
    if mixed:
        yield prose("mixed_conditions", names=mixed)


def learning_in_short(studies: Sequence[Study]) -> Iterator[str]:
    """Give the best final accuracy of each experiment."""
    best = [words for words in map(_best, studies) if words]
    if best:
        yield f"Final accuracy after all classes were taken in{bounds_aside(studies)}: {'; '.join(best)}."


def against_joint(studies: Sequence[Study]) -> Iterator[str]:
    """Give each agent's accuracy at the end less that of a network taught all classes at once."""
    told = []
    for study in studies:
        joint = [
            result for group in study.groups if group.method == "joint-bound" for result in group.results
        ]
        behind = {group.title: differences(group.results, joint) for group in study.contenders}
        words = [f"{title} {figure(FINAL, fmean(each), sign=True)}" for title, each in behind.items() if each]
        told += [f"{study.short}: {', '.join(words)}"] if joint and words else []
    if told:
        yield f"Closed-set accuracy less that of joint training, in points of per cent: {'; '.join(told)}."


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
