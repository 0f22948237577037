"""The experiments by name: which classes are known, which novel, and with what settings, trial by trial."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from shels.config import Adam, MeanMinusSd, Precision, Settings, TrainingSettings
from shels.config.presets import DEFAULT, PAPER
from shels.data.samples import Label
from shels.data.sources import named_set
from shels.data.splits import AUTHORS_ORDERS, authors_split, draw_classes
from shels.errors import SettingsError, unknown_name
from shels.experiments.methods import Method, Task
from shels.experiments.trials import MeasuredOn, Trial
from shels.experiments.variant import MARK, Variant, base_name
from shels.experiments.variants import variants_of

Point: TypeAlias = tuple[tuple[str, Any], ...]
"""A point of a sweep: names and values of training settings."""


@dataclass(frozen=True)
class Experiment:
    """One row of a table: what its trials have in common.

    title: for people. known_data, novel_data: data sets; within a data set both are the same.
    settings: what a method starts from. known_count: how many classes are known; None takes all of
    known_data, and all of novel_data as novel. novel_count: how many of the others are novel; None takes all.
    task: what methods are to do: tell novel samples from known ones, learn the novel classes one by one, or
    find and learn them as an agent that is told nothing.
    sweep: the points at which each trial is run, as fields of its training settings; one, unless it is a
    study of such a setting. measured_on: which images.
    methods: names or families of those that it is about, run where nobody says which; empty for our own.
    trial_count: how many trials it is run with where nobody says.
    variant: what makes it another experiment than the one of the same name before the "@".
    """

    name: str
    title: str
    known_data: str
    novel_data: str
    settings: Settings
    task: Task = "detection"
    known_count: int | None = None
    novel_count: int | None = None
    sweep: tuple[Point, ...] = ((),)
    methods: tuple[str, ...] = ()
    trial_count: int = 10
    measured_on: MeasuredOn = "test"
    variant: Variant | None = None

    def takes(self, method: Method) -> bool:
        """Tell whether a method has something to do here."""
        only = self.variant.methods if self.variant else ()
        return method.task == self.task and (not only or method.name in only)

    @property
    def base(self) -> str:
        """The experiment that it is a variant of, or itself, by name."""
        return base_name(self.name)

    @property
    def indented(self) -> str:
        """Its name in a list, a variant's set in under the experiment that it is of."""
        return f"  {self.name}" if self.variant else self.name

    @property
    def summary(self) -> str:
        """What it is, or what is otherwise than in the experiment that it is a variant of."""
        return f"  … {self.variant.label}" if self.variant else self.title

    @property
    def paired(self) -> bool:
        """Whether methods are compared seed by seed, on the same classes: within a data set.

        Across data sets all trials have the same classes, and the paper compares them as independent.
        """
        return self.known_data == self.novel_data

    def classes(self, seed: int) -> tuple[tuple[Label, ...], tuple[Label, ...]]:
        """Return the known and the novel classes of a trial, the same for every method.

        Of ten classes the trials 0-9 take the authors' orders, the first ones known. Later trials draw their
        classes from the seed; so do all of GTSRB, whose orders the paper does not give.
        """
        known = tuple(range(named_set(self.known_data).class_count))
        if self.known_count is None:
            return known, tuple(range(named_set(self.novel_data).class_count))
        if len(known) == 10 and seed < len(AUTHORS_ORDERS):
            split = authors_split(seed, self.known_count)
        else:
            split = draw_classes(known, self.known_count, seed)
        return split.known, split.novel[: self.novel_count]

    def trials(
        self,
        method: Method,
        count: int,
        *,
        epochs: int | None = None,
        weights: str | None = None,
        precision: Precision = "float32",
    ) -> list[Trial]:
        """Return the trials 0 to count - 1 of a method; the first ones are the same whatever the count.

        epochs: another length of training. weights: a file of VGG16's pretrained weights, for experiments
        that train VGG16; others go without. precision: what convolutions multiply in. All three make other
        trials.
        """
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise SettingsError(f"the number of trials must be a whole number, 1 or more, got {count!r}")
        if method.task != self.task:
            ways = f"{method.name} is a way of {method.task}, and {self.name} asks for {self.task}"
            raise SettingsError(ways)
        if not self.takes(method):
            raise SettingsError(f"{self.name} is about {', '.join(self.methods)}, not about {method.name}")
        settings = method.settings(_changed(self.settings, epochs, weights), self.known_data)
        points = [
            replace(settings, training=replace(settings.training, **dict(point))) for point in self.sweep
        ]
        sets = (self.known_data, self.novel_data)
        return [
            Trial(self.name, method.name, seed, *sets, *classes, point, precision, self.measured_on)
            for seed, classes in enumerate(map(self.classes, range(count)))
            for point in points
        ]

    def varied(self, variant: Variant) -> Experiment:
        """Give the same experiment with one choice made otherwise.

        >>> from shels.experiments.variants import VARIANTS
        >>> CATALOGUE["within/digits"].varied(VARIANTS["last-weights"]).name
        'within/digits@last-weights'
        """
        start, colon, rest = self.title.partition(":")
        return replace(
            self,
            name=f"{self.name}{MARK}{variant.name}",
            title=f"{start}, {variant.label}{colon}{rest}",
            settings=variant.applied(self.settings),
            measured_on=variant.measured_on,
            methods=variant.methods or self.methods,
            variant=variant,
        )


def _changed(settings: Settings, epochs: int | None, weights: str | None) -> Settings:
    if epochs is not None:
        settings = replace(settings, training=replace(settings.training, epochs=epochs, steps=None))
    if weights is not None and settings.network.architecture == "vgg16":
        settings = replace(settings, network=replace(settings.network, weights=weights))
    return settings


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


def _incremental(name: str, known: int, novel: int, note: str = "") -> Experiment:
    title = f"{_SHORT[name]}: {known} classes known, {novel} more learned one by one{note}"
    settings = _SETTINGS[name]
    made = Experiment(f"incremental/{name}", title, name, name, settings, "learning", known, novel)
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
_NOTE = " (needs no download; not in the paper)"
_DIGITS = (
    _within("digits", 5, _NOTE),
    _incremental("digits", 7, 3, _NOTE),
    _open_world("digits", 7, 3, note=_NOTE),
)


def _with_variants(experiments: Iterable[Experiment]) -> Iterator[Experiment]:
    """Give experiments, each followed by its variants."""
    for each in experiments:
        yield each
        yield from (each.varied(variant) for variant in variants_of(each.name))


CATALOGUE: dict[str, Experiment] = {each.name: each for each in _with_variants((*_PAPER, *_BEYOND, *_DIGITS))}
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
