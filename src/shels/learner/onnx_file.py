"""Graphs as ONNX files: written, described, run by onnxruntime, and with weights of eight bits."""

from __future__ import annotations

import io
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from shels.errors import MissingExtraError
from shels.learner.graph import Outputs

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_BATCH = 64
_BODY = "network.body"
"""Where a graph's names say that an operation is the network's own."""
_WEIGHTED = ("Conv", "Gemm", "MatMul")
_COUNTED = 1024
"""Values up to which those before another are counted rather than searched."""
_CALIBRATED_ON = 256
_WITHIN = 99.99
"""Per cent of activations that the range of eight bits takes in."""
_DEEP, _FIRST = 24, 3
"""Layers from which a network is deep, and how many of its first stay as they are."""


def require_packages() -> None:
    """Raise unless the packages that write and run ONNX files are here."""
    for name in ("onnx", "onnxscript", "onnxruntime"):
        try:
            import_module(name)
        except ImportError as error:
            raise MissingExtraError(name, "onnx", "exporting to ONNX") from error


def to_onnx(program: ExportedProgram, name: str, outputs: tuple[str, ...]) -> Any:
    """Translate a traced graph: an onnx.ModelProto with one input, of this name, and these outputs."""
    aten, table = torch.ops.aten, dict[Callable[..., Any], Callable[..., Any]]()
    table[aten.searchsorted.Tensor] = _searchsorted
    table[aten._cdist_forward.default] = _cdist  # noqa: SLF001
    with _quietly():
        made = torch.onnx.export(
            program,
            input_names=[name],
            output_names=list(outputs),
            custom_translation_table=table,
            verbose=False,
        )
    if made is None:
        raise RuntimeError("torch.onnx gave no graph")
    return made.model_proto


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep back what exporters say to their developers."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir", "root")]
    levels = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for each, level in zip(loggers, levels, strict=True):
            each.setLevel(level)


def _operators() -> Any:
    return import_module("onnxscript").opset18


