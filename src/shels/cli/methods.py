"""`shels methods`: what can be compared and used, where each method was published, and what it keeps."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import typer

from shels.cli import options
from shels.cli.display import print_json, print_table, results, table

EXAMPLES = """shels methods
shels train digits --learner slda --detector knn --out m
shels reproduce within/digits --methods shels,knn,vim
shels reproduce within/digits --methods own,post-hoc"""

_NARROW = 120
"""Columns below which settings get a table of their own."""


def methods(as_json: options.Json = False) -> None:
    """List the methods: for detection, for learning classes, for agents.

    A family names all of its methods at once in --methods of shels reproduce.
    Detectors and learners are paired by --detector and --learner of shels train.
    """
    from shels.experiments.methods import METHODS  # noqa: PLC0415
    from shels.learner.pairing import groups  # noqa: PLC0415

    rows = [_row(method) for method in METHODS.values()]
    pairs = [{"detectors": names, "learners": learners} for names, learners in groups()]
    if as_json:
        print_json({"methods": rows, "pairs": pairs})
        return
    _show(rows)
    typer.echo("Detectors go with learners so (shels train --detector NAME --learner NAME):")
    shown = [
        (", ".join(p["detectors"]), ", ".join(p["learners"]) or "none: experiments alone") for p in pairs
    ]
    print_table("detector", "learner", rows=shown)


def _show(rows: list[dict[str, Any]]) -> None:
    console = results()
    keys = ("name", "task", "family", "stores")
    headings = ("method", "task", "family", "keeps")
    known = [tuple(row[key] for key in keys) for row in rows]
    if console.width >= _NARROW:
        shown = [(*cells, _settings(row), row["paper"]) for cells, row in zip(known, rows, strict=True)]
        print_table(*headings, "settings", "published", rows=shown)
        return
    shown = [(*cells, row["paper"]) for cells, row in zip(known, rows, strict=True)]
    whole = table(*headings, "published", rows=shown)
    whole.columns[0].no_wrap = True  # a name is for copying
    console.print(whole)
    settings = [(row["name"], _settings(row)) for row in rows if row["settings"]]
    print_table("method", "settings", rows=settings)


def _row(method: Any) -> dict[str, Any]:
    """Tell of a method and, of a way to learn, what tells novel samples beside it."""
    from shels.config.presets import DEFAULT  # noqa: PLC0415
    from shels.detection.registry import entry_of  # noqa: PLC0415
    from shels.learner.pairing import detector_name  # noqa: PLC0415

    row = {name: getattr(method, name) for name in ("name", "title", "task", "family", "paper", "stores")}
    if method.task != "detection":
        settings = method.settings(DEFAULT, "")
        plain = settings.network.head == DEFAULT.network.head and not settings.training.alpha
        about = (
            {} if method.knows_all else asdict(settings.accommodation) | ({"sparsity": 0.0} if plain else {})
        )
        return row | {"settings": about, "detector": detector_name(settings)}
    return row | {"settings": entry_of(method.score).defaults, "score": method.score}


def _settings(row: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {'auto' if value is None else value}" for name, value in row["settings"].items()
    )
