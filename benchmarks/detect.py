"""Judging many small images: `shels detect --out` against the bare forward pass, its memory, its workers.

    python benchmarks/detect.py --images 200000
    python benchmarks/detect.py --images 20000 --workers 1 2

Makes PNG files of --side pixels from scikit-learn's two photos, and a model of two classes after a few steps.
The bare forward pass takes --forward images that lie in memory through the network before the command and
after it: all threads on one batch, or each on batches of its own. The command's seconds include its start,
some five of a CPU. Memory is VmHWM of its process: the most that it ever held. --workers: the same on Ray
clusters on this machine with so many CPUs, one after the other.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_images

from shels.config import Adam, NetworkSettings, TrainingSettings
from shels.config.presets import DEFAULT
from shels.data.samples import Samples
from shels.learner.learner import Learner, learn
from shels.runtime import threads

_COMMAND = """
import json, sys, time
from pathlib import Path
from shels.cli.app import app
begun = time.perf_counter()
try:
    app(sys.argv[1:])
finally:
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    found = [time.perf_counter() - begun, time.process_time(), peak / 2**20]
    print("\\n" + json.dumps(found), file=sys.stderr)
"""


def make_images(folder: Path, count: int, side: int) -> None:
    """Write cuttings of two photos, ten thousand to a folder."""
    random = np.random.default_rng(0)
    photos = load_sample_images().images
    for number in range(count):
        photo = photos[number % 2]
        top, left = (int(random.integers(0, length - side)) for length in photo.shape[:2])
        place = folder / f"{number // 10_000:04d}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(photo[top : top + side, left : left + side]).save(place / f"{number:07d}.png")


def make_model(directory: Path, side: int, steps: int) -> Learner:
    """Train a network on a few hundred such cuttings for a few steps; how well it judges does not matter."""
    random = np.random.default_rng(1)
    photos = load_sample_images().images
    cuttings = [
        photo[y : y + side, x : x + side] for photo in photos for y, x in random.integers(0, 300, (200, 2))
    ]
    inputs = torch.from_numpy(np.stack(cuttings).transpose(0, 3, 1, 2).copy())
    samples = Samples(inputs, torch.arange(2).repeat_interleave(200), ("temple", "flower"))
    training = TrainingSettings(Adam(1e-3), batch_size=32, steps=steps, check_every=steps)
    learner = learn(samples, replace(DEFAULT, network=NetworkSettings(), training=training), seed=0)
    learner.save(directory)
    return learner


class Cost(NamedTuple):
    """Seconds on the clock and of the CPU, and the most memory that was held."""

    clock: float
    cpu: float
    gib: float = 0.0

    def __str__(self) -> str:
        return f"{self.clock:8.1f} s {self.cpu:8.1f} CPU s"


def forward(learner: Learner, count: int, side: int, workers: int) -> Cost:
    """Take so many images in memory through the network alone.

    workers: 1 shares batches of 512, as evaluations have them, between all threads; more have one thread each
    and batches of 128, as `detect` has them.
    """
    inputs = torch.randint(0, 256, (512 if workers == 1 else 128, 3, side, side), dtype=torch.uint8)
    shares = threads(1 if workers > 1 else None)
    with shares, ThreadPoolExecutor(workers) as pool:
        list(pool.map(learner.views, [inputs] * workers))
        clock, cpu = time.perf_counter(), time.process_time()
        list(pool.map(learner.views, [inputs] * (count // len(inputs))))
    return Cost(time.perf_counter() - clock, time.process_time() - cpu)


def run_command(*words: object) -> Cost:
    """Run a shels command in a process of its own."""
    given = [sys.executable, "-c", _COMMAND, *map(str, words), "--json"]
    done = subprocess.run(given, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise SystemExit(done.stderr)
    return Cost(*json.loads(done.stderr.splitlines()[-1]))


def on_cluster(workers: int, *words: object) -> Cost:
    """Run a command on a cluster of so many nodes of one CPU, which is up before and idle."""
    from ray.cluster_utils import Cluster  # noqa: PLC0415

    cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(workers):
            cluster.add_node(num_cpus=1, object_store_memory=200 * 2**20)
        return run_command(*words, "--cluster", cluster.address)
    finally:
        cluster.shutdown()


def main() -> None:
    """Measure, and print a line for each way."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--forward", type=int, default=8_192, help="images of the bare forward pass")
    parser.add_argument("--workers", type=int, nargs="*", default=[], help="CPUs of a cluster")
    parser.add_argument("--steps", type=int, default=20, help="of the model's training")
    parser.add_argument("--folder", type=Path, help="where images are made, and left for another time")
    given = parser.parse_args()
    with TemporaryDirectory(prefix="shels-") as made:
        folder = given.folder or Path(made) / "images"
        if not folder.exists():
            make_images(folder, given.images, given.side)
        model = Path(made) / "model"
        learner = make_model(model, given.side, given.steps)
        measure(learner, model, folder, given)


def measure(learner: Learner, model: Path, folder: Path, given: argparse.Namespace) -> None:
    """Measure the ways, the forward pass before and after the command, and print a line for each."""
    some, cores = given.forward, torch.get_num_threads()
    ways = {"forward, 512 shared by threads": 1, "forward, 128 in each thread": cores}
    costs: dict[str, list[Cost]] = {name: [] for name in ways}

    def bare() -> None:
        for name, workers in ways.items():
            costs[name].append(forward(learner, some, given.side, workers))

    bare()
    cost = run_command("detect", model, folder, "--out", model.parent / "verdicts.parquet")
    bare()
    print(f"{given.images} images of {given.side} pixels, {cores} threads on {os.cpu_count()} CPUs")
    per = given.images / 1000
    for name, rounds in costs.items():
        taken = some * len(rounds) / 1000
        clock, cpu = sum(each.clock for each in rounds) / taken, sum(each.cpu for each in rounds) / taken
        print(f"  {name:<32}{1000 / clock:7.0f} images/s {cpu:6.2f} CPU s per 1,000")
        share, by_cpu = clock * per / cost.clock, cpu * per / cost.cpu
        print(f"  {'detect against that':<32}{share:7.2f} {by_cpu:14.2f} by CPU")
    print(f"  {'detect':<32}{given.images / cost.clock:7.0f} images/s {cost.cpu / per:6.2f} CPU s per 1,000")
    print(f"  {'most memory':<32}{cost.gib:7.2f} GiB")
    for workers in given.workers:
        out = model.parent / f"{workers}.parquet"
        rate = given.images / on_cluster(workers, "detect", model, folder, "--out", out).clock
        print(f"  {f'cluster of {workers} CPUs':<32}{rate:7.0f} images/s, its start and end included")


if __name__ == "__main__":
    main()
