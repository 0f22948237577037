from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from shels.agent.agent import OpenWorldAgent, Request, Supply
from shels.agent.alarm import FalseAlarmRate, PresetShare
from shels.agent.evaluation import (
    Accuracy,
    EvaluatedBatch,
    EvaluatedRun,
    Group,
    RecordingOracle,
    evaluate_run,
)
from shels.config import AcceptShare, Adam, NetworkSettings, Settings, TrainingSettings
from shels.data.streams import StreamBatch, paper_stream
from shels.errors import DataError
from shels.learner.learner import learn
from shels.report import open_world
from shels.report.charts import run
from shels.report.charts.run import Moment, final_bars, moments, timeline
from shels.report.charts.run import timeline_without_accuracy as without_accuracy
from shels.report.words import percent, prose
from tests.report.test_report import Reader, assert_sound, blobs

SETTINGS = Settings(
    network=NetworkSettings(),
    training=TrainingSettings(optimiser=Adam(3e-3), steps=120, check_every=40, batch_size=32),
    rule=AcceptShare(0.95),
)
KNOWN, NEW = ("a", "b", "c"), ("d", "<e>")
SHAPE = (1, 6, 6)


def plain(text):
    return text.replace("\N{NO-BREAK SPACE}", " ")


def step(labels="aabb", judged=(0, 0, 0, 0), *, known="ab", groups=(), outcome="", after=None):
    novel = torch.tensor(judged, dtype=torch.bool)
    share = float(novel.double().mean())
    batch = StreamBatch("x", torch.zeros(len(labels), 1, 4, 4), tuple(labels))
    before = Accuracy(0.75, 0.0, "c") if "c" in labels else Accuracy(1.0)
    return EvaluatedBatch(
        batch, tuple(labels), novel, 0.5, share >= 0.5, tuple(known), outcome, groups, before, after or before
    )


def evaluated(*steps):
    return EvaluatedRun(("a", "b"), steps, None, FalseAlarmRate(), 0.9, {"a": 1.0, "b": 0.9, "c": 0.8}, 0.85)


FOUND = step(
    "cccb",
    (1, 1, 1, 0),
    groups=(Group("c", "c", 1.0, 3, 40, 0.012),),
    outcome="accommodated",
    after=Accuracy(0.95, 0.8, "c"),
)
UNDECIDED = step("aabb", (1, 1, 0, 0), known="abc", outcome="undecided")
TAKEN_FOR_NEW = step("aabc", (1, 1, 0, 0), groups=(Group("novel-1", "a", 1.0, 2),), outcome="declined")


# What came of it ---------------------------------------------------------------------------------------


def test_a_witness_tells_what_most_images_show_and_how_many():
    samples = blobs(KNOWN, shape=SHAPE)
    oracle = RecordingOracle(samples)
    some = torch.cat([samples.only(["b"]).inputs[:3], samples.only(["a"]).inputs[:1]])
    assert oracle.of(some) == ("b", 0.75)
    assert oracle(Request("7", "novel-1", some, 1.0))
    assert torch.equal(oracle.requests["7"], some)


@pytest.mark.parametrize(
    ("given", "false"),
    [
        (step(), False),  # no alarm
        (FOUND, False),
        (UNDECIDED, True),  # an alarm, and all of it is known
        (replace(FOUND, groups=(), decision="undecided"), False),  # nothing came of it, but it was right
        (TAKEN_FOR_NEW, True),  # something new was in it, and a known class was taken for it
        (replace(TAKEN_FOR_NEW, groups=(*TAKEN_FOR_NEW.groups, *FOUND.groups)), False),
    ],
)
def test_an_alarm_is_false_without_anything_new_or_where_only_known_classes_were_made_of_it(given, false):
    assert given.false_alarm is false


def test_a_course_tells_what_was_found_and_missed_and_counts_false_alarms():
    late = step("eecc", (1, 1, 0, 0), known="abc", outcome="undecided")
    whole = evaluated(step(), FOUND, UNDECIDED, TAKEN_FOR_NEW, late)
    assert (whole.found, whole.missed, whole.false_alarms) == (["c"], ["e"], 2)


