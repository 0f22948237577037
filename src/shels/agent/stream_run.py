"""Runs over streams: a stream is opened by name, what is done is passed over, what happened is summed up."""

from __future__ import annotations

import zipfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
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
from shels.agent.oracle import data_set_supplier
from shels.agent.versioned import VersionedLearner
from shels.data import sources, streams
from shels.data.decoding import decoding
from shels.data.inputs import form, load_in_form
from shels.data.samples import DataSet, Label
from shels.data.splits import ClassSplit, divide, match_class
from shels.data.streams import StreamBatch
from shels.errors import DataError, MissingDataError, SettingsError, unknown_name
from shels.learner.learner import Learner
from shels.learner.pairing import facts
from shels.learner.refit import refit
from shels.learner.training_directory import load_learner

Found: TypeAlias = tuple[StreamBatch, list[Line] | None]
"""A batch, and its events where an earlier run has finished it."""

_SERIES = {kind.name: kind.series for kind in events.KINDS.values() if kind.series}
_FACTS = ("batch", "name", "images", "seen", "purity", "by", "version", "seconds", "reason")


@dataclass(frozen=True)
class StreamSpec:
    """Which stream is wanted; the same words give the same batches.

    >>> StreamSpec("digits", protocol="mixed", batches=12).batch_size
    500
    """

    stream: str
    protocol: str | None = None
    batch_size: int = 500
    batches: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise SettingsError(f"--batch-size must be 1 or more, got {self.batch_size}")
        if self.batches is not None and self.protocol != "mixed":
            raise SettingsError("--batches is for --protocol mixed; give both, or leave it out")


@dataclass(frozen=True, eq=False)
class OpenedStream:
    """A stream to watch; one made of a data set comes with that and with which of its classes are new."""

    spec: StreamSpec
    size: int | None
    channels: str | None
    data: DataSet | None = None
    split: ClassSplit | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """What the log keeps of it, so that a run that was cut off meets the same batches again."""
        classes = asdict(self.split) if self.split is not None else {}
        return asdict(self.spec) | {name: list(each) for name, each in classes.items()}

    def batches(self) -> Iterator[StreamBatch]:
        """Return the batches; what cannot be a stream is refused here, what a batch holds when it comes."""
        spec, size = self.spec, self.spec.batch_size
        if self.data is None or self.split is None:
            path = Path(spec.stream).expanduser()
            return streams.read_stream(path, size=self.size, channels=self.channels, batch_size=size)
        test, known, novel = self.data.test, self.split.known, self.split.novel
        if spec.protocol == "paper":
            return streams.paper_stream(test, known, novel, batch_size=size, seed=spec.seed)
        count = 3 * (len(novel) + 2) if spec.batches is None else spec.batches
        return streams.mixed_stream(test, known, novel, batches=count, batch_size=size, seed=spec.seed)


def open_stream(
    spec: StreamSpec, learner: Learner, data_dir: Path | None = None, log: Sequence[Line] = ()
) -> OpenedStream:
    """Open a stream for a learner.

    log: events of earlier runs. Where one of them had the same stream of a data set, what was new then is
    what this stream brings, though some of it is known by now.
    """
    size, channels = form(learner.preparation)
    if spec.stream not in sources.NAMED and not Path(spec.stream).expanduser().exists():
        unknown = unknown_name("data set", spec.stream, sources.NAMED)
        raise MissingDataError(f"there is no stream {spec.stream}: no folder, no .npz file, and {unknown}")
    if spec.protocol is None and not _is_data_set(spec.stream):
        return OpenedStream(spec, size, channels)
    spec = replace(spec, protocol=spec.protocol or "paper")
    data = load_in_form(spec.stream, data_dir, learner.preparation)
    split = _split(data, learner.classes)
    for event in log:
        same = event["kind"] == events.STARTED and event.items() >= asdict(spec).items()
        if same and "known" in event and "novel" in event:
            split = ClassSplit(tuple(event["known"]), tuple(event["novel"]))
    return OpenedStream(spec, size, channels, data, split)


