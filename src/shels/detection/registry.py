"""The rivals by name: what each one looks at, where it was published, what it keeps."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from shels.detection.protocol import Detector, Head
from shels.detection.scores.ash import Ash
from shels.detection.scores.energy import Energy
from shels.detection.scores.fdbd import Fdbd
from shels.detection.scores.gen import Gen
from shels.detection.scores.knn import Knn
from shels.detection.scores.mahalanobis import Mahalanobis, MahalanobisLayers
from shels.detection.scores.max_logit import MaxLogit
from shels.detection.scores.msp import Msp
from shels.detection.scores.odin import Odin
from shels.detection.scores.openmax import OpenMax
from shels.detection.scores.react import React
from shels.detection.scores.relative_mahalanobis import RelativeMahalanobis
from shels.detection.scores.shels_score import ShelsScore
from shels.detection.scores.vim import Vim
from shels.errors import SettingsError, unknown_name

Family = Literal["logits", "shaped features", "features and logits", "boundaries", "distances", "extremes"]
Stores = Literal["nothing", "statistics", "old data"]


@dataclass(frozen=True)
class Paper:
    """Where a score was published."""

    authors: str
    venue: str
    year: int

    def __str__(self) -> str:
        return f"{self.authors}, {self.venue} {self.year}"


@dataclass(frozen=True)
class Entry:
    """A rival. stores: what it keeps of the training samples beside the network."""

    make: type[Detector]
    family: Family
    paper: Paper
    stores: Stores

    @property
    def can_grow(self) -> bool:
        """Whether it can take a class in without the old classes' samples."""
        return not self.make.cannot_grow

    @property
    def defaults(self) -> dict[str, Any]:
        """Its settings, each with its default."""
        return {each.name: each.default for each in fields(self.make) if each.name not in ("head", "state")}


DETECTORS: dict[str, Entry] = {
    entry.make.name: entry
    for entry in (
        Entry(Msp, "logits", Paper("Hendrycks, Gimpel", "ICLR", 2017), "nothing"),
        Entry(MaxLogit, "logits", Paper("Hendrycks et al.", "ICML", 2022), "nothing"),
        Entry(Energy, "logits", Paper("Liu, Wang, Owens, Li", "NeurIPS", 2020), "nothing"),
        Entry(Gen, "logits", Paper("Liu, Lochman, Zach", "CVPR", 2023), "nothing"),
        Entry(Odin, "logits", Paper("Liang, Li, Srikant", "ICLR", 2018), "nothing"),
        Entry(React, "shaped features", Paper("Sun, Guo, Li", "NeurIPS", 2021), "statistics"),
        Entry(Ash, "shaped features", Paper("Djurisic, Bozanic, Ashok, Liu", "ICLR", 2023), "nothing"),
        Entry(Vim, "features and logits", Paper("Wang, Li, Feng, Zhang", "CVPR", 2022), "statistics"),
        Entry(Fdbd, "boundaries", Paper("Liu, Qin", "ICML", 2024), "statistics"),
        Entry(Knn, "distances", Paper("Sun, Ming, Zhu, Li", "ICML", 2022), "old data"),
        Entry(Mahalanobis, "distances", Paper("Lee, Lee, Lee, Shin", "NeurIPS", 2018), "statistics"),
        Entry(MahalanobisLayers, "distances", Paper("Lee, Lee, Lee, Shin", "NeurIPS", 2018), "statistics"),
        Entry(RelativeMahalanobis, "distances", Paper("Ren et al.", "ICML workshop", 2021), "statistics"),
        Entry(OpenMax, "extremes", Paper("Bendale, Boult", "CVPR", 2016), "statistics"),
    )
}


_SHELS = Paper("Gummadi, Kent, Mendez, Eaton", "CoLLAs", 2022)
SCORES: dict[str, Entry] = DETECTORS | {"shels": Entry(ShelsScore, "logits", _SHELS, "nothing")}
"""Every score that can be paired with a learner: the rivals' and SHELS's own."""


def detector(name: str, head: Head, **settings: Any) -> Detector:
    """Return the score of this name on a head, with these settings and its defaults for the rest."""
    if name not in SCORES:
        raise SettingsError(unknown_name("detector", name, SCORES))
    entry = SCORES[name]
    for each in settings:
        if each not in entry.defaults:
            raise SettingsError(unknown_name(f"setting of {name}", each, entry.defaults))
    return entry.make(head, **settings)
