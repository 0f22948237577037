"""Candidates for the preset `best`, compared without any novel class and without any test image.

    python benchmarks/candidates.py fmnist best best+scale=3 paper --data-dir DATA --out chosen

The draws of seeds 100 to 104, which no reported figure comes from, say which classes are known. Some of
these are left out and play novel (`--left-out`; 0 shows what shares of known samples come to), others in the
next turn. Training images of the known classes alone are read: a part of them is held out of all training,
and judged afterwards. So neither the draw's novel classes nor test images have a say, and all candidates meet
the same draws.

A candidate is a preset of the data set, `best` or `paper`, with changes, joined by "+": `augment=` (none,
crops, moved, cutout), `network=`, `size=`, `epochs=`, `rate=`, `alpha=`, `scale=`, `batch=`, `decay=`. Each
is judged by several detectors, and at several shares of known samples to accept. What it comes to on average
is shown beside the differences to the first candidate on the draws that both have. Results are kept in DIR,
and what is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from torch import Tensor

from shels.config import AcceptShare, Adam, Augmentation, Settings, TrainingSettings, to_dict
from shels.config.presets import BEST, PAPER
from shels.data.samples import DataSet, Label
from shels.data.sources import load_named, suited
from shels.data.splits import hold_out
from shels.detection import metrics
from shels.detection.calibration import Verdicts
from shels.detection.exclusivity import feature_exclusivity, mean_exclusivity
from shels.detection.protocol import Detector, KnownSamples, Labelled
from shels.errors import SettingsError, ShelsError
from shels.experiments.catalogue import CATALOGUE
from shels.experiments.methods import initial_training
from shels.experiments.preparing import Training, prepared
from shels.experiments.trials import Trial
from shels.learner.learner import with_detector
from shels.training import fit
from shels.training.features import views_of

DETECTORS = ("fused", "gaussian")
SHARES = (0.8, 0.85, 0.88, 0.9, 0.91, 0.92, 0.93, 0.94, 0.95, 0.96)
_CROPS = Augmentation(crop=0.125, flip=0.5, brightness=0.1, contrast=0.2)
_MOVED = replace(_CROPS, crop=0.0, rotation=10, zoom=0.1, translation=0.1)
AUGMENTATIONS = {"none": None, "crops": _CROPS, "moved": _MOVED, "cutout": replace(_CROPS, cutout=0.4)}

# A candidate: a preset and what is changed -----------------------------------------------------------------


def settings_of(candidate: str, data: str) -> Settings:
    """Give the settings of a candidate on a data set, its thresholds from samples that chose nothing."""
    name, *changes = candidate.split("+")
    presets = {"best": BEST, "paper": PAPER}
    if name not in presets:
        raise SettingsError(f"a candidate begins with best or paper, got {name!r}")
    settings = replace(presets[name][data], rule=AcceptShare(0.9, "separate"))
    for change in changes:
        settings = _changed(settings, data, change)
    return settings


def _changed(settings: Settings, data: str, change: str) -> Settings:
    name, _, value = change.partition("=")
    network, training = settings.network, settings.training
    shown: dict[str, Callable[[], dict[str, Any]]] = {
        "network": lambda: {"architecture": value},
        "size": lambda: {"image_size": int(value), "image_fit": "resize"},
        "scale": lambda: {"scale": None if value == "learned" else float(value)},
    }
    if name in shown:
        return replace(settings, network=replace(network, **shown[name]()))
    return replace(settings, training=_trained(training, data, name, value))


def _trained(training: TrainingSettings, data: str, name: str, value: str) -> TrainingSettings:
    adam = training.optimiser if isinstance(training.optimiser, Adam) else Adam()
    changes: dict[str, Callable[[], dict[str, Any]]] = {
        "augment": lambda: {"augmentation": _augmentation(value, data)},
        "epochs": lambda: {"epochs": int(value), "steps": None},
        "rate": lambda: {"optimiser": replace(adam, learning_rate=float(value))},
        "decay": lambda: {"optimiser": replace(adam, decoupled_decay=float(value))},
        "alpha": lambda: {"alpha": float(value)},
        "batch": lambda: {"batch_size": int(value)},
    }
    if name not in changes:
        raise SettingsError(f"unknown change {name!r}; there are {', '.join(changes)}, network, size, scale")
    return replace(training, **changes[name]())


def _augmentation(name: str, data: str) -> Augmentation | None:
    if name not in AUGMENTATIONS:
        raise SettingsError(f"unknown augmentation {name!r}; there are {', '.join(AUGMENTATIONS)}")
    chosen = AUGMENTATIONS[name]
    return None if chosen is None else suited(chosen, data)


# A draw: classes left out of the known ones, and images held out of their training images ------------------


@dataclass(frozen=True)
class Draw:
    """What a candidate meets: the draw's seed, and which of its known classes are left out in which turn.

    part: the share of the training images that is trained on. judged: the share that is held out to judge.
    """

    seed: int
    left_out: int
    turn: int
    part: float
    judged: float

    def classes(self, known: Sequence[Label]) -> tuple[tuple[Label, ...], tuple[Label, ...]]:
        """Divide a draw's known classes into those that stay known and those that play novel."""
        first = self.turn * self.left_out
        novel = tuple(known[first : first + self.left_out])
        rest = tuple(name for name in known if name not in novel)
        if len(novel) < self.left_out or len(rest) < 2:
            asked = f"turn {self.turn} of leaving {self.left_out} out with 2 left"
            raise SettingsError(f"{len(known)} classes do not allow {asked}; leave fewer out, or fewer turns")
        return rest, novel

    def data(self, whole: DataSet, known: Sequence[Label]) -> DataSet:
        """Divide the training images of a draw's known classes; nothing else of the data is looked at."""
        images = whole.train.only(known)
        train, test = map(images.take, hold_out(images, self.judged, self.seed))
        if self.part < 1:
            train = train.take(hold_out(train, self.part, self.seed)[1])
        return DataSet(whole.name, train, test)


