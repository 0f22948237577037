"""Where `shels reproduce` runs its units of work, and one unit as a command of its own."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from shels.cli import options
from shels.cli.display import print_json, say
from shels.cli.errors import FAILED
from shels.errors import SettingsError

if TYPE_CHECKING:
    from shels.experiments.executors import Executor
    from shels.experiments.records import Records
    from shels.experiments.trials import Trial
    from shels.experiments.units import Unit

_STACKED = 10
"""Seeds of a unit on a GPU, where a stack of ten takes little longer than one of them."""


@dataclass(frozen=True)
class Where:
    """Where trials are run: on a cluster, in processes of this machine, or (neither) in this process.

    together: trials that are trained at once, at most; also the seeds of a unit.
    """

    data_dir: Path | None
    device: str
    together: int | None
    cluster: str | None = None
    processes: int | None = None

    def check(self) -> None:
        """Raise where options contradict each other, before anything is loaded."""
        options.exclude({"--cluster": self.cluster}, {"--processes": self.processes})
        if self.cluster is not None:
            from shels.cluster import check_address  # noqa: PLC0415

            check_address(self.cluster)

    def check_precision(self, precision: str) -> None:
        """Raise where a precision needs a GPU and this machine runs the trials without; see `executor`."""
        from shels import runtime  # noqa: PLC0415

        if self.cluster is None and runtime.device(self.device).type != "cuda" and precision != "float32":
            raise SettingsError(f"--precision {precision} needs a GPU, and none is used here; leave it out")

    @contextmanager
    def executor(self, records: Records, trials: Sequence[Trial]) -> Iterator[Executor]:
        """Make what runs these trials, checked; while this lasts, a cluster stays connected."""
        if self.cluster is None:
            yield self._here(records, trials)
            return
        from shels.cluster import connected  # noqa: PLC0415
        from shels.experiments.executors import Terms  # noqa: PLC0415
        from shels.experiments.on_ray import OnRay  # noqa: PLC0415

        terms = Terms(_absolute(self.data_dir), self.device, self.together)
        with connected(self.cluster) as cluster:
            gpus = self.device != "cpu" and cluster.gpus
            there = OnRay(records, terms, self.block(gpus=gpus), cluster)
            if not gpus and any(trial.precision != "float32" for trial in trials):
                raise SettingsError(
                    "--precision bfloat16 needs GPUs, and the cluster lends none; leave it out"
                )
            for note in there.check(trials):
                say(f"note: {note}")
            yield there

    def _here(self, records: Records, trials: Sequence[Trial]) -> Executor:
        from shels.experiments.executors import InProcess, Terms  # noqa: PLC0415
        from shels.experiments.selection import named_data  # noqa: PLC0415

        if self.processes is None:
            return InProcess(records, named_data(self.data_dir), self.device, self.together)
        from shels.experiments.processes import ProcessPool, gpu_count  # noqa: PLC0415

        block = self.block(gpus=gpu_count(self.device) > 0)
        terms = Terms(self.data_dir, self.device, self.together)
        pool = ProcessPool(records, terms, block, self.processes)
        pool.check(trials)
        return pool

    def block(self, *, gpus: bool) -> int:
        """How many seeds a unit has: a stack of them on a GPU, on a CPU one, as they take turns anyway."""
        return self.together or (_STACKED if gpus else 1)


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else path.resolve()


def print_plan(units: Sequence[Unit], *, as_json: bool) -> None:
    """Print the ids of units, one on each line, for another program to run them."""
    if as_json:
        seeds = [sorted({trial.seed for trial in unit.trials}) for unit in units]
        listed = [
            {"id": unit.id, "trials": len(unit.trials), "seeds": some}
            | {"experiments": sorted({trial.experiment for trial in unit.trials})}
            for unit, some in zip(units, seeds, strict=True)
        ]
        print_json({"units": listed})
        return
    for unit in units:
        typer.echo(unit.id)


def run_one(name: str, out: Path, where: Where, *, as_json: bool) -> int:
    """Run one planned unit in this process, say what came of it, and return the exit code."""
    from shels.experiments.units import UnitFolder, run_unit  # noqa: PLC0415

    folder = UnitFolder(out)
    unit = folder.unit(name)
    before = folder.is_done(unit)
    failed = run_unit(folder, name, socket.gethostname(), where.data_dir, where.device, where.together)
    done = len(unit.trials) - len(failed)
    if as_json:
        print_json({"unit": name, "trials": len(unit.trials), "done": done, "failed": failed})
    else:
        typer.echo(
            f"unit {name}: " + ("done before" if before else f"{done} of {len(unit.trials)} trials done")
        )
    for reason in dict.fromkeys(failed.values()):
        say(f"failed: {reason}")
    return FAILED if failed else 0
