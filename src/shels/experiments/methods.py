"""The methods that an experiment can compare: how each trains, and how each judges afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from shels.agent.alarm import PresetShare
from shels.agent.observation import AgentSettings, ProposalSettings
from shels.config import OWN, AcceptShare, Accommodation, Gaussian, Gdumb, Penalty, Settings, TrainingSettings
from shels.config.presets import ordinary, with_learner
from shels.data.arrays import sorted_classes
from shels.data.samples import Label
from shels.detection.registry import RIVALS
from shels.errors import SettingsError, unknown_name
from shels.experiments.trials import Trial
from shels.learning.registry import LEARNERS, LearnerEntry, method_of
from shels.model.networks import Network
from shels.training import Loss, Objective, shels_loss
from shels.training.losses import exclusive_sparsity_loss, scaled_cosine_loss, softmax_twice_loss

PAPER = "Gummadi, Kent, Mendez, Eaton, CoLLAs 2022"


Task = Literal["detection", "learning", "open-world"]


@dataclass(frozen=True)
class Method:
    """A way to detect novelty, to learn new classes, or both. Methods that train alike share one network.

    family: what several methods are called together. stores: what it keeps of the known samples.
    settings: the paper's settings for a data set, changed to what this method needs there.
    score: the detector, a name of `shels.detection.registry.DETECTORS`. ranking: another one by whose score
    known and novel samples are ranked for AUROC and its like; verdicts stay the first one's.
    loss: what a way to detect trains with; ways to learn say so themselves.
    agent: of the open world, when the agent on a data set switches to learning; None knows every class.
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
    agent: Callable[[str], AgentSettings] | None = None

    @property
    def knows_all(self) -> bool:
        """Whether it is taught the novel classes at first, as a bound on those that must find them."""
        return self.task == "open-world" and self.agent is None


def _as_it_is(settings: Settings, _data: str) -> Settings:
    return settings


def _standard(settings: Settings, _data: str) -> Settings:
    return ordinary(settings)


def _scaled(settings: Settings, _data: str) -> Settings:
    """Train cosines with a learned scale by cross-entropy alone."""
    return replace(ordinary(settings), network=replace(settings.network, head="scaled-cosine", scale=1.0))


