"""The charts of what was varied: the weight of the group sparsity, and the number of a new class's images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from shels.config.presets import PAPER
from shels.experiments.statistics import Summary
from shels.experiments.trials import FEW_SHOT_MEASURES, MEASURES
from shels.report.drawing import DASHED, INK, QUIET, WIDE, Figure, colour, label, legend
from shels.report.studies import Group, Study, method_title
from shels.report.words import measure, prose

Sweep: TypeAlias = dict[str, dict[float, Group]]
"""The groups of a study by the kind of their depth weights, then by the weight of the sparsity."""


def sweep_of(study: Study) -> Sweep:
    """Put a study's groups in order; without any sparsity the kinds are one, and share that point."""
    found: Sweep = {}
    for group in study.groups:
        training = group.results[0].trial.settings.training
        found.setdefault(training.depth_weights, {})[training.alpha] = group
    none = next((each[0.0] for each in found.values() if 0.0 in each), None)
    if none is not None:
        found = {kind: {0.0: none} | each for kind, each in found.items()}
    return {kind: dict(sorted(each.items())) for kind, each in found.items()}


def curves(studies: Sequence[Study]) -> list[Figure]:
    """Draw a row of panels for each data set, a panel for each measure, a line for each kind."""

    def draw(canvas: Canvas) -> None:
        rows = canvas.subplots(len(studies), len(MEASURES), squeeze=False, sharex=True, sharey="row")
        for row, study in zip(rows, studies, strict=True):
            for axes, key in zip(row, MEASURES, strict=True):
                _panel(axes, study, key)
                axes.set_title(measure(key).heading, color=QUIET)
            row[0].set_title(f"{label(study.short, 30)}: {measure(MEASURES[0]).heading}", color=INK)
        for axes in rows[-1]:
            axes.set_xlabel("α")
        legend(canvas)

    alt = "Known, novel and combined accuracy and AUROC by the weight of the group sparsity."
    size = (WIDE, 170 * len(studies) + 50)
    return [Figure("group-sparsity", draw, size, alt, prose("sweep_caption"))]


def few_shot(studies: Sequence[Study]) -> list[Figure]:
    """Draw a row of panels for each data set, a panel for each measure, a line for each method."""
    keys = FEW_SHOT_MEASURES
    headings = [measure(key).heading_in(learning=True) for key in keys]

    def draw(canvas: Canvas) -> None:
        rows = canvas.subplots(len(studies), len(keys), squeeze=False, sharex=True, sharey="col")
        for row, study in zip(rows, studies, strict=True):
            for axes, key, heading in zip(row, keys, headings, strict=True):
                _few_shot_panel(axes, study, key)
                axes.set_title(heading, color=QUIET)
            row[0].set_title(f"{label(study.short, 30)}: {headings[0]}", color=INK)
        for axes in rows[-1]:
            axes.set_xlabel("images of a new class")
        legend(canvas)

    alt = "Accuracy and false alarms by the number of images that a new class is learned from."
    size = (WIDE, 170 * len(studies) + 50)
    return [Figure("few-shot", draw, size, alt, prose("few_shot_caption"))]


def few_shot_of(study: Study) -> dict[str, dict[int, Group]]:
    """Put a study's groups in order: by method, then by the number of images."""
    found: dict[str, dict[int, Group]] = {}
    for group in study.groups:
        images = group.results[0].trial.images
        if images is not None:
            found.setdefault(group.method, {})[images] = group
    return {method: dict(sorted(points.items())) for method, points in found.items()}


def _few_shot_panel(axes: Axes, study: Study, key: str) -> None:
    for place, (method, points) in enumerate(few_shot_of(study).items()):
        found = {float(n): mean for n, group in points.items() if (mean := group.summary(key))}
        _line(axes, found, colour(place), method_title(method))
    axes.set_xscale("log")
    axes.grid(axis="y")


def _panel(axes: Axes, study: Study, key: str) -> None:
    for place, (kind, points) in enumerate(sorted(sweep_of(study).items(), reverse=True)):
        found = {alpha: mean for alpha, group in points.items() if (mean := group.summary(key))}
        _line(axes, found, colour(place), kind)
    axes.axvline(PAPER["fmnist"].training.alpha, color=QUIET, linewidth=0.8, linestyle=DASHED)
    axes.grid(axis="y")
    axes.locator_params(axis="x", nbins=3)


def _line(axes: Axes, found: dict[float, Summary], shade: str, kind: str) -> None:
    means = np.array([each.mean for each in found.values()])
    spreads = np.array([each.sd or 0.0 for each in found.values()])
    axes.fill_between([*found], means - spreads, means + spreads, color=shade, alpha=0.16, linewidth=0)
    axes.plot([*found], means, color=shade, linewidth=1.8, label=kind)
