"""Runs over streams: what is done is passed over, what comes next is watched, what happened is summed up."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from torch import Tensor

from shels.agent import events
from shels.agent.agent import OpenWorldAgent, Supplier, batch_key
from shels.agent.ahead import Ahead, Lookers, Threads
from shels.agent.buffers import WAITING, read_buffers
from shels.agent.corrections import require_unchanged
from shels.agent.events import Event, Line
from shels.agent.home import Home
from shels.agent.observation import AgentSettings
from shels.agent.opened_stream import OpenedStream, StreamSpec, open_stream
from shels.agent.oracle import data_set_supplier
from shels.agent.run_summary import RunSummary, events_by_batch
from shels.agent.versioned import VersionedLearner
from shels.data.splits import divide
from shels.data.streams import StreamBatch
from shels.errors import DataError
from shels.learner.pairing import facts
from shels.learner.refit import refit
from shels.learner.training_directory import load_learner

Found: TypeAlias = tuple[StreamBatch, list[Line] | None]
"""A batch, and its events where an earlier run has finished it."""


class StreamRun:
    """One run of the model in a home over a stream; of a data set, its training part answers the agent.

    again: whether batches are watched again that an earlier run has finished. refitted: whether the model
    just got another learner or detector for it. lookers: who looks at batches ahead of the agent, by default
    threads here where the stream lies on disk.
    """

    def __init__(
        self,
        home: Home,
        stream: OpenedStream,
        settings: AgentSettings | None = None,
        *,
        device: str = "auto",
        again: bool = False,
        refitted: bool = False,
        lookers: Lookers | None = None,
    ) -> None:
        self.home = home
        self.stream = stream
        self.again = again
        self.refitted = refitted
        self.agent = OpenWorldAgent(home.load(device), home=home, settings=settings, seed=stream.spec.seed)
        self.truth: Supplier | None = None
        if stream.data is not None:
            self.truth = data_set_supplier(stream.data, lambda: self.agent.learner.classes)
        self.agent.supplier = self.truth
        self.summary = RunSummary(stream.split)
        self.lookers = lookers
        self._cut_off = False

    def remaining(self) -> Iterator[StreamBatch]:
        """Give the batches that are not done yet, each to be watched by `observe` before the next."""
        log = [] if self.again else self.home.events()
        began = False
        done, cut_off = events_by_batch(log)
        self._cut_off = bool(cut_off)
        waiting = [each.inputs for name, each in read_buffers(self.home).items() if name.startswith(WAITING)]
        like = waiting[0] if waiting else None
        found = ((batch, done.get(batch_key(batch))) for batch in self.stream.batches())
        with closing(self._ahead(found)) as ready:
            for batch, lines in ready:
                if lines is None:
                    like = self._checked(batch, like)
                if not began:  # now that the first batch is known to be one
                    self._start()
                    began = True
                if lines is None:
                    yield batch
                else:
                    self.summary.skipped += 1
                    self.summary.add(batch, lines)

    def _ahead(self, found: Iterator[Found]) -> Generator[Found, None, None]:
        """Read what comes next while a batch is watched; batches drawn from a data set lie in memory."""
        if self.stream.data is not None and self.lookers is None:
            yield from found
            return
        ahead = Ahead(lambda: self.agent.learner, self.lookers or Threads())
        self.agent.look = ahead.look
        with closing(ahead.read(found)) as ready:
            yield from ready

    def observe(self, batch: StreamBatch) -> Iterator[Event]:
        """Give the events of a batch."""
        lines: list[Line] = []
        for event in self.agent.observe(batch):
            lines.append({"kind": event.kind, "batch": batch.name, **event.facts})
            yield event
        if self._cut_off:  # an earlier release began this batch anew, so that only the log has all of it
            lines = events_by_batch(self.home.events())[0][batch_key(batch)]
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
        line = {"kind": events.STARTED, "batch": "", **self.stream.facts}
        before = [event for event in self.home.events() if event["kind"] == events.STARTED]
        goes_on = bool(before) and {**before[-1], **line} == before[-1]
        if self.again or not goes_on:
            self.home.record(line)

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


@contextmanager
def opened_run(
    directory: Path,
    spec: StreamSpec,
    settings: AgentSettings,
    pair: tuple[str | None, str | None] = (None, None),
    *,
    data_dir: Path | None = None,
    device: str = "auto",
    again: bool = False,
    lookers: Lookers | None = None,
) -> Iterator[StreamRun]:
    """Give a run of the model in a directory; what cannot be a model, a pair or a stream changes nothing.

    pair: names of a learner and a detector that the model is to have.
    """
    home = Home(directory)
    home.settle()
    version = home.version if home.exists else None
    known = load_learner(directory, device)
    wanted = refit(known, *pair, spec.stream)
    stream = open_stream(spec, known, data_dir, [] if again else home.events())
    stream.batches()
    fitted = None if wanted is None else wanted.fitted(stream.data)
    with home.lock():
        if fitted is not None:
            require_unchanged(home, version)
        home.adopt()
        if fitted is not None:
            VersionedLearner(known, home).refit(fitted)
        given = partial(StreamRun, device=device, again=again, refitted=fitted is not None)
        yield given(home, stream, settings, lookers=lookers)
