"""The paper's second half: classes taken in one after another, with and without boundaries.

    python benchmarks/open_world.py --data-dir DIR [--sets mnist fmnist] [--seeds 5] [--jobs 8] [--out FILE]
    python benchmarks/open_world.py --data-dir DIR --orders 5 --sets fmnist  # random orders, joint training
    python benchmarks/open_world.py --data-dir DIR --many                    # 7 digits, 13 classes more

One network of the paper's settings is trained for each seed and serves every method. A finished trial is not
run again: its line is in FILE. Figures are closed-set unless they say otherwise.
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shels import __version__
from shels.agent.agent import OpenWorldAgent
from shels.agent.observation import AgentSettings
from shels.agent.oracle import Oracle, Truths
from shels.config import AcceptShare, Accommodation, Gaussian, Proximal, Settings
from shels.config.presets import preset
from shels.data.samples import DataSet, Samples
from shels.data.sources import load_named
from shels.data.splits import AUTHORS_ORDERS
from shels.data.streams import paper_stream
from shels.detection.protocol import LearnedClass, rows_of
from shels.learner.learner import Learner, learn

KNOWN, NEW = {"mnist": 7, "fmnist": 4}, 3
ORDER = AUTHORS_ORDERS[0]  # 9 5 2 4 7 1 0 8 6 3


def settings_for(name: str, method: str) -> Settings:
    """Return the paper's network and training with a way to take in classes."""
    settings = preset("paper", name)
    if method == "penalty":
        return settings
    ways: dict[str, Accommodation] = {"gaussian": Gaussian(), "proximal": Proximal()}
    ways["proximal-loss"] = Proximal(base_alpha=0)
    return replace(settings, rule=AcceptShare(), accommodation=ways[method])


def base(data: DataSet, known: tuple[Any, ...], settings: Settings, seed: int, store: Path) -> Learner:
    """Return a learner of the known classes; its training is done once and kept."""
    return learn(data.train.only(known), settings, seed=seed, checkpoint=store)


def incremental(
    learner: Learner, data: DataSet, known: tuple[Any, ...], new: tuple[Any, ...]
) -> dict[str, Any]:
    """Return how a learner fares while new classes come with boundaries."""
    stages, seen = [], list(known)
    for label in new:
        before = learner.evaluate(data.test.only(seen), data.test.only([label]))
        inputs = data.train.only([label]).inputs
        began = time.perf_counter()
        learner = learner.accommodate(inputs, label)
        torch.cuda.synchronize() if torch.cuda.is_available() else None
        seconds, timed = time.perf_counter() - began, after_features(learner, inputs)
        seen.append(label)
        stages.append(
            {
                "class": label,
                "auroc": before["auroc"],
                "rejected": before["novel_accuracy"],
                "accepted": before["acceptance"],
                "overall": closed(learner, data.test.only(seen)),
                "newest": closed(learner, data.test.only(seen), label),
                "seconds": seconds,
                **timed,
            }
        )
    test = data.test.only(seen)
    novel = {str(label): closed(learner, test, label) for label in new}
    final = learner.evaluate(test)
    return {
        "stages": stages,
        "overall": closed(learner, test),
        "novel": novel,
        "mean_novel": float(np.mean(list(novel.values()))),
        "known_accuracy": final["known_accuracy"],
        "acceptance": final["acceptance"],
        "auroc": float(np.mean([stage["auroc"] for stage in stages])),
    }


def after_features(learner: Learner, inputs: torch.Tensor) -> dict[str, float]:
    """Return the time that taking a class in costs once its features are there (Gaussians alone)."""
    if not isinstance(learner.settings.accommodation, Gaussian):
        return {}
    old, views = learner.detector.without_class(len(learner.classes) - 1), learner.views(inputs)
    new_class, first = LearnedClass(lambda: views), rows_of(views, torch.arange(1))
    times = []
    for _ in range(5):
        torch.cuda.synchronize() if torch.cuda.is_available() else None
        began = time.perf_counter()
        old.with_class(new_class).verdicts(first)
        torch.cuda.synchronize() if torch.cuda.is_available() else None
        times.append(time.perf_counter() - began)
    return {"after_features_ms": 1000 * float(np.median(times))}


