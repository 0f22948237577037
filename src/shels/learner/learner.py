"""The learner: a trained network, its classes and its detector as one value that saves and loads."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from shels import runtime
from shels.config import Proximal, Settings, to_dict
from shels.data.preparation import Preparation, prepare_for
from shels.data.samples import Label, Samples
from shels.data.splits import Division, divided, divided_as_given
from shels.detection import metrics
from shels.detection.calibration import Verdicts, fit_temperature, measured_acceptance
from shels.detection.drift import ImageStatistics
from shels.detection.exclusivity import feature_exclusivity, mean_exclusivity
from shels.detection.protocol import Detector, KnownSamples, Labelled
from shels.errors import DataError, SettingsError
from shels.learner import changes, rule, storage
from shels.learner.explanation import explain
from shels.learner.export import export
from shels.learner.feature_cache import features_of
from shels.learner.pairing import detector_beside, needs_memory, score_name
from shels.learning.protocol import views_of
from shels.learning.registry import method_of
from shels.model.backbone_library import open_backbone
from shels.model.chains import describe
from shels.model.networks import Network, Views, behind, build, from_chain
from shels.training import Checkpoint, Fit, Progress, Rows, TrainingRequest, TrialData, TrialTraining, fitting


@dataclass(eq=False)
class Learner:
    """What was learned, whole: it scores, judges, measures itself, saves and loads."""

    network: Network
    classes: tuple[Label, ...]
    taught: tuple[Label | None, ...]
    """The classes of the head's rows, those that the network was trained on; None for one forgotten since."""
    detector: Detector
    preparation: Preparation
    settings: Settings
    seed: int
    temperature: float = 1.0
    """What class scores are divided by to become probabilities."""
    novel_label: Label | None = None
    """What `OpenWorldClassifier.predict` answers for novel samples, where it was used."""
    report: dict[str, Any] = field(default_factory=dict)
    """How it came about: samples, best check, held-out acceptance, exclusivity, classes taken in later."""
    statistics: ImageStatistics | None = None
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
        return self.detector.is_learner and self.detector.name == self.settings.accommodation.kind

    @property
    def stored_images(self) -> int:
        """How many images of its classes the model holds, for learners that replay them."""
        return len(self.memory.get("samples", ()))

    def views(self, inputs: Tensor, batch_size: int | None = None) -> Views:
        """Return low-level and high-level features of any number of inputs, in one pass."""
        return views_of(self.network, inputs, self.preparation, batch_size)

    def features(self, inputs: Tensor, batch_size: int | None = None) -> Tensor:
        """Return the high-level features of any number of inputs: (n, ...) -> (n, d)."""
        return self.views(inputs, batch_size).high

    def class_scores(self, inputs: Tensor) -> Tensor:
        """Return the similarity of inputs to each class: (n, classes)."""
        return self.detector.class_scores(self.views(inputs))

    def probabilities(self, inputs: Tensor) -> Tensor:
        """Return the probability of each class, taking it that one of them is right: (n, classes)."""
        scores = self.class_scores(inputs) / self.temperature
        return scores.clamp(min=torch.finfo(scores.dtype).min).softmax(dim=1)

    def judge(self, inputs: Tensor) -> Verdicts:
        """Return class or novel for each input."""
        return self.judge_features(self.views(inputs))

    def judge_features(self, features: Views) -> Verdicts:
        """Return class or novel for each input, from what the network made of them."""
        return self.detector.verdicts(features)

    accommodating = changes.accommodating
    accommodate = runtime.to_end(changes.accommodating)
    unlearn, rename, merge = changes.unlearned, changes.renamed, changes.merged
    with_accept_share, with_known = rule.with_accept_share, rule.with_known
    export, explain = export, explain

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
            return metrics.evaluated(*mine)
        return metrics.evaluated(*mine, self.judge(novel.inputs), novel.labels, novel.classes)

    def exclusivity(self, samples: Samples) -> np.ndarray[Any, Any]:
        """Return the exclusivity of each two taught classes' features over samples of theirs."""
        rows = [place for place, name in enumerate(self.taught) if name is not None]
        known = samples.only([self.taught[place] for place in rows])
        weights = self.network.head.weight.detach()[rows]
        return feature_exclusivity(weights, self.features(known.inputs), known.labels.to(self.device))

    def save(self, directory: str | Path) -> None:
        """Write the learner into a directory, whole or not at all; a model already there is replaced."""
        storage.save(Path(directory), vars(self))

    @staticmethod
    def load(directory: str | Path, device: str = "auto", *, backbone: nn.Module | None = None) -> Learner:
        """Return the learner saved in a directory; what is damaged, foreign or newer is refused.

        backbone: the module that the model was trained on, where that was one of one's own.
        """
        return Learner(**storage.load(Path(directory), runtime.device(device), backbone))


