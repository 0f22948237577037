"""Charts: figures of a page that are also pictures of their own, for slides and papers."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shels.report.drawing import INK, KNOWN, LEARNED, NOVEL, NOVEL_LINE, WRONG, svg
from shels.report.page import Figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

DRAWN, SHOWN = 720, 860
"""A wide chart is drawn at the first and shown at the second, so that its letters stay legible on a phone."""

PALETTE = (KNOWN, NOVEL, LEARNED, WRONG, "#56B4E9", NOVEL_LINE, "#8a949d", INK)
"""Colours of the methods: Okabe and Ito's, which colour-blind readers can tell apart."""


@dataclass(frozen=True)
class Chart(Figure):
    """A figure with the name of its file and the same picture as PNG, at twice the size of the drawing."""

    name: str
    png: bytes


def chart(
    name: str,
    draw: Callable[[Canvas], None],
    size: tuple[int, int],
    *,
    alt: str,
    caption: str,
    shown: int | None = None,
) -> Chart:
    """Return a drawing as a chart. size: width and height it is drawn at; shown: its most width on a page."""
    png = io.BytesIO()

    def both(canvas: Canvas) -> None:
        draw(canvas)
        canvas.savefig(png, format="png", dpi=144, facecolor="white", metadata={"Software": None})

    text = svg(both, *size, salt=name)
    return Chart(text, alt, caption, shown or size[0], name, png.getvalue())


def colour(place: int) -> str:
    """Return the colour of the method at this place; there are eight, then they begin again."""
    return PALETTE[place % len(PALETTE)]


def file_name(kind: str, experiment: str) -> str:
    """Return a name for a file that any file system takes: "training-within-fmnist".

    Two experiments whose names differ only in what is left out get a digest of theirs.
    """
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", experiment.replace("/", "-")).strip("-.")
    if plain != experiment.replace("/", "-"):
        plain += "-" + hashlib.blake2b(experiment.encode(), digest_size=3).hexdigest()
    return f"{kind}-{plain}"