_COSINE, _EXCLUSIVE = "Techapanurak, Suganuma, Okatani, ACCV 2020", "Zhou, Jin, Hoi, AISTATS 2010"
_GAUSSIAN = "SHELS network, Gaussian score"
_FUSED, _LEARNED = "SHELS network, fused scores", "SHELS network, fused scores, learned weights"
_TRAINED = (
    Method("shels", "SHELS", "own", PAPER, "nothing", _as_it_is, "shels"),
    Method("shels-gaussian", _GAUSSIAN, "own", "this software", "statistics", _as_it_is, "gaussian"),
    Method("shels-fused", _FUSED, "own", "this software", "statistics", _as_it_is, "fused"),
    Method("shels-fused-learned", _LEARNED, "own", "this software", "statistics", _as_it_is, "fused-learned"),
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


def _without_sparsity(base: Settings, data: str) -> Settings:
    """Give SHELS as printed without its sparsity, in the first training and while classes are taken in."""
    settings = with_learner(base, Penalty(), standard=False, data=data)
    return replace(settings, training=replace(settings.training, alpha=0.0))


def _without_penalty(base: Settings, data: str) -> Settings:
    """Give SHELS as printed where no change of weights costs and none is held."""
    settings = with_learner(base, Penalty(), standard=False, data=data)
    way = settings.accommodation
    free = replace(way if isinstance(way, Penalty) else Penalty(), beta=0.0, zeroed="never")
    return replace(settings, accommodation=free)


# What the paper leaves out of its own method, to show what it is good for.
_ABLATIONS = tuple(
    Method(name, title, "ablation", PAPER, "statistics", settings, OWN, task="learning")
    for name, title, settings in (
        ("shels-no-sparsity", "SHELS, no sparsity", _without_sparsity),
        ("shels-no-penalty", "SHELS, no weight penalty", _without_penalty),
    )
)


# As many projections as RanPAC has; on the digits, whose training sets are small, fewer say as much.
_RECTIFIED = {"digits": 512}


def _rectified(base: Settings, data: str) -> Settings:
    """Name classes on random, rectified projections of the shared features."""
    made = with_learner(base, Gaussian(), standard=False, data=data)
    return replace(made, accommodation=Gaussian(1024, rectified=_RECTIFIED.get(data, 4096)))


def _learnings() -> Iterator[Method]:
    """Give a method for each way to learn, variants after the plain one."""
    for name, each in LEARNERS.items():
        yield _learning(each, each.settings())
        if name == Gaussian.kind:
            about = (each.family, each.paper, each.stores, _rectified, each.detector)
            yield Method("gaussian-rectified", "Gaussians, rectified", *about, task="learning")
        if name == Gdumb.kind:
            yield _learning(each, Gdumb(start="scratch"), "gdumb-scratch", "GDumb, from scratch")


# The paper gives a share of novel verdicts for MNIST and FMNIST alone; elsewhere FMNIST's is taken.
_PRESET_SHARES = {"mnist": 0.75, "fmnist": 0.3}


def _paper_agent(data: str) -> AgentSettings:
    """Alarm at a preset share of the batch, and take all of it that is judged novel for one class."""
    alarm = PresetShare(_PRESET_SHARES.get(data, _PRESET_SHARES["fmnist"]))
    return AgentSettings(alarm, ProposalSettings(several=False, drift=False))


def _own_agent(_data: str) -> AgentSettings:
    return AgentSettings()


def _agent(learner: str, title: str, agent: Callable[[str], AgentSettings] = _own_agent) -> Method:
    """Return the agent with a learner: the paper's with its thresholds; ours accept 95 % of known samples."""
    each = LEARNERS[learner]

    def settings(base: Settings, data: str) -> Settings:
        made = with_learner(base, each.settings(), standard=each.standard, data=data)
        return made if agent is _paper_agent else replace(made, rule=AcceptShare())

    name = "shels-agent" if learner == "penalty" else f"{learner}-agent"
    about = (name, title, each.family, each.paper, each.stores)
    return Method(*about, settings, each.detector, task="open-world", agent=agent)


def _jointly(settings: Settings, data: str) -> Settings:
    """Train as SHELS does and judge as its agent, or ours where that learns; nothing is left to take in."""
    if isinstance(settings.accommodation, Gaussian):
        return replace(settings, rule=AcceptShare())
    return with_learner(settings, Penalty(), standard=False, data=data)


_OPEN_WORLD = (
    _agent("penalty", "SHELS agent", _paper_agent),
    _agent("maha", "MAHA agent", _paper_agent),
    _agent("gaussian", "Gaussian agent"),
    _agent("proximal", "proximal agent"),
    Method(
        *("joint-bound", "joint training, all classes", "bounds", "–", "old data", _jointly, "shels"),
        task="open-world",
    ),
)
_EVERY = (*_TRAINED, *_POST_HOC, *_learnings(), *_ABLATIONS, *_OPEN_WORLD)
METHODS = {method.name: method for method in _EVERY}
FAMILIES = {
    family: tuple(each for each in METHODS.values() if each.family == family)
    for family in dict.fromkeys(each.family for each in METHODS.values())
}


class InitialTraining(NamedTuple):
    """How a trial's network is trained at first. key: the same for trainings that do the same.

    own_sparsity: whether the loss takes a trial's α and μ from its state, so that a stack may have several.
    """

    key: tuple[Any, ...]
    objective: Callable[[Network, TrainingSettings], Objective]
    own_sparsity: bool = False


def initial_training(method: str, settings: Settings) -> InitialTraining:
    """Return how a method trains its network at first."""
    chosen = METHODS[method]
    if chosen.task != "detection":
        learner = method_of(settings.accommodation)
        own = learner.about_initial()
        return InitialTraining(own or (shels_loss.__name__,), learner.initial, own_sparsity=not own)

    def objective(network: Network, training: TrainingSettings) -> Objective:
        return Objective(chosen.loss(network, training), training)

    return InitialTraining((chosen.loss.__name__,), objective, chosen.loss is shels_loss)


def taught_classes(trial: Trial) -> tuple[Label, ...]:
    """Return the classes that a trial's network is trained on at first, in the order of its labels."""
    if METHODS[trial.method].knows_all:
        return tuple(sorted_classes((*trial.known, *trial.novel)))  # the order shares networks with across/*
    return trial.known


def find_methods(names: Sequence[str]) -> list[Method]:
    """Return the methods of these names or families, each once, in the order given."""
    found: dict[str, Method] = {}
    for name in names:
        if name not in METHODS and name not in FAMILIES:
            raise SettingsError(unknown_name("method", name, [*METHODS, *FAMILIES]))
        found |= {each.name: each for each in FAMILIES.get(name) or (METHODS[name],)}
    return list(found.values())
