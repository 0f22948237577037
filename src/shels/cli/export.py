"""`shels export`: a model as one file that judges without shels."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, cast

from shels.cli import options
from shels.cli.display import percent, print_facts, print_result
from shels.cli.options import argument, option

EXAMPLES = """shels export m model.onnx --check photos/
shels export m small.onnx --int8 --check photos/
shels export m model.pt2"""


def export(
    model: options.Model,
    file: Annotated[Path, argument("FILE", "The file to write: .onnx, or .pt2 for torch.export.")],
    check: Annotated[
        str | None, option("--check", "Inputs to compare verdicts on: a named set, .npz or images.", "DATA")
    ] = None,
    int8: Annotated[bool, option("--int8", "The network with weights of eight bits.")] = False,
    form: Annotated[str | None, option("--format", "onnx or torch; else by the file's name.", "NAME")] = None,
    data_dir: options.DataDir = None,
    as_json: options.Json = False,
) -> None:
    """Write a model as one file for other programs.

    ONNX: pixels in; class, novel or not, score, threshold, p-value and class
    scores out. The thresholds, the classes' names and all else are in the file.
    It is run before it is kept: on the data of --check, or else on made-up
    inputs. Where it judges otherwise than the model, it is not written.
    """
    from shels.learner.assessment import inputs_to_check  # noqa: PLC0415
    from shels.learner.training_directory import load_learner  # noqa: PLC0415

    learner = load_learner(model, "cpu")
    inputs = None if check is None else inputs_to_check(learner, check, data_dir)
    made = learner.export(file, check=inputs, int8=int8, form=cast("Any", form))
    print_result({"model": str(model)} | asdict(made), _show, as_json=as_json)


def _show(result: dict[str, Any]) -> None:
    found = result["comparison"]
    shares = [percent(found[f"{name}_agreement"]) for name in ("class", "verdict")]
    ties = f" ({found['ties']} differ by rounding alone)" if found["ties"] else ""
    print_facts(
        {
            "written": f"{result['path']}, {result['bytes'] / 1e6:.1f} MB, {result['precision']}",
            "checked on": result["checked_on"],
            "verdicts": f"{shares[0]} the same class, {shares[1]} the same verdict as the model's{ties}",
            "took": f"{result['seconds']:.1f} seconds",
        }
    )
