"""Draws with known classes left out that play novel, and what a candidate for a preset comes to on them.

What `candidates.py` compares candidates by. On a GPU the networks of all draws are trained as one stack.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from shels.config import AcceptShare, Precision, Settings
from shels.data.samples import DataSet, Label
from shels.data.splits import hold_out
from shels.detection import metrics
from shels.detection.calibration import Verdicts
from shels.detection.exclusivity import feature_exclusivity, mean_exclusivity
from shels.detection.protocol import Detector, KnownSamples, Labelled
from shels.errors import SettingsError
from shels.experiments.catalogue import CATALOGUE
from shels.experiments.methods import initial_training
from shels.experiments.preparing import Training, prepared
from shels.experiments.trials import Trial
from shels.learner.learner import with_detector
from shels.training import Rows, TrialTraining, fit_trials
from shels.training.data import joined_inputs
from shels.training.features import views_of
from shels.training.loop import PRECISIONS

DETECTORS = ("fused", "gaussian")
SHARES = (0.75, 0.8, 0.85, 0.88, 0.9, 0.91, 0.92, 0.93, 0.94, 0.95, 0.96)
Figures = dict[str, Any]


@dataclass(frozen=True)
class Draw:
    """What a candidate meets: the draw's seed, and which of its known classes are left out in which turn.

    part: the share of the training images that is trained on. judged: the share that is held out to judge.
    """

    seed: int
    left_out: int
    turn: int
    part: float
    judged: float

    def classes(self, known: Sequence[Label]) -> tuple[tuple[Label, ...], tuple[Label, ...]]:
        """Divide a draw's known classes into those that stay known and those that play novel."""
        first = self.turn * self.left_out
        novel = tuple(known[first : first + self.left_out])
        rest = tuple(name for name in known if name not in novel)
        if len(novel) < self.left_out or len(rest) < 2:
            asked = f"turn {self.turn} of leaving {self.left_out} out with 2 left"
            raise SettingsError(f"{len(known)} classes do not allow {asked}; leave fewer out, or fewer turns")
        return rest, novel

    def data(self, whole: DataSet, known: Sequence[Label]) -> DataSet:
        """Divide the training images of a draw's known classes; nothing else of the data is looked at."""
        images = whole.train.only(known)
        train, test = map(images.take, hold_out(images, self.judged, self.seed))
        if self.part < 1:
            train = train.take(hold_out(train, self.part, self.seed)[1])
        return DataSet(whole.name, train, test)


def judged(settings: Settings, draws: Sequence[Draw], whole: DataSet, device: torch.device) -> list[Figures]:
    """Train a candidate on draws, and give its figures on each: by detector, and of the network."""
    met = [_Met.of(settings, draw, whole, device) for draw in draws]
    began = time.perf_counter()
    _train([each.training for each in met], _precision(device))
    seconds = (time.perf_counter() - began) / len(draws)
    train = [each.training.data.inputs for each in met]
    fitted = _seen(met, train, [each.training.data.training for each in met])
    held = _seen(met, train, [each.training.calibration for each in met])
    test = [each.data.test.inputs for each in met]
    asked = [[each.rest for each in met], [each.novel for each in met]][: 2 if draws[0].left_out else 1]
    tests = [_seen(met, test, [each.judged(names) for each, names in zip(met, some, strict=True)])
             for some in asked]  # fmt: skip
    found = map(_by_detector, met, map(KnownSamples, fitted, held), zip(*tests, strict=True))
    return [{"seconds": seconds, "by": by} for by in found]


@dataclass(frozen=True, eq=False)
class _Met:
    """A candidate on a draw: the classes that stay known, those that play novel, and what is trained."""

    rest: tuple[Label, ...]
    novel: tuple[Label, ...]
    data: DataSet
    training: Training

    @staticmethod
    def of(settings: Settings, draw: Draw, whole: DataSet, device: torch.device) -> _Met:
        known = CATALOGUE[f"within/{whole.name}"].classes(draw.seed)[0]
        rest, novel = draw.classes(known)
        data = draw.data(whole, known)
        about = ("left-out", "shels-fused", draw.seed, whole.name, whole.name, rest, novel, settings)
        trial = Trial(*about, _precision(device))
        return _Met(rest, novel, data, prepared([trial], data, data.train.inputs.to(device), device))

    def judged(self, classes: Sequence[Label]) -> Rows:
        """Give those of the images to judge that are of these classes."""
        return Rows(*self.data.test.places(classes))


def _precision(device: torch.device) -> Precision:
    return "bfloat16" if device.type == "cuda" else "float32"


def _train(trainings: Sequence[Training], precision: Precision) -> None:
    """Train in place: on a GPU all together, on a CPU one after another."""
    first, like = trainings[0], trainings[0].trials[0]
    objective = initial_training(like.method, like.settings).objective(first.network, first.settings)
    trials = [TrialTraining(each.network, each.data, each.seed) for each in trainings]
    about = (trials, objective.loss, objective.settings)
    for fit in fit_trials(*about, after_step=objective.after_step, precision=precision):
        if fit.error is not None:
            raise fit.error


def _seen(met: Sequence[_Met], each_inputs: Sequence[Tensor], rows: Sequence[Rows]) -> list[Labelled]:
    """Give what each draw's network makes of some of its inputs."""
    networks = [each.training.network for each in met]
    device = next(networks[0].parameters()).device
    inputs, starts = joined_inputs(each_inputs, device)
    places = [each.places + start for each, start in zip(rows, starts, strict=True)]
    dtype = PRECISIONS[_precision(device)]
    about = (networks, inputs, places, met[0].training.data.prepare)
    views = views_of(*about, precision=dtype, shared=True)
    return [Labelled(view, each.labels.to(device)) for view, each in zip(views, rows, strict=True)]


def _by_detector(met: _Met, samples: KnownSamples, tests: Sequence[Labelled]) -> dict[str, dict[str, float]]:
    """Give the figures of each detector, and with them those of the network."""
    weights = met.training.network.head.weight.detach()
    matrix = feature_exclusivity(weights, samples.training.features.high, samples.training.labels)
    both = {"exclusivity": mean_exclusivity(matrix)}
    trial = met.training.trials[0]
    return {name: both | _figures(trial, met.training, samples, tests, name) for name in DETECTORS}


def _figures(
    trial: Trial, training: Training, samples: KnownSamples, tests: Sequence[Labelled], name: str
) -> dict[str, float]:
    about = (training.data.prepare, trial.settings, trial.seed)
    detector = with_detector(training.network, trial.known, samples, *about, detector=name).detector
    verdicts = [detector.verdicts(part.features) for part in tests]
    out: dict[str, float] = {}
    for share in SHARES:
        known, *novel = [at_share(detector, each, share) for each in verdicts]
        found = metrics.evaluated(known, tests[0].labels, trial.known, next(iter(novel), None))
        out |= {key: found[key] for key in ("auroc", "closed_set_accuracy") if key in found}
        at = {"known_accuracy": f"known at {share:g}", "novel_accuracy": f"novel at {share:g}"}
        out |= {name: found[key] for key, name in at.items() if key in found}
    return out


def at_share(detector: Detector, verdicts: Verdicts, share: float) -> Verdicts:
    """Give verdicts by thresholds that accept another share of known samples."""
    limits = detector.thresholds_by(AcceptShare(share, "separate"))
    return replace(verdicts, threshold=limits[verdicts.predicted])
