"""The page on one learner: what it was taught, what it was shown, and how it told known from novel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shels.data.arrays import sorted_classes
from shels.data.samples import Samples
from shels.files import write_whole
from shels.learner.learner import Learner
from shels.report import figures, trained
from shels.report.page import Figure, Gallery, Page, Section, Table, Thumbnail, html, percent
from shels.report.trained import count

Array = NDArray[Any]
Measures = Mapping[str, Any]

_MOST_SHOWN = 12


@dataclass(frozen=True, eq=False)
class _Shown:
    """Samples with what was decided about each; every array is (n,)."""

    samples: Samples
    predicted: Array
    score: Array
    margin: Array
    novel: Array
    p_value: Array

    @property
    def labels(self) -> Array:
        return self.samples.labels.numpy()

    def __len__(self) -> int:
        return len(self.score)


def write(
    path: Path, *, learner: Learner, known: Samples, novel: Samples | None, measures: Measures, title: str
) -> None:
    """Write the page on a learner and the samples that `measures` (from its evaluate) were taken on.

    novel: samples of classes that the learner was not taught, labelled by classes of their own; None or
    empty where there are none.
    """
    mine = _judged(learner, known.only(learner.classes))
    others = _judged(learner, novel) if novel is not None and len(novel) else None
    sections = [
        trained.training(learner),
        Section("What happened", _outcome_words(mine, others, measures)),
        Section("Known or novel", _separation(mine, others)),
        Section("Class by class", _by_class(learner, others, measures)),
        *_pictures(learner, mine, others),
        *trained.inside(learner, mine.samples),
    ]
    lead, details = _lead(mine, others), trained.details(learner)
    write_whole(path, html(Page(title, lead, sections, _facts(measures), details, trained.footer())))


def told_apart(
    learner: Learner, known: Samples, novel: Samples, measures: Measures, title: str = "Known or novel"
) -> Section:
    """Return what became of known and of novel samples in words, and how far apart their scores lie.

    Arguments as in `write`; for a page that tells of more than this.
    """
    mine, others = _judged(learner, known.only(learner.classes)), _judged(learner, novel)
    return Section(title, [*_outcome_words(mine, others, measures), *_separation(mine, others)])


def _judged(learner: Learner, samples: Samples) -> _Shown:
    verdicts = learner.judge(samples.inputs)
    margin = verdicts.score - verdicts.threshold
    values = (verdicts.predicted, verdicts.score, margin, verdicts.novel, verdicts.p_value)
    return _Shown(samples, *(value.cpu().numpy() for value in values))


# In words ----------------------------------------------------------------------------------------------


def _lead(mine: _Shown, others: _Shown | None) -> str:
    lead = f"A classifier was taught {count(len(mine.samples.classes), 'class')} and then shown "
    lead += f"{count(len(mine), 'sample')} of them"
    if others is None:
        return lead + "."
    classes = len(np.unique(others.labels))
    return f"{lead}, and {count(len(others), 'sample')} of {count(classes, 'class')} that it knew nothing of."


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


def _outcome_words(mine: _Shown, others: _Shown | None, measures: Measures) -> list[str]:
    known = (
        f"Of the {count(len(mine), 'sample')} of known classes, {percent(measures['acceptance'])} were "
        f"accepted, and {percent(measures['known_accuracy'])} were accepted and given the right class. If "
        f"nothing were ever rejected, {percent(measures['closed_set_accuracy'])} would be named rightly."
    )
    known += _weakest(measures["per_class"], "right", " The weakest known class is {} with {}.")
    if others is None:
        return [known, "No sample of a novel class was shown, so nothing can be said about noticing one."]
    novel = (
        f"Of the {count(len(others), 'sample')} of classes that the learner was not taught, "
        f"{percent(measures['novel_accuracy'])} were rejected as novel."
    )
    novel += _weakest(measures["per_novel_class"], "rejected", " The hardest to notice is {} with {}.")
    novel += (
        f" By the score alone, a known sample beats a novel one {percent(measures['auroc'])} of the time "
        f"(AUROC {measures['auroc']:.3f}); a threshold that accepts {percent(0.95, 0)} of the known "
        f"samples accepts {percent(measures['fpr95'])} of the novel ones."
    )
    return [known, novel]


def _weakest(rates: Mapping[str, Mapping[str, float]], key: str, words: str) -> str:
    name = min(rates, key=lambda each: rates[each][key])
    differ = len({rate[key] for rate in rates.values()}) > 1
    return words.format(f"“{name}”", percent(rates[name][key])) if differ else ""


# In figures and tables ---------------------------------------------------------------------------------


def _separation(mine: _Shown, others: _Shown | None) -> list[Figure]:
    histogram = figures.margins(mine.margin, None if others is None else others.margin)
    if others is None:
        return [histogram]
    at = float((~others.novel).mean()), float((~mine.novel).mean())
    return [histogram, figures.roc(mine.score, others.score, at)]


def _by_class(learner: Learner, others: _Shown | None, measures: Measures) -> list[Figure | Table]:
    known, novel = measures["per_class"], {}
    if others is not None:
        rates = measures["per_novel_class"]
        names = map(str, sorted_classes(others.samples.classes))
        novel = {name: rates[name] for name in names if name in rates}
    order = [name for name in map(str, sorted_classes(learner.classes)) if name in known]
    bars = {name: (known[name]["right"], known[name]["accepted"] - known[name]["right"]) for name in order}
    threshold = dict(zip(map(str, learner.classes), learner.detector.thresholds.tolist(), strict=True))
    rows = [
        (name, known[name]["samples"], *bars[name], 1 - known[name]["accepted"], f"{threshold[name]:.4f}")
        for name in order
    ]
    columns = ("Known class", "Samples", "Right", "Wrong", "Rejected", "Threshold")
    blocks: list[Figure | Table] = [
        figures.class_bars(bars, {name: each["rejected"] for name, each in novel.items()}),
        Table(columns, rows),
    ]
    if novel:
        found = [(name, r["samples"], r["rejected"], 1 - r["rejected"]) for name, r in novel.items()]
        blocks.append(Table(("Novel class", "Samples", "Rejected", "Accepted"), found))
    return blocks


def _pictures(learner: Learner, mine: _Shown, others: _Shown | None) -> list[Section]:
    """Return samples to look at, the surest mistakes first; none where the inputs are vectors."""
    if mine.samples.inputs.ndim != 4:
        return []
    galleries: list[Gallery] = []
    if others is not None:
        found, missed = np.flatnonzero(others.novel), np.flatnonzero(~others.novel)
        spread = found[np.linspace(0, len(found) - 1, min(_MOST_SHOWN, len(found))).astype(int)]
        surest = missed[np.argsort(-others.margin[missed], kind="stable")]
        galleries.append(_gallery("Novel, found", learner, others, spread, len(found)))
        galleries.append(_gallery("Novel, missed", learner, others, surest, len(missed)))
    rejected = np.flatnonzero(mine.novel)
    surest = rejected[np.argsort(mine.margin[rejected], kind="stable")]
    galleries.append(_gallery("Known, wrongly rejected", learner, mine, surest, len(rejected)))
    mistaken = np.flatnonzero(~mine.novel & (mine.predicted != mine.labels))
    surest = mistaken[np.argsort(-mine.margin[mistaken], kind="stable")]
    galleries.append(_gallery("Known, taken for another class", learner, mine, surest, len(mistaken)))
    words = (
        "Below each picture stand its true class, the verdict (novel, or the class it was taken for) and the "
    )
    words += "p-value: how often held-out samples of that class score as low. The surest mistakes come first."
    return [Section("Samples to look at", [words, *galleries])]


def _gallery(title: str, learner: Learner, shown: _Shown, index: Array, total: int) -> Gallery:
    index = index[:_MOST_SHOWN]
    of = len(shown)
    if not total:
        return Gallery(title, f"none of {of:,}")
    note = f"{total:,} of {of:,}" + (f"; {len(index)} shown" if len(index) < total else "")
    return Gallery(title, note, [_thumbnail(learner, shown, int(i)) for i in index])


def _thumbnail(learner: Learner, shown: _Shown, i: int) -> Thumbnail:
    true = shown.samples.classes[int(shown.labels[i])]
    verdict = "novel" if shown.novel[i] else f"as {learner.classes[int(shown.predicted[i])]}"
    png = figures.thumbnail(shown.samples.inputs[i].cpu().numpy())
    return Thumbnail(png, (f"{true}", verdict, f"p\N{NO-BREAK SPACE}{shown.p_value[i]:.3f}"))
