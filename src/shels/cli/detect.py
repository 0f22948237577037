"""`shels detect`: a verdict on each image, its class or novel."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shels.cli import options
from shels.cli.display import print_facts, print_json, results, table
from shels.cli.judging import judge_into
from shels.cli.options import argument, option
from shels.cli.reading import FileReading
from shels.errors import DataError, SettingsError

if TYPE_CHECKING:
    from shels.learner.learner import Learner

EXAMPLES = """shels detect m photo.png
shels detect m photos/ --only-novel
shels detect m photos/ --csv verdicts.csv
shels detect m photo.png --explain --examples photos/
shels detect m new.npz --json
shels detect m millions/ --out verdicts.parquet
shels detect m s3://bucket/photos --out verdicts.parquet --cluster auto"""

_COLUMNS = ("source", "verdict", "predicted", "score", "threshold", "p_value", "novel", "reason")
_MOST_EXPLAINED = 20

_many = partial(option, panel="Any number of images", show_default=False)


def detect(  # noqa: PLR0913 - a parameter for each option
    model: options.Model,
    inputs: Annotated[
        list[str],
        argument(
            "INPUT",
            "Image files, folders (all images below), .zip, .csv with paths, or .npz files with x or x_test; "
            "with --out also .txt with paths, .parquet, or addresses such as s3://bucket/photos.",
        ),
    ],
    *,
    only_novel: Annotated[bool, option("--only-novel", "List only what is novel.")] = False,
    csv_file: Annotated[
        str | None, option("--csv", "Write the list as CSV; - for standard output.", "FILE")
    ] = None,
    out: Annotated[
        Path | None,
        _many("--out", "Write verdicts as they come, as .parquet (shards), .csv or .jsonl.", "FILE"),
    ] = None,
    cluster: Annotated[
        str | None, _many("--cluster", "Judge on a Ray cluster: local, auto or HOST:PORT.", "ADDRESS")
    ] = None,
    explain: Annotated[bool, option("--explain", "Say what stands behind each verdict.")] = False,
    examples: Annotated[
        str | None, option("--examples", "Known samples, to show the most similar of.", "DATA")
    ] = None,
    data_dir: options.DataDir = None,
    device: options.Device = "auto",
    strict: options.Strict = False,
    as_json: options.Json = False,
) -> None:
    """Tell the class of each image, or that it is novel.

    A sample is novel if its score does not exceed the threshold of the class
    that it is most like. Its p-value says how often known samples of that class
    score as low; small means novel. A file that cannot be read has the verdict
    "unreadable" and a reason; where no file can be read, that is an error.

    --out is for any number of images: few are in memory at a time, and where the
    command was cut off, it goes on after the last shard that is finished.

    --explain adds the p-value in every class, what was most unusual, the
    features that differ most from the class's, and the nearest known samples.
    """
    csv_file = "-" if csv_file == "/dev/stdout" else csv_file
    if csv_file == "-" and as_json:
        raise SettingsError("--csv - and --json both want standard output; give one of them")
    if examples is not None and not explain:
        raise SettingsError("--examples are for --explain; give both, or neither")
    if out is not None:
        for_few = {"--csv": csv_file, "--explain": explain or None, "--only-novel": only_novel or None}
        options.exclude({"--out": out}, for_few)
        judge_into(model, inputs, out, cluster=cluster, device=device, strict=strict, as_json=as_json)
        return
    many = [each for each in inputs if "://" in each or each.endswith((".parquet", ".txt"))]
    if cluster is not None or many:
        what = "--cluster" if cluster is not None else many[0]
        raise SettingsError(f"{what} is for many images; give --out, such as verdicts.parquet")
    from shels.learner.assessment import file_verdicts  # noqa: PLC0415
    from shels.learner.training_directory import load_learner  # noqa: PLC0415

    learner, paths = load_learner(model, device), [Path(each) for each in inputs]
    with FileReading(strict=strict, quiet=as_json):
        if explain:
            rows = _explained(learner, model, paths, examples, data_dir)
        else:
            rows = [asdict(each) for each in file_verdicts(learner, paths)]
    shown = [row for row in rows if row["novel"] or not only_novel]
    if csv_file is not None:
        _write_csv(shown, csv_file)
    unreadable = sum(row["novel"] is None for row in rows)
    counts = {"samples": len(rows) - unreadable, "novel": sum(row["novel"] is True for row in rows)}
    counts["unreadable"] = unreadable
    if as_json:
        print_json({"model": str(model), **counts, "rows": shown})
    elif csv_file != "-":
        _show(shown, counts, csv_file)
        if explain:
            _show_why(shown)


