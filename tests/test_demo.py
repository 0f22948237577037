from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, roc_auc_score

from shels import demo
from shels.agent.agent import OpenWorldAgent, Request
from shels.agent.evaluation import RecordingOracle, evaluate_run
from shels.agent.home import Home
from shels.agent.oracle import Oracle
from shels.config import presets
from shels.data.sources import load_named
from shels.data.splits import ClassSplit
from shels.data.streams import mixed_stream, paper_stream
from shels.errors import ModelFileError
from shels.learner.learner import Learner
from shels.runtime import finished

SEED = 3
SHORT = replace(presets.DEFAULT, training=replace(presets.DEFAULT.training, steps=300))


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """A demonstration with a short training: what it returned, where, and all it reported on the way."""
    out = tmp_path_factory.mktemp("demo") / "out"
    seen = []
    result = finished(demo.run(out, seed=SEED, device="cpu", settings=SHORT), each=seen.append)
    return result, out, seen


@pytest.fixture(scope="module")
def shown_part():
    return load_named("digits").test


@pytest.fixture(scope="module")
def alone(outcome, shown_part):
    """The run that nobody helps with, from the saved model, and an agent that took it unwatched."""
    result, out, _ = outcome
    known, novel = tuple(result["known_classes"]), tuple(result["novel_classes"])
    learner = Learner.load(out / "model", device="cpu")
    agent, sizes = OpenWorldAgent(learner, seed=SEED), (demo.MIXED_BATCHES, demo.BATCH_SIZE)
    list(agent.run(mixed_stream(shown_part, known, novel, batches=sizes[0], batch_size=sizes[1], seed=SEED)))
    return demo.without_help(learner, load_named("digits"), ClassSplit(known, novel), SEED), agent


def images_and_names(samples):
    return samples.inputs, names_of(samples)


def names_of(samples):
    return np.array(samples.classes)[samples.labels.numpy()]


def events_of(out, kind):
    return [event for event in Home(out / "agent").events() if event["kind"] == kind]


def batches_of(result, test):
    known, novel = result["known_classes"], result["novel_classes"]
    return list(paper_stream(test, known, novel, batch_size=demo.BATCH_SIZE, seed=SEED))


def test_the_result_has_exactly_the_fields_of_the_contract(outcome):
    result, out, _ = outcome
    assert json.loads((out / "result.json").read_text()) == result
    assert list(result) == [
        "known_classes",
        "novel_classes",
        "found",
        "missed",
        "false_alarms",
        "final_accuracy",
        "novel_accuracy",
        "detection",
        "seconds",
    ]
    assert list(result["detection"]) == ["known_accuracy", "novel_accuracy", "combined_accuracy", "auroc"]
    assert list(result["novel_accuracy"]) == [str(name) for name in result["novel_classes"]]
    assert result["seconds"] > 0


def test_seven_of_the_ten_digits_are_known_and_the_others_found_or_missed(outcome):
    result = outcome[0]
    assert len(result["known_classes"]) == 7
    assert sorted(result["known_classes"] + result["novel_classes"]) == list(range(10))
    assert sorted(result["found"] + result["missed"]) == sorted(result["novel_classes"])


def test_the_first_learner_is_measured_before_it_meets_anything_new(outcome, shown_part):
    result, out, _ = outcome
    learner = Learner.load(out / "model", device="cpu")
    assert list(learner.classes) == result["known_classes"]
    truth, verdicts = names_of(shown_part), learner.judge(shown_part.inputs)
    answers = np.where(verdicts.novel, -1, np.array(learner.classes)[verdicts.predicted])
    known = np.isin(truth, result["known_classes"])
    right, rejected = accuracy_score(truth[known], answers[known]), (answers[~known] == -1).mean()
    expected = {
        "known_accuracy": right,
        "novel_accuracy": rejected,
        "combined_accuracy": (right + rejected) / 2,
        "auroc": roc_auc_score(known, verdicts.score),
    }
    assert result["detection"] == pytest.approx(expected, abs=1e-6)