def closed(learner: Learner, samples: Samples, label: Any = None) -> float:
    """Return closed-set accuracy, of one class or of all; a class that the learner does not know is wrong."""
    places = [learner.classes.index(name) if name in learner.classes else -1 for name in samples.classes]
    right = learner.judge(samples.inputs).predicted.cpu() == torch.tensor(places)[samples.labels]
    mine = torch.ones_like(right) if label is None else samples.labels == samples.classes.index(label)
    return float(right[mine].double().mean())


def without_boundaries(
    learner: Learner, data: DataSet, known: tuple[Any, ...], new: tuple[Any, ...], seed: int
) -> dict[str, Any]:
    """Return how an agent fares on the paper's stream, told nothing."""
    agent = OpenWorldAgent(learner, settings=AgentSettings(), seed=seed)
    agent.supplier = Oracle(Truths(data.test), data.train, lambda: agent.learner.classes)
    found, false_alarms, log = [], 0, []
    for batch in paper_stream(data.test, known, new, batch_size=500, seed=seed):
        for event in agent.observe(batch):
            if event.kind == "observed":
                log.append(
                    [batch.phase, round(event["share"], 4), round(event["threshold"], 4), event["alarm"]]
                )
                false_alarms += batch.phase == "known" and event["alarm"]
            elif event.kind == "accommodated":
                found.append(event["name"])
            elif event.kind in ("drift", "undecided", "declined"):
                log.append([event.kind, event["reason"]])
    test = data.test.only([*known, *new])
    return {
        "found": found,
        "false_alarms": int(false_alarms),
        "overall": closed(agent.learner, test),
        "log": log,
    }


def trial(
    name: str, seed: int, methods: list[str], where: tuple[str, str], order: int | None
) -> list[dict[str, Any]]:
    """Run one trial of each method on one network and return a record for each."""
    torch.set_num_threads(1)
    data_dir, stores = where
    data, count = load_named(name, data_dir), KNOWN[name]
    classes = ORDER if order is None else AUTHORS_ORDERS[order]
    known, new = classes[:count], classes[count : count + NEW]
    store = Path(stores) / f"{name}-{seed}-{order}.safetensors"
    records = []
    for method in methods:
        began = time.perf_counter()
        if method == "joint":
            learner = base(
                data, (*known, *new), settings_for(name, "penalty"), seed, store.with_suffix(".joint")
            )
            out: dict[str, Any] = {"overall": closed(learner, data.test.only([*known, *new]))}
        else:
            kept = store.with_suffix(".proximal") if method == "proximal" else store
            learner = base(data, known, settings_for(name, method), seed, kept)
            out = incremental(learner, data, known, new)
            if method != "penalty" and order is None:
                out["without_boundaries"] = without_boundaries(learner, data, known, new, seed)
        experiment = f"incremental/{name}" + ("" if order is None else f"/order-{order}")
        record = {"experiment": experiment, "method": method, "seed": seed, "known": known, "novel": new}
        records.append(record | {"metrics": out, "seconds": time.perf_counter() - began} | machine())
    return records


def many(seed: int, where: tuple[str, str]) -> list[dict[str, Any]]:
    """Take thirteen classes in after seven digits, and measure what becomes of the first ones."""
    torch.set_num_threads(1)
    data, other = load_named("mnist", where[0]), load_named("fmnist", where[0])
    known = ORDER[:7]
    store = Path(where[1]) / f"mnist-{seed}-None.safetensors"
    learner = base(data, known, settings_for("mnist", "gaussian"), seed, store)
    test = data.test.only(known)
    rows = [first_classes(learner, test, 0)]
    extra = [(data, label, label) for label in ORDER[7:]] + [
        (other, label, f"f{label}") for label in range(10)
    ]
    for number, (source, label, name) in enumerate(extra, 1):
        learner = learner.accommodate(source.train.only([label]).inputs, name)
        rows.append(first_classes(learner, test, number))
    record = {"experiment": "many", "method": "gaussian", "seed": seed, "known": known}
    return [record | {"metrics": {"rows": rows}} | machine()]


