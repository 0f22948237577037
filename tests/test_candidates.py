"""Choosing a preset: what is compared, on which draws, and that nothing novel is looked at."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from shels.config import AcceptShare, Cosine
from shels.data.samples import DataSet, Samples
from shels.data.sources import load_named
from shels.errors import SettingsError, TrainingError
from shels.experiments.catalogue import CATALOGUE
from shels.learner.learner import learn


@pytest.fixture(scope="module")
def candidates():
    path = Path(__file__).parents[1] / "benchmarks" / "candidates.py"
    sys.path.insert(0, str(path.parent))  # as where it is run
    spec = importlib.util.spec_from_file_location("candidates", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["candidates"] = module
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(path.parent))
    for name in ("candidates", "left_out"):
        del sys.modules[name]


@pytest.fixture(scope="module")
def digits():
    return load_named("digits")


CPU = torch.device("cpu")


def known_of(seed):
    return CATALOGUE["within/digits"].classes(seed)[0]


def short(candidates):
    settings = candidates.settings_of("best+epochs=6", "digits")
    return replace(settings, training=replace(settings.training, steps=None, steps_by_root=None))


def spoiled(samples: Samples, which: torch.Tensor) -> Samples:
    inputs = samples.inputs.clone()
    inputs[which] = 0
    return replace(samples, inputs=inputs)


def test_no_image_of_a_novel_class_and_no_test_image_has_a_say(candidates, digits):
    draw, settings = candidates.Draw(100, 2, 0, 1.0, 0.2), short(candidates)
    known = torch.tensor([name in known_of(100) for name in digits.train.classes])
    nothing = DataSet(
        digits.name,
        spoiled(digits.train, ~known[digits.train.labels]),
        spoiled(digits.test, torch.ones(len(digits.test), dtype=torch.bool)),
    )
    whole, without = (candidates.judged(settings, [draw], data, CPU)[0] for data in (digits, nothing))
    assert without["by"] == whole["by"]
    assert whole["by"]["fused"].keys() >= {"auroc", "exclusivity", "known at 0.9", "novel at 0.9"}
    seen = DataSet(digits.name, spoiled(digits.train, known[digits.train.labels]), digits.test)
    assert draw.data(seen, known_of(100)).train.inputs.max() == 0  # what it does look at is this


@pytest.mark.parametrize("turn", [0, 1])
def test_classes_left_out_are_known_ones_and_no_two_turns_leave_out_the_same(candidates, turn):
    known = known_of(101)
    rest, novel = candidates.Draw(101, 2, turn, 1.0, 0.2).classes(known)
    assert novel == known[2 * turn : 2 * turn + 2]
    assert sorted([*rest, *novel]) == sorted(known)


def test_leaving_out_too_many_classes_is_refused(candidates):
    with pytest.raises(SettingsError, match="leave fewer out"):
        candidates.Draw(100, 4, 0, 1.0, 0.2).classes(known_of(100))
    with pytest.raises(SettingsError, match="turn 2"):
        candidates.Draw(100, 2, 2, 1.0, 0.2).classes(known_of(100))


def test_images_that_are_judged_are_trained_on_by_no_candidate(candidates, digits):
    numbered = replace(digits.train, inputs=torch.arange(len(digits.train)).float()[:, None].repeat(1, 3))
    data = candidates.Draw(102, 2, 0, 0.5, 0.2).data(replace(digits, train=numbered), known_of(102))
    trained, judged = ({int(row[0]) for row in part.inputs} for part in (data.train, data.test))
    assert not trained & judged
    mine = len(digits.train.only(known_of(102)))
    assert len(judged) == pytest.approx(0.2 * mine, abs=5)
    assert len(trained) == pytest.approx(0.4 * mine, abs=5)


def test_groups_are_never_parted_between_training_and_judging(candidates, digits):
    grouped = replace(digits.train, groups=torch.arange(len(digits.train)) // 7)
    data = candidates.Draw(103, 2, 0, 0.5, 0.2).data(replace(digits, train=grouped), known_of(103))
    pairs = [set(zip(part.labels.tolist(), part.groups.tolist(), strict=True)) for part in vars(data).values()
             if isinstance(part, Samples)]  # fmt: skip
    assert not pairs[0] & pairs[1]


def test_with_no_class_left_out_it_says_what_shares_of_known_samples_come_to(candidates, digits, tmp_path):
    draw, settings, path = (
        candidates.Draw(100, 0, 0, 1.0, 0.2),
        {"best": short(candidates)},
        tmp_path / "kept",
    )
    candidates.run(settings, [draw], digits, path, CPU)
    candidates.show(candidates.read(path), settings, [draw])
    found = candidates.read(path)[candidates.key_of(settings["best"], draw)]["by"]["fused"]
    assert found["known at 0.8"] < found["known at 0.95"] <= found["closed_set_accuracy"]
    assert not {"auroc", "novel at 0.8"} & found.keys()


def test_candidates_are_compared_on_the_draws_that_both_have(candidates, tmp_path, capsys):
    settings = {"best": short(candidates)}
    settings["slower"] = replace(settings["best"], training=replace(settings["best"].training, batch_size=64))
    draws = [candidates.Draw(seed, 2, 0, 1.0, 0.2) for seed in (100, 101)]

    def figures(auroc):
        by = {"auroc": auroc, "exclusivity": 1.0, "known at 0.9": 0.9}
        return {"seconds": 1.0, "by": dict.fromkeys(candidates.DETECTORS, by)}

    found = {candidates.key_of(settings["best"], draw): figures(0.8 + i / 10) for i, draw in enumerate(draws)}
    found[candidates.key_of(settings["slower"], draws[1])] = figures(0.95)
    candidates.show(found, settings, draws)
    shown = capsys.readouterr().out
    assert "slower, fused: 1 draws" in shown
    assert "+0.0500 ± nan" in shown  # against 0.9 of the same draw, not against the mean of both
    assert candidates.compared({"a": [3.0, 5.0]}, {"a": [1.0, 1.0]}) == {"a": (3.0, 1.0)}


def test_what_is_there_is_not_run_again_and_a_line_cut_off_is(candidates, digits, tmp_path, monkeypatch):
    ran = []

    def judged(settings, draws, whole, device):
        ran.extend(draw.seed for draw in draws)
        by = {name: {"auroc": 0.9} for name in candidates.DETECTORS}
        return [{"seconds": 1.0, "by": by} for _ in draws]

    monkeypatch.setattr(candidates, "judged", judged)
    path, settings = tmp_path / "digits.jsonl", {"best": short(candidates)}
    draws = [candidates.Draw(seed, 2, 0, 1.0, 0.2) for seed in (100, 101)]
    candidates.run(settings, draws, digits, path, CPU)
    candidates.run(settings, draws, digits, path, CPU)
    assert ran == [100, 101]
    path.write_text(path.read_text()[:-20])
    candidates.run(settings, draws, digits, path, CPU)
    assert ran == [100, 101, 101]
    assert len(candidates.read(path)) == 2


def test_a_candidate_that_fails_costs_the_others_nothing(candidates, digits, tmp_path, monkeypatch, capsys):
    def judged(settings, draws, whole, device):
        if draws[0].seed == 100:
            raise TrainingError("class 3 was never named")
        return [{"seconds": 1.0, "by": {name: {"auroc": 0.9} for name in candidates.DETECTORS}}]

    monkeypatch.setattr(candidates, "judged", judged)
    path, settings = tmp_path / "digits.jsonl", {"best": short(candidates)}
    draws = [candidates.Draw(seed, 2, 0, 1.0, 0.2) for seed in (100, 101)]
    candidates.run(settings, draws, digits, path, CPU)
    assert "seed 100, turn 0: failed: class 3 was never named" in capsys.readouterr().out
    assert list(candidates.read(path)) == [candidates.key_of(settings["best"], draws[1])]


def test_thresholds_for_another_share_are_those_that_the_detector_would_have(candidates, digits):
    from left_out import at_share

    learner = learn(digits.train.only(digits.train.classes[:3]), short(candidates), seed=0)
    views = learner.views(digits.test.inputs)
    verdicts = learner.detector.verdicts(views)
    there = at_share(learner.detector, verdicts, 0.7).novel
    assert torch.equal(there, learner.detector.with_rule(AcceptShare(0.7, "separate")).verdicts(views).novel)
    assert int(there.sum()) > int(verdicts.novel.sum())


def test_a_candidate_is_a_preset_with_changes(candidates):
    made = candidates.settings_of("best+scale=3+augment=none+rate=0.002+epochs=4+decay=0.1", "mnist")
    assert made.network.scale == 3
    assert made.training.augmentation is None
    assert made.training.epochs == 4
    assert made.training.optimiser.learning_rate == 0.002
    assert isinstance(made.training.optimiser.schedule, Cosine)
    assert made.training.optimiser.decoupled_decay == 0.1
    assert candidates.settings_of("best+augment=crops", "mnist").training.augmentation.flip == 0
    assert candidates.settings_of("paper", "fmnist").training.epochs == 20


@pytest.mark.parametrize("wrong", ["worst", "best+size", "best+flavour=3", "best+augment=bright"])
def test_a_wrong_candidate_is_refused(candidates, wrong):
    with pytest.raises((SettingsError, ValueError)):
        candidates.settings_of(wrong, "mnist")


@pytest.mark.parametrize("left_out", [0, 2])
def test_draws_judged_together_have_the_figures_of_each_alone(candidates, digits, left_out):
    settings = short(candidates)
    draws = [candidates.Draw(seed, left_out, 0, 1.0, 0.2) for seed in (100, 101)]
    together = candidates.judged(settings, draws, digits, CPU)
    alone = [candidates.judged(settings, [draw], digits, CPU)[0] for draw in draws]
    assert [each["by"] for each in together] == [each["by"] for each in alone]
