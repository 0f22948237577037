"""The open-world agent (the paper's Figure 4): detect, accommodate what is new, go on detecting.

It watches batches. Where more of one is judged novel than chance explains, it works out what new classes
there are, asks for more images of each, learns them and goes on. Every step is an `Event`, given once; with
a home on disk each is in its log before the next begins, and what was decided about a batch outlasts a stop.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from torch import Tensor

from shels import runtime
from shels.agent import events
from shels.agent.events import Event
from shels.agent.home import Home
from shels.agent.journal import Journal, Plan, ProposedClass, damaged_plan
from shels.agent.observation import AgentSettings, Proposal, observe, propose
from shels.agent.versioned import VersionedLearner
from shels.data.samples import Label, fingerprints
from shels.data.streams import StreamBatch
from shels.detection.protocol import rows_of
from shels.errors import AccommodationError, DataError, SettingsError, TrainingError
from shels.learner.learner import Learner
from shels.learner.pairing import LEAST_IMAGES
from shels.model.networks import Views
from shels.training import Fit, Progress, TrainingRequest


@dataclass(frozen=True, eq=False)
class Request:
    """What the agent asks about: images that look like one new class.

    id: the same whenever the same question is asked again. name: provisional. inputs: the images seen.
    features: what the network made of them, where it is the same as then.
    """

    id: str
    name: str
    inputs: Tensor
    purity: float
    features: Views | None = None


@dataclass(frozen=True, eq=False)
class Supply:
    """The answer to a request.

    inputs: images to learn the class from; None to learn from those that were seen. name: what it is called,
    None to leave it at the provisional name; a known class's name says that it is that one. by: who says so.
    groups: (n,), images that are held out together, such as the frames of one traffic sign.
    """

    inputs: Tensor | None = None
    name: Label | None = None
    by: str = "supplier"
    groups: Tensor | None = None


Supplier = Callable[[Request], Supply | None]
"""Gives more of what was seen, or None for nothing; asked twice, it answers twice and harms nothing."""
Confirm = Callable[[Request], bool]
Look = Callable[[Learner, StreamBatch], Views]
Happening: TypeAlias = Generator[Event | TrainingRequest, Fit | None, None]
"""Events, and trainings that are asked for: each is answered by how it went."""
Yielded = TypeVar("Yielded")
_Learn: TypeAlias = Callable[..., Generator[Progress | TrainingRequest, Any, None]]


class OpenWorldAgent:
    """A learner that meets batches: `run` gives its events, `learner` is what it knows by now.

    supplier: whom it asks for more of what it saw; without one it learns from what it saw. confirm: asked
    before each class is learned. home: where its state survives; without one it lives in memory alone. look:
    gives what a learner's network makes of a batch, where another looks at batches before it; see `ahead`.
    model: the learner with its versions, which a person may rename, merge, split, unlearn or roll back.
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
        self.model = VersionedLearner(learner, home)
        self.settings = settings or AgentSettings()
        self.supplier = supplier
        self.confirm = confirm
        self.look: Look | None = None
        self.seed = seed

    @property
    def learner(self) -> Learner:
        """What is known by now."""
        return self.model.learner

    def run(self, stream: Iterable[StreamBatch]) -> Iterator[Event]:
        """Give the events of a stream; batches that the home's log has already are passed over."""
        done = self.model.finished_batches()
        for batch in stream:
            if batch_key(batch) not in done:
                yield from self.observe(batch)

    def observe(self, batch: StreamBatch) -> Iterator[Event]:
        """Give the events of one batch: how much of it is novel and, where it alarms, what was learned of it.

        Of a batch in whose middle a run was cut off, the events before the stop are given again.
        """
        happening = self._observe(batch, self.model.accommodating)
        return (event for event in happening if isinstance(event, Event))

    def observing(self, batch: StreamBatch) -> Happening:
        """Give the events of one batch as `observe` does, asking for the trainings instead of running them.

        So several agents can be trained together. One that diverged is thrown where it was asked for.
        """
        return self._observe(batch, self.model.taking_in)

    def _observe(self, batch: StreamBatch, learn: _Learn) -> Happening:
        key = batch_key(batch) if self.model.home else _key_in_memory(batch)
        journal = Journal(self.model, batch.name, key, repr((self.settings, self.seed)))
        if journal.note.plan is None:
            features = None if self.look is None else self.look(self.learner, batch)
            seen = observe(self.learner, batch.inputs, self.settings.alarm, features)
            if not seen.alarm:
                self.model.buffers.release(key)  # what an earlier look at it left there
                yield journal.record(events.OBSERVED, seen.facts, done=True)
                journal.close()
                return
            journal.begin()
            yield journal.record(events.OBSERVED, seen.facts)
            features = rows_of(seen.features, seen.novel)
            self.model.buffers.wait(key, batch.inputs[seen.novel], features, self.learner.network)
            limits = {name: seen.facts[name] for name in ("share", "threshold")}
            yield journal.record(events.ALARM, limits)
            plan = journal.decide(self._plan(batch, int(seen.novel.sum())))
        else:
            plan = journal.note.plan
            yield from journal.given(events.OBSERVED, events.ALARM)
        yield from self._carry_out(plan, journal, learn)
        yield journal.record(events.RESUMED, {"classes": list(self.learner.classes)}, done=True)
        journal.close()

    def _plan(self, batch: StreamBatch, novel: int) -> Plan:
        """Work out what is new in all images that wait, and not learned since, or else in the batch's own."""
        waiting, features = self.model.buffers.waiting(), self.model.buffers.waiting_features(self.learner)
        rows = self.learner.judge_features(features).novel.cpu().nonzero()[:, 0]
        seed = runtime.derived_seed(self.seed, "propose", batch.name)
        images, settings = len(rows), self.settings.proposals

        def proposed(size: int | None = None) -> Proposal:
            return propose(self.learner, waiting[rows], settings, seed, rows_of(features, rows), size=size)

        proposal = proposed()
        if proposal.drift is not None:
            return Plan(images, drift=proposal.drift.reason)
        if not proposal.purity:
            rows = rows[rows >= len(waiting) - novel]
            proposal = proposed(len(batch.inputs))
        first = self.model.reserve(len(proposal.purity))
        groups = []
        for place, purity in enumerate(proposal.purity):
            own = rows[proposal.groups == place]
            request = f"{batch.name}:{_digest(waiting[own])}"
            groups.append(ProposedClass(request, f"novel-{first + place}", purity, tuple(own.tolist())))
        return Plan(images, groups=tuple(groups))

    def _carry_out(self, plan: Plan, journal: Journal, learn: _Learn) -> Happening:
        """Give the events of what was decided; images go when it is clear what they are."""
        if plan.drift is not None:
            yield journal.record(events.DRIFT, {"reason": plan.drift, "images": plan.images})
        elif not plan.groups:
            why = "no group of images is one class"
            yield journal.record(events.UNDECIDED, {"images": plan.images, "reason": why})
            return
        for group in plan.groups:
            before = journal.decided(group.request)
            yield from before or self._answer(self._request(group, journal), journal, learn)
        self.model.buffers.release()

    def _request(self, group: ProposedClass, journal: Journal) -> Request:
        """Ask about images that wait, which must be those that the plan was made of."""
        waiting, places = self.model.buffers.waiting(), list(group.rows)
        whole = max(places, default=len(waiting)) < len(waiting)
        inputs = waiting[places] if whole else waiting[:0]
        if self.model.home is not None and group.request != f"{journal.batch}:{_digest(inputs)}":
            raise damaged_plan(self.model.home, "the images that it speaks of are not there")
        features = self.model.buffers.seen_features(self.learner)
        own = None if features is None else Views(*(each[places] for each in features))
        return Request(group.request, group.name, inputs, group.purity, own)

    def _answer(self, request: Request, journal: Journal, learn: _Learn) -> Happening:
        facts: dict[str, Any] = {"request": request.id, "seen": len(request.inputs), "purity": request.purity}
        supply = self._supply(request)
        if isinstance(supply, str):
            yield journal.record(events.DECLINED, facts | {"name": request.name, "reason": supply})
            return
        inputs = request.inputs if supply.inputs is None else supply.inputs
        name = request.name if supply.name is None else supply.name
        facts |= {"name": name if _is_name(name) else repr(name), "images": len(inputs), "by": supply.by}
        if refusal := self._refusal(inputs, name):
            yield journal.record(events.DECLINED, facts | {"reason": refusal})
            return
        yield journal.record(events.ACCOMMODATING, facts | {"step": 0, "steps": 0})
        learning = learn(
            request.name,
            name,
            inputs,
            runtime.derived_seed(self.seed, "accommodate", request.id),
            features=request.features if supply.inputs is None else None,
            groups=supply.groups,
            batch=journal.batch,
            facts=facts,
        )
        try:
            yield from _reported(learning, journal.batch, facts)
        except (DataError, SettingsError, AccommodationError, TrainingError) as error:
            yield journal.record(events.DECLINED, facts | {"reason": str(error)})
            return
        facts |= {"version": self.model.version, "seconds": self.learner.report["taken_in"][-1]["seconds"]}
        yield Event(events.ACCOMMODATED, journal.batch, facts)  # the change has logged it

    def _supply(self, request: Request) -> Supply | str:
        """Return the answer to a request, or why there is none."""
        if self.confirm is not None and not self.confirm(request):
            return "not confirmed"
        if self.supplier is None:
            return Supply(by="agent")
        return self.supplier(request) or "nothing supplied"

    def _refusal(self, inputs: Tensor, name: Label) -> str:
        if len(inputs) < LEAST_IMAGES:
            return f"under {LEAST_IMAGES} images"
        if not _is_name(name):
            return "a class must be named by text or a number"
        if name in self.learner.classes and not self.learner.joins:
            return f"it is said to be the known class {name!r}, to which this method cannot add"
        return ""


