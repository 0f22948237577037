"""Evaluation on the way: what stands behind a curve of accuracies, beside the training and apart from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from shels.errors import SettingsError
from shels.training.checkpoints import Params
from shels.training.data import Batch, Monitor, State, TrialTraining, joined_inputs, side_by_side
from shels.training.losses import class_scores, products


def right_answers(scores: Tensor, labels: Tensor, newest: Tensor) -> Tensor:
    """Count the samples that score highest on their own class, of all and of the newest class: (2,).

    >>> scores = torch.tensor([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]])
    >>> right_answers(scores, torch.tensor([1, 0, 0]), torch.tensor(1))
    tensor([2, 1])
    """
    right = scores.argmax(dim=1) == labels
    return torch.stack([right.sum(), (right & (labels == newest)).sum()])


@dataclass(frozen=True, eq=False)
class Monitoring:
    """The monitored samples of trials side by side; none where no trial has any.

    index, labels: (trials, n), filled up to the longest. newest: (trials,).
    """

    monitors: Sequence[Monitor]
    inputs: Tensor
    index: Tensor
    labels: Tensor
    newest: Tensor

    @staticmethod
    def of(trials: Sequence[TrialTraining], device: torch.device) -> Monitoring:
        """Bring the samples of all trials together."""
        monitors = [trial.monitor for trial in trials if trial.monitor is not None]
        if not monitors:
            none = torch.empty(0, device=device)
            return Monitoring((), none, none, none, none)
        if len(monitors) < len(trials):
            raise SettingsError("of trials trained together, all have a monitor or none")
        inputs, starts = joined_inputs([each.inputs for each in monitors], device)
        rows = side_by_side([each.rows for each in monitors], starts, device)
        newest = torch.tensor([each.newest for each in monitors], device=device)
        return Monitoring(monitors, inputs, *rows, newest)

    def batches(self, dtype: torch.dtype) -> Iterator[Batch]:
        """Yield all samples, prepared, a few of every trial at once: inputs (trials, n, *shape)."""
        prepare = self.monitors[0].prepare
        parts = (torch.split(each, prepare.evaluation_batch, dim=1) for each in (self.index, self.labels))
        for index, labels in zip(*parts, strict=True):
            prepared = prepare(self.inputs[index.flatten()]).to(dtype)
            yield Batch(prepared.reshape(*index.shape, *prepared.shape[1:]), labels)

    def scores(self, network: Any, params: Params, inputs: Tensor, state: State) -> Tensor:
        """Give one trial's class scores, by which it names classes: (n, classes)."""
        name = products if self.monitors[0].products else class_scores
        return name(network, params, inputs, state)
