"""Losses of rivals that train otherwise: written for one trial, trained through the same loop."""

from __future__ import annotations

from torch import Tensor, nn
from torch.func import functional_call

from shels.config import TrainingSettings
from shels.model.head import scaled_cosines
from shels.model.networks import Network
from shels.model.sparsity import depth_weights, exclusive_sparsity
from shels.training.batches import Batch
from shels.training.checkpoints import Params
from shels.training.losses import PADDING, cross_entropy
from shels.training.stepping import SURPLUS, Loss, State, class_scores


def exclusive_sparsity_loss(network: Network, settings: TrainingSettings, gamma: float = 1e-3) -> Loss:
    """Return the loss of Eq. (9): cross-entropy and exclusive sparsity that grows with depth.

    Y. Zhou, R. Jin, S. Hoi: Exclusive Lasso for Multi-task Feature Selection, AISTATS 2010; γ as in SHELS's
    paper, which compares with it. The settings' own α plays no role.
    """
    del settings
    names = network.weight_names()
    mu = depth_weights(len(names))

    def loss(params: Params, batch: Batch, state: State) -> Tensor:
        scores = class_scores(network, params, batch.inputs, state)
        sparsity = exclusive_sparsity([params[name] for name in names], mu)
        return cross_entropy(scores, batch.labels) + gamma * sparsity

    return loss


class _Features(nn.Module):
    """A network that stops before its head."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor) -> Tensor:
        return self.network.features(inputs)


def scaled_cosine_loss(network: Network, settings: TrainingSettings) -> Loss:
    """Return plain cross-entropy over scaled cosines, one softmax.

    E. Techapanurak, M. Suganuma, T. Okatani: Hyperparameter-Free Out-of-Distribution Detection Using Cosine
    Similarity, ACCV 2020.
    """
    del settings
    features = _Features(network)

    def loss(params: Params, batch: Batch, state: State) -> Tensor:
        body = {f"network.{name}": value for name, value in params.items()}
        head = {
            name.removeprefix("head."): value for name, value in params.items() if name.startswith("head.")
        }
        high: Tensor = functional_call(features, body, (batch.inputs,))
        scores = scaled_cosines(high, head, batch.labels != PADDING)
        return cross_entropy(scores + state[SURPLUS] if SURPLUS in state else scores, batch.labels)

    return loss
