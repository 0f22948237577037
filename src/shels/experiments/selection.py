"""Which trials a command asks for: each experiment with the methods of its task."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shels.data import sources
from shels.errors import DataError, MissingDataError, SettingsError
from shels.experiments.catalogue import Experiment, find_experiments
from shels.experiments.methods import FAMILIES, METHODS, Method, find_methods
from shels.experiments.trials import Trial
from shels.files import read_metadata

if TYPE_CHECKING:
    from shels.experiments.preparing import Source

Pairing = list[tuple[Experiment, list[Method]]]


@dataclass(frozen=True)
class Selection:
    """The trials that were asked for, and notes for people on what was left out."""

    trials: list[Trial]
    notes: list[str]

    def without(self, keys: Collection[str]) -> Selection:
        """Return the selection without the trials of these keys."""
        return replace(self, trials=[trial for trial in self.trials if trial.key not in keys])


def select_trials(
    names: Sequence[str], methods: Sequence[str] | None, count: int | None, changes: dict[str, Any]
) -> Selection:
    """Select the trials 0 to count - 1 of some experiments by some methods, each by name or by family.

    methods: None for those that each experiment is about; one that does not say is run with our own: SHELS's
    detection, and our ways to learn classes. count: None for each experiment's own number of trials.

    >>> chosen = select_trials(["within/digits"], ["shels", "ewc"], 3, {})
    >>> [trial.seed for trial in chosen.trials], chosen.notes
    ([0, 1, 2], ['left out, as no experiment asks for learning: ewc'])
    """
    if not names:
        raise SettingsError("name an experiment, such as within/fmnist; --list shows them all")
    experiments, chosen = find_experiments(names), _separate(methods)
    pairs = _paired(experiments, None if chosen is None else find_methods(chosen), names)
    trials = [
        each.trials(method, each.trial_count if count is None else count, **changes)
        for each, fitting in pairs
        for method in fitting
    ]
    return Selection([trial for some in trials for trial in some], _left_out(pairs, chosen or ()))


_KEPT = 3
"""Sets that stay in memory: as many as the trials of one network need at most."""


def named_data(data_dir: Path | None) -> Source:
    """Make the loader of named sets for the engine; resized on reading only where images have many sizes.

    The last ones stay: an experiment's groups ask for the same, and reading all of GTSRB takes 20 seconds.
    """

    @lru_cache(maxsize=_KEPT)
    def load(name: str, size: int | None) -> Any:
        return sources.load_named(name, data_dir, size if sources.named_set(name).any_size else None)

    return load


def check_data(trials: Sequence[Trial], data_dir: Path | None) -> None:
    """Raise unless the data of these trials are here and whole, before anything is trained."""
    sets = _needed(trials, data_dir)
    for each in sets:
        if each.problem:
            raise DataError(each.problem)
    absent = [each.name for each in sets if not each.present]
    if absent:
        raise MissingDataError(_absence(absent, data_dir))


def without_data(
    trials: Sequence[Trial], names: Sequence[str], data_dir: Path | None, weights: Path | None
) -> tuple[list[Trial], list[str]]:
    """Find the trials that cannot be run here and that nobody asked for by name, and say what they lack.

    names: what was asked for; an experiment that only came with its family may be left out, be it that a data
    set is missing or damaged, or that VGG16's pretrained weights are not given.
    """
    free = [trial for trial in trials if trial.experiment not in names]
    lacking = [each for each in _needed(free, data_dir) if each.problem or not each.present]
    unusable = {each.name for each in lacking}
    fresh = {trial.key for trial in free if weights is None and _takes_weights(trial)}
    left = [each for each in free if each.key in fresh or unusable & {each.known_data, each.novel_data}]
    if not left:
        return [], []
    notes = [f"left out, as not all that they need is here: {', '.join(_experiments(left))}"]
    absent = [each.name for each in lacking if not each.present and not each.problem]
    notes += [_absence(absent, data_dir)] if absent else []
    notes += [each.problem for each in lacking if each.problem]
    notes += ["VGG16's pretrained weights are not given; name their file with --weights"] if fresh else []
    return left, notes


def _needed(trials: Sequence[Trial], data_dir: Path | None) -> list[sources.Listed]:
    """List the data sets of these trials."""
    names = {name for trial in trials for name in (trial.known_data, trial.novel_data)}
    return [each for each in sources.listing(data_dir) if each.name in names] if names else []


def _absence(names: Sequence[str], data_dir: Path | None) -> str:
    """Say which data sets are not here, and how to get them."""
    fetching = ", ".join(f"`shels data download {name}`" for name in names)
    return (
        f"{sources.data_directory(data_dir)} has no {', no '.join(names)}; run {fetching}, or name another "
        "folder with --data-dir (`shels data` tells what is where)"
    )


def _takes_weights(trial: Trial) -> bool:
    return trial.settings.network.architecture == "vgg16"


def _experiments(trials: Sequence[Trial]) -> list[str]:
    """Name the experiments of some trials, each once."""
    return list(dict.fromkeys(trial.experiment for trial in trials))


def check_weights(trials: Sequence[Trial], weights: Path | None) -> list[str]:
    """Raise where pretrained weights cannot be used by these trials; note where the paper's use some."""
    large = _experiments([trial for trial in trials if _takes_weights(trial)])
    if weights is None:
        names = ", ".join(sorted(large))
        return [f"VGG16 starts fresh in {names}; the paper's is pretrained (--weights)"] if large else []
    if trials and not large:
        raise SettingsError("--weights is for experiments that train VGG16, and none of these does")
    if trials:
        read_metadata(weights)
    return []


