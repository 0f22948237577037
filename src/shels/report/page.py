"""A page: text, tables, figures and pictures as one HTML file that needs nothing else to be read."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import TypeAlias

Cell: TypeAlias = str | int | float | None
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
    """Rows under column titles: the first column to the left, the others to the right."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""


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


Block: TypeAlias = str | Figure | Table | Gallery


@dataclass(frozen=True)
class Section:
    """A title and what stands below it, each paragraph a str."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Page:
    """All that a page says. facts: headline figures, each with its name. details: tables folded away."""

    title: str
    lead: str
    sections: Sequence[Section]
    facts: Sequence[tuple[str, str]] = ()
    details: Sequence[Table] = ()
    footer: str = ""


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
        *(_section(section) for section in page.sections),
        _details(page.details),
        f"<footer>{escape(page.footer)}</footer>" if page.footer else "",
    ]
    return (
        "<!DOCTYPE html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        f"<meta http-equiv='Content-Security-Policy' content=\"{_POLICY}\">\n"
        f"<title>{escape(page.title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in body if part)
        + "\n</main>\n</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    parts = []
    for drawn, blocks in groupby(section.blocks, key=lambda block: isinstance(block, Figure)):
        inner = "\n".join(_block(block) for block in blocks)
        parts.append(f"<div class='figures'>{inner}</div>" if drawn else inner)
    return f"<section>\n<h2>{escape(section.title)}</h2>\n" + "\n".join(parts) + "\n</section>"


def _block(block: Block) -> str:
    if isinstance(block, Figure):
        return _figure(block)
    if isinstance(block, Table):
        return _table(block)
    return _gallery(block) if isinstance(block, Gallery) else f"<p>{escape(block)}</p>"


def _figure(figure: Figure) -> str:
    svg = figure.svg.replace("<svg", f"<svg role='img' aria-label=\"{escape(figure.alt)}\"", 1)
    kind = "drawing wide" if figure.width > 600 else "drawing"
    return (
        f"<figure class='{kind}' style='max-width:{figure.width}px'><div class='scroll'>{svg}</div>"
        f"<figcaption>{escape(figure.caption)}</figcaption></figure>"
    )


def _table(table: Table) -> str:
    head = "".join(f"<th scope='col'>{escape(name)}</th>" for name in table.columns)
    rows = "".join(f"<tr>{_row(row)}</tr>" for row in table.rows)
    caption = f"<caption>{escape(table.caption)}</caption>" if table.caption else ""
    inner = f"{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
    return f"<div class='scroll'><table>{inner}</table></div>"


def _row(row: Sequence[Cell]) -> str:
    first, *others = (escape(_shown(cell)) for cell in row)
    return f"<th scope='row'>{first}</th>" + "".join(f"<td>{cell}</td>" for cell in others)


def _shown(cell: Cell) -> str:
    if cell is None:
        return "–"
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

_STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0; background: #fff; color: #1d2329; line-height: 1.6; font-size: 17px;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", sans-serif;
  -webkit-text-size-adjust: 100%; overflow-wrap: break-word; }
main { max-width: 900px; margin: 0 auto; padding: 56px 24px 48px; }
h1 { font-size: 2.1rem; line-height: 1.2; letter-spacing: -0.015em; margin: 0 0 14px; font-weight: 680; }
h2 { font-size: 1.35rem; line-height: 1.3; margin: 0 0 10px; font-weight: 650; }
h3 { font-size: 1rem; margin: 22px 0 10px; font-weight: 650; }
h3 small { font-weight: 400; color: #5b6671; font-size: .9rem; margin-left: 6px; }
p { margin: 0 0 14px; max-width: 44em; }
.lead { font-size: 1.18rem; line-height: 1.5; color: #46515c; margin: 0; }
section { margin-top: 48px; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 0 28px;
  margin: 32px 0 0; }
.facts div { display: flex; flex-direction: column-reverse; justify-content: flex-end;
  border-top: 2px solid #0072b2; padding: 10px 0 14px; }
.facts dd { margin: 0; font-size: 1.9rem; line-height: 1.2; font-weight: 640; letter-spacing: -0.01em;
  font-variant-numeric: tabular-nums; }
.facts dt { font-size: .88rem; line-height: 1.35; color: #5b6671; }
.figures { display: flex; flex-wrap: wrap; gap: 20px 32px; margin: 18px 0 20px; }
figure { margin: 0; }
.drawing { flex: 1 1 340px; min-width: 0; break-inside: avoid; }
.drawing.wide { flex-basis: 100%; }
.drawing svg { display: block; width: 100%; height: auto; }
.drawing svg text { font-family: inherit !important; font-variant-numeric: tabular-nums; }
figcaption { font-size: .88rem; line-height: 1.45; color: #5b6671; margin-top: 8px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .92rem; line-height: 1.4; min-width: min(100%, 480px);
  margin: 14px 0 20px; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 650; padding-bottom: 6px; }
th, td { padding: 6px 0 6px 28px; text-align: right; border-bottom: 1px solid #e3e7ea; }
thead th { font-weight: 500; color: #5b6671; border-bottom: 1.5px solid #8a949d; vertical-align: bottom; }
th:first-child { text-align: left; padding-left: 0; font-weight: 500; }
.gallery { display: grid; grid-template-columns: repeat(auto-fill, minmax(58px, 1fr)); gap: 12px 10px;
  max-width: 860px; }
.gallery figure { max-width: 76px; break-inside: avoid; }
.gallery img { display: block; width: 100%; image-rendering: pixelated; border-radius: 3px;
  border: 1px solid #d5dade; }
.gallery figcaption { font-size: .75rem; line-height: 1.35; margin-top: 4px; }
.gallery span { display: block; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.gallery span:first-child { color: #1d2329; font-weight: 600; }
details { margin-top: 48px; border-top: 1px solid #d5dade; padding-top: 14px; }
summary { cursor: pointer; font-weight: 650; }
details td { overflow-wrap: anywhere; }
footer { margin-top: 32px; font-size: .85rem; color: #5b6671; }
@media (max-width: 560px) {
  body { font-size: 16px; }
  main { padding: 32px 16px; }
  h1 { font-size: 1.65rem; }
  .facts { grid-template-columns: 1fr 1fr; gap: 0 20px; }
  .facts dd { font-size: 1.55rem; }
  .drawing.wide svg { min-width: 600px; }
  table { font-size: .82rem; }
  th, td { padding-left: 10px; }
}
@media print {
  body { font-size: 10.5pt; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  main { max-width: none; padding: 0; }
  section { margin-top: 24pt; }
  h2, h3 { break-after: avoid; }
  tr { break-inside: avoid; }
}
"""
