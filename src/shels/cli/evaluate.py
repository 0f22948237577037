"""`shels evaluate`: how well a model tells its classes apart, and known from novel."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from shels.cli import options
from shels.cli.display import percent, print_result, print_table
from shels.cli.options import option
from shels.cli.reading import FileReading
from shels.errors import SettingsError

EXAMPLES = """shels evaluate m digits
shels evaluate m digits --report m.html
shels evaluate m mnist --novel-data fmnist
shels evaluate m photos/ --part all --json"""

_SHOWN = [
    "closed_set_accuracy",
    "acceptance",
    "known_accuracy",
    "novel_accuracy",
    "combined_accuracy",
    "auroc",
    "fpr95",
]
_BY_CLASS = ("per_class", "per_novel_class")


def evaluate(
    model: options.Model,
    data: options.Data,
    novel_data: Annotated[
        str | None,
        option("--novel-data", "Count all of this as novel, instead of DATA's other classes.", "DATA2"),
    ] = None,
    part: Annotated[
        str | None,
        option("--part", "Which samples; default: test if there are any, else all.", "test|train|all"),
    ] = None,
    data_dir: options.DataDir = None,
    report: Annotated[Path | None, option("--report", "Write a page with figures, too.", "FILE.html")] = None,
    device: options.Device = "auto",
    strict: options.Strict = False,
    as_json: options.Json = False,
) -> None:
    """Measure a model on data with known and novel classes.

    Samples of classes that the model does not know count as novel. Classes are
    matched by name: a folder called 3 is the class 3 of a model of numbers.
    """
    check_report(report)
    from shels.learner.assessment import assess  # noqa: PLC0415
    from shels.learner.training_directory import load_learner  # noqa: PLC0415

    learner = load_learner(model, device)
    with FileReading(strict=strict, quiet=as_json) as files:
        found = assess(learner, data, data_dir=data_dir, novel_data=novel_data, part=part)
    files.show_table()
    if report is not None:
        from shels.report import detection  # noqa: PLC0415

        novel = found.novel if len(found.novel) else None
        title = f"{model.name} on {data}" + (f" and {novel_data}" if novel_data else "")
        detection.write(
            report, learner=learner, known=found.known, novel=novel, measures=found.measures, title=title
        )
    result = {
        "model": str(model),
        "data": data,
        "novel_data": novel_data,
        "part": found.part,
        "known_samples": len(found.known),
        "novel_samples": len(found.novel),
        "left_out_samples": found.left_out,
        "metrics": {name: value for name, value in found.measures.items() if name not in _BY_CLASS},
        **{name: found.measures.get(name, {}) for name in _BY_CLASS},
        "report": None if report is None else str(report),
        "files": files.result(),
    }
    print_result(result, partial(_show, asked_for_part=part is not None), as_json=as_json)


def check_report(path: Path | None) -> None:
    """Raise unless a page can have this name."""
    if path is not None and (path.is_dir() or path.suffix.lower() not in (".html", ".htm")):
        raise SettingsError(f"--report must be a file that ends in .html, got {str(path)!r}")


def _show(result: dict[str, Any], *, asked_for_part: bool) -> None:
    part, known = result["part"], result["known_samples"]
    part_words = "all samples" if part == "all" else f"{part} part"
    source = f" from {result['novel_data']}" if result["novel_data"] is not None else ""
    left_out = f" ({result['left_out_samples']} of other classes left out)" * bool(result["left_out_samples"])
    novel = f"{result['novel_samples']} novel{source}{left_out}"
    typer.echo(f"{result['data']} ({part_words}): {known} of known classes, {novel}")
    if part == "all" and not asked_for_part:
        typer.echo("There is no test part: if the model was trained on these samples, it looks too good.")
    _show_measures(result["metrics"])
    _show_classes(result)
    if not result["novel_samples"]:
        typer.echo("Nothing novel to notice: every class here is known to the model (see --novel-data).")
    if result["report"] is not None:
        typer.echo(f"The report is in {result['report']}")


def _show_measures(found: dict[str, float]) -> None:
    from shels.detection.measures import MEASURES  # noqa: PLC0415

    shown = [MEASURES[key] for key in _SHOWN if key in found]
    # Where the title says all that the meaning does, the heading is shorter.
    names = [each.heading if each.meaning.startswith(each.title) else each.title for each in shown]
    rows = [(name, percent(found[each.key]), each.meaning) for name, each in zip(names, shown, strict=True)]
    print_table("measure", "value", "what it is", rows=rows, numbers=["value"])


def _show_classes(result: dict[str, Any]) -> None:
    rows = [
        (name, "known", rates["samples"], percent(rates["accepted"]), percent(rates["right"]), "")
        for name, rates in result["per_class"].items()
    ]
    rows += [
        (name, "novel", rates["samples"], "", "", percent(rates["rejected"]))
        for name, rates in result["per_novel_class"].items()
    ]
    headings = ("class", "is", "samples", "accepted", "and right", "rejected")
    print_table(*headings, rows=rows, numbers=headings[2:])
