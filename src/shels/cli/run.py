"""`shels run`: let a model watch batches, find what is new and learn it."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shels.agent.alarm import AlarmRule, FalseAlarmRate, PresetShare
from shels.agent.events import Event, kind_of
from shels.cli import options
from shels.cli.display import StreamDisplay, listed, percent, print_facts, print_result, say, share_bar
from shels.cli.options import argument, option
from shels.cli.reading import FileReading
from shels.errors import SettingsError

if TYPE_CHECKING:
    from shels.agent.ahead import Lookers
    from shels.agent.stream_run import StreamRun
    from shels.data.streams import StreamBatch

EXAMPLES = """shels run m digits
shels run m digits --protocol mixed --batches 12 --seed 1
shels run m batches/ --confirm
shels run m night.npz --batch-size 100 --alarm-share 0.3
shels run m millions.parquet --batch-size 1000 --cluster auto
shels run m digits --detector knn --learner gaussian

Cut off at any moment, the same command goes on where it was."""

_HEADINGS = f"{'batch':<16}{'size':>6}  {'novel share':<20} {'novel':>7} / {'alarm':<7} what came of it"

_sets = partial(option, panel="Data sets as streams", show_default=False)
_alarm = partial(option, panel="When to stop and look", show_default=False)
_new = partial(option, panel="What to make of it", show_default=False)
_pair = partial(
    option, panel="Learner and detector (as the model was trained, unless given)", show_default=False
)
_STREAM = (
    "A folder of batches (.npz files or folders of images), an .npz file with x, or a data set; or images to "
    "be cut into batches: a folder of nothing else, a .zip, .csv, .txt or .parquet file."
)


def run(  # noqa: PLR0913 - a parameter for each option
    model: options.Model,
    stream: Annotated[str, argument("STREAM", _STREAM)],
    *,
    batch_size: Annotated[
        int, option("--batch-size", "Samples in a batch, of a data set or an .npz file.", "N")
    ] = 500,
    again: Annotated[bool, option("--again", "Take batches again that an earlier run has finished.")] = False,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    cluster: Annotated[
        str | None,
        option("--cluster", "Look at batches on a Ray cluster: local, auto or HOST:PORT.", "ADDRESS"),
    ] = None,
    data_dir: options.DataDir = None,
    strict: options.Strict = False,
    as_json: options.Json = False,
    protocol: Annotated[
        str | None, _sets("--protocol", "How new classes come; default: paper.", "paper|mixed")
    ] = None,
    batches: Annotated[int | None, _sets("--batches", "Length of a mixed stream.", "N")] = None,
    alarm_probability: Annotated[
        float | None, _alarm("--alarm-probability", "Chance that a known batch alarms; default: 0.001.", "P")
    ] = None,
    alarm_share: Annotated[
        float | None, _alarm("--alarm-share", "Alarm where more than this is novel, such as 0.3.", "S")
    ] = None,
    one_class: Annotated[bool, _new("--one-class", "All that is novel in a batch is one class.")] = False,
    no_drift: Annotated[bool, _new("--no-drift", "Do not look for blur, darkness or noise.")] = False,
    confirm: Annotated[bool, _new("--confirm", "Ask before a class is taken in: y, n or its name.")] = False,
    learner: Annotated[
        str | None, _pair("--learner", "How classes are taken in; see shels methods.", "NAME")
    ] = None,
    detector: Annotated[
        str | None, _pair("--detector", "What tells novel samples; see shels methods.", "NAME")
    ] = None,
) -> None:
    """Watch a stream, find what is new in it and learn it.

    Of a data set, the stream is made from the test part, and the training part
    answers when the model asks for more of what it saw. Otherwise it learns
    from what it saw, under names such as novel-1.
    """
    options.one_of("protocol", protocol, ("paper", "mixed"))
    rule = _rule(alarm_probability, alarm_share)
    from shels.agent.observation import AgentSettings, ProposalSettings  # noqa: PLC0415
    from shels.agent.opened_stream import StreamSpec  # noqa: PLC0415
    from shels.agent.stream_run import opened_run  # noqa: PLC0415

    spec = StreamSpec(stream, protocol, batch_size, batches, seed)
    settings = AgentSettings(rule, ProposalSettings(several=not one_class, drift=not no_drift))
    display = StreamDisplay(f"{model} on {stream}", quiet=as_json)
    pair = (learner, detector)
    where: dict[str, Any] = {"data_dir": data_dir, "device": device, "again": again}
    with (
        FileReading(strict=strict, quiet=as_json) as files,
        _lookers(cluster) as lookers,
        opened_run(model, spec, settings, pair, **where, lookers=lookers) as opened,
    ):
        if opened.refitted:
            say(f"note: refitted on the model's network, as version {opened.home.version}")
        with display:
            result = Watch(opened, display, files).watch(confirm=confirm)
    print_result(result | {"files": files.result()}, _show, as_json=as_json)


@contextmanager
def _lookers(address: str | None) -> Iterator[Lookers | None]:
    """Give those on a cluster who look at batches ahead of the agent; None where there is no cluster."""
    if address is None:
        yield None
        return
    from shels.agent.cluster_looking import ClusterLookers  # noqa: PLC0415
    from shels.cluster import connected  # noqa: PLC0415

    with connected(address) as cluster:
        yield ClusterLookers(cluster)


def _rule(probability: float | None, share: float | None) -> AlarmRule:
    options.exclude({"--alarm-probability": probability}, {"--alarm-share": share})
    try:
        if share is not None:
            return PresetShare(share)
        return FalseAlarmRate() if probability is None else FalseAlarmRate(probability)
    except SettingsError as error:
        flag = "--alarm-share" if probability is None else "--alarm-probability"
        raise SettingsError(f"{flag}: {error}") from error


class Watch:
    """A run over a stream, shown as it goes."""

    def __init__(self, run: StreamRun, display: StreamDisplay, files: FileReading) -> None:
        self.run = run
        self.display = display
        self.files = files

    def watch(self, *, confirm: bool) -> dict[str, Any]:
        """Take the agent through the batches that are not done yet, and return what happened."""
        from shels.cli.person import Person  # noqa: PLC0415

        run = self.run
        try:
            with tempfile.TemporaryDirectory(prefix="shels-") as folder:
                if confirm:
                    person = Person(run.agent, self.display, Path(folder), run.truth)
                    run.agent.confirm, run.agent.supplier = person.confirm, person.supply
                for batch in run.remaining():
                    self.files.say_new()
                    if run.summary.skipped == run.summary.batches:
                        if run.summary.skipped:
                            done = _batches(run.summary.skipped, "that is", "that are")
                            self.display.line(f"going on after {done} done")
                        self.display.line(_HEADINGS)
                    self._observe(batch)
        except KeyboardInterrupt:
            self.display.close()
            done = _batches(run.summary.batches, "is", "are")
            say(
                f"interrupted: {done} done, version {run.home.version} is in use and whole; the same command "
                "goes on from there"
            )
            raise typer.Exit(1) from None
        return run.result()

    def _observe(self, batch: StreamBatch) -> None:
        never = self.run.summary.never
        events: list[Event] = []
        self._foot(f"looking at {batch.name}")
        for event in self.run.observe(batch):
            if event.kind == "accommodating":
                steps = f", step {event['step']}/{event['steps']}" if event["steps"] else ""
                self._foot(f"learning {event['name']}{steps}")
            events.append(event)
        self.display.line(_batch_line(events), stands_out=len(events) > 1)
        if events[0]["threshold"] > 1 and not never:
            say(f"note: {batch.name} is too small to raise an alarm; give larger batches, or --alarm-share")
        self._foot()

    def _foot(self, now: str = "") -> None:
        summary, agent = self.run.summary, self.run.agent
        alarms = f"{summary.alarms} alarm{'s' * (summary.alarms != 1)}"
        counts = f"{_batches(summary.batches)}, {alarms}, version {agent.model.version}"
        self.display.foot(f"classes  {listed(agent.learner.classes)}\n{counts}\n{now}")


def _batches(count: int, one: str = "", more: str = "") -> str:
    """Count batches, with a word that goes with one or with several.

    >>> _batches(1, "is", "are"), _batches(2, "is", "are"), _batches(0)
    ('1 batch is', '2 batches are', '0 batches')
    """
    return (f"1 batch {one}" if count == 1 else f"{count} batches {more}").rstrip()


def _batch_line(events: Sequence[Event]) -> str:
    """Return a line on a batch: how much is novel, beside the share that alarms, and what came of it."""
    seen = events[0]
    limit = percent(seen["threshold"]) if seen["threshold"] <= 1 else "never"
    bar = share_bar(seen["share"], seen["threshold"])
    shares = f"{percent(seen['share']):>7} / {limit:<7}"
    words = [(kind_of(event.kind).result, {"kind": event.kind, **event.facts}) for event in events]
    came = "; ".join(result(line) for result, line in words if result is not None) or "nothing new"
    return f"{seen.batch:<16}{seen['size']:>6}  {bar} {shares} {came}"


def _show(result: dict[str, Any]) -> None:
    skipped = f", {result['skipped']} of them done before" * bool(result["skipped"])
    lines = {"method": result["method"], "batches": f"{result['batches']}{skipped}"}
    lines["alarms"] = str(result["alarms"])
    lines["taken in"] = listed(each["name"] for each in result["taken_in"]) or "nothing"
    if result["files"] and result["files"]["left_out"]:
        lines["left out"] = f"{len(result['files']['left_out'])} files that cannot be read"
    for kind in ("declined", "drift", "undecided"):
        if result[kind]:
            lines[kind] = f"{len(result[kind])}; the last: {result[kind][-1]['reason']}"
    if "found" in result:
        new = len(result["found"]) + len(result["missed"])
        lines["found"] = f"{len(result['found'])} of {new} new classes"
        lines["found"] += f"; missed: {listed(result['missed'])}" * bool(result["missed"])
        lines["false alarms"] = str(result["false_alarms"])
        lines["accuracy"] = (
            f"{percent(result['final_accuracy'])} closed-set, of all test samples of its classes"
        )
    lines |= {"classes": listed(result["classes"]), "version": f"{result['version']} of {result['model']}"}
    if result["skipped"] == result["batches"]:
        lines["note"] = "nothing was left to do; --again takes the same batches again"
    unnamed = [str(each["name"]) for each in result["taken_in"] if each["by"] in ("agent", "recovered")]
    shown = ["--images", "seen"] if unnamed else []
    lines["next"] = shlex.join(["shels", "inspect", result["model"], *shown])
    print_facts(lines)
