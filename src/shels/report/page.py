"""A page: text, tables, figures and pictures as one HTML file that needs nothing else to be read."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Literal, TypeAlias

from shels.report.style import STYLE


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
class Figure:
    """A drawing as inline SVG, what it shows in words, what stands below it; its most width in CSS pixels."""

    svg: str
    alt: str
    caption: str
    width: int


@dataclass(frozen=True)
class Table:
    """Rows under column titles: the first `left` columns to the left, the others to the right.

    note: what stands below it. merged: neighbouring rows that begin alike share their first cell.
    """

    columns: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    note: str = ""
    left: int = 1
    merged: bool = False

    def runs(self) -> list[list[Sequence[Cell]]]:
        """Return the rows, those together that share their first cell."""
        if not self.merged:
            return [[row] for row in self.rows]
        return [list(run) for _, run in groupby(self.rows, key=lambda row: row[0])]


@dataclass(frozen=True)
class Thumbnail:
    """A small picture as PNG with the lines below it."""

    png: bytes
    lines: tuple[str, ...]

    @property
    def alt(self) -> str:
        """The picture in words, for readers that cannot see it."""
        return ", ".join(self.lines)


@dataclass(frozen=True)
class Gallery:
    """A row of small pictures under a title; `note` stands beside it, or alone where there is none."""

    title: str
    note: str
    thumbnails: Sequence[Thumbnail] = ()


@dataclass(frozen=True)
class Fold:
    """Blocks that a reader sees on request, under a title."""

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


def percent(share: float, digits: int = 1) -> str:
    """Return a fraction 0-1 as a reader sees it: 0.951 as 95.1 %."""
    return f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"


def html(page: Page) -> str:
    """Return the whole page; everything in it is escaped, and nothing is fetched when it is opened."""
    facts = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in page.facts
    )
    body = [
        f"<header><h1>{escape(page.title)}</h1><p class='lead'>{escape(page.lead)}</p></header>",
        f"<dl class='facts'>{facts}</dl>" if facts else "",
        _contents(page.sections) if page.contents else "",
        *(_section(section, place if page.contents else None) for place, section in enumerate(page.sections)),
        _details(page.details),
        f"<footer>{escape(page.footer)}</footer>" if page.footer else "",
    ]
    return (
        "<!DOCTYPE html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        f"<meta http-equiv='Content-Security-Policy' content=\"{_POLICY}\">\n"
        f"<title>{escape(page.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in body if part)
        + "\n</main>\n</body>\n</html>\n"
    )


def _contents(sections: Sequence[Section]) -> str:
    links = (
        f"<a href='#part-{place}'>{escape(each.title.partition(':')[0])}</a>"
        for place, each in enumerate(sections)
    )
    return f"<nav aria-label='Contents'>{' '.join(links)}</nav>"


def _section(section: Section, place: int | None) -> str:
    start = "<section>" if place is None else f"<section id='part-{place}'>"
    return f"{start}\n<h2>{escape(section.title)}</h2>\n{_blocks(section.blocks)}\n</section>"


def _blocks(blocks: Sequence[Block]) -> str:
    parts = []
    for drawn, run in groupby(blocks, key=lambda block: isinstance(block, Figure)):
        inner = "\n".join(_block(block) for block in run)
        parts.append(f"<div class='figures'>{inner}</div>" if drawn else inner)
    return "\n".join(parts)


def _block(block: Block) -> str:
    if isinstance(block, Figure):
        return _figure(block)
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Fold):
        return f"<details><summary>{escape(block.title)}</summary>\n{_blocks(block.blocks)}\n</details>"
    return _gallery(block) if isinstance(block, Gallery) else f"<p>{escape(block)}</p>"


def _figure(figure: Figure) -> str:
    svg = figure.svg.replace("<svg", f"<svg role='img' aria-label=\"{escape(figure.alt)}\"", 1)
    kind = "drawing wide" if figure.width > 600 else "drawing"
    return (
        f"<figure class='{kind}' style='max-width:{figure.width}px'><div class='scroll'>{svg}</div>"
        f"<figcaption>{escape(figure.caption)}</figcaption></figure>"
    )


def _table(table: Table) -> str:
    head = "".join(
        f"<th scope='col'{_side(place, table)}>{escape(name)}</th>"
        for place, name in enumerate(table.columns)
    )
    between = "</tbody><tbody>" if table.merged else ""
    body = between.join(_run(rows, table) for rows in table.runs())
    caption = f"<caption>{escape(table.caption)}</caption>" if table.caption else ""
    inner = f"{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    note = f"<p class='note'>{escape(table.note)}</p>" if table.note else ""
    start = "<table class='grouped'>" if table.merged else "<table>"
    return f"<div class='scroll'>{start}{inner}</table></div>{note}"


def _run(rows: Sequence[Sequence[Cell]], table: Table) -> str:
    """Return rows whose first cell stands once for all of them."""
    scope = "scope='row'" if len(rows) == 1 else f"scope='rowgroup' rowspan='{len(rows)}'"
    lines = [
        "".join(f"<td{_side(place, table)}>{_cell(cell)}</td>" for place, cell in enumerate(row) if place)
        for row in rows
    ]
    return f"<tr><th {scope}>{_cell(rows[0][0])}</th>" + "</tr><tr>".join(lines) + "</tr>"


def _side(place: int, table: Table) -> str:
    return " class='left'" if 0 < place < table.left else ""


def _cell(cell: Cell) -> str:
    if not isinstance(cell, Mark):
        return escape(shown(cell))
    after = f"<span class='after'>{escape(cell.after)}</span>" if cell.after else ""
    return f"<span class='{cell.kind}'>{escape(cell.text)}</span>{after}"


def shown(cell: Cell) -> str:
    """Return what a reader sees in a cell."""
    if cell is None:
        return "–"
    if isinstance(cell, Mark):
        return f"{cell.text} {cell.after}".strip()
    if isinstance(cell, float):
        return percent(cell)
    return cell if isinstance(cell, str) else f"{cell:,}"


def _gallery(gallery: Gallery) -> str:
    title = f"<h3>{escape(gallery.title)} <small>{escape(gallery.note)}</small></h3>"
    pictures = "".join(_thumbnail(each) for each in gallery.thumbnails)
    return f"{title}<div class='gallery'>{pictures}</div>" if pictures else title


def _thumbnail(thumbnail: Thumbnail) -> str:
    data = base64.b64encode(thumbnail.png).decode("ascii")
    lines = "".join(f"<span>{escape(line)}</span>" for line in thumbnail.lines)
    image = f'<img src="data:image/png;base64,{data}" alt="{escape(thumbnail.alt)}">'
    return f"<figure>{image}<figcaption>{lines}</figcaption></figure>"


def _details(tables: Sequence[Table]) -> str:
    if not tables:
        return ""
    inner = "\n".join(_table(table) for table in tables)
    return f"<details><summary>Settings, versions and machine</summary>\n{inner}\n</details>"


_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