def _reported(
    learning: Generator[Progress | TrainingRequest, Any, None], batch: str, facts: dict[str, Any]
) -> Happening:
    """Give the progress of learning a class as events; trainings that it asks for are passed on."""
    with closing(learning):
        now = next(learning, None)
        while now is not None:
            if isinstance(now, TrainingRequest):
                now = yield from passed_on(learning, now)
                continue
            if now.stage == "training":
                yield Event(events.ACCOMMODATING, batch, facts | {"step": now.step, "steps": now.steps})
            now = next(learning, None)


def passed_on(
    steps: Generator[Yielded, Fit | None, None], request: TrainingRequest
) -> Generator[TrainingRequest, Fit | None, Yielded | None]:
    """Ask for a training that was asked for, say how it went, and give what comes next; None at the end."""
    try:
        fit = yield request
    except TrainingError as error:
        return _next(steps.throw, error)
    return _next(steps.send, fit)


def _next(step: Callable[[Any], Yielded], answer: object) -> Yielded | None:
    try:
        return step(answer)
    except StopIteration:
        return None


def _is_name(name: object) -> bool:
    return isinstance(name, str | int | float | bool) and name == name  # noqa: PLR0124 - false of NaN alone


def batch_key(batch: StreamBatch) -> str:
    """Tell a batch by its name and a digest of its content: other images of that name are another batch.

    >>> import torch
    >>> batch_key(StreamBatch("0001.npz", torch.zeros(2, 3)))
    '0001.npz:20583de38f4a'
    """
    return f"{batch.name}:{_digest(batch.inputs)}"


def _key_in_memory(batch: StreamBatch) -> str:
    """Tell a batch as `batch_key` does, from where its images lie: many large ones would be slow to fetch."""
    return f"{batch.name}:{hash(tuple(fingerprints(batch.inputs)))}"


def _digest(inputs: Tensor) -> str:
    return hashlib.blake2b(inputs.cpu().contiguous().numpy().tobytes(), digest_size=6).hexdigest()
