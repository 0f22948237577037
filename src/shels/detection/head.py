"""The network's last layer, as a score sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from shels.errors import ArchitectureError
from shels.model.head import CosineHead, LinearHead, unit


@dataclass(frozen=True, eq=False)
class Head:
    """A linear map from features to class scores: w·f + b, or the cosine of w and f.

    weight: (classes, d). bias: (classes,) or None. Cosines are the linear map of features and weights
    of length 1; scores that reason about the map's geometry (ViM, fDBD) take them so. scale: what class
    scores are multiplied by, where the network's are.
    """

    weight: Tensor
    bias: Tensor | None
    cosine: bool
    scale: float = 1.0

    def __post_init__(self) -> None:
        if self.weight.ndim != 2 or not len(self.weight):
            raise ArchitectureError(
                f"a head's weight must be (classes, d), got shape {tuple(self.weight.shape)}"
            )
        if self.bias is not None and (self.cosine or self.bias.shape != self.weight.shape[:1]):
            rule = "None with cosines" if self.cosine else f"({self.classes},)"
            raise ArchitectureError(f"a head's bias must be {rule}, got shape {tuple(self.bias.shape)}")

    @classmethod
    def of(cls, layer: CosineHead | LinearHead) -> Self:
        """Return a network's last layer as scores see it; it no longer follows the training."""
        cosine = isinstance(layer, CosineHead)
        bias = None if isinstance(layer, CosineHead) else layer.bias.detach().clone()
        scale = layer.scale_now() if isinstance(layer, CosineHead) else 1.0
        return cls(layer.weight.detach().clone(), bias, cosine, scale)

    @property
    def classes(self) -> int:
        """How many classes it has a row for."""
        return len(self.weight)

    @property
    def width(self) -> int:
        """How many features it sees, d."""
        return self.weight.shape[1]

    def first(self, count: int) -> Head:
        """Return the head of the first classes alone."""
        bias = None if self.bias is None else self.bias[:count]
        return Head(self.weight[:count], bias, self.cosine, self.scale)

    def rows(self, high: Tensor) -> Tensor:
        """Return what the linear map is applied to: the features, of length 1 with cosines, (n, d)."""
        return unit(high) if self.cosine else high

    def matrix(self, like: Tensor) -> Tensor:
        """Return the linear map's weights, of length 1 with cosines, in the precision of `like`."""
        weight = self.weight.to(like.dtype)
        return unit(weight) if self.cosine else weight

    def offsets(self, like: Tensor) -> Tensor:
        """Return what the linear map adds, zeros with cosines: (classes,)."""
        none = like.new_zeros(self.classes)
        return none if self.bias is None else self.bias.to(like.dtype)

    def logits(self, high: Tensor) -> Tensor:
        """Return the class scores of features: (n, d) -> (n, classes)."""
        scores = F.linear(self.rows(high), self.matrix(high), self.offsets(high))
        return scores if self.scale == 1 else self.scale * scores
