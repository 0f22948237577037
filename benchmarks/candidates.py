"""Candidates for a preset, compared on class draws that no reported figure comes from (seeds 100 to 104).

    python benchmarks/candidates.py fmnist base cosine+augment cosine+augment+epochs=40+scale=10 \
        --data-dir DATA --out chosen

A candidate is the paper's setting of the data set with changes, joined by "+": `cosine` (Adam at 1e-3 along a
cosine, the last weights count), `augment` (crops; flips where they keep the class; brightness and contrast),
`normalised` (the same network with batch normalisation), `best` (the preset, to be changed further), and
`network=`, `size=`, `epochs=`, `rate=`, `alpha=`, `scale=`, `batch=`, `decay=`. Each is judged by several
detectors under several rules; one line for each says what the seeds come to on average. Results are kept in
DIR, and what is there is not run again.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

from shels.config import (
    AcceptShare,
    Adam,
    Augmentation,
    Cosine,
    MeanMinusSd,
    Settings,
    ThresholdRule,
    TrainingSettings,
)
from shels.config.presets import BEST
from shels.data.sources import load_named, suited
from shels.experiments.catalogue import CATALOGUE
from shels.experiments.engine import run
from shels.experiments.records import Records
from shels.experiments.trials import Trial, TrialResult

DETECTORS = ("shels", "shels-gaussian", "shels-fused")  # all on one network; others train their own
SHARES = (0.85, 0.9, 0.93, 0.95)
AUGMENTATION = Augmentation(crop=0.125, flip=0.5, brightness=0.1, contrast=0.2)
SHOWN = (
    *("known_accuracy", "novel_accuracy", "combined_accuracy", "auroc"),
    *("closed_set_accuracy", "acceptance", "exclusivity"),
)


def changed(settings: Settings, data: str, change: str) -> Settings:
    """Give settings with one change."""
    name, _, value = change.partition("=")
    network, training = settings.network, settings.training
    if name == "best":
        return BEST[data]
    shown: dict[str, Any] = {
        "normalised": lambda: {"architecture": f"{network.architecture}-bn"},
        "network": lambda: {"architecture": value},
        "size": lambda: {"image_size": int(value), "image_fit": "resize"},
        "scale": lambda: {"scale": None if value == "learned" else float(value)},
    }
    if name in shown:
        return replace(settings, network=replace(network, **shown[name]()))
    return replace(settings, training=_trained(training, data, name, value))


def _trained(training: TrainingSettings, data: str, name: str, value: str) -> TrainingSettings:
    adam = training.optimiser if isinstance(training.optimiser, Adam) else Adam()
    changes: dict[str, Any] = {
        "base": dict,
        "cosine": lambda: {
            "optimiser": replace(adam, learning_rate=1e-3, schedule=Cosine(0.1)),
            "keep": "last",
        },
        "augment": lambda: {"augmentation": suited(AUGMENTATION, data)},
        "epochs": lambda: {"epochs": int(value), "steps": None},
        "rate": lambda: {"optimiser": replace(adam, learning_rate=float(value))},
        "decay": lambda: {"optimiser": replace(adam, decoupled_decay=float(value))},
        "alpha": lambda: {"alpha": float(value)},
        "batch": lambda: {"batch_size": int(value)},
    }
    if name not in changes:
        raise SystemExit(
            f"unknown change {name!r}; there are {', '.join(changes)}, best, normalised, "
            "network=, size=, scale="
        )
    return replace(training, **changes[name]())


def trials_of(data: str, candidate: str, given: argparse.Namespace) -> dict[Trial, tuple[str, str, str]]:
    """Give the trials of a candidate, each with its candidate, detector and rule."""
    experiment = CATALOGUE[f"within/{data}"]
    settings = experiment.settings
    for change in candidate.split("+"):
        settings = changed(settings, data, change)
    rules: dict[str, ThresholdRule] = {"mean-sd": MeanMinusSd(1.0)}
    rules |= {f"{share:g}": AcceptShare(share) for share in given.shares}
    found = {}
    for seed in given.seeds:
        for method in given.detectors:
            for name, rule in rules.items():
                made = replace(settings, rule=rule)
                about = (data, data, *experiment.classes(seed), made, given.precision)
                found[Trial(experiment.name, method, seed, *about)] = (candidate, method, name)
    return found


def show(found: dict[tuple[str, str, str], list[TrialResult]]) -> None:
    """Print a line for each candidate, detector and rule."""
    print("candidate detector rule trials", *SHOWN, "seconds", flush=True)
    for (candidate, method, rule), results in found.items():
        figures = [mean(result.metrics.get(name, float("nan")) for result in results) for name in SHOWN]
        seconds = sum(result.seconds for result in results)
        print(candidate, method, rule, len(results), *(f"{value:.3f}" for value in figures), f"{seconds:.1f}")


def main() -> None:
    """Run what is asked for, and show what every candidate comes to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data")
    parser.add_argument("candidates", nargs="+")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, default=Path("candidates"))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(100, 105)))
    parser.add_argument("--detectors", nargs="+", default=list(DETECTORS))
    parser.add_argument("--shares", type=float, nargs="+", default=list(SHARES))
    parser.add_argument("--precision", default="float32", choices=["float32", "bfloat16"])
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    records = Records(given.out)
    with records.held():
        for candidate in given.candidates:
            about = trials_of(given.data, candidate, given)
            found = defaultdict(list)
            for step in run(list(about), records, lambda name, size: load_named(name, given.data_dir, size)):
                if step.kind == "failed":
                    print("failed", candidate, step.message, flush=True)
            for trial, names in about.items():
                result = records.find(trial)
                if result is not None:
                    found[names].append(result)
            show(found)


if __name__ == "__main__":
    main()
