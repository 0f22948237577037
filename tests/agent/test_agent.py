from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from shels.agent.agent import OpenWorldAgent, Request, Supply, batch_key
from shels.agent.alarm import PresetShare, alarm_count
from shels.agent.events import Event
from shels.agent.home import Home
from shels.agent.observation import (
    AgentSettings,
    Proposal,
    ProposalSettings,
    false_alarms,
    observe,
    observed,
    propose,
)
from shels.agent.opened_stream import StreamSpec, open_stream
from shels.agent.oracle import Oracle, Truths
from shels.config import AcceptShare, MeanMinusSd, Penalty
from shels.data.samples import fingerprints
from shels.data.streams import StreamBatch, paper_stream
from shels.errors import DataError, ModelFileError
from shels.training import Progress

KNOWN, NOVEL = (0, 1, 2, 3), (6, 7)
LEARNED = ["observed", "alarm", "accommodating", "accommodated", "resumed"]


def of(samples, *names):
    return samples.only(names).inputs


def stream(data, known_epochs=1):
    return paper_stream(data.test, KNOWN, NOVEL, batch_size=60, seed=0, known_epochs=known_epochs)


def with_oracle(learner, data, **options):
    agent = OpenWorldAgent(learner, **options)
    agent.supplier = Oracle(Truths(data.test), data.train, lambda: agent.learner.classes)
    return agent


def kinds(events):
    return [event.kind for event in events]


def facts_of(events):
    """What events say, less how long it took."""
    return [(e.kind, e.batch, {k: v for k, v in e.facts.items() if k != "seconds"}) for e in events]


def same_knowledge(first, second, inputs):
    one, two = first.judge(inputs), second.judge(inputs)
    alike = all(torch.equal(getattr(one, n), getattr(two, n)) for n in ("predicted", "score", "threshold"))
    return alike and first.classes == second.classes


@pytest.fixture(scope="module")
def uninterrupted(learner, data, tmp_path_factory):
    """(events, learner, home) of a run that nothing disturbed."""
    home = Home(tmp_path_factory.mktemp("uninterrupted") / "home")
    home.begin(learner)
    agent = with_oracle(learner, data, home=home)
    return list(agent.run(stream(data))), agent.learner, home


# The loop -------------------------------------------------------------------------------------------------


def test_the_papers_stream_gives_exactly_these_events(learner, data):
    agent = with_oracle(learner, data)
    events = list(agent.run(stream(data, known_epochs=3)))
    assert kinds(events) == (["observed"] * 3 + LEARNED) * 2 + ["observed"] * 3
    names = [f"paper-0-{number:04d}" for number in range(1, 12)]
    assert list(dict.fromkeys(event.batch for event in events)) == names
    assert [event["alarm"] for event in events if event.kind == "observed"] == ([False] * 3 + [True]) * 2 + [
        False
    ] * 3
    assert [event["name"] for event in events if event.kind == "accommodated"] == [6, 7]
    assert [event["classes"] for event in events if event.kind == "resumed"] == [
        [0, 1, 2, 3, 6],
        [0, 1, 2, 3, 6, 7],
    ]
    test = data.test.only(agent.learner.classes)
    right = agent.learner.judge(test.inputs).predicted == test.labels
    assert right.float().mean() > 0.95


def test_what_the_events_of_a_novel_batch_say(learner, data):
    batch = StreamBatch("b", of(data.test, 6))
    agent = with_oracle(learner, data)
    seen, alarm, accommodating, accommodated, resumed = agent.observe(batch)
    novel = int(learner.judge(batch.inputs).novel.sum())
    limit = alarm_count(AgentSettings().alarm, 54, 3, 60) / 54  # 60 held out, 1 in 20 rejected by design
    assert seen == Event(
        "observed", "b", {"size": 54, "novel": novel, "share": novel / 54, "threshold": limit, "alarm": True}
    )
    assert alarm == Event("alarm", "b", {"share": novel / 54, "threshold": limit})
    facts = dict(accommodating.facts)
    assert (facts.pop("step"), facts.pop("steps")) == (0, 0)
    assert facts.pop("purity") > 0.9
    assert 0.9 * novel <= facts.pop("seen") <= novel
    images = len(of(data.train, 6))
    assert facts.pop("request").startswith("b:")
    assert facts == {"name": 6, "images": images, "by": "oracle"}
    assert accommodated["version"] == 2
    assert accommodated["seconds"] >= 0
    assert resumed == Event("resumed", "b", {"classes": [0, 1, 2, 3, 6]})


