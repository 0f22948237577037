"""The methods that an experiment can compare: how each trains, and how each judges afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from shels.config import Accommodation, Gdumb, Settings, TrainingSettings
from shels.config.presets import ordinary, with_learner
from shels.detection.registry import RIVALS
from shels.errors import SettingsError, unknown_name
from shels.learning.registry import LEARNERS, LearnerEntry, method_of
from shels.model.networks import Network
from shels.training import Loss, Objective, shels_loss
from shels.training.losses import exclusive_sparsity_loss, scaled_cosine_loss, softmax_twice_loss

PAPER = "Gummadi, Kent, Mendez, Eaton, CoLLAs 2022"


Task = Literal["detection", "learning"]


@dataclass(frozen=True)
class Method:
    """A way to detect novelty, or to learn new classes. Methods that train alike share one trained network.

    family: what several methods are called together. stores: what it keeps of the known samples.
    settings: the paper's settings for a data set, changed to what this method needs there.
    score: the detector, a name of `shels.detection.registry.DETECTORS`. ranking: another one by whose score
    known and novel samples are ranked for AUROC and its like; verdicts stay the first one's.
    loss: what a way to detect trains with; ways to learn say so themselves.
    """

    name: str
    title: str
    family: str
    paper: str
    stores: str
    settings: Callable[[Settings, str], Settings]
    score: str
    loss: Callable[[Network, TrainingSettings], Loss] = shels_loss
    task: Task = "detection"
    ranking: str = ""


def _as_it_is(settings: Settings, _data: str) -> Settings:
    return settings


def _standard(settings: Settings, _data: str) -> Settings:
    return ordinary(settings)


def _scaled(settings: Settings, _data: str) -> Settings:
    """Train cosines with a learned scale by cross-entropy alone."""
    return replace(ordinary(settings), network=replace(settings.network, head="scaled-cosine"))


_COSINE, _EXCLUSIVE = "Techapanurak, Suganuma, Okatani, ACCV 2020", "Zhou, Jin, Hoi, AISTATS 2010"
_GAUSSIAN = "SHELS network, Gaussian score"
_TRAINED = (
    Method("shels", "SHELS", "own", PAPER, "nothing", _as_it_is, "shels"),
    Method("shels-gaussian", _GAUSSIAN, "own", "this software", "statistics", _as_it_is, "gaussian"),
    Method("standard-linear", "linear head, SHELS score", "trained", PAPER, "nothing", _standard, "shels"),
    Method(
        *("scaled-cosine", "scaled cosine", "trained", _COSINE, "nothing", _scaled, "max-logit"),
        loss=scaled_cosine_loss,
    ),
    Method(
        *("exclusive-sparsity", "exclusive sparsity", "trained", _EXCLUSIVE, "nothing", _standard, "shels"),
        loss=exclusive_sparsity_loss,
    ),
    Method(
        *("scaled-cosine-authors", "scaled cosine, authors' code", "authors", PAPER, "nothing"),
        *(_scaled, "max-logit"),
        loss=softmax_twice_loss,
        ranking="shels",
    ),
)
_TITLES = {
    "msp": "MSP",
    "gen": "GEN",
    "odin": "ODIN",
    "react": "ReAct",
    "ash": "ASH",
    "vim": "ViM",
    "fdbd": "fDBD",
    "knn": "k-NN",
    "mahalanobis": "Mahalanobis",
    "mahalanobis-layers": "Mahalanobis, two layers",
    "relative-mahalanobis": "relative Mahalanobis",
    "openmax": "OpenMax",
}
_POST_HOC = tuple(
    Method(name, _TITLES.get(name, name), "post-hoc", each.paper, each.stores, _standard, name)
    for name, each in RIVALS.items()
)


def _learning(each: LearnerEntry, way: Accommodation, name: str = "", title: str = "") -> Method:
    def settings(base: Settings, data: str) -> Settings:
        return with_learner(base, way, standard=each.standard, data=data)

    about = (name or each.name, title or each.title, each.family, each.paper, each.stores)
    return Method(*about, settings, each.detector, task="learning")


def _learnings() -> Iterator[Method]:
    """Give a method for each way to learn, GDumb's original protocol after the SHELS paper's."""
    for name, each in LEARNERS.items():
        yield _learning(each, each.settings())
        if name == Gdumb.kind:
            yield _learning(each, Gdumb(start="scratch"), "gdumb-scratch", "GDumb, from scratch")


METHODS = {method.name: method for method in (*_TRAINED, *_POST_HOC, *_learnings())}
FAMILIES = {
    family: tuple(each for each in METHODS.values() if each.family == family)
    for family in dict.fromkeys(each.family for each in METHODS.values())
}


class InitialTraining(NamedTuple):
    """How a trial's network is trained at first. key: the same for trainings that do the same."""

    key: tuple[Any, ...]
    objective: Callable[[Network, TrainingSettings], Objective]


def initial_training(method: str, settings: Settings) -> InitialTraining:
    """Return how a method trains its network at first."""
    chosen = METHODS[method]
    if chosen.task == "learning":
        learner = method_of(settings.accommodation)
        return InitialTraining(learner.about_initial() or (shels_loss.__name__,), learner.initial)

    def objective(network: Network, training: TrainingSettings) -> Objective:
        return Objective(chosen.loss(network, training), training)

    return InitialTraining((chosen.loss.__name__,), objective)


def find_methods(names: Sequence[str]) -> list[Method]:
    """Return the methods of these names or families, each once, in the order given."""
    found: dict[str, Method] = {}
    for name in names:
        if name not in METHODS and name not in FAMILIES:
            raise SettingsError(unknown_name("method", name, [*METHODS, *FAMILIES]))
        found |= {each.name: each for each in FAMILIES.get(name) or (METHODS[name],)}
    return list(found.values())