@pytest.fixture(scope="module")
def learner():
    return learn(blobs(KNOWN, each=60, shape=SHAPE), SETTINGS, seed=0, device="cpu")


def pools():
    """Samples of all classes to learn from, and others to show."""
    return (blobs((*KNOWN, *NEW), each=60, seed=seed, shape=SHAPE) for seed in (3, 4))


def followed(learner, supplier=None):
    shown = list(pools())[1]
    oracle = RecordingOracle(shown)
    agent = OpenWorldAgent(learner, supplier=supplier(oracle) if supplier else None, confirm=oracle)
    stream = paper_stream(shown, KNOWN, NEW, batch_size=50, seed=0, known_epochs=1)
    return evaluate_run(agent, stream, shown, oracle)


def more_of_it(oracle):
    train = next(pools())

    def supplier(request):
        name = oracle.of(request.inputs).name
        return Supply(train.only([name]).inputs, name)

    return supplier


@pytest.fixture(scope="module")
def helped(learner):
    return followed(learner, more_of_it)


def test_accuracy_falls_when_a_class_comes_and_rises_when_it_is_learned(helped):
    assert helped.found == list(NEW)
    assert [step.new for step in helped.steps] == [(), ("d",), (), ("<e>",), ()]
    first, second = helped.steps[1], helped.steps[3]
    assert first.before == Accuracy(pytest.approx(0.75, abs=0.02), 0.0, "d")  # 3 of 4 classes are known
    assert second.before == Accuracy(pytest.approx(0.8, abs=0.02), 0.0, "<e>")
    assert min(first.after.overall, second.after.overall, second.after.newest) > 0.95
    assert helped.steps[0].before.name is None
    assert helped.steps[0].after is helped.steps[0].before


def test_the_agent_that_was_followed_ends_with_the_accuracy_that_counting_gives(helped):
    shown = list(pools())[1]
    names = [helped.learner.classes[i] for i in helped.learner.judge(shown.inputs).predicted]
    truth = [shown.classes[i] for i in shown.labels]
    right = sum(name == other for name, other in zip(names, truth, strict=True))
    assert helped.accuracy == pytest.approx(right / len(truth))
    assert helped.accuracy == pytest.approx(sum(helped.right.values()) / 5)  # classes of one size
    assert helped.accepted_and_right <= helped.accuracy


def test_a_class_that_nobody_supplies_is_missed_and_counts_as_wrong(learner):
    found = followed(learner, lambda _: lambda _: None)
    assert (found.found, found.missed, found.false_alarms) == ([], list(NEW), 0)
    assert [step.decision for step in found.steps if step.batch.phase == "novel"] == ["declined", "declined"]
    assert (found.right["d"], found.right["<e>"]) == (0.0, 0.0)
    assert found.accuracy == pytest.approx(0.6, abs=0.02)


def test_a_batch_without_labels_cannot_be_measured(learner):
    batch = StreamBatch("nameless", next(pools()).inputs[:9])
    with pytest.raises(DataError, match="nameless: nothing can be measured"):
        evaluate_run(OpenWorldAgent(learner), [batch], next(pools()), RecordingOracle(next(pools())))


# On the page -------------------------------------------------------------------------------------------


def test_the_axis_of_time_has_every_batch_and_the_learning_after_it():
    found, undecided = evaluated(FOUND, UNDECIDED), evaluated(replace(FOUND, groups=(), decision="drift"))
    batch, learning, after = moments(found)
    assert batch == Moment("novel", "1", 0.75, 0.5, "alarm: c", Accuracy(0.75, 0.0, "c"))
    assert learning == Moment("learning", note="learns c", accuracy=Accuracy(0.95, 0.8, "c"))
    assert (after.phase, after.note, after.accuracy) == ("known", "false alarm", Accuracy(1.0))
    assert [moment.note for moment in moments(undecided)] == ["alarm: drift"]
    again = moments(evaluated(FOUND, FOUND))
    assert [moment.phase for moment in again] == [
        "novel",
        "learning",
        "known",
        "learning",
    ]  # met, if not known
    assert list(moments(found, accuracy=False))[1] == Moment("learning", note="learns c")


