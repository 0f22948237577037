"""Several scores as one, each a p-value among held-out known samples (Fisher), from one forward pass.

R. A. Fisher: Statistical Methods for Research Workers, 1932, section 21.1. Conformal p-values: V. Vovk,
A. Gammerman, G. Shafer: Algorithmic Learning in a Random World, 2005.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Self

import torch
from torch import Tensor

from shels.detection import familiarity, fusion
from shels.detection.alike import scores_as_of_new
from shels.detection.familiarity import Familiarity
from shels.detection.fusion import HeldOut, References
from shels.detection.head import Head
from shels.detection.protocol import KnownSamples, rows_of
from shels.detection.score import Score, Tensors, require
from shels.detection.single import SingleSample
from shels.kernels.replay import Replay
from shels.model.networks import Views
from shels.runtime import lone, row_parts

_ROWS = 4096


@dataclass(frozen=True, eq=False)
class Fused(Score):
    """Score: 2 Σ w log p over the scores of `familiarity.COMPONENTS`, each among its class and among all.

    Stores what those stand on, held-out scores to compare with, and the weights. Until held-out samples are
    there, training samples are compared with, to which scores are kinder than to new ones.
    """

    weighting: Literal["fisher", "learned"] = "fisher"
    """Equal weights, Fisher's rule, or such as tell known classes that are left out in turn."""
    prototypes: int = 100
    """What stands for the samples of a class where neighbours are looked for."""
    directions: int = 128
    """Main directions of features of each layer that are looked at."""

    name = "fused"
    remembers = (*familiarity.REMEMBERED, "by_class", "pooled", "weights")
    reads_head = False
    reads_shared = True
    forgets = True

    def __post_init__(self) -> None:
        require(self.weighting in ("fisher", "learned"), "weighting", "fisher or learned", self.weighting)
        require(self.prototypes >= 1, "prototypes", "1 or more", self.prototypes)
        require(self.directions >= 1, "directions", "1 or more", self.directions)

    def _fitted(self, views: Views, labels: Tensor) -> Tensors:
        model = Familiarity.fit(views, labels, self.head.weight.detach(), self.directions, self.prototypes)
        places = familiarity.even_places(labels, fusion.MOST)
        scores, named = model.scores(rows_of(views, places), labels[places]), labels[places]
        mine = [scores[named == position] for position in range(model.classes)]
        return self._state(model, References.of(mine, scores), fusion.equal_weights(scores))

    @torch.no_grad()
    def tuned(self, samples: KnownSamples, named: Tensor) -> Self:
        """Compare with held-out samples from now on, and learn weights where that is asked for."""
        found = HeldOut.of(self._model, samples, named).references()
        weights = self.state["weights"]
        if self.weighting == "learned" and self._model.classes > 2:
            size = self.state["shared/directions"].shape[1], min(self.prototypes, 50)
            made = list(fusion.folds(samples, self._model.rows, *size))
            weights = fusion.learned_weights(made) if made else weights
        return replace(self, state=self._state(self._model, found, weights))

    def _grown(self, views: Views, grown: Head) -> Tensors:
        """Add the class; what new samples of it are compared with, each half of these says by the other.

        A sample that had a say in where its class lies would look more familiar than a new one.
        """
        del grown  # most learners give the class no row; all do without, by the same means
        model = self._model.with_class(views)
        halves = torch.arange(len(views.high), device=views.high.device) % 2
        scores = [self._of_half(views, halves != half, halves == half) for half in (0, 1)]
        references = self._references.with_class(torch.cat(scores))
        return self._state(model, references, self.state["weights"])

    def _of_half(self, views: Views, given: Tensor, asked: Tensor) -> Tensor:
        if not bool(given.any()):  # a single sample
            given = asked
        model, mine = self._model.with_class(rows_of(views, given)), rows_of(views, asked)
        return model.scores(mine, mine.high.new_full((len(mine.high),), model.classes - 1, dtype=torch.long))

    @torch.no_grad()
    def without_class(self, position: int, head: Head | None = None) -> Self:
        """Forget a class: nothing of it stays, and other classes' scores are as they were."""
        model, references = self._model.without_class(position), self._references.without_class(position)
        state = self._state(model, references, self.state["weights"])
        return replace(self, head=head or self.head, state=state)

    def _scores(self, views: Views) -> Tensor:
        return self._fused(views, self._model.named(views))

    @torch.no_grad()
    def scores_as(self, views: Views, named: Tensor) -> Tensor:
        """Return the familiarity of samples with the classes that they are given to."""
        self._require_fit()
        self._check(views)
        if lone(named) and views.high.dtype == views.shared.dtype == torch.float32:
            alone = self._single(views.shared[0].numpy(), views.high[0].numpy(), int(named))
            return torch.tensor([alone])
        return torch.where(_usable(views), self._fused(views, named), -torch.inf)

    @torch.no_grad()
    def held_out_scores(self, samples: KnownSamples, named: Tensor) -> Tensor:
        """Score the samples that it was tuned by as new ones would be that are as familiar, see `alike`."""
        held, features = HeldOut.of(self._model, samples, named), samples.held_out.features

        def scored(given: Tensor, asked: Tensor, among: bool) -> Tensor:
            found = held.references(given).log_p(held.scores[asked], named[asked], among=among)
            return self._sum(found)

        scores = scores_as_of_new(scored, len(named), named.device)
        return torch.where(_usable(features), scores, -torch.inf)

    def _fused(self, views: Views, named: Tensor) -> Tensor:
        parts = zip(*(row_parts(each, _ROWS) for each in (*views, named)), strict=True)
        return torch.cat([self._replay(self._summed, *part)[0] for part in parts])

    def _summed(self, shared: Tensor, high: Tensor, named: Tensor) -> tuple[Tensor]:
        """Add up what all scores say; nothing here waits for a GPU."""
        return (self._sum(self._references.log_p(self._model.scores(Views(shared, high), named), named)),)

    def _sum(self, found: Tensor) -> Tensor:
        return 2 * (found * self.state["weights"]).sum(dim=(1, 2))

    @torch.no_grad()
    def aspects(self, views: Views, named: Tensor) -> Tensors:
        """Return p-values of samples among their classes by each score alone."""
        found = self._references.log_p(self._model.scores(views, named), named)[:, 0].exp()
        return dict(zip(familiarity.ASPECTS, found.T, strict=True))

    @cached_property
    def _replay(self) -> Replay:
        return Replay()

    @cached_property
    def _single(self) -> SingleSample:
        return SingleSample(self._model, self._references, self.state["weights"])

    @cached_property
    def _model(self) -> Familiarity:
        return Familiarity.of(self.state)

    @cached_property
    def _references(self) -> References:
        return References(self.state["by_class"], self.state["pooled"])

    def _shared_width(self) -> int:
        return len(self.state["shared/centre"])

    @staticmethod
    def _state(model: Familiarity, references: References, weights: Tensor) -> Tensors:
        held = {"by_class": references.by_class, "pooled": references.pooled, "weights": weights}
        return model.tensors() | held


def _usable(views: Views) -> Tensor:
    """Mark samples of which nothing overflowed: (n,)."""
    most = torch.stack([rows.abs().amax(dim=1) for rows in views])
    return (most < torch.inf).all(dim=0)


@dataclass(frozen=True, eq=False)
class FusedLearned(Fused):
    """The same with learned weights."""

    weighting: Literal["fisher", "learned"] = "learned"

    name = "fused-learned"
