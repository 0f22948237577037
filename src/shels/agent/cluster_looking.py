"""Batches looked at on a Ray cluster, ahead of an agent that decides here."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from torch import Tensor

from shels.cluster import Cluster
from shels.data.streams import StreamBatch
from shels.errors import ClusterError
from shels.learner.cluster_judging import learner_of, model_files, own_error
from shels.learner.learner import Learner
from shels.model.networks import Network, Views


class _Looker:
    """A process with the model of the moment, on a GPU or a CPU of its own."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._number = 0

    def views(self, number: int, sent: Sequence[Any], inputs: Tensor) -> Views:
        """Take a batch through the network of the model of this number, which is fetched where it is new."""
        import ray  # noqa: PLC0415

        if number != self._number:
            self._learner = learner_of(ray.get(sent[0]), self._device)
            self._number = number
        return Views(*(view.cpu() for view in self._learner.views(inputs)))


class ClusterLookers:
    """An actor for each GPU of a cluster, or each CPU where it has none; the model is sent to them."""

    def __init__(self, cluster: Cluster) -> None:
        ray, nodes = cluster.ray, cluster.workers()
        gpus = int(sum(node.gpus for node in nodes))
        self.count = gpus or int(sum(node.cpus for node in nodes))
        if not self.count:
            raise ClusterError("the cluster lends no CPU to work; add a node to it")
        looker = ray.remote(_Looker).options(
            num_cpus=0 if gpus else 1, num_gpus=1 if gpus else 0, max_restarts=-1, max_task_retries=-1
        )
        self._ray = ray
        self._actors = [looker.remote("cuda" if gpus else "cpu") for _ in range(self.count)]
        self._turn = cycle(self._actors)
        self._network: Network | None = None
        self._model: Any = None
        self._number = 0

    def submit(self, learner: Learner, batch: StreamBatch) -> Callable[[], Views]:
        """Have a batch looked at; where the cluster fails, the answer is made here."""
        if learner.network is not self._network:
            self._send(learner)
        asked = next(self._turn).views.remote(self._number, [self._model], batch.inputs.cpu())

        def answer() -> Views:
            try:
                views: Views = self._ray.get(asked)
            except self._ray.exceptions.RayTaskError as error:
                raise own_error(error) from error
            except self._ray.exceptions.RayError:  # an actor or a node was lost
                return learner.views(batch.inputs)
            return Views(*(view.to(learner.device) for view in views))

        return answer

    def close(self) -> None:
        """Let the actors go, and what they still had to look at."""
        for actor in self._actors:
            self._ray.kill(actor)

    def _send(self, learner: Learner) -> None:
        with tempfile.TemporaryDirectory(prefix="shels-") as folder:
            learner.save(folder)
            self._model = self._ray.put(model_files(Path(folder)))
        self._network = learner.network
        self._number += 1
