"""A page as Markdown: the same words and tables, with links to the figures beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from shels.report.drawing import Figure
from shels.report.page import DETAILS, Block, Cell, Gallery, Page, Section, Table, marked

_AROUND = {"best": "**", "quiet": "*"}


def markdown(page: Page, figures: str) -> str:
    """Write the page; figures are shown from their PNG files in the folder `figures`.

    >>> print(markdown(Page("Title", "One sentence.", []), "figures"), end="")
    # Title
    <BLANKLINE>
    One sentence.
    """
    facts = [f"- **{_text(value)}** {_text(name)}" for name, value in page.facts]
    parts = [f"# {_text(page.title)}", _text(page.lead), "\n".join(facts)]
    parts += [part for section in page.sections for part in _section(section, figures)]
    if page.details:
        parts += _section(Section(DETAILS, page.details), figures)
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
            yield f"![{_text(block.alt)}]({figures}/{block.name}.png)\n\n{_text(block.caption)}"
        elif isinstance(block, Gallery):
            yield f"### {_text(block.title)}: {_text(block.note)}"
        else:
            yield f"### {_text(block.title)}"
            yield from _blocks(block.blocks, figures)


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
    mark = marked(cell)
    around = _AROUND.get(mark.kind, "")
    return f"{around}{_text(mark.text)}{around} {_text(mark.after)}".strip()


def _text(text: str) -> str:
    """Put text on one line that no reader of Markdown takes for markup."""
    line = " ".join(text.replace("\N{NO-BREAK SPACE}", " ").split())
    line = re.sub(r"([\\`*|\[\]$~])", r"\\\1", line)
    line = re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", line)
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"^(#|[-+] |\d+[.)] )", r"\\\1", line)
