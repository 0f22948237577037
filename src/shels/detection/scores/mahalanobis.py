"""Mahalanobis: the distance to the nearest class mean, in the spread that all classes share.

K. Lee, K. Lee, H. Lee, J. Shin: A Simple Unified Framework for Detecting Out-of-Distribution Samples and
Adversarial Attacks, NeurIPS 2018. Without its perturbation of inputs and without weights tuned on novel
samples: both need novel data. Relative to all classes as one: J. Ren, S. Fort, J. Liu, A. Guha Roy, S. Padhy,
B. Lakshminarayanan: A Simple Fix to Mahalanobis Distance for Improving Near-OOD Detection, ICML workshop on
uncertainty and robustness in deep learning 2021.
"""

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from shels.detection import shared_covariance as gaussian
from shels.detection.head import Head
from shels.detection.score import Score, Tensors, in_chunks
from shels.model.networks import Views

_LAYERS = ("shared", "high")


class Mahalanobis(Score):
    """Score: -min_c (f - μ_c)ᵀ Σ⁻¹ (f - μ_c) on the high-level features. Stores means and Σ.

    Σ = 1/n Σ_i (f_i - μ_yi)(f_i - μ_yi)ᵀ over the classes known at `fit`; later ones add their means.
    """

    name = "mahalanobis"
    remembers = gaussian.REMEMBERED
    reads_head = False

    def _fitted(self, views: Views, labels: Tensor) -> Tensors:
        return gaussian.first_classes(views.high, labels)

    def _grown(self, views: Views, grown: Head) -> Tensors:
        return gaussian.with_mean(self.state, views.high)

    def _scores(self, views: Views) -> Tensor:
        return _score(views.high, self.state, self._white)

    @cached_property
    def _white(self) -> Tensor:
        return gaussian.whitening_within(self.state)


class RelativeMahalanobis(Mahalanobis):
    """Score: -min_c (d_c - d_0) on the high-level features, so that what all samples differ in cancels out.

    d_c: squared distance to a class's mean in the spread within classes; d_0: to the mean of all samples in
    their spread. Stores what Mahalanobis does, from which the Gaussian of all samples follows exactly. Later
    classes add means and leave both spreads as they are.
    """

    name = "relative-mahalanobis"

    def _scores(self, views: Views) -> Tensor:
        centre = gaussian.centre(self.state).unsqueeze(0)
        of_all = gaussian.squared_distances(views.high, centre, self._white_overall)
        return of_all.squeeze(1) + super()._scores(views)

    @cached_property
    def _white_overall(self) -> Tensor:
        return gaussian.whitening(gaussian.overall(self.state))


class MahalanobisLayers(Score):
    """Score: the Mahalanobis scores on shared and on high-level features, each standardised, added up.

    The paper weighs layers by a regression on novel samples; here each score less its mean over its standard
    deviation, both over training samples, counts the same. Classes taken in later leave all of that, and the
    covariances, as they are.
    The paper averages feature maps over space; the shared features keep their places.
    """

    name = "mahalanobis-layers"
    remembers = (*(f"{layer}/{part}" for layer in _LAYERS for part in gaussian.REMEMBERED), "usual")
    reads_head = False
    reads_shared = True

    def _fitted(self, views: Views, labels: Tensor) -> Tensors:
        sums = [gaussian.first_classes(rows, labels) for rows in views]
        whites = [gaussian.whitening_within(each) for each in sums]
        raw = in_chunks(lambda part: _layer_scores(part, sums, whites), views)
        return _named(sums) | {"usual": torch.stack([raw.mean(dim=0), raw.std(dim=0, correction=0)])}

    def _grown(self, views: Views, grown: Head) -> Tensors:
        pairs = zip(self._sums, views, strict=True)
        return self.state | _named([gaussian.with_mean(sums, rows) for sums, rows in pairs])

    def _scores(self, views: Views) -> Tensor:
        mean, deviation = self.state["usual"].unbind()
        raw = _layer_scores(views, self._sums, self._whites)
        return ((raw - mean) / deviation.clamp(min=1e-12)).sum(dim=1)

    def _shared_width(self) -> int:
        return self.state["shared/means"].shape[1]

    @property
    def _sums(self) -> list[Tensors]:
        return [{part: self.state[f"{layer}/{part}"] for part in gaussian.REMEMBERED} for layer in _LAYERS]

    @cached_property
    def _whites(self) -> list[Tensor]:
        return [gaussian.whitening_within(sums) for sums in self._sums]


def _score(rows: Tensor, sums: Tensors, white: Tensor) -> Tensor:
    """Minus the squared distance of each row to the nearest mean: (n, d) -> (n,)."""
    return -gaussian.squared_distances(rows, gaussian.all_means(sums), white).amin(dim=1)


def _layer_scores(views: Views, sums: Sequence[Tensors], whites: Sequence[Tensor]) -> Tensor:
    """Return the score on each layer: (n, 2)."""
    layers = zip(views, sums, whites, strict=True)
    return torch.stack([_score(rows.double(), each, white) for rows, each, white in layers], dim=1)


def _named(sums: Sequence[Tensors]) -> Tensors:
    pairs = zip(_LAYERS, sums, strict=True)
    return {f"{layer}/{part}": value for layer, each in pairs for part, value in each.items()}
