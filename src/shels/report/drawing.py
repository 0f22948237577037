"""How figures are drawn: one palette, one style, one way, for a page (SVG) and for slides (PNG) alike.

Text in an SVG stays text, drawn by the reader's browser: sharp at any size, in any script.
"""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, ClassVar

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch

# One palette for every figure: Okabe and Ito's, which colour-blind readers can distinguish.
KNOWN, NOVEL, WRONG, REJECTED = "#0072B2", "#E69F00", "#CC79A7", "#B4BCC4"
NOVEL_LINE, LEARNED = "#D55E00", "#009E73"  # thin lines need more contrast than novel's orange has
INK, QUIET = "#1d2329", "#5b6671"
PALETTE = (KNOWN, NOVEL, LEARNED, WRONG, "#56B4E9", NOVEL_LINE, "#8a949d", INK)
"""Colours of methods side by side."""
DASHED = (0, (4, 3))
"""The dashes of a line that is no data: a threshold, a bound, a chance."""

NARROW, WIDE = 430, 720
"""Widths that figures are drawn at: two narrow ones stand side by side, and one fits a phone."""

_STYLE: Any = {
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titlecolor": QUIET,
    "axes.titlepad": 9,
    "axes.labelcolor": QUIET,
    "axes.edgecolor": "#8a949d",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "text.color": INK,
    "grid.color": "#e3e7ea",
    "figure.constrained_layout.h_pad": 0.09,
    "legend.frameon": False,
    "legend.fontsize": 11,
    "legend.borderpad": 0.0,
    "legend.handlelength": 1.2,
}


@dataclass(frozen=True, eq=False)
class Figure:
    """A drawing with what it shows in one sentence (alt) and what stands below it (caption).

    name: of its file, and its own on a page. size: width and height it is drawn at; width: the most it takes
    on a page in CSS pixels; a wide one is enlarged, so that its letters stay legible on a phone.
    """

    kind: ClassVar[str] = "figure"
    name: str
    draw: Callable[[Canvas], None]
    size: tuple[int, int]
    alt: str
    caption: str
    width: int = 860

    def svg(self) -> str:
        """Draw it as an <svg> element for a page; names inside that would occur twice there are left out."""
        unsaid = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        text = self._drawn(format="svg", metadata=unsaid).decode("utf-8")
        text = re.sub(r"<!--.*?-->", "", text[text.index("<svg") :], flags=re.DOTALL)
        text = re.sub(r'<g id="[^"]*"', "<g", text)
        return text.replace("<svg", f'<svg role="img" aria-label="{escape(self.alt)}"', 1)

    def png(self) -> bytes:
        """Draw it as a picture of its own, at twice the size."""
        return self._drawn(format="png", dpi=144, facecolor="white", metadata={"Software": None})

    def _drawn(self, **options: Any) -> bytes:
        buffer = io.BytesIO()
        with mpl.rc_context(_STYLE | {"svg.hashsalt": self.name}), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph")  # the reader's browser has the script's font
            width, height = self.size
            canvas = Canvas(figsize=(width / 72, height / 72), layout="constrained", facecolor="none")
            self.draw(canvas)
            canvas.savefig(buffer, **options)
        return buffer.getvalue()


def colour(place: int) -> str:
    """Choose the colour of the method at this place; there are eight, then they begin again."""
    return PALETTE[place % len(PALETTE)]


def panels(canvas: Canvas, number: int, across: int, **options: Any) -> list[Axes]:
    """Lay out so many panels, row by row; what is left over in the last row stays empty."""
    found = list(canvas.subplots(-(-number // across), across, squeeze=False, **options).flat)
    for axes in found[number:]:
        axes.set_axis_off()
    return found[:number]


def legend(
    canvas: Canvas,
    entries: Mapping[str, str] | Mapping[str, Artist] | None = None,
    columns: int = 3,
    **options: Any,
) -> None:
    """Put the legend over the panels: of these colours or artists, or of all that is labelled in them."""
    if entries is None:
        pairs = [zip(*axes.get_legend_handles_labels()[::-1], strict=True) for axes in canvas.axes]
        entries = {name: handle for pair in pairs for name, handle in pair}
    handles = [Patch(color=each) if isinstance(each, str) else each for each in entries.values()]
    canvas.legend(
        handles, list(entries), loc="outside upper left", ncols=columns, columnspacing=1.4, **options
    )


def label(name: str, most: int = 24) -> str:
    """Make a name a label: on one line, not too long, and never read as a formula.

    >>> label("a long name", 7)
    'a long…'
    """
    line = " ".join(name.split())
    line = line if len(line) <= most else line[: most - 1] + "…"
    return line.replace("$", r"\$")


def file_name(kind: str, experiment: str) -> str:
    """Name a file as any file system takes it; names that lose a letter get a digest, so that none meet.

    >>> file_name("training", "within/fmnist")
    'training-within-fmnist'
    """
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", experiment.replace("/", "-")).strip("-.")
    if plain != experiment.replace("/", "-"):
        plain += "-" + hashlib.blake2b(experiment.encode(), digest_size=3).hexdigest()
    return f"{kind}-{plain}"
