"""The learner: a trained network, its classes and its detector as one value that saves and loads."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from shels import metrics, runtime, storage
from shels.config import Settings, to_dict
from shels.data.preparation import Preparation, prepare_for
from shels.data.samples import Label, Samples
from shels.data.splits import hold_out
from shels.detection import Detector, Verdicts, fit_temperature, measured_acceptance, signatures
from shels.errors import DataError
from shels.model.chains import describe
from shels.model.networks import Network, build, from_chain
from shels.runs import Checkpoint
from shels.training import Fit, Progress, TrialData, fit, shels_loss


@dataclass(eq=False)
class Learner:
    """What was learned, whole: it scores, judges, measures itself, saves and loads."""

    network: Network
    classes: tuple[Label, ...]
    detector: Detector
    preparation: Preparation
    settings: Settings
    seed: int
    temperature: float = 1.0
    """What class scores are divided by to become probabilities."""
    novel_label: Label | None = None
    """What `OpenWorldClassifier.predict` answers for novel samples, where it was used."""
    report: dict[str, Any] = field(default_factory=dict)
    """How it came about: samples, best check, held-out acceptance, exclusivity."""

    @property
    def device(self) -> torch.device:
        """Where the network computes."""
        return self.network.head.weight.device

    @torch.no_grad()
    def features(self, inputs: Tensor, batch_size: int | None = None) -> Tensor:
        """Return the high-level features of any number of inputs: (n, ...) -> (n, d)."""
        self.preparation.check(inputs)
        self.network.eval()
        size = batch_size or self.preparation.evaluation_batch
        parts = [self._features(part) for part in torch.split(inputs, size)]
        nothing = self.network.head.weight.detach()[:0]
        return torch.cat([nothing, *parts])

    def _features(self, inputs: Tensor) -> Tensor:
        return self.network.features(self.preparation(inputs.to(self.device)))

    def probabilities(self, inputs: Tensor) -> Tensor:
        """Return the probability of each class, taking it that one of them is right: (n, classes)."""
        scores = self.detector.class_scores(self.features(inputs)) / self.temperature
        return scores.clamp(min=torch.finfo(scores.dtype).min).softmax(dim=1)

    def judge(self, inputs: Tensor) -> Verdicts:
        """Return class or novel for each input."""
        return self.detector.verdicts(self.features(inputs))

    def evaluate(self, known: Samples, novel: Samples | None = None) -> dict[str, Any]:
        """Return the measures on samples of the learner's classes and on samples of others.

        Adds the rates of each class: of a known one the share accepted, and accepted and right; of a novel
        one the share rejected.
        """
        known = known.only(self.classes, missing_ok=True)
        if not len(known):
            raise DataError(f"{known.origin} has no sample of the learner's classes {list(self.classes)}")
        mine = _arrays(self.judge(known.inputs))
        others = _arrays(self.judge(novel.inputs)) if novel is not None and len(novel) else None
        labels = known.labels.numpy()
        empty = np.zeros(0)
        out: dict[str, Any] = metrics.open_set_measures(
            labels,
            mine["predicted"],
            mine["novel"],
            mine["score"],
            novel_judged=others["novel"] if others else empty,
            novel_scores=others["score"] if others else empty,
        )
        right = ~mine["novel"] & (mine["predicted"] == labels)
        out["per_class"] = _rates(known, accepted=~mine["novel"], right=right)
        if novel is not None and others:
            out["per_novel_class"] = _rates(novel, rejected=others["novel"])
        return out

    def exclusivity(self, samples: Samples) -> np.ndarray[Any, Any]:
        """Return the exclusivity of each two classes' features over samples of theirs: (classes, classes)."""
        known = samples.only(self.classes)
        return _exclusivity(self.network, self.features(known.inputs), known.labels.to(self.device))

    def save(self, directory: str | Path) -> None:
        """Write the learner into a directory, whole or not at all; a model already there is replaced."""
        storage.save(Path(directory), vars(self))

    @staticmethod
    def load(directory: str | Path, device: str = "auto") -> Learner:
        """Return the learner saved in a directory; what is damaged, foreign or newer is refused."""
        return Learner(**storage.load(Path(directory), runtime.device(device)))