def test_without_a_supplier_it_learns_from_what_it_saw_under_provisional_names(learner, data):
    agent = OpenWorldAgent(learner)
    events = list(agent.run(stream(data)))
    assert kinds(events) == ["observed", *LEARNED, "observed", *LEARNED, "observed"]
    assert agent.learner.classes == (*KNOWN, "novel-1", "novel-2")
    taken = [event for event in events if event.kind == "accommodated"]
    assert all(event["by"] == "agent" and event["images"] == event["seen"] for event in taken)


def test_two_new_classes_in_one_batch_are_taken_in_apart(learner, data):
    agent = with_oracle(learner, data)
    events = list(agent.observe(StreamBatch("both", of(data.test, 6, 7))))
    assert kinds(events) == [*LEARNED[:2], *LEARNED[2:4] * 2, "resumed"]
    assert set(agent.learner.classes) == {*KNOWN, 6, 7}
    requests = [event["request"] for event in events if event.kind == "accommodated"]
    assert len(set(requests)) == 2


def test_the_alarm_rule_of_the_settings_counts(learner, data):
    half = torch.cat([of(data.test, 6)[:30], of(data.test, 1)[:30]])
    strict = AgentSettings(alarm=PresetShare(0.75))
    assert kinds(OpenWorldAgent(learner, settings=strict).observe(StreamBatch("h", half))) == ["observed"]
    assert kinds(OpenWorldAgent(learner).observe(StreamBatch("h", half))) == LEARNED


def test_where_all_that_waits_is_no_class_the_batch_itself_may_be_one(learner, data, monkeypatch):
    """A class that lies among the known ones comes after images that stay undecided."""
    seen = []

    def among_known(*args, size=None, **options):
        seen.append((len(args[1]), size))
        if size is None:
            return Proposal(torch.full((len(args[1]),), -1), ())
        return propose(*args, size=size, **options)

    monkeypatch.setattr("shels.agent.agent.propose", among_known)
    agent = OpenWorldAgent(learner)
    eight, six = (of(data.test, name)[learner.judge(of(data.test, name)).novel] for name in (8, 6))
    assert "undecided" in kinds(agent.observe(StreamBatch("first", eight[:8])))
    events = list(agent.observe(StreamBatch("second", six)))
    assert kinds(events) == LEARNED
    assert seen == [(8, None), (8, 8), (8 + len(six), None), (len(six), len(six))]
    kept = agent.model.buffers.of_class("novel-1")
    assert len(kept) > 0.9 * len(six)
    assert set(fingerprints(kept)) <= set(fingerprints(six))
    assert not len(agent.model.buffers.waiting())


def test_too_few_alike_to_decide_are_kept_for_the_next_batch(learner, data, home):
    agent = OpenWorldAgent(learner, home=home)
    six = of(data.test, 6)[learner.judge(of(data.test, 6)).novel]
    first = list(agent.observe(StreamBatch("first", six[:8])))
    assert kinds(first) == ["observed", "alarm", "undecided", "resumed"]
    assert first[2]["images"] == 8
    assert [name.split(":")[0] for name in home.buffered()] == ["batch-first"]
    again = OpenWorldAgent(home.load("cpu"), home=home)
    second = list(again.observe(StreamBatch("second", six[8:16])))
    assert kinds(second) == LEARNED
    assert second[2]["images"] > 8
    assert list(home.buffered()) == ["taken-novel-1"]


