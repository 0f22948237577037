"""A learner as one graph of tensor operations, from pixels to verdicts: what other programs can run.

It is traced from the code that judges, so that there is no second way to a verdict.
"""

from __future__ import annotations

import tempfile
import warnings
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from shels.data.preparation import Preparation, fitted
from shels.detection.protocol import Detector
from shels.detection.registry import DETECTORS
from shels.errors import ExportError
from shels.model.networks import Network
from shels.runtime import generator

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from shels.learner.learner import Learner


UNWRITTEN = ("openmax", "odin")
"""Detectors that cannot go into a graph: ONNX has no stable sorting, and odin needs gradients."""


class Outputs(NamedTuple):
    """What a graph answers for n inputs, by name: (n,) each, the class scores (n, classes).

    class_index: the place of the nearest class among the classes. novel: whether it is none of them.
    """

    class_index: NDArray[np.int64]
    novel: NDArray[np.bool_]
    score: NDArray[np.float32]
    threshold: NDArray[np.float32]
    p_value: NDArray[np.float32]
    class_scores: NDArray[np.float32]


class VerdictGraph(nn.Module):
    """A network with what stands before and behind it, as one module: inputs to `Outputs`."""

    def __init__(self, network: Network, preparation: Preparation, detector: Detector) -> None:
        super().__init__()
        self.network = network
        self.preparation = preparation
        self.detector = detector

    def forward(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """Judge inputs: uint8 pixels (n, channels, height, width), or vectors (n, d)."""
        views = self.network.views(self.preparation(inputs))
        found = self.detector.verdicts(views)
        numbers = (found.score, found.threshold, found.p_value, self.detector.class_scores(views))
        return (found.predicted, found.novel, *(each.float() for each in numbers))


def input_name(learner: Learner) -> str:
    """Name what goes into the graph: "pixels" or "vectors"."""
    return "pixels" if len(learner.preparation.shape) == 3 else "vectors"


def as_graph_inputs(preparation: Preparation, inputs: Tensor) -> Tensor:
    """Bring inputs to the form that a graph takes: pixels of the model's size as uint8, vectors as floats.

    >>> as_graph_inputs(Preparation((1, 2, 2)), torch.full((3, 1, 4, 4), 0.5)).unique()
    tensor([128], dtype=torch.uint8)
    """
    preparation.check(inputs)
    if len(preparation.shape) == 1:
        return inputs.float()
    unit = inputs.float() / 255 if inputs.dtype == torch.uint8 else inputs.float()
    return (fitted(unit, preparation.shape[1:], preparation.image_fit) * 255).round().to(torch.uint8)


def made_up(preparation: Preparation, count: int) -> Tensor:
    """Make inputs to try a graph with where there are none: noise of all scales and contrasts.

    >>> made_up(Preparation((1, 8, 8)), 4).shape, made_up(Preparation((5,)), 2).dtype
    (torch.Size([4, 1, 8, 8]), torch.float32)
    """
    draw = generator(0, "made up")
    if len(preparation.shape) == 1:
        rows = torch.randn(count, *preparation.shape, generator=draw) * torch.linspace(0.1, 3, count)[:, None]
        mean, sd = preparation.mean, preparation.sd
        return rows if mean is None or sd is None else rows * sd.cpu() + mean.cpu()
    channels, height, width = preparation.shape
    out = []
    for place in range(count):
        sides = [max(1, side >> (place % 5)) for side in (height, width)]
        coarse = torch.rand(1, channels, *sides, generator=draw) * (1 + place) / count
        out.append(nn.functional.interpolate(coarse, (height, width), mode="nearest"))
    return (torch.cat(out) * 255).round().to(torch.uint8)


def on_cpu(learner: Learner) -> Learner:
    """Return the learner where graphs are traced; one on a GPU is copied as saving it would."""
    if learner.device.type == "cpu":
        return learner
    with tempfile.TemporaryDirectory() as folder:
        learner.save(folder)
        return type(learner).load(folder, "cpu")


@torch.no_grad()
def traced(module: nn.Module, example: Tensor) -> ExportedProgram:
    """Trace a module for any number of inputs like these, of which two or more must be given."""
    module.eval()
    module(example)  # what is worked out once, at the first call, goes into the graph as numbers
    batch = torch.export.Dim("batch", min=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of deprecations between torch's own parts
        return torch.export.export(module, (example,), dynamic_shapes=({0: batch},), strict=False)


def program_of(learner: Learner, example: Tensor) -> ExportedProgram:
    """Trace a learner from inputs to verdicts; one that cannot be is refused with those that can."""
    module = VerdictGraph(learner.network, learner.preparation, learner.detector)
    try:
        return traced(module, example)
    except (RuntimeError, NotImplementedError, TypeError, ValueError, AssertionError) as error:
        raise refusal(learner, error) from error


def refusal(learner: Learner, error: BaseException) -> ExportError:
    """Say that a learner cannot be written as a graph, why, and which can."""
    while error.__cause__ is not None:  # the reason itself; exporters wrap it in advice to their developers
        error = error.__cause__
    why = (str(error) or type(error).__name__).strip().splitlines()[0][:200]
    others = [name for name in DETECTORS if name not in (learner.detector.name, *UNWRITTEN)]
    return ExportError(
        f"a model with learner {learner.settings.accommodation.kind} and detector {learner.detector.name} "
        f"cannot be written as a graph: {why}. Detectors that can be, on a network that torch.export can "
        f"trace: {', '.join(others)}"
    )
