"""Charts of a trained model: what it decided about samples, how it was trained, what it looks like inside.

Known is blue and novel is orange in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score, roc_curve

from shels.report.charts.networks import matrices
from shels.report.drawing import (
    DASHED,
    INK,
    KNOWN,
    NARROW,
    NOVEL,
    QUIET,
    REJECTED,
    WRONG,
    Figure,
    label,
    legend,
)
from shels.report.evaluation import Evaluation
from shels.report.words import percent, prose

Array = NDArray[Any]

_BARS = 540  # bars of classes may grow wider than other narrow figures


# Known or novel ----------------------------------------------------------------------------------------


def margins(shown: Evaluation) -> list[Figure]:
    """Draw how far samples lie from their threshold, so that a reader sees what a shift of it would cost."""
    sides = {"known": (shown.known.margin, KNOWN)}
    if shown.novel is not None:
        sides["novel"] = (shown.novel.margin, NOVEL)
    edges = _bins(np.concatenate([values for values, _ in sides.values()]))

    def draw(canvas: Canvas) -> None:
        axes = canvas.subplots()
        for values, shade in sides.values():
            shares = np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0] / len(values)
            axes.stairs(100 * shares, edges, fill=True, color=shade, alpha=0.45)
            axes.stairs(100 * shares, edges, color=shade, linewidth=1.4)
        axes.axvline(0, color=INK, linewidth=1.2, linestyle=DASHED)
        axes.set_ylim(0, axes.get_ylim()[1] * 1.12)
        for side, ha, word in ((-6, "right", "judged novel"), (6, "left", "accepted")):
            where: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
            axes.annotate(word, (0, 1), (side, -2), ha=ha, va="top", color=QUIET, **where)
        axes.set_title("% of samples")
        axes.set_xlabel("score less the threshold of the predicted class")
        legend(canvas, {f"{name} ({len(values):,})": shade for name, (values, shade) in sides.items()})

    alt = f"Histogram of score less threshold of {' and '.join(sides)} samples."
    return [Figure("margins", draw, (NARROW, 330), alt, prose("margins_caption"), NARROW)]


def roc(shown: Evaluation) -> list[Figure]:
    """Draw the ROC curve of the scores: what any one threshold could reach, and what the learner's do."""
    if shown.novel is None:
        return []
    known, novel = shown.known, shown.novel
    truth = np.concatenate([np.ones(len(known)), np.zeros(len(novel))])
    scores = np.concatenate([known.score, novel.score])
    false_rate, true_rate, _ = roc_curve(truth, scores)
    auroc = float(roc_auc_score(truth, scores))

    def draw(canvas: Canvas) -> None:
        axes = canvas.subplots()
        axes.plot([0, 100], [0, 100], color=REJECTED, linewidth=1, linestyle=DASHED)
        axes.plot(100 * false_rate, 100 * true_rate, color=KNOWN, linewidth=2)
        accepted = [float(100 * np.mean(~side.novel)) for side in (novel, known)]
        _mark(axes, accepted[0], accepted[1], "at the learner's thresholds")
        axes.set(xlim=(-1, 100), ylim=(0, 101))
        axes.grid()
        axes.set_title("% of known samples accepted")
        axes.set_xlabel("% of novel samples accepted")
        axes.text(97, 12, f"AUROC {auroc:.3f}", ha="right", fontsize=15)
        legend(canvas)

    alt = f"ROC curve of known against novel samples, AUROC {auroc:.3f}."
    return [Figure("roc", draw, (NARROW, 330), alt, prose("roc_caption"), NARROW)]


def _bins(values: Array) -> Array:
    """Choose the edges of histogram bars with one at 0, over nearly all values."""
    low, high = np.quantile(values, (0.005, 0.995))
    low, high = min(float(low), 0.0), max(float(high), 0.0)
    width = max(high - low, 1e-9) / np.clip(2 * np.sqrt(len(values)), 12, 40)
    edges: Array = np.arange(np.floor(low / width) - 1, np.ceil(high / width) + 2) * width
    return edges


def _mark(axes: Axes, x: float, y: float, name: str = "") -> None:
    style: dict[str, Any] = {"label": name} if name else {}
    axes.plot([x], [y], "o", color=NOVEL, markeredgecolor=INK, markersize=8, clip_on=False, **style)


# Class by class ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClassBars:
    """Bars of classes under a title: parts of each bar end to end as (shares by class, colour)."""

    title: str
    names: Sequence[str]
    parts: Sequence[tuple[Array, str]]


