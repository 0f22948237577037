"""The page on an open-world run: what an agent met, batch by batch, what it noticed and what it learned."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shels.agent.evaluation import EvaluatedBatch, EvaluatedRun, Group
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
    end: list[Block] = [prose("run_end", run=helped), *charts.drawn(charts.RUN, "end", helped)]
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


def _facts(run: EvaluatedRun) -> list[tuple[str, str]]:
    known_batches = sum(not step.new for step in run.steps)
    seconds = [group.seconds for step in run.steps for group in step.learned]
    facts = [
        ("new classes found", f"{len(run.found)} of {len(run.found) + len(run.missed)}"),
        (f"false alarms in {count(known_batches, 'batch')} of known classes", str(run.false_alarms)),
        ("of all test images named rightly at the end", percent(run.accuracy)),
    ]
    if seconds:
        facts.append(("to learn a class, at most", _milliseconds(max(seconds))))
    return facts


def _table(run: EvaluatedRun) -> Table:
    columns = ("Batch", "Held", "Images", "Judged novel", "Alarm from", "Alarm", "Learned", "From", "Time")
    return Table(columns, [row for number, step in enumerate(run.steps, 1) for row in _rows(number, step)])


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


def _pictures(run: EvaluatedRun) -> list[Section]:
    alarms = [(number, step) for number, step in enumerate(run.steps, 1) if step.alarm]
    if not alarms or run.steps[0].batch.inputs.ndim != 4:
        return []
    galleries = [_gallery(*pair) for pair in alarms]
    return [Section("What was called novel", [prose("called_novel"), *galleries])]


def _gallery(number: int, step: EvaluatedBatch) -> Gallery:
    positions = step.novel.nonzero()[:, 0].tolist()
    end = f"learned as {comma(group.name for group in step.learned)}" if step.learned else step.decision
    title = f"Batch {number}, {'a false alarm, ' if step.false_alarm else ''}{end}"
    note = f"{len(positions)} of {len(step.batch)} judged novel"
    return gallery(title, note, step.batch.inputs, positions, lambda place: (str(step.labels[place]),))


# Without help -------------------------------------------------------------------------------------------


def _alone(run: EvaluatedRun) -> list[Block]:
    words = prose("alone", batches=len(run.steps))
    blocks: list[Block] = [words, *charts.drawn(charts.RUN, "batches without help", run)]
    rows: list[list[Cell]] = [
        [str(group.name), str(number), group.seen, str(group.truth), group.purity]
        for number, step in enumerate(run.steps, 1)
        for group in step.learned
    ]
    if not rows:
        return [*blocks, "It found no group that it could have learned."]
    table = Table(("Learned as", "Batch", "From images", "Mostly", "Of that class"), rows)
    return [*blocks, table, prose("alone_end", run=run)]