def learning(
    samples: Samples,
    settings: Settings,
    *,
    seed: int,
    device: str | torch.device = "auto",
    chain: nn.Sequential | None = None,
    backbone: nn.Module | None = None,
    checkpoint: Path | None = None,
    validation: Samples | None = None,
    views: Tensor | None = None,
) -> Generator[Progress, None, Learner]:
    """Learn these samples' classes: hold some out, train on the rest, set the thresholds; report on the way.

    validation: samples of the same classes that are held out instead, all others being trained on.
    chain: a network of one's own instead of the settings' architecture. backbone: a module of one's own in
    place of the settings' backbone. checkpoint: where an unfinished training leaves its state, from which it
    goes on. views: further views of each sample, (k, n, ...), trained on where the sample is.
    """
    runtime.check_seed(seed)  # a model with another could be saved, and not be loaded again
    if settings.network.frozen:
        return (yield from _on_frozen(samples, validation, settings, seed, device, backbone, checkpoint))
    if settings.network.head == "scaled-cosine":
        raise SettingsError('head "scaled-cosine" is a rival\'s, for experiments; use "cosine" or "linear"')
    score_name(settings)  # refuses a detector and a learner that cannot work together
    if len(samples.classes) < 2:
        raise DataError(f"{samples.origin}: a classifier needs 2 classes or more, got {len(samples.classes)}")
    samples.require_every_class()
    if validation is None:
        split = divided(samples.labels, samples.groups, settings, seed)
    else:
        split = divided_as_given(samples, validation, settings, seed)
        samples = samples.followed_by(validation)
    if not len(split.selection):
        raise DataError(f"{samples.origin}: nothing can be held out; give every class 2 samples or more")
    training, held_out = samples.take(split.training), samples.take(split.calibration)
    preparation = prepare_for(training.inputs, settings.network)
    method_of(settings.accommodation).check(preparation.shape, len(samples.classes))
    if chain is None:
        network = build(settings.network, preparation.shape, len(samples.classes), seed, backbone)
    else:
        head = settings.network.head, len(samples.classes), seed, settings.network.scale
        network = from_chain(chain, preparation.shape, *head)
        settings = replace(settings, network=replace(settings.network, architecture="own"))
    network.to(runtime.device(device))
    preparation = preparation.to(runtime.device(device))
    trial = _trial(samples, split, preparation, views)
    store = Checkpoint(checkpoint, _about(settings, network, preparation)) if checkpoint else None
    initial = method_of(settings.accommodation).initial(network, settings.training)
    request = TrialTraining(network, trial, seed, checkpoint=store)
    fit = yield from fitting(TrainingRequest(request, initial.loss, initial.settings, initial.after_step))
    yield Progress(fit.checks[-1].step, fit.checks[-1].step, stage="setting thresholds")
    with runtime.threads(1 if samples.inputs.ndim == 2 else None):  # of vectors there is little to share
        return assembled(network, training, held_out, preparation, settings, seed, fit)


def _trial(samples: Samples, split: Division, preparation: Preparation, views: Tensor | None) -> TrialData:
    """Return what is trained on, each sample in all of its views, and what is validated on."""
    held_out = Rows(split.selection, samples.labels[split.selection])
    count = 0 if views is None else len(views)
    index = torch.cat([split.training + len(samples) * view for view in range(count + 1)])
    inputs = samples.inputs if views is None else torch.cat([samples.inputs, views.flatten(0, 1)])
    return TrialData(inputs, Rows(index, samples.labels[index % len(samples)]), held_out, preparation)


VIEWS = 3
"""How many changed views of each photo are trained on where a frozen backbone's features are kept."""


