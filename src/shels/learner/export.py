"""A learner in one file for other programs: written only where it judges as the learner does."""

from __future__ import annotations

import io
import json
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from shels._version import __version__
from shels.config import to_dict
from shels.detection.rules import rule_of
from shels.errors import DataError, ExportError, SettingsError, unknown_name
from shels.files import require_folder, write_whole
from shels.learner import graph, onnx_file
from shels.learner.graph import Outputs
from shels.learner.pairing import facts
from shels.model.networks import Views

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from shels.learner.learner import Learner

Format = Literal["onnx", "torch"]
SUFFIXES: dict[str, Format] = {".onnx": "onnx", ".pt2": "torch"}
NOTES = "shels.json"
"""The notes' name inside a torch.export file."""
_MOST = 1000
_MADE_UP = 200
_ROUNDING = 1e-5
"""How far features are moved to see whether a verdict holds: some ten times what roundings do."""
_DRAWS = 8
_ENOUGH = 0.95
"""Share of verdicts that eight bits should leave as they are."""
_APART = 1e-3
"""How far scores may lie apart in the median, of their size."""


@dataclass(frozen=True)
class Comparison:
    """How a file's answers compare with the learner's own on the same inputs.

    class_agreement, verdict_agreement: shares of inputs with the same class, and also the same threshold and
    verdict.
    ties: inputs on which they differ and whose verdict by the learner itself turns with the last digits of
    features. different: those on which they differ otherwise. score_difference: the median over inputs, as a
    share of the score.
    """

    inputs: int
    class_agreement: float
    verdict_agreement: float
    ties: int
    different: int
    score_difference: float


@dataclass(frozen=True)
class Exported:
    """A file that was written: what it is, and how it compares with the learner. checked_on: in words."""

    path: str
    format: Format
    precision: Literal["float32", "int8"]
    bytes: int
    checked_on: str
    comparison: Comparison
    seconds: float


def export(
    learner: Learner,
    path: str | Path,
    *,
    check: Tensor | None = None,
    int8: bool = False,
    form: Format | None = None,
) -> Exported:
    """Write a learner as one file: ONNX, or a torch.export program where `form` or the name (.pt2) says so.

    The file takes pixels (uint8, n x channels x height x width at the model's size) or vectors (float32) and
    answers with class, novel, score, threshold, p-value and class scores. It is run on `check`, inputs as
    the learner takes them, or on made-up ones, and is not written where it judges otherwise than the
    learner does. int8: the network with weights of eight bits; what that changes is measured on `check`.

    >>> from shels.learner.learner import Learner  # doctest: +SKIP
    >>> Learner.load("m").export("model.onnx").comparison.different  # doctest: +SKIP
    0
    """
    began, path = time.perf_counter(), Path(path)
    form = _form(path, form, int8=int8)
    learner = graph.on_cpu(learner)
    inputs, checked_on = _inputs(learner, check)
    program = graph.program_of(learner, inputs[:2])
    if form == "torch":
        content, comparison = _torch_file(learner, program, inputs)
    else:
        content, comparison = _onnx_file(learner, program, inputs, int8=int8, calibrated=check is not None)
    write_whole(path, content)
    precision: Literal["float32", "int8"] = "int8" if int8 else "float32"
    seconds = time.perf_counter() - began
    return Exported(str(path), form, precision, len(content), checked_on, comparison, seconds)


def _form(path: Path, wanted: str | None, *, int8: bool) -> Format:
    """Find out what to write, and refuse what cannot be before any work is done for it."""
    by_name = SUFFIXES.get(path.suffix)
    if wanted not in (None, *SUFFIXES.values()):
        raise SettingsError(unknown_name("format", wanted, SUFFIXES.values()))
    if by_name is None or wanted not in (None, by_name):
        right = " or ".join(suffix for suffix, form in SUFFIXES.items() if wanted in (None, form))
        raise SettingsError(f"the file to export to must end in {right}, got {str(path)!r}")
    if path.is_dir():
        raise SettingsError(f"{path} is a folder; name the file to write")
    require_folder(path)
    if by_name == "torch" and int8:
        raise SettingsError("int8 is for ONNX files; let the name end in .onnx, or leave int8 out")
    if by_name == "onnx":
        onnx_file.require_packages()
    return by_name


def _inputs(learner: Learner, check: Tensor | None) -> tuple[Tensor, str]:
    """Give the inputs to compare on, and say what they are."""
    if check is None:
        return graph.made_up(learner.preparation, _MADE_UP), f"{_MADE_UP} made-up inputs"
    if len(check) < 2:
        raise DataError(f"2 inputs or more are needed to check a file on, got {len(check)}")
    places = torch.linspace(0, len(check) - 1, min(_MOST, len(check))).round().long()
    inputs = graph.as_graph_inputs(learner.preparation, check[places].cpu())
    return inputs, f"{len(inputs)} of the inputs given"


def _torch_file(learner: Learner, program: ExportedProgram, inputs: Tensor) -> tuple[bytes, Comparison]:
    file = io.BytesIO()
    torch.export.save(program, file, extra_files={NOTES: json.dumps(notes(learner))})
    file.seek(0)
    module = torch.export.load(file).module()
    with torch.no_grad():
        answers = Outputs(*(each.numpy() for each in module(inputs)))
    return file.getvalue(), _required(compared(learner, inputs, answers))


