"""A page as Markdown: the same words and tables, with links to the figures beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from shels.report.chart import Chart
from shels.report.page import Block, Cell, Figure, Fold, Gallery, Mark, Page, Section, Table, shown

_AROUND = {"best": "**", "quiet": "*"}


def markdown(page: Page, figures: str) -> str:
    """Return the page; a chart is shown from its file in the folder `figures`, other drawings in words."""
    facts = [f"- **{_text(value)}** {_text(name)}" for name, value in page.facts]
    parts = [f"# {_text(page.title)}", _text(page.lead), "\n".join(facts)]
    parts += [part for section in page.sections for part in _section(section, figures)]
    if page.details:
        parts += _section(Section("Settings, versions and machine", page.details), figures)
    parts.append(_text(page.footer))
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(section: Section, figures: str) -> Iterator[str]:
    yield f"## {_text(section.title)}"
    yield from _blocks(section.blocks, figures)


def _blocks(blocks: Sequence[Block], figures: str) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, str):
            yield _text(block)
        elif isinstance(block, Table):
            yield from _table(block)
        elif isinstance(block, Figure):
            yield _figure(block, figures)
        elif isinstance(block, Gallery):
            yield f"### {_text(block.title)}: {_text(block.note)}"
        else:
            yield from _fold(block, figures)


def _fold(fold: Fold, figures: str) -> Iterator[str]:
    yield f"### {_text(fold.title)}"
    yield from _blocks(fold.blocks, figures)


def _figure(figure: Figure, figures: str) -> str:
    if isinstance(figure, Chart):
        return f"![{_text(figure.alt)}]({figures}/{figure.name}.png)\n\n{_text(figure.caption)}"
    return f"{_text(figure.alt)}\n\n{_text(figure.caption)}"


def _table(table: Table) -> Iterator[str]:
    if table.caption:
        yield f"**{_text(table.caption)}**"
    sides = [":--" if place < table.left else "--:" for place in range(len(table.columns))]
    lines = [_line([_text(name) for name in table.columns]), _line(sides)]
    for run in table.runs():
        for place, row in enumerate(run):
            first = _cell(row[0]) if place == 0 else ""
            lines.append(_line([first, *(_cell(cell) for cell in row[1:])]))
    yield "\n".join(lines)
    if table.note:
        yield _text(table.note)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(cell: Cell) -> str:
    if not isinstance(cell, Mark):
        return _text(shown(cell))
    around = _AROUND.get(cell.kind, "")
    return f"{around}{_text(cell.text)}{around} {_text(cell.after)}".strip()


def _text(text: str) -> str:
    """Return text on one line that no reader of Markdown takes for markup."""
    line = " ".join(text.replace("\N{NO-BREAK SPACE}", " ").split())
    line = re.sub(r"([\\`*|\[\]$~])", r"\\\1", line)
    line = re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", line)
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"^(#|[-+] |\d+[.)] )", r"\\\1", line)
