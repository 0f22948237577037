"""How well a model would do on samples and classes that it has seen nothing of: trained anew without them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shels.config import Settings
from shels.data.partition import folds_of
from shels.data.samples import Samples
from shels.detection.protocol import Labelled
from shels.learner.checking import FOLDS, Round, measured
from shels.learner.learner import Learner, learning
from shels.training import Progress

Array = NDArray[Any]


def retraining(
    samples: Samples,
    settings: Settings,
    *,
    groups: Array | None = None,
    folds: int = FOLDS,
    seed: int = 0,
    device: str | torch.device = "auto",
) -> Generator[Progress, None, list[Round]]:
    """Train as many times, each time without one fold of the samples and without some of the classes.

    Every class is left out once, where there are three or more. Samples of the fold of the classes that
    remain are the known ones, all of the classes left out the novel ones: the network has seen none.
    """
    alone = np.arange(len(samples)) if groups is None else groups
    fold = torch.from_numpy(folds_of(samples.labels.numpy(), alone, folds, seed))
    count = len(samples.classes)
    rounds = []
    for number in range(min(folds, count) if count > 2 else folds):
        left = [c for c in range(count) if c % folds == number] if count - -(-count // folds) >= 2 else []
        stays = [name for place, name in enumerate(samples.classes) if place not in left]
        training = samples.take(fold != number).only(stays)
        made = yield from learning(training, settings, seed=seed + number, device=device)
        rounds.append(_retrained(made, samples, fold == number, left))
    return rounds


def _retrained(made: Learner, samples: Samples, judged: Tensor, left: Sequence[int]) -> Round:
    """Measure a learner on samples and classes that its training had nothing of."""
    places = torch.tensor(left, dtype=torch.int64)
    novel = samples.take(torch.isin(samples.labels, places))
    known = samples.take(judged).only(made.classes)
    name = ", ".join(str(samples.classes[place]) for place in left)
    others = made.views(novel.inputs) if len(novel) else None
    return measured(name, made.detector, _labelled(made, known), others)


def _labelled(learner: Learner, samples: Samples) -> Labelled:
    return Labelled(learner.views(samples.inputs), samples.labels.to(learner.device))
