"""Training: the one loop that every method trains through, one trial or a stack of them."""

from shels.training.checkpoints import Check, Checkpoint, Params
from shels.training.data import Batch, Ceiling, CurvePoint, Monitor, Rows, State, TrialData, TrialTraining
from shels.training.loop import Progress, TrainingRequest, fit, fit_trials, fitting, planned, training
from shels.training.losses import AfterStep, Loss, Objective, class_scores, cross_entropy, shels_loss
from shels.training.trial_run import Fit

__all__ = [
    "AfterStep", "Batch", "Ceiling", "Check", "Checkpoint", "CurvePoint", "Fit", "Loss", "Monitor",
    "Objective", "Params", "Progress", "Rows", "State", "TrainingRequest", "TrialData", "TrialTraining",
    "class_scores", "cross_entropy", "fit", "fit_trials", "fitting", "planned", "shels_loss", "training",
]  # fmt: skip