def _explained(
    learner: Learner, model: Path, inputs: list[Path], data: str | None, data_dir: Path | None
) -> list[dict[str, Any]]:
    from shels.agent.buffers import Buffers  # noqa: PLC0415
    from shels.agent.home import Home  # noqa: PLC0415
    from shels.learner.assessment import UNREADABLE, Examples, FileVerdict, file_explanations, read_examples  # noqa: PLC0415

    examples = None if data is None else read_examples(learner, data, data_dir)
    if data is None and Home(model).exists:
        kept = Buffers(Home(model)).examples(learner)
        examples = None if kept is None else Examples(kept, None)
    found = file_explanations(learner, inputs, examples)
    if all(isinstance(each, str) for _, each in found):
        raise DataError(" ".join(map(str, found[0])))
    return [
        asdict(FileVerdict(name, UNREADABLE, reason=each))
        if isinstance(each, str)
        else {"source": name} | asdict(each) | {"words": each.words, "reason": ""}
        for name, each in found
    ]


def _show_why(rows: list[dict[str, Any]]) -> None:
    """Print why each verdict came out so, in a few lines."""
    from shels.learner.explanation import in_words  # noqa: PLC0415

    rows = [row for row in rows if row["novel"] is not None]
    for row in rows[:_MOST_EXPLAINED]:
        classes, odd = list(row["class_p_values"].items())[:4], row["aspects"][:3]
        units = [
            f"{each['number']} is {each['value']:.3f}, not {each['expected']:.3f}" for each in row["units"]
        ]
        near = [f"{each['source']} ({each['label']}) {each['distance']:.2f}" for each in row["examples"]]
        facts = {
            "classes": "; ".join(f"{name} p {in_words(value)}" for name, value in classes),
            "unusual": "; ".join(f"{each['name']} p {in_words(each['p_value'])}" for each in odd),
            "features": "; ".join(units),
            "nearest": "; ".join(near),
        }
        typer.echo(f"\n{row['source']}: {row['words']}")
        print_facts({name: text for name, text in facts.items() if text})
    if len(rows) > _MOST_EXPLAINED:
        typer.echo(f"\n… and {len(rows) - _MOST_EXPLAINED} more; --json explains them all")


def _write_csv(rows: list[dict[str, Any]], target: str) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    if target == "-":
        typer.echo(text.getvalue(), nl=False)
        return
    from shels.files import write_output  # noqa: PLC0415

    write_output(Path(target), text.getvalue())


def _show(rows: list[dict[str, Any]], counts: dict[str, int], csv_file: str | None) -> None:
    console = results()
    room = max(console.height - 8, 5) if console.is_terminal else len(rows)
    if rows:
        words, numbers = _COLUMNS[:3], _COLUMNS[3:6]
        reasons = _COLUMNS[7:] if any(row["reason"] for row in rows) else ()
        shown = (*words, *numbers, *reasons)
        cells = [[_cell(row[name]) for name in shown] for row in rows[:room]]
        console.print(table(*shown, rows=cells, numbers=numbers))
    if len(rows) > room:
        typer.echo(f"… and {len(rows) - room} more; --csv FILE keeps them all")
    kept = f"; the list is in {csv_file}" if csv_file is not None else ""
    unreadable = f", {counts['unreadable']} unreadable" * bool(counts["unreadable"])
    samples = f"{counts['samples']} sample{'s' * (counts['samples'] != 1)}"
    typer.echo(f"{samples}, {counts['novel']} novel{unreadable}{kept}")


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
