"""`shels report`: what experiments came to, as a page, tables and charts beside the paper's figures."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from shels.cli import options
from shels.cli.display import print_result
from shels.cli.options import argument, option

EXAMPLES = """shels report results
shels report results --out report
shels report results --json"""


def report(
    directory: Annotated[Path, argument("DIR", "Directory of results, from shels reproduce.")],
    out: Annotated[Path | None, option("--out", "Where to write; else beside the results.", "DIR")] = None,
    as_json: options.Json = False,
) -> None:
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
    document = {"trials": len(results), "experiments": experiments, "files": [str(path) for path in files]}
    print_result(document, partial(_show, target=target), as_json=as_json)


def _show(document: dict[str, Any], target: Path) -> None:
    number, trials = len(document["experiments"]), document["trials"]
    said = f"{trials} trial{'s' * (trials != 1)} of {number} experiment{'s' * (number != 1)}"
    typer.echo(f"{said}: open {target / 'report.html'}")
    typer.echo(f"Beside it are report.md, trials.csv, summary.csv, and every chart in {target / 'figures'}")
