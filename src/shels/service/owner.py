"""The one that owns a home: judging reads a snapshot, changes make the next one and put it in its place.

Nothing here knows of HTTP. Whatever a page or a client may want to see or do is a method of `Service`.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import torch
from torch import Tensor

from shels.agent import events
from shels.agent.groups import REST
from shels.agent.history import Change
from shels.agent.home import Home
from shels.agent.inspection import class_rows, version_rows
from shels.agent.quality import corrections_of, seen_false_alarms
from shels.agent.workbench import Outcome, Workbench
from shels.data.samples import Samples
from shels.data.splits import known_class
from shels.detection.calibration import Verdicts
from shels.errors import DataError, ModelFileError
from shels.learner.learner import Learner
from shels.learner.rule import doubt, held_out_false_alarms, promised_share
from shels.service import views
from shels.service.grouping import Grouper
from shels.service.jobs import Jobs
from shels.training import Progress

_LOG = logging.getLogger("shels.service")
_EXAMPLES = 24
"""Pictures that are kept of each class, the latest that were accepted."""
_STRIP = 200
GUARANTEE = (
    "Of samples of a known class that come as its held-out ones did, at most the promised share is called "
    "novel (split conformal, class by class). What a person calls not novel joins the held-out scores of the "
    "class that it is most like, and the threshold is set by rank again: no threshold rises by that, so the "
    "promise holds with room to spare. Another accepted share moves the rank on the same scores."
)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A model as it was at one moment; nothing changes it."""

    learner: Learner
    version: int
    names: tuple[str, ...]

    def judge(self, inputs: Tensor) -> list[views.Judged]:
        """Judge inputs."""
        return self.said(self.learner.judge(inputs))

    def said(self, verdicts: Verdicts) -> list[views.Judged]:
        """Say verdicts in plain values."""
        score = verdicts.score.nan_to_num()  # JSON has no infinity
        columns = (verdicts.predicted, verdicts.novel, score, verdicts.threshold, verdicts.p_value)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        names = self.names
        return [
            views.Judged("novel" if novel else names[place], novel, names[place], score, limit, p_value)
            for place, novel, score, limit, p_value in rows
        ]


