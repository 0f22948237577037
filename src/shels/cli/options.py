"""Options that more than one command has, and the rule for those that exclude each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from shels.errors import SettingsError

DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="Where the named sets lie; else $SHELS_DATA, else ~/.shels/data.",
        show_default=False,
    ),
]
Device = Annotated[
    str, typer.Option("--device", metavar="NAME", help="auto (a GPU where there is one), cpu or cuda.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Number that every random draw comes from.")]
Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA", help="A named set (see shels data), an .npz file, or a folder of class folders."
    ),
]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Directory that shels train has written.")]


def exclude(first: dict[str, Any], second: dict[str, Any]) -> None:
    """Raise if options of both groups were given; each maps names to values, None for not given."""
    here = [name for name, value in first.items() if value is not None]
    there = [name for name, value in second.items() if value is not None]
    if here and there:
        raise SettingsError(f"{here[0]} and {there[0]} contradict each other; give one of them")
