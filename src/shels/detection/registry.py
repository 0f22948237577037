"""The detectors by name, ours and the rivals': where each was published, what it keeps, how it is made.

To add a score: write one file in `scores/`, and enter it here.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Literal

from shels.detection.head import Head
from shels.detection.protocol import Context, Detector, Labelled, StoredParts
from shels.detection.score import Score
from shels.detection.score_detector import ScoreDetector
from shels.detection.scores.ash import Ash
from shels.detection.scores.energy import Energy
from shels.detection.scores.fdbd import Fdbd
from shels.detection.scores.fused import Fused, FusedLearned
from shels.detection.scores.gaussian import GaussianDetector
from shels.detection.scores.gen import Gen
from shels.detection.scores.knn import Knn
from shels.detection.scores.mahalanobis import Mahalanobis, MahalanobisLayers, RelativeMahalanobis
from shels.detection.scores.max_logit import MaxLogit
from shels.detection.scores.msp import Msp
from shels.detection.scores.odin import Odin
from shels.detection.scores.openmax import OpenMax
from shels.detection.scores.react import React
from shels.detection.scores.shels import Shels
from shels.detection.scores.vim import Vim
from shels.errors import SettingsError, unknown_name

Family = Literal["own", "rival"]
Stores = Literal["nothing", "statistics", "old data"]


@dataclass(frozen=True)
class Entry:
    """A detector. stores: what it keeps of the training samples beside the network.

    fit: makes it beside a network and a learner from training samples; it is calibrated next. load: makes it
    from saved tensors. make: its score; None where the detector is more than a score and a naming.
    """

    name: str
    family: Family
    paper: str
    stores: Stores
    fit: Callable[[Context, Labelled], Detector]
    load: Callable[[Context, StoredParts], Detector]
    make: type[Score] | None = None

    @property
    def defaults(self) -> dict[str, Any]:
        """Its settings, each with its default."""
        found = fields(self.make) if self.make is not None else ()
        return {each.name: each.default for each in found if each.name not in ("head", "state")}

    @property
    def names_classes(self) -> bool:
        """Whether it names classes itself where nobody else does."""
        return self.make is None or self.make.class_scores is not Score.class_scores

    @property
    def reads_inputs(self) -> bool:
        """Whether it is meant for features of inputs that were changed first."""
        return self.make is not None and self.make.reads_inputs

    @property
    def reads_shared(self) -> bool:
        """Whether it needs the shared features beside the high-level ones."""
        return self.make is None or self.make.reads_shared


def _scored(make: type[Score], paper: str, stores: Stores, family: Family = "rival") -> Entry:
    def fit(context: Context, training: Labelled) -> Detector:
        return ScoreDetector.fit(make(context.head), context, training)

    return Entry(make.name, family, paper, stores, fit, partial(ScoreDetector.load, make), make)


DETECTORS: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        _scored(Shels, "Gummadi, Kent, Mendez, Eaton, CoLLAs 2022", "nothing", "own"),
        Entry("gaussian", "own", "this software", "statistics", GaussianDetector.fit, GaussianDetector.load),
        _scored(Fused, "this software", "statistics", "own"),
        _scored(FusedLearned, "this software", "statistics", "own"),
        _scored(Msp, "Hendrycks, Gimpel, ICLR 2017", "nothing"),
        _scored(MaxLogit, "Hendrycks et al., ICML 2022", "nothing"),
        _scored(Energy, "Liu, Wang, Owens, Li, NeurIPS 2020", "nothing"),
        _scored(Gen, "Liu, Lochman, Zach, CVPR 2023", "nothing"),
        _scored(Odin, "Liang, Li, Srikant, ICLR 2018", "nothing"),
        _scored(React, "Sun, Guo, Li, NeurIPS 2021", "statistics"),
        _scored(Ash, "Djurisic, Bozanic, Ashok, Liu, ICLR 2023", "nothing"),
        _scored(Vim, "Wang, Li, Feng, Zhang, CVPR 2022", "statistics"),
        _scored(Fdbd, "Liu, Qin, ICML 2024", "statistics"),
        _scored(Knn, "Sun, Ming, Zhu, Li, ICML 2022", "old data"),
        _scored(Mahalanobis, "Lee, Lee, Lee, Shin, NeurIPS 2018", "statistics"),
        _scored(MahalanobisLayers, "Lee, Lee, Lee, Shin, NeurIPS 2018", "statistics"),
        _scored(RelativeMahalanobis, "Ren et al., ICML workshop 2021", "statistics"),
        _scored(OpenMax, "Bendale, Boult, CVPR 2016", "statistics"),
    )
}
RIVALS = {name: entry for name, entry in DETECTORS.items() if entry.family == "rival"}
SCORES: dict[str, type[Score]] = {
    name: entry.make for name, entry in (RIVALS | DETECTORS).items() if entry.make is not None
}
"""Every score that can be paired with a learner: the rivals' and SHELS's own."""


def entry_of(name: str) -> Entry:
    """Look a detector up; an unknown name is refused with what there is."""
    if name not in DETECTORS:
        raise SettingsError(unknown_name("detector", name, DETECTORS))
    return DETECTORS[name]


def score(name: str, head: Head, **settings: Any) -> Score:
    """Make the score of this name on a head, with these settings and its defaults for the rest.

    >>> import torch
    >>> score("energy", Head(torch.eye(2), None, cosine=True)).name
    'energy'
    """
    if name not in SCORES:
        raise SettingsError(unknown_name("detector", name, SCORES))
    defaults = DETECTORS[name].defaults
    for each in settings:
        if each not in defaults:
            raise SettingsError(unknown_name(f"setting of {name}", each, defaults))
    return SCORES[name](head, **settings)