def first_classes(learner: Learner, test: Samples, taken_in: int) -> dict[str, Any]:
    """Return the false-alarm rate and accuracy of the classes that were known from the first."""
    verdicts = learner.judge(test.inputs)
    first = verdicts.predicted.cpu() < len(test.classes)
    return {
        "taken_in": taken_in,
        "false_alarms": float(verdicts.novel.double().mean()),
        "closed_set_accuracy": float((verdicts.predicted.cpu() == test.labels).double().mean()),
        "given_to_later_classes": float((~first).double().mean()),
    }


def machine() -> dict[str, Any]:
    """Return what the trial ran on."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return {"device": device, "versions": {"shels": __version__, "torch": torch.__version__}}


def summary(records: list[dict[str, Any]]) -> None:
    """Print mean and spread of the main figures for each experiment and method."""
    for key in sorted({(r["experiment"].split("/order")[0], r["method"]) for r in records}):
        mine = [r["metrics"] for r in records if (r["experiment"].split("/order")[0], r["method"]) == key]
        print(*key, f"{len(mine)} trials")
        for name in ("overall", "mean_novel", "auroc", "acceptance", "known_accuracy"):
            values = [m[name] for m in mine if name in m]
            spread = np.std(values, ddof=1) if len(values) > 1 else 0.0
            if values:
                print(f"  {name:16s} {np.mean(values):.4f} ± {spread:.4f}")
        for m in mine:
            for stage in m.get("stages", []):
                print("   ", {key: round(value, 4) for key, value in stage.items()})
            if "without_boundaries" in m:
                print("    no boundaries:", {k: v for k, v in m["without_boundaries"].items() if k != "log"})
            for row in m.get("rows", []):
                print("   ", row)


def main() -> None:
    """Run what is missing and print the summary of all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--sets", nargs="+", default=["mnist", "fmnist"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--orders", type=int, default=0, help="random orders with joint training instead")
    parser.add_argument("--many", action="store_true")
    parser.add_argument("--methods", nargs="+", default=["gaussian", "proximal", "penalty"])
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("results/open_world.jsonl"))
    given = parser.parse_args()
    stores = given.out.parent / "networks"
    stores.mkdir(parents=True, exist_ok=True)
    lines = given.out.read_text().splitlines() if given.out.exists() else []
    records = [json.loads(line) for line in lines]
    done = {(r["experiment"], r["method"], r["seed"]) for r in records}
    where = (given.data_dir, str(stores))
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        jobs = []
        for name, seed, order in [] if given.many else plan(given):
            experiment = f"incremental/{name}" + ("" if order is None else f"/order-{order}")
            methods = ["gaussian", "joint"] if order is not None else given.methods
            missing = [method for method in methods if (experiment, method, seed) not in done]
            if missing:
                jobs.append(pool.submit(trial, name, seed, missing, where, order))
        if given.many:
            jobs += [pool.submit(many, seed, where) for seed in range(given.seeds)]
        for job in as_completed(jobs):
            for record in job.result():
                records.append(record)
                with given.out.open("a") as file:
                    file.write(json.dumps(record) + "\n")
                print(
                    record["experiment"], record["method"], record["seed"], record.get("seconds"), flush=True
                )
    summary(records)


def plan(given: argparse.Namespace) -> list[tuple[str, int, int | None]]:
    """Return (data set, seed, order) of every trial that was asked for."""
    if given.orders:
        return [(name, 0, order) for name in given.sets for order in range(1, 1 + given.orders)]
    return [(name, seed, None) for name in given.sets for seed in range(given.seeds)]


if __name__ == "__main__":
    main()
