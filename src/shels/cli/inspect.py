"""`shels inspect`: what a model knows, how it came to know it, and what it could still learn."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shels.agent.home import TAKEN
from shels.cli import options
from shels.cli.display import percent, print_json, results, table
from shels.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

    from shels.agent.home import Home
    from shels.learner.learner import Learner

EXAMPLES = """shels inspect m
shels inspect m --events 20
shels inspect m --images seen/
shels inspect m --json"""

_CHANGES = ("accommodated", "renamed", "merged", "split", "unlearned", "refitted")

Events = Annotated[int, typer.Option("--events", metavar="N", min=0, help="Show the last N events.")]
Pictures = Annotated[
    Path | None,
    typer.Option(
        "--images", metavar="DIR", help="Write the images of classes such as novel-1 there, as PNG."
    ),
]


def inspect(
    model: options.Model,
    events: Events = 5,
    images: Pictures = None,
    device: options.Device = "cpu",
    as_json: options.Json = False,
) -> None:
    """Show a model's classes, thresholds, free units and history.

    Images of a class are kept until it has a name of its own; --images writes
    them, so that you can see what novel-1 is.
    """
    from shels.agent.home import Home  # noqa: PLC0415
    from shels.learner.training_directory import load_learner  # noqa: PLC0415

    learner, home = load_learner(model, device), Home(model)
    result = _result(model, learner, home, events)
    if images is not None:
        result["images"] = _write_kept(learner, home, images)
    if as_json:
        print_json(result)
        return
    _show(result)
    if images is not None:
        for folder, count in result["images"].items():
            typer.echo(f"{count} image{'s' * (count != 1)} in {folder}")


def write_pictures(inputs: Tensor, folder: Path) -> None:
    """Write images as PNG files, numbered from 1; (n, channels, height, width), uint8 or float 0-1."""
    from PIL import Image  # noqa: PLC0415

    if inputs.ndim != 4:
        raise DataError(
            "the model was trained on vectors, which cannot be shown as images; leave --images out"
        )
    pixels = inputs if inputs.dtype.itemsize == 1 else (inputs * 255).round().byte()
    folder.mkdir(parents=True, exist_ok=True)
    for number, image in enumerate(pixels.permute(0, 2, 3, 1).cpu().numpy(), start=1):
        Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image).save(folder / f"{number:04d}.png")


def _write_kept(learner: Learner, home: Home, folder: Path) -> dict[str, int]:
    """Return how many images were written, by folder: one for each provisional class or batch that waits."""
    classes = {f"{TAKEN}{name}" for name in learner.classes}
    kept = {n: held for n, held in home.buffered().items() if n in classes or not n.startswith(TAKEN)}
    if not kept:
        raise DataError(
            f"{home.directory} keeps no images: they are kept of classes that shels run has taken in, until "
            "those are renamed"
        )
    written = {}
    for name, held in kept.items():
        where = folder / name.removeprefix(TAKEN).replace("/", "-")
        write_pictures(held["inputs"], where)
        written[str(where)] = len(held["inputs"])
    return written


def _result(model: Path, learner: Learner, home: Home, last: int) -> dict[str, Any]:
    from shels.config import to_dict  # noqa: PLC0415
    from shels.learner.pairing import facts  # noqa: PLC0415

    events = home.events()
    settings = to_dict(learner.settings)
    kept = {name: len(held["inputs"]) for name, held in home.buffered().items()}
    return {
        "model": str(model),
        "version": home.version if home.exists else None,
        **facts(learner.settings),
        "learner": settings["accommodation"],
        "rule": settings["rule"],
        "held_out_acceptance": learner.report["held_out_acceptance"],
        "held_out_samples": learner.report["held_out_samples"],
        "exclusivity": learner.report["exclusivity"],
        "classes": _classes(learner, events),
        "images_in_model": learner.kept_images,
        "free_units": _free_units(learner),
        "versions": _versions(home, events) if home.exists else [],
        "kept_images": {str(n): kept[f"{TAKEN}{n}"] for n in learner.classes if f"{TAKEN}{n}" in kept},
        "waiting_images": sum(count for name, count in kept.items() if not name.startswith(TAKEN)),
        "events": events[-last:] if last else [],
    }


def _classes(learner: Learner, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each class: where it comes from, from how many images, and its threshold."""
    came = _origins(learner, events)
    counts = learner.detector.counts()
    rows = []
    for place, name in enumerate(learner.classes):
        origin = came.get(name)
        images = counts.get(place, origin["images"] if origin else None)
        row = {
            "position": place,
            "name": name,
            "origin": "taken in" if origin else "taught",
            "images": images,
        }
        row |= {key: origin.get(key) if origin else None for key in ("by", "time")}
        rows.append(row | {"threshold": float(learner.detector.thresholds[place])})
    return rows


