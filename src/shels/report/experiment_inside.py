"""What went on behind an experiment's figures: how training went, and how exclusive the features became."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shels.experiments.trials import TrialResult
from shels.report.chart import DRAWN, SHOWN, Chart, chart, colour, file_name
from shels.report.drawing import INK, KNOWN, label
from shels.report.experiment_groups import EXCLUSIVITY, Study
from shels.report.experiment_tables import spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

Array = NDArray[Any]

_MOST_NUMBERED = 12  # classes beyond which the numbers in a matrix would be too small to read


def training(study: Study) -> Chart | None:
    """Return loss and accuracy on held-out samples by epoch, each trial and the mean; None if not known."""
    drawn = ((title, shade, _curves(results)) for title, shade, results in _distinct(study, "checks"))
    trained = [each for each in drawn if each[2]]
    if not trained:
        return None
    beside = 1 if study.learning else 2  # names in a line: of learning, many methods share a network

    def draw(canvas: Canvas) -> None:
        panels = canvas.subplots(1, 2)
        for title, shade, curves in trained:
            for axes, column, factor in zip(panels, (1, 2), (1, 100), strict=True):
                lines = [(each[:, 0], factor * each[:, column]) for each in curves]
                _lines(axes, lines, shade, label(title, 80 if beside == 2 else 110))
        for axes, words in zip(panels, ("loss on held-out samples", "% of them named rightly"), strict=True):
            axes.set_title(words)
            axes.set_xlabel("epoch")
            axes.grid(axis="y")
            axes.locator_params(axis="x", integer=True)
        handles, words = panels[0].get_legend_handles_labels()
        canvas.legend(handles, words, loc="outside upper left", ncols=beside, columnspacing=1.6)

    ends = "; ".join(f"{title}: {_end(curves)}" for title, _, curves in trained)
    caption = (
        "Thin lines are trials, the thick one is their mean. Methods that train alike share their networks."
    )
    alt = f"Training curves of {study.short}. {ends}."
    size = (DRAWN, 250 + 20 * (1 + (len(trained) - 1) // beside))
    return chart(file_name("training", study.name), draw, size, alt=alt, caption=caption, shown=SHOWN)


def exclusivities(study: Study) -> list[str]:
    """Return the mean exclusivity of two classes in words, over the trials, for each network."""
    found: dict[str, list[str]] = {}
    for group in study.groups:
        if mean := group.summary(EXCLUSIVITY):
            found.setdefault(spread(EXCLUSIVITY, mean), []).append(group.title)
    return [f"{' · '.join(titles)} {figures}" for figures, titles in found.items()]


def _distinct(study: Study, name: str) -> Iterator[tuple[str, str, list[TrialResult]]]:
    """Give the trials of every network that have a detail, with the methods it serves and a colour.

    Methods that train alike leave the same detail; of these the first method's trials are given.
    """
    merged: dict[str, tuple[list[str], list[TrialResult], int]] = {}
    for place, group in enumerate(study.groups):
        found = [result for result in group.results if result.details.get(name)]
        if found:
            key = repr([(result.trial.seed, result.details[name]) for result in found])
            merged.setdefault(key, ([], found, place))[0].append(group.title)
    places = [place for _, _, place in merged.values()]
    if len({colour(place) for place in places}) < len(places):
        places = list(range(len(places)))  # of many methods, two would have the colour of the same place
    for place, (titles, found, _) in zip(places, merged.values(), strict=True):
        yield " · ".join(titles), colour(place), found


def _curves(results: Sequence[TrialResult]) -> list[Array]:
    """Return epoch, validation loss and accuracy of each trial, (checks, 3); without validation, nothing."""
    names = ("epoch", "validation_loss", "validation_accuracy")
    made = []
    for result in results:
        rows = [[check.get(name) for name in names] for check in result.details["checks"]]
        whole = [row for row in rows if None not in row]
        made += [np.array(whole, dtype=float)] if whole else []
    return made


def _lines(axes: Axes, curves: Sequence[tuple[Array, Array]], shade: str, title: str) -> None:
    for epochs, values in curves:
        axes.plot(epochs, values, color=shade, linewidth=0.8, alpha=0.35)
    shared = sorted(set.intersection(*({*epochs.tolist()} for epochs, _ in curves)))
    middle = [np.mean([values[epochs == each][0] for epochs, values in curves]) for each in shared]
    dot = "o" if len(shared) == 1 else ""
    axes.plot(shared, middle, color=shade, linewidth=2.2, marker=dot, label=title)


def _end(curves: Sequence[Array]) -> str:
    last = [float(each[-1, 2]) for each in curves]
    return f"at the end {100 * np.mean(last):.1f} % of held-out samples right, mean of {len(last)} trials"


# Exclusivity -------------------------------------------------------------------------------------------


def exclusivity(study: Study) -> Chart | None:
    """Return how exclusive the features of each two classes are in the first trial, a matrix per network."""
    firsts = [(title, results[0]) for title, _, results in _distinct(study, "exclusivity")]
    networks = [(title, first.trial, _square(first)) for title, first in firsts if len(_square(first)) > 1]
    if not networks:
        return None
    across = min(len(networks), 2)
    down = -(-len(networks) // across)

    def draw(canvas: Canvas) -> None:
        panels = list(canvas.subplots(down, across, squeeze=False).flat)
        for axes, (title, trial, matrix) in zip(panels, networks, strict=False):
            _matrix(axes, matrix, [str(name) for name in trial.known])
            axes.set_title(label(title, 52), color=INK)
        for axes in panels[len(networks) :]:
            axes.set_axis_off()

    seeds = sorted({trial.seed for _, trial, _ in networks})
    caption = (
        f"Exclusivity of each two classes in the first trial (seed {', '.join(map(str, seeds))}): 1 (dark) "
        "means that they share no feature, 0 (light) that they share all."
    )
    told = (
        f"{title}: from {_apart(each).min():.2f} to {_apart(each).max():.2f}" for title, _, each in networks
    )
    alt = f"Exclusivity of {study.short}. {'; '.join(told)}."
    name, size = file_name("exclusivity", study.name), (DRAWN // 2 * across, (DRAWN // 2 - 10) * down)
    return chart(name, draw, size, alt=alt, caption=caption, shown=SHOWN // 2 * across)


def _square(result: TrialResult) -> Array:
    """Return the matrix of a trial, (classes, classes); empty where it does not fit the known classes."""
    matrix = np.asarray(result.details["exclusivity"], dtype=float)
    side = len(result.trial.known)
    return matrix if matrix.shape == (side, side) else np.zeros((0, 0))


def _apart(matrix: Array) -> Array:
    found: Array = matrix[~np.eye(len(matrix), dtype=bool)]
    return found


def _matrix(axes: Axes, matrix: Array, names: Sequence[str]) -> None:
    from matplotlib.colors import LinearSegmentedColormap  # noqa: PLC0415

    shades = LinearSegmentedColormap.from_list("exclusivity", ["#f3f6f8", KNOWN])
    values = np.where(np.eye(len(matrix), dtype=bool), np.nan, matrix)
    axes.pcolormesh(values, cmap=shades, vmin=0, vmax=1, edgecolors="white", linewidth=0.8)
    if len(names) <= _MOST_NUMBERED:
        for (row, column), value in np.ndenumerate(values):
            shade = "white" if value > 0.6 else INK
            text = f"{value:.2f}" if np.isfinite(value) else ""
            axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", color=shade)
    every = -(-len(names) // _MOST_NUMBERED)  # of many classes only some are named beside the matrix
    places, named = np.arange(len(names))[::every] + 0.5, [label(name) for name in names[::every]]
    axes.set_xticks(places, named)
    axes.set_yticks(places, named)
    if max(map(len, names)) > 3:
        axes.tick_params(axis="x", rotation=90)
    axes.tick_params(length=0)
    axes.invert_yaxis()
    axes.set_aspect("equal")
    axes.spines[:].set_visible(False)
