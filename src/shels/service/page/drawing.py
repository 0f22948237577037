"""Where lines and marks of the page's drawings go; the templates draw them as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shels.service.views import Moment, Rule


@dataclass(frozen=True)
class Course:
    """The share called novel over time in a box of 100 × 100, y downwards. top: the share at its upper edge.

    line_y, share_y: where the alarm line and the share end, for their labels.
    """

    share: str
    line: str
    top: float
    line_y: float
    share_y: float
    first: str
    last: str


def course(moments: Sequence[Moment]) -> Course | None:
    """Lay out the share over time; None while there is nothing to see.

    >>> found = course([Moment("a", 0.0, 0.2, False), Moment("b", 0.5, 0.2, True)])
    >>> found.share, found.line, found.top
    ('0,100 100,0', '0,60 100,60', 0.5)
    """
    if len(moments) < 2:
        return None
    highest = max(moments[-1].alarm_share, *(each.share for each in moments))
    top = next((edge for edge in (0.1, 0.25, 0.5) if highest <= edge), 1.0)
    shares = [_y(each.share, top) for each in moments]
    lines = [_y(each.alarm_share, top) for each in moments]
    return Course(
        _points(shares), _points(lines), top, lines[-1], shares[-1], moments[0].time, moments[-1].time
    )


@dataclass(frozen=True)
class Mark:
    """A rate on a scale that ends at `top`: where it lies in per cent of the width, with its interval."""

    name: str
    value: float
    x: float
    low: float
    high: float


@dataclass(frozen=True)
class Scale:
    """Rates beside one another on one scale."""

    marks: tuple[Mark, ...]
    top: float


def scale(rule: Rule) -> Scale:
    """Lay out false alarms: promised, on held-out samples, and as people saw them.

    >>> found = scale(Rule(0.95, 0.05, 0.04, None, 0, "", ""))
    >>> found.top, [(mark.name, round(mark.x)) for mark in found.marks]
    (0.1, [('promised at most', 50), ('on held-out samples', 40)])
    """
    rates = [("on held-out samples", rule.held_out, rule.held_out, rule.held_out)]
    if rule.promised is not None:
        rates.insert(0, ("promised at most", rule.promised, rule.promised, rule.promised))
    if rule.seen is not None:
        rates.append(("seen, by what people said", rule.seen.value, rule.seen.low, rule.seen.high))
    highest = max(high for _, _, _, high in rates)
    top = next((edge for edge in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5) if highest <= 0.95 * edge), 1.0)
    place = 100 / top
    return Scale(
        tuple(Mark(name, v, v * place, low * place, high * place) for name, v, low, high in rates), top
    )


def _y(share: float, top: float) -> float:
    return round(100 * (1 - min(share, top) / top), 2)


def _points(values: Sequence[float]) -> str:
    step = 100 / (len(values) - 1)
    return " ".join(f"{round(step * place, 2):g},{value:g}" for place, value in enumerate(values))
