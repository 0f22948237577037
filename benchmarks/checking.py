"""How far to trust `shels check`: planted wrong labels that it finds, and its estimates beside the truth.

python benchmarks/checking.py labels                     ten digits of 1,257 under wrong labels, six draws
python benchmarks/checking.py novelty --data-dir DIR     GTSRB: AUROC by estimate and on novel test photos
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from shels.config import Adam, TrainingSettings
from shels.config.presets import DEFAULT
from shels.data.sources import load_named
from shels.data.splits import draw_classes, split_data
from shels.detection.leave_one_out import left_out_fits
from shels.learner.checking import by_folds, seen_by, without_classes
from shels.learner.estimates import estimates
from shels.learner.learner import learn
from shels.learner.retraining import retraining
from shels.runtime import finished

PLANTED = 10


def labels(draws: int) -> None:
    """Count the wrong labels among the first ten suspects of networks that were trained on them."""
    data = load_named("digits").train
    training = TrainingSettings(Adam(1e-3), batch_size=32, steps=600, check_every=100, patience=10)
    found = []
    for seed in range(draws):
        random = torch.Generator().manual_seed(seed)
        bad = torch.randperm(len(data), generator=random)[:PLANTED]
        wrong = data.labels.clone()
        wrong[bad] = (wrong[bad] + torch.randint(1, 10, (PLANTED,), generator=random)) % 10
        samples = replace(data, labels=wrong)
        learner = learn(samples, replace(DEFAULT, training=training), seed=seed, device="cpu")
        suspects = left_out_fits(learner.views(samples.inputs).shared, wrong, 10).suspects()
        found.append(len(set(suspects[:PLANTED].tolist()) & set(bad.tolist())))
        print(
            f"draw {seed}: {found[-1]} of {PLANTED} among the first {PLANTED} of {len(suspects)}", flush=True
        )
    print(f"mean {np.mean(found):.2f}")


def novelty(draws: int, data_dir: Path | None) -> None:
    """Set AUROC by classes left out, and by networks trained anew, beside that on novel test photos."""
    data = load_named("gtsrb", data_dir, 24)
    training = TrainingSettings(Adam(1e-3), batch_size=64, steps=200, check_every=100, patience=10)
    settings = replace(DEFAULT, training=training)
    for seed in range(draws):
        random = torch.Generator().manual_seed(seed)
        train, known, novel = split_data(data, draw_classes(data.train.classes[:20], 8, seed))
        train = train.take(torch.randperm(len(train), generator=random)[:2000])
        learner = learn(train, settings, seed=seed, device="cpu")
        seen = seen_by(learner, train)
        anew = finished(retraining(train, settings, groups=seen.groups, seed=seed, device="cpu"))
        left_out = estimates(without_classes(learner, seen))
        shown = {
            "folds": estimates(by_folds(learner, seen)[0]),
            "classes left out": left_out,
            "anew": estimates(anew),
        }
        for name, each in shown.items():
            print(
                f"draw {seed}, {name}:",
                {key: round(value.value, 3) for key, value in each.items()},
                flush=True,
            )
        truth = learner.evaluate(known, novel)
        wanted = ("closed_set_accuracy", "acceptance", "novel_accuracy", "auroc")
        print(f"draw {seed}, test photos:", {key: round(truth[key], 3) for key in wanted}, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("labels", "novelty"))
    parser.add_argument("--draws", type=int)
    parser.add_argument("--data-dir", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.what == "labels":
        labels(given.draws or 6)
    else:
        novelty(given.draws or 2, given.data_dir)
