"""ODIN: a softened maximum of the softmax, after a small step of the input towards the class it is given.

S. Liang, Y. Li, R. Srikant: Enhancing The Reliability of Out-of-distribution Image Detection in Neural
Networks, ICLR 2018. The step's size is chosen on known samples alone, as Y.-C. Hsu, Y. Shen, H. Jin, Z. Kira
propose (Generalized ODIN, CVPR 2020): the one at which held-out known samples are most familiar on average.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from shels.data.preparation import Preparation
from shels.detection.head import Head
from shels.detection.score import Score, require
from shels.model.networks import Network, Views

STEPS = (0.0, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032)
"""Sizes of the step that are tried, for inputs of 0-1."""


@dataclass(frozen=True, eq=False)
class Odin(Score):
    """Score: T · (log max_c softmax(l / T)_c + log classes), which orders samples as the maximum itself does.

    It is meant for features of inputs that `perturbed` has moved. Stores nothing.
    """

    temperature: float = 1000.0
    """T, the paper's."""

    name = "odin"
    reads_inputs = True

    def __post_init__(self) -> None:
        require(self.temperature > 0, "temperature", "over 0", self.temperature)

    def _scores(self, views: Views) -> Tensor:
        logits = self.head.logits(views.high) / self.temperature
        return self.temperature * (logits.log_softmax(dim=1).amax(dim=1) + math.log(self.head.classes))


def perturbed(network: Network, inputs: Tensor, temperature: float, step: float) -> Tensor:
    """Return prepared inputs moved by `step` in the direction that makes their likeliest class likelier."""
    if not step:
        return inputs
    moved = inputs.detach().requires_grad_()
    with torch.enable_grad():
        logits = network(moved) / temperature
        (gradient,) = torch.autograd.grad(F.cross_entropy(logits, logits.argmax(dim=1)), moved)
    return (moved - step * gradient.sign()).detach()


def moved_views(
    network: Network, inputs: Tensor, places: Tensor, prepare: Preparation, temperature: float, step: float
) -> Views:
    """Return the high-level features of perturbed inputs, the shared ones left out."""
    network.eval()
    parts = [
        network.features(perturbed(network, prepare(inputs[chunk]), temperature, step)).detach()
        for chunk in torch.split(places.to(inputs.device), prepare.evaluation_batch)
    ]
    high = torch.cat(parts)
    return Views(high[:, :0], high)


def chosen_step(
    network: Network, inputs: Tensor, places: Tensor, prepare: Preparation, steps: Sequence[float] = STEPS
) -> float:
    """Return the step at which known samples that were held out are most familiar on average.

    inputs: (m, ...), places: (n,) of the held-out samples there. No novel sample plays a role.
    """
    odin = Odin(Head.of(network.head))

    def familiar(step: float) -> float:
        views = moved_views(network, inputs, places, prepare, odin.temperature, step)
        return float(odin.scores(views).mean())

    return max(steps, key=familiar)
