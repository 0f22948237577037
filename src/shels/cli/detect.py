"""`shels detect`: a verdict on each image, its class or novel."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shels.cli import options
from shels.cli.display import print_json, results, table
from shels.errors import SettingsError

if TYPE_CHECKING:
    from shels.learner.learner import Learner

EXAMPLES = """[bold]Examples[/bold]

shels detect m photo.png
shels detect m photos/ --only-novel
shels detect m photos/ --csv verdicts.csv
shels detect m new.npz --json"""

COLUMNS = ("source", "verdict", "predicted", "score", "threshold", "p_value", "novel")

Inputs = Annotated[
    list[Path],
    typer.Argument(
        metavar="INPUT", help="Image files, folders (all images below), or .npz files with x or x_test."
    ),
]
OnlyNovel = Annotated[bool, typer.Option("--only-novel", help="List only what is novel.")]
Csv = Annotated[
    str | None, typer.Option("--csv", metavar="FILE", help="Write the list as CSV; - for standard output.")
]


def detect(
    model: options.Model,
    inputs: Inputs,
    only_novel: OnlyNovel = False,
    csv_file: Csv = None,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Tell the class of each image, or that it is novel.

    A sample is novel if its score does not exceed the threshold of the class
    that it is most like. Its p-value says how often known samples of that class
    score as low; small means novel.
    """
    if csv_file == "-" and as_json:
        raise SettingsError("--csv - and --json both want standard output; give one of them")
    from shels.cli.inputs import load_learner  # noqa: PLC0415

    rows = _judge(load_learner(model, device), inputs)
    shown = [row for row in rows if row["novel"] or not only_novel]
    if csv_file is not None:
        _write_csv(shown, csv_file)
    novel = sum(row["novel"] for row in rows)
    if as_json:
        print_json({"model": str(model), "samples": len(rows), "novel": novel, "rows": shown})
    elif csv_file != "-":
        _show(shown, len(rows), novel, csv_file)


def _judge(learner: Learner, paths: list[Path]) -> list[dict[str, Any]]:
    from shels.cli.inputs import read_to_judge  # noqa: PLC0415

    groups = [group for path in paths for group in read_to_judge(path, learner.preparation)]
    return [row for inputs, names in groups for row in _rows(learner, inputs, names)]


def _rows(learner: Learner, inputs: Any, names: list[str]) -> list[dict[str, Any]]:
    verdicts = learner.judge(inputs)
    columns = (verdicts.predicted, verdicts.score, verdicts.threshold, verdicts.p_value, verdicts.novel)
    rows = []
    for name, position, score, threshold, p_value, novel in zip(
        names, *(column.tolist() for column in columns), strict=True
    ):
        predicted = learner.classes[position]
        verdict = "novel" if novel else predicted
        values = (name, verdict, predicted, score, threshold, p_value, novel)
        rows.append(dict(zip(COLUMNS, values, strict=True)))
    return rows


def _write_csv(rows: list[dict[str, Any]], target: str) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    if target == "-":
        typer.echo(text.getvalue(), nl=False)
        return
    from shels.files import write_whole  # noqa: PLC0415

    write_whole(Path(target), text.getvalue())


def _show(rows: list[dict[str, Any]], samples: int, novel: int, csv_file: str | None) -> None:
    console = results()
    room = max(console.height - 8, 5) if console.is_terminal else len(rows)
    if rows:
        cells = [
            (
                r["source"],
                r["verdict"],
                r["predicted"],
                f"{r['score']:.3f}",
                f"{r['threshold']:.3f}",
                f"{r['p_value']:.3f}",
            )
            for r in rows[:room]
        ]
        console.print(table(*COLUMNS[:6], rows=cells, numbers=COLUMNS[3:6]))
    if len(rows) > room:
        typer.echo(f"… and {len(rows) - room} more; --csv FILE keeps them all")
    kept = f"; the list is in {csv_file}" if csv_file is not None else ""
    typer.echo(f"{samples} sample{'s' * (samples != 1)}, {novel} novel{kept}")
