"""The page on one learner: what it was taught, what it was shown, and how it separated known from novel."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shels.data.samples import Samples
from shels.files import write_whole
from shels.learner.explanation import in_words
from shels.learner.learner import Learner
from shels.report import charts, trained
from shels.report.evaluation import Decisions, Evaluation, evaluate
from shels.report.page import MOST_SHOWN, Block, Gallery, Page, Section, Table, gallery, html
from shels.report.words import NOTHING, percent, prose

Array = NDArray[Any]
Measures = Mapping[str, Any]
_EXPLAINED = 4
"""Verdicts of each kind that are explained."""


def write(
    path: Path, *, learner: Learner, known: Samples, novel: Samples | None, measures: Measures, title: str
) -> None:
    """Write the page on a learner and the samples that `measures` (from its evaluate) were taken on.

    novel: samples of classes that the learner was not taught, labelled by classes of their own; None or
    empty where there are none.
    """
    shown = evaluate(learner, known, novel, measures)
    sections = [
        trained.training(learner),
        Section("What happened", _results(shown)),
        Section("Known or novel", charts.drawn(charts.MODEL, "separation", shown)),
        Section("Class by class", [*charts.drawn(charts.MODEL, "classes", shown), *_class_tables(shown)]),
        *_pictures(shown),
        *_reasons(shown),
        *trained.inside(shown),
    ]
    page = Page(title, _lead(shown), sections, _facts(measures), trained.details(learner), trained.footer())
    write_whole(path, html(page))


def separation(shown: Evaluation, title: str) -> Section:
    """Say and draw how known and novel samples were separated, for a page that shows more than this."""
    return Section(title, [*_results(shown), *charts.drawn(charts.MODEL, "separation", shown)])


# In words ----------------------------------------------------------------------------------------------


def _lead(shown: Evaluation) -> str:
    classes, novel = len(shown.known.samples.classes), shown.novel
    others = 0 if novel is None else len(np.unique(novel.labels))
    return prose(
        "lead", known=len(shown.known), classes=classes, novel=len(novel or ()), novel_classes=others
    )


def _facts(measures: Measures) -> list[tuple[str, str]]:
    shares = {
        "of known samples accepted and named rightly": "known_accuracy",
        "of novel samples rejected": "novel_accuracy",
        "of known samples named rightly if none is rejected": "closed_set_accuracy",
    }
    facts = [(name, percent(measures[key])) for name, key in shares.items() if key in measures]
    if "auroc" in measures:
        facts.append(("AUROC of known against novel", f"{measures['auroc']:.3f}"))
    else:
        facts.append(("of known samples accepted", percent(measures["acceptance"])))
    return facts


def _results(shown: Evaluation) -> list[Block]:
    known = prose("known_results", samples=len(shown.known), measures=shown.measures)
    if shown.novel is None:
        return [known, prose("no_novel_results")]
    return [known, prose("novel_results", samples=len(shown.novel), measures=shown.measures)]


# In tables and pictures --------------------------------------------------------------------------------


def _class_tables(shown: Evaluation) -> list[Table]:
    thresholds = shown.learner.detector.thresholds.tolist()
    threshold = dict(zip(map(str, shown.learner.classes), thresholds, strict=True))
    rows = []
    for name, rate in shown.known_rates.items():
        shares = (rate["right"], rate["accepted"] - rate["right"], 1 - rate["accepted"])
        rows.append((name, rate["samples"], *shares, f"{threshold[name]:.4f}"))
    tables = [Table(("Known class", "Samples", "Right", "Wrong", "Rejected", "Threshold"), rows)]
    novel = [
        (name, rate["samples"], rate["rejected"], 1 - rate["rejected"])
        for name, rate in shown.novel_rates.items()
    ]
    return tables + ([Table(("Novel class", "Samples", "Rejected", "Accepted"), novel)] if novel else [])


def _pictures(shown: Evaluation) -> list[Section]:
    """Show samples, the surest mistakes first; none where the inputs are vectors."""
    known, novel = shown.known, shown.novel
    if known.samples.inputs.ndim != 4:
        return []
    chosen = {}
    if novel is not None:
        chosen["Novel, found"] = novel, _spread(np.flatnonzero(novel.novel))
        chosen["Novel, missed"] = novel, _surest(-novel.margin, ~novel.novel)
    mistaken = ~known.novel & (known.predicted != known.labels)
    chosen["Known, wrongly rejected"] = known, _surest(known.margin, known.novel)
    chosen["Known, taken for another class"] = known, _surest(-known.margin, mistaken)
    galleries = [_gallery(title, shown.learner, *each) for title, each in chosen.items()]
    return [Section("Samples to look at", [prose("samples_shown"), *galleries])]


def _reasons(shown: Evaluation) -> list[Section]:
    """Explain a few verdicts: novel samples that were missed and found, known ones that were rejected."""
    known, novel = shown.known, shown.novel
    chosen = [(known, _surest(known.margin, known.novel))]
    if novel is not None:
        chosen += [(novel, _surest(-novel.margin, ~novel.novel)), (novel, _surest(novel.margin, novel.novel))]
    rows: list[tuple[str, ...]] = []
    for decisions, places in chosen:
        some = places[:_EXPLAINED]
        for place, why in zip(some, shown.learner.explain(decisions.samples.inputs[some]), strict=True):
            true = decisions.samples.classes[int(decisions.labels[place])]
            likely = [f"{name} ({in_words(value)})" for name, value in list(why.class_p_values.items())[:3]]
            odd = [f"{each.name} ({in_words(each.p_value)})" for each in why.aspects[:2]]
            rows.append((str(true), str(why.verdict), ", ".join(likely), ", ".join(odd) or NOTHING))
    table = Table(("True class", "Verdict", "Likeliest classes (p)", "Most unusual (p)"), rows, left=4)
    return [Section("Some verdicts explained", [prose("reasons"), table])] if rows else []


def _surest(order: Array, chosen: Array) -> Array:
    """Give the positions of the chosen samples, those with the lowest `order` first."""
    places = np.flatnonzero(chosen)
    return places[np.argsort(order[places], kind="stable")]


def _spread(places: Array) -> Array:
    """Put some that lie evenly over all positions first, so that what is shown is no run of one class."""
    first = np.linspace(0, len(places) - 1, min(MOST_SHOWN, len(places))).astype(int)
    return np.concatenate([places[first], np.delete(places, first)])


def _gallery(title: str, learner: Learner, shown: Decisions, places: Array) -> Gallery:
    def lines(place: int) -> tuple[str, ...]:
        true = shown.samples.classes[int(shown.labels[place])]
        verdict = "novel" if shown.novel[place] else f"as {learner.classes[int(shown.predicted[place])]}"
        return str(true), verdict, f"p\N{NO-BREAK SPACE}{shown.p_value[place]:.3f}"

    note = f"{f'{len(places):,}' if len(places) else 'none'} of {len(shown):,}"
    return gallery(title, note, shown.samples.inputs, places.tolist(), lines)
