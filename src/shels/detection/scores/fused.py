"""Several scores as one, each a p-value among held-out known samples (Fisher), from one forward pass.

R. A. Fisher: Statistical Methods for Research Workers, 1932, section 21.1. Conformal p-values: V. Vovk,
A. Gammerman, G. Shafer: Algorithmic Learning in a Random World, 2005.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self

import torch
from torch import Tensor

from shels.detection import familiarity, fusion
from shels.detection.alike import scores_as_of_new
from shels.detection.calibration import cross_fitted
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
_FOLDS = 10


@dataclass(frozen=True, eq=False)
class Fused(Score):
    """Score: 2 Σ w log p over the scores of `familiarity.COMPONENTS`, each among its class and among all.

    Stores what those stand on, held-out scores to compare with, and the weights of each class. Until held-out
    samples are there, training samples are compared with, to which scores are kinder than to new ones. Of a
    class that comes later some of the scores count, those that know it, among its own samples alone; these
    are judged by each other.
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
    cross_fits = True

    def __post_init__(self) -> None:
        require(self.weighting in ("fisher", "learned"), "weighting", "fisher or learned", self.weighting)
        require(self.prototypes >= 1, "prototypes", "1 or more", self.prototypes)
        require(self.directions >= 1, "directions", "1 or more", self.directions)

    def _fitted(self, views: Views, labels: Tensor) -> Tensors:
        model = Familiarity.fit(views, labels, self.head.weight.detach(), self.directions, self.prototypes)
        places = familiarity.even_places(labels, fusion.MOST)
        scores, named = model.scores(rows_of(views, places), labels[places]), labels[places]
        mine = [scores[named == position] for position in range(model.classes)]
        weights = fusion.equal_weights(scores).repeat(model.classes, 1, 1)
        return self._state(model, References.of(mine, scores), weights)

    @torch.no_grad()
    def tuned(self, samples: KnownSamples, named: Tensor) -> Self:
        """Compare with held-out samples from now on, and learn weights where that is asked for."""
        found = HeldOut.of(self._model, samples, named).references()
        weights = self.state["weights"]
        if self.weighting == "learned" and self._model.classes > 2:
            size = self.state["shared/directions"].shape[1], min(self.prototypes, 50)
            made = list(fusion.folds(samples, self._model.rows, *size))
            weights = fusion.learned_weights(made).repeat(len(weights), 1, 1) if made else weights
        return replace(self, state=self._state(self._model, found, weights))

    def _grown(self, views: Views, grown: Head) -> Tensors:
        del grown  # most learners give the class no row; all do without, by the same means
        return self._with_class(views, self._left_out(views, None))

    def _with_class(self, views: Views, left_out: Tensor) -> Tensors:
        later = fusion.weights_of_later(self.state["weights"][0])
        weights = torch.cat([self.state["weights"], later[None]])
        return self._state(self._model.with_class(views), self._references.with_class(left_out), weights)

    @torch.no_grad()
    def add_class_by_folds(
        self, views: Views, groups: Tensor | None = None, head: Head | None = None
    ) -> tuple[Self, Tensor]:
        """Add a class, and score its samples as new ones would be, see `Score.add_class_by_folds`."""
        self._require_fit()
        self._check(views, fresh=True)
        left_out = self._left_out(views, groups)
        made = replace(self, head=self._grown_head(head), state=self._with_class(views, left_out))
        few, weights = len(left_out) < fusion.FEW, made.state["weights"][-1:]

        def scored(given: Tensor, asked: Tensor, among: bool) -> Tensor:
            compared = self._references.with_class(left_out[given], few=few)
            place = torch.full((int(asked.sum()),), len(compared.by_class) - 1, device=left_out.device)
            return _sum(compared.log_p(left_out[asked], place, among=among and not few), weights)

        return made, scores_as_of_new(scored, len(left_out), left_out.device)

    def _left_out(self, views: Views, groups: Tensor | None) -> Tensor:
        """Score samples of a new class by all that the class is without a tenth of them, (n, scores).

        A sample that had a say in where its class lies would look more familiar than a new one; so would one
        of the same group. A single sample has no other.
        """
        n, device = len(views.high), views.high.device
        own = torch.arange(n)
        places = own if groups is None else torch.unique(groups, return_inverse=True)[1]
        folds = (places if bool(places.any()) else own).to(device) % _FOLDS

        def scored(rest: Tensor, mine: Tensor) -> Tensor:
            model, asked = self._model.with_class(rows_of(views, rest)), rows_of(views, mine)
            place = torch.full((len(asked.high),), model.classes - 1, device=device)
            return model.scores(asked, place)

        return cross_fitted(folds, scored)

    @torch.no_grad()
    def without_class(self, position: int, head: Head | None = None) -> Self:
        """Forget a class: nothing of it stays, and other classes' scores are as they were."""
        model, references = self._model.without_class(position), self._references.without_class(position)
        stays = torch.arange(len(self.state["weights"]), device=self.state["weights"].device) != position
        state = self._state(model, references, self.state["weights"][stays])
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
            return _sum(found, self.state["weights"][named[asked]])

        scores = scores_as_of_new(scored, len(named), named.device)
        return torch.where(_usable(features), scores, -torch.inf)

    def _fused(self, views: Views, named: Tensor) -> Tensor:
        parts = zip(*(row_parts(each, _ROWS) for each in (*views, named)), strict=True)
        return torch.cat([self._replay(self._summed, *part)[0] for part in parts])

    def _summed(self, shared: Tensor, high: Tensor, named: Tensor) -> tuple[Tensor]:
        """Add up what all scores say; nothing here waits for a GPU."""
        found = self._references.log_p(self._model.scores(Views(shared, high), named), named)
        return (_sum(found, self.state["weights"][named]),)

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

    @classmethod
    def from_tensors(cls, head: Head, tensors: Mapping[str, Tensor], **settings: Any) -> Self:
        """Return the score that `tensors` came from; models once had the same weights for all classes."""
        weights = tensors.get("weights")
        if weights is not None and weights.ndim == 2 and "rows" in tensors:
            tensors = {**tensors, "weights": weights.repeat(len(tensors["rows"]), 1, 1)}
        return super().from_tensors(head, tensors, **settings)


def _sum(found: Tensor, weights: Tensor) -> Tensor:
    """Add up logarithms of p-values (n, 2, scores), by their weights: (n,)."""
    return 2 * (found * weights).sum(dim=(1, 2))


def _usable(views: Views) -> Tensor:
    """Mark samples of which nothing overflowed: (n,)."""
    most = torch.stack([rows.abs().amax(dim=1) for rows in views])
    return (most < torch.inf).all(dim=0)


@dataclass(frozen=True, eq=False)
class FusedLearned(Fused):
    """The same with learned weights."""

    weighting: Literal["fisher", "learned"] = "learned"

    name = "fused-learned"
