"""Whether thresholds keep their word: python benchmarks/promises.py [NAME] [--data-dir DIR] [--seeds 0 1 …].

For each seed a small network is trained on seven classes of NAME, on 60 images of each. From images that
trained nothing, 20, 50, 100 and 500 in all are drawn to set thresholds on, several times over, and all others
are judged. Then an eighth class is taken in, from 5 to 50 images. Printed, as means over seeds: the share of new
images of known classes that is accepted, with the standard error over seeds, and how far the classes' own
shares lie from the promise on average; and of the class taken in the share that is accepted.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from shels.config import OWN, AcceptShare, Gaussian, Proximal, Settings
from shels.config.presets import SMALL_IMAGES
from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.data.sources import load
from shels.data.splits import draw_classes
from shels.detection.protocol import Detector, KnownSamples, Labelled
from shels.learner.learner import Learner, learn, with_detector
from shels.learner.pairing import needs_memory
from shels.learning.registry import method_of
from shels.model.networks import Network

SIZES, SHARES, IMAGES = (20, 50, 100, 500), (0.9, 0.95, 0.99), (5, 10, 25, 50)
KNOWN, TRAINED_ON, JUDGED = 7, 60, 200
Figures = dict[tuple[str, float, int], list[float]]


@dataclass(frozen=True)
class Trial:
    """A trained network, what it makes of images that trained it and of others, and a class to come."""

    network: Network
    preparation: Preparation
    settings: Settings
    training: Samples
    trained: Labelled
    others: Labelled
    later: Samples
    seed: int

    def learner(self, name: str, held_out: Labelled, share: float) -> Learner:
        """Give a learner whose thresholds were set on these held-out samples."""
        rule = AcceptShare(share, calibration="separate")
        way = Proximal() if name == "shels" else Gaussian()
        detector = OWN if name in ("shels", "gaussian") else name
        settings = replace(self.settings, rule=rule, detector=detector, accommodation=way)
        memory = {}
        if needs_memory(settings):
            method = method_of(way)
            given = self.network, self.training, self.preparation, self.trained.features
            memory = method.first_memory(*given)
        samples = KnownSamples(self.trained, held_out)
        classes = self.training.classes
        return with_detector(
            self.network, classes, samples, self.preparation, settings, self.seed, memory=memory
        )


def trial(samples: Samples, seed: int, steps: int | None) -> Trial:
    """Train a network for a seed, which decides on classes and images too."""
    split = draw_classes(samples.classes, KNOWN, seed)
    draw = torch.Generator().manual_seed(seed)
    samples = samples.take(torch.randperm(len(samples), generator=draw))
    known, later = samples.only(split.known), samples.only(split.novel[:1])
    place = torch.stack([(known.labels == known.labels[i])[:i].sum() for i in range(len(known))])
    training, others = known.take(place < TRAINED_ON), known.take((place >= TRAINED_ON) & (place < 400))
    chosen = SMALL_IMAGES.training if steps is None else replace(SMALL_IMAGES.training, steps=steps)
    settings = replace(SMALL_IMAGES, training=chosen)
    made = learn(training, settings, seed=seed, device="cpu", validation=others.take(torch.arange(100)))
    views = [Labelled(made.views(each.inputs), each.labels) for each in (training, others)]
    return Trial(made.network, made.preparation, settings, training, *views, later, seed)
