"""The open-world agent (the paper's Figure 4): detect, accommodate what is new, go on detecting.

It watches batches. Where more of one is judged novel than chance explains, it works out what new classes
there are, asks for more images of each, takes them in and goes on. Every step is an `Event`, given once;
with a home on disk each is in its log before the next begins.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from shels import runtime
from shels.agent import alarm
from shels.agent.curation import Curator
from shels.agent.home import Home
from shels.agent.proposals import Proposal, ProposalSettings, propose
from shels.data.samples import Label
from shels.data.streams import StreamBatch
from shels.detection.rules import designed_rejection
from shels.errors import AccommodationError, DataError, SettingsError, TrainingError
from shels.learner.changes import LEAST_IMAGES
from shels.learner.learner import Learner
from shels.training.courses import Progress
from shels.training.tasks import following

OBSERVED, ALARM, DRIFT, UNDECIDED = "observed", "alarm", "drift", "undecided"
ACCOMMODATING, ACCOMMODATED, DECLINED, RESUMED = "accommodating", "accommodated", "declined", "resumed"


@dataclass(frozen=True)
class Event:
    """One thing that happened, with the batch that it happened on and plain facts about it."""

    kind: str
    batch: str
    facts: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.facts[name]


@dataclass(frozen=True, eq=False)
class Request:
    """What the agent asks about: images that look like one new class.

    id: the same whenever the same question is asked again. name: provisional. inputs: the images seen.
    """

    id: str
    name: str
    inputs: Tensor
    purity: float


@dataclass(frozen=True, eq=False)
class Supply:
    """The answer to a request.

    inputs: images to learn the class from; None to learn from those that were seen. name: what it is called,
    None to leave it at the provisional name; a known class's name says that it is that one. by: who says so.
    """

    inputs: Tensor | None = None
    name: Label | None = None
    by: str = "supplier"


Supplier = Callable[[Request], Supply | None]
"""Gives more of what was seen, or None for nothing; asked twice, it answers twice and harms nothing."""
Confirm = Callable[[Request], bool]


@dataclass(frozen=True)
class AgentSettings:
    """When an agent switches to learning, and what it makes of what it saw."""

    alarm: alarm.AlarmRule = field(default_factory=alarm.FalseAlarmRate)
    proposals: ProposalSettings = field(default_factory=ProposalSettings)


@dataclass(frozen=True, eq=False)
class Observation:
    """What a learner makes of a batch as a whole; share: how much of it is judged novel."""

    novel: Tensor
    share: float
    alarm_count: int
    predicted: Tensor

    @property
    def alarm(self) -> bool:
        """Whether more is novel than chance explains."""
        return int(self.novel.sum()) >= self.alarm_count


def observe(learner: Learner, inputs: Tensor, rule: alarm.AlarmRule) -> Observation:
    """Return what a learner makes of a batch as a whole."""
    verdicts = learner.judge(inputs)
    novel, judged = verdicts.novel.cpu(), int(learner.report["held_out_samples"])
    count = alarm.alarm_count(rule, len(inputs), false_alarms(learner), judged)
    return Observation(novel, float(novel.double().mean()), count, verdicts.predicted.cpu())


def false_alarms(learner: Learner) -> int:
    """Return how many of the held-out samples count as called novel by mistake.

    As many as were, by thresholds set without them, but no fewer than the rule rejects by design: few samples
    can come out well by luck.
    """
    judged, rule = int(learner.report["held_out_samples"]), learner.settings.rule
    measured = (1 - float(learner.report["held_out_acceptance"])) * judged
    return round(max(measured, designed_rejection(rule) * judged))


def observed(learner: Learner, inputs: Tensor, settings: AgentSettings | None = None) -> dict[str, Any]:
    """Return the same for people: marks, share, alarm, the share that raises one, and proposed groups."""
    settings = settings or AgentSettings()
    seen = observe(learner, inputs, settings.alarm)
    groups = torch.full((len(inputs),), -1)
    out: dict[str, Any] = {"drift": None}
    if seen.alarm:
        proposal = propose(learner, inputs[seen.novel], settings.proposals)
        groups[seen.novel] = proposal.groups
        out["drift"] = proposal.drift.reason if proposal.drift else None
    return out | {
        "novel": seen.novel.numpy(),
        "share": seen.share,
        "alarm": seen.alarm,
        "threshold": seen.alarm_count / len(inputs),
        "groups": groups.numpy(),
    }


class OpenWorldAgent:
    """A learner that lives among batches: `run` gives its events, `learner` is what it knows by now.

    supplier: whom it asks for more of what it saw; without one it learns from what it saw. confirm: asked
    before each class is taken in. home: where its state survives; without one it lives in memory alone.
    """

    def __init__(
        self,
        learner: Learner,
        *,
        home: Home | None = None,
        settings: AgentSettings | None = None,
        supplier: Supplier | None = None,
        confirm: Confirm | None = None,
        seed: int = 0,
    ) -> None:
        self.curator = Curator(learner, home)
        self.settings = settings or AgentSettings()
        self.supplier = supplier
        self.confirm = confirm
        self.seed = seed

    @property
    def learner(self) -> Learner:
        """What is known by now."""
        return self.curator.learner

    def run(self, stream: Iterable[StreamBatch]) -> Iterator[Event]:
        """Give the events of a stream; batches that the home's log has already are passed over."""
        done = self.curator.finished_batches()
        for batch in stream:
            if batch_key(batch) not in done:
                yield from self.observe(batch)

    def observe(self, batch: StreamBatch) -> Iterator[Event]:
        """Give the events of one batch: what it looks like and, where it is new, how it was taken in."""
        seen = observe(self.learner, batch.inputs, self.settings.alarm)
        size = len(batch.inputs)
        facts: dict[str, Any] = {"size": size, "novel": int(seen.novel.sum()), "share": seen.share}
        facts |= {"threshold": seen.alarm_count / size, "alarm": seen.alarm}
        if not seen.alarm:
            self.curator.release(
                batch_key(batch)
            )  # what an interrupted run kept of it before it was taken in
            yield self._tell(OBSERVED, batch, facts, done=True)
            return
        yield self._tell(OBSERVED, batch, facts)
        self.curator.keep(batch_key(batch), batch.inputs[seen.novel])
        yield self._tell(ALARM, batch, {"share": seen.share, "threshold": facts["threshold"]})
        yield from self._take_in(batch)
        yield self._tell(RESUMED, batch, {"classes": list(self.learner.classes)}, done=True)

    def _take_in(self, batch: StreamBatch) -> Iterator[Event]:
        """Give the events of working out what is new, and of learning it."""
        kept = self.curator.kept()
        inputs = kept[self.learner.judge(kept).novel.cpu()]  # some may have been learned meanwhile
        seed = runtime.derived_seed(self.seed, "propose", batch.name)
        proposal = propose(self.learner, inputs, self.settings.proposals, seed)
        if proposal.drift is not None:
            self.curator.release()
            yield self._tell(DRIFT, batch, {"reason": proposal.drift.reason, "images": len(inputs)})
            return
        if not proposal.count:
            why = "no group of images is one class"
            yield self._tell(UNDECIDED, batch, {"images": len(inputs), "reason": why})
            return
        for request in self._requests(batch, inputs, proposal):
            yield from self._answer(batch, request)
        self.curator.release()

    def _requests(self, batch: StreamBatch, inputs: Tensor, proposal: Proposal) -> list[Request]:
        first = self.curator.reserve(proposal.count)
        groups = [inputs[proposal.groups == group] for group in range(proposal.count)]
        return [
            Request(
                f"{batch.name}:{_digest(images)}", f"novel-{first + group}", images, proposal.purity[group]
            )
            for group, images in enumerate(groups)
        ]

    def _answer(self, batch: StreamBatch, request: Request) -> Iterator[Event]:
        """Give the events of one proposed class: declined, or learned."""
        facts: dict[str, Any] = {"request": request.id, "seen": len(request.inputs), "purity": request.purity}
        supply = None
        if self.confirm is not None and not self.confirm(request):
            yield self._tell(DECLINED, batch, facts | {"name": request.name, "reason": "not confirmed"})
            return
        if self.supplier is not None:
            supply = self.supplier(request)
            if supply is None:
                facts |= {"name": request.name, "reason": "nothing supplied"}
                yield self._tell(DECLINED, batch, facts)
                return
        supply = supply or Supply(by="agent")
        inputs = request.inputs if supply.inputs is None else supply.inputs
        name = request.name if supply.name is None else supply.name
        facts |= {"name": name if _is_name(name) else repr(name), "images": len(inputs), "by": supply.by}
        refusal = self._refusal(inputs, name)
        if refusal:
            yield self._tell(DECLINED, batch, facts | {"reason": refusal})
            return
        yield self._tell(ACCOMMODATING, batch, facts | {"step": 0, "steps": 0})
        seed = runtime.derived_seed(self.seed, "accommodate", request.id)
        work = partial(self.curator.take_in, request.name, name, inputs, seed, batch=batch.name, facts=facts)
        progress: Iterator[Progress] = following(work)
        try:
            for now in progress:
                if now.stage == "training":
                    yield self._progress(batch, facts, now)
        except (DataError, SettingsError, AccommodationError, TrainingError) as error:
            yield self._tell(DECLINED, batch, facts | {"reason": str(error)})
            return
        facts |= {"version": self.curator.version, "seconds": self.learner.report["taken_in"][-1]["seconds"]}
        yield Event(ACCOMMODATED, batch.name, facts)  # the curator has logged it

    def _refusal(self, inputs: Tensor, name: Label) -> str:
        """Return why a class cannot be taken in under a name, or nothing."""
        if len(inputs) < LEAST_IMAGES:
            return f"under {LEAST_IMAGES} images"
        if not _is_name(name):
            return "a class must be named by text or a number"
        joins = self.learner.joins
        if name in self.learner.classes and not joins:
            return f"it is said to be the known class {name!r}, to which this method cannot add"
        return ""

    def _progress(self, batch: StreamBatch, facts: dict[str, Any], now: Progress) -> Event:
        return Event(ACCOMMODATING, batch.name, facts | {"step": now.step, "steps": now.steps})

    def _tell(self, kind: str, batch: StreamBatch, facts: dict[str, Any], *, done: bool = False) -> Event:
        """Return an event that is in the log."""
        self.curator.record(kind, batch.name, facts | ({"done": batch_key(batch)} if done else {}))
        return Event(kind, batch.name, facts)


def _is_name(name: object) -> bool:
    """Tell whether a class can be called so and be written down: text or a number."""
    return isinstance(name, str | int | float | bool) and name == name  # noqa: PLR0124 - false of NaN alone


def batch_key(batch: StreamBatch) -> str:
    """Return a batch's name with a digest of its content: other images of that name are another batch."""
    return f"{batch.name}:{_digest(batch.inputs)}"


def _digest(inputs: Tensor) -> str:
    return hashlib.blake2b(inputs.cpu().contiguous().numpy().tobytes(), digest_size=6).hexdigest()