def _separate(given: Sequence[str] | None) -> list[str] | None:
    if given is None:
        return None
    chosen = [name.strip() for text in given for name in text.split(",") if name.strip()]
    if not chosen:
        raise SettingsError("--methods names no method; --list shows them all")
    return chosen


def _fitting(experiment: Experiment, methods: Sequence[Method] | None) -> list[Method]:
    """Choose the methods that an experiment takes; of none given those it is about, else our own."""
    own = [METHODS["shels"], *(each for each in FAMILIES["own"] if each.task == "learning")]
    usual = find_methods(experiment.methods) if experiment.methods else own
    return [method for method in (usual if methods is None else methods) if experiment.takes(method)]


def _paired(
    experiments: Sequence[Experiment], methods: Sequence[Method] | None, names: Sequence[str]
) -> Pairing:
    """Pair experiments with the methods they take; those that came with a family may be left without."""
    pairs = [(each, _fitting(each, methods)) for each in experiments]
    without = [each for each, fitting in pairs if not fitting]
    for each in without:
        if each.name in names or len(without) == len(pairs):
            fitting = ", ".join(method.name for method in METHODS.values() if each.takes(method))
            only = ", ".join(each.variant.methods) if each.variant else ""
            about = f"{each.name} is about {only or each.task}, and none of --methods is"
            raise SettingsError(f"{about}; choose from: {fitting}")
    return pairs


def _left_out(pairs: Pairing, words: Sequence[str]) -> list[str]:
    """Note experiments without a method, and methods given by name that have nothing to do.

    Of a family some may well have nothing to do.
    """
    without = [each for each, fitting in pairs if not fitting]
    used = {method.name for _, fitting in pairs for method in fitting}
    unused = [name for name in dict.fromkeys(words) if name in METHODS and name not in used]
    notes = []
    by_task = [each for each in without if not any(each.task == METHODS[name].task for name in used)]
    for task in dict.fromkeys(each.task for each in by_task):
        names = ", ".join(each.name for each in by_task if each.task == task)
        notes.append(f"left out, as none of --methods is for {task}: {names}")
    if len(without) > len(by_task):
        names = ", ".join(each.name for each in without if each not in by_task)
        notes.append(f"left out, as they are about other methods than --methods: {names}")
    if unused:
        task = METHODS[unused[0]].task
        notes.append(f"left out, as no experiment asks for {task}: {', '.join(unused)}")
    return notes
