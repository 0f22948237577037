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

from shels import runtime
from shels.config import OWN, Gaussian, Proximal, Settings, to_dict
from shels.data.preparation import Preparation, prepare_for
from shels.data.samples import Label, Samples
from shels.data.splits import hold_out
from shels.detection import metrics
from shels.detection.calibration import Verdicts, fit_temperature, measured_acceptance
from shels.detection.drift import Look
from shels.detection.evaluation import exclusivity, measures_of
from shels.detection.head import Head
from shels.detection.judge import Judge
from shels.detection.registry import detector as rival
from shels.detection.scores.gaussian import GaussianDetector
from shels.detection.scores.shels import Detector
from shels.errors import DataError, SettingsError
from shels.learner import changes, storage
from shels.learner.pairing import score_name
from shels.learning.registry import method_of
from shels.model.chains import describe
from shels.model.networks import Network, Views, build, from_chain
from shels.training.batches import Rows, TrialData
from shels.training.checkpoints import Checkpoint
from shels.training.courses import Fit, Progress
from shels.training.loop import fit


@dataclass(eq=False)
class Learner:
    """What was learned, whole: it scores, judges, measures itself, saves and loads."""

    network: Network
    classes: tuple[Label, ...]
    taught: tuple[Label | None, ...]
    """The classes of the head's rows, those that the network was trained on; None for one forgotten since."""
    detector: Detector | GaussianDetector | Judge
    preparation: Preparation
    settings: Settings
    seed: int
    temperature: float = 1.0
    """What class scores are divided by to become probabilities."""
    novel_label: Label | None = None
    """What `OpenWorldClassifier.predict` answers for novel samples, where it was used."""
    report: dict[str, Any] = field(default_factory=dict)
    """How it came about: samples, best check, held-out acceptance, exclusivity, classes taken in later."""
    look: Look | None = None
    """The range of plain image statistics over the known classes, which tells drift from new classes."""
    memory: dict[str, Tensor] = field(default_factory=dict)
    """What the way of taking in classes keeps of the old ones: statistics; with replay, images of theirs."""

    @property
    def device(self) -> torch.device:
        """Where the network computes."""
        return self.network.head.weight.device

    @property
    def joins(self) -> bool:
        """Whether samples can be added to a class that it knows."""
        gaussian = isinstance(self.settings.accommodation, Gaussian)
        return gaussian and isinstance(self.detector, GaussianDetector)

    @property
    def kept_images(self) -> int:
        """How many images of its classes the model holds, for learners that replay them."""
        return len(self.memory.get("samples", ()))

    @torch.no_grad()
    def views(self, inputs: Tensor, batch_size: int | None = None) -> Views:
        """Return low-level and high-level features of any number of inputs, in one pass."""
        self.preparation.check(inputs)
        self.network.eval()
        size = batch_size or self.preparation.evaluation_batch
        parts = [self._views(part) for part in torch.split(inputs, size)] if len(inputs) else []
        nothing = self._views(torch.zeros(1, *inputs.shape[1:], dtype=inputs.dtype))
        return Views(*(torch.cat([none[:0], *view]) for none, *view in zip(nothing, *parts, strict=True)))

    def _views(self, inputs: Tensor) -> Views:
        return self.network.views(self.preparation(inputs.to(self.device)))

    def features(self, inputs: Tensor, batch_size: int | None = None) -> Tensor:
        """Return the high-level features of any number of inputs: (n, ...) -> (n, d)."""
        return self.views(inputs, batch_size).high

    def seen(self, inputs: Tensor) -> Tensor:
        """Return what the detector sees of inputs: (n, ...) -> (n, columns)."""
        return self.detector.sees(self.views(inputs))

    def class_scores(self, inputs: Tensor) -> Tensor:
        """Return the similarity of inputs to each class: (n, classes)."""
        return self.detector.class_scores(self.seen(inputs))

    def probabilities(self, inputs: Tensor) -> Tensor:
        """Return the probability of each class, taking it that one of them is right: (n, classes)."""
        scores = self.class_scores(inputs) / self.temperature
        return scores.clamp(min=torch.finfo(scores.dtype).min).softmax(dim=1)

    def judge(self, inputs: Tensor) -> Verdicts:
        """Return class or novel for each input."""
        return self.judge_features(self.views(inputs))

    def judge_features(self, features: Views) -> Verdicts:
        """Return class or novel for each input, from what the network made of them."""
        return self.detector.verdicts(self.detector.sees(features))

    def accommodate(
        self,
        inputs: Tensor,
        label: Label,
        *,
        seed: int | None = None,
        progress: Callable[[Progress], None] | None = None,
        features: Views | None = None,
    ) -> Learner:
        """Return a learner that knows one class more, from inputs of that class alone; this one stays.

        features: what this learner's network makes of the inputs, where that was computed already.
        """
        return changes.accommodated(self, inputs, label, seed=seed, progress=progress, features=features)

    def unlearn(self, label: Label) -> Learner:
        """Return a learner that has forgotten a class, where the way of taking in classes allows it."""
        return changes.unlearned(self, label)

    def rename(self, old: Label, new: Label) -> Learner:
        """Return a learner in which a class has another name."""
        return changes.renamed(self, old, new)

    def merge(self, label: Label, into: Label) -> Learner:
        """Return a learner in which all of one class counts as another, which may be any known class."""
        return changes.merged(self, label, into)

    def evaluate(self, known: Samples, novel: Samples | None = None) -> dict[str, Any]:
        """Return the measures on samples of the learner's classes and on samples of others.

        Adds the rates of each class: of a known one the share accepted, and accepted and right; of a novel
        one the share rejected.
        """
        known = known.only(self.classes, missing_ok=True)
        if not len(known):
            raise DataError(f"{known.origin} has no sample of the learner's classes {list(self.classes)}")
        mine = (self.judge(known.inputs), known.labels, known.classes)
        if novel is None or not len(novel):
            return measures_of(*mine)
        return measures_of(*mine, self.judge(novel.inputs), novel.labels, novel.classes)

    def exclusivity(self, samples: Samples) -> np.ndarray[Any, Any]:
        """Return the exclusivity of each two taught classes' features over samples of theirs, Eq. (7)."""
        rows = [place for place, name in enumerate(self.taught) if name is not None]
        known = samples.only([self.taught[place] for place in rows])
        weights = self.network.head.weight.detach()[rows]
        return exclusivity(weights, self.features(known.inputs), known.labels.to(self.device))

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
    if settings.network.head == "scaled-cosine":
        raise SettingsError('head "scaled-cosine" is a rival\'s, for experiments; use "cosine" or "linear"')
    score_name(settings)  # refuses a detector and a learner that do not go together
    if len(samples.classes) < 2:
        raise DataError(f"{samples.origin}: a classifier needs 2 classes or more, got {len(samples.classes)}")
    samples.require_every_class()
    training_index, validation_index = hold_out(samples, settings.training.validation_share, seed)
    if not len(validation_index):
        raise DataError(f"{samples.origin}: nothing can be held out; give every class 2 samples or more")
    training, validation = samples.take(training_index), samples.take(validation_index)
    preparation = prepare_for(training.inputs, settings.network)
    method_of(settings.accommodation).check(preparation.shape, len(samples.classes))
    network = _network(settings, preparation.shape, len(samples.classes), seed, chain)
    network.to(runtime.device(device))
    preparation = preparation.to(runtime.device(device))
    if chain is not None:
        settings = replace(settings, network=replace(settings.network, architecture="own"))
    rows = [Rows(index, samples.labels[index]) for index in (training_index, validation_index)]
    trial = TrialData(samples.inputs, rows[0], rows[1], preparation)
    store = Checkpoint(checkpoint, _about(settings, network, preparation)) if checkpoint else None
    first = method_of(settings.accommodation).first(network, settings.training)
    went = fit(
        network,
        first.loss,
        trial,
        first.settings,
        seed=seed,
        after_step=first.after_step,
        checkpoint=store,
        progress=progress,
    )
    if progress is not None:
        progress(Progress(went.checks[-1].step, went.checks[-1].step, stage="setting thresholds"))
    return assembled(network, training, validation, preparation, settings, seed, went)


