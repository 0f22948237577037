"""`shels reproduce`: run the paper's experiments, and set what they come to beside what was published."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shels.cli import options
from shels.cli.display import print_json, results, say, table
from shels.cli.outcome import FAILED
from shels.cli.settings import one_of
from shels.errors import DataError, MissingDataError, SettingsError, ShelsError

if TYPE_CHECKING:
    from shels.cli.board import Board
    from shels.experiments.preparing import Source
    from shels.experiments.trials import Trial

EXAMPLES = """[bold]Examples[/bold]

shels reproduce --list
shels reproduce within/digits --trials 3 --out tried
shels reproduce within/fmnist across/mnist-fmnist
shels reproduce paper --methods shels,standard-linear --weights vgg16.safetensors
shels reproduce incremental/digits --methods own,closed-form

Every finished trial is kept. Cut off at any moment, the same command goes on."""

_LENGTH, _SPEED = "What makes other trials", "How they are run"


def _option(flag: str, text: str, panel: str, metavar: str | None = None) -> Any:
    return typer.Option(flag, metavar=metavar, help=text, rich_help_panel=panel, show_default=False)


Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="EXPERIMENT", help="Names from --list; a family (paper: all) for many."),
]
Trials = Annotated[int, typer.Option("--trials", metavar="N", help="How many trials of each, from trial 0.")]
Methods = Annotated[
    list[str] | None,
    typer.Option(
        "--methods",
        metavar="A,B,…",
        help="Methods and families from --list; default: shels, and our learners.",
    ),
]
Out = Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for results and report.")]
Epochs = Annotated[int | None, _option("--epochs", "Another length of training.", _LENGTH, "N")]
Weights = Annotated[
    Path | None, _option("--weights", "Pretrained weights for VGG16 (safetensors, local).", _LENGTH, "FILE")
]
Precision = Annotated[str, _option("--precision", "Of convolutions, on a GPU.", _LENGTH, "float32|bfloat16")]
Together = Annotated[
    int | None, _option("--together", "Trials to train at once, at most; default: what fits.", _SPEED, "N")
]
NoReport = Annotated[bool, typer.Option("--no-report", help="Write the results, and no report.")]
List = Annotated[bool, typer.Option("--list", help="List experiments and methods, and leave.")]


def reproduce(  # noqa: PLR0913 - a parameter for each option
    names: Names = None,
    *,
    trials: Trials = 10,
    methods: Methods = None,
    out: Out = Path("results"),
    data_dir: options.DataDir = None,
    device: options.Device = "auto",
    no_report: NoReport = False,
    show_list: List = False,
    as_json: options.Json = False,
    epochs: Epochs = None,
    weights: Weights = None,
    precision: Precision = "float32",
    together: Together = None,
) -> None:
    """Run experiments of the paper, and compare.

    Trains and measures each method on the classes of each trial, keeps every
    result in DIR, and writes a report there. What DIR holds already is not run
    again. An experiment takes the methods of its task: detection or learning.
    """
    if show_list:
        _list(as_json=as_json)
        return
    one_of("precision", precision, ("float32", "bfloat16"))
    if together is not None and together < 1:
        raise SettingsError(f"--together must be 1 or more, got {together}")
    changes = {"epochs": epochs, "weights": None if weights is None else str(weights), "precision": precision}
    from shels import runtime  # noqa: PLC0415
    from shels.cli.asked import asked_trials  # noqa: PLC0415

    asked = asked_trials(names or [], methods, trials, changes)

    if runtime.device(device).type != "cuda" and precision != "float32":
        raise SettingsError(f"--precision {precision} needs a GPU, and none is used here; leave it out")
    course = Course(asked, out, device, together, quiet=as_json)
    course.check(data_dir, weights)
    raise typer.Exit(course.run(data_dir, report=not no_report))


class Course:
    """One run of experiments: checked before, shown as it goes, summed up at the end."""

    def __init__(
        self, asked: Sequence[Trial], out: Path, device: str, together: int | None, *, quiet: bool
    ) -> None:
        from shels.experiments.records import Records  # noqa: PLC0415

        self.asked = asked
        self.records = Records(out)
        self.device = device
        self.together = together
        self.quiet = quiet

    def check(self, data_dir: Path | None, weights: Path | None) -> None:
        """Raise where something would stop the run later on, before anything is changed."""
        missing = [trial for trial in self.asked if self.records.find(trial) is None]
        _check_data(missing, data_dir)
        _check_weights(missing, weights)

    def run(self, data_dir: Path | None, *, report: bool) -> int:
        """Run what is missing and return the exit code."""
        from shels.cli.board import Board  # noqa: PLC0415
        from shels.cli.standing import Standing, document_of, missing_lines  # noqa: PLC0415

        with self.records.held():
            standing = Standing(self.asked, self.records)
            board = Board(standing, quiet=self.quiet)
            before = standing.done
            self._watch(board, _source(data_dir))
            pages = self._report() if report and standing.done else []
        document = {"records": str(self.records.path), "report": [str(page) for page in pages or []]}
        document |= document_of(standing) | {"done_before": before}
        if self.quiet:
            print_json(document)
        else:
            _show(board, document)
        for line in missing_lines(standing):
            say(line)
        return FAILED if standing.missing or pages is None else 0

    def _watch(self, board: Board, source: Source) -> None:
        from shels.experiments import engine  # noqa: PLC0415

        standing = board.standing
        if not standing.missing:
            return
        if standing.done and not self.quiet:
            say(f"{standing.done} of {standing.wanted} trials are in {self.records.path} already")
        try:
            with board:
                for advance in engine.run(
                    standing.missing, self.records, source, device=self.device, most_together=self.together
                ):
                    board.take(advance)
        except KeyboardInterrupt:
            done = sum(self.records.find(trial) is not None for trial in self.asked)
            say(
                f"interrupted: {done} of {standing.wanted} trials are done, and safe in {self.records.path}; "
                "the same command goes on with the others"
            )
            raise typer.Exit(FAILED) from None

    def _report(self) -> list[Path] | None:
        """Write the report and return its files; None, and a line that says why, where it cannot be."""
        from shels.report.experiments import write_report  # noqa: PLC0415

        try:
            return write_report(self.records.results(), self.records.directory)
        except (ShelsError, OSError) as error:
            say(f"error: the results are safe, but the report could not be written: {error}")
            return None


def _check_weights(trials: Sequence[Trial], weights: Path | None) -> None:
    from shels.files import read_metadata  # noqa: PLC0415

    large = {trial.experiment for trial in trials if trial.settings.network.architecture == "vgg16"}
    if weights is not None and trials:
        if not large:
            raise SettingsError("--weights is for experiments that train VGG16, and none of these does")
        read_metadata(weights)
    elif large:
        say(f"note: VGG16 starts fresh in {', '.join(sorted(large))}; the paper's is pretrained (--weights)")


def _check_data(trials: Sequence[Trial], data_dir: Path | None) -> None:
    from shels.data import sources  # noqa: PLC0415

    needed = {name for trial in trials for name in (trial.known_data, trial.novel_data)}
    sets = [each for each in sources.listing(data_dir) if each.name in needed] if needed else []
    for each in sets:
        if each.problem:
            raise DataError(each.problem)
    absent = [each.name for each in sets if not each.present]
    if absent:
        fetch = ", ".join(f"`shels data download {name}`" for name in absent)
        raise MissingDataError(
            f"{sources.data_directory(data_dir)} has no {', no '.join(absent)}; run {fetch}, or name "
            "another folder with --data-dir (`shels data` tells what is where)"
        )


def _source(data_dir: Path | None) -> Source:
    from shels.data import sources  # noqa: PLC0415

    def load(name: str, size: int | None) -> Any:
        return sources.load_named(name, data_dir, size if sources.named_set(name).any_size else None)

    return load


def _show(board: Board, document: dict[str, Any]) -> None:
    from shels.cli.standing import duration  # noqa: PLC0415

    board.final()
    ran = document["done"] - document["done_before"]
    lines = {"trials": f"{document['done']} of {document['wanted']} done, {ran} of them now"}
    lines["trials"] += f" in {duration(document['seconds'])}" * bool(ran)
    lines["results"] = document["records"]
    if document["report"]:
        pages = [page for page in document["report"] if page.endswith(".html")] or document["report"]
        lines["report"] = pages[0]
    for name, text in lines.items():
        typer.echo(f"{name:<13}{text}")


def _list(*, as_json: bool) -> None:
    """Print the experiments and the methods."""
    from shels.experiments import methods as known  # noqa: PLC0415
    from shels.experiments.catalogue import CATALOGUE, FAMILIES  # noqa: PLC0415

    families = {name: [each.name for each in members] for name, members in FAMILIES.items()}
    groups = {name: [each.name for each in members] for name, members in known.FAMILIES.items()}
    experiments = [{"name": each.name, "title": each.title, "task": each.task} for each in CATALOGUE.values()]
    told = ("name", "title", "task", "family")
    methods = [{name: getattr(each, name) for name in told} for each in known.METHODS.values()]
    if as_json:
        listed = {"experiments": experiments, "families": families, "methods": methods}
        print_json(listed | {"method_families": groups})
        return
    rows = [(each["name"], each["task"], each["title"]) for each in experiments]
    rows += [(name, "", f"{len(members)} experiments at once") for name, members in families.items()]
    results().print(table("experiment", "task", "what", rows=rows))
    ways = [tuple(each[name] for name in ("name", "task", "family", "title")) for each in methods]
    ways += [(name, "", "", f"{len(members)} methods at once") for name, members in groups.items()]
    results().print(table("method", "task", "family", "what", rows=ways))
