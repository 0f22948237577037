"""What a person does to a model on disk: teach it a class, correct its classes, go back to a version."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shels.agent.events import ACCOMMODATED
from shels.agent.versioned import VersionedLearner
from shels.data.inputs import read_class
from shels.data.splits import known_class, new_class
from shels.errors import ModelFileError, SettingsError
from shels.learner.training_directory import load_learner

if TYPE_CHECKING:
    from shels.agent.home import Home
    from shels.data.samples import Label
    from shels.learner.learner import Learner
    from shels.training import Progress


@dataclass(frozen=True, eq=False)
class Correction:
    """A model after a change: the learner, the version that it is in use as, and what was done, in words."""

    learner: Learner
    version: int
    done: str = ""


def teaching(
    home: Home, images: Sequence[Path], name: str, device: str = "auto"
) -> Generator[Progress, None, Correction]:
    """Take one more class in from images of it; what is wrong with them is said before anything changes."""
    home.settle()
    was_home = home.exists
    with home.lock() if was_home else nullcontext():  # a plain model is left alone until all is well
        learner = load_learner(home.directory, device)
        label = new_class(name, learner.classes)
        inputs = read_class(images, learner.preparation)
        after = yield from learner.accommodating(inputs, label)
        with home.lock():
            if not was_home:
                require_unchanged(home, None)
            home.adopt()
            note = after.report["taken_in"][-1]
            facts = {"name": note["class"], "images": note["images"], "by": "person"}
            facts |= {"seconds": note["seconds"], "method": note["method"]}
            VersionedLearner(learner, home).change(ACCOMMODATED, facts, after)
            return Correction(after, home.version)


def rollback(home: Home, version: str, device: str = "auto") -> Correction:
    """Make an earlier version the one in use; a damaged pointer or version in use is repaired by that."""
    home.settle()
    if not version.isascii() or not version.isdigit():
        raise SettingsError(f"a version is a whole number such as 1, got {version!r}")
    if not home.exists and not home.versions():
        raise ModelFileError(f"{home.directory} has no earlier versions: nothing was changed since training")
    number = int(version)
    with home.lock():
        learner = home.load(device, version=number)  # refused before anything changes
        before, current = number, learner
        try:
            before = home.version
            current = home.load(device)
        except ModelFileError:
            home.rollback(number)
        VersionedLearner(current, home).rollback(number)
    instead = f", instead of {before}" * (before != number)
    return Correction(learner, home.version, f"version {number} is in use again{instead}")


def correct(home: Home, action: str, what: Sequence[str], device: str = "auto") -> Correction:
    """Change the classes of a model by rename, merge, split or unlearn. what: their names, as written."""
    home.settle()
    learner = load_learner(home.directory, device)
    names = _classes(action, what, learner.classes)
    if not home.exists:
        _apply(VersionedLearner(learner), action, names)  # refused before the directory changes
    with home.lock():
        home.adopt()
        model = VersionedLearner(home.load(device), home)
        done = _apply(model, action, names)
    return Correction(model.learner, home.version, done)


def set_accept_share(home: Home, share: float, device: str = "auto") -> Correction:
    """Accept another share of known samples; nothing is trained."""
    home.settle()
    load_learner(home.directory, device).with_accept_share(share)  # refused before the directory changes
    with home.lock():
        home.adopt()
        model = VersionedLearner(home.load(device), home)
        model.set_accept_share(share)
    return Correction(model.learner, home.version, f"{100 * share:g} % of known samples are accepted now")


def require_unchanged(home: Home, version: int | None) -> None:
    """Raise where another run changed a home since it was at this version, None for no home yet."""
    if (home.version if home.exists else None) != version:
        raise ModelFileError(f"{home.directory} was changed by another run meanwhile; run this again")


def _apply(model: VersionedLearner, action: str, names: Sequence[Label]) -> str:
    method, words = _ACTIONS[action]
    return words.format(*names, *(method(model, *names) or ()))


def _classes(action: str, what: Sequence[str], classes: Sequence[Label]) -> list[Label]:
    found = [known_class(what[0], classes)]
    if action == "rename":
        found.append(new_class(what[1], classes))
    elif action == "merge":
        found.append(known_class(what[1], classes))
    if len(set(found)) != len(found):
        raise SettingsError(f"{action}: both names are {found[0]!r}, so there is nothing to do")
    return found


_ACTIONS: dict[str, tuple[Callable[..., tuple[Label, ...] | None], str]] = {
    "rename": (VersionedLearner.rename, "{} is called {} now"),
    "merge": (VersionedLearner.merge, "all that was {} is {} now"),
    "split": (VersionedLearner.split, "{} is now {} and {}"),
    "unlearn": (VersionedLearner.unlearn, "{} is not known any more"),
}
"""What can be done to classes, and the words for it: the names given come first, then those returned."""
