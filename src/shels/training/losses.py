"""Losses, written for one trial: what all are made of, SHELS's own, and those of rivals that train otherwise.

In a stack, `torch.vmap` gives them the trial axis; some rows are then padding: samples that a trial does not
have, classes that only another trial has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.func import functional_call

from shels.config import TrainingSettings
from shels.kernels import trial_axis
from shels.model.head import scaled_cosines
from shels.model.networks import Network
from shels.model.sparsity import depth_weights, exclusive_sparsity, group_sparsity, scaled_group_sparsity
from shels.training.checkpoints import Params
from shels.training.data import PADDING, Batch, State

Loss: TypeAlias = Callable[[Params, Batch, State], Tensor]
"""A pure function of one trial's parameters, batch and state, a scalar.

It must be one that `torch.vmap` and a CUDA graph can take: no value asked for (`.item()`, `if` on a tensor, a
mask as an index), no tensor made from Python numbers on the way.
"""
AfterStep: TypeAlias = Callable[[Params, State], Params]
"""What becomes of parameters after each step, those that change by name; the same rules hold."""

SURPLUS = "surplus"
"""In a stack's state: 0 for each of a trial's classes, -inf for rows of the head that another trial has."""

SPARSITY = "sparsity"
"""In a trial's state: α (1 - μ) of each weight layer (layers,), where it is not the settings' own."""


@dataclass(frozen=True, eq=False)
class Objective:
    """How networks are trained: by which loss, with which settings, and what follows each step."""

    loss: Loss
    settings: TrainingSettings
    after_step: AfterStep | None = None


class _Features(nn.Module):
    """A network that stops before its head."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor) -> Tensor:
        return self.network.features(inputs)


def class_scores(network: nn.Module, params: Params, inputs: Tensor, state: State) -> Tensor:
    """Return a network's class scores under these parameters; rows that are another trial's score -inf."""
    return _without_surplus(functional_call(network, params, (inputs,)), state)


def products(network: Network, params: Params, inputs: Tensor, state: State) -> Tensor:
    """Return w_c · f, by which SHELS names classes whatever the head, as `class_scores` gives the head's."""
    body = {f"network.{name}": value for name, value in params.items()}
    high: Tensor = functional_call(_Features(network), body, (inputs,))
    return _without_surplus(high @ params["head.weight"].T, state)


def _without_surplus(scores: Tensor, state: State) -> Tensor:
    return scores + state[SURPLUS] if SURPLUS in state else scores


def cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy over the samples that are there: (n, classes), (n,) -> scalar.

    >>> cross_entropy(torch.zeros(3, 4), torch.tensor([0, 3, PADDING])).exp().round()
    tensor(4.)
    """
    if trial_axis.has_kernels(scores):
        return _cross_entropy(scores, labels)
    return F.cross_entropy(scores, labels, ignore_index=PADDING)


@trial_axis.over_trials
def _cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    from shels.kernels import head  # noqa: PLC0415

    return head.cross_entropy(scores, labels)


def average(values: Tensor, labels: Tensor) -> Tensor:
    """Return the mean of values (n,) over the samples that are there.

    >>> average(torch.tensor([1.0, 3.0, 9.0]), torch.tensor([0, 1, PADDING]))
    tensor(2.)
    """
    there = labels != PADDING
    return torch.where(there, values, 0.0).sum() / there.sum()


def validation_sums(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the sum of cross-entropies and the number of right answers: (2,)."""
    loss = F.cross_entropy(scores, labels, reduction="sum", ignore_index=PADDING)
    return torch.stack([loss, (scores.argmax(dim=1) == labels).sum()])


def shels_loss(network: Network, settings: TrainingSettings) -> Loss:
    """Return the loss of Eq. (3): cross-entropy over raw cosines and group sparsity that fades with depth.

    α and μ are the settings', unless the trial's state has its own (`sparsity_state`).
    """
    mu, alpha = depth_weights(len(network.weight_names()), settings.depth_weights), settings.alpha

    def sparsity(weights: list[Tensor], state: State) -> Tensor | None:
        if SPARSITY in state:
            return scaled_group_sparsity(weights, state[SPARSITY])
        # Norms that count for nothing would cost a fifth of a step on a GPU.
        return alpha * group_sparsity(weights, mu) if alpha else None

    return _sparse_loss(network, sparsity)


def sparsity_state(network: Network, settings: TrainingSettings) -> dict[str, Tensor]:
    """Return a trial's α and μ as state, so that trials of several can be trained as one stack.

    >>> from shels.config import NetworkSettings
    >>> from shels.model.networks import build
    >>> network = build(NetworkSettings("vectors"), shape=(10,), classes=3, seed=0)
    >>> sparsity_state(network, TrainingSettings(alpha=1.0, epochs=1))
    {'sparsity': tensor([1.0000, 0.5000, 0.0000])}
    """
    like = next(network.parameters())
    mu = depth_weights(len(network.weight_names()), settings.depth_weights)
    factors = [settings.alpha * (1 - m) for m in mu]
    return {SPARSITY: torch.tensor(factors, dtype=like.dtype, device=like.device)}


def _sparse_loss(network: Network, sparsity: Callable[[list[Tensor], State], Tensor | None]) -> Loss:
    names = network.weight_names()

    def loss(params: Params, batch: Batch, state: State) -> Tensor:
        # Made before the scores: where a loss has a third term, gradients are added up in that order.
        term = sparsity([params[name] for name in names], state)
        value = cross_entropy(class_scores(network, params, batch.inputs, state), batch.labels)
        return value if term is None else value + term

    return loss


def exclusive_sparsity_loss(network: Network, settings: TrainingSettings, gamma: float = 1e-3) -> Loss:
    """Return the loss of Eq. (9): cross-entropy and exclusive sparsity that grows with depth.

    Y. Zhou, R. Jin, S. Hoi: Exclusive Lasso for Multi-task Feature Selection, AISTATS 2010; γ as in SHELS's
    paper, which compares with it. The settings' own α plays no role.
    """
    del settings
    mu = depth_weights(len(network.weight_names()))
    return _sparse_loss(network, lambda weights, _: gamma * exclusive_sparsity(weights, mu))


def scaled_cosine_loss(network: Network, settings: TrainingSettings) -> Loss:
    """Return plain cross-entropy over scaled cosines, one softmax.

    E. Techapanurak, M. Suganuma, T. Okatani: Hyperparameter-Free Out-of-Distribution Detection Using Cosine
    Similarity, ACCV 2020.
    """
    del settings
    return _scaled_cosine_loss(network, lambda scores: scores)


def softmax_twice_loss(network: Network, settings: TrainingSettings) -> Loss:
    """Return cross-entropy over the softmax of scaled cosines, so that there are two.

    As the code of SHELS's authors trains this rival: probabilities, at most 1 apart, are taken for scores.
    """
    del settings
    return _scaled_cosine_loss(network, lambda scores: scores.softmax(dim=1))


def _scaled_cosine_loss(network: Network, seen: Callable[[Tensor], Tensor]) -> Loss:
    """seen: what cross-entropy is shown of the scaled cosines (n, classes)."""
    features = _Features(network)

    def loss(params: Params, batch: Batch, state: State) -> Tensor:
        body = {f"network.{name}": value for name, value in params.items()}
        head = {name[5:]: value for name, value in params.items() if name.startswith("head.")}
        high: Tensor = functional_call(features, body, (batch.inputs,))
        scores = scaled_cosines(high, head, batch.labels != PADDING)
        scores = seen(_without_surplus(scores, state))
        return cross_entropy(_without_surplus(scores, state), batch.labels)

    return loss