def judged(settings: Settings, draw: Draw, whole: DataSet) -> dict[str, Any]:
    """Train a candidate on a draw, and give its figures: by detector, and of the network."""
    known = CATALOGUE[f"within/{whole.name}"].classes(draw.seed)[0]
    rest, novel = draw.classes(known)
    data = draw.data(whole, known)
    trial = Trial("left-out", "shels-fused", draw.seed, whole.name, whole.name, rest, novel, settings)
    began = time.perf_counter()
    training = prepared([trial], data, data.train.inputs, torch.device("cpu"))
    objective = initial_training(trial.method, settings).objective(training.network, settings.training)
    fit(training.network, objective.loss, training.data, objective.settings, seed=draw.seed)
    seconds = time.perf_counter() - began
    rows = (training.data.training, training.calibration)
    fitted, held = (_seen(training, data.train.inputs, each.places, each.labels) for each in rows)
    asked = [data.test.places(names) for names in (rest, novel) if names]
    tests = [_seen(training, data.test.inputs, *each) for each in asked]
    found = {name: _figures(trial, training, KnownSamples(fitted, held), tests, name) for name in DETECTORS}
    weights = training.network.head.weight.detach()
    matrix = feature_exclusivity(weights, fitted.features.high, fitted.labels)
    both = {"exclusivity": mean_exclusivity(matrix)}
    return {"seconds": seconds, "by": {name: both | mine for name, mine in found.items()}}


def _seen(training: Training, inputs: Tensor, places: Tensor, labels: Tensor) -> Labelled:
    about = ([training.network], inputs, [places], training.data.prepare)
    return Labelled(views_of(*about, precision=torch.float32, shared=True)[0], labels)


def _figures(
    trial: Trial, training: Training, samples: KnownSamples, tests: Sequence[Labelled], name: str
) -> dict[str, float]:
    about = (training.data.prepare, trial.settings, trial.seed)
    detector = with_detector(training.network, trial.known, samples, *about, detector=name).detector
    verdicts = [detector.verdicts(part.features) for part in tests]
    out: dict[str, float] = {}
    for share in SHARES:
        known, *novel = [at_share(detector, each, share) for each in verdicts]
        found = metrics.evaluated(known, tests[0].labels, trial.known, next(iter(novel), None))
        out |= {key: found[key] for key in ("auroc", "closed_set_accuracy") if key in found}
        at = {"known_accuracy": f"known at {share:g}", "novel_accuracy": f"novel at {share:g}"}
        out |= {name: found[key] for key, name in at.items() if key in found}
    return out


def at_share(detector: Detector, verdicts: Verdicts, share: float) -> Verdicts:
    """Give verdicts by thresholds that accept another share of known samples."""
    limits = detector.thresholds_by(AcceptShare(share, "separate"))
    return replace(verdicts, threshold=limits[verdicts.predicted])


# What was found is kept, and shown -------------------------------------------------------------------------

