"""One palette for every figure: Okabe and Ito's, which colour-blind readers can distinguish."""

KNOWN, NOVEL, WRONG, REJECTED = "#0072B2", "#E69F00", "#CC79A7", "#B4BCC4"
NOVEL_LINE, LEARNED = "#D55E00", "#009E73"  # thin lines need more contrast than novel's orange has
INK, QUIET = "#1d2329", "#5b6671"
PALETTE = (KNOWN, NOVEL, LEARNED, WRONG, "#56B4E9", NOVEL_LINE, "#8a949d", INK)
"""Colours of methods side by side."""
DASHED = (0, (4, 3))
"""The dashes of a line that is no data: a threshold, a bound, a chance."""


def colour(place: int) -> str:
    """Choose the colour of the method at this place; there are eight, then they begin again."""
    return PALETTE[place % len(PALETTE)]
