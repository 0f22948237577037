"""Photos of one's own, from folders to figures: python benchmarks/photos.py DATA [--frozen] [--splits 5].

DATA is a folder that holds one of photos for each class, ten or so, or the name of a data set (--images: so
many of each class). For each split, by file, seven classes (or --known) are learned from four fifths of their
photos; the others are novel. Printed for each split and on average: CPU seconds and steps of the training,
accuracy among the known classes, share of known test photos accepted, AUROC and share of novel photos
rejected, and accuracy over all classes once the novel ones are taken in from 100 photos each, and from 20.
--before: with the training that the default preset had before its rate fell on the way.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from shels.config import AcceptShare, Adam, Settings, TrainingSettings
from shels.data.samples import Samples
from shels.data.sources import NAMED, load
from shels.learner.choosing import chosen
from shels.learner.learner import Learner, learn


@dataclass(frozen=True)
class Figures:
    """What one split came to."""

    cpu_seconds: float
    wall_seconds: float
    steps: float
    closed_set: float
    accepted: float
    auroc: float
    rejected: float
    all_after_100: float
    all_after_20: float


def halves(samples: Samples, share: float, seed: int) -> tuple[Samples, Samples]:
    """Divide samples by file: a share of each class for testing."""
    draw = torch.Generator().manual_seed(seed)
    test = torch.zeros(len(samples), dtype=torch.bool)
    for label in range(len(samples.classes)):
        rows = (samples.labels == label).nonzero()[:, 0]
        test[rows[torch.randperm(len(rows), generator=draw)[: round(share * len(rows))]]] = True
    return samples.take(~test), samples.take(test)


def limited(samples: Samples, images: int | None) -> Samples:
    """Keep the first images of each class."""
    places = [(samples.labels == label).nonzero()[:images, 0] for label in range(len(samples.classes))]
    return samples.take(torch.cat(places))


def as_before(settings: Settings) -> Settings:
    """Give a network from scratch the training that it had: a rate that stays, and early stopping."""
    training = TrainingSettings(Adam(3e-4), batch_size=64, steps=6000, check_every=100, patience=10)
    return replace(settings, training=training, rule=AcceptShare(0.95))


def measured(samples: Samples, known: int, seed: int, args: argparse.Namespace) -> Figures:
    """Train, judge, take in the novel classes, and measure."""
    order = torch.randperm(len(samples.classes), generator=torch.Generator().manual_seed(seed)).tolist()
    names = [samples.classes[place] for place in order]
    train, test = halves(samples, 0.2, seed)
    side = min(samples.inputs.shape[2:])
    settings = chosen("default", side, backbone=args.backbone, frozen=args.frozen).settings
    settings = as_before(settings) if args.before else settings
    cpu, wall = time.process_time(), time.perf_counter()
    learner = learn(train.only(names[:known]), settings, seed=seed, device=args.device)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    mine, novel = test.only(names[:known]), samples.only(names[known:])
    seen, new = learner.judge(mine.inputs), learner.judge(novel.inputs)
    truth = np.r_[np.ones(len(mine)), np.zeros(len(novel))]
    return Figures(
        cpu,
        wall,
        learner.report["checks"][-1]["step"],
        share(seen.predicted.cpu() == mine.labels),
        share(~seen.novel),
        float(roc_auc_score(truth, torch.cat([seen.score, new.score]).double().cpu().numpy())),
        share(new.novel),
        after(learner, train, test, names, known, 100),
        after(learner, train, test, names, known, 20),
    )


def after(
    learner: Learner, train: Samples, test: Samples, names: Sequence[object], known: int, images: int
) -> float:
    """Take in every novel class from so many images, and return the accuracy over all, nothing rejected."""
    for name in names[known:]:
        learner = learner.accommodate(train.only([name]).inputs[:images], name)
    everything = test.only(learner.classes)
    return share(learner.class_scores(everything.inputs).argmax(dim=1).cpu() == everything.labels)


def share(marks: Tensor) -> float:
    """Return the share of marks that are set."""
    return float(marks.float().mean())


def main() -> None:
    """Run all splits and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--known", type=int, default=7)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--size", type=int)
    parser.add_argument("--images", type=int)
    parser.add_argument("--before", action="store_true")
    parser.add_argument("--backbone")
    parser.add_argument("--frozen", action="store_true")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    named = args.data in NAMED
    given = load(args.data, size=args.size or (None if named else 128), channels=None if named else "rgb")
    samples = limited(given.train, args.images)
    names = [each.name for each in fields(Figures)]
    print("split", *names, sep="\t")
    rows = []
    for seed in range(args.splits):
        found = measured(samples, args.known, seed, args)
        rows.append([getattr(found, name) for name in names])
        print(seed, *(f"{value:.3f}" for value in rows[-1]), sep="\t", flush=True)
    print("mean", *(f"{value:.3f}" for value in np.mean(rows, axis=0)), sep="\t")
    print("sd", *(f"{value:.3f}" for value in np.std(rows, axis=0)), sep="\t")


if __name__ == "__main__":
    main()
