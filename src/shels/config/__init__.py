"""Settings: frozen values, one per stage, checked when they are made and stored with every result."""

from shels.config.learning import (
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
from shels.config.settings import KINDS, OWN, Settings, from_dict, overridden, to_dict
from shels.config.stages import (
    AcceptShare,
    Adam,
    Augmentation,
    Cosine,
    MeanMinusSd,
    NetworkSettings,
    Optimiser,
    Precision,
    Sgd,
    ThresholdRule,
    TrainingSettings,
    WarmRestarts,
)

__all__ = [
    "KINDS", "OWN", "AcceptShare", "Accommodation", "Adam", "AgsCl", "Augmentation", "Cosine",
    "Ewc", "Fecam", "FineTune", "Gaussian",
    "Gdumb", "Joint", "Lwf", "Maha", "MeanMinusSd", "NetworkSettings", "Optimiser", "Penalty", "Precision",
    "Proximal", "Ranpac", "Settings", "Sgd", "ShelsGdumb", "Slda", "ThresholdRule", "TrainingSettings",
    "WarmRestarts", "from_dict", "overridden", "to_dict",
]  # fmt: skip
