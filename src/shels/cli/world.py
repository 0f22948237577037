"""Where the batches of `shels run` come from, and who is asked about what is new in them."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import typer

from shels.agent.agent import OpenWorldAgent, Request, Supply
from shels.agent.oracle import Oracle, Truths
from shels.cli.display import StreamDisplay, say
from shels.cli.inspect import write_pictures
from shels.data import sources, streams
from shels.data.inputs import form, load_in_form
from shels.data.samples import DataSet, Label
from shels.data.splits import ClassSplit, match_class, new_class
from shels.errors import DataError, MissingDataError, SettingsError, unknown_name
from shels.learner.learner import Learner


@dataclass(frozen=True)
class Asked:
    """Which stream the user asked for; the same words give the same batches."""

    stream: str
    protocol: str | None
    batch_size: int
    batches: int | None
    seed: int

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise SettingsError(f"--batch-size must be 1 or more, got {self.batch_size}")
        if self.batches is not None and self.protocol != "mixed":
            raise SettingsError("--batches is for --protocol mixed; give both, or leave it out")


@dataclass(frozen=True, eq=False)
class World:
    """A stream; one that is made of a data set comes with that and with which of its classes are new."""

    asked: Asked
    size: int | None
    channels: str | None
    data: DataSet | None = None
    split: ClassSplit | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """What the log keeps of it, so that a run that was cut off meets the same batches again."""
        classes = asdict(self.split) if self.split is not None else {}
        return asdict(self.asked) | {name: list(each) for name, each in classes.items()}

    def batches(self) -> Iterator[streams.StreamBatch]:
        """Return the batches; what cannot be a stream is refused here, what a batch holds when it comes."""
        asked = self.asked
        if self.data is None or self.split is None:
            path = Path(asked.stream).expanduser()
            return streams.read_stream(
                path, size=self.size, channels=self.channels, batch_size=asked.batch_size
            )
        known, novel = self.split.known, self.split.novel
        if asked.protocol == "paper":
            return streams.paper_stream(
                self.data.test, known, novel, batch_size=asked.batch_size, seed=asked.seed
            )
        count = 3 * (len(novel) + 2) if asked.batches is None else asked.batches
        return streams.mixed_stream(
            self.data.test, known, novel, batches=count, batch_size=asked.batch_size, seed=asked.seed
        )


def world(asked: Asked, learner: Learner, data_dir: Path | None, log: Sequence[Mapping[str, Any]]) -> World:
    """Return the stream that was asked for.

    log: events of earlier runs. Where one of them asked for the same stream of a data set, what was new then
    is what this stream brings, though some of it is known by now.
    """
    size, channels = form(learner.preparation)
    if asked.stream not in sources.NAMED and not Path(asked.stream).expanduser().exists():
        unknown = unknown_name("data set", asked.stream, sources.NAMED)
        raise MissingDataError(f"there is no stream {asked.stream}: no folder, no .npz file, and {unknown}")
    if asked.protocol is None and not _is_data_set(asked.stream):
        return World(asked, size, channels)
    asked = replace(asked, protocol=asked.protocol or "paper")
    data = load_in_form(asked.stream, data_dir, learner.preparation)
    split = _split(data, learner.classes)
    for event in log:
        if event.get("kind") == "started" and event.items() >= asdict(asked).items():
            split = ClassSplit(tuple(event["known"]), tuple(event["novel"]))
    return World(asked, size, channels, data, split)


class Supplies:
    """A supplier that knows the truth of a data set, and gives its training images of a class that is new.

    classes: gives the model's classes by now. Of a class that is known already it gives nothing.
    """

    def __init__(self, data: DataSet, classes: Callable[[], Sequence[Label]]) -> None:
        self.oracle = Oracle(Truths(data.test), data.train, classes)
        self.classes = classes

    def __call__(self, request: Request) -> Supply | None:
        """Return more of what a request is about."""
        try:
            supply = self.oracle(request)
        except DataError:  # some of it was seen in another stream
            return None
        return supply and replace(supply, name=new_class(str(supply.name), self.classes()))


class Person:
    """Whoever sits at the terminal, is shown what was found, and says whether and as what to learn it."""

    def __init__(
        self, agent: OpenWorldAgent, display: StreamDisplay, folder: Path, oracle: Supplies | None
    ) -> None:
        self.agent = agent
        self.display = display
        self.folder = folder
        self.oracle = oracle
        self._names: dict[str, Any] = {}

    def confirm(self, request: Request) -> bool:
        """Ask until there is an answer: y, n, or what it is called."""
        self.display.close()
        where = ""
        if request.inputs.ndim == 4:
            write_pictures(request.inputs, self.folder / request.name)
            where = f" (see {self.folder / request.name})"
        say(f"{len(request.inputs)} images look like one new class{where}")
        while True:
            typer.echo(
                "take it in? y, n, or its name (a known one adds to it): ", nl=False, err=True
            )  # not for standard output
            line = sys.stdin.readline()
            if not line:
                raise KeyboardInterrupt  # nobody is there to answer
            answer = line.strip()
            if answer.lower() in ("n", "no"):
                return False
            if answer.lower() in ("y", "yes") or self._takes(request, answer):
                return True

    def supply(self, request: Request) -> Supply | None:
        """Return what the oracle has, or what was seen, under the name that was given."""
        name = self._names.get(request.id)
        if name is None and self.oracle is not None:
            return self.oracle(request)
        return Supply(name=name, by="person")

    def _takes(self, request: Request, answer: str) -> bool:
        """Return whether this can be a name; if not, say why."""
        learner = self.agent.learner
        try:
            name = new_class(answer, learner.classes)
        except SettingsError as error:
            say(str(error))
            return False
        if name in learner.classes and not learner.joins:
            say(f"{name} is known already, and the model's method cannot add to it; n, or another name")
            return False
        self._names[request.id] = name
        return True


def _is_data_set(spec: str) -> bool:
    """Return whether this is a data set with a training part, not a stream: a named set, or such an .npz."""
    if spec in sources.NAMED:
        return True
    path = Path(spec).expanduser()
    if path.suffix.lower() != ".npz" or not zipfile.is_zipfile(path):
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
