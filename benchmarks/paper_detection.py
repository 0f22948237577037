"""The paper's within-dataset detection on its authors' class orders, trial by trial, into a JSON-lines file.

    python benchmarks/paper_detection.py --data-dir DATA --sets mnist fmnist --orders 5 --out results.jsonl

Trials run side by side in processes of their own; a trial already in the file is not run again.
`--head linear` trains an ordinary linear layer on the same data, to compare its exclusivity.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from shels import __version__
from shels.config import Settings, to_dict
from shels.presets import preset

Trial = tuple[str, int, str]  # data set, number of the authors' order, head


def run(trial: Trial, data_dir: str) -> dict[str, Any]:
    """Train and measure one trial with the paper's settings."""
    import torch  # noqa: PLC0415

    from shels.data.sources import load_named  # noqa: PLC0415
    from shels.data.splits import authors_split, draw_classes, split_data  # noqa: PLC0415
    from shels.learner import learn  # noqa: PLC0415
    from shels.metrics import mean_exclusivity  # noqa: PLC0415

    torch.set_num_threads(1)
    name, order, _ = trial
    settings = settings_of(trial)
    data = load_named(name, data_dir, settings.network.image_size if name == "gtsrb" else None)
    ten = (
        len(data.train.classes) == 10
    )  # the authors' orders are of ten classes; GTSRB's are drawn from the seed
    split = authors_split(order, 5) if ten else draw_classes(data.train.classes, 23, seed=order)
    train, test, novel = split_data(data, split)
    began = time.perf_counter()
    learner = learn(train, settings, seed=order)
    measures = learner.evaluate(test, novel)
    measures["exclusivity"] = mean_exclusivity(learner.exclusivity(train))
    measures["held_out_acceptance"] = learner.report["held_out"]["acceptance"]
    name_of_device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    return {
        **identity(trial),
        "known": list(split.known),
        "novel": list(split.novel),
        "metrics": {key: value for key, value in measures.items() if isinstance(value, float)},
        "best": learner.report["best"],
        "seconds": time.perf_counter() - began,
        "device": name_of_device,
        "versions": {"shels": __version__, "torch": torch.__version__},
    }


def settings_of(trial: Trial) -> Settings:
    """Return the paper's settings for a trial."""
    settings = preset("paper", trial[0])
    return replace(settings, network=replace(settings.network, head=trial[2]))


def identity(trial: Trial) -> dict[str, Any]:
    """Return what makes a trial this one: the same again is not run again."""
    name, order, head = trial
    settings = to_dict(settings_of(trial))
    return {"experiment": f"within/{name}", "method": f"shels-{head}", "seed": order, "settings": settings}


def summary(lines: list[dict[str, Any]]) -> None:
    """Print mean and standard deviation of each measure for each data set and head."""
    for key in sorted({(line["experiment"], line["method"]) for line in lines}):
        mine = [line for line in lines if (line["experiment"], line["method"]) == key]
        print(f"{key[0]} {key[1]}, {len(mine)} trials")
        for name in mine[0]["metrics"]:
            values = np.array([line["metrics"][name] for line in mine])
            print(f"  {name:22s} {values.mean():.4f} ± {values.std(ddof=1) if len(values) > 1 else 0:.4f}")


def stored(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file; a last line that was cut off is dropped."""
    lines = path.read_text().splitlines() if path.exists() else []
    records = []
    for line in lines:
        try:
            records.append(json.loads(line))
        except ValueError:
            print(f"left out a line of {path} that was cut off")
    return records


def main() -> None:
    """Run what is missing and print the summary of all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--sets", nargs="+", default=["mnist", "fmnist"])
    parser.add_argument("--orders", type=int, default=5)
    parser.add_argument("--head", nargs="+", default=["cosine"])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results/paper_detection.jsonl"))
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    lines = stored(given.out)
    done = [{key: line.get(key) for key in ("experiment", "method", "seed", "settings")} for line in lines]
    trials = [
        (name, order, head) for head in given.head for name in given.sets for order in range(given.orders)
    ]
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(run, trial, given.data_dir) for trial in trials if identity(trial) not in done]
        for job in as_completed(jobs):
            record = job.result()
            lines.append(record)
            with given.out.open("a") as file:
                file.write(json.dumps(record) + "\n")
            print(
                record["experiment"],
                record["seed"],
                f"{record['seconds']:.0f} s",
                record["metrics"],
                flush=True,
            )
    summary(lines)


if __name__ == "__main__":
    main()
