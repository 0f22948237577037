"""Everything that a page or a client may want to see of a home in use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from threading import Lock

import torch
from torch import Tensor

from shels.agent import events
from shels.agent.groups import REST, Group
from shels.agent.history import Change, Said
from shels.agent.inspection import class_rows, version_rows
from shels.agent.quality import corrections_of, seen_false_alarms
from shels.agent.workbench import Workbench
from shels.data.samples import Samples
from shels.data.splits import known_class
from shels.learner.learner import Learner
from shels.learner.rule import doubt, held_out_false_alarms, promised_false_alarms, promised_share
from shels.service import views
from shels.service.snapshot import Snapshot
from shels.service.strip import Strip, kept_picture


class Showing:
    """A home as it is looked at, from any thread. snapshot: the model that judges now."""

    def __init__(self, workbench: Workbench) -> None:
        self.bench = workbench
        self.snapshot = Snapshot.of(workbench.learner, workbench.home.version)
        self.strip = Strip()
        self._versions: dict[int, Snapshot] = {}
        self._lock = Lock()

    @property
    def learner(self) -> Learner:
        """The model that judges now."""
        return self.snapshot.learner

    @property
    def shows_images(self) -> bool:
        """Whether samples have pictures; vectors have none."""
        return len(self.learner.preparation.shape) == 3

    def known_class(self, name: str) -> str:
        """Give the name of a class as it is; one that is not known is refused."""
        return str(known_class(name, self.learner.classes))

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

    def live(self, most: int = 60) -> views.Live:
        """Show what came in lately."""
        recent, bench = self.bench.intake.recent(), self.bench
        observed, novel = bench.index.observed_since(0)
        return views.Live(
            version=self.snapshot.version,
            samples=self.strip.samples(most),
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
        """Give the image of a sample that came in lately, or of an example."""
        return self.strip.image(number)

    def image(self, number: int) -> Tensor:
        """Give a kept image by its number."""
        return self.bench.inbox.inputs([number])[0]

    def groups(self, most_images: int = 12) -> list[views.GroupView]:
        """Show the groups of what is novel, the largest first, and what is in none as "rest"."""
        return [self.shown_group(each, most_images) for each in self.bench.listed()]

    def group(self, group: str, most_images: int = 500) -> views.GroupView:
        """Show one group and its images."""
        return self.shown_group(self.found_group(group), most_images)

    def found_group(self, group: str) -> Group:
        """Give a group, or what is in none, as it is at this moment."""
        if group != REST:
            return self.bench.groups.of(group)
        return Group(REST, tuple(self.bench.members(REST)), purity=0.0)

    def shown_group(self, found: Group, most_images: int) -> views.GroupView:
        """Show a group as it was found: meanwhile other groups may have been proposed in its place."""
        images = self._images(found.members[:most_images])
        return views.GroupView(found.id, len(found.members), found.purity, found.fixed, images)

    def _images(self, numbers: Sequence[int]) -> list[views.Image]:
        now = self.snapshot
        with self.bench.model.writing:
            numbers = [each for each in numbers if each in self.bench.inbox]  # the oldest go in time
            if not numbers:
                return []
            features = self.bench.inbox.features(numbers, now.learner)
        judged, shown, said = (
            now.said(now.learner.judge_features(features)),
            self.shows_images,
            self.bench.said,
        )
        return [
            views.Image(number, kept_picture(number) if shown else None, each, _said(said.get(number)))
            for number, each in zip(numbers, judged, strict=True)
        ]

    def classes(self) -> list[views.ClassView]:
        """Show every class that is known."""
        now = self.snapshot
        rows = class_rows(now.learner, [each.facts for each in self.bench.changes if each.counts])
        return [
            views.ClassView(
                name=str(row["name"]),
                origin=row["origin"],
                images=row["images"],
                by=row["by"],
                time=row["time"],
                threshold=row["threshold"],
                seen=self.strip.accepted[str(row["name"])],
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
        kept = [kept_picture(number) for number in taught if number in self.bench.inbox][:most]
        return [*kept, *(where for _, _, where in self.strip.examples([name]))][:most]

    def history(self, most: int = 200) -> list[views.ChangeView]:
        """Show every change, the newest first."""
        return [change_view(change) for change in reversed(self.bench.changes[-most:])]

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
        accept, promised = promised_share(learner), promised_false_alarms(learner)
        seen = seen_false_alarms(self.bench.changes, self.bench.index)
        rate = seen.rate
        waiting = len(self.bench.waiting())
        return views.Rule(
            accept=accept,
            promised=promised,
            held_out=held_out_false_alarms(learner),
            seen=None
            if rate is None or not self.bench.said  # before anybody looked, none would seem to be none
            else views.Rate(rate.value, rate.low or 0.0, rate.high or 1.0, seen.false_alarms, seen.known),
            unreviewed=waiting,
            guarantee=_guarantee(accept, promised),
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
        classes, inbox = self.learner.classes, self.bench.inbox
        place = {str(name): at for at, name in enumerate(classes)}
        pairs = [(place[name], image, where) for name, image, where in self.strip.examples(list(place))]
        taught = [
            (place[str(said.name)], number)
            for number, said in self.bench.said.items()
            if said.kind == events.ACCOMMODATED and str(said.name) in place and number in inbox
        ][-500:]
        images = inbox.inputs([number for _, number in taught])
        named = zip(taught, images, strict=True)
        pairs += [(at, image, kept_picture(number)) for (at, number), image in named]
        if not pairs:
            return None, None
        labels = torch.tensor([at for at, _, _ in pairs])
        inputs = torch.stack([image for _, image, _ in pairs])
        return Samples(inputs, labels, classes, origin="known examples"), [where for _, _, where in pairs]

    def events(self, start: int = 0, most: int = 1000) -> list[views.Event]:
        """Read the log from a place on."""
        found = self.bench.home.log.placed(start)[:most]
        return [views.Event(place, line["kind"], events.in_words(line), line) for place, line in found]


def change_view(change: Change) -> views.ChangeView:
    """Show a change."""
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


def _guarantee(accept: float | None, promised: float | None) -> str:
    """Say what is promised of known samples, and what is not."""
    if accept is None or promised is None:
        return "The paper's rule promises no share of known samples; set one to have it promised."
    return (
        f"The rule means to call {1 - accept:.2%} of known samples novel. Of samples that come as the "
        f"held-out ones did, it is {promised:.2%} at most on average over held-out sets (split conformal): "
        "fewer scores leave more, and one model may lie some points off. That holds class by class where a "
        "class had held-out scores enough of its own; a class with fewer borrows those of all, and it holds "
        "for a sample of any class. What a person calls not novel joins the held-out scores of the class "
        "that it is most like, and the threshold is set by rank again, which lowers it, or leaves it "
        "all but where it is. Another accepted share moves the rank on the same scores."
    )


def _said(said: Said | None) -> str:
    if said is None:
        return ""
    return (
        str(said.name) if said.name is not None else {events.DISMISSED: "rubbish"}.get(said.kind, "not novel")
    )
