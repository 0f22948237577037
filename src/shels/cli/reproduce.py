"""`shels reproduce`: run the paper's experiments, and set what they come to beside what was published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from shels.cli import options
from shels.cli.display import duration, print_facts, print_json, print_result, print_table, results, say
from shels.cli.errors import FAILED
from shels.cli.options import argument, option
from shels.cli.units import Where, print_plan, run_one
from shels.config import Precision
from shels.errors import SettingsError, ShelsError

if TYPE_CHECKING:
    from shels.cli.live_table import LiveTable
    from shels.experiments.records import Records
    from shels.experiments.trials import Trial

EXAMPLES = """shels reproduce --list
shels reproduce within/digits --trials 3 --out tried
shels reproduce within/fmnist across/mnist-fmnist
shels reproduce paper --weights vgg16.safetensors
shels reproduce incremental/digits --methods own,closed-form
shels reproduce paper --cluster auto --out /shared/results

Every finished trial is kept. Cut off at any moment, the same command goes on."""

_WIDE = 110
"""Columns from which on experiments and their variants fit one table."""
_LENGTH, _SPEED, _PLACE = "What makes other trials", "How they are run", "Where they are run"


def reproduce(  # noqa: PLR0913 - a parameter for each option
    names: Annotated[
        list[str] | None, argument("EXPERIMENT", "Names from --list; a family (paper: all) for many.")
    ] = None,
    *,
    trials: Annotated[
        int | None,
        option("--trials", "How many trials of each, from trial 0; default: as --list has it.", "N"),
    ] = None,
    methods: Annotated[
        list[str] | None,
        option("--methods", "Methods and families from --list; default: those of each experiment.", "A,B,…"),
    ] = None,
    out: Annotated[Path, option("--out -o", "Folder for results and report.", "DIR")] = Path("results"),
    data_dir: options.DataDir = None,
    device: options.Device = "auto",
    no_report: Annotated[bool, option("--no-report", "Write the results, and no report.")] = False,
    show_list: Annotated[bool, option("--list", "List experiments and methods, and leave.")] = False,
    as_json: options.Json = False,
    epochs: Annotated[
        int | None, option("--epochs", "Another length of training.", "N", panel=_LENGTH)
    ] = None,
    weights: Annotated[
        Path | None,
        option("--weights", "Pretrained weights for VGG16 (safetensors, local).", "FILE", panel=_LENGTH),
    ] = None,
    precision: Annotated[
        str,
        option(
            "--precision", "Of convolutions, on a GPU.", "float32|bfloat16", panel=_LENGTH, show_default=False
        ),
    ] = "float32",
    together: Annotated[
        int | None,
        option("--together", "Trials to train at once, at most; default: what fits.", "N", panel=_SPEED),
    ] = None,
    cluster: Annotated[
        str | None, option("--cluster", "A Ray cluster; docs/cluster.md.", "local|auto|ADDRESS", panel=_PLACE)
    ] = None,
    processes: Annotated[
        int | None, option("--processes", "Processes on this machine, a GPU each.", "N", panel=_PLACE)
    ] = None,
    plan: Annotated[
        bool, option("--plan", "Write units of work to DIR, print their ids, and leave.", panel=_PLACE)
    ] = False,
    unit: Annotated[
        str | None, option("--unit", "Run one planned unit, as Slurm's jobs do.", "ID", panel=_PLACE)
    ] = None,
) -> None:
    """Run experiments of the paper, and compare.

    Trains and measures each method on the classes of each trial, keeps every
    result in DIR, and writes a report there. What DIR holds already is not run
    again. An experiment takes the methods of its task: detection, learning, or
    the open world. Of a family, what lacks its data is left out.
    """
    if show_list:
        _list(as_json=as_json)
        return
    options.one_of("precision", precision, get_args(Precision))
    if together is not None and together < 1:
        raise SettingsError(f"--together must be 1 or more, got {together}")
    where = Where(data_dir, device, together, cluster, processes)
    where.check()
    if unit is not None:
        others = {"--cluster": cluster, "--processes": processes, "EXPERIMENT": names or None}
        options.exclude({"--unit": unit}, others)
        raise typer.Exit(run_one(unit, out, where, as_json=as_json))
    changes = {"epochs": epochs, "weights": None if weights is None else str(weights), "precision": precision}
    from shels.experiments import selection  # noqa: PLC0415
    from shels.experiments.catalogue import FAMILIES  # noqa: PLC0415
    from shels.experiments.records import Records  # noqa: PLC0415

    chosen = selection.select_trials(names or [], methods, trials, changes)
    _notes(chosen.notes)
    where.check_precision(precision)
    records = Records(out)
    records.check()
    missing = [trial for trial in chosen.trials if records.find(trial) is None]
    left, notes = selection.without_data(missing, names or [], data_dir, weights)
    if len(left) < len(chosen.trials):  # else there is nothing to do, and the checks below say why
        _notes(notes)
        gone = {trial.key for trial in left}
        chosen, missing = chosen.without(gone), [trial for trial in missing if trial.key not in gone]
    selection.check_data(missing, data_dir)
    _notes(selection.check_weights(missing, weights))
    if plan:
        _plan(missing, records, where, as_json=as_json)
        return
    run = _Run(chosen.trials, records, where, quiet=as_json)
    run.estimate(missing, always=any(name in FAMILIES for name in names or []))
    raise typer.Exit(run.run(report=not no_report))


@dataclass(frozen=True)
class _Run:
    """One run of experiments: shown as it goes, summed up at the end."""

    trials: Sequence[Trial]
    records: Records
    where: Where
    quiet: bool

    def estimate(self, missing: Sequence[Trial], *, always: bool) -> None:
        """Say how long the missing trials should take here; where nothing tells, only if `always`."""
        if self.where.cluster is not None or self.where.processes is not None:
            return  # the table tells, from the first units on
        from shels import runtime  # noqa: PLC0415
        from shels.experiments.estimate import costs_of, estimated, shipped_costs  # noqa: PLC0415

        before = self.records.results() if self.records.any() else []
        place = runtime.device_name(runtime.device(self.where.device))
        time = estimated(missing, place, shipped_costs() | costs_of(before))
        known = len(missing) - time.unknown
        if not missing or not (known or always):
            return
        words = [f"about {duration(time.seconds)} for {_trials(known)}, by what such took"] if known else []
        words += [f"unknown for {_trials(time.unknown)}, as none like them was timed"] if time.unknown else []
        say(f"estimate: {'; '.join(words)} on {place}")

    def run(self, *, report: bool) -> int:
        """Run what is missing and return the exit code."""
        from shels.cli.live_table import LiveTable, missing_lines  # noqa: PLC0415
        from shels.experiments.status import RunStatus, document_of  # noqa: PLC0415

        with self.records.held():
            status = RunStatus(self.trials, self.records)
            shown = LiveTable(status, quiet=self.quiet)
            before = status.done
            self._watch(shown)
            pages = self._report() if report and status.done else []
        document = {"records": str(self.records.path), "report": [str(page) for page in pages or []]}
        document |= document_of(status) | {"done_before": before}
        print_result(document, partial(_show, shown), as_json=self.quiet)
        for line in missing_lines(status):
            say(line)
        return FAILED if status.missing or pages is None else 0

    def _watch(self, shown: LiveTable) -> None:
        from shels.experiments.executors import driven  # noqa: PLC0415

        status = shown.status
        if not status.missing:
            return
        if status.done and not self.quiet:
            kept = self.records.path if self.records.path.exists() else self.records.directory
            say(f"{status.done} of {status.wanted} trials are in {kept} already")
        try:
            with self.where.executor(self.records, status.missing) as executor, shown:
                for advance in driven(status.missing, self.records, executor):
                    shown.update(advance)
        except KeyboardInterrupt:
            done = sum(self.records.find(trial) is not None for trial in self.trials)
            safe = f", and safe in {self.records.path}" if done else ""
            say(
                f"interrupted: {done} of {status.wanted} trials are done{safe}; the same command goes on "
                "with the others"
            )
            raise typer.Exit(FAILED) from None

    def _report(self) -> list[Path] | None:
        """Write the report and return its files; None, and a line that says why, where it cannot be."""
        from shels.report.experiments import write_report  # noqa: PLC0415

        try:
            return write_report(self.records.results(), self.records.directory)
        except (ShelsError, OSError, ImportError) as error:
            say(f"error: the results are safe, but the report could not be written: {error}")
            return None


def _plan(missing: Sequence[Trial], records: Records, where: Where, *, as_json: bool) -> None:
    """Write down the units of trials that have no result, for others to run, and print their ids."""
    from shels.experiments.processes import gpu_count  # noqa: PLC0415
    from shels.experiments.units import UnitFolder, planned_units  # noqa: PLC0415

    folder = UnitFolder(records.directory)
    units = planned_units(missing, where.block(gpus=gpu_count(where.device) > 0))
    folder.plan(units)
    print_plan([unit for unit in units if not folder.is_done(unit)], as_json=as_json)


def _trials(number: int) -> str:
    return f"{number} trial{'s' * (number != 1)}"


def _notes(notes: Sequence[str]) -> None:
    for note in notes:
        say(f"note: {note}")


def _show(shown: LiveTable, document: dict[str, Any]) -> None:
    shown.final()
    ran = document["done"] - document["done_before"]
    facts = {"trials": f"{document['done']} of {document['wanted']} done, {ran} of them now"}
    facts["trials"] += f" in {duration(document['seconds'])}" * bool(ran)
    facts["results"] = document["records"]
    if document["report"]:
        pages = [page for page in document["report"] if page.endswith(".html")] or document["report"]
        facts["report"] = pages[0]
    print_facts(facts)


def _list(*, as_json: bool) -> None:
    from shels.experiments import methods as known  # noqa: PLC0415
    from shels.experiments.catalogue import CATALOGUE, FAMILIES  # noqa: PLC0415

    families = {name: [each.name for each in members] for name, members in FAMILIES.items()}
    groups = {name: [each.name for each in members] for name, members in known.FAMILIES.items()}
    experiments = [
        {name: getattr(each, name) for name in ("name", "title", "task", "base")}
        | {"trials": each.trial_count}
        for each in CATALOGUE.values()
    ]
    about = ("name", "title", "task", "family")
    methods = [{name: getattr(each, name) for name in about} for each in known.METHODS.values()]
    if as_json:
        listed = {"experiments": experiments, "families": families, "methods": methods}
        print_json(listed | {"method_families": groups})
        return
    _print_experiments({name: len(members) for name, members in families.items()})
    ways = [tuple(each[name] for name in ("name", "task", "family", "title")) for each in methods]
    ways += [(name, "", "", _methods(len(members))) for name, members in groups.items()]
    print_table("method", "task", "family", "what", rows=ways, names=["method"])


def _print_experiments(families: dict[str, int]) -> None:
    """List experiments, each with its variants; where their long names leave no room, these come below."""
    from shels.experiments.catalogue import CATALOGUE  # noqa: PLC0415

    apart = [each for each in CATALOGUE.values() if each.variant and results().width < _WIDE]
    rows: list[tuple[str, ...]] = [
        (each.indented, each.task, str(each.trial_count), each.summary)
        for each in CATALOGUE.values()
        if each not in apart
    ]
    rows += [(name, "", "", f"{number} experiments at once") for name, number in families.items()]
    print_table("experiment", "task", "trials", "what", rows=rows, names=["experiment"])
    if apart:
        variants = [(each.name, str(each.trial_count), each.summary.strip()) for each in apart]
        print_table("variant", "trials", "what is otherwise", rows=variants, names=["variant"])


def _methods(number: int) -> str:
    return f"{number} methods at once" if number != 1 else "1 method"