def _searchsorted(
    ordered: Any,
    asked: Any,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    """Write torch.searchsorted along the last axis, which ONNX lacks: how many come before what is asked for.

    ordered: (..., m), asked: (..., n) -> (..., n). Few are counted, all at once; many are searched by halves.
    """
    op = _operators()
    if out_int32 or sorter is not None:
        raise NotImplementedError("searchsorted of 32 bits or with a sorter")
    most, past = int(ordered.shape[-1]), op.Greater if right or side == "right" else op.GreaterOrEqual
    if most > _COUNTED:
        return _halved(ordered, asked, most, past)
    one, last = asked.shape[-1] == 1, op.Constant(value_ints=[-1])
    if not one:
        ordered, asked = op.Unsqueeze(ordered, op.Constant(value_ints=[-2])), op.Unsqueeze(asked, last)
    return op.ReduceSum(op.Cast(op.Not(past(ordered, asked)), to=7), last, keepdims=int(one))


def _halved(ordered: Any, asked: Any, most: int, past: Any) -> Any:
    """Write a binary search, step by step. past: tells whether a value comes after what is asked for."""
    op = _operators()
    powers = [1 << place for place in reversed(range(most.bit_length()))]
    room = [0] * (2 * len(ordered.shape) - 1) + [sum(powers) - most]  # filled up, no step goes too far
    filled = op.Pad(ordered, op.Constant(value_ints=room), op.CastLike(op.Constant(value_float=inf), ordered))
    zero = op.Constant(value_int=0)
    found = op.Mul(op.Cast(op.IsNaN(asked), to=7), zero)
    for power in powers:
        value = op.GatherElements(filled, op.Add(found, op.Constant(value_int=power - 1)), axis=-1)
        found = op.Add(found, op.Where(past(value, asked), zero, op.Constant(value_int=power)))
    return op.Min(found, op.Constant(value_int=most))


def _cdist(rows: Any, others: Any, p: float = 2.0, mode: int | None = None) -> Any:
    """Write torch.cdist, which ONNX lacks: Euclidean distances (n, d), (m, d) -> (n, m)."""
    op = _operators()

    del mode  # how torch computes it
    if p != 2:
        raise NotImplementedError(f"distances of power {p:g}")
    gaps = op.Sub(op.Unsqueeze(rows, op.Constant(value_ints=[1])), others)
    return op.ReduceL2(gaps, op.Constant(value_ints=[-1]), keepdims=0)


def describe(model: Any, notes: Mapping[str, str]) -> None:
    """Put notes into a model's metadata, in place of what exporters leave there about their own code."""
    import onnx  # noqa: PLC0415

    del model.metadata_props[:]
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    del model.graph.metadata_props[:]
    model.producer_name, model.producer_version = "shels", notes["shels_version"]
    onnx.helper.set_model_props(model, dict(notes))
    onnx.checker.check_model(model)


def run(model: Any, inputs: Tensor) -> list[Any]:
    """Run a model on inputs by onnxruntime, a few at a time: an array for each of its outputs."""
    import numpy as np  # noqa: PLC0415
    import onnxruntime  # noqa: PLC0415

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    parts = [session.run(None, {name: part.numpy()}) for part in torch.split(inputs, _BATCH)]
    return [np.concatenate(each) for each in zip(*parts, strict=True)]


def judge(model: Any, inputs: Tensor) -> Outputs:
    """Run a model on inputs, and give its answers by name."""
    return Outputs(*run(model, inputs))


def body_nodes(model: Any) -> list[str]:
    """Name the operations with weights that are the network's own, not the detector's."""

    def scope(node: Any) -> str:
        return "".join(note.value for note in node.metadata_props if note.key.endswith("name_scopes"))

    return [node.name for node in model.graph.node if node.op_type in _WEIGHTED and _BODY in scope(node)]


def quantised(model: Any, nodes: list[str], examples: Tensor | None) -> Any:
    """Return a model whose network has weights of eight bits, and where examples are given activations too.

    With examples the ranges of activations are fixed by them (static), but for the far ends of their
    histograms; without, each is found as it comes (dynamic), which makes a file as small, and a slower one.
    In deep networks the first layers and the last one stay as they are: they have few weights, and what is
    lost there is lost for all that follow.
    """
    import onnx  # noqa: PLC0415
    from onnxruntime import quantization  # noqa: PLC0415

    plain = onnx.ModelProto()
    plain.CopyFrom(model)
    del plain.graph.value_info[:]  # shapes that no longer hold once layers are taken apart
    inner = nodes[_FIRST:-1] if len(nodes) > _DEEP else nodes
    chosen = {"nodes_to_quantize": inner, "op_types_to_quantize": list(_WEIGHTED)}
    with tempfile.TemporaryDirectory() as folder, _quietly():
        path = Path(folder) / "eight.onnx"
        if examples is None:
            unsigned = quantization.QuantType.QUInt8  # for which convolutions are quicker
            quantization.quantize_dynamic(plain, path, weight_type=unsigned, **chosen)
        else:
            reader = _Reader(plain.graph.input[0].name, examples[:_CALIBRATED_ON])
            ranges = {
                "activation_type": quantization.QuantType.QUInt8,
                "calibrate_method": quantization.CalibrationMethod.Percentile,
                "extra_options": {"CalibPercentile": _WITHIN},
            }
            quantization.quantize_static(plain, path, reader, per_channel=True, **ranges, **chosen)
        return onnx.load(path)


class _Reader:
    """Gives onnxruntime's calibration one batch of examples after another, all of one size.

    It puts their activations into one array; what is left over after the last whole batch is left out.
    """

    def __init__(self, name: str, examples: Tensor) -> None:
        whole = len(examples) // _BATCH * _BATCH or len(examples)
        self._batches = iter([{name: part.numpy()} for part in torch.split(examples[:whole], _BATCH)])

    def get_next(self) -> dict[str, Any] | None:
        """Give the next batch, None after the last."""
        return next(self._batches, None)
