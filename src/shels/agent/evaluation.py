"""How well an agent did on a stream, measured by somebody who knows the truth: the material of a page."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from shels.agent.agent import Happening, OpenWorldAgent, Request, passed_on
from shels.agent.alarm import AlarmRule
from shels.agent.events import ACCOMMODATED, ALARM, DECLINED, DRIFT, OBSERVED, UNDECIDED, Event
from shels.agent.oracle import Truths
from shels.data.samples import Label, Samples, fingerprints
from shels.data.streams import StreamBatch
from shels.errors import DataError
from shels.learner.learner import Learner
from shels.learning.protocol import train_alone
from shels.model.networks import Network, Views
from shels.runtime import finished
from shels.training import Fit, TrainingRequest

_DECISIONS = (ACCOMMODATED, DECLINED, UNDECIDED, DRIFT)


class RecordingOracle(Truths):
    """Knows what every image shows; as an agent's `confirm` it agrees, and keeps what it was asked about."""

    def __init__(self, samples: Samples) -> None:
        super().__init__(samples)
        self.requests: dict[str, Tensor] = {}

    def __call__(self, request: Request) -> bool:
        """Agree."""
        self.requests[request.id] = request.inputs
        return True


@dataclass(frozen=True)
class Group:
    """Images that an agent took for one new class.

    name: what the agent calls it. truth, purity: the true class of most of the images seen, and its share of
    them. seen, images: how many it saw, and from how many it learned; 0 where it did not.
    """

    name: Label
    truth: Label
    purity: float
    seen: int
    images: int = 0
    seconds: float = 0.0

    @property
    def learned(self) -> bool:
        """Whether it was taken in."""
        return self.images > 0


@dataclass(frozen=True)
class Accuracy:
    """Closed-set accuracy over all classes met so far and, where one is new, of the newest, called `name`."""

    overall: float
    newest: float | None = None
    name: Label | None = None


@dataclass(frozen=True, eq=False)
class EvaluatedBatch:
    """One batch and what the agent made of it.

    labels, novel: the true class of each image, and whether it was judged novel. known: true names of the
    classes that the agent knew. decision: the kind of the event that an alarm ended in, "" without an alarm.
    before, after: how well all was named when the batch came, and after what was learned from it.
    """

    batch: StreamBatch
    labels: tuple[Label, ...]
    novel: Tensor
    threshold: float
    alarm: bool
    known: tuple[Label, ...]
    decision: str
    groups: tuple[Group, ...]
    before: Accuracy
    after: Accuracy

    @property
    def share(self) -> float:
        """How much of the batch was judged novel."""
        return float(self.novel.double().mean())

    @property
    def new(self) -> tuple[Label, ...]:
        """The classes in it that the agent did not know."""
        return tuple(name for name in dict.fromkeys(self.labels) if name not in self.known)

    @property
    def learned(self) -> list[Group]:
        """The groups that were taken in."""
        return [group for group in self.groups if group.learned]

    @property
    def false_alarm(self) -> bool:
        """Whether there was an alarm and nothing new, or nothing but known classes was made of it."""
        right = any(group.truth not in self.known for group in self.groups) if self.groups else bool(self.new)
        return self.alarm and not right


@dataclass(frozen=True, eq=False)
class EvaluatedRun:
    """A whole run. Figures at its end are taken on test images that the agent did not learn from.

    taught: classes known at its beginning. accuracy: closed-set over all classes met; one that was not found
    counts as wrong. right: the same of each class. accepted_and_right: the same with rejection. named: what
    the learner calls each test image in the end, were nothing rejected.
    """

    taught: tuple[Label, ...]
    steps: Sequence[EvaluatedBatch]
    learner: Learner
    rule: AlarmRule
    accuracy: float
    right: Mapping[Label, float]
    accepted_and_right: float
    named: tuple[Label, ...] = ()

    @property
    def found(self) -> list[Label]:
        """The new classes that were taken in, in the order in which they were."""
        groups = [(batch, group) for batch in self.steps for group in batch.learned]
        return list(dict.fromkeys(group.truth for batch, group in groups if group.truth not in batch.known))

    @property
    def missed(self) -> list[Label]:
        """The new classes that were met and not taken in."""
        met = dict.fromkeys(name for batch in self.steps for name in batch.labels)
        return [name for name in met if name not in self.taught and name not in self.found]

    @property
    def false_alarms(self) -> int:
        """How many alarms there were for nothing new."""
        return sum(batch.false_alarm for batch in self.steps)


def evaluate_run(
    agent: OpenWorldAgent, stream: Iterable[StreamBatch], test: Samples, oracle: RecordingOracle
) -> EvaluatedRun:
    """Take an agent through a stream whose batches have labels; the agent learns none of them.

    test: what accuracy is measured on. oracle: of these samples, and the agent's `confirm`.
    """
    return finished(train_alone(evaluating(agent, stream, test, oracle)))


