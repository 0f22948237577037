"""`shels accommodate`: teach a model one class more, from images of that class alone."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shels.cli import options
from shels.cli.display import TrainingBar, listed, print_json, say
from shels.errors import ModelFileError

if TYPE_CHECKING:
    from shels.agent.home import Home
    from shels.data.samples import Label
    from shels.learner.learner import Learner

EXAMPLES = """[bold]Examples[/bold]

shels accommodate m cows/ --name cow
shels accommodate m a.png b.png c.png d.png e.png --name cow
shels accommodate m sevens.npz --name 7 --json

Each class is a new version of the model; shels revise m rollback 1 goes back."""

Images = Annotated[
    list[Path],
    typer.Argument(
        metavar="IMAGES", help="Image files, folders (all images below), or .npz files with x; 5 or more."
    ),
]
Name = Annotated[str, typer.Option("--name", metavar="CLASS", help="What the new class is called.")]


def accommodate(
    model: options.Model,
    images: Images,
    name: Name,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Teach a model one class more; no old image is needed.

    What the model knew stays, as an earlier version in the same directory.
    Anything that is wrong with the images or the name is said before the model
    is touched.
    """
    from shels.agent.home import Home  # noqa: PLC0415

    home = Home(model)
    home.settle()
    was_home = home.exists
    with home.lock() if was_home else nullcontext():  # a plain model is left alone until all is well
        try:
            before, after = _learned(model, images, name, device, quiet=as_json)
            version = _commit(home, before, after, was_home=was_home)
        except KeyboardInterrupt:
            say(f"interrupted: {_what_is_safe(home)}")
            raise typer.Exit(1) from None
    result = _result(model, after, version)
    if as_json:
        print_json(result)
    else:
        _show(result)


def _learned(
    model: Path, images: Sequence[Path], name: str, device: str, *, quiet: bool
) -> tuple[Learner, Learner]:
    """Return the learner as it is on disk, and as it is with the new class."""
    from shels.cli import inputs  # noqa: PLC0415

    learner = inputs.load_learner(model, device)
    label: Label = inputs.new_class(name, learner.classes)
    seen = inputs.read_class(images, learner.preparation)
    with TrainingBar("learning", quiet=quiet) as bar:
        return learner, learner.accommodate(seen, label, progress=bar)


def _commit(home: Home, before: Learner, after: Learner, *, was_home: bool) -> int:
    """Make the new learner the version in use, say so in the log, and return its number."""
    from shels.agent.versioned import VersionedLearner  # noqa: PLC0415

    with home.lock():
        if home.exists and not was_home:
            raise ModelFileError(f"{home.directory} was changed by another run meanwhile; run this again")
        home.adopt()
        model = VersionedLearner(before, home)
        note = after.report["taken_in"][-1]
        facts = {"name": note["class"], "images": note["images"], "by": "person"}
        model.change("accommodated", facts | {"seconds": note["seconds"], "method": note["method"]}, after)
    return home.version


def _what_is_safe(home: Home) -> str:
    if not home.exists:
        return "the model is as it was"
    return f"version {home.version} is in use, and whole"


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
    lines = {
        "taken in": f"{result['name']}, from {result['images']} images in {result['seconds']:.2f} seconds",
        "classes": listed(result["classes"]),
        "threshold": f"{result['threshold']:.3f}: what scores no higher on it is novel",
        "version": f"{result['version']} of {result['model']}; all earlier ones are kept",
        "next": shlex.join(["shels", "inspect", result["model"]]),
    }
    for name, text in lines.items():
        typer.echo(f"{name:<13}{text}")
