"""What an agent's events came to, measured by somebody who knows the truth: the material of a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from shels.agent.agent import OpenWorldAgent, Request
from shels.agent.alarm import AlarmRule
from shels.agent.events import ACCOMMODATED, ALARM, DECLINED, DRIFT, OBSERVED, UNDECIDED, Event
from shels.agent.oracle import Truth, Truths, contents
from shels.data.samples import Label, Samples
from shels.data.streams import StreamBatch
from shels.errors import DataError
from shels.learner.learner import Learner


class Witness:
    """Who knows what every image shows; as an agent's `confirm` it agrees and remembers what was asked."""

    def __init__(self, samples: Samples) -> None:
        self.truths = Truths(samples)
        self.asked: dict[str, Tensor] = {}

    def __call__(self, request: Request) -> bool:
        """Remember the images that a request shows."""
        self.asked[request.id] = request.inputs
        return True

    def truth(self, inputs: Tensor) -> Truth:
        """Return what most of these images show."""
        return self.truths.of(inputs)


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
class Step:
    """One batch and what came of it.

    labels, novel: the true class of each image, and whether it was judged novel. known: true names of the
    classes that the agent knew. outcome: the kind of the event that an alarm ended in, "" without an alarm.
    before, after: how well all was named when the batch came, and after what was learned from it.
    """

    batch: StreamBatch
    labels: tuple[Label, ...]
    novel: Tensor
    threshold: float
    alarm: bool
    known: tuple[Label, ...]
    outcome: str
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
class Course:
    """A whole run. Figures at its end are taken on test images that the agent did not learn from.

    taught: classes known at its beginning. accuracy: closed-set over all classes met; one that was not found
    counts as wrong. right: the same of each class. accepted_and_right: the same with rejection.
    """

    taught: tuple[Label, ...]
    steps: Sequence[Step]
    learner: Learner
    rule: AlarmRule
    accuracy: float
    right: Mapping[Label, float]
    accepted_and_right: float

    @property
    def found(self) -> list[Label]:
        """The new classes that were taken in, in the order in which they were."""
        groups = [(step, group) for step in self.steps for group in step.learned]
        return list(dict.fromkeys(group.truth for step, group in groups if group.truth not in step.known))

    @property
    def missed(self) -> list[Label]:
        """The new classes that were met and not taken in."""
        met = dict.fromkeys(name for step in self.steps for name in step.labels)
        return [name for name in met if name not in self.taught and name not in self.found]

    @property
    def false_alarms(self) -> int:
        """How many alarms there were for nothing new."""
        return sum(step.false_alarm for step in self.steps)


def follow(agent: OpenWorldAgent, stream: Iterable[StreamBatch], test: Samples, witness: Witness) -> Course:
    """Follow an agent through a stream whose batches have labels; the agent learns none of them.

    test: what accuracy is measured on. witness: of these samples, and the agent's `confirm`.
    """
    taught = agent.learner.classes
    ledger = _Ledger(test, witness, list(taught), len(taught))
    steps = [_step(agent, batch, ledger) for batch in stream]
    learned_from = [] if agent.supplier else list(witness.asked.values())
    taken = {content for inputs in learned_from for content in contents(inputs)}
    unseen = torch.tensor([content not in taken for content in contents(test.inputs)])
    right, novel = ledger.judged(agent.learner)
    counted = unseen & _of(test, ledger.met)
    return Course(
        taught,
        steps,
        agent.learner,
        agent.settings.alarm,
        accuracy=_share(right[counted]),
        right={name: _share(right[unseen & _of(test, [name])]) for name in ledger.met},
        accepted_and_right=_share((right & ~novel)[counted]),
    )


@dataclass(eq=False)
class _Ledger:
    """What the measuring side knows: the test samples, who knows the truth, and what was met and named.

    met: all classes so far, the first `taught` of them known at the beginning. meant: of names that the
    agent gave, the class.
    """

    test: Samples
    witness: Witness
    met: list[Label]
    taught: int
    meant: dict[Label, Label] = field(default_factory=dict)

    def known(self, learner: Learner) -> tuple[Label, ...]:
        """Return the true names of a learner's classes."""
        return tuple(self.meant.get(name, name) for name in learner.classes)

    def judged(self, learner: Learner) -> tuple[Tensor, Tensor]:
        """Return whether each sample is given its true class, and whether it is judged novel: (n,) both."""
        verdicts = learner.judge(self.test.inputs)
        position = torch.tensor([self.test.classes.index(name) for name in self.known(learner)])
        return position[verdicts.predicted.cpu()] == self.test.labels.cpu(), verdicts.novel.cpu()

    def measure(self, learner: Learner) -> Accuracy:
        """Return how well all that was met is named."""
        right = self.judged(learner)[0]
        overall = _share(right[_of(self.test, self.met)])
        if len(self.met) == self.taught:
            return Accuracy(overall)
        return Accuracy(overall, _share(right[_of(self.test, self.met[-1:])]), self.met[-1])

    def group(self, event: Event) -> Group:
        """Return the group of images that an event is about."""
        truth = self.witness.truth(self.witness.asked[event["request"]])
        learned = (event["images"], event["seconds"]) if event.kind == ACCOMMODATED else ()
        return Group(event["name"], *truth, event["seen"], *learned)


def _step(agent: OpenWorldAgent, batch: StreamBatch, ledger: _Ledger) -> Step:
    """Return what came of a batch; what was met and named is added to the ledger."""
    if batch.labels is None:
        raise DataError(f"{batch.name}: nothing can be measured on a batch without labels")
    learner, known = agent.learner, ledger.known(agent.learner)
    ledger.met += [name for name in dict.fromkeys(batch.labels) if name not in ledger.met]
    novel = learner.judge(batch.inputs).novel.cpu()
    before = ledger.measure(learner)
    happened = list(agent.observe(batch))
    events = {event.kind: event for event in happened}
    groups = tuple(ledger.group(event) for event in happened if event.kind in (ACCOMMODATED, DECLINED))
    ledger.meant |= {group.name: group.truth for group in groups if group.learned}
    return Step(
        batch,
        batch.labels,
        novel,
        threshold=events[OBSERVED]["threshold"],
        alarm=ALARM in events,
        known=known,
        outcome=next((kind for kind in (ACCOMMODATED, DECLINED, UNDECIDED, DRIFT) if kind in events), ""),
        groups=groups,
        before=before,
        after=before if agent.learner is learner else ledger.measure(agent.learner),
    )


def _of(test: Samples, classes: Sequence[Label]) -> Tensor:
    return torch.isin(test.labels.cpu(), torch.tensor([test.classes.index(name) for name in classes]))


def _share(marks: Tensor) -> float:
    return float(marks.double().mean())