def test_the_model_in_the_home_gives_the_final_accuracy_to_an_independent_reader(outcome, shown_part):
    result, out, _ = outcome
    learner = Home(out / "agent").load("cpu")
    assert list(learner.classes) == result["known_classes"] + result["found"]
    truth = names_of(shown_part)
    named = np.array(learner.classes)[learner.class_scores(shown_part.inputs).argmax(dim=1)]
    assert result["final_accuracy"] == pytest.approx(accuracy_score(truth, named))
    by_class = {str(name): (named[truth == name] == name).mean() for name in result["novel_classes"]}
    assert result["novel_accuracy"] == pytest.approx(by_class)


def test_every_new_digit_is_found_and_learned_even_after_a_short_training(outcome):
    result = outcome[0]
    assert result["missed"] == []
    assert result["found"] == result["novel_classes"]  # the stream's order
    assert result["final_accuracy"] > 0.9


def test_the_log_tells_who_named_each_class_and_that_it_was_learned_from_all_its_training_images(outcome):
    result, out, _ = outcome
    counts = Counter(names_of(load_named("digits").train).tolist())
    learned = [(event["name"], event["by"], event["images"]) for event in events_of(out, "accommodated")]
    assert learned == [(name, "oracle", counts[name]) for name in result["found"]]
    assert Home(out / "agent").versions() == list(range(1, 2 + len(learned)))


def test_the_shares_in_the_log_are_those_of_the_version_in_use_at_each_batch(outcome, shown_part):
    result, out, _ = outcome
    home, versions = Home(out / "agent"), {}
    seen = events_of(out, "observed")
    batches = batches_of(result, shown_part)
    assert [event["batch"] for event in seen] == [batch.name for batch in batches]
    for event, batch in zip(seen, batches, strict=True):
        learner = versions.setdefault(event["version"], home.load("cpu", event["version"]))
        share = float(learner.judge(batch.inputs).novel.double().mean())
        assert event["share"] == share
        assert event["alarm"] == (share >= event["threshold"])


def test_an_alarm_on_a_batch_of_known_digits_alone_is_a_false_one(outcome, shown_part):
    result, out, _ = outcome
    labels = {batch.name: set(batch.labels) for batch in batches_of(result, shown_part)}
    known = {1: set(result["known_classes"])}
    for version, name in enumerate(result["found"], 2):
        known[version] = known[version - 1] | {name}
    false = [e for e in events_of(out, "alarm") if labels[e["batch"]] <= known[e["version"]]]
    assert result["false_alarms"] == len(false)


def test_asked_about_a_new_digit_the_oracle_gives_its_training_images_and_about_a_known_one_nothing(
    shown_part,
):
    data, oracle = load_named("digits"), RecordingOracle(shown_part)
    ask = Oracle(oracle, data.train, lambda: (0, 1))
    request = Request("a", "novel-1", shown_part.only([5]).inputs[:7], 1.0)
    strays = torch.cat([request.inputs, shown_part.only([1]).inputs[:6]])
    for inputs in (request.inputs, strays):
        supply = ask(replace(request, inputs=inputs))
        assert (supply.name, supply.by) == (5, "oracle")
        assert torch.equal(supply.inputs, data.train.only([5]).inputs)
    assert ask(replace(request, inputs=shown_part.only([1]).inputs[:7])) is None


def test_a_learner_that_takes_everything_for_new_raises_false_alarms_on_known_digits(outcome, shown_part):
    result, out, _ = outcome
    learner = Learner.load(out / "model", device="cpu")
    nothing_known = torch.tensor(torch.inf, dtype=learner.detector.parts[0].threshold.dtype)
    parts = tuple(replace(part, threshold=nothing_known) for part in learner.detector.parts)
    learner = replace(learner, detector=replace(learner.detector, parts=parts))
    oracle = RecordingOracle(shown_part)
    agent = OpenWorldAgent(learner, confirm=oracle)
    agent.supplier = Oracle(oracle, load_named("digits").train, lambda: agent.learner.classes)
    run = evaluate_run(agent, batches_of(result, shown_part)[:2], shown_part, oracle)
    assert [step.share for step in run.steps] == [1, 1]
    assert run.false_alarms == 2
    assert run.learner.classes == learner.classes
    assert run.accuracy == learner.evaluate(shown_part.only(learner.classes))["closed_set_accuracy"]


