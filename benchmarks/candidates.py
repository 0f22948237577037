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
and what is there is not run again. On a GPU (`--device`) all draws of a candidate are trained together.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

from left_out import DETECTORS, Draw, Figures, judged
from shels import runtime
from shels.config import AcceptShare, Adam, Augmentation, Settings, TrainingSettings, to_dict
from shels.config.presets import BEST, PAPER
from shels.data.samples import DataSet
from shels.data.sources import load_named, suited
from shels.errors import SettingsError, ShelsError

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


# What was found is kept, and shown -------------------------------------------------------------------------

Found = dict[str, Figures]
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


def rows_of(figures: Sequence[Figures], detector: str) -> dict[str, list[float]]:
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
            print(*_lines(rows_of(list(mine.values()), detector), apart if both else {}), sep="\n")


def _lines(rows: Mapping[str, list[float]], apart: Mapping[str, tuple[float, float]]) -> list[str]:
    """Write means, each with the difference to the first candidate; known and novel accuracy by share."""
    means = {key: mean(values) for key, values in rows.items()}
    beside = {key: " ({:+.4f} ± {:.4f})".format(*pair) for key, pair in apart.items()}
    whole = [f"{key} {value:.4f}{beside.get(key, '')}" for key, value in means.items() if " at " not in key]
    shares = [key.removeprefix("known at ") for key in means if key.startswith("known at ")]
    pairs = [[means.get(f"{kind} at {share}", math.nan) for kind in ("known", "novel")] for share in shares]
    by_share = [
        f"{share}: {known:.3f} / {novel:.3f}" for share, (known, novel) in zip(shares, pairs, strict=True)
    ]
    return ["    " + ", ".join(whole), "    known / novel at " + ", ".join(by_share)]


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
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto")
    parser.add_argument("--show", action="store_true", help="train nothing, show what there is")
    return parser.parse_args()


def run(
    candidates: Mapping[str, Settings],
    draws: Sequence[Draw],
    whole: DataSet,
    path: Path,
    device: torch.device,
) -> None:
    """Judge every candidate on every draw that it has not met yet, each kept at once.

    On a CPU draw by draw; on a GPU candidate by candidate, on all draws together.
    """
    found, together = read(path), device.type == "cuda"
    turns = [(name, draws) for name in candidates]
    turns = turns if together else [(name, [draw]) for draw in draws for name in candidates]
    for name, asked in turns:
        settings = candidates[name]
        missing = [draw for draw in asked if key_of(settings, draw) not in found]
        if missing:
            _judge(name, settings, missing, whole, path, device)


def _judge(
    name: str, settings: Settings, draws: Sequence[Draw], whole: DataSet, path: Path, device: torch.device
) -> None:
    where = f"{name}, " + " and ".join(f"seed {draw.seed}, turn {draw.turn}" for draw in draws)
    try:
        found = judged(settings, draws, whole, device)
    except (ShelsError, torch.OutOfMemoryError) as error:  # no reason to lose the others
        print(f"{where}: failed: {error}", flush=True)
        return
    with path.open("a") as file:  # what was cut off before stays a line of its own
        for draw, figures in zip(draws, found, strict=True):
            file.write("\n" + json.dumps({"about": key_of(settings, draw), "figures": figures}))
    aurocs = [{each: round(by.get("auroc", math.nan), 4) for each, by in one["by"].items()} for one in found]
    print(f"{where}: AUROC {', '.join(map(str, aurocs))}", flush=True)


def main() -> None:
    """Run what is asked for, and show what every candidate comes to."""
    given = parsed()
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / f"{given.data}.jsonl"
    candidates = {name: settings_of(name, given.data) for name in given.candidates}
    places = [(seed, given.left_out, turn) for seed in given.seeds for turn in range(given.turns)]
    draws = [Draw(*place, given.part, given.judged) for place in places]
    if not given.show:
        size = BEST[given.data].network.image_size
        run(
            candidates,
            draws,
            load_named(given.data, given.data_dir, size),
            path,
            runtime.device(given.device),
        )
    show(read(path), candidates, draws)


if __name__ == "__main__":
    main()