def test_the_figure_over_time_marks_alarms_and_draws_accuracy_only_where_it_was_measured():
    (whole,) = timeline(evaluated(step(), FOUND, UNDECIDED))
    words = Reader(whole.svg()).text
    for expected in ("alarm: c", "learns c", "false alarm", "alarm line", "accuracy, newest class"):
        assert expected in words
    (part,) = without_accuracy(evaluated(step(), FOUND))
    assert "accuracy" not in Reader(part.svg()).text
    assert "learning" in Reader(part.svg()).text
    assert whole.alt.count(".") == part.alt.count(".") == 1  # one sentence: the table below has the numbers


def test_a_threshold_that_no_batch_can_reach_is_drawn_inside_the_figure():
    drawn = []

    class Axes:
        def __getattr__(self, name):
            return lambda *values, **_: drawn.append((name, values))

    run._confidence(Axes(), [Moment("known", "1", 0.5, 1.5), Moment("known", "2", 0.5, 0.6)])
    assert [values[0] for name, values in drawn if name == "hlines"] == [104, 60]  # of an axis up to 128


def test_the_bars_at_the_end_name_first_and_later_classes_each_with_its_share():
    (figure,) = final_bars(evaluated(FOUND))
    words = plain(Reader(figure.svg()).text)
    assert "classes of the first training: share named rightly" in words
    assert "classes learned later: share named rightly" in words
    assert all(share in words for share in ("100.0 %", "90.0 %", "80.0 %"))
    first = replace(evaluated(), right={"a": 1.0, "b": 0.9})
    assert "learned later: share" not in Reader(final_bars(first)[0].svg()).text


def test_the_table_has_a_row_for_each_batch_and_each_further_class():
    two = replace(FOUND, groups=(*FOUND.groups, Group("f", "f", 1.0, 3, 1200, 0.5)))
    rows = [
        [plain(cell) if isinstance(cell, str) else cell for cell in row] for row in open_world._rows(7, two)
    ]
    assert rows == [
        ["7", "1 known, new: c", 4, 0.75, 0.5, "yes", "c", "40 images", "12 ms"],
        ["7", "", "", "", "", "", "f", "1,200 images", "500 ms"],
    ]
    assert open_world._rows(1, step())[0][5:] == ["", "", "", ""]
    assert open_world._rows(1, UNDECIDED)[0][5:] == ["false", "undecided", "", ""]


def test_the_rule_of_the_alarm_is_said_as_it_is():
    assert "once in 500 times" in prose("watched", batches=3, rule=FalseAlarmRate(0.002))
    assert "more than 75 % of the batch" in plain(prose("watched", batches=3, rule=PresetShare(0.75)))


def test_the_page_is_sound_and_its_figures_are_those_of_the_courses(learner, helped, tmp_path):
    shown = list(pools())[1]
    known, novel = shown.only(KNOWN), shown.only(NEW)
    alone = followed(learner)
    path = tmp_path / "page.html"
    open_world.write(
        path,
        learner=learner,
        known=known,
        novel=novel,
        measures=learner.evaluate(known, novel),
        helped=helped,
        alone=alone,
        title="A title",
        lead="A lead",
    )
    page = assert_sound(path.read_text("utf-8"))
    text = plain(page.text)
    assert "2 of 2 new classes found" in text or "new classes found 2 of 2" in text
    assert f"Of all test images {plain(percent(helped.accuracy))} are named rightly" in text
    assert text.count("learned as <e>") == 1
    assert {"d", "<e>"} <= {attrs["alt"] for attrs in page.all("img")}
    assert all(group.name in text for step in alone.steps for group in step.learned)
    assert len(page.all("svg")) == 7


def test_vectors_have_no_pictures_and_a_course_without_groups_says_so():
    vectors = replace(FOUND, batch=StreamBatch("x", torch.zeros(4, 3), FOUND.labels))
    assert open_world._pictures(evaluated(vectors)) == []
    assert open_world._pictures(evaluated(step())) == []
    assert "no group" in open_world._alone(evaluated(step(), UNDECIDED))[-1]
