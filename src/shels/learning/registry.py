"""The ways to learn new classes by name: ours and the rivals', with what each needs and keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from shels.config import (
    OWN,
    Accommodation,
    AgsCl,
    Ewc,
    Fecam,
    FineTune,
    Gaussian,
    Gdumb,
    Joint,
    Lwf,
    Maha,
    Penalty,
    Proximal,
    Ranpac,
    ShelsGdumb,
    Slda,
)
from shels.learning.methods.ags_cl import AgsClMethod
from shels.learning.methods.ewc import EwcMethod
from shels.learning.methods.fecam import FecamMethod
from shels.learning.methods.fine_tune import FineTuneMethod
from shels.learning.methods.gaussian import GaussianMethod
from shels.learning.methods.gdumb import GdumbMethod
from shels.learning.methods.joint import JointMethod
from shels.learning.methods.lwf import LwfMethod
from shels.learning.methods.maha import MahaMethod
from shels.learning.methods.penalty import PenaltyMethod
from shels.learning.methods.proximal import ProximalMethod
from shels.learning.methods.ranpac import RanpacMethod
from shels.learning.methods.shels_gdumb import ShelsGdumbMethod
from shels.learning.methods.slda import SldaMethod
from shels.learning.protocol import LearningMethod

_SHELS = "Gummadi, Kent, Mendez, Eaton, CoLLAs 2022"


@dataclass(frozen=True)
class LearnerEntry:
    """A way to learn new classes.

    settings: its dataclass. make: what makes the method from it. family: what several are called together.
    detector: the score that tells novel samples beside it, unless another is asked for.
    standard: whether its network is an ordinary classifier, a linear last layer without sparsity, instead of
    SHELS's.
    """

    title: str
    family: str
    paper: str
    settings: Any
    make: Callable[[Any], LearningMethod]
    detector: str
    standard: bool = False

    @property
    def name(self) -> str:
        """What commands call it."""
        return str(self.settings.kind)

    @property
    def stores(self) -> str:
        """What it keeps of old classes."""
        return str(self.make.stores)  # type: ignore[attr-defined]

    @property
    def defaults(self) -> dict[str, Any]:
        """Its settings, each with its default."""
        return {each.name: each.default for each in fields(self.settings)}


_CLOSED, _LOGIT = "mahalanobis-layers", "max-logit"

LEARNERS: dict[str, LearnerEntry] = {
    each.name: each
    for each in (
        LearnerEntry("Gaussians", "own", "this software", Gaussian, GaussianMethod, OWN),
        LearnerEntry("proximal", "own", "this software", Proximal, ProximalMethod, OWN),
        LearnerEntry("SHELS as printed", "own", _SHELS, Penalty, PenaltyMethod, OWN),
        LearnerEntry("MAHA", "closed-form", "Lee, Lee, Lee, Shin, NeurIPS 2018", Maha, MahaMethod, _CLOSED),
        LearnerEntry("SLDA", "closed-form", "Hayes, Kanan, CVPR workshop 2020", Slda, SldaMethod, _CLOSED),
        LearnerEntry("FeCAM", "closed-form", "Goswami et al., NeurIPS 2023", Fecam, FecamMethod, _CLOSED),
        LearnerEntry(
            "RanPAC", "closed-form", "McDonnell et al., NeurIPS 2023", Ranpac, RanpacMethod, _CLOSED
        ),
        LearnerEntry(
            "AGS-CL", "regularised", "Jung et al., NeurIPS 2020", AgsCl, AgsClMethod, _LOGIT, standard=True
        ),
        LearnerEntry(
            "EWC", "regularised", "Kirkpatrick et al., PNAS 2017", Ewc, EwcMethod, _LOGIT, standard=True
        ),
        LearnerEntry("LwF", "regularised", "Li, Hoiem, ECCV 2016", Lwf, LwfMethod, _LOGIT, standard=True),
        LearnerEntry(
            "GDumb", "replay", "Prabhu, Torr, Dokania, ECCV 2020", Gdumb, GdumbMethod, _LOGIT, standard=True
        ),
        LearnerEntry("SHELS-GDumb", "replay", _SHELS, ShelsGdumb, ShelsGdumbMethod, "shels"),
        LearnerEntry("fine-tuning", "bounds", "–", FineTune, FineTuneMethod, _LOGIT, standard=True),
        LearnerEntry("joint training", "bounds", "–", Joint, JointMethod, _LOGIT, standard=True),
    )
}


def method_of(settings: Accommodation) -> LearningMethod:
    """Return the method that these settings describe."""
    return LEARNERS[settings.kind].make(settings)
