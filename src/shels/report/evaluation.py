"""What a learner decided about samples, and how well: the material of the pages on a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from shels.data.arrays import sorted_classes
from shels.data.samples import Label, Samples
from shels.learner.learner import Learner

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Decisions:
    """Samples with what was decided about each; every array is (n,). margin: score less threshold."""

    samples: Samples
    predicted: Array
    score: Array
    margin: Array
    novel: Array
    p_value: Array

    @property
    def labels(self) -> Array:
        """The true class of each, as a place in `samples.classes`."""
        return self.samples.labels.numpy()

    def __len__(self) -> int:
        return len(self.score)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A learner, what it decided about samples of known and of novel classes, and its measures on them.

    novel: None where no sample of a novel class was shown. measures: from the learner's `evaluate`.
    """

    learner: Learner
    known: Decisions
    novel: Decisions | None
    measures: Mapping[str, Any]

    @property
    def known_rates(self) -> dict[str, Mapping[str, float]]:
        """What became of each known class that has samples, in the order of the classes' names."""
        return _sorted(self.measures["per_class"], self.learner.classes)

    @property
    def novel_rates(self) -> dict[str, Mapping[str, float]]:
        """The same of each novel class; empty without any."""
        return _sorted(self.measures["per_novel_class"], self.novel.samples.classes) if self.novel else {}

    @cached_property
    def exclusivity(self) -> tuple[Array, list[str]] | None:
        """Exclusivity of the taught classes that have samples, (classes, classes), with their names.

        None where fewer than two have any.
        """
        taught = [name for name in self.learner.taught if name is not None]
        samples = self.known.samples.only(taught, missing_ok=True)
        present = set(samples.labels.tolist())
        places = [place for name in sorted_classes(taught) if (place := taught.index(name)) in present]
        if len(places) < 2:
            return None
        return self.learner.exclusivity(samples)[places][:, places], [str(taught[each]) for each in places]


def evaluate(
    learner: Learner, known: Samples, novel: Samples | None, measures: Mapping[str, Any]
) -> Evaluation:
    """Let a learner decide about samples; `measures` are those of its `evaluate` on the same.

    novel: of classes that the learner was not taught, labelled by classes of their own.
    """
    others = _decide(learner, novel) if novel is not None and len(novel) else None
    return Evaluation(learner, _decide(learner, known.only(learner.classes)), others, measures)


def _sorted(
    rates: Mapping[str, Mapping[str, float]], classes: Sequence[Label]
) -> dict[str, Mapping[str, float]]:
    return {name: rates[name] for name in map(str, sorted_classes(classes)) if name in rates}


def _decide(learner: Learner, samples: Samples) -> Decisions:
    verdicts = learner.judge(samples.inputs)
    margin = verdicts.score - verdicts.threshold
    values = (verdicts.predicted, verdicts.score, margin, verdicts.novel, verdicts.p_value)
    return Decisions(samples, *(value.cpu().numpy() for value in values))