def _is_data_set(spec: str) -> bool:
    """Return whether this is a data set with a training part, not a stream: a named set, or such an .npz."""
    if spec in sources.NAMED:
        return True
    path = Path(spec).expanduser()
    if path.suffix.lower() != ".npz" or path.is_dir():
        return False
    with decoding(path, "is not a whole .npz file", "write it again with np.savez"):
        if not zipfile.is_zipfile(path):
            return False
        with zipfile.ZipFile(path) as file:
            return "x_train.npy" in file.namelist()


def _split(data: DataSet, classes: Sequence[Label]) -> ClassSplit:
    """Return which of a data set's classes a model knows and which are new to it, as the data call them."""
    if not len(data.test):
        raise DataError(f"{data.name} has no test part to make a stream of; run it without --protocol")
    met = [name for place, name in enumerate(data.test.classes) if bool((data.test.labels == place).any())]
    known = tuple(name for name in met if match_class(name, classes) is not None)
    if len(known) < 2:
        raise DataError(
            f"{data.name} has the classes {met}, the model {list(classes)}: a stream needs two known to both"
        )
    return ClassSplit(known, tuple(name for name in met if name not in known))


@dataclass
class RunSummary:
    """What happened so far, an earlier run's part included; split: the truth, where there is one.

    never: whether a batch came that could not have raised an alarm.
    """

    split: ClassSplit | None
    batches: int = 0
    skipped: int = 0
    alarms: int = 0
    false_alarms: int = 0
    never: bool = False
    series: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {n: [] for n in _SERIES.values()})

    def add(self, batch: StreamBatch, lines: Sequence[Line]) -> None:
        """Add what happened on the next batch of the stream."""
        alarm = any(line["kind"] == events.ALARM for line in lines)
        self.batches += 1
        self.alarms += alarm
        if self.split is not None and alarm:
            known = {str(name) for name in self.split.known} | self._names()
            self.false_alarms += {str(label) for label in batch.labels or ()} <= known
        self.never |= any(line["kind"] == events.OBSERVED and line["threshold"] > 1 for line in lines)
        for line in lines:
            if line["kind"] in _SERIES:
                facts = {fact: line[fact] for fact in _FACTS if fact in line}
                self.series[_SERIES[line["kind"]]].append(facts | {"batch": batch.name})

    def result(self) -> dict[str, Any]:
        """Return it as plain data."""
        out = {"batches": self.batches, "skipped": self.skipped, "alarms": self.alarms, **self.series}
        if self.split is None:
            return out
        found = [name for name in self.split.novel if str(name) in self._names()]
        missed = [name for name in self.split.novel if name not in found]
        return out | {"found": found, "missed": missed, "false_alarms": self.false_alarms}

    def _names(self) -> set[str]:
        return {str(facts["name"]) for facts in self.series["taken_in"]}


def events_by_batch(log: Sequence[Line]) -> tuple[dict[str, list[Line]], list[Line]]:
    """Return the events of every batch that is done with, by its key, and those after the last of them.

    A batch that was cut off and taken up again has the events of both times. A class that was learned just
    before a crash is in the log without its batch, and belongs to the one that was under way.
    """
    found: dict[str, list[Line]] = {}
    pending: list[Line] = []
    for event in log:
        pending.append(event)
        if "done" in event:
            name = event.get("batch", "")
            begun = any(each.get("batch") == name for each in pending)
            found[event["done"]] = [
                each
                for each in pending
                if each.get("batch") == name or (begun and each.get("by") == "recovered")
            ]
            pending = []
    return found, pending


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
        self._start()
        done, cut_off = events_by_batch(log)
        self._cut_off = bool(cut_off)
        waiting = [each.inputs for name, each in read_buffers(self.home).items() if name.startswith(WAITING)]
        like = waiting[0] if waiting else None
        found = ((batch, done.get(batch_key(batch))) for batch in self.stream.batches())
        with closing(self._ahead(found)) as ready:
            for batch, lines in ready:
                if lines is None:
                    like = self._checked(batch, like)
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
