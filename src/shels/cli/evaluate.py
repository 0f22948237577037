"""`shels evaluate`: how well a model tells its classes apart, and known from novel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shels.cli import options
from shels.cli.display import percent, print_json, results, table
from shels.errors import SettingsError

if TYPE_CHECKING:
    from shels.data.samples import Samples
    from shels.learner.learner import Learner

EXAMPLES = """[bold]Examples[/bold]

shels evaluate m digits
shels evaluate m digits --report m.html
shels evaluate m mnist --novel-data fmnist
shels evaluate m photos/ --part all --json"""

_MEASURES = {
    "closed_set_accuracy": ("closed-set accuracy", "right class, were nothing ever rejected"),
    "acceptance": ("acceptance", "known samples accepted, right or not"),
    "known_accuracy": ("known accuracy", "known samples accepted and right"),
    "novel_accuracy": ("novel accuracy", "novel samples rejected"),
    "combined_accuracy": ("combined accuracy", "mean of the two"),
    "auroc": ("AUROC", "known told from novel by score; 50 % is chance"),
    "fpr95": ("FPR at 95 %", "novel accepted where 95 % of known are"),
}

NovelData = Annotated[
    str | None,
    typer.Option(
        "--novel-data", metavar="DATA2", help="Count all of this as novel, instead of DATA's other classes."
    ),
]
WantedPart = Annotated[
    str | None,
    typer.Option(
        "--part", metavar="test|train|all", help="Which samples; default: test if there are any, else all."
    ),
]
Report = Annotated[
    Path | None, typer.Option("--report", metavar="FILE.html", help="Write a page with figures, too.")
]


def evaluate(
    model: options.Model,
    data: options.Data,
    novel_data: NovelData = None,
    part: WantedPart = None,
    data_dir: options.DataDir = None,
    report: Report = None,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Measure a model on data with known and novel classes.

    Samples of classes that the model does not know count as novel. Classes are
    matched by name: a folder called 3 is the class 3 of a model of numbers.
    """
    _check_report(report)
    from shels.cli import inputs  # noqa: PLC0415
    from shels.data.splits import divide  # noqa: PLC0415

    learner = inputs.load_learner(model, device)
    chosen = inputs.choose_part(inputs.load_to_judge(data, data_dir, learner.preparation), part)
    known, novel = divide(chosen.samples, learner.classes)
    left_out = 0
    if novel_data is not None:
        left_out = len(novel)
        others = inputs.load_to_judge(novel_data, data_dir, learner.preparation)
        novel = inputs.choose_part(others, part).samples
    measures = learner.evaluate(known, novel)
    if report is not None:
        _write_report(
            report,
            learner,
            known,
            novel,
            measures,
            f"{model.name} on {data}" + (f" and {novel_data}" if novel_data else ""),
        )
    counts = {"known_samples": len(known), "novel_samples": len(novel), "left_out_samples": left_out}
    result = {"model": str(model), "data": data, "novel_data": novel_data, "part": chosen.name} | counts
    result |= _measured(measures) | {"report": None if report is None else str(report)}
    if as_json:
        print_json(result)
    else:
        _show(result, asked_for_part=part is not None)


def _check_report(report: Path | None) -> None:
    if report is not None and (report.is_dir() or report.suffix.lower() not in (".html", ".htm")):
        raise SettingsError(f"--report must be a file that ends in .html, got {str(report)!r}")


def _write_report(
    path: Path, learner: Learner, known: Samples, novel: Samples, measures: dict[str, Any], title: str
) -> None:
    from shels.report import detection  # noqa: PLC0415

    detection.write(
        path,
        learner=learner,
        known=known,
        novel=novel if len(novel) else None,
        measures=measures,
        title=title,
    )


def _measured(measures: dict[str, Any]) -> dict[str, Any]:
    by_class = ("per_class", "per_novel_class")
    return {
        "metrics": {name: value for name, value in measures.items() if name not in by_class},
        "per_class": measures["per_class"],
        "per_novel_class": measures.get("per_novel_class", {}),
    }


def _show(result: dict[str, Any], *, asked_for_part: bool) -> None:
    part, known, novel = result["part"], result["known_samples"], result["novel_samples"]
    part_words = "all samples" if part == "all" else f"{part} part"
    typer.echo(f"{result['data']} ({part_words}): {known} of known classes, {_novel_words(result)}")
    if part == "all" and not asked_for_part:
        typer.echo("There is no test part: if the model was trained on these samples, it looks too good.")
    console = results()
    console.print(_measure_table(result["metrics"]))
    console.print(_class_table(result))
    if not novel:
        typer.echo("Nothing novel to notice: every class here is known to the model (see --novel-data).")
    if result["report"] is not None:
        typer.echo(f"The report is in {result['report']}")


def _novel_words(result: dict[str, Any]) -> str:
    source = f" from {result['novel_data']}" if result["novel_data"] is not None else ""
    left_out = f" ({result['left_out_samples']} of other classes left out)" * bool(result["left_out_samples"])
    return f"{result['novel_samples']} novel{source}{left_out}"


def _measure_table(metrics: dict[str, float]) -> Any:
    rows = [
        (*_MEASURES[name][:1], percent(metrics[name]), _MEASURES[name][1])
        for name in _MEASURES
        if name in metrics
    ]
    return table("measure", "value", "what it is", rows=rows, numbers=["value"])


def _class_table(result: dict[str, Any]) -> Any:
    rows = [
        (name, "known", rates["samples"], percent(rates["accepted"]), percent(rates["right"]), "")
        for name, rates in result["per_class"].items()
    ]
    rows += [
        (name, "novel", rates["samples"], "", "", percent(rates["rejected"]))
        for name, rates in result["per_novel_class"].items()
    ]
    headings = ("class", "is", "samples", "accepted", "and right", "rejected")
    return table(*headings, rows=rows, numbers=headings[2:])
