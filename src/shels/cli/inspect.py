"""`shels inspect`: what a model knows, how it came to know it, and what it could still learn."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from shels.agent.events import in_words
from shels.cli import options
from shels.cli.display import percent, print_facts, print_result, print_table
from shels.cli.options import option
from shels.cli.rule import expected

EXAMPLES = """shels inspect m
shels inspect m --events 20
shels inspect m --images seen/
shels inspect m --json"""


def inspect(
    model: options.Model,
    events: Annotated[int, option("--events", "Show the last N events.", "N", min=0)] = 5,
    images: Annotated[
        Path | None, option("--images", "Write the images of classes such as novel-1 there, as PNG.", "DIR")
    ] = None,
    device: options.Device = "cpu",
    as_json: options.Json = False,
) -> None:
    """Show a model's classes, thresholds, free units and history.

    Images of a class are kept until it has a name of its own; --images writes
    them, so that you can see what novel-1 is.
    """
    from shels.agent.home import Home  # noqa: PLC0415
    from shels.agent.inspection import inspection, write_images  # noqa: PLC0415
    from shels.learner.training_directory import load_learner  # noqa: PLC0415

    learner, home = load_learner(model, device), Home(model)
    result = inspection(learner, home, events)
    if images is not None:
        result["images"] = write_images(learner, home, images)
    print_result(result, _show, as_json=as_json)


def _when(time: str | None) -> str:
    return "" if time is None else datetime.fromisoformat(time).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _show(result: dict[str, Any]) -> None:
    rule = result["rule"]
    rule_words = (
        f"{percent(rule['share'])} of known samples accepted"
        if rule["kind"] == "accept-share"
        else f"mean score less {rule['k']:g} standard deviations"
    )
    plain = "a plain model; the first change gives it a history"
    version = plain if result["version"] is None else f"version {result['version']}"
    lines = {
        "model": f"{result['model']} ({version})",
        "method": result["method"],
        "thresholds": rule_words,
        "expected": expected(result),
        "exclusivity": f"{result['exclusivity']:.2f} on average (1: no two classes share a feature)",
    }
    if result["doubt"]:
        lines["doubt"] = result["doubt"]
    costs = [row["bytes"] for row in result["classes"] if row["bytes"]]
    if costs:
        lines["each class"] = f"{max(costs) / 1e6:.1f} MB, whatever the number of its images"
    if result["images_in_model"]:
        lines["holds"] = f"{result['images_in_model']} of the training images, to learn from again"
    if result["waiting_images"]:
        lines["waiting"] = f"{result['waiting_images']} novel images of which it is not clear what they are"
    print_facts(lines)
    _show_tables(result)
    for row in result["classes"]:
        if row["name"] in result["kept_images"]:
            count = result["kept_images"][row["name"]]
            typer.echo(f"{count} images of {row['name']} are kept; --images DIR writes them")
    for folder, count in result.get("images", {}).items():
        typer.echo(f"{count} image{'s' * (count != 1)} in {folder}")


def _show_tables(result: dict[str, Any]) -> None:
    rows = [
        (
            c["position"],
            c["name"],
            c["origin"],
            "–" if c["images"] is None else c["images"],
            f"{c['threshold']:.3f}",
            c["by"] or "",
            _when(c["time"]),
        )
        for c in result["classes"]
    ]
    headings = ("#", "class", "origin", "images", "threshold", "named by", "when")
    print_table(*headings, rows=rows, numbers=("#", "images", "threshold"))
    units = [(each["layer"], each["free"], each["units"]) for each in result["free_units"]]
    print_table("hidden layer", "free", "units", rows=units, numbers=("free", "units"))
    if result["versions"]:
        marked = [
            (
                v["version"],
                "in use" if v["version"] == result["version"] else "",
                _when(v["time"]),
                v["made_by"],
            )
            for v in result["versions"]
        ]
        print_table("version", "", "made", "by", rows=marked, numbers=("version",))
    if result["events"]:
        last = [
            (_when(event.get("time")), event.get("batch", ""), in_words(event)) for event in result["events"]
        ]
        print_table("last events", "batch", "what", rows=last)
