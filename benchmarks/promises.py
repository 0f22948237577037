"""Whether thresholds keep their word: python benchmarks/promises.py [NAME] [--data-dir DIR] [--seeds 0 1 …].

For each seed a small network is trained on seven classes of NAME (digits, mnist, fmnist; 16 pixels at most),
on 60 images of each. From images that trained nothing, 20, 50, 100 and 500 in all are drawn, --draws times,
to set thresholds on (calibration="separate"), and all others are judged. Then an eighth class is taken in
from 5 to 50 images, and others of it are judged. Printed, as means over seeds: the share of new images of
known classes that is accepted, how far the classes' own shares lie from the promise, the lowest of them, and
the first one's standard error; then of the class taken in the share accepted, whatever it is called, and of
the old classes after it.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from shels.config import OWN, AcceptShare, Gaussian, Proximal, Settings
from shels.config.presets import SMALL_IMAGES
from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.data.sources import load
from shels.data.splits import draw_classes
from shels.detection.protocol import KnownSamples, Labelled
from shels.learner.learner import Learner, learn
from shels.learner.pairing import detector_beside, needs_memory
from shels.learning.protocol import Memory
from shels.learning.registry import method_of
from shels.model.networks import Network

SIZES, SHARES, IMAGES = (20, 50, 100, 500), (0.9, 0.95, 0.99), (5, 10, 25, 50)
KNOWN, TRAINED_ON, MOST = 7, 60, 400
DETECTORS = ("gaussian", "shels", "fused", "fused-learned")
Figures = dict[tuple[str, float, int], list[list[float]]]
Means = dict[tuple[str, float, int], list[np.ndarray]]

Fitted = tuple[Settings, Memory, Any]


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
    fitted: dict[str, Fitted] = field(default_factory=dict)

    def learner(self, name: str, held_out: Labelled, share: float) -> Learner:
        """Give a learner whose thresholds were set on these held-out samples."""
        if name not in self.fitted:
            self.fitted[name] = self._fitted(name)
        settings, memory, fitted = self.fitted[name]
        rule, classes = AcceptShare(share, calibration="separate"), self.training.classes
        detector = replace(fitted, rule=rule).calibrated(KnownSamples(self.trained, held_out), classes)
        about = self.preparation, replace(settings, rule=rule), self.seed
        return Learner(self.network, classes, classes, detector, *about, memory=memory)

    def _fitted(self, name: str) -> Fitted:
        way = Proximal() if name == "shels" else Gaussian()
        detector = OWN if name in ("shels", "gaussian") else name
        settings = replace(self.settings, detector=detector, accommodation=way)
        memory = {}
        if needs_memory(settings):
            given = self.network, self.training, self.preparation, self.trained.features
            memory = method_of(way).first_memory(*given)
        entry, context = detector_beside(self.network, memory, settings, self.training.classes)
        return settings, memory, entry.fit(context, self.trained)


def trial(samples: Samples, seed: int) -> Trial:
    """Train a network for a seed, which decides on classes and images too."""
    split = draw_classes(samples.classes, KNOWN, seed)
    draw = torch.Generator().manual_seed(seed)
    samples = samples.take(torch.randperm(len(samples), generator=draw))
    known, later = samples.only(split.known), samples.only(split.novel[:1])
    place = torch.nn.functional.one_hot(known.labels).cumsum(dim=0).gather(1, known.labels[:, None])[:, 0]
    training, others = known.take(place <= TRAINED_ON), known.take((place > TRAINED_ON) & (place <= MOST))
    made = learn(training, SMALL_IMAGES, seed=seed, device="cpu", validation=others.take(torch.arange(100)))
    one, two = (Labelled(made.views(each.inputs), each.labels) for each in (training, others))
    return Trial(made.network, made.preparation, made.settings, training, one, two, later, seed)


def kept(made: Trial, name: str, draws: int, found: Figures) -> None:
    """Set thresholds on a few samples, and note what becomes of all others."""
    shares = (0.95,) if name == "fused-learned" else SHARES  # its weights are learned anew each time
    for size in SIZES:
        for draw in range(draws):
            held, asked = drawn(made, size, draw)
            for share in shares:
                verdicts = made.learner(name, held, share).judge_features(asked.features)
                accepted = (~verdicts.novel).double()
                by_class = [float(accepted[asked.labels == label].mean()) for label in range(KNOWN)]
                apart = float(np.abs(np.array(by_class) - share).mean())
                found[name, share, size].append([float(accepted.mean()), apart, min(by_class)])


def taken_in(made: Trial, name: str, draws: int, found: Figures) -> None:
    """Take a class in from a few images, and note what becomes of others of it and of the old classes."""
    for draw in range(draws):
        held, asked = drawn(made, 100, draw)
        learner = made.learner(name, held, 0.95)
        order = torch.randperm(len(made.later), generator=torch.Generator().manual_seed(draw))
        others = made.later.inputs[order[max(IMAGES) :]]
        for images in IMAGES:
            larger = learner.accommodate(made.later.inputs[order[:images]], "later")
            verdicts = [larger.judge(others), larger.judge_features(asked.features)]
            found[name, 0.95, images].append([float((~each.novel).double().mean()) for each in verdicts])


def drawn(made: Trial, size: int, draw: int) -> tuple[Labelled, Labelled]:
    """Draw samples to set thresholds on; the others are judged."""
    draws = torch.Generator().manual_seed(100_000 * made.seed + 1000 * draw + size)
    order = torch.randperm(len(made.others.labels), generator=draws)
    return made.others.take(order[:size]), made.others.take(order[size:])


def printed(heading: Sequence[str], found: Means) -> None:
    """Print means over seeds, and the standard error of the first."""
    print(*heading, sep="\t")
    for key, rows in found.items():
        error = np.std([row[0] for row in rows], ddof=1) / len(rows) ** 0.5 if len(rows) > 1 else float("nan")
        print(*key, *(f"{value:.3f}" for value in np.mean(rows, axis=0)), f"{error:.3f}", sep="\t")


def main() -> None:
    """Train, set thresholds, judge, and print two tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="?", default="digits", choices=["digits", "mnist", "fmnist"])
    parser.add_argument("--data-dir")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(20)))
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--detectors", nargs="+", default=list(DETECTORS), choices=DETECTORS)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    small = None if args.name == "digits" else 16
    data = load(args.name, args.data_dir, size=small)
    samples = data.train.followed_by(data.test) if args.name == "digits" else data.test
    before: Means = defaultdict(list)
    after: Means = defaultdict(list)
    for seed in args.seeds:
        made = trial(samples, seed)
        one: tuple[Figures, Figures] = (defaultdict(list), defaultdict(list))
        for name in args.detectors:
            kept(made, name, args.draws, one[0])
            if name in ("gaussian", "fused"):
                taken_in(made, name, args.draws, one[1])
        for total, mine in zip((before, after), one, strict=True):
            for key, rows in mine.items():
                total[key].append(np.mean(rows, axis=0))
    printed(("detector", "promised", "held out", "accepted", "classes apart", "lowest class", "±"), before)
    printed(("detector", "promised", "images", "new class accepted", "old classes accepted", "±"), after)


if __name__ == "__main__":
    main()
