"""Why a verdict came out as it did: other classes, what was unusual, and the most similar known samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from shels.data.samples import Samples
from shels.detection.calibration import Verdicts
from shels.detection.protocol import Evidence
from shels.errors import DataError
from shels.model.head import unit
from shels.model.networks import Views

if TYPE_CHECKING:
    from shels.data.samples import Label
    from shels.learner.learner import Learner


@dataclass(frozen=True)
class Aspect:
    """One way of looking at a sample. p_value: the share of the class's samples that look as odd by it."""

    name: str
    p_value: float


@dataclass(frozen=True)
class Unit:
    """A high-level feature, all of them together of length 1. expected: what it is in the predicted class."""

    number: int
    value: float
    expected: float


@dataclass(frozen=True)
class Example:
    """A known sample that lies near, in the classes' spread."""

    source: str
    label: Label
    distance: float


@dataclass(frozen=True)
class Explanation:
    """A verdict and what stands behind it.

    class_p_values: of every class, the likeliest first; of the predicted class alone where the score is not
    about a class, as a softmax is not. aspects: the most unusual first; none where the
    detector's score is of one piece. units: the features that differ most from what the predicted class
    has. examples: the nearest first; none where there are no known samples to look among.
    """

    verdict: Label
    predicted: Label
    score: float
    threshold: float
    p_value: float
    novel: bool
    class_p_values: dict[Label, float]
    aspects: tuple[Aspect, ...]
    units: tuple[Unit, ...]
    examples: tuple[Example, ...]

    @property
    def words(self) -> str:
        """Say it in a sentence or two.

        >>> aspects = (Aspect("shared features", 0.002),)
        >>> Explanation("novel", 3, -4.0, -2.0, 0.01, True, {3: 0.01, 5: 0.0}, aspects, (), ()).words
        'Most like 3, but only 1.0 % of its samples score as low. Most unusual: shared features (p 0.002).'
        """
        how = f"{100 * self.p_value:.1f} % of its samples score as low"
        said = f"Most like {self.predicted}, but only {how}." if self.novel else f"{self.predicted}: {how}."
        if self.aspects:
            said += f" Most unusual: {self.aspects[0].name} (p {in_words(self.aspects[0].p_value)})."
        if self.examples:
            said += f" Nearest known sample: {self.examples[0].source} ({self.examples[0].label})."
        return said


def in_words(p_value: float) -> str:
    """Write a p-value, one that would round to nothing as less than what is shown.

    >>> in_words(0.0421), in_words(1e-9)
    ('0.042', '<0.001')
    """
    return "<0.001" if p_value < 0.0005 else f"{p_value:.3f}"


def explain(
    learner: Learner,
    inputs: Tensor,
    examples: Samples | None = None,
    *,
    sources: Sequence[str] | None = None,
    most: int = 3,
) -> list[Explanation]:
    """Explain the verdict on each input.

    examples: known samples to look for similar ones among; by default those that the model keeps, if its
    learner keeps any. sources: what each of them is called. most: how many units and examples to give.
    """
    views = learner.views(inputs)
    if examples is None and learner.stored_images:
        stored = learner.memory["samples"], learner.memory["labels"].cpu(), learner.classes
        examples = Samples(*stored, origin="kept by the model")
    near: list[tuple[Example, ...]] = [()] * len(inputs)
    if examples is not None and len(examples):
        near = _nearest(learner, views, examples, sources, most)
    evidence, verdicts = learner.detector.evidence(views), learner.judge_features(views)
    units = _units(views.high, evidence.expected, most)
    return [
        _explanation(learner.classes, verdicts, evidence, row, units[row], near[row])
        for row in range(len(inputs))
    ]


def _explanation(
    classes: tuple[Label, ...],
    verdicts: Verdicts,
    evidence: Evidence,
    row: int,
    units: tuple[Unit, ...],
    examples: tuple[Example, ...],
) -> Explanation:
    name, novel = classes[int(verdicts.predicted[row])], bool(verdicts.novel[row])
    pairs = zip(classes, evidence.class_p_values[row].tolist(), strict=True)
    by_class = [pair for pair in pairs if math.isfinite(pair[1])]
    aspects = [Aspect(each, float(values[row])) for each, values in evidence.aspects.items()]
    return Explanation(
        verdict="novel" if novel else name,
        predicted=name,
        score=float(verdicts.score[row]),
        threshold=float(verdicts.threshold[row]),
        p_value=float(verdicts.p_value[row]),
        novel=novel,
        class_p_values=dict(sorted(by_class, key=lambda pair: (-pair[1], pair[0] != name))),
        aspects=tuple(sorted(aspects, key=lambda each: each.p_value)),
        units=units,
        examples=examples,
    )


def _units(high: Tensor, expected: Tensor, most: int) -> list[tuple[Unit, ...]]:
    """Find the features that differ most from what is expected of them."""
    rows = unit(high.float())
    places = (rows - expected).abs().topk(min(most, rows.shape[1]), dim=1).indices
    columns = (places, rows.gather(1, places), expected.gather(1, places))
    return [
        tuple(Unit(*each) for each in zip(*row, strict=True))
        for row in zip(*(column.tolist() for column in columns), strict=True)
    ]


def _nearest(
    learner: Learner, views: Views, examples: Samples, sources: Sequence[str] | None, most: int
) -> list[tuple[Example, ...]]:
    """Find the known samples nearest to each sample, where classes spread alike in all directions."""
    if sources is not None and len(sources) != len(examples):
        raise DataError(f"{len(sources)} names for {len(examples)} examples; give one for each")
    names = sources or [f"{examples.origin} #{row}" for row in range(len(examples))]
    others = learner.views(examples.inputs)
    joined = Views(*(torch.cat(pair) for pair in zip(views, others, strict=True)))
    rows, count = learner.detector.places(joined).rows, len(views.high)
    exact = "donot_use_mm_for_euclid_dist"  # so that a sample lies at 0 from itself
    every = torch.cdist(rows[:count], rows[count:], compute_mode=exact)
    gaps, found = every.topk(min(most, len(names)), dim=1, largest=False)
    labels = [examples.classes[label] for label in examples.labels.tolist()]
    return [
        tuple(Example(names[at], labels[at], gap) for at, gap in zip(places, distances, strict=True))
        for places, distances in zip(found.tolist(), gaps.tolist(), strict=True)
    ]