def _origins(learner: Learner, events: list[dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    """Return how each class that was not there at the first training came in, by the name it has now."""
    came = {note["class"]: {"images": note["images"]} for note in learner.report.get("taken_in", [])}
    for event in events:
        if event["kind"] == "accommodated":
            came[event["name"]] = event
        elif event["kind"] == "renamed" and event["from"] in came:
            came[event["to"]] = came[event["from"]] | {"by": event["by"], "time": event["time"]}
        elif event["kind"] == "split":
            came |= {part: came.get(part, {"images": None}) | event for part in event["to"]}
    return came


def _free_units(learner: Learner) -> list[dict[str, Any]]:
    """Return, for each hidden layer, how many of its units nothing reads."""
    from shels.model.activations import weight_layers  # noqa: PLC0415
    from shels.model.sparsity import outgoing_norms  # noqa: PLC0415

    weights = dict(learner.network.named_parameters())
    rows: list[dict[str, Any]] = []
    for layer, reader in pairwise(weight_layers(learner.network)):
        weight = weights[layer.weight]
        read = outgoing_norms(weights[reader.weight].detach()).view(len(weight), -1) > 0
        kind = "convolution" if weight.ndim == 4 else "linear"
        rows.append(
            {"layer": f"{len(rows) + 1} {kind}", "units": len(weight), "free": int((~read.any(1)).sum())}
        )
    return rows


def _versions(home: Home, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    made = {event["version"]: event for event in events if event["kind"] in _CHANGES and "version" in event}
    rows = []
    for number in home.versions():
        path = home.directory / "models" / f"{number:04d}" / "model.json"
        time = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
        event = made.get(number)
        rows.append({"version": number, "time": time, "made_by": _in_words(event) if event else "trained"})
    return rows


def _in_words(event: dict[str, Any]) -> str:
    """Return an event as a few words."""
    kind, by = event["kind"], f", by {event['by']}" if "by" in event else ""
    if kind == "accommodated":
        return f"{event['name']} taken in from {event['images']} images{by}"
    if kind in ("renamed", "merged", "split"):
        to = event["to"]
        return f"{event['from']} {kind} to {' and '.join(to) if isinstance(to, list) else to}{by}"
    if kind == "refitted":
        return f"refitted with learner {event['learner']} and detector {event['detector']}"
    if kind == "observed":
        return f"{event['size']} samples, {percent(event['share'])} novel"
    told = [
        str(event[key])
        for key in ("name", "to", "reason", "stream", "protocol")
        if event.get(key) is not None
    ]
    return f"{kind} {', '.join(told)}".strip() + by


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
    held_out = f"{result['held_out_samples']} held-out samples, at training"
    lines = {
        "model": f"{result['model']} ({version})",
        "method": result["method"],
        "thresholds": rule_words,
        "acceptance": f"{percent(result['held_out_acceptance'])} of {held_out}",
        "exclusivity": f"{result['exclusivity']:.2f} on average (1: no two classes share a feature)",
    }
    if result["images_in_model"]:
        lines["holds"] = f"{result['images_in_model']} of the training images, to learn from again"
    if result["waiting_images"]:
        lines["waiting"] = f"{result['waiting_images']} novel images of which it is not clear what they are"
    for name, text in lines.items():
        typer.echo(f"{name:<13}{text}")
    _show_tables(result)


def _show_tables(result: dict[str, Any]) -> None:
    console = results()
    rows = [
        (
            c["position"],
            c["name"],
            c["origin"],
            _or_dash(c["images"]),
            f"{c['threshold']:.3f}",
            c["by"] or "",
            _when(c["time"]),
        )
        for c in result["classes"]
    ]
    headings = ("#", "class", "origin", "images", "threshold", "named by", "when")
    console.print(table(*headings, rows=rows, numbers=("#", "images", "threshold")))
    units = [(each["layer"], each["free"], each["units"]) for each in result["free_units"]]
    console.print(table("hidden layer", "free", "units", rows=units, numbers=("free", "units")))
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
        console.print(table("version", "", "made", "by", rows=marked, numbers=("version",)))
    if result["events"]:
        told = [(_when(event["time"]), event["batch"], _in_words(event)) for event in result["events"]]
        console.print(table("last events", "batch", "what", rows=told))
    for row in result["classes"]:
        if row["name"] in result["kept_images"]:
            count = result["kept_images"][row["name"]]
            typer.echo(f"{count} images of {row['name']} are kept; --images DIR writes them")


def _or_dash(value: object) -> object:
    return "–" if value is None else value
