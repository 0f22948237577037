"""`shels demo`: the whole idea on the embedded digits, with no data to fetch."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from shels.cli import options
from shels.cli.display import TrainingBar, listed, percent, print_result, print_table
from shels.cli.options import option

EXAMPLES = """shels demo
shels demo --out other --seed 1 --json"""


def demo(
    out: Annotated[Path, option("--out", "Directory for the results and the report.", "DIR")] = Path("demo"),
    seed: options.Seed = 0,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """See it work on the digits that come with scikit-learn.

    Learns seven of the digits, meets the others in a stream without being told, learns
    them too, and writes what happened to DIR/result.json and, with figures, to
    DIR/report.html. An earlier demo's results in DIR are replaced.
    """
    from shels import demo as demonstration  # noqa: PLC0415

    with TrainingBar("learning", quiet=as_json) as bar:
        result = bar.follow(demonstration.run(out, seed=seed, device=device))
    print_result(result, partial(_show, out=out), as_json=as_json)


def _show(result: dict[str, Any], out: Path) -> None:
    detection = result["detection"]
    rows = [
        ("known classes", listed(result["known_classes"])),
        ("novel classes", listed(result["novel_classes"])),
        ("found and learned, in order", listed(result["found"]) or "none"),
        ("missed", listed(result["missed"]) or "none"),
        ("false alarms", result["false_alarms"]),
        ("named rightly at the end", percent(result["final_accuracy"])),
        *((f"of {name}", percent(value)) for name, value in result["novel_accuracy"].items()),
        ("before: known accepted and right", percent(detection["known_accuracy"])),
        ("before: novel rejected", percent(detection["novel_accuracy"])),
        ("before: combined", percent(detection["combined_accuracy"])),
        ("before: AUROC", percent(detection["auroc"])),
    ]
    print_table("demo", "", rows=rows)
    found, novel = len(result["found"]), len(result["novel_classes"])
    typer.echo(
        f"It was taught {len(result['known_classes'])} digits, noticed {found} of {novel} new ones, learned "
        f"them and took {result['seconds']:.0f} seconds for all: open {out / 'report.html'}"
    )
