"""What a cluster costs: units of two seconds on workers of this machine, over Ray and without it.

python benchmarks/cluster.py sleep     units that wait two seconds: what Ray and the driver add to a unit
python benchmarks/cluster.py burn      units of two seconds of a core: the same where cores are short
python benchmarks/cluster.py train     real trials of within/digits, beside the same in one process
python benchmarks/cluster.py plan      the paper's experiments on 1, 8 and 64 GPUs, by what they took on one

Each line is the median of some rounds. Rounds begin when the workers' processes are up; what that takes is a
figure of its own. The ideal of `sleep` is units x seconds / workers. That of `burn` is what the same units
take in a plain pool of processes, and that of `train` a share of what they take in one process, in the same
round, as others may use the machine too.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import torch

from shels.cluster import Cluster, connected
from shels.data.sources import load_named
from shels.experiments.catalogue import CATALOGUE
from shels.experiments.estimate import kind_of, shipped_costs
from shels.experiments.executors import Elsewhere, Executor, InProcess, Terms, driven
from shels.experiments.methods import METHODS
from shels.experiments.on_ray import OnRay
from shels.experiments.records import Records
from shels.experiments.selection import select_trials
from shels.experiments.trials import Trial, TrialResult
from shels.experiments.units import UnitFolder, planned_units

SECONDS = 2.0


def burn(_: int = 0) -> None:
    """Take two seconds of a core."""
    end = time.process_time() + SECONDS
    while time.process_time() < end:
        pass


def pretended(folder: UnitFolder, name: str, where: str, kind: str) -> dict[str, str]:
    """Do what a unit does on disk, and wait or burn in the place of training."""
    unit = folder.unit(name)
    folder.note(unit, where)
    burn() if kind == "burn" else time.sleep(SECONDS)
    folder.keep(unit, [TrialResult(trial, {}, SECONDS, "none", {}) for trial in unit.trials])
    folder.forget_note(unit)
    return {}


def sleeping(folder: UnitFolder, unit: str, *_: Any) -> tuple[dict[str, str], str, str]:
    """Stand for a unit on a node that waits."""
    return pretended(folder, unit, "here", "sleep"), "here", ""


def burning(folder: UnitFolder, unit: str, *_: Any) -> tuple[dict[str, str], str, str]:
    """Stand for a unit on a node that burns a core."""
    return pretended(folder, unit, "here", "burn"), "here", ""


def spent(make: Callable[[Records], Executor], trials: Sequence[Trial], warm: Sequence[Trial]) -> float:
    """Give the seconds that trials take on an executor, after some that start its processes."""
    with tempfile.TemporaryDirectory() as folder:
        records = Records(Path(folder))
        with records.held():
            executor = make(records)
            list(driven(warm, records, executor))
            began = time.perf_counter()
            advances = list(driven(trials, records, executor))
            seconds = time.perf_counter() - began
    done = sum(advance.kind == "finished" for advance in advances)
    if done != len(trials):
        raise RuntimeError(f"{done} of {len(trials)} units were done")
    return seconds


def trials_of(count: int, epochs: int | None) -> list[Trial]:
    """Give trials of one unit each."""
    return CATALOGUE["within/digits"].trials(METHODS["shels"], count, epochs=epochs)


def on_ray(kind: str, cluster: Cluster) -> Callable[[Records], Elsewhere]:
    """Give what makes the executor of a cluster, its units real or pretended."""

    def make(records: Records) -> Elsewhere:
        executor = OnRay(records, Terms(device="cpu"), 1, cluster)
        if kind != "train":
            work = sleeping if kind == "sleep" else burning
            executor._task = cluster.ray.remote(num_cpus=1)(work)  # noqa: SLF001
        return executor

    return make


def without_ray(kind: str, workers: int, trials: Sequence[Trial]) -> float:
    """Give the seconds that the same work should take on so many workers."""
    if kind == "sleep":
        return len(trials) * SECONDS / workers
    if kind == "train":
        here = spent(lambda records: InProcess(records, lambda name, _: load_named(name), "cpu"), trials, [])
        return here / workers
    with get_context("spawn").Pool(workers) as pool:
        pool.map(abs, range(workers), chunksize=1)  # they are up
        began = time.perf_counter()
        pool.map(burn, range(len(trials)), chunksize=1)
        return time.perf_counter() - began


def measure(kind: str, workers: int, each: int, rounds: int, epochs: int) -> None:
    """Print how long units take on so many workers, and how much longer than they should."""
    import ray  # noqa: PLC0415

    began = time.perf_counter()
    quiet: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False}
    ray.init("local", num_cpus=workers, object_store_memory=80 * 2**20, **quiet)
    up = time.perf_counter() - began
    trials = trials_of(workers * (each + 1), epochs if kind == "train" else None)
    warm, measured = trials[:workers], trials[workers:]
    with connected("local") as cluster:
        first = spent(on_ray(kind, cluster), warm, [])
        times, ideals = [], []
        for _ in range(rounds):
            times.append(spent(on_ray(kind, cluster), measured, warm))
            ideals.append(without_ray(kind, workers, measured))
    ray.shutdown()
    over = median(took / ideal for took, ideal in zip(times, ideals, strict=True)) - 1
    print(f"{kind}, {workers} workers: {len(measured)} units in {median(times):.1f} s", end=", ")
    print(f"ideal {median(ideals):.1f} s, overhead {100 * over:.1f} %", end="; ")
    print(f"Ray up in {up:.1f} s, first units of new processes {first:.1f} s", flush=True)


def plan(start: float) -> None:
    """Print how long what was timed on one GPU should take on more, in the order of the catalogue.

    start: seconds that a unit's new process takes before it trains.
    """
    costs, gpu = shipped_costs(), "NVIDIA H200"
    asked = select_trials(["paper"], None, None, {"precision": "bfloat16"}).trials
    timed = [trial for trial in asked if kind_of(trial, gpu) in costs]
    units = planned_units(timed, 10)
    seconds = [sum(costs[kind_of(trial, gpu)] for trial in unit.trials) for unit in units]
    print(f"{len(timed)} of {len(asked)} trials were timed: {len(units)} units, {sum(seconds):.0f} s in all")
    print(f"the longest unit takes {max(seconds):.0f} s, and each {start:.0f} s more for its process")
    for gpus in (1, 8, 64):
        busy = [0.0] * gpus
        for each in seconds:  # to whoever is free first
            busy[busy.index(min(busy))] += each + start
        used = sum(busy) / (gpus * max(busy))
        print(f"{gpus} GPUs: {max(busy):.0f} s, {100 * used:.0f} % of their time used")


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("kind", choices=["sleep", "burn", "train", "plan"])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--units", type=int, default=10, help="units of each worker in a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--start", type=float, default=10.0, help="of `plan`: seconds of a new process")
    parser.add_argument("--epochs", type=int, default=20, help="of real trials")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.kind == "plan":
        plan(given.start)
        return
    for workers in given.workers:
        measure(given.kind, workers, given.units, given.rounds, given.epochs)


if __name__ == "__main__":
    main()
