"""`shels accommodate`: teach a model one class more, from images of that class alone."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shels.cli import options
from shels.cli.display import TrainingBar, listed, print_facts, print_result, say
from shels.cli.options import argument, option
from shels.cli.reading import FileReading

if TYPE_CHECKING:
    from shels.learner.learner import Learner

EXAMPLES = """shels accommodate m cows/ --name cow
shels accommodate m a.png b.png c.png d.png e.png --name cow
shels accommodate m sevens.npz --name 7 --json

Each class is a new version of the model; shels revise m rollback 1 goes back."""


def accommodate(
    model: options.Model,
    images: Annotated[
        list[Path],
        argument("IMAGES", "Image files, folders (all below), .zip, .csv, or .npz files with x; 5 or more."),
    ],
    name: Annotated[str, option("--name", "What the new class is called.", "CLASS")],
    device: options.Device = "auto",
    strict: options.Strict = False,
    as_json: options.Json = False,
) -> None:
    """Teach a model one class more; no old image is needed.

    What the model knew stays, as an earlier version in the same directory.
    Anything that is wrong with the images or the name is said before the model
    is touched.
    """
    from shels.agent.corrections import teaching  # noqa: PLC0415
    from shels.agent.home import Home  # noqa: PLC0415

    home = Home(model)
    try:
        with (
            TrainingBar("learning", quiet=as_json) as bar,
            FileReading(strict=strict, quiet=as_json, each=bar.show_reading) as files,
        ):
            taught = bar.follow(teaching(home, images, name, device))
    except KeyboardInterrupt:
        safe = f"version {home.version} is in use, and whole" if home.exists else "the model is as it was"
        say(f"interrupted: {safe}")
        raise typer.Exit(1) from None
    files.show_table()
    result = _result(model, taught.learner, taught.version) | {"files": files.result()}
    print_result(result, _show, as_json=as_json)


def _result(model: Path, learner: Learner, version: int) -> dict[str, Any]:
    note = learner.report["taken_in"][-1]
    return {
        "model": str(model),
        "name": note["class"],
        "images": note["images"],
        "classes": list(learner.classes),
        "version": version,
        "threshold": float(learner.detector.thresholds[learner.classes.index(note["class"])]),
        "method": note["method"],
        "seconds": note["seconds"],
    }


def _show(result: dict[str, Any]) -> None:
    facts = {
        "taken in": f"{result['name']}, from {result['images']} images in {result['seconds']:.2f} seconds",
        "classes": listed(result["classes"]),
        "threshold": f"{result['threshold']:.3f}: what scores no higher on it is novel",
        "version": f"{result['version']} of {result['model']}; all earlier ones are kept",
        "next": shlex.join(["shels", "inspect", result["model"]]),
    }
    print_facts(facts)
