"""Pairs of a detector and a learner: which go together, and why others cannot, said before the start."""

from __future__ import annotations

from shels.accommodation import Method
from shels.config import OWN, Settings
from shels.errors import SettingsError, unknown_name
from shels.rivals.learners.registry import LEARNERS, method_of
from shels.rivals.protocol import Detector
from shels.rivals.registry import SCORES

_OWN = {"gaussian": "gaussian", "penalty": "shels", "proximal": "shels"}
"""The detector that goes with each of our learners, by the name that one may ask for it by."""


def score_name(settings: Settings) -> str:
    """Return the score that tells novel samples, or "own" where the learner and its detector are one.

    Raises SettingsError where the detector and the learner cannot work together.
    """
    learner, asked = settings.accommodation.kind, settings.detector
    if asked in (OWN, _OWN.get(learner)):
        return LEARNERS[learner].detector
    if asked == "gaussian":
        raise SettingsError(
            f"detector gaussian does not go with learner {learner}: it names classes and tells novel ones by "
            "the same Gaussians, so it goes with learner gaussian alone"
        )
    if asked not in SCORES:
        raise SettingsError(unknown_name("detector", asked, [OWN, "gaussian", *SCORES]))
    reason = _refusal(SCORES[asked].make, method_of(settings.accommodation))
    if reason:
        raise SettingsError(
            f"detector {asked} does not go with learner {learner}: {reason}. Learners that it goes with: "
            f"{', '.join(_partners(asked)) or 'none'}"
        )
    return asked


def _refusal(score: type[Detector], method: Method) -> str:
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
    score = SCORES[detector].make
    return [name for name, each in LEARNERS.items() if not _refusal(score, method_of(each.settings()))]
