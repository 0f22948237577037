"""The charts of a setting that was varied: how the measures follow the weight of the group sparsity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from shels.config.presets import PAPER
from shels.experiments.statistics import Summary
from shels.experiments.trials import MEASURES
from shels.report.drawing import DASHED, INK, QUIET, WIDE, Figure, colour, label, legend
from shels.report.studies import Group, Study
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
