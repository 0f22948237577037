"""Learning one class more, as a generator of its progress."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from torch import Tensor

from shels.data.samples import Label
from shels.learner.learner import Learner
from shels.model.networks import Views
from shels.training.courses import Progress
from shels.training.tasks import following

Result = TypeVar("Result")


def accommodating(
    learner: Learner, inputs: Tensor, label: Label, *, seed: int | None = None, features: Views | None = None
) -> Generator[Progress, None, Learner]:
    """Yield the progress of a training and return the learner that knows the class."""
    made: list[Learner] = []

    def work(report: Callable[[Progress], None]) -> None:
        made.append(learner.accommodate(inputs, label, seed=seed, progress=report, features=features))

    yield from following(work)
    return made[0]


def finished(work: Generator[Any, None, Result]) -> Result:
    """Run a generator to its end and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: Result = end.value
            return result
