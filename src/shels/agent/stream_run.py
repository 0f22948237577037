"""An agent on its way through a stream: what is done is passed over, and what happened is summed up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from shels.agent.agent import OpenWorldAgent, batch_key
from shels.agent.buffers import WAITING, read_buffers
from shels.agent.events import STARTED, Event
from shels.agent.home import Home
from shels.agent.observation import AgentSettings
from shels.agent.oracle import DataSetSupplier
from shels.agent.streams import OpenedStream
from shels.agent.summary import RunSummary, events_by_batch
from shels.data.splits import divide
from shels.data.streams import StreamBatch
from shels.errors import DataError
from shels.learner.pairing import facts


class StreamRun:
    """One run of the model in a home over a stream; of a data set, its training part answers the agent.

    again: whether batches are watched again that an earlier run has finished.
    """

    def __init__(
        self,
        home: Home,
        stream: OpenedStream,
        settings: AgentSettings | None = None,
        *,
        device: str = "auto",
        again: bool = False,
    ) -> None:
        self.home = home
        self.stream = stream
        self.again = again
        self.agent = OpenWorldAgent(home.load(device), home=home, settings=settings, seed=stream.spec.seed)
        self.truth: DataSetSupplier | None = None
        if stream.data is not None:
            self.truth = DataSetSupplier(stream.data, lambda: self.agent.learner.classes)
        self.agent.supplier = self.truth
        self.summary = RunSummary(stream.split)
        self._cut_off = False

    def remaining(self) -> Iterator[StreamBatch]:
        """Give the batches that are not done yet, each to be watched by `observe` before the next."""
        log = [] if self.again else self.home.events()
        self._start()
        done, cut_off = events_by_batch(log)
        self._cut_off = bool(cut_off)
        waiting = [each.inputs for name, each in read_buffers(self.home).items() if name.startswith(WAITING)]
        like = waiting[0] if waiting else None
        for batch in self.stream.batches():
            events = done.get(batch_key(batch))
            if events is None:
                like = self._checked(batch, like)
                yield batch
            else:
                self.summary.skipped += 1
                self.summary.add(batch, events)

    def observe(self, batch: StreamBatch) -> Iterator[Event]:
        """Give the events of a batch."""
        lines: list[dict[str, Any]] = []
        for event in self.agent.observe(batch):
            lines.append({"kind": event.kind, "batch": batch.name, **event.facts})
            yield event
        if self._cut_off:  # an earlier release began this batch anew, so that only the log has all of it
            self.summary.add(batch, events_by_batch(self.home.events())[0][batch_key(batch)])
        else:
            self.summary.add(batch, lines)
        self._cut_off = False

    def result(self) -> dict[str, Any]:
        """Sum up the run as plain data; final_accuracy: closed-set over the classes known in the end."""
        learner, spec = self.agent.learner, self.stream.spec
        about = {"model": str(self.home.directory), "stream": spec.stream, "protocol": spec.protocol}
        out = about | facts(learner.settings) | self.summary.result()
        if self.stream.data is not None:
            known, _ = divide(self.stream.data.test, learner.classes)
            out["final_accuracy"] = learner.evaluate(known)["closed_set_accuracy"]
        return out | {"classes": list(learner.classes), "version": self.home.version}

    def _start(self) -> None:
        """Record that the run began; one that was cut off and goes on did already."""
        facts = {"kind": STARTED, "batch": "", **self.stream.facts}
        before = [event for event in self.home.events() if event["kind"] == STARTED]
        goes_on = bool(before) and {**before[-1], **facts} == before[-1]
        if self.again or not goes_on:
            self.home.record(facts)

    def _checked(self, batch: StreamBatch, like: Tensor | None) -> Tensor:
        """Return a batch's inputs if the model can take them, and if they can be laid beside earlier ones."""
        try:
            self.agent.learner.preparation.check(batch.inputs)
        except DataError as error:
            raise DataError(f"{batch.name}: {error}") from error
        forms = [(tuple(x.shape[1:]), str(x.dtype)) for x in (batch.inputs, like) if x is not None]
        if len(set(forms)) > 1:
            raise DataError(
                f"{batch.name} holds {forms[0]}, the batches before {forms[1]}; bring all to one form"
            )
        return batch.inputs