class Service:
    """A home in use. Make one by `opened`; judging may be asked from any thread."""

    def __init__(self, workbench: Workbench) -> None:
        self.bench = workbench
        self.began = datetime.now(UTC)
        self.snapshot = _snapshot(workbench)
        self.jobs = Jobs()
        self._strip: deque[tuple[views.Sample, Tensor]] = deque(maxlen=_STRIP)
        self._examples: dict[str, deque[tuple[int, Tensor]]] = {}
        self._accepted: Counter[str] = Counter()
        self._versions: dict[int, Snapshot] = {}
        self._lock = Lock()
        self._last_sample = 0
        self._stale = True
        self._closing = Event()
        self._grouping = Thread(target=self._group, name="grouping", daemon=True)

    @property
    def learner(self) -> Learner:
        """The model that judges now."""
        return self.snapshot.learner

    @property
    def shows_images(self) -> bool:
        """Whether samples have pictures; vectors have none."""
        return len(self.learner.preparation.shape) == 3

    # Judging ----------------------------------------------------------------------------------------------

    def judge(self, inputs: Tensor) -> list[views.Judged]:
        """Judge inputs by the model in use; nothing is kept of them."""
        return self.snapshot.judge(inputs)

    def observe(
        self, inputs: Tensor, key: str | None = None, by: str = "stream"
    ) -> tuple[views.Observation, list[views.Judged]]:
        """Judge inputs, count them and keep those that are novel; on disk when this returns."""
        now = self.snapshot
        features = now.learner.views(inputs)
        verdicts = now.learner.judge_features(features)
        seen = self.bench.observe(now.learner, inputs, features, verdicts, key=key, by=by)
        judged, recent = now.said(verdicts), self.bench.recent()
        if not seen.repeated:
            self._show(inputs, judged, seen.numbers)
            self._stale = self._stale or bool(seen.novel)
        said = views.Observation(
            seen.place, seen.size, seen.novel, seen.repeated, recent.share, recent.threshold, recent.alarm
        )
        return said, judged

    def _show(self, inputs: Tensor, judged: list[views.Judged], numbers: Sequence[int | None]) -> None:
        """Put samples on the strip, and accepted ones among the examples of their class."""
        time_now, shown = _now(), self.shows_images
        with self._lock:
            for image, each, number in list(zip(inputs, judged, numbers, strict=True)):
                self._last_sample += 1
                where = f"/live/{self._last_sample}.png" if shown else None
                sample = views.Sample(self._last_sample, time_now, each, number, where)
                self._strip.append((sample, image))
                if not each.novel:
                    self._accepted[each.predicted] += 1
                    examples = self._examples.setdefault(each.predicted, deque(maxlen=_EXAMPLES))
                    examples.append((self._last_sample, image))

    def version(self, number: int) -> Snapshot:
        """Give an earlier version to judge by; the last few that were asked for are kept."""
        with self._lock:
            found = self._versions.pop(number, None)
        if found is None:
            learner = self.bench.home.load(str(self.learner.device), number)
            found = Snapshot(learner, number, tuple(map(str, learner.classes)))
        with self._lock:
            self._versions[number] = found
            while len(self._versions) > 4:
                self._versions.pop(next(iter(self._versions)))
        return found

    # Views ------------------------------------------------------------------------------------------------

    def live(self, most: int = 60) -> views.Live:
        """Show what came in lately."""
        recent, bench = self.bench.recent(), self.bench
        observed, novel = bench.index.observed_since(0)
        with self._lock:
            samples = [sample for sample, _ in reversed(self._strip)][:most]
        return views.Live(
            version=self.snapshot.version,
            samples=samples,
            window=recent.size,
            share=recent.share,
            alarm_share=recent.threshold,
            alarm=recent.alarm,
            drift=bench.groups.drift,
            observed=observed,
            novel=novel,
            waiting=len(bench.waiting()),
            groups=len(bench.groups.found),
        )

    def sample_image(self, number: int) -> Tensor:
        """Give the image of a sample on the strip, or of an example."""
        with self._lock:
            every = [(sample.id, image) for sample, image in self._strip]
            every += [pair for examples in self._examples.values() for pair in examples]
        for each, image in every:
            if each == number:
                return image
        raise DataError(f"sample {number} is not kept any more; only the last {_STRIP} are")

    def image(self, number: int) -> Tensor:
        """Give a kept image by its number."""
        return self.bench.inbox.inputs([number])[0]

    def groups(self, most_images: int = 12) -> list[views.GroupView]:
        """Show the groups of what is novel, the largest first, and what is in none as "rest"."""
        found = sorted(self.bench.groups.found, key=lambda each: -len(each.members))
        shown = [self.group(each.id, most_images) for each in found]
        rest = self.group(REST, most_images)
        return [*shown, rest] if rest.size else shown

    def group(self, group: str, most_images: int = 500) -> views.GroupView:
        """Show one group and its images."""
        members = self.bench.members(group)
        found = None if group == REST else self.bench.groups.of(group)
        purity, fixed = (0.0, False) if found is None else (found.purity, found.fixed)
        return views.GroupView(group, len(members), purity, fixed, self._images(members[:most_images]))

    def _images(self, numbers: Sequence[int]) -> list[views.Image]:
        if not numbers:
            return []
        now = self.snapshot
        with self.bench.model.writing:
            features = self.bench.inbox.features(numbers, now.learner)
        judged, shown, said = (
            now.said(now.learner.judge_features(features)),
            self.shows_images,
            self.bench.said,
        )
        return [
            views.Image(number, f"/images/{number}.png" if shown else None, each, _said(said.get(number)))
            for number, each in zip(numbers, judged, strict=True)
        ]

    def classes(self) -> list[views.ClassView]:
        """Show every class that is known."""
        now, log = self.snapshot, [line for _, line in self.bench.index.changes()]
        rows = class_rows(now.learner, log)
        return [
            views.ClassView(
                name=str(row["name"]),
                origin=row["origin"],
                images=row["images"],
                by=row["by"],
                time=row["time"],
                threshold=row["threshold"],
                seen=self._accepted[str(row["name"])],
                provisional=str(row["name"]).startswith("novel-"),
                examples=self.examples(str(row["name"])),
            )
            for row in rows
        ]

    def examples(self, name: str, most: int = 12) -> list[str]:
        """List where pictures of a class are: those it was learned from here, and those accepted lately."""
        if not self.shows_images:
            return []
        taught = [number for number, said in self.bench.said.items() if str(said.name) == name]
        kept = [f"/images/{number}.png" for number in taught if number in self.bench.inbox][:most]
        with self._lock:
            lately = [f"/live/{number}.png" for number, _ in self._examples.get(name, ())]
        return [*kept, *lately[::-1]][:most]

    def history(self, most: int = 200) -> list[views.ChangeView]:
        """Show every change, the newest first."""
        return [_change(change) for change in reversed(self.bench.changes[-most:])]

    def versions(self) -> list[views.VersionView]:
        """Show every version, the newest first."""
        current = self.bench.home.version
        rows = version_rows(self.bench.home, [line for _, line in self.bench.index.changes()])
        return [views.VersionView(**row, current=row["version"] == current) for row in reversed(rows)]

    def difference(self, old: int, new: int) -> views.Difference:
        """Show what differs between two versions."""
        one, other = (self.bench.home.load("cpu", version) for version in (old, new))
        limits = [
            dict(zip(map(str, each.classes), each.detector.thresholds.tolist(), strict=True))
            for each in (one, other)
        ]
        both = {name: [limits[0][name], limits[1][name]] for name in limits[0] if name in limits[1]}
        return views.Difference(
            old,
            new,
            added=[name for name in limits[1] if name not in limits[0]],
            removed=[name for name in limits[0] if name not in limits[1]],
            thresholds=both,
            accept=[promised_share(one), promised_share(other)],
        )

    def rule(self) -> views.Rule:
        """Show the rule, what it promises and what people said."""
        learner = self.learner
        accept = promised_share(learner)
        seen = seen_false_alarms(self.bench.changes, self.bench.index)
        rate = seen.rate
        waiting = len(self.bench.waiting())
        return views.Rule(
            accept=accept,
            promised=None if accept is None else round(1 - accept, 12),
            held_out=held_out_false_alarms(learner),
            seen=None
            if rate is None
            else views.Rate(rate.value, rate.low or 0.0, rate.high or 1.0, seen.false_alarms, seen.known),
            unreviewed=waiting,
            guarantee=GUARANTEE,
            doubt=doubt(learner),
        )

    def quality(self, most: int = 500) -> views.Quality:
        """Show how well it does, by what people said."""
        bench = self.bench
        lines = [line for _, line in bench.index.of_kinds((events.OBSERVED,), most)]
        drifts = [line for _, line in bench.index.of_kinds((events.DRIFT,), 20)]
        said = Counter(
            "known" if each.kind == events.ACCOMMODATED and each.known else each.kind
            for each in bench.said.values()
        )
        return views.Quality(
            rule=self.rule(),
            corrected=[views.Corrected(*key, count) for key, count in corrections_of(bench.changes)],
            over_time=[
                views.Moment(
                    line.get("time", ""), line.get("window", line["share"]), line["threshold"], line["alarm"]
                )
                for line in lines
            ],
            drifts=[f"{line.get('time', '')} {line['reason']}" for line in drifts],
            confirmed_novel=said[events.ACCOMMODATED],
            false_alarms=said[events.NOT_NOVEL] + said["known"],
            rubbish=said[events.DISMISSED],
        )

    def why(self, number: int, most: int = 6) -> views.Why:
        """Show what stands behind the verdict on a kept image, and the known examples nearest to it."""
        now, known, where = self.snapshot, *self._known_examples()
        found = now.learner.explain(self.image(number)[None], known, sources=where, most=most)[0]
        return views.Why(
            number,
            found.words,
            {str(name): value for name, value in found.class_p_values.items()},
            {aspect.name: aspect.p_value for aspect in found.aspects},
            [views.Example(str(each.label), each.source, each.distance) for each in found.examples],
        )

    def _known_examples(self) -> tuple[Samples | None, list[str] | None]:
        """Collect images of known classes: accepted lately, or named by a person."""
        classes = self.learner.classes
        place = {str(name): at for at, name in enumerate(classes)}
        with self._lock:
            pairs = [
                (place[name], image, f"/live/{number}.png")
                for name, examples in self._examples.items()
                if name in place
                for number, image in examples
            ]
        inbox = self.bench.inbox
        taught = [
            (place[str(said.name)], number)
            for number, said in self.bench.said.items()
            if said.kind == events.ACCOMMODATED and str(said.name) in place and number in inbox
        ][-500:]
        pairs += [(at, inbox.inputs([number])[0], f"/images/{number}.png") for at, number in taught]
        if not pairs:
            return None, None
        labels = torch.tensor([at for at, _, _ in pairs])
        inputs = torch.stack([image for _, image, _ in pairs])
        return Samples(inputs, labels, classes, origin="known examples"), [where for _, _, where in pairs]

    def events(self, start: int = 0, most: int = 1000) -> list[views.Event]:
        """Read the log from a place on."""
        found = self.bench.home.placed_events(start)[:most]
        return [views.Event(place, line["kind"], events.in_words(line), line) for place, line in found]

    # Changes: each a job, answered by what it did -----------------------------------------------------------

    def name_group(
        self, group: str, name: str, by: str, images: Sequence[int] | None = None
    ) -> tuple[int, Future[views.Done]]:
        """Learn a group as a class, new or known."""
        return self._submit(f"learn {name}", by, lambda: self.bench.naming(group, name, by, images))

    def not_novel(
        self, group: str, by: str, images: Sequence[int] | None = None
    ) -> tuple[int, Future[views.Done]]:
        """Say that images are of known classes: the thresholds are set with them anew."""
        return self._at_once("not novel", by, lambda: self.bench.not_novel(group, by, images))

    def dismiss(
        self, group: str, by: str, images: Sequence[int] | None = None
    ) -> tuple[int, Future[views.Done]]:
        """Say that images are rubbish."""
        return self._at_once("rubbish", by, lambda: self.bench.dismiss(group, by, images))

    def split_group(
        self, group: str, by: str, images: Sequence[int] | None = None
    ) -> tuple[int, Future[views.Done]]:
        """Divide a group: the given images and the rest, or where it divides best."""
        return self._at_once(f"split {group}", by, lambda: self.bench.split_group(group, by, images))

    def merge_groups(self, group: str, into: str, by: str) -> tuple[int, Future[views.Done]]:
        """Put a group's images into another group."""
        return self._at_once(f"merge {group}", by, lambda: self.bench.merge_groups(group, into, by))

    def rename_class(self, name: str, to: str, by: str) -> tuple[int, Future[views.Done]]:
        """Give a class another name."""
        return self._at_once(f"rename {name}", by, lambda: self.bench.rename(name, to, by))

    def merge_classes(self, name: str, into: str, by: str) -> tuple[int, Future[views.Done]]:
        """Declare a class to be another."""
        return self._at_once(f"merge {name}", by, lambda: self.bench.merge(name, into, by))

    def split_class(self, name: str, by: str) -> tuple[int, Future[views.Done]]:
        """Divide a class with a provisional name."""
        return self._at_once(f"split {name}", by, lambda: self.bench.split(name, by))

    def unlearn(self, name: str, by: str) -> tuple[int, Future[views.Done]]:
        """Forget a class."""
        return self._at_once(f"unlearn {name}", by, lambda: self.bench.unlearn(name, by))

    def set_rule(self, accept: float, by: str) -> tuple[int, Future[views.Done]]:
        """Accept another share of known samples."""
        return self._at_once("rule", by, lambda: self.bench.set_accept_share(accept, by))

    def rollback(self, version: int, by: str) -> tuple[int, Future[views.Done]]:
        """Make an earlier version the one in use."""
        return self._at_once(f"version {version}", by, lambda: self.bench.rollback(version, by))

    def undo(self, change: int, by: str) -> tuple[int, Future[views.Done]]:
        """Take a change back."""
        return self._at_once("undo", by, lambda: self.bench.undo(change, by))

    def known_class(self, name: str) -> str:
        """Give the name of a class as it is; one that is not known is refused."""
        return str(known_class(name, self.learner.classes))

    def _at_once(
        self, what: str, by: str, change: Callable[[], Outcome | Change]
    ) -> tuple[int, Future[views.Done]]:
        def work() -> Generator[Progress, None, Outcome | Change]:
            yield from ()
            return change()

        return self._submit(what, by, work)

    def _submit(
        self, what: str, by: str, work: Callable[[], Generator[Progress, None, Outcome | Change]]
    ) -> tuple[int, Future[views.Done]]:
        def whole() -> Generator[Progress, None, views.Done]:
            began = time.perf_counter()
            found = yield from work()
            self._swap()
            return self._done(found, time.perf_counter() - began)

        return self.jobs.submit(what, by, whole)

    def _swap(self) -> None:
        """Put the model that a change has made in use, once it is warm."""
        self._stale = True
        if self.bench.learner is not self.snapshot.learner:
            self.snapshot = _snapshot(self.bench)

    def _done(self, found: Outcome | Change, seconds: float) -> views.Done:
        rate = held_out_false_alarms(self.learner)
        change, before, after = (found, rate, rate) if isinstance(found, Change) else _parts(found)
        names = list(self.snapshot.names)
        words = f"{change.words}; {1000 * seconds:.0f} ms, false alarms {before:.1%} → {after:.1%}"
        return views.Done(_change(change), round(seconds, 4), before, after, names, words)

    def start(self) -> None:
        """Let changes be made, and group what is novel."""
        self.jobs.start()
        self._grouping.start()

    def close(self) -> None:
        """End what runs beside, and let go of the index."""
        self._closing.set()
        self.jobs.close()
        self._grouping.join()
        self.bench.index.close()

    def _group(self) -> None:
        """Group what is novel anew where something came, a fifth of the time at most."""
        pause = 0.25
        while not self._closing.wait(pause):
            began = time.monotonic()
            if self._stale:
                self._regroup()
            pause = max(0.25, 4 * (time.monotonic() - began))

    def _regroup(self) -> None:
        self._stale = False
        try:
            self.bench.regroup()
        except ModelFileError as error:  # the disk is full: what waits is grouped when there is room again
            _LOG.warning("groups cannot be written: %s", error)
            self._stale = True


