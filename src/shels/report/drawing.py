"""How figures are drawn: one palette, one style, and SVG whose text stays text.

The text is drawn by the reader's browser, so it is sharp at any size and shows names in any script.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

# Okabe and Ito's colours, which colour-blind readers can tell apart: known is blue, novel is orange.
KNOWN, NOVEL, WRONG, REJECTED = "#0072B2", "#E69F00", "#CC79A7", "#B4BCC4"
NOVEL_LINE, LEARNED = "#D55E00", "#009E73"  # thin lines need more contrast than novel's orange has
TINTS = {"known": "#e6f0f7", "novel": "#fdeecb", "learning": "#cdebe0"}
"""Backgrounds of the phases of an open-world run."""
INK, QUIET = "#1d2329", "#5b6671"
DASHED = (0, (4, 3))

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


def svg(draw: Callable[[Canvas], None], width: int, height: int, salt: str = "") -> str:
    """Return a drawing as an <svg> element for a page, one unit a CSS pixel.

    salt: what tells it from other drawings by the same function on the page, so that no id occurs twice.
    """
    import matplotlib as mpl  # noqa: PLC0415
    from matplotlib.figure import Figure as Canvas  # noqa: PLC0415

    buffer = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with mpl.rc_context(_STYLE | {"svg.hashsalt": draw.__qualname__ + salt}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # the reader's browser has the script's font
        canvas = Canvas(figsize=(width / 72, height / 72), layout="constrained", facecolor="none")
        draw(canvas)
        canvas.savefig(buffer, format="svg", metadata=nothing)
    text = buffer.getvalue()
    text = re.sub(r"<!--.*?-->", "", text[text.index("<svg") :], flags=re.DOTALL)
    return re.sub(r'<g id="[^"]*"', "<g", text)  # names that would occur twice on a page, and are not used


def legend_above(canvas: Canvas, colours: Mapping[str, str] | None = None, columns: int = 3) -> None:
    """Put the legend over the panels: of these colours, or of all that is labelled in them."""
    from matplotlib.patches import Patch  # noqa: PLC0415

    if colours is None:
        pairs = [axes.get_legend_handles_labels() for axes in canvas.axes]
        handles = [handle for pair in pairs for handle in pair[0]]
        labels = [label for pair in pairs for label in pair[1]]
    else:
        handles, labels = [Patch(color=colour) for colour in colours.values()], list(colours)
    canvas.legend(handles, labels, loc="outside upper left", ncols=columns, columnspacing=1.2)


def label(name: str, most: int = 24) -> str:
    """Return a class's name as a label: on one line, not too long, and never read as a formula."""
    line = " ".join(name.split())
    line = line if len(line) <= most else line[: most - 1] + "…"
    return line.replace("$", r"\$")