def evaluating(
    agent: OpenWorldAgent, stream: Iterable[StreamBatch], test: Samples, oracle: RecordingOracle
) -> Generator[TrainingRequest, Fit, EvaluatedRun]:
    """Take an agent through a stream as `evaluate_run` does, asking for the trainings that it takes.

    Test images are judged once for each learner, and pass through each network once.
    """
    taught = agent.learner.classes
    evaluation = _Evaluation(test, oracle, list(taught), len(taught))
    steps: list[EvaluatedBatch] = []
    for batch in stream:
        step = yield from evaluation.batch(agent, batch)
        steps.append(step)
    unseen = _unseen(test, [] if agent.supplier else list(oracle.requests.values()))
    right, novel, predicted = evaluation.judged(agent.learner)
    counted = unseen & evaluation.of(evaluation.met)
    return EvaluatedRun(
        taught,
        steps,
        agent.learner,
        agent.settings.alarm,
        accuracy=_share(right[counted]),
        right={name: _share(right[unseen & evaluation.of([name])]) for name in evaluation.met},
        accepted_and_right=_share((right & ~novel)[counted]),
        named=tuple(agent.learner.classes[place] for place in predicted.tolist()),
    )


def _unseen(test: Samples, learned_from: Sequence[Tensor]) -> Tensor:
    """Mark the test images that are none of those learned from: (n,)."""
    if not learned_from:
        return torch.ones(len(test), dtype=torch.bool)
    learned = {content for inputs in learned_from for content in fingerprints(inputs)}
    return torch.tensor([content not in learned for content in fingerprints(test.inputs)])


class _Judged(NamedTuple):
    """Test samples: given their true class or not, judged novel or not, the place of their class: (n,)."""

    right: Tensor
    novel: Tensor
    predicted: Tensor


@dataclass(eq=False)
class _Evaluation:
    """What was met: all classes so far, `taught` of them known at first. meant: the class of a name given.

    latest, views: what the latest learner judged, and what the latest network made of the test samples.
    """

    test: Samples
    oracle: RecordingOracle
    met: list[Label]
    taught: int
    meant: dict[Label, Label] = field(default_factory=dict)
    latest: tuple[Learner, _Judged] | None = None
    views: tuple[Network, Views] | None = None

    def batch(
        self, agent: OpenWorldAgent, batch: StreamBatch
    ) -> Generator[TrainingRequest, Fit, EvaluatedBatch]:
        if batch.labels is None:
            raise DataError(f"{batch.name}: nothing can be measured on a batch without labels")
        learner, known = agent.learner, self.known(agent.learner)
        self.met += [name for name in dict.fromkeys(batch.labels) if name not in self.met]
        novel = learner.judge(batch.inputs).novel.cpu()
        before = self.measure(learner)
        happened = yield from _events(agent.observing(batch))
        events = {event.kind: event for event in happened}
        groups = tuple(self.group(event) for event in happened if event.kind in (ACCOMMODATED, DECLINED))
        self.meant |= {group.name: group.truth for group in groups if group.learned}
        return EvaluatedBatch(
            batch,
            batch.labels,
            novel,
            threshold=events[OBSERVED]["threshold"],
            alarm=ALARM in events,
            known=known,
            decision=next((kind for kind in _DECISIONS if kind in events), ""),
            groups=groups,
            before=before,
            after=before if agent.learner is learner else self.measure(agent.learner),
        )

    def known(self, learner: Learner) -> tuple[Label, ...]:
        """Return the true names of a learner's classes."""
        return tuple(self.meant.get(name, name) for name in learner.classes)

    def of(self, classes: Sequence[Label]) -> Tensor:
        """Mark the test samples of some classes: (n,)."""
        own = torch.tensor([self.test.classes.index(name) for name in classes])
        return torch.isin(self.test.labels.cpu(), own)

    def judged(self, learner: Learner) -> _Judged:
        """Judge the test samples, once by each learner."""
        if self.latest is None or self.latest[0] is not learner:
            if self.views is None or self.views[0] is not learner.network:
                self.views = None  # they take room
                self.views = learner.network, learner.views(self.test.inputs)
            verdicts = learner.judge_features(self.views[1])
            position = torch.tensor([self.test.classes.index(name) for name in self.known(learner)])
            predicted = verdicts.predicted.cpu()
            right = position[predicted] == self.test.labels.cpu()
            self.latest = learner, _Judged(right, verdicts.novel.cpu(), predicted)
        return self.latest[1]

    def measure(self, learner: Learner) -> Accuracy:
        right = self.judged(learner).right
        overall = _share(right[self.of(self.met)])
        if len(self.met) == self.taught:
            return Accuracy(overall)
        return Accuracy(overall, _share(right[self.of(self.met[-1:])]), self.met[-1])

    def group(self, event: Event) -> Group:
        truth = self.oracle.of(self.oracle.requests[event["request"]])
        learned = (event["images"], event["seconds"]) if event.kind == ACCOMMODATED else ()
        return Group(event["name"], *truth, event["seen"], *learned)


def _events(happening: Happening) -> Generator[TrainingRequest, Fit, list[Event]]:
    """Collect the events of a batch, and pass on the trainings that it asks for."""
    out: list[Event] = []
    with closing(happening):
        now = next(happening, None)
        while now is not None:
            if isinstance(now, Event):
                out.append(now)
                now = next(happening, None)
            else:
                now = yield from passed_on(happening, now)
    return out


def _share(marks: Tensor) -> float:
    return float(marks.double().mean())
