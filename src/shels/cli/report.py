"""`shels report`: what experiments came to, as a page, tables and charts beside the paper's figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from shels.cli import options
from shels.cli.display import print_json

EXAMPLES = """[bold]Examples[/bold]

shels report results
shels report results --out report
shels report results --json"""

Results = Annotated[Path, typer.Argument(metavar="DIR", help="Directory of results, from shels reproduce.")]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Where to write; else beside the results.", show_default=False),
]


def report(directory: Results, out: Out = None, as_json: options.Json = False) -> None:
    """Write a report on experiments.

    Tables and bar charts laid out as the paper's, with its figures beside them:
    report.html is one page that needs nothing else, report.md and figures/ hold
    the same as Markdown and PNG, trials.csv and summary.csv every number.
    """
    from shels.experiments.records import Records  # noqa: PLC0415
    from shels.report.experiments import write_report  # noqa: PLC0415

    results = Records(directory).results()
    target = directory if out is None else out
    files = write_report(results, target)
    experiments = list(dict.fromkeys(result.trial.experiment for result in results))
    outcome = {"trials": len(results), "experiments": experiments, "files": [str(path) for path in files]}
    if as_json:
        print_json(outcome)
    else:
        _show(outcome, target)


def _show(outcome: dict[str, Any], target: Path) -> None:
    number, trials = len(outcome["experiments"]), outcome["trials"]
    said = f"{trials} trial{'s' * (trials != 1)} of {number} experiment{'s' * (number != 1)}"
    typer.echo(f"{said}: open {target / 'report.html'}")
    typer.echo(f"Beside it are report.md, trials.csv, summary.csv, and every chart in {target / 'figures'}")
