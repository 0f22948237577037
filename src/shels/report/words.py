"""Figures, numbers and names as a reader sees them: one function for each, for every page and table."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import jinja2

from shels.detection.measures import MEASURES, Measure

if TYPE_CHECKING:
    from shels.experiments.published import Published
    from shels.experiments.statistics import Summary

NOTHING = "–"
"""What stands where there is no value."""


def percent(share: float | None, digits: int = 1) -> str:
    """Write a fraction 0-1 in per cent, with a space that does not break.

    >>> percent(0.9514).replace("\N{NO-BREAK SPACE}", " ")
    '95.1 %'
    """
    return NOTHING if share is None else f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"


def duration(seconds: float) -> str:
    """Write a time as people say it.

    >>> [duration(each) for each in (0.25, 12.34, 250, 1500, 7500)]
    ['0.25 s', '12.3 s', '4 min 10 s', '25 min', '2 h 5 min']
    """
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 1 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 10:
        return f"{minutes} min {rest} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def count(number: int, noun: str) -> str:
    """Write a number with its noun.

    >>> count(1, "class"), count(1200, "batch")
    ('1 class', '1,200 batches')
    """
    plural = noun + ("es" if noun.endswith(("s", "ch")) else "s")
    return f"{number:,} {noun if number == 1 else plural}"


def comma(names: Iterable[object]) -> str:
    """Write names in a row: 2, 7, 3."""
    return ", ".join(map(str, names))


def flat(tree: Mapping[str, Any], above: str = "") -> dict[str, str]:
    """Write a table of tables as one, each name with those above it.

    >>> flat({"training": {"epochs": 20, "patience": None}})
    {'training.epochs': '20', 'training.patience': '–'}
    """
    out: dict[str, str] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            out |= flat(value, f"{above}{name}.")
        else:
            out[above + name] = NOTHING if value is None else str(value)
    return out


def prose(name: str, /, **values: Any) -> str:
    """Write a piece of text of templates/prose.txt, with these values in it, on one line.

    >>> prose("few_trials", number=10, names=["digits (2)"])
    "Fewer than 10 trials, the paper's number, stand behind digits (2)."
    """
    text = getattr(templates().get_template("prose.txt").module, name)(**values)
    return re.sub(r"[ \n]+", " ", text).strip(" ")


@cache
def templates(*, trimmed: bool = False) -> jinja2.Environment:
    """Open the folder of templates; HTML is escaped, other files are as they are."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("shels.report"),
        autoescape=jinja2.select_autoescape(["html"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=trimmed,
        lstrip_blocks=trimmed,
    )
    made.filters |= {"count": count, "percent": percent}
    return made


# Measures ----------------------------------------------------------------------------------------------


def measure(key: str) -> Measure:
    """Look a measure up; one that somebody's own experiment brings along is called by its key.

    >>> measure("auroc").title, measure("my_own").title
    ('AUROC', 'my own')
    """
    plain = key.replace("_", " ")
    return MEASURES.get(key) or Measure(key, plain, plain, plain)


def figure(key: str, value: float | None, *, sign: bool = False) -> str:
    """Write a measure's value as the paper does: accuracies in per cent, AUROC as a fraction.

    >>> figure("known_accuracy", 0.85074), figure("auroc", 0.128, sign=True)
    ('85.07', '+0.128')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    shown = f"{100 * value:.2f}" if measure(key).percent else f"{value:.3f}"
    shown = shown.replace("-", "−") if float(shown) else shown.removeprefix("-")
    return f"+{shown}" if sign and value > 0 and shown.strip("0.") else shown


def spread(key: str, found: Summary | Published) -> str:
    """Write mean ± standard deviation; of a single trial the mean alone."""
    mean = figure(key, found.mean)
    return mean if found.sd is None else f"{mean} ± {figure(key, found.sd)}"


def p_value(value: float | None) -> str:
    """Write a probability as the paper prints it.

    >>> p_value(0.0004), p_value(0.0471)
    ('< 0.001', '0.047')
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
