"""The open world, on digits and on made-up runs: what is measured, what is shared, what survives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_mutual_info_score

from shels.agent.agent import OpenWorldAgent
from shels.agent.alarm import FalseAlarmRate, PresetShare
from shels.agent.evaluation import Accuracy, EvaluatedBatch, EvaluatedRun, Group
from shels.agent.observation import AgentSettings
from shels.data.samples import Samples, fingerprints
from shels.data.sources import load_named
from shels.data.streams import StreamBatch
from shels.detection.metrics import adjusted_mutual_information
from shels.errors import AccommodationError, TrainingError
from shels.experiments import engine, open_world
from shels.experiments.catalogue import CATALOGUE
from shels.experiments.features import Features
from shels.experiments.methods import METHODS, initial_training, taught_classes
from shels.experiments.open_world import (
    Course,
    batches_until,
    false_alarm_share,
    false_alarms_per_1000,
    figures_of,
)
from shels.experiments.preparing import groups
from shels.experiments.records import Records
from shels.experiments.trials import OPEN_WORLD_MEASURES
from shels.learning.methods.penalty import PenaltyMethod
from shels.runtime import finished
from shels.training import Fit
from shels.training import fit as fit_network

DIGITS = CATALOGUE["open-world/digits"]
AGENTS = [name for name, method in METHODS.items() if method.task == "open-world"]


def trials(method, count=1, steps=100):
    """Trials that train for a moment."""
    made = DIGITS.trials(METHODS[method], count)
    way = made[0].settings.accommodation
    way = replace(way, steps=40) if method == "proximal-agent" else way
    short = replace(made[0].settings.training, steps=steps, check_every=steps)
    settings = replace(made[0].settings, training=short, accommodation=way)
    return [replace(trial, settings=settings) for trial in made]


def run(asked, directory):
    return list(engine.run(asked, Records(directory), lambda name, _: load_named(name), device="cpu"))


def results(advances):
    return [advance.result for advance in advances if advance.kind == "finished"]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    asked = [trial for name in AGENTS for trial in trials(name)]
    advances = run(asked, tmp_path_factory.mktemp("agents"))
    assert [(each.trials[0].method, each.message) for each in advances if each.kind == "failed"] == []
    return {result.trial.method: result for result in results(advances)}


# A run worked by hand -----------------------------------------------------------------------------------


def step(labels, judged, known, *, groups=(), alarm=None):
    novel = torch.tensor(judged, dtype=torch.bool)
    batch = StreamBatch("x", torch.zeros(len(labels), 1, 4, 4), tuple(labels))
    rate = Accuracy(0.5)
    alarm = bool(novel.double().mean() >= 0.5) if alarm is None else alarm
    return EvaluatedBatch(batch, tuple(labels), novel, 0.5, alarm, tuple(known), "", groups, rate, rate)


def learned(name):
    return (Group(name, name, 1.0, 3, 40, 0.5),)


# Known: a, b. c is seen at batch 2 and found at batch 3; d is seen at batches 4 and 6 and never found.
STEPS = (
    step("aabb", (1, 0, 0, 0), "ab"),
    step("cccc", (0, 1, 0, 0), "ab"),
    step("ccab", (1, 1, 1, 0), "ab", groups=learned("c")),
    step("dddd", (0, 0, 1, 0), "abc"),
    step("abca", (1, 1, 0, 0), "abc"),  # an alarm for nothing
    step("abdc", (0, 0, 0, 1), "abc"),
    step("abcc", (0, 0, 0, 0), "abc"),
)
TEST = Samples(torch.zeros(6, 1, 4, 4), torch.tensor([0, 1, 2, 2, 3, 3]), ("a", "b", "c", "d"))
RUN = EvaluatedRun(
    ("a", "b"), STEPS, None, FalseAlarmRate(), 0.75, dict.fromkeys("abcd", 0.75), 0.5, tuple("abccca")
)


def test_a_class_is_counted_from_its_first_batch_to_the_one_that_it_was_taken_in_after():
    assert batches_until(RUN, "c") == 2
    assert batches_until(RUN, "d") == 3  # two batches showed it, and none was enough


def test_false_alarms_are_those_on_batches_of_known_classes_alone():
    # batches 1, 5 and 7 hold nothing new: one alarm in twelve samples
    assert false_alarms_per_1000(RUN) == pytest.approx(1000 / 12)
    # of 4 + 0 + 2 + 0 + 4 + 3 + 4 samples of classes known by then, 1 + 1 + 2 + 1 were judged novel
    assert false_alarm_share(RUN) == pytest.approx(5 / 17)


def test_the_figures_of_a_run_are_those_of_its_parts():
    trial = replace(trials("shels-agent")[0], known=("a", "b"), novel=("c", "d"))
    found = figures_of(RUN, trial, TEST, AgentSettings(PresetShare(0.5)))
    assert tuple(sorted(found.metrics)) == tuple(sorted(OPEN_WORLD_MEASURES))
    assert found.metrics["found_share"] == 0.5
    assert found.metrics["batches_to_detection"] == 2.5
    assert found.metrics["closed_set_accuracy"] == 0.75
    assert found.metrics["known_accuracy"] == 0.5
    # of the novel classes' samples, c c d d, the names are c c c a
    assert found.metrics["ami"] == pytest.approx(adjusted_mutual_info_score([0, 0, 1, 1], [0, 0, 0, 1]))
    assert found.details["detection"]["new"] == [0, 1, 1, 1, 0, 1, 0]
    assert found.details["detection"]["share"] == [0.25, 0.25, 0.75, 0.25, 0.5, 0.25, 0]
    assert [row["batch"] for row in found.details["accommodation"]] == [3]
    assert (found.details["found"], found.details["missed"]) == (["c"], ["d"])
    assert found.details["agent"]["alarm"] == {"kind": "preset-share", "share": 0.5}


def test_agreement_does_not_depend_on_names_and_is_that_of_scikit_learn():
    draw = np.random.default_rng(0)
    truth, named = draw.integers(0, 5, 300), draw.integers(0, 4, 300)
    named[:200] = truth[:200]
    words = [f"class {place}" for place in named]
    assert adjusted_mutual_information(truth.tolist(), words) == pytest.approx(
        adjusted_mutual_info_score(truth, named)
    )


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_a_fingerprint_tells_contents_and_does_not_depend_on_the_neighbours(dtype):
    images = torch.randint(0, 256, (40, 3, 30, 30), dtype=torch.uint8)
    images = images if dtype == torch.uint8 else images / 255
    whole = fingerprints(images)
    assert len(set(whole)) == 40
    assert fingerprints(images[7:9]) == whole[7:9]
    changed = images.clone()
    changed[3, 1, 2, 2] = 1 - changed[3, 1, 2, 2] if dtype == torch.float32 else 255 - changed[3, 1, 2, 2]
    assert [place for place, one in enumerate(fingerprints(changed)) if one != whole[place]] == [3]
    assert fingerprints(images[:0]) == []


# Real runs on digits ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", AGENTS)
def test_every_agent_comes_to_figures(done, name):
    found = done[name].metrics
    missing = (
        {"found_share", "batches_to_detection", "false_alarms_per_1000"} if name == "joint-bound" else set()
    )
    assert set(found) == set(OPEN_WORLD_MEASURES) - missing
    assert all(0 <= found[key] <= 1 for key in ("closed_set_accuracy", "known_accuracy", "false_alarm_share"))
    assert found["known_accuracy"] <= found["closed_set_accuracy"]


def test_gaussians_find_and_learn_every_digit_and_come_near_to_joint_training(done):
    ours, bound = done["gaussian-agent"].metrics, done["joint-bound"].metrics
    assert ours["found_share"] == 1
    assert ours["closed_set_accuracy"] > 0.9
    assert abs(ours["closed_set_accuracy"] - bound["closed_set_accuracy"]) < 0.1
    assert ours["ami"] > 0.7


def test_what_a_trial_keeps_says_what_happened_batch_by_batch(done):
    for name in AGENTS:
        if name == "joint-bound":
            continue
        details, trial = done[name].details, done[name].trial
        epochs = details["detection"]
        count = Course.of(trial).batches(len(trial.novel))
        assert {len(column) for column in epochs.values()} == {count} == {15}
        assert epochs["new"][:4] == [0, 0, 0, 1]  # the fourth batch is the first novel class
        assert sorted(details["found"] + details["missed"]) == sorted(trial.novel)
        taken = [place for row in details["accommodation"] for place in row["classes"]]
        assert taken == details["found"]
        final = np.array(list(details["right"].values()))
        assert done[name].metrics["closed_set_accuracy"] == pytest.approx(final.mean(), abs=0.02)
        if details["found"]:
            last = details["accommodation"][-1]
            assert epochs["alarm"][last["batch"] - 1] == 1


def test_the_papers_agents_have_its_thresholds_and_ours_a_rate_of_false_alarms(done):
    def alarm(name):
        return done[name].details["agent"]["alarm"]

    assert alarm("shels-agent") == alarm("maha-agent") == {"kind": "preset-share", "share": 0.3}
    assert alarm("gaussian-agent")["kind"] == "false-alarm-rate"
    shares = [METHODS["maha-agent"].agent(data).alarm.share for data in ("mnist", "fmnist", "gtsrb")]
    assert shares == [0.75, 0.3, 0.3]
    assert METHODS["shels-agent"].agent("mnist").proposals.several is False


def test_agents_share_the_network_of_incremental_runs_and_the_bound_that_of_all_classes():
    incremental = CATALOGUE["incremental/mnist"].trials(METHODS["gaussian"], 1)
    agents = [
        CATALOGUE[name].trials(METHODS[method], 1)[0]
        for name in ("open-world/mnist", "open-world/mnist@mixed")
        for method in ("shels-agent", "maha-agent", "gaussian-agent")
    ]
    [[shared]] = groups([*incremental, *agents])
    assert len(shared) == 7
    bound = CATALOGUE["open-world/mnist"].trials(METHODS["joint-bound"], 1)
    across = CATALOGUE["across/mnist-fmnist"].trials(METHODS["shels"], 1)
    assert taught_classes(bound[0]) == tuple(range(10))
    assert [[len(training) for training in group] for group in groups([*bound, *across])] == [[2]]
    assert initial_training("joint-bound", bound[0].settings).key == ("shels_loss",)


def test_a_trial_that_is_recorded_is_not_run_again(done, tmp_path):
    asked = trials("gaussian-agent")
    Records(tmp_path).append(done["gaussian-agent"])
    assert Records(tmp_path).find(asked[0]) == done["gaussian-agent"]
    assert run(asked, tmp_path) == []
    assert len({trial.key for name in AGENTS for trial in trials(name, 2)}) == 2 * len(AGENTS)


def test_a_trial_comes_to_the_same_figures_again_alone_or_beside_others(done, tmp_path):
    again = results(run([*trials("shels-agent", 2)], tmp_path))
    assert again[0].metrics == done["shels-agent"].metrics
    before, after = done["shels-agent"].details, again[0].details
    assert after["detection"] == before["detection"]


def test_trainings_of_agents_side_by_side_are_run_together(monkeypatch):
    begun = []
    for trial in trials("shels-agent", 2):
        data = load_named("digits")
        training = engine.Loaded([[trial]], lambda *_, data=data: data, torch.device("cpu")).trainings[0]
        start = initial_training(trial.method, trial.settings).objective(training.network, training.settings)
        fit = fit_network(training.network, start.loss, training.data, start.settings, seed=trial.seed)
        begun.append(open_world.TrainedTrial(trial, training, fit))
    stacks, whole = [], open_world.train_together

    def counting(requests, precision):
        stacks.append(len(requests))
        return whole(requests, precision)

    monkeypatch.setattr(open_world, "train_together", counting)
    shares = []
    inputs = (data.train.inputs, data.test.inputs)
    work = open_world.run_agents(begun, Features(data, *inputs, torch.float32))
    assert len(finished(work, each=shares.append)) == 2
    assert 2 in stacks
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_a_training_that_diverges_is_declined_and_the_agent_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(
        open_world,
        "train_together",
        lambda requests, _: [Fit((), None, False, 0.0, TrainingError("diverged")) for _ in requests],
    )
    [result] = results(run(trials("shels-agent"), tmp_path))
    assert result.metrics["found_share"] == 0
    assert result.metrics["batches_to_detection"] > 1
    assert result.details["accommodation"] == []


def test_a_trial_that_cannot_go_on_fails_alone(tmp_path, monkeypatch):
    begin = OpenWorldAgent.__init__

    def refusing(self, *given, seed=0, **more):
        if seed == 0:
            raise AccommodationError("not today")
        begin(self, *given, seed=seed, **more)

    monkeypatch.setattr(OpenWorldAgent, "__init__", refusing)
    advances = run(trials("gaussian-agent", 2), tmp_path)
    failed = [
        (each.message, [trial.seed for trial in each.trials]) for each in advances if each.kind == "failed"
    ]
    assert failed == [("not today", [0])]
    assert [result.trial.seed for result in results(advances)] == [1]


def test_frames_of_one_sign_are_held_out_together_when_an_oracle_gives_them(monkeypatch):
    data = load_named("digits")
    train = replace(data.train, groups=torch.arange(len(data.train)) // 10)
    seen = []
    take_in = PenaltyMethod.take_in

    def watching(self, new):
        seen.append(new.samples.groups)
        return take_in(self, new)

    monkeypatch.setattr(PenaltyMethod, "take_in", watching)
    trial = trials("shels-agent")[0]
    loaded = engine.Loaded([[trial]], lambda *_: replace(data, train=train), torch.device("cpu"))
    training = loaded.trainings[0]
    start = initial_training(trial.method, trial.settings).objective(training.network, training.settings)
    fit = fit_network(training.network, start.loss, training.data, start.settings, seed=0)
    group = [open_world.TrainedTrial(trial, training, fit)]
    inputs = (train.inputs, data.test.inputs)
    list(open_world.run_agents(group, Features(loaded.known, *inputs, torch.float32)))
    assert seen
    assert all(groups is not None for groups in seen)


@pytest.mark.parametrize(
    "name",
    ["open-world/mnist", "open-world/mnist@best", "open-world/mnist@mixed", "open-world/mnist@mixed@best"],
)
def test_the_mixed_protocol_brings_two_classes_at_once_and_the_papers_one(name):
    trial = CATALOGUE[name].trials(METHODS["gaussian-agent"], 1)[0]
    labels = torch.arange(10).repeat_interleave(60)
    test = Samples(torch.zeros(600, 1, 4, 4), labels, tuple(range(10)))
    course = replace(Course.of(trial), batch_size=50)
    assert course.mixed == ("mixed" in name)
    stream = list(course.stream(trial, test))
    assert len(stream) == course.batches(3) == 15
    met, at_once = set(trial.known), []
    for batch in stream:
        at_once.append(len(set(batch.labels) - met))
        met |= set(batch.labels)
    assert max(at_once) == (2 if course.mixed else 1)
    assert met == set(range(10))
