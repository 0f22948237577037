"""The page on an open-world run: what an agent met, batch by batch, what it noticed and what it learned."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

<<<<<<< HEAD
from shels.agent.alarm import AlarmRule, PresetShare
from shels.agent.evaluation import EvaluatedBatch, EvaluatedRun, Group
=======
from shels.agent.measured import Course, Group, Step
>>>>>>> s3
from shels.data.samples import Samples
from shels.files import write_whole
from shels.learner.learner import Learner
from shels.learning.registry import method_of
from shels.report import charts, detection, trained
from shels.report.evaluation import evaluate
from shels.report.page import Block, Cell, Gallery, Page, Section, Table, gallery, html
from shels.report.words import comma, count, percent, prose


def write(
    path: Path,
    *,
    learner: Learner,
    known: Samples,
    novel: Samples,
    measures: Mapping[str, Any],
    helped: EvaluatedRun,
    alone: EvaluatedRun,
    title: str,
    lead: str,
) -> None:
    """Write the page on a learner and two runs of an agent that began with it.

    measures: of the learner on the known and the novel samples, before the first batch. helped: somebody
    gave more images of what was seen; alone: nobody did. lead: the sentence below the title.
    """
    shown = evaluate(learner, known, novel, measures)
    batches: list[Block] = [
        prose("watched", batches=len(helped.steps), rule=helped.rule),
        prose("helped", method=method_of(learner.settings.accommodation)),
        *charts.drawn(charts.RUN, "batches", helped),
        _table(helped),
    ]
    end: list[Block] = [prose("run_end", course=helped), *charts.drawn(charts.RUN, "end", helped)]
    sections = [
        Section("What happened, batch by batch", batches),
        *_pictures(helped),
        Section("Class by class, at the end", end),
        Section("When nobody helps", _alone(alone)),
        trained.training(learner),
        detection.separation(shown, "Known or novel, before the first batch"),
        *trained.inside(shown),
    ]
    page = Page(title, lead, sections, _facts(helped), trained.details(learner), trained.footer())
    write_whole(path, html(page))


# Batch by batch ----------------------------------------------------------------------------------------


def _facts(course: EvaluatedRun) -> list[tuple[str, str]]:
    known_batches = sum(not step.new for step in course.steps)
    seconds = [group.seconds for step in course.steps for group in step.learned]
    facts = [
        ("new classes found", f"{len(course.found)} of {len(course.found) + len(course.missed)}"),
        (f"false alarms in {count(known_batches, 'batch')} of known classes", str(course.false_alarms)),
        ("of all test images named rightly at the end", percent(course.accuracy)),
    ]
    if seconds:
        facts.append(("to learn a class, at most", _milliseconds(max(seconds))))
    return facts


<<<<<<< HEAD
def _batches(course: EvaluatedRun, learner: Learner) -> list[Block]:
    watched = (
        f"The agent was shown {count(len(course.steps), 'batch')} of test images. It was told neither what "
        "they held nor where anything new began; it judged each image by itself, known or novel. Some images "
        "of known classes are always taken for novel, so a batch raises an alarm only where there are more "
        f"than that. {_alarm_rule(course.rule)}"
    )
    learned = (
        "After an alarm the agent sorts out what is new and asks for more of it. Here it was given the "
        f"training images of that class and its name. It learns them {_way(learner)}, and goes on watching."
    )
    return [watched, learned, *charts.drawn(charts.RUN, "batches", course), _table(course)]


def _way(learner: Learner) -> str:
    """Say how a class is learned: by training or not, and with what of the classes before."""
    method = method_of(learner.settings.accommodation)
    single = "in a single pass, without a training step"
    how = single if method.frozen_features else "by training the network"
    kept = "with images that it kept" if method.stores == "old data" else "without any image"
    return f"{how} and {kept} of the classes before"


def _alarm_rule(rule: AlarmRule) -> str:
    if isinstance(rule, PresetShare):
        return f"The line was drawn beforehand: more than {percent(rule.share, 0)} of the batch."
    return (
        "The line is drawn by the images that were held out of the training: if new images are like them, a "
        f"batch of known classes alone reaches it once in {round(1 / rule.probability):,} times at most."
    )


def _table(course: EvaluatedRun) -> Table:
=======
def _table(course: Course) -> Table:
>>>>>>> s3
    columns = ("Batch", "Held", "Images", "Judged novel", "Alarm from", "Alarm", "Learned", "From", "Time")
    return Table(columns, [row for number, step in enumerate(course.steps, 1) for row in _rows(number, step)])


def _rows(number: int, step: EvaluatedBatch) -> list[list[Cell]]:
    """Make a row for a batch, and one for each further class that was learned from it."""
    first: list[Cell] = [str(number), _held(step), len(step.batch), step.share, step.threshold]
    if not step.alarm:
        return [[*first, "", "", "", ""]]
    first.append("false" if step.false_alarm else "yes")
    more: list[Cell] = [str(number), "", "", "", "", ""]
    cells = [_learned_cells(step, group) for group in step.groups or (None,)]
    return [[*(more if place else first), *each] for place, each in enumerate(cells)]


def _learned_cells(step: EvaluatedBatch, group: Group | None) -> list[Cell]:
    if group is None or not group.learned:
        return [step.decision, "", ""]
    images = count(group.images, "image").replace(" ", "\N{NO-BREAK SPACE}")
    return [str(group.name), images, _milliseconds(group.seconds)]


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.0f}\N{NO-BREAK SPACE}ms"


def _held(step: EvaluatedBatch) -> str:
    old = len(set(step.labels) - set(step.new))
    known = [f"{old}\N{NO-BREAK SPACE}known"] if old or not step.new else []
    return comma(known + [f"new:\N{NO-BREAK SPACE}{comma(step.new)}"] * bool(step.new))


# What was called novel, and how it ended ----------------------------------------------------------------


def _pictures(course: EvaluatedRun) -> list[Section]:
    alarms = [(number, step) for number, step in enumerate(course.steps, 1) if step.alarm]
    if not alarms or course.steps[0].batch.inputs.ndim != 4:
        return []
    galleries = [_gallery(*pair) for pair in alarms]
    return [Section("What was called novel", [prose("called_novel"), *galleries])]


def _gallery(number: int, step: EvaluatedBatch) -> Gallery:
    positions = step.novel.nonzero()[:, 0].tolist()
    end = f"learned as {comma(group.name for group in step.learned)}" if step.learned else step.decision
    title = f"Batch {number}, {'a false alarm, ' if step.false_alarm else ''}{end}"
    note = f"{len(positions)} of {len(step.batch)} judged novel"
    return gallery(title, note, step.batch.inputs, positions, lambda place: (str(step.labels[place]),))


<<<<<<< HEAD
def _end(course: EvaluatedRun) -> list[Block]:
    words = (
        f"Of all test images {percent(course.accuracy)} are named rightly where none is rejected. With "
        f"rejection, {percent(course.accepted_and_right)} are accepted and named rightly: that is the price "
        "of staying able to notice the next class."
    )
    if course.missed:
        words += f" What was never found ({comma(course.missed)}) counts as wrong throughout."
    return [words, *charts.drawn(charts.RUN, "end", course)]


# Without help -------------------------------------------------------------------------------------------


def _alone(course: EvaluatedRun) -> list[Block]:
    words = (
        f"The same first learner, on its own, in a harder world: {count(len(course.steps), 'batch')}, each a "
        "mix; new classes appear at random times among known ones, two of them at once. Nobody answers, so "
        "it divides what looks new into groups and learns each from the very images that it saw, under a "
        "name of its own, until a person gives it a better one."
    )
=======
# Without help -------------------------------------------------------------------------------------------


def _alone(course: Course) -> list[Block]:
    words = prose("alone", batches=len(course.steps))
>>>>>>> s3
    blocks: list[Block] = [words, *charts.drawn(charts.RUN, "batches without help", course)]
    rows: list[list[Cell]] = [
        [str(group.name), str(number), group.seen, str(group.truth), group.purity]
        for number, step in enumerate(course.steps, 1)
        for group in step.learned
    ]
    if not rows:
        return [*blocks, "It found no group that it could have learned."]
    table = Table(("Learned as", "Batch", "From images", "Mostly", "Of that class"), rows)
<<<<<<< HEAD
    return [*blocks, table, _final_words(course)]


def _final_words(course: EvaluatedRun) -> str:
    if course.missed:
        end = f"No group stands for {comma(course.missed)}, which counts as wrong here. "
    else:
        end = "Every new class has a group. "
    false = f"False alarms: {course.false_alarms}. " if course.false_alarms else ""
    return (
        f"{end}{false}Once a person has named each group after the class that it mostly shows, "
        f"{percent(course.accuracy)} of the test images that it did not learn from are named rightly."
    )
=======
    return [*blocks, table, prose("alone_end", course=course)]
>>>>>>> s3
