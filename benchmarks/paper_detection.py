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

Trial = tuple[str, int, str]  # data set, number of the authors' order, head


def run(trial: Trial, data_dir: str) -> dict[str, Any]:
    """Train and measure one trial with the paper's settings."""
    import torch  # noqa: PLC0415

    from shels.data.sources import load_named  # noqa: PLC0415
    from shels.data.splits import authors_split, draw_classes, split_data  # noqa: PLC0415
    from shels.learner import learn  # noqa: PLC0415
    from shels.metrics import mean_exclusivity  # noqa: PLC0415
    from shels.presets import preset  # noqa: PLC0415

    torch.set_num_threads(1)
    name, order, head = trial
    settings = preset("paper", name)
    settings = replace(settings, network=replace(settings.network, head=head))
    data = load_named(name, data_dir)
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
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor()
    return {
        "trial": list(trial),
        "known": list(split.known),
        "measures": {key: value for key, value in measures.items() if isinstance(value, float)},
        "best": learner.report["best"],
        "seconds": time.perf_counter() - began,
        "device": device,
        "torch": torch.__version__,
    }


def summary(lines: list[dict[str, Any]]) -> None:
    """Print mean and standard deviation of each measure for each data set and head."""
    for key in sorted({(line["trial"][0], line["trial"][2]) for line in lines}):
        mine = [line for line in lines if (line["trial"][0], line["trial"][2]) == key]
        print(f"{key[0]} with a {key[1]} head, {len(mine)} trials")
        for name in mine[0]["measures"]:
            values = np.array([line["measures"][name] for line in mine])
            print(f"  {name:22s} {values.mean():.4f} ± {values.std(ddof=1) if len(values) > 1 else 0:.4f}")


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
    lines = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    done = {tuple(line["trial"]) for line in lines}
    trials = [
        (name, order, head) for head in given.head for name in given.sets for order in range(given.orders)
    ]
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(run, trial, given.data_dir) for trial in trials if trial not in done]
        for job in as_completed(jobs):
            lines.append(job.result())
            with given.out.open("a") as file:
                file.write(json.dumps(lines[-1]) + "\n")
            print(lines[-1]["trial"], f"{lines[-1]['seconds']:.0f} s", lines[-1]["measures"], flush=True)
    summary(lines)


if __name__ == "__main__":
    main()