def test_alone_the_agent_learns_groups_under_names_of_its_own(outcome, alone, shown_part):
    run, again = alone
    content = {
        image.numpy().tobytes(): name for image, name in zip(*images_and_names(shown_part), strict=True)
    }
    groups = [group for step in run.steps for group in step.learned]
    assert [group.name for group in groups] == [f"novel-{i + 1}" for i in range(len(groups))]
    assert list(again.learner.classes) == outcome[0]["known_classes"] + [group.name for group in groups]
    assert groups
    for group in groups:
        shows = Counter(
            content[image.numpy().tobytes()] for image in again.model.buffers.of_class(group.name)
        )
        assert (group.truth, round(group.purity * group.seen)) == shows.most_common(1)[0]
        assert group.seen == group.images == shows.total()


def test_alone_the_accuracy_is_that_of_images_it_did_not_learn_from(alone, shown_part):
    run, again = alone
    groups = [group for step in run.steps for group in step.learned]
    learned = {image.numpy().tobytes() for g in groups for image in again.model.buffers.of_class(g.name)}
    images, truth = images_and_names(shown_part)
    apart = np.array([image.numpy().tobytes() not in learned for image in images])
    assert 0 < (~apart).sum() == sum(group.images for group in groups)
    meant = {name: name for name in run.taught} | {group.name: group.truth for group in groups}
    scores = again.learner.class_scores(shown_part.inputs)
    named = np.array([meant[again.learner.classes[i]] for i in scores.argmax(dim=1)])
    assert run.accuracy == pytest.approx(accuracy_score(truth[apart], named[apart]))


def test_the_report_tells_the_story_in_order_and_progress_was_reported(outcome):
    result, out, seen = outcome
    text = (out / "report.html").read_text(encoding="utf-8")
    titles = [
        "Seven digits known, all three new ones found and learned",
        f"It found all three new digits ({', '.join(map(str, result['found']))}, in this order)",
        "What happened, batch by batch",
        "What was called novel",
        "Class by class, at the end",
        "When nobody helps",
        "What was trained",
        "Known or novel, before the first batch",
        "Inside the learner",
        "Settings, versions and machine",
    ]
    places = [text.rindex(title) for title in titles]
    assert places == sorted(places)
    assert [p for p in seen if p.stage == "training"][-1].step == 300
    assert seen[-1].stage == "meeting new digits"


def test_a_second_run_replaces_the_home_of_the_first_and_gives_the_same_result(outcome, tmp_path):
    result, out, _ = outcome
    (out / "agent" / "novel").mkdir(exist_ok=True)
    (out / "agent" / "novel" / "leftover").write_text("of the first run")
    again = finished(demo.run(out, seed=SEED, device="cpu", settings=SHORT))
    assert again | {"seconds": 0} == result | {"seconds": 0}
    assert Home(out / "agent").versions() == list(range(1, 2 + len(result["found"])))
    assert not (out / "agent" / "novel" / "leftover").exists()


@pytest.mark.parametrize("foreign", ["notes.txt", "current"])
def test_a_directory_that_is_not_an_earlier_demos_is_refused_before_any_training(tmp_path, foreign):
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / foreign).write_text("0001\n")
    with pytest.raises(ModelFileError, match=r"agent is not from an earlier demo.*choose another --out"):
        finished(demo.run(tmp_path, device="cpu", settings=SHORT))
    assert [path.name for path in tmp_path.rglob("*")] == ["agent", foreign]


@pytest.mark.parametrize("make", ["file", "link"])
def test_a_file_or_a_link_in_the_place_of_the_home_is_refused(tmp_path, make):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".demo").write_text("")
    place = tmp_path / "agent"
    if make == "file":
        place.write_text("mine")
    else:
        place.symlink_to(elsewhere)
    with pytest.raises(ModelFileError, match="is not a directory of the demo's"):
        finished(demo.run(tmp_path, device="cpu", settings=SHORT))
    assert (elsewhere / ".demo").exists()


def test_a_home_that_another_run_is_using_is_not_replaced(tmp_path):
    home = tmp_path / "agent"
    home.mkdir()
    (home / ".demo").write_text("")
    with Home(home).lock(), pytest.raises(ModelFileError, match="another run is using it"):
        demo._new_home(home, None)
    assert (home / ".demo").exists()


def test_another_seed_draws_other_classes(outcome):
    other = demo.draw_classes(tuple(range(10)), demo.KNOWN_COUNT, 4)
    assert list(other.known) != outcome[0]["known_classes"]
