"""The experiments by name: which classes are known, which novel, and with what settings, trial by trial."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from shels.config import OWN, Adam, MeanMinusSd, TrainingSettings
from shels.config.presets import BEST, DEFAULT, PAPER
from shels.data.sources import named_set
from shels.errors import SettingsError, unknown_name
from shels.experiments import open_set
from shels.experiments.experiment import Experiment
from shels.experiments.variants import variants_of

__all__ = ["CATALOGUE", "FAMILIES", "Experiment", "find_experiments"]


def _within(name: str, known_count: int, note: str = "") -> Experiment:
    classes = named_set(name).class_count
    title = f"{_SHORT[name]}: {known_count} of {classes} classes known, the others novel{note}"
    made = Experiment(f"within/{name}", title, name, name, _SETTINGS[name], known_count=known_count)
    return replace(made, methods=_DETECTION) if name in _PAPER_SETS else made


def _across(known: str, novel: str) -> Experiment:
    title = f"{_SHORT[known]} known, {_SHORT[novel]} novel"
    settings = PAPER.get(f"{known}-across", PAPER[known])  # CIFAR10 trains another network across data sets
    count = 3 if settings.network.architecture == "vgg16" else 10  # VGG16 takes long
    name = f"across/{known}-{novel}"
    return Experiment(name, title, known, novel, settings, methods=_DETECTION, trial_count=count)


def _incremental(name: str, known: int, novel: int, note: str = "", suffix: str = "") -> Experiment:
    title = f"{_SHORT[name]}: {known} classes known, {novel} more learned one by one{note}"
    about = (f"incremental/{name}{suffix}", title, name, name, _SETTINGS[name])
    made = Experiment(*about, "learning", known, novel)
    count = 3 if name == "gtsrb" else 10  # as in the paper
    return replace(made, methods=_LEARNING, trial_count=count) if name in _PAPER_SETS else made


def _open_world(
    name: str, known: int, novel: int, suffix: str = "", note: str = "", without: tuple[str, ...] = ()
) -> Experiment:
    """Let agents find classes. without: the methods that take minutes there, run where they are named."""
    title = f"{_SHORT[name]}: {known} classes known, an agent is to find {novel} more{note}"
    methods = tuple(method for method in _AGENTS if method not in without)
    count = 3 if name in ("gtsrb", "cifar10") else 5
    about = (f"open-world/{name}{suffix}", title, name, name, _SETTINGS[name])
    return Experiment(*about, "open-world", known, novel, methods=methods, trial_count=count)


def _exclusivity() -> Experiment:
    title = "FMNIST: exclusivity of features, 5 of 10 classes known"
    sets = ("fmnist", "fmnist", PAPER["fmnist"])
    return Experiment("exclusivity", title, *sets, known_count=5, methods=("shels", "trained"))


def _group_sparsity(name: str) -> Experiment:
    """Vary the weight of the group sparsity, with the same in every layer and with less in later ones.

    Without any the two are the same.
    """
    title = f"{_SHORT[name]}: group sparsity of weight 0 to 0.02, constant and fading with depth"
    alphas = [step / 1000 for step in range(21)]
    kinds = ("layer-wise", "constant")
    sweep = tuple(
        (("alpha", alpha), ("depth_weights", kind)) for alpha in alphas for kind in kinds[: 2 if alpha else 1]
    )
    sets = (name, name, _SETTINGS[name])
    return Experiment(f"group-sparsity/{name}", title, *sets, known_count=5, sweep=sweep)


def _few_shot(name: str, known: int, novel: int, note: str = "") -> Experiment:
    """Learn new classes from ever more images; which of them come first, a seed decides for all methods."""
    title = f"{_SHORT[name]}: {known} classes known, {novel} more learned from 1 to 500 images each{note}"
    about = (f"few-shot/{name}", title, name, name, _SETTINGS[name])
    sweep = tuple((("images", size),) for size in ENTRY_SIZES)
    count = 3 if name == "gtsrb" else 10
    made = Experiment(*about, "learning", known, novel, sweep=sweep, trial_count=count)
    return replace(made, methods=("gaussian", "gaussian-rectified", "slda", "ranpac"))


def _open_set(name: str, note: str = "") -> Experiment:
    """Tell six classes from four by the splits that the open-set literature compares on."""
    title = f"{_SHORT[name]}: 6 of 10 classes known, the others novel, the open-set literature's splits{note}"
    about = (f"osr/{name}", title, name, name, open_set.settings_of(name, _SETTINGS[name]))
    splits = open_set.SPLITS[name]
    made = Experiment(*about, known_count=6, methods=open_set.METHODS)
    return replace(made, trial_count=len(splits), splits=splits)


def _at_best(experiment: Experiment, methods: tuple[str, ...] = ()) -> Experiment:
    """Give an experiment with the preset "best" in place of the paper's settings.

    It is about the fused score, and the Gaussian one on the same networks; or about these methods. Where
    classes are taken in, learners keep their own detectors: the fused score lets classes that came later
    accept too much (docs/log.md).
    """
    settings = BEST[experiment.known_data]
    if experiment.task != "detection":
        settings = replace(settings, detector=OWN)
    start, _, rest = experiment.title.partition(":")
    return replace(
        experiment,
        name=f"{experiment.name}{AT_BEST}",
        title=f"{start}, at best:{rest}" if rest else f"{start}, at best",
        settings=settings,
        methods=methods or ("shels-fused", "shels-gaussian"),
    )


AT_BEST = "@best"
"""What the names of experiments with the preset "best" end in."""
ENTRY_SIZES = (1, 2, 5, 10, 20, 50, 100, 500)
"""Images of each new class in an experiment on few of them; a class that has fewer gives all."""
_PAPER_SETS = {"mnist": "MNIST", "fmnist": "FMNIST", "svhn": "SVHN", "cifar10": "CIFAR10", "gtsrb": "GTSRB"}
_SHORT = _PAPER_SETS | {"digits": "digits"}

_DETECTION = ("shels", "scaled-cosine", "shels-gaussian")  # the paper's method and rival, and our own score
_AGENTS = ("shels-agent", "maha-agent", "gaussian-agent", "joint-bound")
_LEARNING = ("own", "ablation", "ags-cl", "gdumb", "shels-gdumb", "closed-form", "bounds")

# The paper's rule on scikit-learn's digits, with a network for 8 x 8 pixels: two seconds a trial on a CPU.
_DIGITS_TRAINING = TrainingSettings(Adam(1e-3), batch_size=32, steps=300, check_every=100)
_SETTINGS = PAPER | {"digits": replace(DEFAULT, training=_DIGITS_TRAINING, rule=MeanMinusSd(k=1.0))}

# Tables 1 and 2 in the order of the paper's data sets, class counts from its section on detection; then the
# appendix's studies of exclusivity and sparsity, the class-incremental experiments, and those without class
# boundaries, counts from theirs.
_PAPER = (
    *(_within(name, 23 if name == "gtsrb" else 5) for name in _PAPER_SETS),
    _across("mnist", "fmnist"),
    _across("fmnist", "mnist"),
    _across("gtsrb", "cifar10"),
    _across("gtsrb", "svhn"),
    _across("svhn", "cifar10"),
    _across("svhn", "gtsrb"),
    _across("cifar10", "gtsrb"),
    _across("cifar10", "svhn"),
    _exclusivity(),
    _group_sparsity("fmnist"),
    _group_sparsity("cifar10"),
    _incremental("mnist", 7, 3),
    _incremental("fmnist", 4, 3),
    _incremental("gtsrb", 23, 9),
    _open_world("mnist", 7, 3),
    _open_world("fmnist", 4, 3),
)
# What the paper did not try: all classes of a set, and two new ones at once among known ones. Taking many
# classes in by training, and training all of a large set at once, takes minutes on a GPU.
_MIXED = ", two of them at once among known ones"
_BEYOND = (
    _open_world("fmnist", 4, 6, "-all", without=("shels-agent",)),
    _open_world("gtsrb", 23, 20, without=("shels-agent", "joint-bound")),
    _open_world("cifar10", 5, 5, without=("shels-agent", "joint-bound")),
    _open_world("mnist", 7, 3, "@mixed", _MIXED),
    _open_world("fmnist", 4, 3, "@mixed", _MIXED),
)
_FEW_SHOT = (_few_shot("mnist", 7, 3), _few_shot("fmnist", 4, 3), _few_shot("gtsrb", 23, 9))
_OPEN_SET = tuple(map(_open_set, ("mnist", "svhn", "cifar10")))
_LEARNERS_AT_BEST = ("gaussian", "slda", "ranpac", "joint")
_AT_BEST = (
    *(_at_best(each) for each in _PAPER if each.name.startswith(("within/", "across/"))),
    _at_best(_incremental("mnist", 7, 3), _LEARNERS_AT_BEST),
    _at_best(_incremental("fmnist", 4, 3), _LEARNERS_AT_BEST),
    _at_best(_incremental("fmnist", 4, 6, suffix="-all"), _LEARNERS_AT_BEST),
    _at_best(_incremental("gtsrb", 23, 20, suffix="-all"), _LEARNERS_AT_BEST),
    _at_best(_incremental("cifar10", 5, 5), _LEARNERS_AT_BEST),
    *(
        _at_best(each, ("gaussian-agent", "joint-bound"))
        for each in (*_PAPER, *_BEYOND)
        if each.name.startswith("open-world/")
    ),
)
_NOTE = " (needs no download; not in the paper)"
_DIGITS = (
    _within("digits", 5, _NOTE),
    _at_best(_within("digits", 5, _NOTE)),
    _incremental("digits", 7, 3, _NOTE),
    _open_world("digits", 7, 3, note=_NOTE),
    _few_shot("digits", 7, 3, _NOTE),
    _open_set("digits", _NOTE),
)


def _with_variants(experiments: Iterable[Experiment]) -> Iterator[Experiment]:
    """Give experiments, each followed by its variants."""
    for each in experiments:
        yield each
        yield from (each.varied(variant) for variant in variants_of(each.name))


CATALOGUE: dict[str, Experiment] = {
    each.name: each
    for each in _with_variants((*_PAPER, *_BEYOND, *_AT_BEST, *_FEW_SHOT, *_OPEN_SET, *_DIGITS))
}
"""Every experiment that can be run, by its name, variants after the experiment that they are of."""


def _variants(family: str) -> tuple[Experiment, ...]:
    return tuple(each for each in CATALOGUE.values() if each.variant and each.variant.family == family)


_REPORTED = tuple(each for each in CATALOGUE.values() if each in (*_PAPER, *_variants("paper")))

FAMILIES: dict[str, tuple[Experiment, ...]] = {
    **{
        family: tuple(each for each in (*_REPORTED, *_BEYOND) if each.name.startswith(f"{family}/"))
        for family in ("within", "across", "group-sparsity", "incremental", "open-world")
    },
    "paper": _REPORTED,
    "beyond": _BEYOND,
    "best": _AT_BEST,
    "few-shot": _FEW_SHOT,
    "osr": _OPEN_SET,
    "fidelity": _variants("fidelity"),
}
"""Names for several experiments at once; the digits are in none, as the paper does not have them."""


def find_experiments(names: Iterable[str]) -> list[Experiment]:
    """Find the experiments of these names, each once, in the order given.

    A name is one of CATALOGUE or of FAMILIES; a family gives its experiments in the catalogue's order.
    """
    found: dict[str, Experiment] = {}
    for name in names:
        if name not in FAMILIES and name not in CATALOGUE:
            raise SettingsError(_unknown(name))
        found |= {each.name: each for each in FAMILIES.get(name) or (CATALOGUE[name],)}
    return list(found.values())


def _unknown(name: str) -> str:
    """Say that there is no such experiment: with the nearest one, and where all are named, which are many."""
    near = unknown_name("experiment", name, (*FAMILIES, *CATALOGUE)).partition(" (")[0]
    return f"{near} (`shels reproduce --list` names all; at once: {', '.join(FAMILIES)})"