def learn(
    samples: Samples,
    settings: Settings,
    *,
    seed: int,
    device: str | torch.device = "auto",
    chain: nn.Sequential | None = None,
    checkpoint: Path | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Learner:
    """Return a learner of these samples' classes: hold some out, train on the rest, set the thresholds.

    chain: a network of one's own instead of the settings' architecture.
    """
    if len(samples.classes) < 2:
        raise DataError(f"{samples.origin}: a classifier needs 2 classes or more, got {len(samples.classes)}")
    samples.require_every_class()
    training_index, validation_index = hold_out(samples, settings.training.validation_share, seed)
    if not len(validation_index):
        raise DataError(f"{samples.origin}: nothing can be held out; give every class 2 samples or more")
    training, validation = samples.take(training_index), samples.take(validation_index)
    preparation = prepare_for(training.inputs, settings.network)
    network = _network(settings, preparation.shape, len(samples.classes), seed, chain)
    network.to(runtime.device(device))
    preparation = preparation.to(runtime.device(device))
    if chain is not None:
        settings = replace(settings, network=replace(settings.network, architecture="own"))
    trial = TrialData(training, validation, preparation)
    loss = shels_loss(network, settings.training)
    store = Checkpoint(checkpoint, _about(settings, network, preparation)) if checkpoint else None
    went = fit(network, loss, trial, settings.training, seed=seed, checkpoint=store, progress=progress)
    detector = Detector(network.head.weight.detach(), settings.rule)
    learner = Learner(network, samples.classes, detector, preparation, settings, seed)
    if progress is not None:
        progress(Progress(went.checks[-1].step, went.checks[-1].step, stage="setting thresholds"))
    learner.report = _report(training, validation, went) | _calibrate(learner, training, validation)
    return learner


def _network(
    settings: Settings, shape: tuple[int, ...], classes: int, seed: int, chain: nn.Sequential | None
) -> Network:
    if chain is not None:
        return from_chain(chain, shape, settings.network.head, classes, seed)
    return build(settings.network, shape, classes, seed)


def _about(settings: Settings, network: Network, preparation: Preparation) -> list[Any]:
    """Return what tells this training from others on the same data, beside its settings for training."""
    numbers = [None if value is None else value.tolist() for value in (preparation.mean, preparation.sd)]
    return [to_dict(settings), describe(network.body), preparation.shape, preparation.image_fit, *numbers]


def _calibrate(learner: Learner, training: Samples, validation: Samples) -> dict[str, Any]:
    """Set thresholds and temperature, and return what was measured on the way."""
    began = time.perf_counter()
    to, detector = learner.device, learner.detector
    seen = learner.features(training.inputs), training.labels.to(to)
    apart = learner.features(validation.inputs), validation.labels.to(to)
    detector.fit(*seen, held_out=apart, names=learner.classes)
    learner.temperature = fit_temperature(detector.class_scores(apart[0]), apart[1])
    return {
        "held_out": learner.evaluate(validation),
        "held_out_acceptance": measured_acceptance(detector.weights, detector.rule, seen, apart),
        "exclusivity": metrics.mean_exclusivity(_exclusivity(learner.network, *seen)),
        "calibration_seconds": time.perf_counter() - began,
    }


def _exclusivity(network: Network, features: Tensor, labels: Tensor) -> np.ndarray[Any, Any]:
    weights = network.head.weight.detach()
    means = signatures(features, labels, len(weights))
    return metrics.exclusivity(metrics.active_features(means.cpu().numpy(), weights.cpu().numpy()))


def _report(training: Samples, validation: Samples, went: Fit) -> dict[str, Any]:
    return {
        "training_samples": len(training),
        "held_out_samples": len(validation),
        "best": vars(went.best),
        "checks": [vars(check) for check in went.checks],
        "stopped_early": went.stopped_early,
        "seconds": went.seconds,
    }


def _arrays(verdicts: Verdicts) -> dict[str, np.ndarray[Any, Any]]:
    names = ("predicted", "score", "threshold", "p_value", "novel")
    return {name: getattr(verdicts, name).cpu().numpy() for name in names}


def _rates(samples: Samples, **marks: np.ndarray[Any, Any]) -> dict[str, dict[str, float]]:
    """Return, for each class that has samples, their count and the share under each mark."""
    labels = samples.labels.numpy()
    out: dict[str, dict[str, float]] = {}
    for position, name in enumerate(samples.classes):
        mine = labels == position
        if mine.any():
            out[str(name)] = {"samples": int(mine.sum())} | {
                k: float(v[mine].mean()) for k, v in marks.items()
            }
    return out