def class_bars(shown: Evaluation) -> list[Figure]:
    """Draw what became of each class's samples, so that a weak class cannot hide in a mean."""
    known, novel = shown.known_rates, shown.novel_rates
    right, accepted = (np.array([each[key] for each in known.values()]) for key in ("right", "accepted"))
    parts = ((right, KNOWN), (accepted - right, WRONG), (1 - accepted, REJECTED))
    groups = [ClassBars("known classes: share accepted and right", [*known], parts)]
    words = {"accepted and right": KNOWN, "accepted but wrong": WRONG, "rejected": REJECTED}
    if novel:
        found = np.array([each["rejected"] for each in novel.values()])
        title = "novel classes: share rejected as novel"
        groups.append(ClassBars(title, [*novel], ((found, NOVEL), (1 - found, WRONG))))
        words["novel and rejected"] = NOVEL
    alt = "Bars by class: samples accepted and right, accepted but wrong, and rejected."
    caption = "What became of the samples of each class; the number is the share decided rightly."
    return [bars("classes", groups, words, alt, caption, columns=2)]


def bars(
    name: str, groups: Sequence[ClassBars], words: Mapping[str, str], alt: str, caption: str, columns: int = 3
) -> Figure:
    """Draw groups of classes below each other, a bar for each class. words: what each colour means."""

    def draw(canvas: Canvas) -> None:
        ratios = [max(len(group.names), 1.5) for group in groups]
        axes_of = canvas.subplots(len(groups), squeeze=False, sharex=True, height_ratios=ratios)[:, 0]
        for axes, group in zip(axes_of, groups, strict=True):
            _stacked(axes, group)
        legend(canvas, words, columns=columns)

    height = 18 * sum(len(group.names) for group in groups) + 70 + 30 * len(groups)
    return Figure(name, draw, (NARROW, height), alt, caption, _BARS)


def _stacked(axes: Axes, group: ClassBars) -> None:
    """Draw one bar for each class, its parts end to end, and the first part's share in figures."""
    places = range(len(group.names))
    left = np.zeros(len(places))
    for shares, shade in group.parts:
        axes.barh(places, 100 * shares, left=100 * left, color=shade, height=0.74)
        left += shares
    for place, share in zip(places, group.parts[0][0], strict=True):
        axes.text(101.5, place, percent(share), va="center", clip_on=False)
    axes.set_yticks(places, [label(name) for name in group.names], color=INK)
    axes.set(xlim=(0, 100), ylim=(len(places) - 0.4, -0.6), xticks=range(0, 101, 25))
    axes.tick_params(length=0)
    axes.spines["left"].set_visible(False)
    axes.set_title(group.title)


# The network -------------------------------------------------------------------------------------------


def training(shown: Evaluation) -> list[Figure]:
    """Draw loss and accuracy by step, so that a training cut too short or run too long can be seen."""
    checks, best = (shown.learner.report.get(key) for key in ("checks", "best"))
    if not (checks and best):
        return []
    steps = [check["step"] for check in checks]
    style: dict[str, Any] = {"linewidth": 1.8, "marker": "o", "markersize": 3.5 if len(steps) < 40 else 0}

    def draw(canvas: Canvas) -> None:
        loss, accuracy = canvas.subplots(2, sharex=True, height_ratios=(3, 2))
        loss.plot(steps, [c["training_loss"] for c in checks], color=REJECTED, label="training", **style)
        loss.plot(steps, [c["validation_loss"] for c in checks], color=KNOWN, label="held out", **style)
        accuracy.plot(steps, [100 * c["validation_accuracy"] for c in checks], color=KNOWN, **style)
        lowest = 100 * min(c["validation_accuracy"] for c in checks)
        accuracy.set_ylim(min(lowest - 0.5, 97), 100 + max(0.25, (100 - lowest) / 20))
        for axes, key, factor in ((loss, "validation_loss", 1), (accuracy, "validation_accuracy", 100)):
            axes.axvline(best["step"], color=INK, linewidth=1, linestyle=DASHED)
            _mark(axes, best["step"], factor * best[key], "kept" if axes is loss else "")
            axes.grid(axis="y")
        loss.set_title("loss")
        accuracy.set_title("% of held-out samples named rightly")
        accuracy.set_xlabel("optimiser step")
        legend(canvas)

    alt = f"Training curve over {len(checks)} checks; the best is at step {best['step']:,}."
    caption = "Training loss (with the sparsity term) and loss and accuracy on held-out samples, by step."
    return [Figure("training", draw, (NARROW, 380), alt, caption, NARROW)]


def exclusivity(shown: Evaluation) -> list[Figure]:
    """Draw how exclusive the features of each two taught classes are; nothing of fewer than two."""
    if shown.exclusivity is None:
        return []
    names = shown.exclusivity[1]
    alt = f"Matrix of exclusivity between {len(names)} classes."
    side = NARROW if len(names) <= 12 else 860
    words = "Exclusivity of each two classes"
    return [matrices("exclusivity", {"": shown.exclusivity}, side, alt=alt, words=words)]
