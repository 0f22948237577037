"""Streams that a model is to watch, opened by name: a folder, a file, or batches drawn from a data set."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from shels.agent import events
from shels.agent.events import Line
from shels.data import sources, streams
from shels.data.decoding import decoding
from shels.data.inputs import form, load_in_form
from shels.data.samples import DataSet, Label
from shels.data.splits import ClassSplit, match_class
from shels.data.streams import StreamBatch
from shels.errors import DataError, MissingDataError, SettingsError, unknown_name
from shels.learner.learner import Learner


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