def test_darkened_known_images_are_reported_as_drift_and_nothing_is_taken_in(learner, digits, home):
    agent = OpenWorldAgent(learner, home=home)
    events = list(agent.observe(StreamBatch("dark", digits[1].inputs // 4)))
    assert kinds(events) == ["observed", "alarm", "drift", "resumed"]
    assert events[2]["reason"] == "100% of the images look like no known image"
    assert events[2]["images"] == events[0]["novel"]
    assert agent.learner is learner
    assert home.versions() == [1]
    assert home.buffered() == {}


def test_with_drift_off_darkened_images_are_taken_in(learner, digits):
    settings = AgentSettings(proposals=ProposalSettings(several=False, drift=False))
    agent = OpenWorldAgent(learner, settings=settings)
    assert kinds(agent.observe(StreamBatch("dark", digits[1].inputs // 4))) == LEARNED


# Asking ---------------------------------------------------------------------------------------------------


def test_what_is_not_confirmed_is_declined_and_nobody_is_asked_for_images(learner, data, home):
    asked = []
    agent = OpenWorldAgent(learner, home=home, supplier=asked.append, confirm=lambda request: False)
    events = list(agent.observe(StreamBatch("b", of(data.test, 6))))
    assert kinds(events) == ["observed", "alarm", "declined", "resumed"]
    assert events[2]["reason"] == "not confirmed"
    assert events[2]["name"] == "novel-1"
    assert asked == []
    assert agent.learner is learner
    assert home.buffered() == {}


def test_what_is_confirmed_is_taken_in(learner, data):
    asked = []
    agent = OpenWorldAgent(learner, confirm=lambda request: not asked.append(request))
    assert kinds(agent.observe(StreamBatch("b", of(data.test, 6)))) == LEARNED
    (request,) = asked
    assert isinstance(request, Request)
    assert request.name == "novel-1"
    assert request.inputs.shape[1:] == (1, 8, 8)


def test_nothing_supplied_is_declined(learner, data):
    agent = OpenWorldAgent(learner, supplier=lambda request: None)
    events = list(agent.observe(StreamBatch("b", of(data.test, 6))))
    assert kinds(events) == ["observed", "alarm", "declined", "resumed"]
    assert events[2]["reason"] == "nothing supplied"
    assert agent.learner is learner


def test_too_few_images_supplied_are_declined(learner, data):
    agent = OpenWorldAgent(learner, supplier=lambda request: Supply(of(data.train, 6)[:4], "six"))
    events = list(agent.observe(StreamBatch("b", of(data.test, 6))))
    assert kinds(events) == ["observed", "alarm", "declined", "resumed"]
    assert events[2]["reason"] == "under 5 images"
    assert (events[2]["name"], events[2]["images"]) == ("six", 4)


def test_a_supplier_may_name_what_was_seen_without_more_images(learner, data):
    agent = OpenWorldAgent(learner, supplier=lambda request: Supply(name="six", by="Ada"))
    events = list(agent.observe(StreamBatch("b", of(data.test, 6))))
    assert (events[3]["name"], events[3]["by"]) == ("six", "Ada")
    assert events[3]["images"] == events[3]["seen"]
    assert agent.learner.classes[-1] == "six"


def test_what_is_said_to_be_a_known_class_joins_it(learner, data):
    agent = OpenWorldAgent(learner, supplier=lambda request: Supply(name=2))
    assert kinds(agent.observe(StreamBatch("b", of(data.test, 6)))) == LEARNED
    assert agent.learner.classes == KNOWN
    verdicts = agent.learner.judge(of(data.train, 6))
    assert ((verdicts.predicted == 2) & ~verdicts.novel).float().mean() > 0.8
    assert kinds(agent.observe(StreamBatch("c", of(data.train, 6)))) == ["observed"]


def test_a_method_that_cannot_add_to_a_known_class_declines(learner, data):
    trains = replace(learner, settings=replace(learner.settings, accommodation=Penalty()))
    agent = OpenWorldAgent(trains, supplier=lambda request: Supply(name=2))
    events = list(agent.observe(StreamBatch("b", of(data.test, 6))))
    assert kinds(events) == ["observed", "alarm", "declined", "resumed"]
    assert events[2]["reason"] == "it is said to be the known class 2, to which this method cannot add"


@pytest.mark.parametrize(
    ("supplied", "name", "reason"),
    [
        (lambda images: images.expand(-1, 3, -1, -1), 6, "convert them to grey"),
        (lambda images: images, float("nan"), "named by text or a number"),
        (lambda images: images, (), "named by text or a number"),
        (lambda images: images[:3], 6, "under 5 images"),
        (lambda images: images[:1].expand(9, -1, -1, -1), 6, "5 different images"),
    ],
)
def test_an_answer_that_cannot_be_used_is_declined_and_the_run_goes_on(
    learner, data, home, supplied, name, reason
):
    agent = OpenWorldAgent(learner, home=home, supplier=lambda _: Supply(supplied(of(data.train, 6)), name))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # copies are left out with a warning
        events = list(agent.run([StreamBatch("b", of(data.test, 6)), StreamBatch("c", of(data.test, 0))]))
    declined = [event for event in events if event.kind == "declined"]
    assert len(declined) == 1
    assert reason in declined[0]["reason"]
    assert events[-1].batch == "c"
    assert home.versions() == [1]


def test_asking_again_after_a_stop_has_the_same_id_and_does_no_harm(learner, data, home, uninterrupted):
    asked = []

    def supplier(request):
        asked.append(request.id)
        return oracle(request)

    for _ in range(3):  # stopped twice with the answer in hand, before it was learned
        agent = OpenWorldAgent(home.load("cpu"), home=home, supplier=supplier)
        oracle = Oracle(Truths(data.test), data.train, lambda agent=agent: agent.learner.classes)
        for event in agent.run(stream(data)):
            if event.kind == "accommodating" and len(asked) < 3:
                break
    assert len(asked) == 4
    assert len(set(asked[:3])) == 1
    assert same_knowledge(agent.learner, uninterrupted[1], data.test.inputs)
    assert home.versions() == [1, 2, 3]


def test_an_id_is_never_given_to_another_question(learner, data, home):
    questions = {}

    def supplier(request):
        name = Truths(data.test).of(request.inputs).name
        questions.setdefault(request.id, set()).add(name)
        return Supply(of(data.train, name), name)

    batch = StreamBatch("both", of(data.test, 6, 7))
    for event in OpenWorldAgent(learner, home=home, supplier=supplier).run([batch]):
        if event.kind == "accommodated":
            break  # the first of two is learned, the second not yet asked about
    again = OpenWorldAgent(home.load("cpu"), home=home, supplier=supplier)
    list(again.run([batch]))
    assert set(again.learner.classes) == {*KNOWN, 6, 7}
    assert [len(names) for names in questions.values()] == [1, 1]


def slowly(agent):
    """Have the agent's learning report before it learns and after."""
    learn = agent.model.accommodating

    def accommodating(*what, **notes):
        yield Progress(1, 2)
        yield from learn(*what, **notes)
        yield Progress(2, 2)

    agent.model.accommodating = accommodating
    return agent


def test_progress_is_told_on_the_way_and_stays_out_of_the_log(learner, data, home):
    agent = slowly(with_oracle(learner, data, home=home))
    events = list(agent.observe(StreamBatch("b", of(data.test, 6))))
    assert kinds(events) == [*LEARNED[:2], *["accommodating"] * 3, *LEARNED[3:]]
    assert [(e["step"], e["steps"]) for e in events if e.kind == "accommodating"] == [(0, 0), (1, 2), (2, 2)]
    assert [event["kind"] for event in home.events()] == LEARNED


@pytest.mark.parametrize(("step", "learned"), [(1, KNOWN), (2, (*KNOWN, 6))])
@pytest.mark.parametrize("goes_on", ["the same agent", "another"])
def test_leaving_while_a_class_is_learned_leaves_the_model_whole_and_the_rest_is_done_later(
    learner, data, home, step, learned, goes_on
):
    agent, batch = slowly(with_oracle(learner, data, home=home)), StreamBatch("b", of(data.test, 6))
    run = agent.run([batch])
    next(event for event in run if event.facts.get("step") == step)
    run.close()
    assert agent.learner.classes == home.load("cpu").classes == learned
    again = agent if goes_on == "the same agent" else with_oracle(home.load("cpu"), data, home=home)
    kinds_given = [event.kind for event in again.run([batch]) if not event.facts.get("step")]
    assert kinds_given == [event["kind"] for event in home.events()] == LEARNED
    assert again.learner.classes == (*KNOWN, 6)


# Provisional names ----------------------------------------------------------------------------------------


def test_a_number_is_not_used_again_after_its_class_was_named_or_forgotten(learner, data, home):
    agent = OpenWorldAgent(learner, home=home)
    list(agent.observe(StreamBatch("a", of(data.test, 6))))
    agent.model.rename("novel-1", "six")
    list(agent.observe(StreamBatch("b", of(data.test, 7))))
    agent.model.unlearn("novel-2")
    again = OpenWorldAgent(home.load("cpu"), home=home)
    list(again.observe(StreamBatch("c", of(data.test, 7))))
    assert again.learner.classes == (*KNOWN, "six", "novel-3")


def test_a_number_that_was_declined_is_not_used_again(learner, data):
    agent = OpenWorldAgent(learner, confirm=lambda request: False)
    names = []
    for batch in (StreamBatch("a", of(data.test, 6)), StreamBatch("b", of(data.test, 7))):
        names += [event["name"] for event in agent.observe(batch) if event.kind == "declined"]
        agent.confirm = None
    assert names == ["novel-1"]
    assert agent.learner.classes == (*KNOWN, "novel-2")


# Stopping and going on ------------------------------------------------------------------------------------


def test_a_stop_after_any_batch_changes_nothing(learner, data, tmp_path, uninterrupted):
    batches = list(stream(data))
    for stop in range(1, len(batches)):
        home = Home(tmp_path / f"stop-{stop}")
        home.begin(learner)
        events = list(with_oracle(learner, data, home=home).run(batches[:stop]))
        again = with_oracle(home.load("cpu"), data, home=home)
        events += again.run(batches)
        assert facts_of(events) == facts_of(uninterrupted[0])
        assert same_knowledge(again.learner, uninterrupted[1], data.test.inputs)


@pytest.mark.parametrize("kind", ["observed", "alarm", "accommodating", "accommodated"])
def test_a_stop_in_the_middle_of_a_batch_loses_nothing(learner, data, home, uninterrupted, kind):
    for event in with_oracle(learner, data, home=home).run(stream(data)):
        if event.kind == kind and event.batch.endswith("2"):
            break
    again = with_oracle(home.load("cpu"), data, home=home)
    events = list(again.run(stream(data)))
    assert events[0].batch.endswith("2")
    assert same_knowledge(again.learner, uninterrupted[1], data.test.inputs)
    assert same_knowledge(home.load("cpu"), uninterrupted[1], data.test.inputs)
    assert home.versions() == [1, 2, 3]
    assert home.buffered() == {}
    taken = [event["name"] for event in home.events() if event["kind"] == "accommodated"]
    assert taken == [6, 7]


def test_a_stop_after_a_class_got_its_name_at_once_changes_no_provisional_name(learner, data, tmp_path):
    def supplier(request):
        return Supply(name="six") if "paper-0-0002" in request.id else Supply()

    batches, ends = list(stream(data)), []
    for stop in (2, len(batches)):
        home = Home(tmp_path / f"stop-{stop}")
        home.begin(learner)
        list(OpenWorldAgent(learner, home=home, supplier=supplier).run(batches[:stop]))
        again = OpenWorldAgent(home.load("cpu"), home=home, supplier=supplier)
        list(again.run(batches))
        ends.append(again.learner.classes)
    assert ends[0] == ends[1]


def test_images_of_a_batch_that_is_done_are_not_left_behind(learner, data, home):
    batch = StreamBatch("b", of(data.test, 6))
    for event in with_oracle(learner, data, home=home).run([batch]):
        if event.kind == "accommodated":
            break
    assert [name.split(":")[0] for name in home.buffered()] == ["batch-b"]
    next(with_oracle(home.load("cpu"), data, home=home).run([batch]))  # stopped after the first event
    assert kinds(with_oracle(home.load("cpu"), data, home=home).run([batch])) == LEARNED
    assert list(with_oracle(home.load("cpu"), data, home=home).run([batch])) == []
    assert not (home.directory / "novel" / "batch.json").exists()
    assert home.buffered() == {}


def test_a_plan_whose_images_were_deleted_is_refused_with_what_to_do(learner, data, home):
    batch = StreamBatch("b", of(data.test, 6))
    for event in with_oracle(learner, data, home=home).run([batch]):
        if event.kind == "accommodating":
            break
    home.clear(home.buffered())
    with pytest.raises(ModelFileError, match=r"batch\.json is damaged \(the images .*; delete it to"):
        list(with_oracle(home.load("cpu"), data, home=home).run([batch]))


@pytest.mark.parametrize(
    ("damaged", "said"), [(False, "is a named pipe"), (True, "is not a whole .npz file")]
)
def test_a_stream_that_is_no_whole_file_is_refused_at_once(learner, tmp_path, damaged, said):
    path = tmp_path / "a.npz"
    if damaged:
        np.savez(path, x=np.zeros((2, 8, 8)))
        path.write_bytes(path.read_bytes().replace(b"PK\x01\x02", b"PK\x00\x00"))
    else:
        os.mkfifo(path)
    with pytest.raises(DataError, match=said):
        open_stream(StreamSpec(str(path)), learner)


def test_batches_that_are_done_are_passed_over(data, uninterrupted):
    home = uninterrupted[2]
    before = len(home.events())
    assert list(with_oracle(home.load("cpu"), data, home=home).run(stream(data))) == []
    assert len(home.events()) == before


def test_without_a_home_a_batch_is_observed_each_time(learner, digits):
    agent = OpenWorldAgent(learner)
    batch = StreamBatch("b", digits[1].inputs)
    assert facts_of(agent.run([batch])) == facts_of(agent.run([batch]))


def test_every_event_is_in_the_log_before_it_is_given(learner, data, home):
    for event in with_oracle(learner, data, home=home).observe(StreamBatch("b", of(data.test, 6))):
        last = home.events()[-1]
        assert (last["kind"], last["batch"]) == (event.kind, event.batch)
        assert last.items() >= {k: v for k, v in event.facts.items() if k != "version"}.items()


def test_the_log_tells_who_named_which_class_when_and_from_how_many_images(data, uninterrupted):
    found = [event for event in uninterrupted[2].events() if event["kind"] == "accommodated"]
    told_of = [(event["name"], event["by"], event["images"], event["version"]) for event in found]
    sizes = [len(of(data.train, name)) for name in NOVEL]
    assert told_of == [(6, "oracle", sizes[0], 2), (7, "oracle", sizes[1], 3)]
    assert all(event["time"] for event in found)


KILLED_AGAIN_AND_AGAIN = """
    import os, random, signal, sys, time
    from pathlib import Path
    import torch
    torch.set_num_threads(1)
    from shels.agent.agent import OpenWorldAgent
    from shels.data.sources import load_named
    from shels.data.streams import StreamBatch
    from shels.agent.home import Home
    from shels.agent.oracle import Oracle, Truths
    import shels.agent.separation, scipy.special, sklearn.cluster

    data = load_named("digits")
    met = ((0, 1), (6, 7), (2, 3), (8,))
    batches = [StreamBatch(str(names), data.test.only(names).inputs) for names in met]
    truths = Truths(data.test)

    def live():
        home = Home(Path(sys.argv[1]))
        agent = OpenWorldAgent(home.load("cpu"), home=home)
        agent.supplier = Oracle(truths, data.train, lambda: agent.learner.classes)
        for event in agent.run(batches):
            pass

    def lines():
        log = Path(sys.argv[1], "events.jsonl")
        return log.read_bytes().count(b"\\n") if log.exists() else 0

    kills = 0
    for attempt in range(3):
        enough, ended = lines() + random.randint(0, 4), (0, 0)
        child = os.fork()
        if child == 0:
            live()
            os._exit(0)
        while lines() < enough and ended == (0, 0):
            time.sleep(0.001)
            ended = os.waitpid(child, os.WNOHANG)
        if ended == (0, 0):
            time.sleep(random.uniform(0, 0.03))
            os.kill(child, signal.SIGKILL)
            ended = os.waitpid(child, 0)
        if ended[1] == 0:
            break
        assert os.WTERMSIG(ended[1]) == signal.SIGKILL, ended
        kills += 1
    live()
    print(kills)
"""


def test_killed_at_any_moment_and_started_again_it_ends_with_the_same_classes_and_log(
    learner, home, data, tmp_path
):
    batches = [StreamBatch(str(names), of(data.test, *names)) for names in ((0, 1), (6, 7), (2, 3), (8,))]
    whole = Home(tmp_path / "whole")
    whole.begin(learner)
    agent = with_oracle(learner, data, home=whole)
    list(agent.run(batches))
    script = textwrap.dedent(KILLED_AGAIN_AND_AGAIN)
    command = [sys.executable, "-c", script, str(home.directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 1
    assert same_knowledge(home.load("cpu"), agent.learner, data.test.inputs)
    assert set(agent.learner.classes) == {*KNOWN, 6, 7, 8}
    classes = [[each.load("cpu", number).classes for number in each.versions()] for each in (home, whole)]
    assert classes[0] == classes[1]
    logs = [
        [{name: e[name] for name in e if name not in ("time", "seconds")} for e in each.events()]
        for each in (home, whole)
    ]
    assert logs[0] == logs[1]
    assert home.buffered() == {}


# Once through the network ---------------------------------------------------------------------------------


def test_an_image_of_a_new_class_passes_the_network_once(learner, data, monkeypatch):
    seen = []
    views = type(learner).views
    monkeypatch.setattr(
        type(learner),
        "views",
        lambda self, inputs, *rest: seen.append(len(inputs)) or views(self, inputs, *rest),
    )
    batch = StreamBatch("both", of(data.test, 6, 7))
    assert kinds(OpenWorldAgent(learner).observe(batch)).count("accommodated") == 2
    assert seen == [len(batch.inputs)]


def test_after_a_restart_what_waits_is_seen_again_and_comes_to_the_same(learner, data, home):
    six = of(data.test, 6)[learner.judge(of(data.test, 6)).novel]
    few, more = StreamBatch("few", six[:8]), StreamBatch("more", six[8:30])
    alone = OpenWorldAgent(learner)
    list(alone.run([few, more]))
    list(OpenWorldAgent(learner, home=home).run([few]))
    again = OpenWorldAgent(home.load("cpu"), home=home)
    list(again.run([few, more]))
    assert same_knowledge(again.learner, alone.learner, data.test.inputs)


# What a batch looks like ----------------------------------------------------------------------------------


def test_a_batch_is_told_by_its_name_and_its_content():
    first = StreamBatch("a", torch.zeros(3, 1, 2, 2, dtype=torch.uint8))
    other = StreamBatch("a", torch.ones(3, 1, 2, 2, dtype=torch.uint8))
    same = StreamBatch("a", torch.zeros(3, 1, 2, 2, dtype=torch.uint8), labels=(1, 2, 3), phase="known")
    assert batch_key(first) == batch_key(same)
    assert batch_key(first) != batch_key(other)
    assert batch_key(first) != batch_key(replace(first, name="b"))
    assert batch_key(first).startswith("a:")


def test_the_layout_in_memory_does_not_count_for_a_batch():
    images = torch.arange(48, dtype=torch.uint8).view(4, 3, 2, 2)
    strided = images.contiguous(memory_format=torch.channels_last)
    assert batch_key(StreamBatch("a", images)) == batch_key(StreamBatch("a", strided))


def test_other_content_under_a_known_name_is_observed(learner, data, home):
    agent = OpenWorldAgent(learner, home=home)
    list(agent.run([StreamBatch("a", of(data.test, 1))]))
    assert kinds(agent.run([StreamBatch("a", of(data.test, 2))])) == ["observed"]


def reporting(learner, judged, acceptance, rule):
    settings = replace(learner.settings, rule=rule)
    report = learner.report | {"held_out_samples": judged, "held_out_acceptance": acceptance}
    return replace(learner, settings=settings, report=report)


@pytest.mark.parametrize(
    ("judged", "acceptance", "rule", "expected"),
    [
        (200, 1.0, AcceptShare(0.95), 10),  # none was rejected, by luck: 5 % of 200 are by design
        (200, 0.97, AcceptShare(0.95), 10),
        (200, 0.9, AcceptShare(0.95), 20),  # more than by design: what was measured counts
        (200, 1.0, AcceptShare(0.99), 2),
        (200, 0.97, MeanMinusSd(1.0), 6),  # no share by design
        (200, 1.0, MeanMinusSd(1.0), 0),
    ],
)
def test_false_alarms_are_no_fewer_than_the_rule_rejects_by_design(
    learner, judged, acceptance, rule, expected
):
    assert false_alarms(reporting(learner, judged, acceptance, rule)) == expected


def test_an_observation_counts_what_is_novel(learner, digits):
    mixed = torch.cat([digits[1].inputs[:20], digits[2].inputs[:20]])
    seen = observe(learner, mixed, PresetShare(0.25))
    verdicts = learner.judge(mixed)
    assert torch.equal(seen.novel, verdicts.novel)
    assert seen.share == int(verdicts.novel.sum()) / 40
    assert seen.alarm_count == 11  # the first count over a quarter of 40
    assert seen.alarm
    assert not observe(learner, digits[1].inputs, PresetShare(0.25)).alarm


@pytest.mark.parametrize(("count", "alarm"), [(3, False), (4, True), (5, True)])
def test_the_alarm_is_raised_at_its_count_and_not_before(learner, digits, count, alarm):
    seen = observe(learner, digits[1].inputs[:10], PresetShare(0.3))
    assert seen.alarm_count == 4
    assert replace(seen, novel=torch.arange(10) < count).alarm is alarm


def test_what_was_observed_of_known_classes(learner, digits):
    out = observed(learner, digits[1].inputs)
    assert set(out) == {"novel", "share", "alarm", "threshold", "groups", "drift"}
    assert out["alarm"] is False
    assert out["drift"] is None
    assert out["share"] == out["novel"].mean() < out["threshold"]
    assert out["novel"].dtype == bool
    assert (out["groups"] == -1).all()
    assert out["groups"].shape == out["novel"].shape == (len(digits[1]),)


def test_what_was_observed_of_two_new_classes_among_known_ones(learner, data):
    both, known = data.test.only((6, 7)), of(data.test, 1)
    out = observed(learner, torch.cat([both.inputs, known]))
    assert out["alarm"] is True
    assert out["share"] >= out["threshold"]
    assert set(out["groups"].tolist()) == {-1, 0, 1}
    assert (out["groups"][~out["novel"]] == -1).all()
    assert (out["groups"][len(both) :] == -1).mean() > 0.95
    labels = both.labels.numpy()
    found = [np.bincount(labels[out["groups"][: len(both)] == group], minlength=2) for group in (0, 1)]
    assert {int(counts.argmax()) for counts in found} == {0, 1}
    assert all(counts.max() / counts.sum() > 0.95 for counts in found)


def test_what_was_observed_of_drift(learner, digits):
    out = observed(learner, digits[1].inputs // 4)
    assert out["alarm"] is True
    assert out["drift"] == "100% of the images look like no known image"
    assert (out["groups"] == -1).all()


def test_observing_changes_nothing(learner, data):
    before = learner.judge(data.test.inputs).score
    observed(learner, of(data.test, 6))
    assert learner.classes == KNOWN
    assert torch.equal(learner.judge(data.test.inputs).score, before)
