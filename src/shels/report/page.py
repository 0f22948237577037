"""A page: text, tables, figures and pictures as one HTML file that needs nothing else, and as Markdown.

How it looks is in templates/: page.html with page.css, and page.md with blocks.md.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, ClassVar, Literal, TypeAlias

import jinja2
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from shels.report.drawing import Figure
from shels.report.words import NOTHING, percent, templates

MOST_SHOWN = 12
"""Pictures in a gallery."""


@dataclass(frozen=True)
class Mark:
    """A cell with a meaning: the best of its kind, quiet beside others, or an answer to a question.

    after: what hangs behind the text and does not shift it, such as the stars of a test.
    """

    text: str
    kind: Literal["plain", "best", "quiet", "yes", "no"] = "plain"
    after: str = ""


Cell: TypeAlias = str | int | float | Mark | None
"""A float is a share and is shown as 95.1 %; other numbers are counts; None has no value."""


@dataclass(frozen=True)
class Table:
    """Rows under column titles: the first `left` columns to the left, the others to the right.

    note: what stands below it. merged: neighbouring rows that begin alike share their first cell.
    """

    kind: ClassVar[str] = "table"
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    note: str = ""
    left: int = 1
    merged: bool = False

    def runs(self) -> list[list[Sequence[Cell]]]:
        """Give the rows, those together that share their first cell."""
        if not self.merged:
            return [[row] for row in self.rows]
        return [list(run) for _, run in groupby(self.rows, key=lambda row: row[0])]


@dataclass(frozen=True)
class Thumbnail:
    """A small picture as PNG with the lines below it."""

    png: bytes
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Gallery:
    """A row of small pictures under a title; `note` stands beside it, or alone where there is none."""

    kind: ClassVar[str] = "gallery"
    title: str
    note: str
    thumbnails: Sequence[Thumbnail] = ()


@dataclass(frozen=True)
class Fold:
    """Blocks that a reader sees on request, under a title."""

    kind: ClassVar[str] = "fold"
    title: str
    blocks: Sequence[str | Figure | Table | Gallery]


Block: TypeAlias = str | Figure | Table | Gallery | Fold


@dataclass(frozen=True)
class Section:
    """A title and what stands below it, each paragraph a str."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Page:
    """All that a page says. facts: headline figures, each with its name. details: tables folded away.

    contents: whether a list of the sections stands before them.
    """

    title: str
    lead: str
    sections: Sequence[Section]
    facts: Sequence[tuple[str, str]] = ()
    details: Sequence[Table] = ()
    footer: str = ""
    contents: bool = False


def html(page: Page) -> str:
    """Write the whole page; everything in it is escaped, and nothing is fetched when it is opened.

    >>> "<h1>a &lt; b</h1>" in html(Page("a < b", "", []))
    True
    """
    return _environment().get_template("page.html").render(page=page)


def markdown(page: Page, folder: str) -> str:
    """Write the page as Markdown, the same words and tables; figures are shown from PNG files in a folder.

    >>> print(markdown(Page("Title", "One sentence.", []), "figures"), end="")
    # Title
    <BLANKLINE>
    One sentence.
    """
    return rendered("page.md", page=page, folder=folder)


def rendered(template: str, **values: Any) -> str:
    """Fill in a template of Markdown; what it shows of blocks follows templates/blocks.md."""
    text = _environment().get_template(template).render(**values)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def unbroken(text: str) -> str:
    """Keep means and spreads in the tables of a page of Markdown on one line, where a reader's are narrow.

    >>> unbroken("| 0.5 ± 0.1 |").count("\N{NO-BREAK SPACE}")
    2
    """
    space = "\N{NO-BREAK SPACE}"
    lines = text.split("\n")
    return "\n".join(
        line.replace(" ± ", f"{space}±{space}") if line.startswith("| ") else line for line in lines
    )


def _environment() -> jinja2.Environment:
    environment = templates(trimmed=True)
    environment.globals |= {"marked": marked, "runs": _runs}
    environment.filters |= {"text": _plain, "base64": lambda png: base64.b64encode(png).decode("ascii")}
    return environment


def _plain(text: str) -> str:
    """Put text on one line that no reader of Markdown takes for markup."""
    line = " ".join(text.replace("\N{NO-BREAK SPACE}", " ").split())
    line = re.sub(r"([\\`*|\[\]$~])", r"\\\1", line)
    line = re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", line)
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"^(#|[-+] |\d+[.)] )", r"\\\1", line)


def figures(page: Page) -> Iterator[Figure]:
    """Give every figure of a page, folded ones as well."""
    blocks = [block for section in page.sections for block in section.blocks]
    blocks += [inner for block in blocks if isinstance(block, Fold) for inner in block.blocks]
    yield from (block for block in blocks if isinstance(block, Figure))


def marked(cell: Cell) -> Mark:
    """Write a cell as a reader sees it.

    >>> marked(12345).text, marked(None).text
    ('12,345', '–')
    """
    if isinstance(cell, Mark):
        return cell
    if cell is None:
        return Mark(NOTHING)
    if isinstance(cell, float):
        return Mark(percent(cell))
    return Mark(cell if isinstance(cell, str) else f"{cell:,}")


def gallery(
    title: str, note: str, images: Tensor, positions: Sequence[int], lines: Callable[[int], tuple[str, ...]]
) -> Gallery:
    """Show the first few of the images at these positions, with the lines below each."""
    shown = positions[:MOST_SHOWN]
    note += f"; {len(shown)} shown" if len(shown) < len(positions) else ""
    return Gallery(title, note, [Thumbnail(thumbnail(images[i].cpu().numpy()), lines(i)) for i in shown])


def thumbnail(image: NDArray[Any]) -> bytes:
    """Make a small PNG, its pixels kept square, of an image (channels, h, w), uint8 or float 0-1."""
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


def _runs(blocks: Sequence[Block]) -> list[tuple[bool, list[Block]]]:
    """Give blocks in order, neighbouring figures together: they stand side by side where there is room."""
    grouped = groupby(blocks, key=lambda block: isinstance(block, Figure))
    return [(drawn, list(run)) for drawn, run in grouped]
