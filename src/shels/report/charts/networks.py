"""Charts of trained networks: training curves of trials, and how exclusive the features of classes are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure as Canvas
from numpy.typing import NDArray

from shels.experiments.trials import TrialResult
from shels.report.drawing import INK, KNOWN, NARROW, WIDE, Figure, colour, file_name, label, legend, panels
from shels.report.studies import EXCLUSIVITY, Study
from shels.report.words import comma, prose

Array = NDArray[Any]

_MOST_NUMBERED = 12  # classes beyond which the numbers in a matrix would be too small to read


def networks(study: Study, detail: str) -> Iterator[tuple[str, str, list[TrialResult]]]:
    """Give the trials of every network that have a detail, with the methods it serves and a colour.

    Methods that train alike leave the same detail; of these the first method's trials are given.
    """
    merged: dict[str, tuple[list[str], list[TrialResult], int]] = {}
    for place, group in enumerate(study.groups):
        found = [result for result in group.results if result.details.get(detail)]
        if found:
            key = repr([(result.trial.seed, result.details[detail]) for result in found])
            merged.setdefault(key, ([], found, place))[0].append(group.title)
    places = [place for _, _, place in merged.values()]
    if len({colour(place) for place in places}) < len(places):
        places = list(range(len(places)))  # of many methods, two would have the colour of the same place
    for place, (titles, found, _) in zip(places, merged.values(), strict=True):
        yield " · ".join(titles), colour(place), found


# Training ----------------------------------------------------------------------------------------------


def training(study: Study) -> list[Figure]:
    """Draw loss and accuracy on held-out samples by epoch, each trial and the mean."""
    drawn = ((title, shade, _curves(results)) for title, shade, results in networks(study, "checks"))
    trained = [each for each in drawn if each[2]]
    if not trained:
        return []
    columns = 1 if study.learning else 2  # of learning, many methods share a network: their names are long

    def draw(canvas: Canvas) -> None:
        loss, accuracy = canvas.subplots(1, 2)
        for title, shade, curves in trained:
            name = label(title, 80 if columns == 2 else 110)
            _lines(loss, [each[:, :2] for each in curves], shade, name)
            _lines(accuracy, [each[:, ::2] * (1, 100) for each in curves], shade, name)
        for axes, words in ((loss, "loss on held-out samples"), (accuracy, "% of them named rightly")):
            axes.set_title(words)
            axes.set_xlabel("epoch")
            axes.grid(axis="y")
            axes.locator_params(axis="x", integer=True)
        legend(canvas, columns=columns)

    caption = prose("training_caption")
    alt = f"Training curves of {study.short}: loss and accuracy on held-out samples by epoch."
    size = (WIDE, 250 + 20 * (1 + (len(trained) - 1) // columns))
    return [Figure(file_name("training", study.name), draw, size, alt, caption)]


def _curves(results: Sequence[TrialResult]) -> list[Array]:
    """Give epoch, validation loss and accuracy of each trial, (checks, 3); without validation, nothing."""
    keys = ("epoch", "validation_loss", "validation_accuracy")
    rows = ([[check.get(key) for key in keys] for check in each.details["checks"]] for each in results)
    whole = ([row for row in trial if None not in row] for trial in rows)
    return [np.array(trial, dtype=float) for trial in whole if trial]


def _lines(axes: Axes, curves: Sequence[Array], shade: str, title: str) -> None:
    """Draw each curve, (points, 2), and their mean where all have a point."""
    for curve in curves:
        axes.plot(*curve.T, color=shade, linewidth=0.8, alpha=0.35)
    shared = sorted(set.intersection(*({*curve[:, 0].tolist()} for curve in curves)))
    means = [np.mean([curve[curve[:, 0] == each][0, 1] for curve in curves]) for each in shared]
    axes.plot(shared, means, color=shade, linewidth=2.2, marker="o" if len(shared) == 1 else "", label=title)


# Exclusivity -------------------------------------------------------------------------------------------


def exclusivity(study: Study) -> list[Figure]:
    """Draw how exclusive the features of each two classes are in the first trial, a matrix per network."""
    firsts = {title: results[0] for title, _, results in networks(study, EXCLUSIVITY)}
    found = {title: (_square(first), [*map(str, first.trial.known)]) for title, first in firsts.items()}
    found = {title: each for title, each in found.items() if len(each[0]) > 1}
    if not found:
        return []
    seeds = sorted({firsts[title].trial.seed for title in found})
    words = f"Exclusivity of each two classes in the first trial (seed {comma(seeds)})"
    alt = f"{study.short}: matrices of the exclusivity of each two classes, one for each network."
    return [matrices(file_name("exclusivity", study.name), found, WIDE // 2, alt=alt, words=words)]


def _square(result: TrialResult) -> Array:
    """Read the matrix of a trial, (classes, classes); empty where it does not fit the known classes."""
    matrix = np.asarray(result.details[EXCLUSIVITY], dtype=float)
    side = len(result.trial.known)
    return matrix if matrix.shape == (side, side) else np.zeros((0, 0))


def matrices(
    name: str, found: Mapping[str, tuple[Array, Sequence[str]]], side: int, *, alt: str, words: str
) -> Figure:
    """Draw matrices of exclusivity, (classes, classes) with the classes' names, by their title.

    side: width of one. words: what they show, the beginning of the caption.
    """
    across = min(len(found), 2)

    def draw(canvas: Canvas) -> None:
        axes_of = panels(canvas, len(found), across)
        for axes, (title, (matrix, names)) in zip(axes_of, found.items(), strict=True):
            _matrix(axes, matrix, names, most_named=side // 16)
            axes.set_title(label(title, 52), color=INK)

    caption = f"{words}: 1 (dark) means that they share no feature, 0 (light) that they share all."
    size = (side * across, (side - 10) * -(-len(found) // across))
    return Figure(name, draw, size, alt, caption, width=round(1.2 * size[0]) if side < NARROW else size[0])


def _matrix(axes: Axes, matrix: Array, names: Sequence[str], most_named: int) -> None:
    """Draw one matrix without its diagonal; of many classes only some are named beside it."""
    shades = LinearSegmentedColormap.from_list("exclusivity", ["#f3f6f8", KNOWN])
    values = np.where(np.eye(len(matrix), dtype=bool), np.nan, matrix)
    axes.pcolormesh(values, cmap=shades, vmin=0, vmax=1, edgecolors="white", linewidth=0.8)
    if len(names) <= _MOST_NUMBERED:
        for (row, column), value in np.ndenumerate(values):
            shade = "white" if value > 0.6 else INK
            text = f"{value:.2f}" if np.isfinite(value) else ""
            axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", color=shade)
    every = -(-len(names) // most_named)
    places, shown = np.arange(len(names))[::every] + 0.5, [label(name) for name in names[::every]]
    size = 11 if len(names) <= 25 else 9
    axes.set_xticks(places, shown, fontsize=size, rotation=90 if max(map(len, names)) > 3 else 0)
    axes.set_yticks(places, shown, fontsize=size)
    axes.tick_params(length=0)
    axes.invert_yaxis()
    axes.set_aspect("equal")
    axes.spines[:].set_visible(False)
