"""Pairs of a detector and a learner: which go together, and why others cannot, said before the start."""

from dataclasses import replace

from shels.config import OWN, Gaussian, Settings
from shels.config.presets import with_learner
from shels.data.samples import Label
from shels.detection.head import Head
from shels.detection.protocol import Context
from shels.detection.registry import SCORES, Entry, entry_of
from shels.detection.score import Score
from shels.errors import SettingsError, unknown_name
from shels.learning.protocol import LearningMethod, Memory
from shels.learning.registry import LEARNERS, method_of
from shels.model.networks import Network

_OWN = {"gaussian": "gaussian", "penalty": "shels", "proximal": "shels"}
"""The detector that goes with each of our learners, by the name that one may ask for it by."""


def score_name(settings: Settings) -> str:
    """Return the score that tells novel samples, or "own" where the learner and its detector are one.

    Raises SettingsError where the detector and the learner cannot work together.
    """
    learner, wanted = settings.accommodation.kind, settings.detector
    if wanted in (OWN, _OWN.get(learner)):
        return LEARNERS[learner].detector
    if wanted == "gaussian":
        raise SettingsError(
            f"detector gaussian does not go with learner {learner}: it names classes and tells novel ones by "
            "the same Gaussians, so it goes with learner gaussian alone"
        )
    _require_detector(wanted)
    reason = _refusal(SCORES[wanted], method_of(settings.accommodation))
    if reason:
        raise SettingsError(
            f"detector {wanted} does not go with learner {learner}: {reason}. Learners that it goes with: "
            f"{', '.join(_partners(wanted)) or 'none'}"
        )
    return wanted


def needs_memory(settings: Settings) -> bool:
    """Tell whether the learner keeps anything of its own; the Gaussian detector keeps its classes itself."""
    return score_name(settings) != OWN or not isinstance(settings.accommodation, Gaussian)


LEAST_IMAGES = 5
"""Of a class to learn, for learners that train on it or hold some of it out."""


def least_images(settings: Settings) -> int:
    """Count the images that a class needs: one where classes are Gaussians that borrow from each other."""
    return LEAST_IMAGES if needs_memory(settings) else 1


def detector_beside(
    network: Network,
    memory: Memory,
    settings: Settings,
    classes: tuple[Label, ...],
    detector: str | None = None,
) -> tuple[Entry, Context]:
    """Give the detector that these settings ask for, and what it needs of the network and its learner.

    detector: one to stand beside the network's last layer instead, whatever would follow the learner.
    """
    way, head = settings.accommodation, Head.of(network.head)
    method, entry = method_of(way), entry_of(detector_name(settings) if detector is None else detector)
    if detector is None:
        naming = None if score_name(settings) == OWN else method.naming(network, memory)
    else:
        naming = None if entry.names_classes else lambda views: head.logits(views.high)
    moves = method.grows_head and method.stores != "old data"
    gaussian = way if isinstance(way, Gaussian) else Gaussian()
    return entry, Context(head, settings.rule, classes, naming, moves, gaussian)


def detector_name(settings: Settings) -> str:
    """Return the name of what tells novel samples, also where it is the learner's own."""
    score = score_name(settings)
    return _OWN[settings.accommodation.kind] if score == OWN else score


def paired(
    settings: Settings, learner: str | None = None, detector: str | None = None, data: str = ""
) -> Settings:
    """Return settings with the learner and the detector of these names; what is None stays as it is.

    data: the data set, for which the paper may have numbers of its own. Raises SettingsError where a name is
    unknown, or the two cannot work together.
    """
    if detector is not None:
        _require_detector(detector)
        settings = replace(settings, detector=detector)
    if learner is not None:
        if learner not in LEARNERS:
            raise SettingsError(unknown_name("learner", learner, LEARNERS))
        if learner != settings.accommodation.kind:  # else it has values of its own
            chosen = LEARNERS[learner]
            settings = with_learner(settings, chosen.settings(), standard=chosen.standard, data=data)
    score_name(settings)
    return settings


def in_words(settings: Settings) -> str:
    """Return what names classes and what tells novel samples, for people."""
    learner, detector = settings.accommodation.kind, detector_name(settings)
    if learner == detector:
        return f"classes are named and novel samples are told by {learner}"
    return f"classes are named by {learner}, novel samples are told by {detector}"


def facts(settings: Settings) -> dict[str, str]:
    """Return what takes classes in and what tells novel samples, by name and in words, as plain data."""
    names = {"learner": settings.accommodation.kind, "detector": detector_name(settings)}
    return names | {"method": in_words(settings)}


def groups() -> list[tuple[list[str], list[str]]]:
    """Return detectors that go with the same learners, and those learners; such as go with none come last."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name in SCORES:
        found.setdefault(tuple(_partners(name)), []).append(name)
    rivals = [(names, list(fit)) for fit, names in found.items()]
    return [(["gaussian"], ["gaussian"]), *sorted(rivals, key=lambda group: not group[1])]


def _require_detector(name: str) -> None:
    names = [OWN, "gaussian", *SCORES]
    if name not in names:
        raise SettingsError(unknown_name("detector", name, names))


def _refusal(score: type[Score], method: LearningMethod) -> str:
    """Return why a score cannot follow a learner from class to class, or nothing."""
    if score.reads_inputs:
        return "it changes the inputs before it looks at them, which experiments alone do"
    if method.stores == "old data":
        return ""  # fitted anew on what is kept, it can follow anything
    if score.cannot_grow:
        return f"it cannot take a class in: {score.cannot_grow}"
    if score.reads_head and not method.grows_head:
        return "it reads the network's last layer, which that learner does not extend"
    if score.remembers and not method.frozen_features:
        return "it remembers features, which that learner's training changes"
    return ""


def _partners(detector: str) -> list[str]:
    score = SCORES[detector]
    return [name for name, each in LEARNERS.items() if not _refusal(score, method_of(each.settings()))]
