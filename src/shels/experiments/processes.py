"""A pool of processes on this machine, one for each GPU, or as many as are asked for on CPUs."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import TypeAlias

from shels.errors import SettingsError
from shels.experiments.executors import Elsewhere, Ending, Terms, failed_whole, in_words
from shels.experiments.records import Records
from shels.experiments.trials import Trial
from shels.experiments.units import Unit, UnitFolder, run_unit

Answer: TypeAlias = tuple[dict[str, str], str]
"""By key why trials have no result, and why the whole unit has none, "" where it has some."""


@dataclass
class _Worker:
    """A process and the pipe to it. place: its number. unit: what it does now."""

    process: SpawnProcess
    pipe: Connection
    place: int
    unit: Unit | None = None


class ProcessPool(Elsewhere):
    """Runs units in processes of this machine that live as long as the run; one that dies is replaced."""

    def __init__(self, records: Records, terms: Terms, block: int, count: int) -> None:
        super().__init__(records, terms, block)
        self.count = count
        self._waiting: list[Unit] = []
        self._workers: list[_Worker] = []

    def check(self, trials: Sequence[Trial]) -> list[str]:
        """Make sure that no two processes would share a GPU."""
        gpus = gpu_count(self.terms.device)
        if self.count < 1:
            raise SettingsError(f"--processes must be 1 or more, got {self.count}")
        if gpus and self.count > gpus:
            one = "1 GPU" if gpus == 1 else f"{gpus} GPUs"
            raise SettingsError(f"--processes {self.count}: there are {one} here, and each process takes one")
        return []

    def _start(self, unit: Unit) -> None:
        self._waiting.append(unit)

    def _ended(self, seconds: float) -> list[Ending]:
        while len(self._workers) < min(self.count, len(self._waiting) + len(self._workers)):
            self._workers.append(self._worker(self._free_place()))
        for worker in self._workers:
            if worker.unit is None and self._waiting:
                worker.unit = self._waiting.pop(0)
                worker.pipe.send(worker.unit.id)
        busy = [worker for worker in self._workers if worker.unit]
        ready = wait([worker.pipe for worker in busy], timeout=seconds)
        return [self._ending(worker) for worker in busy if worker.pipe in ready]

    def _ending(self, worker: _Worker) -> Ending:
        unit, worker.unit = worker.unit, None
        if unit is None:
            raise RuntimeError("a worker without a unit has answered")
        try:
            failed, whole = worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join()
            self._workers.remove(worker)
            return failed_whole(unit, f"its process died ({_death(worker.process.exitcode)})")
        return failed_whole(unit, whole) if whole else Ending(unit, failed)

    def _worker(self, place: int) -> _Worker:
        spawn = get_context("spawn")
        ours, theirs = spawn.Pipe()
        gpu = _visible(place) if gpu_count(self.terms.device) else None
        name = f"process {place + 1}" if gpu is None else f"GPU {gpu}"
        threads = max(1, (os.cpu_count() or 1) // self.count)
        given = (theirs, self.folder, self.terms, name, gpu, threads)
        process = spawn.Process(target=_work, args=given, daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours, place)

    def _free_place(self) -> int:
        taken = {worker.place for worker in self._workers}
        return next(place for place in range(self.count) if place not in taken)

    def _place(self, where: str) -> str | None:
        return where

    def _stop(self) -> None:
        for worker in self._workers:
            worker.pipe.close()  # one that waits for work leaves by itself
            if worker.unit:
                worker.process.terminate()
        for worker in self._workers:
            worker.process.join()
        self._workers.clear()
        self._waiting.clear()


def gpu_count(device: str) -> int:
    """Count the GPUs that trials may run on here; none where the CPU is asked for."""
    import torch  # noqa: PLC0415

    return 0 if device == "cpu" else torch.cuda.device_count()


def _visible(place: int) -> str:
    """Name a GPU as the system does: of those that this process may see, the one at this place."""
    shown = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return shown.split(",")[place] if shown else str(place)


def _death(code: int | None) -> str:
    """Say how a process ended by its exit code.

    >>> _death(-9), _death(3)
    ('SIGKILL', 'exit code 3')
    """
    return signal.Signals(-code).name if code and code < 0 else f"exit code {code}"


def _work(
    pipe: Connection, folder: UnitFolder, terms: Terms, name: str, gpu: str | None, threads: int
) -> None:
    """Run units by their ids until nobody sends any more; what goes wrong with one is its answer."""
    import torch  # noqa: PLC0415

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver, who ends this process
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu  # before anything asks for a GPU
    torch.set_num_threads(threads)
    while True:
        try:
            unit = pipe.recv()
        except EOFError:  # the driver has gone
            return
        pipe.send(_answer(folder, unit, name, terms))


def _answer(folder: UnitFolder, unit: str, name: str, terms: Terms) -> Answer:
    try:
        return run_unit(folder, unit, name, terms.data_dir, terms.device, terms.together), ""
    except Exception as error:  # noqa: BLE001 - whatever it is, the other units go on
        return {}, in_words(error)
