"""`shels check`: how good a model is without novel data, and which of its samples to look at."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shels.cli import options
from shels.cli.display import TrainingBar, percent, print_result, print_table, say
from shels.cli.options import option
from shels.cli.reading import FileReading

if TYPE_CHECKING:
    from shels.learner.estimates import Estimate
    from shels.learner.examination import Examination

EXAMPLES = """shels check m photos/
shels check m photos/ --report check.html
shels check m photos/ --retrain --folds 5
shels check m digits --json"""

_POINTS = (0.8, 0.9, 0.95, 0.98, 0.99)
_LINES = 8


def check(  # noqa: PLR0913 - a parameter for each option
    model: options.Model,
    data: options.Data,
    *,
    folds: Annotated[int, option("--folds", "Parts that are left out in turn.", "K")] = 5,
    validation: Annotated[
        str | None, option("--validation", "What was held out of training, if train was told.", "DATA")
    ] = None,
    retrain: Annotated[
        bool, option("--retrain", "Train K networks anew: slow, and honest about novel classes.")
    ] = False,
    most: Annotated[int, option("--most", "Samples of each kind to list.", "N", min=0)] = 100,
    likeness: options.Likeness = None,
    data_dir: options.DataDir = None,
    report: Annotated[
        Path | None, option("--report", "Write a page with pictures, too.", "FILE.html")
    ] = None,
    device: options.Device = "auto",
    strict: options.Strict = False,
    as_json: options.Json = False,
) -> None:
    """Look a model and its data over, without any novel data.

    DATA is what the model was trained on. Estimates how many known samples it
    names and accepts, and how well it tells novel ones, by leaving samples and
    classes out in turn; lists samples that it is least sure of, that are likely
    mislabelled, and that are near duplicates, within and across train and test.
    """
    from shels.cli.evaluate import check_report  # noqa: PLC0415

    check_report(report)
    from shels.data.inputs import load_validation  # noqa: PLC0415
    from shels.learner.examination import examining, load_samples  # noqa: PLC0415
    from shels.learner.training_directory import load_learner  # noqa: PLC0415

    learner = load_learner(model, device)
    held_out = None
    with FileReading(strict=strict, quiet=as_json) as files:
        samples = load_samples(data, data_dir, learner)
        if validation is not None:
            held_out = load_validation(validation, data, data_dir, samples.train, learner.classes)
    files.show_table()
    how: dict[str, Any] = {"folds": folds, "most": most, "likeness": likeness, "retrain": retrain}
    work = examining(learner, samples, validation=held_out, device=learner.device, **how)
    if not as_json:
        say("looking at the samples")
    with TrainingBar("training anew", quiet=as_json) as bar:
        found = bar.follow(work)
    if report is not None:
        from shels.report import examination  # noqa: PLC0415

        examination.write(report, found, title=f"{model.name} and {data}, looked over")
    result = {"model": str(model), "data": data, **_result(found)}
    result |= {"report": None if report is None else str(report), "files": files.result()}
    print_result(result, partial(_show, most=_LINES), as_json=as_json)


def _result(found: Examination) -> dict[str, Any]:
    from shels.learner.estimates import estimates, operating_curve  # noqa: PLC0415

    rounds = {"folds": found.folds, "left_out_classes": found.classes, "retrained": found.retrained}
    rounds["test_part"] = [found.tested] if found.tested else []
    held = sum(each.known for each in found.folds)
    return {
        "samples": found.training,
        "unseen_samples": held,
        "unseen_samples_are_certain": found.exact,
        "share": found.share,
        "estimates": {name: _plain(estimates(each)) for name, each in rounds.items() if each},
        "rounds": {
            name: [{**asdict(each), "curve": []} for each in some] for name, some in rounds.items() if some
        },
        "operating_curve": [point._asdict() for point in operating_curve(found.retrained or found.classes)],
        "likely_mislabelled": [_listed(each) for each in found.suspects],
        "least_sure": [_listed(each) for each in found.doubts],
        "duplicates": [{**_listed(each), "conflict": each.conflict} for each in found.twins],
    }


def _plain(found: dict[str, Estimate]) -> dict[str, dict[str, float]]:
    return {name: value._asdict() for name, value in found.items()}


def _listed(each: Any) -> dict[str, Any]:
    return {name: value for name, value in asdict(each).items() if name not in ("place", "places")}


_SOURCES = {
    "folds": "samples left out",
    "left_out_classes": "classes left out",
    "retrained": "left out, networks trained anew",
    "test_part": "the test part",
}
_OF_NOVEL = ("novel_accuracy", "auroc")
_MEASURES = {
    "closed_set_accuracy": "named rightly, nothing rejected",
    "acceptance": "known samples accepted",
    "novel_accuracy": "novel samples rejected",
    "auroc": "AUROC of known against novel",
}


def _show(result: dict[str, Any], most: int) -> None:
    rows = []
    for source, found in result["estimates"].items():
        for measure, words in _MEASURES.items():
            if measure in found and (source != "left_out_classes" or measure in _OF_NOVEL):
                rows.append((words, _SOURCES[source], *_figures(measure, found[measure])))
    headings = ("estimate of", "by", "value", "95 % interval", "of")
    print_table(*headings, rows=rows, numbers=headings[2:])
    if not result["unseen_samples_are_certain"]:
        typer.echo("This is not all that the model was trained on: it may have seen what is judged here.")
    if "left_out_classes" in result["estimates"] and "retrained" not in result["estimates"]:
        typer.echo("The network was trained on the classes left out: take it as a bound, or use --retrain.")
    _show_points(result)
    _show_samples(result, most)
    if result["report"] is not None:
        typer.echo(f"The report is in {result['report']}")


def _figures(measure: str, found: dict[str, Any]) -> tuple[str, str, int]:
    shown = (lambda value: f"{value:.3f}") if measure == "auroc" else percent
    if found["low"] is None:
        return shown(found["value"]), "–", found["n"]
    return shown(found["value"]), f"{shown(found['low'])} to {shown(found['high'])}", found["n"]


def _show_points(result: dict[str, Any]) -> None:
    rows = [
        (f"{point['share']:g}", percent(point["accepted"]), percent(point["rejected"]))
        for point in result["operating_curve"]
        if point["share"] in _POINTS
    ]
    if rows:
        headings = ("asked for", "known accepted", "left-out classes rejected")
        print_table(*headings, rows=rows, numbers=headings)


def _show_samples(result: dict[str, Any], most: int) -> None:
    suspects, twins = result["likely_mislabelled"], result["duplicates"]
    if suspects:
        rows = [(s["name"], s["label"], s["rather"], f"{s['p_value']:.3f}") for s in suspects[:most]]
        print_table("likely mislabelled", "label", "rather", "p-value", rows=rows, numbers=["p-value"])
    across = sum(each["across"] for each in twins)
    conflicts = sum(each["conflict"] for each in twins)
    typer.echo(
        f"{len(suspects)} likely mislabelled; {len(twins)} pairs of near duplicates, {across} of them across "
        f"train and test, {conflicts} with two labels (--json and --report list them)"
    )
