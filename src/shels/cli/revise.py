"""`shels revise`: correct what a model has learned: names, classes that are one, classes that are two."""

from __future__ import annotations

from typing import Annotated

from shels.cli import options
from shels.cli.display import listed, print_facts, print_json
from shels.cli.options import argument
from shels.errors import SettingsError

EXAMPLES = """shels revise m rename novel-1 cow
shels revise m merge novel-2 cow
shels revise m split novel-3
shels revise m unlearn cow
shels revise m rollback 1

Every change is a new version, so each can be taken back by rollback."""

_ACTIONS = {
    "rename": ("OLD", "NEW"),
    "merge": ("CLASS", "INTO"),
    "split": ("CLASS",),
    "unlearn": ("CLASS",),
    "rollback": ("VERSION",),
}


def revise(
    model: options.Model,
    action: Annotated[str, argument("ACTION", "rename, merge, split, unlearn or rollback.")],
    what: Annotated[
        list[str] | None,
        argument("WHAT", "rename: OLD NEW; merge: CLASS INTO; split, unlearn: CLASS; rollback: VERSION."),
    ] = None,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Rename, merge, split or unlearn a class, or go back.

    merge says that one class is another. split divides a class that the agent
    named (novel-1, …) by the images that it was learned from. rollback makes an
    earlier version the one in use; later ones are kept.
    """
    options.one_of("action", action, tuple(_ACTIONS))
    what = what or []
    if len(what) != len(_ACTIONS[action]):
        wants = " ".join(_ACTIONS[action])
        got = " ".join(what) or "nothing"
        raise SettingsError(f"{action} takes {wants}, got {got}: shels revise {model} {action} {wants}")
    from shels.agent.corrections import correct, rollback  # noqa: PLC0415
    from shels.agent.home import Home  # noqa: PLC0415

    home = Home(model)
    back = action == "rollback"
    changed = rollback(home, what[0], device) if back else correct(home, action, what, device)
    classes = list(changed.learner.classes)
    if as_json:
        facts = {"model": str(model), "action": action, "what": list(what), "done": changed.done}
        print_json(facts | {"classes": classes, "version": changed.version})
    else:
        version = f"{changed.version} of {model}; all others are kept"
        print_facts({"done": changed.done, "classes": listed(classes), "version": version})
