"""Groups of several trials, as a GPU has them, give each trial what it gets alone.

On a CPU every group has one trial. Here stacks, trainings and features of all trials of a group are computed
together, as on a GPU, in float64, so that alone and together are the same but for a mix-up.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import replace

import pytest
import torch

from shels.config import MeanMinusSd, Penalty
from shels.data.preparation import Preparation
from shels.data.sources import load_named
from shels.experiments import engine, incremental
from shels.experiments.catalogue import CATALOGUE
from shels.experiments.features import Features
from shels.experiments.methods import METHODS
from shels.experiments.preparing import Loaded, alike_in_length, prepared
from shels.experiments.records import Records
from shels.learning.protocol import views_of
from shels.runtime import derived_seed, to_end
from shels.training import Ceiling, features, loop


def cut(samples, least):
    """Keep more samples of later classes than of earlier ones, so that trials differ in size."""
    each = [(samples.labels == c).nonzero()[: least + 3 * c, 0] for c in range(10)]
    return samples.take(torch.cat(each).sort().values)


@pytest.fixture(autouse=True)
def _in_float64(monkeypatch):
    prepare = Preparation.__call__
    monkeypatch.setattr(Preparation, "__call__", lambda self, inputs: prepare(self, inputs).double())
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="module")
def data():
    digits = load_named("digits")
    return replace(digits, train=cut(digits.train, 20), test=cut(digits.test, 10))


@contextmanager
def stacked(change=lambda trials: trials):
    """Let a group be trained and seen as one. change: makes other trials of those that come together."""
    training = loop.training

    def together(trials, *rest, **more):
        return training(change(trials), *rest, **more | {"together": len(trials)})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "training", together)
        patch.setattr(incremental, "fit_trials", to_end(together))
        patch.setattr(Loaded, "stacks", lambda self, most: iter(alike_in_length(self.trainings)))
        patch.setattr(features, "_on_gpu", lambda inputs: True)
        patch.setattr(torch.cuda, "device", lambda device: nullcontext())
        yield


def trials(name, method, novel=2, **accommodation):
    """Three short trials; seeds differ in classes."""
    out = []
    for trial in CATALOGUE[name].trials(METHODS[method], 3):
        settings = trial.settings
        training = replace(settings.training, steps=60, check_every=30, batch_size=16)
        way = replace(settings.accommodation, **accommodation)
        settings = replace(settings, training=training, accommodation=way)
        out.append(replace(trial, novel=trial.novel[:novel], settings=settings))
    return out


def run(asked, directory, data, fails=False):
    records, failed = Records(directory), []
    for now in engine.run(asked, records, lambda name, size: data, device="cpu"):
        failed += [(trial, now.message) for trial in now.trials] if now.kind == "failed" else []
    assert fails or not failed
    results = {} if len(failed) == len(asked) else {each.trial.key: each for each in records.results()}
    return (results, failed) if fails else results


def compare(asked, alone, together):
    """Assert that every trial came to the same figures, and to others than its neighbours."""
    assert set(alone) == set(together) == {trial.key for trial in asked}
    for key, one in alone.items():
        other = together[key]
        assert other.details["stacked"] > 1
        assert one.metrics == pytest.approx(other.metrics, abs=1e-6), (one.trial.method, one.trial.seed)
        for name in ("curve", "found", "right", "measured_on"):
            assert one.details.get(name) == other.details.get(name)
    assert len({tuple(one.metrics.values()) for one in alone.values()}) == len(asked)


def test_learning_class_by_class_with_two_sparsities_in_one_stack(tmp_path, data):
    asked = [
        *trials("incremental/digits", "penalty", novel=1, epochs=2),
        *trials("incremental/digits", "shels-no-sparsity", novel=1, epochs=2),
    ]
    alone = run(asked, tmp_path / "alone", data)
    with stacked():
        together = run(asked, tmp_path / "together", data)
    compare(asked, alone, together)
    assert {each.details["stacked"] for each in together.values()} == {6}


@pytest.mark.parametrize(("method", "settings"), [("ags-cl", {"epochs": 2}), ("shels-gdumb", {"epochs": 2})])
def test_rivals_learn_in_a_group_as_each_alone(tmp_path, data, method, settings):
    asked = trials("incremental/digits", method, novel=1, **settings)
    alone = run(asked, tmp_path / "alone", data)
    with stacked():
        compare(asked, alone, run(asked, tmp_path / "together", data))


def test_agents_beside_joint_training_and_detection_on_several_parts_of_the_data(tmp_path, data):
    within = trials("within/digits", "shels")
    joint = [
        replace(each, settings=replace(each.settings, accommodation=Penalty(), rule=MeanMinusSd(k=1.0)))
        for each in trials("open-world/digits", "joint-bound")
    ]
    asked = [
        *trials("open-world/digits", "maha-agent"),
        *trials("open-world/digits", "shels-agent", epochs=1),
        *joint,
        *within,
        *(replace(trial, measured_on="trained-images") for trial in within),
        *(replace(trial, measured_on="novel-training", novel=trial.novel[:1]) for trial in within),
    ]
    asked = [trial for trial in asked if trial.method != "joint-bound" or trial.seed != 1]
    alone = run(asked, tmp_path / "alone", data)
    with stacked():
        compare(asked, alone, run(asked, tmp_path / "together", data))


def test_gdumb_starts_again_at_a_lower_rate_where_one_trial_of_a_stack_must(tmp_path, data):
    plain = trials("incremental/digits", "gdumb", novel=1, epochs=3)
    marked, rates = derived_seed(1, "gdumb", 7), []

    def change(group):
        rates.append(len(group))
        if len(rates) != 2:  # the first stack learns the known classes, the second the new one
            return group
        low = Ceiling(0.0, frozenset({3}))
        return [replace(each, ceiling=low) if each.seed == marked else each for each in group]

    with stacked(change):
        together = run(plain, tmp_path / "together", data)
    assert rates == [3, 3, 1]
    slower = trials("incremental/digits", "gdumb", novel=1, epochs=3, learning_rate=0.05 / 4)
    alone = [run([one], tmp_path / str(one.seed), data)[one.key] for one in (plain[0], slower[1], plain[2])]
    for trial, one in zip(plain, alone, strict=True):
        found = together[trial.key]
        assert found.metrics == pytest.approx(one.metrics, abs=1e-6)
        assert found.details["curve"] == one.details["curve"]
    stages = [together[trial.key].details["course"][1] for trial in plain]
    assert [stage["learning_rate"] for stage in stages] == [0.05, 0.0125, 0.05]


def test_a_trial_that_cannot_begin_ends_alone(tmp_path, data, monkeypatch):
    asked = trials("incremental/digits", "slda")
    begin = incremental._first_learner

    def refusing(trained, *views):
        if trained.trial.seed == 1:
            raise incremental.AccommodationError("no class was learned")
        return begin(trained, *views)

    monkeypatch.setattr(incremental, "_first_learner", refusing)
    with stacked():
        found, failed = run(asked, tmp_path, data, fails=True)
    assert [(trial.seed, message) for trial, message in failed] == [(1, "no class was learned")]
    assert sorted(each.trial.seed for each in found.values()) == [0, 2]


def test_features_of_classes_that_were_not_kept_are_computed(data):
    (trial,) = trials("incremental/digits", "slda")[:1]
    training = prepared([trial], data, data.train.inputs, data.train.inputs.device)
    seen = Features(data, data.train.inputs, data.test.inputs, torch.float32)
    network, prepare = training.network, training.data.prepare
    seen.keep([network], [trial.known], prepare)
    for classes in ((*trial.known, *trial.novel), trial.novel, trial.known[:2]):
        places, _ = data.test.places(classes)
        (found,) = seen.of("test", [network], [places], prepare)
        wanted = views_of(network, data.test.inputs[places], prepare)
        torch.testing.assert_close(found.high, wanted.high)