@contextmanager
def opened(directory: Path, device: str = "auto", *, apart: bool = True) -> Iterator[Service]:
    """Open a home to serve it; another process that uses the same one is kept out meanwhile.

    A plain model becomes a home, as by `shels run`. apart: whether novel images are told apart in a process
    of its own.
    """
    home = Home(directory)
    with ExitStack() as stack:
        stack.enter_context(home.lock())
        grouper = Grouper()
        service = Service(Workbench(home, device, separating=grouper))
        if apart:
            grouper.start()
            stack.callback(grouper.close)
        service.start()
        stack.callback(service.close)
        yield service


def _snapshot(bench: Workbench) -> Snapshot:
    """Take the model as it is now, having judged once, so that nobody waits for what is worked out lazily."""
    learner = bench.learner
    learner.judge(torch.zeros(2, *learner.preparation.shape))
    return Snapshot(learner, bench.home.version, tuple(map(str, learner.classes)))


def _parts(outcome: Outcome) -> tuple[Change, float, float]:
    return outcome.change, outcome.false_alarms_before, outcome.false_alarms_after


def _change(change: Change) -> views.ChangeView:
    return views.ChangeView(
        id=change.id,
        kind=change.kind,
        words=change.words,
        by=change.by,
        time=change.time,
        version=change.version,
        before=change.before,
        images=change.images,
        group=change.facts.get("group"),
        counts=change.counts,
        undoable=change.undoable,
        undoes=change.undoes,
    )


def _said(said: Any) -> str:
    if said is None:
        return ""
    return (
        str(said.name) if said.name is not None else {events.DISMISSED: "rubbish"}.get(said.kind, "not novel")
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
