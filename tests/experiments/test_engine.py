"""Real runs of trials on the digits: what is told, what is written, and what survives a kill."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from shels.cli.app import app
from shels.config import Adam, Gaussian, MeanMinusSd, Penalty
from shels.data.sources import load_named
from shels.data.splits import ClassSplit, split_data
from shels.errors import DataError, TrainingError
from shels.experiments import engine, preparing
from shels.experiments.catalogue import CATALOGUE
from shels.experiments.methods import METHODS
from shels.experiments.preparing import training_key
from shels.experiments.records import Records
from shels.experiments.trials import MEASURES
from shels.learner.learner import learn
from shels.runtime import mapped
from shels.training import loop

DIGITS = CATALOGUE["within/digits"]


def trials_of(method="shels", count=1, epochs=1):
    return DIGITS.trials(METHODS[method], count, epochs=epochs)


@pytest.fixture(scope="module")
def digits_set():
    return load_named("digits")


@pytest.fixture
def source(digits_set):
    """Gives the digits under any name but "damaged"."""

    def load(name, size):
        if name == "damaged":
            raise DataError("damaged.npz is not a whole .npz file")
        return replace(digits_set, name=name)

    return load


@pytest.fixture
def records(tmp_path):
    return Records(tmp_path / "results")


@pytest.fixture
def trained(monkeypatch):
    """Return the sizes of the trainings that were asked for, and what their watchers heard."""
    sizes, heard = [], []
    honest = loop.training

    def count(trials, *given, **options):
        sizes.append(len(trials))
        return (yield from mapped(honest(trials, *given, **options), lambda now: heard.append(now) or now))

    monkeypatch.setattr(loop, "training", count)
    return sizes, heard


def run(trials, records, source, **options):
    return list(engine.run(trials, records, source, device="cpu", **options))


def finished(advances):
    return [each.result for each in advances if each.kind == "finished"]


def left(records):
    folder = records.directory / "unfinished"
    return sorted(path.name for path in folder.glob("*.safetensors")) if folder.exists() else []


def checkpoint_of(trial):
    return f"{training_key(trial)}.safetensors"


def lasting(result):
    """Return all of a result that does not depend on the clock."""
    details = {name: value for name, value in result.details.items() if name not in ("stages", "stacked")}
    return result.trial, result.metrics, result.device, result.versions, details


# What is told and written ------------------------------------------------------------------------------


def test_a_trial_is_loaded_trained_measured_and_finished_in_this_order(records, source):
    first, second = trials_of(count=2, epochs=2)
    advances = run([first, second], records, source)
    assert advances[0] == engine.Advance("loading", (first, second))
    for trial in (first, second):
        mine = [each for each in advances[1:] if each.trials == (trial,)]
        kinds = [each.kind for each in mine]
        assert kinds == ["training"] * (len(kinds) - 2) + ["measuring", "finished"]
        shares = [each.share for each in mine if each.kind == "training"]
        assert shares == sorted(shares)
        assert 0 < shares[0] < shares[-1] == 1
        assert mine[-1].result.trial == trial
    assert [result.trial for result in finished(advances)] == [first, second]


def test_each_result_is_on_disk_before_anybody_hears_of_it(records, source):
    heard = 0
    for advance in engine.run(trials_of(count=2), records, source, device="cpu"):
        on_disk = Records(records.directory)
        if advance.kind == "finished":
            heard += 1
            assert on_disk.find(advance.result.trial) == advance.result
            assert len(on_disk.results()) == heard
    assert heard == 2


def test_a_result_holds_what_a_report_needs(records, source):
    (trial,) = trials_of(epochs=2)
    (result,) = finished(run([trial], records, source))
    assert set(MEASURES) <= result.metrics.keys()
    assert all(0 <= value <= 1 for value in result.metrics.values())
    assert [check["epoch"] for check in result.details["checks"]] == [1.0, 2.0]
    assert result.details["best_epoch"] in (1.0, 2.0)
    assert list(result.details["per_class"]) == [str(name) for name in trial.known]
    assert list(result.details["per_novel_class"]) == [str(name) for name in trial.novel]
    assert len(result.details["exclusivity"]) == 5
    assert result.details["stacked"] == 1
    assert result.details["precision"] == "float32"
    assert result.seconds == pytest.approx(sum(result.details["stages"].values()))
    assert set(result.details["stages"]) == {"loading", "training", "features", "thresholds and measures"}
    assert result.device.endswith("CPU, 1 thread")
    assert result.versions["torch"] == torch.__version__


@pytest.mark.parametrize(
    ("method", "accommodation"), [("shels", Penalty()), ("shels-gaussian", Gaussian())], ids=str
)
def test_a_trial_measures_what_a_learner_of_the_same_seed_does(
    records, source, digits_set, method, accommodation
):
    (trial,) = trials_of(method, epochs=2)
    (result,) = finished(run([trial], records, source))
    train, test, novel = split_data(digits_set, ClassSplit(trial.known, trial.novel))
    settings = replace(trial.settings, accommodation=accommodation)
    learner = learn(train, settings, seed=trial.seed, device="cpu")
    expected = learner.evaluate(test, novel)
    for name in ("closed_set_accuracy", *MEASURES, "fpr95"):
        assert result.metrics[name] == pytest.approx(expected[name], abs=1e-12), name
    assert result.details["per_class"] == expected["per_class"]
    assert result.details["per_novel_class"] == expected["per_novel_class"]
    assert result.metrics["exclusivity"] == pytest.approx(learner.report["exclusivity"])


def test_a_trial_run_twice_comes_to_the_same_figures(tmp_path, source):
    (trial,) = trials_of("shels-gaussian")
    one, two = (finished(run([trial], Records(tmp_path / name), source))[0] for name in "ab")
    assert lasting(one) == lasting(two)


def test_a_trial_comes_to_the_same_beside_others(tmp_path, source):
    (trial,) = trials_of()
    (by_itself,) = finished(run([trial], Records(tmp_path / "one"), source))
    others = [*trials_of(count=3)[1:], *trials_of("shels-gaussian"), *trials_of("standard-linear")]
    for place, most in enumerate((None, 3)):
        records = Records(tmp_path / f"many{place}")
        run([*others, trial], records, source, most_together=most)
        assert lasting(records.find(trial)) == lasting(by_itself)


# What is shared, and what is not run again -------------------------------------------------------------


def test_methods_that_train_alike_train_once(records, source, trained):
    trials = [*trials_of("shels", 2), *trials_of("shels-gaussian", 2), *trials_of("standard-linear", 1)]
    advances = run(trials, records, source)
    assert trained[0] == [1, 1, 1]
    assert {result.trial for result in finished(advances)} == set(trials)
    by_method = [records.find(trials[place]) for place in (0, 2)]
    assert by_method[0].details["checks"] == by_method[1].details["checks"]
    assert by_method[0].metrics["exclusivity"] == by_method[1].metrics["exclusivity"]
    assert by_method[0].metrics["auroc"] != by_method[1].metrics["auroc"]


def test_trials_that_judge_otherwise_share_a_network(records, source, trained):
    (trial,) = trials_of()
    strict = replace(trial, settings=replace(trial.settings, rule=MeanMinusSd(k=0.0)))
    one, two = finished(run([trial, strict], records, source))
    assert trained[0] == [1]
    assert two.metrics["acceptance"] < one.metrics["acceptance"]


def test_a_finished_trial_is_never_run_again(records, source, trained):
    trials = trials_of(count=2)
    run(trials[:1], records, source)
    before = records.path.read_bytes()
    advances = run(trials, records, source)
    assert trained[0] == [1, 1]
    assert [result.trial for result in finished(advances)] == trials[1:]
    assert all(trials[0] not in each.trials for each in advances)
    assert records.path.read_bytes().startswith(before)
    assert run(trials, records, source) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda s: replace(s, training=replace(s.training, epochs=2)),
        lambda s: replace(s, training=replace(s.training, optimiser=Adam(2e-3))),
        lambda s: replace(s, network=replace(s.network, head="linear")),
        lambda s: replace(s, rule=MeanMinusSd(k=2.0)),
    ],
    ids=["length", "rate", "head", "rule"],
)
def test_a_changed_setting_makes_another_trial(records, source, trained, change):
    (trial,) = trials_of()
    other = replace(trial, settings=change(trial.settings))
    run([trial], records, source)
    advances = run([trial, other], records, source)
    assert [result.trial for result in finished(advances)] == [other]
    assert trained[0] == [1, 1]
    assert len(records.results()) == 2


def test_trials_of_one_network_with_other_novel_classes_are_measured_each_on_its_own(tmp_path, source):
    (trial,) = trials_of()
    fewer = replace(trial, novel=trial.novel[:2])
    backwards = replace(trial, novel=trial.novel[::-1])
    together = Records(tmp_path / "together")
    run([trial, fewer, backwards], together, source)
    for place, each in enumerate((trial, fewer, backwards)):
        (by_itself,) = finished(run([each], Records(tmp_path / str(place)), source))
        assert lasting(together.find(each)) == lasting(by_itself)


# Groups ------------------------------------------------------------------------------------------------


def test_groups_put_together_what_can_be_stacked_and_what_shares_a_network():
    shels, gaussian, linear = (trials_of(name, 3) for name in ("shels", "shels-gaussian", "standard-linear"))
    longer = trials_of("shels", 1, epochs=2)
    assert engine.groups([*shels, *gaussian, *linear, *longer]) == [
        [[one, two] for one, two in zip(shels, gaussian, strict=True)],
        [[one] for one in linear],
        [longer],
    ]


def test_groups_leave_other_data_and_other_classes_apart():
    (trial,) = trials_of()
    elsewhere = replace(trial, known_data="other")
    fewer = replace(trial, known=trial.known[:3])
    reordered = replace(trial, known=trial.known[::-1])
    across = replace(trial, experiment="across/digits-other", novel_data="other")
    assert engine.groups([trial, elsewhere, fewer, reordered, across]) == [
        [[trial, across], [fewer], [reordered]],
        [[elsewhere]],
    ]
    assert engine.groups([]) == []


def test_trials_of_other_class_counts_run_in_one_group(records, source):
    first, second = trials_of(count=2)
    fewer = replace(second, known=second.known[:3])
    advances = run([first, fewer], records, source, most_together=2)
    assert [each.kind for each in advances].count("loading") == 1
    assert [len(result.details["exclusivity"]) for result in finished(advances)] == [5, 3]


def test_novel_classes_may_come_from_several_data_sets(records, source):
    (trial,) = trials_of()
    across = replace(trial, experiment="across/digits-other", novel_data="other", novel=trial.novel[::-1])
    one, two = finished(run([trial, across], records, source))
    assert one.metrics == two.metrics
    assert list(two.details["per_novel_class"]) == [str(name) for name in across.novel]


def test_how_many_trained_together_is_told_as_it_was(records, source):
    """On a CPU trials train one after another, whatever was allowed."""
    results = finished(run(trials_of(count=2), records, source, most_together=2))
    assert [result.details["stacked"] for result in results] == [1, 1]


# What goes wrong ---------------------------------------------------------------------------------------


def test_a_data_source_that_fails_leaves_the_other_trials(records, source):
    good, bad = trials_of(count=2)
    bad = replace(bad, known_data="damaged", novel_data="damaged")
    advances = run([bad, good], records, source)
    assert [each.kind for each in advances[:3]] == ["loading", "failed", "loading"]
    assert advances[1] == engine.Advance("failed", (bad,), message="damaged.npz is not a whole .npz file")
    assert [result.trial for result in finished(advances)] == [good]
    assert records.find(bad) is None


@pytest.mark.parametrize(
    "change", [{"novel_data": "damaged"}, {"known": ("x", "y")}, {"novel": ("x",)}], ids=str
)
def test_a_trial_that_cannot_be_run_leaves_the_others_on_the_same_data(records, source, change):
    good, bad = trials_of(count=2)
    bad = replace(bad, **change)
    advances = run([good, bad], records, source, most_together=2)
    assert [result.trial for result in finished(advances)] == [good]
    assert [each.trials for each in advances if each.kind == "failed"] == [(bad,)]


def test_a_training_that_fails_leaves_the_other_trials_and_is_tried_again(records, source):
    good, bad = trials_of(count=2)
    wild = replace(bad.settings.training, optimiser=Adam(1e38))
    bad = replace(bad, settings=replace(bad.settings, training=wild))
    for again in (False, True):
        advances = run([bad, good], records, source)
        (failed,) = [each for each in advances if each.kind == "failed"]
        assert failed.trials == (bad,)
        assert "lower the learning rate" in failed.message
        assert [result.trial for result in finished(advances)] == ([] if again else [good])


def test_a_trial_that_diverges_among_others_fails_alone(records, source, monkeypatch):
    honest = loop.training

    def diverging(*given, **options):
        first, second, third = yield from honest(*given, **options)
        return [first, replace(second, error=TrainingError("the loss became nan")), third]

    monkeypatch.setattr(loop, "training", diverging)
    monkeypatch.setattr(preparing, "planned", lambda *given: 3)  # as a GPU would have it
    trials = trials_of(count=3)
    advances = run(trials, records, source)
    assert [each for each in advances if each.kind == "failed"] == [
        engine.Advance("failed", (trials[1],), message="the loss became nan")
    ]
    assert [result.trial for result in finished(advances)] == [trials[0], trials[2]]
    assert records.find(trials[1]) is None


def test_trials_with_novel_classes_of_several_sets_are_measured_side_by_side(records, source, monkeypatch):
    monkeypatch.setattr(preparing, "planned", lambda *given: 2)
    first, second = trials_of("shels-gaussian", 2)
    second = replace(second, experiment="across/digits-other", novel_data="other")
    advances = run([first, second], records, source, most_together=2)
    assert [result.trial for result in finished(advances)] == [first, second]


# Cut off -----------------------------------------------------------------------------------------------


def test_a_training_cut_off_goes_on_from_its_checkpoint_to_the_same_figures(tmp_path, source, trained):
    (trial,) = trials_of(epochs=4)
    (whole,) = finished(run([trial], Records(tmp_path / "whole"), source))
    records = Records(tmp_path / "cut")
    advances = engine.run([trial], records, source, device="cpu")
    for advance in advances:
        if advance.kind == "training" and left(records):
            break
    advances.close()
    assert left(records) == [checkpoint_of(trial)]
    assert records.find(trial) is None

    trained[1].clear()
    (result,) = finished(run([trial], records, source))
    assert trained[1][0].resumed
    assert trained[1][0].step >= 18  # an epoch at least was not trained again
    assert min(now.step for now in trained[1][1:]) > trained[1][0].step
    assert lasting(result) == lasting(whole)
    assert left(records) == []


def test_a_run_cut_off_between_two_results_of_one_network_does_not_train_it_again(tmp_path, source, trained):
    trials = [*trials_of("shels"), *trials_of("shels-gaussian")]
    whole, records = Records(tmp_path / "whole"), Records(tmp_path / "cut")
    run(trials, whole, source)
    append = records.append

    def cut_off(result):
        append(result)
        raise KeyboardInterrupt

    records.append = cut_off
    with pytest.raises(KeyboardInterrupt):
        run(trials, records, source)
    records.append = append
    assert [records.find(trial) is None for trial in trials] == [False, True]
    line = records.path.read_bytes()

    trained[1].clear()
    advances = run(trials, records, source)
    assert [(now.step, now.resumed) for now in trained[1]] == [(18, True)]
    assert [result.trial for result in finished(advances)] == trials[1:]
    assert records.path.read_bytes().startswith(line)
    for trial in trials:
        assert lasting(records.find(trial)) == lasting(whole.find(trial))
    assert left(records) == []


def test_nothing_is_left_of_a_run_cut_off_after_its_last_result(records, source):
    trials = trials_of(count=2)
    for advance in engine.run(trials[:1], records, source, device="cpu"):
        if advance.kind == "finished":
            break
    run(trials, records, source)
    assert left(records) == []


COMMAND = ["reproduce", "within/digits", "--trials", "3", "--epochs", "5", "--device", "cpu", "--no-report"]


def killed_at_a_random_moment(out):
    """Start the command, kill it somewhere after its first result, and return the lines written so far."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "shels", *COMMAND, "--out", str(out)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    path = out / "trials.jsonl"
    try:
        while not (path.exists() and b"\n" in path.read_bytes()):
            assert process.poll() is None, "it ended before its first result"
            time.sleep(0.005)
        took = json.loads(path.read_bytes().split(b"\n")[0])["details"]["stages"]["training"]
        time.sleep(random.uniform(0, 1.3 * took))  # two more trials take twice as long
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGKILL
    return path.read_bytes().split(b"\n")[:-1]


