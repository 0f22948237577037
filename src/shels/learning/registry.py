"""The ways to learn new classes by name: ours and the rivals', with what each needs and keeps."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from shels import config
from shels.config import OWN, Accommodation
from shels.learning.methods import (
    ags_cl,
    ewc,
    fecam,
    fine_tune,
    gaussian,
    gdumb,
    joint,
    lwf,
    maha,
    penalty,
    proximal,
    ranpac,
    shels_gdumb,
    slda,
)
from shels.learning.protocol import LearningMethod

_Make = Callable[[Any], LearningMethod]
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
    make: _Make
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


def _closed(title: str, paper: str, settings: Any, make: _Make) -> LearnerEntry:
    """Return a classifier in closed form on SHELS's features, with a score in closed form beside it."""
    return LearnerEntry(title, "closed-form", paper, settings, make, "mahalanobis-layers")


def _standard(title: str, family: str, paper: str, settings: Any, make: _Make) -> LearnerEntry:
    """Return a method of an ordinary classifier, whose largest logit tells novel samples."""
    return LearnerEntry(title, family, paper, settings, make, "max-logit", standard=True)


_ENTRIES = (
    LearnerEntry("Gaussians", "own", "this software", config.Gaussian, gaussian.GaussianMethod, OWN),
    LearnerEntry("proximal", "own", "this software", config.Proximal, proximal.ProximalMethod, OWN),
    LearnerEntry("SHELS as printed", "own", _SHELS, config.Penalty, penalty.PenaltyMethod, OWN),
    _closed("MAHA", "Lee, Lee, Lee, Shin, NeurIPS 2018", config.Maha, maha.MahaMethod),
    _closed("SLDA", "Hayes, Kanan, CVPR workshop 2020", config.Slda, slda.SldaMethod),
    _closed("FeCAM", "Goswami et al., NeurIPS 2023", config.Fecam, fecam.FecamMethod),
    _closed("RanPAC", "McDonnell et al., NeurIPS 2023", config.Ranpac, ranpac.RanpacMethod),
    _standard("AGS-CL", "regularised", "Jung et al., NeurIPS 2020", config.AgsCl, ags_cl.AgsClMethod),
    _standard("EWC", "regularised", "Kirkpatrick et al., PNAS 2017", config.Ewc, ewc.EwcMethod),
    _standard("LwF", "regularised", "Li, Hoiem, ECCV 2016", config.Lwf, lwf.LwfMethod),
    _standard("GDumb", "replay", "Prabhu, Torr, Dokania, ECCV 2020", config.Gdumb, gdumb.GdumbMethod),
    LearnerEntry("SHELS-GDumb", "replay", _SHELS, config.ShelsGdumb, shels_gdumb.ShelsGdumbMethod, "shels"),
    _standard("fine-tuning", "bounds", "–", config.FineTune, fine_tune.FineTuneMethod),
    _standard("joint training", "bounds", "–", config.Joint, joint.JointMethod),
)
LEARNERS: dict[str, LearnerEntry] = {each.name: each for each in _ENTRIES}
"""Every way to learn new classes by its name."""


def method_of(settings: Accommodation) -> LearningMethod:
    """Return the method that these settings describe.

    >>> method_of(config.FineTune()).stores
    'nothing'
    """
    return LEARNERS[settings.kind].make(settings)
