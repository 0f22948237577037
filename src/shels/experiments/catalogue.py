"""The experiments by name: which classes are known, which novel, and with what settings, trial by trial."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

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


@dataclass(frozen=True)
class Experiment:
    """One row of a table: what its trials have in common.

    title: for people. known_data, novel_data: data sets; within a data set both are the same.
    settings: what a method starts from. known_count: how many classes are known; None takes all of
    known_data, and all of novel_data as novel. novel_count: how many of the others are novel; None takes all.
    task: what methods are to do: tell novel samples from known ones, or learn the novel classes one by one.
    measured_on: which images. methods: the only ones that it is for; none named are all of the task.
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
    measured_on: MeasuredOn = "test"
    methods: tuple[str, ...] = ()
    variant: Variant | None = None

    def takes(self, method: Method) -> bool:
        """Tell whether a method has something to do here."""
        return method.task == self.task and method.name in (self.methods or (method.name,))

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
        sets = (self.known_data, self.novel_data)
        return [
            Trial(self.name, method.name, seed, *sets, *classes, settings, precision, self.measured_on)
            for seed, classes in enumerate(map(self.classes, range(count)))
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
            methods=variant.methods,
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
    return Experiment(f"within/{name}", title, name, name, _SETTINGS[name], known_count=known_count)


def _across(known: str, novel: str) -> Experiment:
    title = f"{_SHORT[known]} known, {_SHORT[novel]} novel"
    settings = PAPER.get(f"{known}-across", PAPER[known])  # CIFAR10 trains another network across data sets
    return Experiment(f"across/{known}-{novel}", title, known, novel, settings)


def _incremental(name: str, known: int, novel: int, note: str = "") -> Experiment:
    title = f"{_SHORT[name]}: {known} classes known, {novel} more learned one by one{note}"
    settings = _SETTINGS[name]
    return Experiment(f"incremental/{name}", title, name, name, settings, "learning", known, novel)


_PAPER_SETS = {"mnist": "MNIST", "fmnist": "FMNIST", "svhn": "SVHN", "cifar10": "CIFAR10", "gtsrb": "GTSRB"}
_SHORT = _PAPER_SETS | {"digits": "digits"}

# The paper's rule on scikit-learn's digits, with a network for 8 x 8 pixels: two seconds a trial on a CPU.
_DIGITS_TRAINING = TrainingSettings(Adam(1e-3), batch_size=32, steps=300, check_every=100)
_SETTINGS = PAPER | {"digits": replace(DEFAULT, training=_DIGITS_TRAINING, rule=MeanMinusSd(k=1.0))}

# Tables 1 and 2 in the order of the paper's data sets, class counts from its section on detection; then its
# class-incremental experiments, class counts from their section.
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
    _incremental("mnist", 7, 3),
    _incremental("fmnist", 4, 3),
    _incremental("gtsrb", 23, 9),
)
_NOTE = " (needs no download; not in the paper)"
_DIGITS = (_within("digits", 5, _NOTE), _incremental("digits", 7, 3, _NOTE))


def _with_variants(experiments: Iterable[Experiment]) -> Iterator[Experiment]:
    """Give experiments, each followed by its variants."""
    for each in experiments:
        yield each
        yield from (each.varied(variant) for variant in variants_of(each.name))


CATALOGUE: dict[str, Experiment] = {each.name: each for each in _with_variants((*_PAPER, *_DIGITS))}
"""Every experiment that can be run, by its name, variants after the experiment that they are of."""


def _variants(family: str) -> tuple[Experiment, ...]:
    return tuple(each for each in CATALOGUE.values() if each.variant and each.variant.family == family)


_REPORTED = tuple(each for each in CATALOGUE.values() if each in (*_PAPER, *_variants("paper")))

FAMILIES: dict[str, tuple[Experiment, ...]] = {
    **{
        family: tuple(each for each in _REPORTED if each.name.startswith(f"{family}/"))
        for family in ("within", "across", "incremental")
    },
    "paper": _REPORTED,
    "fidelity": _variants("fidelity"),
}
"""Names for several experiments at once; the digits are in none, as the paper does not have them."""

_LATER = ("open-world", "exclusivity", "group-sparsity")


def find_experiments(names: Iterable[str]) -> list[Experiment]:
    """Find the experiments of these names, each once, in the order given.

    A name is one of CATALOGUE or of FAMILIES; a family gives its experiments in the catalogue's order.
    """
    found: dict[str, Experiment] = {}
    choices = (*FAMILIES, *CATALOGUE)
    for name in names:
        if name.partition("/")[0] in _LATER:
            raise SettingsError(f"experiment {name!r} is not there yet (choose from: {', '.join(choices)})")
        if name not in choices:
            raise SettingsError(unknown_name("experiment", name, choices))
        found |= {each.name: each for each in FAMILIES.get(name) or (CATALOGUE[name],)}
    return list(found.values())