def _onnx_file(
    learner: Learner, program: ExportedProgram, inputs: Tensor, *, int8: bool, calibrated: bool
) -> tuple[bytes, Comparison]:
    try:
        model = onnx_file.to_onnx(program, graph.input_name(learner), Outputs._fields)
    except Exception as error:  # an exporter's own, of many kinds
        raise graph.refusal(learner, error) from error
    nodes = onnx_file.body_nodes(model)
    comparison = _required(compared(learner, inputs, onnx_file.judge(model, inputs)))
    if int8:
        model = onnx_file.quantised(model, nodes, inputs if calibrated else None)
        comparison = compared(learner, inputs, onnx_file.judge(model, inputs))
        _warn_of_loss(comparison, calibrated=calibrated)
    onnx_file.describe(model, notes(learner, "int8" if int8 else "float32"))
    return model.SerializeToString(), comparison


def compared(learner: Learner, inputs: Tensor, answers: Outputs) -> Comparison:
    """Compare a file's answers with the learner's own."""
    views = learner.views(inputs)
    own = _verdicts(learner, views)
    same_class = own.class_index == answers.class_index
    same = same_class & (own.novel == answers.novel) & np.isclose(own.threshold, answers.threshold, rtol=1e-3)
    ties = ~same & ~_settled(learner, views, own)
    apart = np.abs(own.score - answers.score) / (1 + np.abs(own.score))
    apart = apart[np.isfinite(apart)]
    return Comparison(
        inputs=len(inputs),
        class_agreement=float(same_class.mean()),
        verdict_agreement=float(same.mean()),
        ties=int(ties.sum()),
        different=int((~same & ~ties).sum()),
        score_difference=float(np.median(apart)) if len(apart) else 0.0,
    )


def _verdicts(learner: Learner, views: Views) -> Outputs:
    found = learner.judge_features(views)
    every = (found.predicted, found.novel, found.score, found.threshold, found.p_value)
    return Outputs(*(each.cpu().numpy() for each in (*every, learner.detector.class_scores(views))))


def _settled(learner: Learner, views: Views, own: Outputs) -> Any:
    """Mark the inputs whose verdict stays when features are moved as roundings might move them: (n,)."""
    held = np.ones(len(own.novel), dtype=bool)
    draw = torch.Generator().manual_seed(0)
    for _ in range(_DRAWS):
        moved = [rows * (1 + _ROUNDING * torch.randn(rows.shape, generator=draw)) for rows in views]
        then = _verdicts(learner, Views(*moved))
        held &= (then.class_index == own.class_index) & (then.novel == own.novel)
    return held


def _required(found: Comparison) -> Comparison:
    """Refuse a file that judges otherwise than the learner it is of."""
    if found.different or found.score_difference > _APART:
        raise ExportError(
            f"the file judges otherwise than the model on {found.different} of {found.inputs} inputs, by "
            f"scores that lie {found.score_difference:.2g} of their size apart, so it was not written; "
            "please report this with the model"
        )
    return found


def _warn_of_loss(found: Comparison, *, calibrated: bool) -> None:
    """Warn where weights of eight bits change more verdicts than a threshold is worth."""
    if found.verdict_agreement < _ENOUGH:
        share = f"{100 * found.verdict_agreement:.1f} % of {found.inputs} verdicts"
        advice = "do without" if calibrated else "give inputs to find ranges on (--check), or do without"
        warnings.warn(f"with int8 {share} stay the same; {advice}", UserWarning, stacklevel=4)


def notes(learner: Learner, precision: str = "float32") -> dict[str, str]:
    """Describe a learner in a file's metadata: text by name, everything but plain words as JSON."""
    preparation, rule = learner.preparation, learner.settings.rule
    words = rule_of(rule).words(rule, learner.detector.thresholds_are_of)
    numbers = {name: getattr(preparation, name) for name in ("mean", "sd")}
    about = {
        "classes": list(learner.classes),
        "novel_label": learner.novel_label if learner.novel_label is not None else "novel",
        "thresholds": learner.detector.thresholds.tolist(),
        "rule": to_dict(learner.settings)["rule"],
        "input": _about_input(learner),
        **{name: None if value is None else value.tolist() for name, value in numbers.items()},
        "temperature": learner.temperature,
    }
    plain = {"shels_version": __version__, "rule_in_words": words, "precision": precision}
    plain |= {name: facts(learner.settings)[name] for name in ("learner", "detector", "method")}
    if licences := _licences(learner):
        plain["licence"] = licences
    return plain | {name: json.dumps(value, default=str) for name, value in about.items()}


def _about_input(learner: Learner) -> dict[str, Any]:
    shape = learner.preparation.shape
    about = {"name": graph.input_name(learner), "shape": list(shape)}
    if len(shape) == 1:
        return about | {"dtype": "float32", "layout": "NC"}
    colour = {1: "grey", 3: "RGB"}.get(shape[0], f"{shape[0]} channels")
    resize = "bilinear, as Pillow's Image.resize does"
    if learner.preparation.image_fit == "pad":
        resize = "set smaller images in the middle of a black frame"
    return about | {"dtype": "uint8", "layout": "NCHW", "colour": colour, "resize": resize}


def _licences(learner: Learner) -> str:
    """Name the licences that parts of the network came under, such as a pretrained backbone's."""
    origins: list[Any] = [getattr(each, "origin", None) for each in learner.network.modules()]
    named = [f"{each.name}: {each.licence}" for each in origins if getattr(each, "licence", "")]
    return "; ".join(dict.fromkeys(named))
