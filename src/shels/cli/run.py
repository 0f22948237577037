"""`shels run`: let a model live among batches, find what is new and learn it."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shels.agent.alarm import AlarmRule, FalseAlarmRate, PresetShare
from shels.agent.home import BATCH
from shels.cli import options
from shels.cli.display import StreamDisplay, listed, percent, print_json, say
from shels.cli.settings import one_of
from shels.cli.story import HEADINGS, Story, Told, batch_line, events_by_batch, of_batch
from shels.errors import DataError, SettingsError

if TYPE_CHECKING:
    from shels.agent.agent import AgentSettings, OpenWorldAgent
    from shels.agent.home import Home
    from shels.cli.world import Asked, World
    from shels.data.streams import StreamBatch

EXAMPLES = """[bold]Examples[/bold]

shels run m digits
shels run m digits --protocol mixed --batches 12 --seed 1
shels run m batches/ --confirm
shels run m night.npz --batch-size 100 --alarm-share 0.3
shels run m digits --detector knn --learner gaussian

Cut off at any moment, the same command goes on where it was."""

_SETS, _ALARM, _NEW = "Data sets as streams", "When to stop and look", "What to make of it"
_PAIR = "Learner and detector (as the model was trained, unless given)"


def _option(flag: str, text: str, panel: str, metavar: str | None = None) -> Any:
    return typer.Option(flag, metavar=metavar, help=text, rich_help_panel=panel, show_default=False)


Stream = Annotated[
    str,
    typer.Argument(
        metavar="STREAM",
        help="A folder of batches (.npz files or folders of images), an .npz file with x, or a data set.",
    ),
]
Protocol = Annotated[
    str | None, _option("--protocol", "How new classes come; default: paper.", _SETS, "paper|mixed")
]
Batches = Annotated[int | None, _option("--batches", "Length of a mixed stream.", _SETS, "N")]
BatchSize = Annotated[
    int, typer.Option("--batch-size", metavar="N", help="Samples in a batch, of a data set or an .npz file.")
]
Probability = Annotated[
    float | None,
    _option("--alarm-probability", "Chance that a known batch alarms; default: 0.001.", _ALARM, "P"),
]
Share = Annotated[
    float | None, _option("--alarm-share", "Alarm where more than this is novel, such as 0.3.", _ALARM, "S")
]
OneClass = Annotated[bool, _option("--one-class", "All that is novel in a batch is one class.", _NEW)]
NoDrift = Annotated[bool, _option("--no-drift", "Do not look for blur, darkness or noise.", _NEW)]
Confirm = Annotated[bool, _option("--confirm", "Ask before a class is taken in: y, n or its name.", _NEW)]
Learner = Annotated[
    str | None, _option("--learner", "How classes are taken in; see shels methods.", _PAIR, "NAME")
]
Detector = Annotated[
    str | None, _option("--detector", "What tells novel samples; see shels methods.", _PAIR, "NAME")
]
Again = Annotated[bool, typer.Option("--again", help="Take batches again that an earlier run has finished.")]


def run(  # noqa: PLR0913 - a parameter for each option
    model: options.Model,
    stream: Stream,
    *,
    batch_size: BatchSize = 500,
    again: Again = False,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    data_dir: options.DataDir = None,
    as_json: options.Json = False,
    protocol: Protocol = None,
    batches: Batches = None,
    alarm_probability: Probability = None,
    alarm_share: Share = None,
    one_class: OneClass = False,
    no_drift: NoDrift = False,
    confirm: Confirm = False,
    learner: Learner = None,
    detector: Detector = None,
) -> None:
    """Watch a stream, find what is new in it and learn it.

    Of a data set, the stream is made from the test part, and the training part
    answers when the model asks for more of what it saw. Otherwise it learns
    from what it saw, under names such as novel-1.
    """
    one_of("protocol", protocol, ("paper", "mixed"))
    rule = _rule(alarm_probability, alarm_share)
    from shels.agent.agent import AgentSettings  # noqa: PLC0415
    from shels.agent.proposals import ProposalSettings  # noqa: PLC0415
    from shels.cli.world import Asked  # noqa: PLC0415

    asked = Asked(stream, protocol, batch_size, batches, seed)
    settings = AgentSettings(rule, ProposalSettings(several=not one_class, drift=not no_drift))
    course = Course(model, asked, settings, device, again=again, quiet=as_json, confirm=confirm)
    result = course.run(data_dir, learner, detector)
    if as_json:
        print_json(result)
    else:
        _show(result)


def _rule(probability: float | None, share: float | None) -> AlarmRule:
    options.exclude({"--alarm-probability": probability}, {"--alarm-share": share})
    try:
        if share is not None:
            return PresetShare(share)
        return FalseAlarmRate() if probability is None else FalseAlarmRate(probability)
    except SettingsError as error:
        flag = "--alarm-share" if probability is None else "--alarm-probability"
        raise SettingsError(f"{flag}: {error}") from error


class Course:
    """One run of an agent over a stream, shown as it goes."""

    def __init__(
        self,
        model: Path,
        asked: Asked,
        settings: AgentSettings,
        device: str,
        *,
        again: bool,
        quiet: bool,
        confirm: bool,
    ) -> None:
        self.model = model
        self.asked = asked
        self.settings = settings
        self.device = device
        self.again = again
        self.confirm = confirm
        self.display = StreamDisplay(f"{model} on {asked.stream}", quiet=quiet)

    def run(self, data_dir: Path | None, learner: str | None, detector: str | None) -> dict[str, Any]:
        """Return what happened; what cannot be a model, a pair or a stream is refused before any change."""
        from shels.agent.home import Home  # noqa: PLC0415
        from shels.cli import refit  # noqa: PLC0415
        from shels.cli import world as worlds  # noqa: PLC0415
        from shels.cli.inputs import load_learner  # noqa: PLC0415

        home = Home(self.model)
        log, version = [] if self.again else home.events(), home.version if home.exists else None
        known = load_learner(self.model, self.device)
        wanted = refit.refit(known, learner, detector, self.asked.stream)
        world = worlds.world(self.asked, known, data_dir, log)
        world.batches()
        fitted = None if wanted is None else wanted.fitted(world.data)
        with home.lock(), self.display:
            if fitted is not None:
                refit.require_unchanged(home, version)
            home.adopt()
            if fitted is not None:
                say(f"note: refitted on the model's network, as version {refit.commit(home, fitted)}")
            return self._live(home, world)

    def _live(self, home: Home, world: World) -> dict[str, Any]:
        from shels.agent.agent import OpenWorldAgent  # noqa: PLC0415
        from shels.cli.world import Person, Supplies  # noqa: PLC0415
        from shels.learner.pairing import told  # noqa: PLC0415

        agent = OpenWorldAgent(
            home.load(self.device), home=home, settings=self.settings, seed=self.asked.seed
        )
        oracle = Supplies(world.data, lambda: agent.learner.classes) if world.data is not None else None
        agent.supplier = oracle
        home.record({"kind": "started", "batch": "", **world.facts})
        story = Story(world.split)
        try:
            with tempfile.TemporaryDirectory(prefix="shels-") as folder:
                if self.confirm:
                    person = Person(agent, self.display, Path(folder), oracle)
                    agent.confirm, agent.supplier = person.confirm, person.supply
                self._watch(agent, home, world, story)
        except KeyboardInterrupt:
            self.display.close()
            say(
                f"interrupted: {story.batches} batches are done, version {home.version} is in use and whole; "
                "the same command goes on from there"
            )
            raise typer.Exit(1) from None
        known = {"model": str(self.model), "stream": self.asked.stream, "protocol": world.asked.protocol}
        known |= told(agent.learner.settings)
        found = {"classes": list(agent.learner.classes), "version": home.version}
        return known | story.result() | _accuracy(agent, world) | found

    def _watch(self, agent: OpenWorldAgent, home: Home, world: World, story: Story) -> None:
        """Take the agent through the batches that are not done yet."""
        from shels.agent.agent import batch_key  # noqa: PLC0415

        before, cut_off = events_by_batch([] if self.again else home.events())
        waiting = [held["inputs"] for name, held in home.buffered().items() if name.startswith(BATCH)]
        like = waiting[0] if waiting else None
        for batch in world.batches():
            events = before.get(batch_key(batch))
            if events is None:
                like = _checked(agent, batch, like)
                if story.skipped == story.batches:
                    self._head(story.skipped)
                events = [*of_batch(cut_off, batch.name), *self._observe(agent, batch, story)]
                cut_off = []
            else:
                story.skipped += 1
            story.add(batch, events)
            self._foot(agent, story)

    def _observe(self, agent: OpenWorldAgent, batch: StreamBatch, story: Story) -> list[Told]:
        events: list[Told] = []
        self._foot(agent, story, f"looking at {batch.name}")
        for event in agent.observe(batch):
            if event.kind == "accommodating":
                steps = f", step {event['step']}/{event['steps']}" if event["steps"] else ""
                self._foot(agent, story, f"learning {event['name']}{steps}")
            events.append({"kind": event.kind, "batch": batch.name, **event.facts})
        self.display.line(batch_line(events), stands_out=len(events) > 1)
        if events[0]["threshold"] > 1 and not story.never:
            say(f"note: {batch.name} is too small to raise an alarm; give larger batches, or --alarm-share")
        return events

    def _head(self, skipped: int) -> None:
        if skipped:
            self.display.line(f"going on after {skipped} batches that are done")
        self.display.line(HEADINGS)

    def _foot(self, agent: OpenWorldAgent, story: Story, now: str = "") -> None:
        counts = f"{story.batches} batches, {story.alarms} alarms, version {agent.model.version}"
        self.display.foot(f"classes  {listed(agent.learner.classes)}\n{counts}\n{now}")


def _checked(agent: OpenWorldAgent, batch: StreamBatch, like: Any) -> Any:
    """Return a batch's inputs if the model can take them, and if they can be laid beside earlier ones."""
    try:
        agent.learner.preparation.check(batch.inputs)
    except DataError as error:
        raise DataError(f"{batch.name}: {error}") from error
    forms = [(tuple(x.shape[1:]), str(x.dtype)) for x in (batch.inputs, like) if x is not None]
    if len(set(forms)) > 1:
        raise DataError(
            f"{batch.name} holds {forms[0]}, the batches before {forms[1]}; bring all to one form"
        )
    return batch.inputs


def _accuracy(agent: OpenWorldAgent, world: World) -> dict[str, Any]:
    """Return how well the classes that are known in the end are told apart, where the truth is known."""
    from shels.data.splits import divide  # noqa: PLC0415

    if world.data is None:
        return {}
    known, _ = divide(world.data.test, agent.learner.classes)
    return {"final_accuracy": agent.learner.evaluate(known)["closed_set_accuracy"]}


def _show(result: dict[str, Any]) -> None:
    skipped = f", {result['skipped']} of them done before" * bool(result["skipped"])
    lines = {"method": result["method"], "batches": f"{result['batches']}{skipped}"}
    lines["alarms"] = str(result["alarms"])
    lines["taken in"] = listed(each["name"] for each in result["taken_in"]) or "nothing"
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
    for name, text in lines.items():
        typer.echo(f"{name:<13}{text}")
