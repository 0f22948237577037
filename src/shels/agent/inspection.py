"""What a model knows, how it came to know it, and what it could still learn: plain data for any face."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from torch import Tensor

from shels.agent.buffers import UNNAMED, read_buffers
from shels.agent.events import ACCOMMODATED, RENAMED, SPLIT, Line, in_words, makes_version
from shels.agent.history import changes_of
from shels.agent.home import Home
from shels.config import to_dict
from shels.errors import DataError
from shels.learner.learner import Learner
from shels.learner.pairing import facts
from shels.learner.rule import doubt, expected_false_alarms
from shels.model.activations import weight_layers
from shels.model.sparsity import outgoing_norms


def inspection(learner: Learner, home: Home, last_events: int = 5) -> dict[str, Any]:
    """Describe a model in plain data: settings, classes, free units, versions and the last events."""
    events = home.events()
    settings = to_dict(learner.settings)
    images = {name: len(each.inputs) for name, each in read_buffers(home).items()}
    false_alarms, measured_at = expected_false_alarms(learner)
    return {
        "model": str(home.directory),
        "version": home.version if home.exists else None,
        **facts(learner.settings),
        "learner": settings["accommodation"],
        "rule": settings["rule"],
        "held_out_acceptance": learner.report["held_out_acceptance"],
        "false_alarms": false_alarms,
        "measured_at": measured_at,
        "doubt": doubt(learner),
        "held_out_samples": learner.report["held_out_samples"],
        "exclusivity": learner.report["exclusivity"],
        "classes": class_rows(learner, counting(home) if home.exists else []),
        "images_in_model": learner.stored_images,
        "memory_bytes": sum(value.nbytes for value in learner.memory.values()),
        "free_units": free_units(learner),
        "versions": version_rows(home, events) if home.exists else [],
        "kept_images": {
            str(name): images[f"{UNNAMED}{name}"] for name in learner.classes if f"{UNNAMED}{name}" in images
        },
        "waiting_images": sum(count for name, count in images.items() if not name.startswith(UNNAMED)),
        "events": events[-last_events:] if last_events else [],
    }


def write_images(learner: Learner, home: Home, folder: Path) -> dict[str, int]:
    """Write the images that a home keeps, and count them by folder.

    There is a folder for each class with a provisional name, and for each batch that waits.
    """
    classes = {f"{UNNAMED}{name}" for name in learner.classes}
    images = {
        name: each.inputs
        for name, each in sorted(read_buffers(home).items())
        if name in classes or not name.startswith(UNNAMED)
    }
    if not images:
        raise DataError(
            f"{home.directory} keeps no images: they are kept of classes that shels run has taken in, until "
            "those are renamed"
        )
    written = {}
    for name, inputs in images.items():
        where = folder / name.removeprefix(UNNAMED).replace("/", "-")
        write_pictures(inputs, where)
        written[str(where)] = len(inputs)
    return written


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


def free_units(learner: Learner) -> list[dict[str, Any]]:
    """Count, for each hidden layer, the units that nothing reads."""
    weights = dict(learner.network.named_parameters())
    rows: list[dict[str, Any]] = []
    for layer, reader in pairwise(weight_layers(learner.network)):
        weight = weights[layer.weight]
        read = outgoing_norms(weights[reader.weight].detach()).view(len(weight), -1) > 0
        kind = "convolution" if weight.ndim == 4 else "linear"
        free = int((~read.any(1)).sum())
        rows.append({"layer": f"{len(rows) + 1} {kind}", "units": len(weight), "free": free})
    return rows


def counting(home: Home) -> list[Line]:
    """List the changes of a home's log that still count."""
    return [change.facts for change in changes_of(home.log.placed(), home.version) if change.counts]


def class_rows(learner: Learner, events: Sequence[Line]) -> list[dict[str, Any]]:
    """Describe each class: where it comes from, from how many images, and its threshold.

    events: the changes that count; by and time of one that was taken back are nobody's.
    """
    origins, counts = _origins(learner, events), learner.detector.counts()
    costs = _costs(learner)
    rows = []
    for place, name in enumerate(learner.classes):
        origin = origins.get(name, {})
        row = {
            "position": place,
            "name": name,
            "origin": "taken in" if origin else "taught",
            "images": counts.get(place, origin.get("images")),
            "by": origin.get("by"),
            "time": origin.get("time"),
            "threshold": float(learner.detector.thresholds[place]),
            "bytes": costs.get(place),
        }
        rows.append(row)
    return rows


def _costs(learner: Learner) -> dict[int, int]:
    """Count the bytes of what is kept of each class by position, where classes are kept one by one."""
    stored = learner.detector.tensors()
    found: dict[int, int] = {}
    for owner, sums in zip(stored.detector.get("owners", Tensor()).tolist(), stored.classes, strict=True):
        found[int(owner)] = found.get(int(owner), 0) + sum(value.nbytes for value in sums.values())
    return found


def _origins(learner: Learner, events: Sequence[Line]) -> dict[Any, Line]:
    """Tell how each class that was not there at the first training came in, by the name it has now."""
    came: dict[Any, Line] = {
        note["class"]: {"images": note["images"]} for note in learner.report.get("taken_in", [])
    }
    for event in events:
        if event["kind"] == ACCOMMODATED and not event.get("known"):  # else it was there before
            came[event["name"]] = event
        elif event["kind"] == RENAMED and event["from"] in came:
            came[event["to"]] = {**came[event["from"]], "by": event["by"], "time": event.get("time")}
        elif event["kind"] == SPLIT:
            came |= {part: {**came.get(part, {"images": None}), **event} for part in event["to"]}
    return came


def version_rows(home: Home, events: Sequence[Line]) -> list[dict[str, Any]]:
    """Describe each version: when it was made, and by what."""
    made = {event["version"]: event for event in events if makes_version(event)}
    rows = []
    for number in home.versions():
        path = home.directory / "models" / f"{number:04d}" / "model.json"
        time = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
        event = made.get(number)
        rows.append({"version": number, "time": time, "made_by": in_words(event) if event else "trained"})
    return rows