def _network(
    settings: Settings, shape: tuple[int, ...], classes: int, seed: int, chain: nn.Sequential | None
) -> Network:
    if chain is not None:
        return from_chain(chain, shape, settings.network.head, classes, seed)
    return build(settings.network, shape, classes, seed)


def _first(settings: Settings) -> Any:
    """Return what of the way to take in classes decides the first training, as checkpoints always had it."""
    about = method_of(settings.accommodation).about_first()
    return about[1] if about[:1] == (Proximal.kind,) else about or 0.0


def _about(settings: Settings, network: Network, preparation: Preparation) -> list[Any]:
    """Return what tells this training from others on the same data, beside its settings for training."""
    numbers = [None if value is None else value.tolist() for value in (preparation.mean, preparation.sd)]
    return [
        to_dict(settings.network),
        _first(settings),
        describe(network.body),
        preparation.shape,
        preparation.image_fit,
        *numbers,
    ]


def assembled(
    network: Network,
    training: Samples,
    validation: Samples,
    preparation: Preparation,
    settings: Settings,
    seed: int,
    went: Fit,
) -> Learner:
    """Return the learner of a trained network: thresholds, temperature, and what was measured on the way."""
    began = time.perf_counter()
    learner = Learner(
        network=network,
        classes=training.classes,
        taught=training.classes,
        detector=Detector(network.head.weight.detach(), settings.rule),
        preparation=preparation,
        settings=settings,
        seed=seed,
        look=Look.fit(training.inputs, training.labels),
    )
    seen, apart = learner.views(training.inputs), learner.views(validation.inputs)
    labels, held = training.labels.to(learner.device), validation.labels.to(learner.device)
    if score_name(settings) != OWN or not isinstance(settings.accommodation, Gaussian):
        learner.memory = method_of(settings.accommodation).remember(network, training, preparation)
    calibrated = _detection(learner, (seen, labels))
    learner.detector = calibrated(learner.detector.sees(apart), held)
    rows = learner.detector.sees(apart)
    learner.temperature = fit_temperature(learner.detector.class_scores(rows), held)
    learner.report = _report(training, validation, went) | {
        "held_out": learner.evaluate(validation),
        "held_out_acceptance": measured_acceptance(calibrated, (rows, held)),
        "exclusivity": metrics.mean_exclusivity(exclusivity(network.head.weight.detach(), seen.high, labels)),
        "calibration_seconds": time.perf_counter() - began,
        "taken_in": [],
    }
    return learner


