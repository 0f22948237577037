"""The page on a model and its data: estimates with intervals, the operating curve, samples to look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from shels.files import write_whole
from shels.learner.checking import Round
from shels.learner.estimates import Estimate, estimates
from shels.learner.examination import Examination, Twins
from shels.report import charts, trained
from shels.report.charts.examination import curves
from shels.report.page import (
    MOST_SHOWN,
    Block,
    Cell,
    Fold,
    Gallery,
    Page,
    Section,
    Table,
    Thumbnail,
    gallery,
    html,
    thumbnail,
)
from shels.report.words import NOTHING, percent, prose

Lines = Callable[[int], tuple[str, ...]]
"""What stands below the picture of the sample at a place."""

_MEASURES = {
    "closed_set_accuracy": "Named rightly, nothing rejected",
    "acceptance": "Known samples accepted",
    "novel_accuracy": "Novel samples rejected",
    "auroc": "AUROC, known against novel",
}
_POINTS = (0.8, 0.9, 0.95, 0.98, 0.99, 0.999)
_LISTED = 40
"""Rows of a table of samples."""


def write(path: Path, found: Examination, title: str) -> None:
    """Write the page."""
    sections = [
        Section("How good is it?", [prose("estimates_meant", found=found), *_estimates(found)]),
        *_operating(found),
        Section("Likely mislabelled", _suspects(found)),
        Section("Least sure", _doubts(found)),
        Section("Near duplicates", _twins(found)),
        trained.training(found.learner),
    ]
    details, footer = trained.details(found.learner), trained.footer()
    write_whole(
        path, html(Page(title, _lead(found), sections, _facts(found), details, footer, contents=True))
    )


def _lead(found: Examination) -> str:
    return prose(
        "examination_lead",
        samples=found.training,
        classes=len(found.learner.classes),
        suspects=len(found.suspects),
        across=sum(each.across for each in found.twins),
        twins=len(found.twins),
    )


def _facts(found: Examination) -> list[tuple[str, str]]:
    best = estimates(found.retrained or found.folds)
    novel = estimates(found.retrained or found.classes)
    facts = [
        ("of known samples named rightly", percent(best["closed_set_accuracy"].value)),
        ("of known samples accepted", percent(best["acceptance"].value)),
    ]
    if "auroc" in novel:
        facts.append(("AUROC of classes left out", f"{novel['auroc'].value:.3f}"))
    return [*facts, ("likely mislabelled", str(len(found.suspects)))]


# Estimates ---------------------------------------------------------------------------------------------


def _estimates(found: Examination) -> list[Table]:
    sources: dict[str, tuple[Sequence[Round], Sequence[str]]] = {
        "samples left out": (found.folds, list(_MEASURES)[:2]),
        "classes left out": (found.classes, list(_MEASURES)[2:]),
        "left out, networks trained anew": (found.retrained, list(_MEASURES)),
        "the test part": ([found.tested] if found.tested else [], list(_MEASURES)),
    }
    rows: list[list[Cell]] = []
    for name, (rounds, measures) in sources.items():
        values = estimates(rounds) if rounds else {}
        rows += [[name, _MEASURES[key], *_shown(key, values[key])] for key in measures if key in values]
    return [Table(("By", "Estimate of", "Value", "95 % interval", "Stands on"), rows, left=2, merged=True)]


def _shown(key: str, found: Estimate) -> tuple[str, str, int]:
    def figure(value: float) -> str:
        return f"{value:.3f}" if key == "auroc" else percent(value)

    if found.low is None or found.high is None:
        return figure(found.value), NOTHING, found.n
    return figure(found.value), f"{figure(found.low)} – {figure(found.high)}", found.n


def _operating(found: Examination) -> list[Section]:
    drawn = charts.drawn(charts.EXAMINATION, "operating", found)
    if not drawn:
        return []
    name, curve = next(iter(curves(found).items()))
    points = [point for point in curve if point.share in (*_POINTS, found.share)]
    rows = [(f"{point.share:g}", point.accepted, point.rejected) for point in points]
    columns = ("Share asked for", "Known accepted", "Novel rejected")
    tables = [Table(columns, rows, f"Some points, by {name}"), *_by_class(found)]
    return [Section("What more acceptance costs", [prose("operating_meant"), *drawn, *tables])]


def _by_class(found: Examination) -> list[Table]:
    rounds = found.retrained or found.classes
    rows = [
        (each.name, each.novel, each.rejected / each.novel, f"{each.auroc:.3f}")
        for each in rounds
        if each.novel and each.auroc is not None
    ]
    return [Table(("Class left out", "Samples judged", "Rejected", "AUROC"), rows)] if rows else []


# Samples to look at ------------------------------------------------------------------------------------


def _pictured(found: Examination) -> bool:
    return found.samples.inputs.ndim == 4


def _suspects(found: Examination) -> list[Block]:
    if not found.suspects:
        return [prose("no_suspects")]
    by_place = {each.place: each for each in found.suspects}

    def lines(place: int) -> tuple[str, ...]:
        each = by_place[place]
        return str(each.label), f"rather {each.rather}", f"p\N{NO-BREAK SPACE}{each.p_value:.3f}"

    rows = [
        (each.name, str(each.label), str(each.rather), f"{each.p_value:.3f}", f"{each.rather_p:.3f}")
        for each in found.suspects[:_LISTED]
    ]
    columns = ("Sample", "Label", "Rather", "p as labelled", "p as the other")
    pictures = _gallery("Label, and what they rather are", found, list(by_place), lines)
    return [prose("suspects_meant"), *pictures, Table(columns, rows, left=3)]


def _doubts(found: Examination) -> list[Block]:
    by_place = {each.place: each for each in found.doubts}

    def lines(place: int) -> tuple[str, ...]:
        each = by_place[place]
        verdict = "novel" if each.novel else f"as {each.predicted}"
        return str(each.label), verdict, f"p\N{NO-BREAK SPACE}{each.p_value:.3f}"

    rows = [
        (each.name, str(each.label), str(each.predicted), f"{each.p_value:.3f}", "yes" if each.novel else "")
        for each in found.doubts[:_LISTED]
    ]
    columns = ("Sample", "Label", "Nearest", "p-value", "Judged novel")
    pictures = _gallery("Label and verdict", found, list(by_place), lines)
    return [prose("doubts_meant"), *pictures, Fold("The list", [Table(columns, rows, left=3)])]


def _gallery(title: str, found: Examination, places: list[int], lines: Lines) -> list[Gallery]:
    if not _pictured(found):
        return []
    note = f"{len(places):,} of {found.training:,}"
    return [gallery(title, note, found.samples.inputs, places, lines)]


def _twins(found: Examination) -> list[Block]:
    if not found.twins:
        return [prose("no_twins")]
    order = sorted(found.twins, key=lambda each: (not each.conflict, not each.across))
    rows = [
        (*each.names, _kind(each), f"{each.likeness:.3f}", ", ".join(map(str, dict.fromkeys(each.labels))))
        for each in order[:_LISTED]
    ]
    columns = ("One", "The other", "Which", "Likeness", "Labels")
    shown = [_side_by_side(found, each) for each in order[:MOST_SHOWN]] if _pictured(found) else []
    across = sum(each.across for each in found.twins)
    note = f"{len(found.twins):,} pairs, {across:,} across train and test"
    listed = Fold("The list", [Table(columns, rows, left=3)])
    return [prose("twins_meant"), Gallery("Pairs", note, shown), listed]


def _kind(twins: Twins) -> str:
    kind = "the same" if twins.exact else "alike"
    return f"{kind}, across train and test" if twins.across else kind


def _side_by_side(found: Examination, twins: Twins) -> Thumbnail:
    both = torch.cat([found.samples.inputs[place] for place in twins.places], dim=2)
    lines = (" | ".join(map(str, dict.fromkeys(twins.labels))), _kind(twins))
    return Thumbnail(thumbnail(np.asarray(both.cpu())), lines)
