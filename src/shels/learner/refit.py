"""Another learner or detector for a model, on the network that it has, where that will do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from shels.data.preparation import prepare_for
from shels.data.splits import divided, match_class
from shels.detection.drift import ImageStatistics
from shels.errors import SettingsError
from shels.learner.learner import assembled
from shels.learner.pairing import detector_name, paired
from shels.learning.registry import method_of
from shels.training import Check, Fit

if TYPE_CHECKING:
    from torch import Tensor

    from shels.config import Settings
    from shels.data.samples import DataSet, Samples
    from shels.learner.learner import Learner


@dataclass(frozen=True, eq=False)
class Refit:
    """What a model is to become: other settings than it has, for the network that it has."""

    learner: Learner
    settings: Settings

    def fitted(self, data: DataSet | None) -> Learner:
        """Fit a learner with these settings on the samples that the model was trained on.

        data: where they are looked for. Raises SettingsError where it takes a new training.
        """
        self._check_network()
        samples = None if data is None else self._samples(data)
        if samples is None:
            raise self._refusal("the stream does not come with the samples that the model was trained on")
        parts = divided(samples.labels, samples.groups, self.settings, self.learner.seed)
        training, held = samples.take(parts.training), samples.take(parts.calibration)
        if not self._is_what_it_learned(training, held):
            raise self._refusal("the stream's training part is not what the model was trained on")
        old, report = self.learner, self.learner.report
        checks = tuple(Check(**check) for check in report["checks"])
        first = Fit(checks, Check(**report["best"]), report["stopped_early"], report["seconds"])
        made = assembled(old.network, training, held, old.preparation, self.settings, old.seed, first)
        names = {"learner": self.settings.accommodation.kind, "detector": detector_name(self.settings)}
        change = {"last_change": {"kind": "refitted", **names}}
        return replace(made, novel_label=old.novel_label, report=made.report | change)

    def _check_network(self) -> None:
        """Refuse a network that was trained otherwise, or changed since."""
        old, new = self.learner.settings, self.settings
        if self.learner.report.get("taken_in") or self.learner.taught != self.learner.classes:
            raise self._refusal("the model's classes were changed since it was trained")
        first = [method_of(each.accommodation).about_initial() for each in (old, new)]
        if (old.network, old.training, first[0]) != (new.network, new.training, first[1]):
            raise self._refusal(f"learner {new.accommodation.kind} takes a network that is trained otherwise")

    def _samples(self, data: DataSet) -> Samples | None:
        """Find the training samples of the model's classes, None where one of them is not there."""
        places = [match_class(name, data.train.classes) for name in self.learner.classes]
        names = [data.train.classes[place] for place in places if place is not None]
        if len(names) < len(places):
            return None
        return replace(data.train.only(names), classes=self.learner.classes)

    def _is_what_it_learned(self, training: Samples, held: Samples) -> bool:
        """Tell whether these are the samples of the first training, divided as they were then."""
        old, report = self.learner, self.learner.report
        if [len(training), len(held)] != [report["training_samples"], report["held_out_samples"]]:
            return False
        now, then = prepare_for(training.inputs, self.settings.network), old.preparation
        seen = ImageStatistics.fit(training.inputs, training.labels)
        was = seen if old.statistics is None else old.statistics
        mine, theirs = (now.mean, now.sd, seen.low, seen.high), (then.mean, then.sd, was.low, was.high)
        return all(map(_same, mine, theirs))

    def _refusal(self, why: str) -> SettingsError:
        old, new = (
            (each.accommodation.kind, detector_name(each)) for each in (self.learner.settings, self.settings)
        )
        return SettingsError(
            f"{why}; the model has learner {old[0]} and detector {old[1]}: train the model with --detector "
            f"{new[1]} --learner {new[0]}"
        )


def refit(learner: Learner, name: str | None, detector: str | None, data: str) -> Refit | None:
    """Work out what a model must become to have the learner and the detector of these names; None if it has.

    data: the stream, for which the learner may have numbers of its own. Raises SettingsError where the two
    cannot work together.
    """
    old = learner.settings
    new = paired(old, name, detector, data)
    pairs = [(each.accommodation.kind, detector_name(each)) for each in (old, new)]
    return None if pairs[0] == pairs[1] else Refit(learner, new)


def _same(now: Tensor | None, then: Tensor | None) -> bool:
    """Tell whether the numbers are the same, up to rounding; None is like None alone."""
    if now is None or then is None:
        return now is then
    return now.shape == then.shape and torch.allclose(now.cpu(), then.cpu())
