"""Figures from plain arrays: known is blue and novel is orange in all of them (Okabe and Ito's palette).

Each is an SVG whose text stays text, so that it is sharp at any size and shows names in any script.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shels.report.drawing import DASHED, INK, KNOWN, NOVEL, QUIET, REJECTED, WRONG, label, legend_above, svg
from shels.report.page import Figure, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

Array = NDArray[Any]

_NARROW, _ENLARGED, _WIDE = 430, 540, 860  # drawn at the first, two fit side by side and one a phone
_MOST_NUMBERED = 12  # classes beyond which the numbers in a matrix would be too small to read


def margins(known: Array, novel: Array | None) -> Figure:
    """Return how far samples lie from their threshold, so that a reader sees what a shift of it would cost.

    known, novel: (n,) score less threshold of the predicted class; over 0 is accepted.
    """
    both = known if novel is None else np.concatenate([known, novel])
    edges = _bins(both)

    def draw(canvas: Canvas) -> None:
        axes = canvas.subplots()
        counts: dict[str, str] = {}
        for values, colour, name in ((known, KNOWN, "known"), (novel, NOVEL, "novel")):
            if values is not None:
                shares = np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0] / len(values)
                axes.stairs(100 * shares, edges, fill=True, color=colour, alpha=0.45)
                axes.stairs(100 * shares, edges, color=colour, linewidth=1.4)
                counts[f"{name} ({len(values):,})"] = colour
        axes.axvline(0, color=INK, linewidth=1.2, linestyle=DASHED)
        axes.set_ylim(0, axes.get_ylim()[1] * 1.12)
        for side, word in ((-6, "judged novel"), (6, "accepted")):
            axes.annotate(
                word,
                (0, 1),
                (side, -2),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                ha="right" if side < 0 else "left",
                va="top",
                color=QUIET,
            )
        axes.set_title("% of samples")
        axes.set_xlabel("score less the threshold of the predicted class")
        legend_above(canvas, counts)

    alt = f"Histogram of score less threshold: {_beyond(known)} of known samples lie above 0"
    alt += "" if novel is None else f", {_beyond(novel)} of novel ones"
    caption = (
        "How far each sample scores above (accepted) or below (judged novel) the threshold of the "
        "class it is given. The outermost bars collect what lies beyond them."
    )
    return Figure(svg(draw, _NARROW, 330), alt, caption, _NARROW)


def roc(known: Array, novel: Array, at: tuple[float, float]) -> Figure:
    """Return the ROC curve of the scores: what any one threshold could reach.

    known, novel: (n,) scores, higher more familiar. at: shares of novel and of known samples that the
    learner's own thresholds accept.
    """
    from sklearn.metrics import roc_auc_score, roc_curve  # noqa: PLC0415

    truth = np.concatenate([np.ones(len(known)), np.zeros(len(novel))])
    scores = np.concatenate([known, novel])
    false_rate, true_rate, _ = roc_curve(truth, scores)
    auroc = float(roc_auc_score(truth, scores))

    def draw(canvas: Canvas) -> None:
        axes = canvas.subplots()
        axes.plot([0, 100], [0, 100], color=REJECTED, linewidth=1, linestyle=DASHED)
        axes.plot(100 * false_rate, 100 * true_rate, color=KNOWN, linewidth=2)
        own = axes.plot([100 * at[0]], [100 * at[1]], "o", color=NOVEL, markeredgecolor=INK, markersize=8)
        own[0].set_label("at the learner's thresholds")
        own[0].set_clip_on(False)
        axes.set(xlim=(-1, 100), ylim=(0, 101))
        axes.grid()
        axes.set_title("% of known samples accepted")
        axes.set_xlabel("% of novel samples accepted")
        axes.text(97, 12, f"AUROC {auroc:.3f}", ha="right", fontsize=15)
        legend_above(canvas)

    alt = f"ROC curve, AUROC {auroc:.3f}; the thresholds accept {percent(at[1])} of known samples"
    alt += f" and {percent(at[0])} of novel ones"
    caption = (
        "The trade at every possible threshold on the score alone. AUROC is the chance that a known "
        "sample scores higher than a novel one: 1 is perfect, 0.5 a coin."
    )
    return Figure(svg(draw, _NARROW, 330), alt, caption, _NARROW)


def class_bars(known: Mapping[str, tuple[float, float]], novel: Mapping[str, float]) -> Figure:
    """Return what became of each class's samples, so that a weak class cannot hide in a mean.

    known: for each class the share accepted and right, and the share accepted but wrong; the rest was
    rejected. novel: for each class the share rejected.
    """
    right = np.array([pair[0] for pair in known.values()])
    wrong = np.array([pair[1] for pair in known.values()])
    rejected = np.array(list(novel.values()))
    rows = len(known) + len(novel)
    height = 18 * rows + (130 if novel else 80)

    def draw(canvas: Canvas) -> None:
        ratios = [max(len(names), 1.5) for names in (known, novel) if names]
        panels = canvas.subplots(len(ratios), squeeze=False, sharex=True, height_ratios=ratios)[:, 0]
        stack = ((right, KNOWN), (wrong, WRONG), (1 - right - wrong, REJECTED))
        _stacked(panels[0], "known classes: share accepted and right", list(known), stack)
        if novel:
            found = (rejected, NOVEL), (1 - rejected, WRONG)
            _stacked(panels[1], "novel classes: share rejected as novel", list(novel), found)
        words = {"accepted and right": KNOWN, "accepted but wrong": WRONG, "rejected": REJECTED}
        legend_above(canvas, words | ({"novel and rejected": NOVEL} if novel else {}), columns=2)

    alt = "Bars by class. Accepted and right: " + _listed(known, right)
    alt += f". Novel and rejected: {_listed(novel, rejected)}" if novel else ""
    caption = "What became of the samples of each class; the number is the share decided rightly."
    return Figure(svg(draw, _NARROW, height), alt, caption, _ENLARGED)


def exclusivity(matrix: Array, names: Sequence[str]) -> Figure:
    """Return how exclusive the features of each two classes are, to see which classes share theirs.

    matrix: (classes, classes), two or more; its diagonal is left out.
    """
    few = len(names) <= _MOST_NUMBERED
    width = _NARROW if few else _WIDE
    apart = np.where(np.eye(len(matrix), dtype=bool), np.nan, matrix)
    low, high = float(np.nanmin(apart)), float(np.nanmax(apart))

    def draw(canvas: Canvas) -> None:
        from matplotlib.colors import LinearSegmentedColormap  # noqa: PLC0415

        axes = canvas.subplots()
        shades = LinearSegmentedColormap.from_list("exclusivity", ["#f3f6f8", KNOWN])
        mesh = axes.pcolormesh(apart, cmap=shades, vmin=0, vmax=1, edgecolors="white", linewidth=0.8)
        _name_both_axes(axes, names)
        if few:
            _numbers(axes, apart)
        else:
            canvas.colorbar(mesh, ax=axes, shrink=0.5, aspect=30).outline.set_visible(False)

    alt = f"Matrix of exclusivity between {len(names)} classes, from {low:.2f} to {high:.2f}"
    caption = "Exclusivity of each two classes: 1 means that they share no feature, 0 that they share all."
    return Figure(svg(draw, width, width - (20 if few else 60)), alt, caption, width)


def training(checks: Sequence[Mapping[str, float]], best: Mapping[str, float]) -> Figure:
    """Return loss and accuracy by step, so that a training cut too short or run too long can be seen."""
    steps = [check["step"] for check in checks]
    style: dict[str, Any] = {"linewidth": 1.8, "marker": "o", "markersize": 3.5 if len(steps) < 40 else 0}

    def draw(canvas: Canvas) -> None:
        loss, accuracy = canvas.subplots(2, sharex=True, height_ratios=(3, 2))
        loss.plot(steps, [c["training_loss"] for c in checks], color=REJECTED, label="training", **style)
        loss.plot(steps, [c["validation_loss"] for c in checks], color=KNOWN, label="held out", **style)
        accuracy.plot(steps, [100 * c["validation_accuracy"] for c in checks], color=KNOWN, **style)
        lowest = 100 * min(c["validation_accuracy"] for c in checks)
        accuracy.set_ylim(min(lowest - 0.5, 97), 100 + max(0.25, (100 - lowest) / 20))
        for axes, value in ((loss, best["validation_loss"]), (accuracy, 100 * best["validation_accuracy"])):
            axes.axvline(best["step"], color=INK, linewidth=1, linestyle=DASHED)
            mark = axes.plot([best["step"]], [value], "o", color=NOVEL, markeredgecolor=INK, markersize=8)[0]
            axes.grid(axis="y")
        mark.set_label("kept")
        loss.set_title("loss")
        accuracy.set_title("% of held-out samples named rightly")
        accuracy.set_xlabel("optimiser step")
        legend_above(canvas)

    alt = f"Training curve over {len(checks)} checks; the best is at step {best['step']:,} with "
    alt += f"{percent(best['validation_accuracy'])} of held-out samples right"
    caption = "Training loss (with the sparsity term) and loss and accuracy on held-out samples, by step."
    return Figure(svg(draw, _NARROW, 380), alt, caption, _NARROW)


def named_bars(taught: Mapping[str, float], learned: Mapping[str, float]) -> Figure:
    """Return how many samples of each class are named rightly, beside those of the classes learned later."""
    groups = [
        ("classes of the first training: share named rightly", taught, KNOWN),
        ("classes learned later: share named rightly", learned, NOVEL),
    ]
    groups = [group for group in groups if group[1]]

    def draw(canvas: Canvas) -> None:
        ratios = [max(len(names), 1.5) for _, names, _ in groups]
        panels = canvas.subplots(len(groups), squeeze=False, sharex=True, height_ratios=ratios)[:, 0]
        for axes, (title, shares, colour) in zip(panels, groups, strict=True):
            right = np.array(list(shares.values()))
            _stacked(axes, title, list(shares), ((right, colour), (1 - right, WRONG)))
        words = {"first training": KNOWN, "learned later": NOVEL, "wrong": WRONG}
        legend_above(canvas, words)

    alt = "Bars by class. " + ". ".join(
        f"{title.capitalize()}: {_listed(shares, list(shares.values()))}" for title, shares, _ in groups
    )
    caption = (
        "Each class's test samples at the end, named as one of all classes known by then, none rejected."
    )
    height = 18 * (len(taught) + len(learned)) + 70 + 30 * len(groups)
    return Figure(svg(draw, _NARROW, height), alt, caption, _ENLARGED)


def thumbnail(image: Array) -> bytes:
    """Return an image (channels, h, w), uint8 or float 0-1, as a small PNG with its pixels kept square."""
    from PIL import Image  # noqa: PLC0415

    pixels = image if image.dtype == np.uint8 else np.round(255 * image).astype(np.uint8)
    picture = Image.fromarray(
        pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0))
    )
    factor = max(1, 128 // max(picture.size))
    picture = picture.resize((picture.width * factor, picture.height * factor), Image.Resampling.NEAREST)
    picture.thumbnail((128, 128))
    buffer = io.BytesIO()
    picture.save(buffer, "png", optimize=True)
    return buffer.getvalue()


# How they are drawn ------------------------------------------------------------------------------------


def _bins(values: Array) -> Array:
    """Return the edges of histogram bars with one at 0, over nearly all values."""
    low, high = np.quantile(values, (0.005, 0.995))
    low, high = min(float(low), 0.0), max(float(high), 0.0)
    width = max(high - low, 1e-9) / np.clip(2 * np.sqrt(len(values)), 12, 40)
    edges: Array = np.arange(np.floor(low / width) - 1, np.ceil(high / width) + 2) * width
    return edges


def _stacked(axes: Axes, title: str, names: Sequence[str], parts: Sequence[tuple[Array, str]]) -> None:
    """Draw one bar for each class, its parts end to end, and the first part's share in figures."""
    left = np.zeros(len(names))
    places = range(len(names))
    for shares, colour in parts:
        axes.barh(places, 100 * shares, left=100 * left, color=colour, height=0.74)
        left += shares
    for place, share in zip(places, parts[0][0], strict=True):
        axes.text(101.5, place, f"{100 * share:.1f}\N{NO-BREAK SPACE}%", va="center", clip_on=False)
    axes.set_yticks(places, [label(name) for name in names], color=INK)
    axes.set(xlim=(0, 100), ylim=(len(names) - 0.4, -0.6), xticks=range(0, 101, 25))
    axes.tick_params(length=0)
    axes.spines["left"].set_visible(False)
    axes.set_title(title)


def _name_both_axes(axes: Axes, names: Sequence[str]) -> None:
    """Put the classes' names left of a matrix and above it, its first row on top."""
    places = np.arange(len(names)) + 0.5
    size = 11 if len(names) <= 25 else 9
    axes.set_xticks(places, [label(name) for name in names], fontsize=size)
    axes.set_yticks(places, [label(name) for name in names], fontsize=size)
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    axes.invert_yaxis()
    axes.set_aspect("equal")
    axes.spines[:].set_visible(False)
    if max(map(len, names)) > 3:
        for text in axes.get_xticklabels():
            text.set(rotation=90, rotation_mode="anchor", ha="left", va="center")


def _numbers(axes: Axes, matrix: Array) -> None:
    for (row, column), value in np.ndenumerate(matrix):
        if np.isfinite(value):
            colour = "white" if value > 0.6 else INK
            axes.text(column + 0.5, row + 0.5, f"{value:.2f}", ha="center", va="center", color=colour)


def _beyond(values: Array) -> str:
    return percent(float((values > 0).mean()))


def _listed(names: Sequence[str] | Mapping[str, Any], shares: Sequence[float] | Array) -> str:
    return ", ".join(f"{name} {percent(share)}" for name, share in zip(names, shares, strict=True))
