"""Units as plain tasks of a Ray cluster: one GPU each where there are any, else one CPU.

Ray holds no truth: it only starts units somewhere, and again elsewhere where a node is lost.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from shels.cluster import Cluster, Node
from shels.errors import ClusterError, ShelsError
from shels.experiments.executors import Elsewhere, Ending, Terms, failed_whole, in_words
from shels.experiments.records import Records
from shels.experiments.selection import check_data
from shels.experiments.trials import Trial
from shels.experiments.units import Unit, UnitFolder, code_version, run_unit
from shels.files import check_writable, write_whole

_RETRIES = 5
"""How often a unit is begun again after its node or its process was lost."""
_SEEN = ".seen"
"""A file that every node must see, to tell that all see the same folder."""


class OnRay(Elsewhere):
    """Runs units on the nodes of a cluster; one that cannot is left out, with the reason."""

    def __init__(self, records: Records, terms: Terms, block: int, cluster: Cluster) -> None:
        super().__init__(records, terms, block)
        self.cluster, self.ray = cluster, cluster.ray
        self._unfit: set[str] = set()
        self._tasks: dict[Any, Unit] = {}
        self._names: dict[str, str] = {}
        lent = (
            {"num_gpus": 1, "max_calls": 1} if self.gpus else {"num_cpus": 1}
        )  # a new process frees its GPU
        self._task = self.ray.remote(max_retries=_RETRIES, retry_exceptions=False, **lent)(_run)

    @property
    def gpus(self) -> bool:
        """Whether each unit gets a GPU."""
        return self.terms.device != "cpu" and self.cluster.gpus

    def check(self, trials: Sequence[Trial]) -> list[str]:
        """Ask each node for the same code, the data and the folder; none that can do it is an error."""
        workers = self.cluster.workers(gpus=self.gpus)
        if not workers:
            raise ClusterError("the cluster has no node that lends a CPU or a GPU; `ray status` shows them")
        check_writable(self.folder.path)
        write_whole(self.folder.path / _SEEN, code_version())
        answers = self.cluster.on_each(
            workers, problem_of_node, self.folder.path / _SEEN, list(trials), self.terms.data_dir, versions()
        )
        problems = {node: _problem(answer) for node, answer in answers.items() if answer}
        self._unfit |= {node.id for node in problems}
        notes = [f"{node.name} is left out: {problem}" for node, problem in problems.items()]
        if len(problems) == len(workers):
            raise ClusterError("no node of the cluster can run this; " + "; ".join(notes))
        return [*notes, _welcome([node for node in workers if node not in problems])]

    def _start(self, unit: Unit) -> None:
        fit = {"ray.io/node-id": f"!in({','.join(sorted(self._unfit))})"} if self._unfit else None
        task = self._task.options(label_selector=fit, name=f"unit {unit.id}")
        self._tasks[task.remote(self.folder, unit.id, self.terms, versions())] = unit

    def _ended(self, seconds: float) -> list[Ending]:
        alive = {node.id: node.name for node in self.cluster.nodes()}
        lost = [name for node, name in self._names.items() if node not in alive and node not in self._unfit]
        self._notes += [f"{name} was lost; what ran there is begun again elsewhere" for name in lost]
        self._names = alive
        ready, _ = self.ray.wait(list(self._tasks), num_returns=len(self._tasks), timeout=seconds)
        endings = [self._ending(task) for task in ready]
        return [ending for ending in endings if ending is not None]

    def _ending(self, task: Any) -> Ending | None:
        """Tell what became of a unit; None where it is sent elsewhere, as its node could not run it."""
        unit, errors = self._tasks.pop(task), self.ray.exceptions
        try:
            failed, node, problem = self.ray.get(task)
        except errors.RayTaskError as error:
            return failed_whole(unit, in_words(getattr(error, "cause", error)))
        except errors.RayError as error:  # the node or the process, again and again
            return failed_whole(unit, f"its process was lost {_RETRIES + 1} times: {error}")
        if problem:
            return self._sent_elsewhere(unit, node, problem)
        return Ending(unit, failed)

    def _sent_elsewhere(self, unit: Unit, node: str, problem: str) -> Ending | None:
        """Leave a node out that came later and cannot run units; where there is no other, the unit fails."""
        if node not in self._unfit:
            self._notes.append(f"{self._names.get(node, node)} is left out: {problem}")
        self._unfit.add(node)
        if {other.id for other in self.cluster.workers(gpus=self.gpus)} <= self._unfit:
            return failed_whole(unit, problem)
        self._start(unit)
        return None

    def _place(self, where: str) -> str | None:
        return self._names.get(where)  # of a node that was lost nothing is under way

    def _stop(self) -> None:
        for task in self._tasks:
            self.ray.cancel(task, force=True)
        self._tasks.clear()


def versions() -> dict[str, str]:
    """Give what must be the same on all nodes: figures depend on it."""
    release = torch.__version__.partition("+")[0]
    return {"shels": code_version(), "torch": release, "python": platform.python_version()}


def problem_of_node(
    seen: Path, trials: Sequence[Trial], data_dir: Path | None, wanted: dict[str, str]
) -> str:
    """Say what keeps this node from running these trials; "" where nothing does.

    seen: a file that the driver has written where results go. wanted: the driver's versions.
    """
    found = versions()
    for name, version in wanted.items():
        if found[name] != version:
            return f"it has {name} {found[name]}, and the driver {version}; install the same on all nodes"
    if not seen.exists():
        return f"it does not see {seen.parent}; --out must be a folder that is the same on all nodes"
    for weights in {Path(file) for trial in trials if (file := trial.settings.network.weights)}:
        if not weights.is_absolute() or not weights.exists():
            return f"it does not see {weights}; give --weights a whole path that is the same on all nodes"
    try:
        check_writable(seen.parent)
        check_data(trials, data_dir)
    except ShelsError as error:
        return str(error)
    return ""


def _problem(answer: str | Exception) -> str:
    return answer if isinstance(answer, str) else in_words(answer)


def _welcome(nodes: Sequence[Node]) -> str:
    names = ", ".join(node.name for node in nodes)
    number = "1 node of the cluster takes" if len(nodes) == 1 else f"{len(nodes)} nodes of the cluster take"
    return f"{number} units: {names}"


def _run(
    folder: UnitFolder, unit: str, terms: Terms, wanted: dict[str, str]
) -> tuple[dict[str, str], str, str]:
    """Run a unit on whatever node this is: what failed, the node, and why it cannot run units, if so."""
    import ray  # noqa: PLC0415

    node = ray.get_runtime_context().get_node_id()
    seen = folder.path / f"{unit}.json"
    trials = folder.unit(unit).trials if seen.exists() else ()
    problem = problem_of_node(seen, trials, terms.data_dir, wanted)
    if problem:  # a node that came later than the check of all
        return {}, node, problem
    return run_unit(folder, unit, node, terms.data_dir, terms.device, terms.together), node, ""
