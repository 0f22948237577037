"""`shels methods`: what can be compared, where each method was published, and what it keeps."""

from __future__ import annotations

from typing import Any

from shels.cli import options
from shels.cli.display import print_json, results, table

EXAMPLES = """[bold]Examples[/bold]

shels methods
shels reproduce within/digits --methods shels,knn,vim
shels reproduce within/digits --methods own,post-hoc"""


def methods(as_json: options.Json = False) -> None:
    """List the methods that experiments compare.

    A family names all of its methods at once in --methods of shels reproduce.
    """
    rows = _rows()
    if as_json:
        print_json({"methods": rows})
        return
    headings = ("method", "family", "keeps", "settings", "published")
    shown = [(row["name"], row["family"], row["stores"], _settings(row), row["paper"]) for row in rows]
    results().print(table(*headings, rows=shown))


def _rows() -> list[dict[str, Any]]:
    from shels.experiments.methods import METHODS  # noqa: PLC0415
    from shels.rivals.registry import DETECTORS  # noqa: PLC0415

    out = []
    for each in METHODS.values():
        rival = DETECTORS.get(each.score)
        row = {name: getattr(each, name) for name in ("name", "title", "family", "paper", "stores")}
        out.append(row | {"settings": rival.defaults if rival else {}, "score": each.score})
    return out


def _settings(row: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {'auto' if value is None else value}" for name, value in row["settings"].items()
    )