def _on_frozen(
    samples: Samples,
    validation: Samples | None,
    settings: Settings,
    seed: int,
    device: str | torch.device,
    own: nn.Module | None,
    checkpoint: Path | None,
) -> Generator[Progress, None, Learner]:
    """Learn from what a frozen backbone makes of samples, and put both together."""
    where = runtime.device(device)
    backbone = open_backbone(own or settings.network.backbone or "", frozen=True).to(where)
    preparation = prepare_for(samples.inputs, settings.network).to(where)
    change = settings.training.augmentation
    every = samples if validation is None else samples.followed_by(validation)
    found = yield from features_of(backbone, preparation, every.inputs, change, views=VIEWS, seed=seed)
    vectors = replace(every, inputs=found[0].cpu())
    there = torch.arange(len(every)) < len(samples)
    held_out = None if validation is None else vectors.take(~there)
    network = replace(settings.network, backbone=None, frozen=False, image_size=None, architecture="vectors")
    plain = replace(settings, network=network, training=replace(settings.training, augmentation=None))
    more = found[1:].cpu() if len(found) > 1 else None
    learner = yield from learning(
        vectors.take(there),
        plain,
        seed=seed,
        device=where,
        checkpoint=checkpoint,
        validation=held_out,
        views=more,
    )
    learner.network = behind(backbone, learner.network, learner.preparation.mean, learner.preparation.sd)
    learner.preparation, learner.settings = preparation, settings
    learner.statistics = ImageStatistics.fit(samples.inputs, samples.labels)
    return learner


learn = runtime.to_end(learning)
"""Learn as `learning` does, in one call that returns the learner."""


def _about(settings: Settings, network: Network, preparation: Preparation) -> list[Any]:
    """Return what tells this training from others on the same data, beside its settings for training."""
    about = method_of(settings.accommodation).about_initial()
    first = about[1] if about[:1] == (Proximal.kind,) else about or 0.0  # as checkpoints always had it
    numbers = [None if value is None else value.tolist() for value in (preparation.mean, preparation.sd)]
    made = [to_dict(settings.network), first, describe(network.body)]
    return [*made, preparation.shape, preparation.image_fit, *numbers]


def assembled(
    network: Network,
    training: Samples,
    validation: Samples,
    preparation: Preparation,
    settings: Settings,
    seed: int,
    trained: Fit,
) -> Learner:
    """Make the learner of a trained network: thresholds, temperature, and what was measured on the way."""
    began = time.perf_counter()
    samples = KnownSamples(*(_labelled(network, part, preparation) for part in (training, validation)))
    memory = {}
    if needs_memory(settings):
        seen = samples.training.features
        memory = method_of(settings.accommodation).first_memory(network, training, preparation, seen)
    learner = with_detector(network, training.classes, samples, preparation, settings, seed, memory=memory)
    learner.statistics = ImageStatistics.fit(training.inputs, training.labels)
    (seen, labels), held_out = samples
    learner.temperature = fit_temperature(learner.detector.class_scores(held_out.features), held_out.labels)
    matrix = feature_exclusivity(network.head.weight.detach(), seen.high, labels)
    learner.report = {
        "training_samples": len(training),
        "held_out_samples": len(validation),
        "best": vars(trained.best),
        "checks": [vars(check) for check in trained.checks],
        "stopped_early": trained.stopped_early,
        "seconds": trained.seconds,
        "held_out": metrics.evaluated(
            learner.detector.verdicts(held_out.features), held_out.labels, validation.classes
        ),
        "held_out_acceptance": measured_acceptance(learner.detector, samples, learner.classes),
        "acceptance_measured_at": "training",
        "exclusivity": mean_exclusivity(matrix),
        "calibration_seconds": time.perf_counter() - began,
        "taken_in": [],
    }
    return learner


def with_detector(
    network: Network,
    classes: tuple[Label, ...],
    samples: KnownSamples,
    preparation: Preparation,
    settings: Settings,
    seed: int,
    *,
    memory: dict[str, Tensor] | None = None,
    detector: str | None = None,
) -> Learner:
    """Make a learner of a trained network and of what it sees of samples: `fit` and experiments alike.

    memory: what the way of taking in classes keeps. detector: the name of one to judge beside the network's
    last layer, whatever the settings say: an experiment that takes in no class can ask for any.
    """
    memory = memory or {}
    entry, context = detector_beside(network, memory, settings, classes, detector)
    fitted = entry.fit(context, samples.training).calibrated(samples, classes)
    return Learner(network, classes, classes, fitted, preparation, settings, seed, memory=memory)


def _labelled(network: Network, samples: Samples, preparation: Preparation) -> Labelled:
    features = views_of(network, samples.inputs, preparation)
    return Labelled(features, samples.labels.to(features.high.device))
