"""How options are declared, those that more than one command has, and rules that many keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from shels.errors import SettingsError, unknown_name


def option(
    flags: str, text: str, metavar: str | None = None, *, panel: str | None = None, **more: Any
) -> Any:
    """Declare an option. flags: "--out", or "--out -o"; panel: its heading in the help; more: as typer's."""
    return typer.Option(*flags.split(), metavar=metavar, help=text, rich_help_panel=panel, **more)


def argument(metavar: str, text: str) -> Any:
    """Declare a word that is given without a flag."""
    return typer.Argument(metavar=metavar, help=text)


def examples(text: str) -> str:
    """Put the heading over the examples below a command's help."""
    return f"[bold]Examples[/bold]\n\n{text}"


DataDir = Annotated[
    Path | None,
    option("--data-dir", "Where the named sets lie; else $SHELS_DATA, else ~/.shels/data.", "DIR"),
]
Device = Annotated[str, option("--device", "auto (a GPU where there is one), cpu or cuda.", "NAME")]
Json = Annotated[bool, option("--json", "Print one JSON document and nothing else.")]
Seed = Annotated[
    int, option("--seed", "Number that every random draw comes from.", "N", min=0, max=2**63 - 1)
]
Strict = Annotated[bool, option("--strict", "Stop at the first file that cannot be read.")]
Data = Annotated[
    str,
    argument("DATA", "A named set (see shels data), a folder of class folders, a .zip, .csv or .npz file."),
]
Likeness = Annotated[
    float | None, option("--likeness", "Correlation of near duplicates; 0.95 or more, by the data.", "X")
]
Model = Annotated[Path, argument("MODEL", "Directory that shels train has written.")]


def exclude(first: Mapping[str, Any], second: Mapping[str, Any]) -> None:
    """Raise if options of both groups were given; each maps names to values, None for not given.

    >>> exclude({"--epochs": 3, "--steps": None}, {"--accept": None})
    """
    here = [name for name, value in first.items() if value is not None]
    there = [name for name, value in second.items() if value is not None]
    if here and there:
        raise SettingsError(f"{here[0]} and {there[0]} contradict each other; give one of them")


def one_of(kind: str, value: str | None, choices: Sequence[str]) -> None:
    """Raise unless a value was left out or is one of these."""
    if value is not None and value not in choices:
        raise SettingsError(unknown_name(kind, value, choices))


def share(text: str | None) -> float | None:
    """Read an option that is a share or something else; None where it is no number.

    >>> share("0.2"), share("photos/val")
    (0.2, None)
    """
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def share_to_accept(name: str, value: float | None) -> None:
    """Refuse what is no share of known samples to accept; of a percentage, give the share."""
    if value is None or 0 < value < 1:
        return
    instead = f"; for {value:g} % give {value / 100:g}" * (1 < value < 100)
    raise SettingsError(
        f"{name} is a share over 0 and under 1 (at 1 nothing is ever novel), got {value:g}{instead}"
    )


def names(values: Sequence[str] | None) -> list[str] | None:
    """Separate the names in options such as `--known 0,1 --known 2`; None where there was none.

    >>> names(["0,1", "2"])
    ['0', '1', '2']
    """
    if not values:
        return None
    found = [name.strip() for value in values for name in value.split(",")]
    if "" in found:
        raise SettingsError(f"a list of classes has an empty name in it: {','.join(values)!r}")
    return found
