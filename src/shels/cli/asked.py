"""Which trials the words of `shels reproduce` stand for: each experiment with the methods of its task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shels.cli.display import say
from shels.errors import SettingsError
from shels.experiments.catalogue import Experiment, find_experiments
from shels.experiments.methods import FAMILIES, METHODS, Method, find_methods
from shels.experiments.trials import Trial


def asked_trials(
    names: Sequence[str], words: Sequence[str] | None, count: int, changes: dict[str, Any]
) -> list[Trial]:
    """Return the trials 0 to count - 1 of the experiments of these names, by the methods of these words.

    words: what --methods was given; None for the methods that are taken where it is left out.
    """
    if not names:
        raise SettingsError("name an experiment, such as within/fmnist; --list shows them all")
    experiments, chosen = find_experiments(names), _words(words)
    methods = _usual() if chosen is None else find_methods(chosen)
    taken = _with_methods(experiments, methods, names)
    _note_unused(taken, chosen or ())
    trials = [each.trials(method, count, **changes) for each, fitting in taken for method in fitting]
    return [trial for row in trials for trial in row]


def _words(given: Sequence[str] | None) -> list[str] | None:
    if given is None:
        return None
    chosen = [name.strip() for text in given for name in text.split(",") if name.strip()]
    if not chosen:
        raise SettingsError("--methods names no method; --list shows them all")
    return chosen


def _usual() -> list[Method]:
    """Return what is run unless methods are named: SHELS's detection, and our own ways to learn classes."""
    return [METHODS["shels"], *(each for each in FAMILIES["own"] if each.task == "learning")]


Taken = list[tuple[Experiment, list[Method]]]


def _with_methods(
    experiments: Sequence[Experiment], methods: Sequence[Method], names: Sequence[str]
) -> Taken:
    """Return experiments with the methods of their task; those that came with a family may be left out."""
    taken = [(each, [method for method in methods if method.task == each.task]) for each in experiments]
    without = [each for each, fitting in taken if not fitting]
    for each in without:
        if each.name in names or len(without) == len(taken):
            fitting = ", ".join(method.name for method in METHODS.values() if method.task == each.task)
            raise SettingsError(
                f"{each.name} is about {each.task}, and none of --methods is; choose from: {fitting}"
            )
    if without:
        left = ", ".join(each.name for each in without)
        say(f"note: left out, as none of --methods is for {without[0].task}: {left}")
    return [(each, fitting) for each, fitting in taken if fitting]


def _note_unused(taken: Taken, words: Sequence[str]) -> None:
    """Say which methods were asked for by name and have nothing to do; of a family some may well have."""
    used = {method.name for _, fitting in taken for method in fitting}
    unused = [name for name in dict.fromkeys(words) if name in METHODS and name not in used]
    if unused:
        say(f"note: left out, as no experiment asks for {METHODS[unused[0]].task}: {', '.join(unused)}")