Found = dict[str, dict[str, Any]]
"""Figures by what they are about: a candidate's settings on a draw, as one line of JSON."""


def key_of(settings: Settings, draw: Draw) -> str:
    """Say all that decides the figures of a candidate on a draw of one data set."""
    return json.dumps({"settings": to_dict(settings), "draw": vars(draw)}, sort_keys=True)


def read(path: Path) -> Found:
    """Read what was found before; a line that was cut off is found again."""
    found: Found = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            one = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[one["about"]] = one["figures"]
    return found


def rows_of(figures: Sequence[dict[str, Any]], detector: str) -> dict[str, list[float]]:
    """Give each measure over the draws, by its name."""
    each = [one["by"][detector] for one in figures]
    return {name: [one[name] for one in each] for name in (each[0] if each else ())}


def compared(
    mine: Mapping[str, list[float]], first: Mapping[str, list[float]]
) -> dict[str, tuple[float, float]]:
    """Give the mean difference of each measure and its standard error, pair by pair."""
    out = {}
    for key, values in mine.items():
        apart = [a - b for a, b in zip(values, first[key], strict=True)]
        error = stdev(apart) / math.sqrt(len(apart)) if len(apart) > 1 else math.nan
        out[key] = mean(apart), error
    return out


def show(found: Found, candidates: Mapping[str, Settings], draws: Sequence[Draw]) -> None:
    """Print what each candidate comes to, and its differences to the first one on the draws of both."""
    by_name = {
        name: {draw: found[key] for draw in draws if (key := key_of(settings, draw)) in found}
        for name, settings in candidates.items()
    }
    first = next(iter(by_name.values()))
    for name, mine in by_name.items():
        both = [draw for draw in mine if draw in first and mine is not first]
        for detector in DETECTORS if mine else ():
            pair = (rows_of([each[draw] for draw in both], detector) for each in (mine, first))
            apart, seconds = compared(*pair), mean(each["seconds"] for each in mine.values())
            print(f"{name}, {detector}: {len(mine)} draws, {seconds:.0f} s of training each")
            for key, values in rows_of(list(mine.values()), detector).items():
                beside = "  {:+.4f} ± {:.4f}".format(*apart[key]) if both else ""
                print(f"    {key:20} {mean(values):.4f}{beside}")


def parsed() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", choices=sorted(BEST))
    parser.add_argument("candidates", nargs="+")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, default=Path("candidates"))
    parser.add_argument(
        "--left-out", type=int, default=2, help="known classes that play novel at a time; 0: none"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(100, 105)))
    parser.add_argument("--turns", type=int, default=1, help="how many times others are left out")
    parser.add_argument("--part", type=float, default=1.0, help="share of the training images to train on")
    parser.add_argument("--judged", type=float, default=0.2, help="share of them that is held out to judge")
    parser.add_argument("--show", action="store_true", help="train nothing, show what there is")
    return parser.parse_args()


def run(candidates: Mapping[str, Settings], draws: Sequence[Draw], whole: DataSet, path: Path) -> None:
    """Judge every candidate on every draw that it has not met yet, draw by draw, each kept at once."""
    found = read(path)
    keyed = [(key_of(settings, draw), name, draw) for draw in draws for name, settings in candidates.items()]
    for key, name, draw in keyed:
        if key in found:
            continue
        where = f"{name}, seed {draw.seed}, turn {draw.turn}"
        try:
            figures = judged(candidates[name], draw, whole)
        except ShelsError as error:  # what cannot be judged is no reason to lose the others
            print(f"{where}: failed: {error}", flush=True)
            continue
        with path.open("a") as file:  # what was cut off before stays a line of its own
            file.write("\n" + json.dumps({"about": key, "figures": figures}))
        aurocs = {each: round(by.get("auroc", math.nan), 4) for each, by in figures["by"].items()}
        print(f"{where}: AUROC {aurocs}", flush=True)


def main() -> None:
    """Run what is asked for, and show what every candidate comes to."""
    given = parsed()
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / f"{given.data}.jsonl"
    candidates = {name: settings_of(name, given.data) for name in given.candidates}
    places = [(seed, given.left_out, turn) for seed in given.seeds for turn in range(given.turns)]
    draws = [Draw(*place, given.part, given.judged) for place in places]
    if not given.show:
        run(candidates, draws, load_named(given.data, given.data_dir), path)
    show(read(path), candidates, draws)


if __name__ == "__main__":
    main()