def test_after_kill_9_at_any_moment_the_same_command_ends_in_the_same_table(tmp_path):
    cut, whole = tmp_path / "cut", tmp_path / "whole"
    before = killed_at_a_random_moment(cut)
    assert 1 <= len(before) < 3
    for out in (cut, whole):
        result = CliRunner().invoke(app, [*COMMAND, "--out", str(out)])
        assert result.exit_code == 0, result.output
    lines = (cut / "trials.jsonl").read_bytes().split(b"\n")
    assert lines[: len(before)] == before  # not run again, to the second
    assert len(lines) == 3 + 1
    assert lines[-1] == b""
    mine, expected = (Records(out).results() for out in (cut, whole))
    assert [lasting(result) for result in mine] == [lasting(result) for result in expected]
    assert left(Records(cut)) == left(Records(whole)) == []


def test_a_trial_that_cannot_be_judged_fails_alone(records, source, monkeypatch):
    from shels.errors import TrainingError
    from shels.experiments import measuring

    real = measuring._Judge.figures

    def some(judge, trial, *args):
        if trial.method == "shels-gaussian" and trial.seed == 0:
            raise TrainingError("class 7 has no correctly classified training sample")
        return real(judge, trial, *args)

    monkeypatch.setattr(measuring._Judge, "figures", some)
    trials = [*trials_of("shels", 2), *trials_of("shels-gaussian", 2)]
    advances = run(trials, records, source)
    failed = [(now.trials, now.message) for now in advances if now.kind == "failed"]
    assert failed == [((trials[2],), "class 7 has no correctly classified training sample")]
    assert {result.trial for result in finished(advances)} == {trials[0], trials[1], trials[3]}
    assert left(records) == []
