"""Classifiers in closed form on features that the network has: one pass over a class, no gradient step."""

from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.detection import shared_covariance
from shels.detection.protocol import Naming
from shels.errors import AccommodationError
from shels.learning import protocol
from shels.learning.protocol import Accommodated, LearningMethod, Memory, NewClass, Requests
from shels.model.networks import Network, Views
from shels.runtime import row_parts


class ClosedForm(LearningMethod):
    """A classifier on frozen features: the network stays as it is, classes are statistics.

    settings: those of the method, with `kind` and `features`, the features it stands on. A subclass says how
    statistics score, and how they come about and grow unless they are counts, means and one common scatter;
    rows are features (n, d) in single precision.
    """

    stores = "statistics"
    frozen_features = True
    grows_head = False
    rows_at_once = 4096
    """How many rows to score at once: in double precision they take room."""

    def fitted(self, rows: Tensor, labels: Tensor) -> Memory:
        """Return the statistics of classes 0 to the largest label, each of which has a row."""
        return shared_covariance.sums_of(rows, labels)

    def grown(self, memory: Memory, rows: Tensor) -> Memory:
        """Return the statistics with one class more, of which these are the rows."""
        return shared_covariance.with_class(memory, rows)

    @abstractmethod
    def scorer(self, memory: Memory) -> Callable[[Tensor], Tensor]:
        """Return what gives rows (n, d) their class scores (n, classes)."""

    def without(self, memory: Memory, position: int) -> Memory:
        """Return the statistics without one class, exactly as if it had never been there."""
        raise AccommodationError(
            f'accommodation "{self.settings.kind}" cannot unlearn a class: what it keeps of all classes is '
            "one sum; roll back to the version before it"
        )

    def remember(self, network: Network, samples: Samples, prepare: Preparation) -> Memory:
        """Return the statistics of the first classes."""
        features = protocol.views_of(network, samples.inputs, prepare)
        return self.first_memory(network, samples, prepare, features)

    def first_memory(
        self, network: Network, samples: Samples, prepare: Preparation, features: Views
    ) -> Memory:
        """Return the statistics of the first classes, from their features."""
        samples.require_every_class()
        rows = self.rows(features)
        return self.fitted(rows, samples.labels.to(rows.device))

    def take_in(self, new: NewClass) -> Requests:
        """Add one class to the statistics; the network is the same."""
        inputs = new.labelled.inputs  # refuses none
        rows = self.rows(new.features or protocol.views_of(new.network, inputs, new.prepare))
        yield from ()  # no training
        return Accommodated(new.network, self.grown(new.remembered, rows), {})

    def naming(self, network: Network, memory: Memory) -> Naming:
        """Return the classifier's scores."""
        score = torch.no_grad()(self.scorer(protocol.placed(memory, network)))
        size = self.rows_at_once
        return lambda views: torch.cat([score(part) for part in row_parts(self.rows(views), size)])

    def drop(self, network: Network, memory: Memory, position: int) -> Accommodated:
        """Return the same network and the statistics without one class."""
        return Accommodated(network, self.without(protocol.placed(memory, network), position), {})

    def rows(self, views: Views) -> Tensor:
        """Return the features that it stands on: (n, d)."""
        return views.shared if self.settings.features == "shared" else views.high