def _detection(
    learner: Learner, training: tuple[Views, Tensor]
) -> Callable[[Tensor, Tensor], Detector | GaussianDetector | Judge]:
    """Give the learner its kind of detector, and return how to calibrate it on held-out features."""
    views, labels = training
    method, rule, names = learner.settings.accommodation, learner.settings.rule, learner.classes
    score = score_name(learner.settings)
    if score != OWN:
        naming = method_of(method).naming(learner.network, learner.memory)
        chosen = rival(score, Head.of(learner.network.head))
        learner.detector = judge = Judge.of(chosen, rule, training, naming)
        return lambda features, held: judge.calibrated(training, (judge.views(features), held), names)
    if isinstance(method, Gaussian):
        learner.detector = fitted = GaussianDetector.fit(views, labels, rule, method)
        return fitted.calibrated
    weights = learner.network.head.weight.detach()
    return lambda features, held: Detector(weights, rule).fit(
        views.high, labels, held_out=(features, held), names=names
    )


def _report(training: Samples, validation: Samples, went: Fit) -> dict[str, Any]:
    return {
        "training_samples": len(training),
        "held_out_samples": len(validation),
        "best": vars(went.best),
        "checks": [vars(check) for check in went.checks],
        "stopped_early": went.stopped_early,
        "seconds": went.seconds,
    }
