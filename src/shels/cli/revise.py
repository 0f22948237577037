"""`shels revise`: correct what a model has learned: names, classes that are one, classes that are two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shels.cli import options
from shels.cli.display import listed, print_json
from shels.cli.settings import one_of
from shels.errors import ModelFileError, SettingsError

if TYPE_CHECKING:
    from shels.agent.home import Home
    from shels.agent.versioned import VersionedLearner
    from shels.data.samples import Label
    from shels.learner.learner import Learner

EXAMPLES = """[bold]Examples[/bold]

shels revise m rename novel-1 cow
shels revise m merge novel-2 cow
shels revise m split novel-3
shels revise m unlearn cow
shels revise m rollback 1

Every change is a new version, so each can be taken back by rollback."""

ACTIONS = {
    "rename": ("OLD", "NEW"),
    "merge": ("CLASS", "INTO"),
    "split": ("CLASS",),
    "unlearn": ("CLASS",),
    "rollback": ("VERSION",),
}

Action = Annotated[str, typer.Argument(metavar="ACTION", help="rename, merge, split, unlearn or rollback.")]
What = Annotated[
    list[str],
    typer.Argument(
        metavar="WHAT", help="rename: OLD NEW; merge: CLASS INTO; split, unlearn: CLASS; rollback: VERSION."
    ),
]


def revise(
    model: options.Model,
    action: Action,
    what: What,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Rename, merge, split or unlearn a class, or go back.

    merge says that one class is another. split divides a class that the agent
    named (novel-1, …) by the images that it was learned from. rollback makes an
    earlier version the one in use; later ones are kept.
    """
    one_of("action", action, tuple(ACTIONS))
    if len(what) != len(ACTIONS[action]):
        wants = " ".join(ACTIONS[action])
        raise SettingsError(
            f"{action} takes {wants}, got {' '.join(what)}: shels revise MODEL {action} {wants}"
        )
    from shels.agent.home import Home  # noqa: PLC0415

    home = Home(model)
    home.settle()
    if action == "rollback":
        learner, said = _rollback(home, what[0], device)
    else:
        learner, said = _change(home, action, what, device)
    result: dict[str, Any] = {"model": str(model), "action": action, "what": list(what), "done": said}
    result |= {"classes": list(learner.classes), "version": home.version}
    if as_json:
        print_json(result)
    else:
        _show(result)


def _rollback(home: Home, text: str, device: str) -> tuple[Learner, str]:
    """Return the learner of an earlier version, which is in use again, and what was done."""
    from shels.agent.versioned import VersionedLearner  # noqa: PLC0415

    if not text.isascii() or not text.isdigit():
        raise SettingsError(f"a version is a whole number such as 1, got {text!r}")
    if not home.exists and not home.versions():
        raise ModelFileError(f"{home.directory} has no earlier versions: nothing was changed since training")
    with home.lock():
        learner = home.load(device, version=int(text))  # refused before anything changes
        try:
            before, current = home.version, home.load(device)
        except ModelFileError:  # the pointer or the version in use is damaged, which going back repairs
            before, current = home.rollback(int(text)), learner
        VersionedLearner(current, home).rollback(int(text))
    return learner, f"version {int(text)} is in use again, instead of {before}"


def _change(home: Home, action: str, what: list[str], device: str) -> tuple[Learner, str]:
    """Return the learner after a change, and what was done."""
    from shels.agent.versioned import VersionedLearner  # noqa: PLC0415
    from shels.cli.inputs import load_learner  # noqa: PLC0415

    learner = load_learner(home.directory, device)
    names = _names(action, what, learner.classes)
    if not home.exists:
        _apply(VersionedLearner(learner), action, names)  # what cannot be done is refused before any change
    with home.lock():
        home.adopt()
        model = VersionedLearner(home.load(device), home)
        said = _apply(model, action, names)
    return model.learner, said


def _names(action: str, what: list[str], classes: Sequence[Label]) -> list[Label]:
    """Return the classes that were named, as the model has them."""
    from shels.cli.inputs import known_class, new_class  # noqa: PLC0415

    found = [known_class(what[0], classes)]
    if action == "rename":
        found.append(new_class(what[1], classes))
    elif action == "merge":
        found.append(known_class(what[1], classes))
    if len(set(found)) != len(found):
        raise SettingsError(f"{action}: both names are {found[0]!r}, so there is nothing to do")
    return found


def _apply(model: VersionedLearner, action: str, names: list[Label]) -> str:
    """Change a model, and return what was done."""
    if action == "rename":
        model.rename(names[0], names[1])
        return f"{names[0]} is called {names[1]} now"
    if action == "merge":
        model.merge(names[0], names[1])
        return f"all that was {names[0]} is {names[1]} now"
    if action == "unlearn":
        model.unlearn(names[0])
        return f"{names[0]} is not known any more"
    parts = model.split(names[0])
    return f"{names[0]} is now {parts[0]} and {parts[1]}"


def _show(result: dict[str, Any]) -> None:
    for name, text in (("done", result["done"]), ("classes", listed(result["classes"]))):
        typer.echo(f"{name:<13}{text}")
    typer.echo(f"{'version':<13}{result['version']} of {result['model']}; all others are kept")
