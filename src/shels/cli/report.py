"""`shels report`: what experiments came to, as a page, tables and charts beside the paper's figures."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shels.cli import options
from shels.cli.display import print_result, say
from shels.cli.errors import FAILED
from shels.cli.options import argument, option
from shels.files import check_writable

if TYPE_CHECKING:
    from shels.experiments.trials import TrialResult

EXAMPLES = """shels report results
shels report results --out report
shels report results --json
shels report run-1 run-2 --pack results
shels report results --reproduction ."""


def report(
    directories: Annotated[list[Path], argument("DIR", "Directories of results, from shels reproduce.")],
    out: Annotated[
        Path | None, option("--out", "Where to write; else beside the first results.", "DIR")
    ] = None,
    pack: Annotated[
        Path | None, option("--pack", "Keep what pages need of the results in DIR, and leave.", "DIR")
    ] = None,
    reproduction: Annotated[
        Path | None,
        option("--reproduction", "Write docs/reproduction.md of the repository at DIR, and leave.", "DIR"),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Write a report on experiments.

    Tables and bar charts laid out as the paper's, with its figures beside them:
    report.html is one page that needs nothing else, report.md and figures/ hold
    the same as Markdown and PNG, trials.csv and summary.csv every number.
    """
    options.exclude({"--pack": pack}, {"--reproduction": reproduction, "--out": out})
    options.exclude({"--reproduction": reproduction}, {"--out": out})
    if reproduction is not None:
        _reproduction(directories, reproduction, as_json=as_json)
        return
    from shels.experiments.records import Records  # noqa: PLC0415

    found = (result for each in directories for result in Records(each).results())
    results = list({result.trial.key: result for result in found}.values())  # of a trial in two, the last
    check_writable(pack or out or directories[0])
    if pack is not None:
        from shels.experiments.packing import pack as packing  # noqa: PLC0415

        document = _document(results, packing(results, pack))
        print_result(document, partial(_show_packed, target=pack), as_json=as_json)
        return
    from shels.report.experiments import write_report  # noqa: PLC0415

    target = directories[0] if out is None else out
    document = _document(results, write_report(results, target))
    print_result(document, partial(_show, target=target), as_json=as_json)


def _reproduction(directories: Sequence[Path], root: Path, *, as_json: bool) -> None:
    """Write the repository's pages from packed results; sentences that lack are named, and fail."""
    from shels.experiments.records import Records  # noqa: PLC0415
    from shels.report.reproduction.pages import write_pages  # noqa: PLC0415

    results = [result for each in directories for result in Records(each).packed()]
    files, problems = write_pages(results, directories[0], root)
    document = _document(results, files) | {"problems": problems}
    print_result(document, partial(_show_files, words="written"), as_json=as_json)
    for problem in problems:
        say(f"error: {problem}")
    raise typer.Exit(FAILED if problems else 0)


def _document(results: Sequence[TrialResult], files: Sequence[Path]) -> dict[str, Any]:
    experiments = list(dict.fromkeys(result.trial.experiment for result in results))
    return {"trials": len(results), "experiments": experiments, "files": [str(path) for path in files]}


def _said(document: dict[str, Any]) -> str:
    number, trials = len(document["experiments"]), document["trials"]
    return f"{trials} trial{'s' * (trials != 1)} of {number} experiment{'s' * (number != 1)}"


def _show(document: dict[str, Any], target: Path) -> None:
    typer.echo(f"{_said(document)}: open {target / 'report.html'}")
    typer.echo(f"Beside it are report.md, trials.csv, summary.csv, and every chart in {target / 'figures'}")


def _show_packed(document: dict[str, Any], target: Path) -> None:
    size = sum(Path(path).stat().st_size for path in document["files"])
    _show_files(document, words=f"packed in {target}, which holds {size / 1e6:.2f} MB")


def _show_files(document: dict[str, Any], words: str) -> None:
    typer.echo(f"{_said(document)} {words}:")
    for path in document["files"]:
        typer.echo(f"  {path}")
