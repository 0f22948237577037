"""Rivals that keep old samples: what they keep, what they train on, and that it works."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from shels.config import (
    Adam,
    Gdumb,
    Joint,
    NetworkSettings,
    Penalty,
    ShelsGdumb,
    TrainingSettings,
    WarmRestarts,
)
from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.data.sources import load_named
from shels.errors import AccommodationError, DataError, SettingsError, TrainingError
from shels.learning.methods import gdumb
from shels.learning.methods.gdumb import ceiling_of, cut_box, cutmix_loss, partners
from shels.learning.methods.penalty import PenaltyMethod, change_penalty, merged
from shels.learning.protocol import NewClass, relabelled, take_in, under
from shels.learning.registry import method_of
from shels.learning.replay_buffer import as_memory, buffered_samples, extended, in_form_of, joined, quotas
from shels.model.activations import weight_layers
from shels.model.architectures import ARCHITECTURES
from shels.model.growth import fresh
from shels.model.networks import build, from_chain, initialise
from shels.runtime import finished, generator
from shels.training.data import Batch, Rows, TrialData, TrialTraining
from shels.training.loop import fit, fit_trials, fitting
from shels.training.losses import PADDING, shels_loss
from tests.learning.clouds import PREPARE, TRAINING, cloud, known

GDUMB = Gdumb(size=24, epochs=7, batch_size=8)
SCRATCH = replace(GDUMB, start="scratch", epochs=31)
MIXED = ShelsGdumb(size=24, epochs=7, batch_size=8, learning_rate=1e-3)
METHODS = [GDUMB, SCRATCH, MIXED, Joint()]
SMALL = [GDUMB, MIXED]


@pytest.fixture(scope="module")
def base():
    torch.manual_seed(0)
    chain = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 10), nn.ReLU())
    network = from_chain(chain, (6,), "linear", 3, seed=0)
    with torch.no_grad():
        network.body[0].bias[:2] = -50  # two silent units
    fit(network, shels_loss(network, TRAINING), TrialData.of(known(), None, PREPARE), TRAINING, seed=0)
    return network


def take(base, settings, samples=None):
    method = method_of(settings)
    memory = method.remember(base, known(), PREPARE)
    samples = cloud(3) if samples is None else samples
    return method, memory, take_in(method, NewClass(base, memory, samples, PREPARE, TRAINING, 1))


def counts(memory, classes):
    return torch.bincount(memory["labels"], minlength=classes).tolist()


def rows(inputs):
    return {tuple(row) for row in inputs.flatten(1).tolist()}


def weights(network):
    return {name: value.clone() for name, value in network.state_dict().items()}


def same(one, other):
    return all(torch.equal(value, other[name]) for name, value in one.items())


@torch.no_grad()
def accuracy(method, taken, samples, prepare=PREPARE):
    taken.network.eval()
    scores = method.naming(taken.network, taken.memory)(taken.network.views(prepare(samples.inputs)))
    return float((scores.argmax(dim=1) == samples.labels).float().mean())


# Every method ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", METHODS, ids=str)
def test_a_method_adds_one_row_and_leaves_what_it_was_given_untouched(base, settings):
    before, method = weights(base), method_of(settings)
    memory = method.remember(base, known(), PREPARE)
    kept = {name: value.clone() for name, value in memory.items()}
    samples = cloud(3)
    taken = take_in(method, NewClass(base, memory, samples, PREPARE, TRAINING, 1))
    assert taken.network.head.weight.shape[0] == 4
    assert same(weights(base), before)
    assert memory.keys() == kept.keys()
    assert same(memory, kept)
    assert torch.equal(samples.inputs, cloud(3).inputs)


@pytest.mark.parametrize("settings", METHODS, ids=str)
def test_a_method_gives_the_same_from_the_same_seed_and_goes_on(base, settings):
    method, _, one = take(base, settings)
    torch.rand(3)
    _, _, two = take(base, settings)
    assert same(weights(one.network), weights(two.network))
    assert same(one.memory, two.memory)
    more = take_in(method, NewClass(one.network, one.memory, cloud(4), PREPARE, TRAINING, 1))
    assert more.network.head.weight.shape[0] == 5
    assert set(more.memory["labels"].tolist()) == set(range(5))
    assert int(more.memory["seen"]) == 5 * 40


@pytest.mark.parametrize("settings", METHODS, ids=str)
def test_a_report_is_plain_data_and_says_how_many_samples_are_kept(base, settings):
    _, _, taken = take(base, settings)
    report = json.loads(json.dumps(taken.report))
    assert report["method"] == settings.kind
    assert report["memory"] == len(taken.memory["samples"]) == (160 if settings == Joint() else 24)
    assert report["steps"] == (60 if settings == Joint() else 3 * settings.epochs)
    assert math.isfinite(report["final_loss"])


@pytest.mark.parametrize("settings", METHODS, ids=str)
def test_samples_kept_are_old_samples_under_their_own_labels_and_nothing_else_of_them_is_kept(base, settings):
    _, first, taken = take(base, settings)
    for memory, classes in ((first, 3), (taken.memory, 4)):
        kept = buffered_samples(memory, classes)
        assert kept.classes == tuple(range(classes))
        for position in range(classes):
            assert rows(kept.inputs[kept.labels == position]) <= rows(cloud(position).inputs)
        assert len(rows(kept.inputs)) == len(kept)
        others = {name: value for name, value in memory.items() if name not in ("samples", "labels", "seen")}
        if settings.kind != "shels-gdumb":
            assert not others
        assert all(value.shape[:1] in ((), (12,), (10,)) for value in others.values())  # one value a unit


@pytest.mark.parametrize("settings", METHODS, ids=str)
def test_a_class_cannot_be_unlearned_and_one_without_samples_is_refused(base, settings):
    method, memory, taken = take(base, settings)
    with pytest.raises(AccommodationError, match=f'"{settings.kind}" cannot unlearn'):
        method.drop(taken.network, taken.memory, 3)
    nothing = cloud(3).take(torch.zeros(0, dtype=torch.int64))
    with pytest.raises(DataError, match="no sample of the new class"):
        next(method.take_in(NewClass(base, memory, nothing, PREPARE, TRAINING, 0)))


@pytest.mark.parametrize("settings", METHODS, ids=str)
def test_nothing_is_held_out_and_the_last_weights_are_kept(base, settings):
    method = method_of(settings)
    memory = method.remember(base, known(), PREPARE)
    request = next(
        method.take_in(NewClass(base, memory, cloud(3), PREPARE, replace(TRAINING, patience=2), 0))
    )
    assert request.trial.data.validation is None
    assert request.settings.patience is None
    assert method.stores == "old data"
    assert method.grows_head
    assert not method.frozen_features


@pytest.mark.parametrize("settings", [replace(GDUMB, epochs=31), SCRATCH, Joint()], ids=str)
def test_old_and_new_classes_are_named_right_after_a_lesson(base, settings):
    method, _, taken = take(base, settings)
    test = known(4, seed=7)
    for position in range(4):
        assert accuracy(method, taken, test.take(test.labels == position)) >= 0.9


@pytest.mark.parametrize("settings", METHODS, ids=str)
def test_lessons_of_two_trials_train_alike_alone_and_together(settings):
    """Together they share the first one's loss, so it must hold nothing of its own trial."""
    results, method = {}, method_of(settings)
    for together in (None, 2):
        lessons = []
        for seed in range(2):
            network = build(NetworkSettings("vectors", head="linear"), (6,), 3, seed)
            memory = method.remember(network, known(seed=seed, n=40 + 9 * seed), PREPARE)
            lessons.append(
                next(method.take_in(NewClass(network, memory, cloud(3, seed=seed), PREPARE, TRAINING, seed)))
            )
            lessons[-1].trial.network.double()
        one, trials = lessons[0], [request.trial for request in lessons]
        steps = replace(one.settings, epochs=None, steps=9, check_every=4)
        fit_trials(trials, one.loss, steps, after_step=one.after_step, together=together)
        results[together] = [weights(trial.network) for trial in trials]
    for alone, stacked in zip(results[None], results[2], strict=True):
        for name, value in alone.items():
            torch.testing.assert_close(stacked[name], value, rtol=0, atol=1e-9, msg=name)


def test_images_of_another_form_are_brought_to_that_of_those_kept():
    kept = torch.rand(4, 1, 8, 8)
    bytes_of = (kept * 255).round().to(torch.uint8)
    torch.testing.assert_close(in_form_of(bytes_of, kept), bytes_of.float() / 255)
    assert torch.equal(in_form_of(bytes_of.float() / 255, bytes_of), bytes_of)
    large = kept.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
    small = in_form_of(large, kept)
    assert small.shape == kept.shape
    torch.testing.assert_close(small.mean(dim=(2, 3)), kept.mean(dim=(2, 3)), rtol=0, atol=0.03)
    memory = as_memory(Samples(kept, torch.tensor([0, 0, 1, 1]), (0, 1)), 4)
    new = relabelled(Samples(bytes_of[:3], torch.zeros(3, dtype=torch.int64), (0,)), 2)
    every = joined(memory, new)
    assert every.inputs.dtype == torch.float32
    assert every.labels.tolist() == [0, 0, 1, 1, 2, 2, 2]


# The memory --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("available", "most", "expected"),
    [
        ([40, 40, 40], 24, [8, 8, 8]),
        ([40, 40, 40], 25, [8, 8, 9]),
        ([40, 2, 40], 24, [11, 2, 11]),  # what one lacks is the others'
        ([1, 2, 3], 24, [1, 2, 3]),
        ([5, 5, 5, 5], 4, [1, 1, 1, 1]),
    ],
)
def test_quotas_of_hand_worked_memories(available, most, expected):
    assert quotas(available, most) == expected


@pytest.mark.parametrize("settings", SMALL, ids=str)
def test_the_memory_is_balanced_and_never_over_its_size(base, settings):
    method, first, taken = take(base, settings)
    assert counts(first, 3) == [8, 8, 8]
    assert counts(taken.memory, 4) == [6, 6, 6, 6]
    more = take_in(method, NewClass(taken.network, taken.memory, cloud(4), PREPARE, TRAINING, 1))
    assert sorted(counts(more.memory, 5)) == [4, 5, 5, 5, 5]


@pytest.mark.parametrize("settings", SMALL, ids=str)
def test_old_samples_only_ever_leave_the_memory(base, settings):
    _, first, taken = take(base, settings)
    old = taken.memory["samples"][taken.memory["labels"] < 3]
    assert rows(old) < rows(first["samples"])


@pytest.mark.parametrize("settings", SMALL, ids=str)
def test_a_share_of_all_samples_seen_is_kept_and_at_least_ten_of_each_class(base, settings):
    _, first, taken = take(base, replace(settings, size=None, share=0.5))
    assert counts(first, 3) == [20, 20, 20]  # of 120
    assert counts(taken.memory, 4) == [20, 20, 20, 20]  # of 160
    assert int(taken.memory["seen"]) == 160
    few = replace(settings, size=None, share=0.001)
    assert counts(method_of(few).remember(base, known(), PREPARE), 3) == [10, 10, 10]
    assert counts(take(base, few)[2].memory, 4) == [10, 10, 10, 10]


def test_a_small_class_leaves_the_rest_to_the_others(base):
    _, _, taken = take(base, GDUMB, cloud(3).take(torch.arange(3)))
    assert counts(taken.memory, 4) == [7, 7, 7, 3]


def test_a_large_class_does_not_get_the_room_that_old_classes_can_no_longer_fill(base):
    _, _, taken = take(base, replace(GDUMB, size=None, share=0.3), cloud(3, n=400))
    assert counts(taken.memory, 4) == [12, 12, 12, 39]  # 156 of 520 in all, a quarter of it 39


def test_a_memory_of_fewer_samples_than_classes_is_refused(base):
    with pytest.raises(SettingsError, match="size must be one sample a class or more, so 3 or more"):
        method_of(Gdumb(size=2)).remember(base, known(), PREPARE)


def test_which_samples_are_kept_is_drawn_at_random_from_the_seed():
    memory = as_memory(known(), 120)
    new = relabelled(cloud(3), 3)
    one, again, other = (extended(GDUMB, memory, new, generator(seed))["samples"] for seed in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    times = (
        sum(extended(GDUMB, memory, new, generator(s))["samples"][:6, 1:].mean() for s in range(200)) / 200
    )
    assert float(times) == pytest.approx(float(known().inputs[:40, 1:].mean()), abs=0.01)


# Where training starts ---------------------------------------------------------------------------------


def test_a_fresh_start_has_nothing_of_the_given_weights_and_a_warm_one_has(base):
    other = fresh(base, 3, generator(5))
    results = {}
    for start in ("warm", "scratch"):
        method = method_of(replace(GDUMB, start=start, epochs=1))
        memory = method.remember(base, known(), PREPARE)
        results[start] = [
            weights(take_in(method, NewClass(network, memory, cloud(3), PREPARE, TRAINING, 1)).network)
            for network in (base, other)
        ]
    assert same(*results["scratch"])
    assert not same(*results["warm"])
    gone = [
        (value[0] - weights(base)["body.0.weight"][0]).norm()
        for value in (results[start][0]["body.0.weight"] for start in ("warm", "scratch"))
    ]
    assert gone[0] < gone[1]


@pytest.mark.parametrize("head", ["cosine", "linear", "scaled-cosine"])
def test_a_fresh_network_is_drawn_as_the_builder_draws(head):
    built = build(NetworkSettings("small", head=head), (1, 8, 8), 3, seed=4)
    again = fresh(built, 5, generator(4, "body"))
    expected = weights(built.body)
    assert same(weights(again.body), expected)
    assert type(again.head) is type(built.head)
    assert again.head.weight.shape == (5, 128)
    assert float(again.head.weight.detach().abs().max()) == pytest.approx((6 / (5 + 128)) ** 0.5, rel=0.05)
    assert not any(value.any() for name, value in again.named_parameters() if name.endswith("bias"))
    assert same(weights(again), weights(fresh(built, 5, generator(4, "body"))))
    assert not same(weights(again.body), weights(fresh(built, 5, generator(5, "body")).body))


def test_a_fresh_network_is_of_the_given_ones_type_and_mode(base):
    made = fresh(build(NetworkSettings("small"), (1, 8, 8), 3, seed=4).double().eval(), 4, generator(0))
    assert made.head.weight.dtype == torch.float64
    assert not made.training
    assert made(torch.rand(2, 1, 8, 8, dtype=torch.float64)).shape == (2, 4)


# Joint -------------------------------------------------------------------------------------------------


def test_joint_training_is_the_first_training_on_all_classes_from_a_fresh_network(base):
    settings = replace(TRAINING, alpha=0.01, patience=3)
    method = method_of(Joint())
    memory = method.remember(base, known(), PREPARE)
    request = next(method.take_in(NewClass(base, memory, cloud(3), PREPARE, settings, 1)))
    assert request.settings == replace(settings, patience=None)
    expected = fresh(base, 4, generator(1, "start", 3))
    assert same(weights(request.trial.network), weights(expected))
    data = TrialData.of(known(4), None, PREPARE)
    fit(expected, shels_loss(expected, settings), data, request.settings, seed=request.trial.seed)
    taken = take_in(method, NewClass(base, memory, cloud(3), PREPARE, settings, 1))
    assert same(weights(taken.network), weights(expected))
    assert counts(taken.memory, 4) == [40] * 4


# SHELS-GDumb -------------------------------------------------------------------------------------------


def test_the_combination_has_the_papers_loss_on_the_memory(base):
    method = method_of(replace(MIXED, beta=7.0))
    memory = method.remember(base, known(), PREPARE)
    request = next(method.take_in(NewClass(base, memory, cloud(3), PREPARE, TRAINING, 1)))
    assert len(request.trial.data.training.labels) == 24
    assert request.settings.optimiser == Adam(1e-3)
    params = {name: value.detach() + 0.1 for name, value in request.trial.network.named_parameters()}
    batch, state = Batch(known(4).inputs, known(4).labels), request.trial.state
    plain = shels_loss(request.trial.network, TRAINING)(params, batch, {})
    changed = change_penalty(
        params, under("before/", state), under("importance/", state), weight_layers(request.trial.network)
    )
    assert float(request.loss(params, batch, state)) == pytest.approx(float(plain + 7 * changed), rel=1e-6)
    assert state["importance/head"].tolist() == [1, 1, 1, 0]


def test_importance_is_over_all_samples_kept_or_not(base):
    _, first, taken = take(base, MIXED)
    paper = PenaltyMethod(Penalty())
    old = paper.remember(base, known(), PREPARE)
    assert all(torch.equal(first[name], value) for name, value in old.items())
    union = merged(old, paper.remember(taken.network, cloud(3), PREPARE))
    assert int(union["importance.count"]) == 160
    assert all(torch.allclose(taken.memory[name], value) for name, value in union.items())


def test_masks_hold_to_the_end_and_a_great_beta_holds_old_units(base):
    results = {}
    for beta in (0.0, 2000.0):
        _, memory, taken = take(base, replace(MIXED, beta=beta, learning_rate=1e-4))
        unused = PenaltyMethod(Penalty()).unused(
            {n: v for n, v in memory.items() if n.startswith("importance")}
        )
        silent, used = unused["body.0"].nonzero()[:, 0], (~unused["body.2"]).nonzero()[:, 0]
        assert len(silent) >= 2
        assert not taken.network.body[2].weight[used][:, silent].any()
        busy = ~unused["body.0"]
        moved = (taken.network.body[0].weight - base.body[0].weight)[busy]
        results[beta] = float(moved.detach().norm())
    assert 0 < results[2000.0] < 0.5 * results[0.0]


def test_the_combination_without_a_penalty_learns_the_new_class(base):
    method, _, taken = take(base, replace(MIXED, beta=0.0, learning_rate=1e-2, epochs=31))
    assert accuracy(method, taken, known(4, seed=7)) >= 0.9


# Warm restarts -----------------------------------------------------------------------------------------


def test_rates_are_those_of_torchs_cosine_with_warm_restarts_after_a_warm_up():
    settings = WarmRestarts(0.05, 5e-4)
    optimiser = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimiser, T_0=1, T_mult=2, eta_min=5e-4)
    assert settings.rate(0) == pytest.approx(0.005)
    for epoch in range(1, 70):
        schedule.step()
        assert settings.rate(epoch) == pytest.approx(schedule.get_last_lr()[0], rel=1e-12)
    assert [settings.rate(epoch) for epoch in (1, 3, 7, 15, 31, 63)] == [0.05] * 6
    assert settings.rate(62) < 0.05 / 50


def image_trials(sizes=((3, 37), (4, 50)), dtype=torch.float64):
    """Trials on small images that differ in classes and in how long their last batch is."""
    draw = torch.Generator().manual_seed(0)
    out = []
    for seed, (classes, n) in enumerate(sizes):
        labels = torch.arange(n) % classes
        inputs = torch.randint(0, 128, (n, 1, 8, 8), generator=draw, dtype=torch.uint8)
        inputs[torch.arange(n), 0, labels] += 100
        network = build(NetworkSettings("small", head="linear"), (1, 8, 8), classes, seed).to(dtype)
        data = TrialData(inputs, Rows(torch.arange(n), labels), None, Preparation((1, 8, 8)))
        out.append(TrialTraining(network, data, seed))
    return out


RESTARTS = TrainingSettings(WarmRestarts(0.02, 5e-4, weight_decay=1e-3), batch_size=8, epochs=3, alpha=0.0)


def clipped(most, settings=RESTARTS):
    return replace(settings, optimiser=replace(settings.optimiser, clip=most))


def assert_alone_is_stacked(make, settings=RESTARTS):
    alone, stacked, start = image_trials(), image_trials(), image_trials()
    for trial in alone:
        fit_trials([trial], make(trial.network), settings)
    fit_trials(stacked, make(stacked[0].network), settings, together=2)
    for one, other, before in zip(alone, stacked, start, strict=True):
        for a, b, c in zip(*(each.network.parameters() for each in (one, other, before)), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-9)
            assert (a - c).abs().max() > 1e-4
    return alone


@pytest.mark.parametrize("clip", [10.0, 0.2], ids=["never cut", "cut"])
def test_warm_restarts_train_alike_alone_and_stacked(clip):
    assert_alone_is_stacked(lambda network: shels_loss(network, RESTARTS), clipped(clip))


@pytest.mark.parametrize("clip", [10.0, 0.2], ids=["never cut", "cut"])
def test_warm_restarts_step_as_torchs_sgd_at_those_rates(clip):
    (trial,), (other,) = image_trials(((3, 16),)), image_trials(((3, 16),))
    settings = clipped(clip, replace(RESTARTS, batch_size=16, epochs=5))  # one batch an epoch
    lengths = []
    fit_trials([trial], shels_loss(trial.network, settings), settings)
    network, data = other.network, other.data
    optimiser = torch.optim.SGD(network.parameters(), lr=1.0, momentum=0.9, weight_decay=1e-3)
    for epoch in range(5):
        optimiser.param_groups[0]["lr"] = settings.optimiser.rate(epoch)
        optimiser.zero_grad()
        F.cross_entropy(network(data.inputs.double() / 255), data.training.labels).backward()
        lengths.append(float(torch.nn.utils.clip_grad_norm_(network.parameters(), clip)))
        optimiser.step()
    assert (max(lengths) > clip) == (clip < 1)  # where it is to be cut, it is long enough
    for a, b in zip(trial.network.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-7)


# CutMix ------------------------------------------------------------------------------------------------


@pytest.fixture
def network():
    return build(NetworkSettings("small", head="linear"), (1, 8, 6), 4, seed=0).double()


def images(n=5, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.rand(n, 1, 8, 6, generator=draw, dtype=torch.float64), torch.arange(n) % 4


def by_hand(network, inputs, labels, numbers, chance):
    """The loss pixel by pixel and sample by sample, in float64."""
    x, n = inputs.numpy(), len(inputs)
    height, width = x.shape[2:]
    mixed, pixels = x.copy(), 0
    if numbers[0] < chance:
        half = [int(side * math.sqrt(1 - numbers[1]) / 2) for side in (height, width)]
        centre = [int(number * side) for number, side in zip(numbers[2:], (height, width), strict=True)]
        for row in range(max(0, centre[0] - half[0]), min(height, centre[0] + half[0])):
            for column in range(max(0, centre[1] - half[1]), min(width, centre[1] + half[1])):
                pixels += 1
                for i in range(n):
                    mixed[i, :, row, column] = x[n - 1 - i, :, row, column]
    lam, total = 1 - pixels / (height * width), 0.0
    scores = network(torch.from_numpy(mixed)).detach().numpy()
    for i in range(n):
        logs = scores[i] - np.log(np.exp(scores[i]).sum())
        total -= lam * logs[labels[i]] + (1 - lam) * logs[labels[n - 1 - i]]
    return total / n, lam


NUMBERS = [
    (0.1, 0.4, 0.5, 0.5),
    (0.1, 0.05, 0.99, 0.0),  # reaches out at a corner
    (0.1, 0.0, 0.5, 0.5),  # all of it
    (0.1, 0.9999, 0.5, 0.5),  # nothing of it
    (0.7, 0.4, 0.5, 0.5),  # not this batch
]


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("n", [4, 5])
def test_the_cutmix_loss_is_that_of_a_plain_loop(network, monkeypatch, numbers, n):
    monkeypatch.setattr(gdumb, "draws", lambda like: torch.tensor(numbers, dtype=like.dtype))
    inputs, labels = images(n)
    expected, lam = by_hand(network, inputs, labels, numbers, 0.5)
    assert (lam == 1) == (numbers in NUMBERS[3:])
    got = cutmix_loss(network, 0.5)(dict(network.named_parameters()), Batch(inputs, labels), {})
    assert float(got.detach()) == pytest.approx(expected, abs=1e-12)


def test_a_box_of_hand_worked_numbers():
    box = cut_box(torch.tensor([0.0, 0.75, 0.5, 0.0]), 8, 4, 0.5)  # half of each side: 4 and 2, about (4, 0)
    assert box.nonzero().tolist() == [[2, 0], [3, 0], [4, 0], [5, 0]]
    assert not cut_box(torch.tensor([0.5, 0.75, 0.5, 0.0]), 8, 4, 0.5).any()


def test_a_batch_is_paired_in_reverse_and_samples_that_are_not_there_among_themselves():
    assert partners(torch.tensor([0, 1, 2])).tolist() == [2, 1, 0]
    assert partners(torch.tensor([0, 1, 2, PADDING, PADDING])).tolist() == [2, 1, 0, 4, 3]


def test_samples_that_are_not_there_change_nothing(network, monkeypatch):
    monkeypatch.setattr(gdumb, "draws", lambda like: torch.tensor(NUMBERS[0], dtype=like.dtype))
    inputs, labels = images(5)
    loss, params = cutmix_loss(network, 0.5), dict(network.named_parameters())
    whole = loss(params, Batch(inputs, labels), {})
    filled = torch.cat([inputs, images(3, seed=9)[0]])
    padded = loss(params, Batch(filled, F.pad(labels, (0, 3), value=PADDING)), {})
    assert float(padded.detach()) == pytest.approx(float(whole.detach()), abs=1e-12)
    for a, b in zip(
        *(torch.autograd.grad(each, list(params.values())) for each in (padded, whole)), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_a_sample_is_not_mixed_with_one_that_is_not_there_wherever_that_stands(network, monkeypatch):
    monkeypatch.setattr(gdumb, "draws", lambda like: torch.tensor(NUMBERS[2], dtype=like.dtype))
    inputs, labels = images(3)
    gap = torch.tensor([PADDING, 1, 2])  # the second and the first are a pair
    got = cutmix_loss(network, 0.5)(dict(network.named_parameters()), Batch(inputs, gap), {})
    expected = F.cross_entropy(network(inputs)[1:], labels[1:])
    assert partners(gap).tolist() == [1, 0, 2]
    assert float(got.detach()) == pytest.approx(float(expected.detach()), abs=1e-12)


def test_cutmix_trains_alike_alone_and_stacked_where_its_draws_are_the_same(monkeypatch):
    seen = []

    def drawn(like):
        """Numbers that the first image of a batch decides, so other ones in each trial and step."""
        first = like[0].sum()
        seen.append(0)
        return torch.stack([(first * scale).frac() for scale in (3.1, 17.3, 41.7, 97.9)])

    monkeypatch.setattr(gdumb, "draws", drawn)
    mixed = assert_alone_is_stacked(lambda network: cutmix_loss(network, 0.7))
    assert seen
    plain = assert_alone_is_stacked(lambda network: cutmix_loss(network, 0.0))
    assert not same(weights(mixed[0].network), weights(plain[0].network))


def test_trials_of_a_stack_draw_their_own_boxes_which_fall_everywhere():
    like = torch.zeros(2, 3, 1, 8, 8, dtype=torch.float64)
    torch.manual_seed(0)
    numbers = torch.stack([torch.vmap(gdumb.draws, randomness="different")(like) for _ in range(500)])
    assert not torch.equal(numbers[:, 0], numbers[:, 1])
    torch.testing.assert_close(numbers.mean(dim=(0, 1)), torch.full((4,), 0.5).double(), rtol=0, atol=0.04)
    boxes = torch.stack([cut_box(each, 8, 8, 0.5) for each in numbers.flatten(0, 1)])
    assert boxes.any(dim=(1, 2)).double().mean() == pytest.approx(0.5, abs=0.06)  # half of all, nearly
    assert boxes.any(dim=0).all()


def test_cutmix_of_vectors_is_refused_when_the_lesson_is_made(base):
    method = method_of(replace(GDUMB, cutmix=0.5))
    memory = method.remember(base, known(), PREPARE)
    with pytest.raises(SettingsError, match=r"cutmix must be 0 for vectors of 6: it mixes images, got 0\.5"):
        next(method.take_in(NewClass(base, memory, cloud(3), PREPARE, TRAINING, 0)))


# Images ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cutmix", [0.0, 0.5])
def test_digits_are_learned_from_a_small_memory(cutmix):
    data, prepare = load_named("digits"), Preparation((1, 8, 8))
    classes = data.train.classes
    first, new = data.train.only(classes[:3]), data.train.only(classes[3:4])
    chain = ARCHITECTURES["vectors"]((64,))
    initialise(chain, generator(0, "body"))
    network = from_chain(nn.Sequential(nn.Flatten(), *chain), (1, 8, 8), "linear", 3, seed=0)
    method = method_of(Gdumb(size=60, start="scratch", epochs=63, batch_size=16, cutmix=cutmix))
    memory = method.remember(network, first, prepare)
    assert memory["samples"].dtype == data.train.inputs.dtype  # as they came
    taken = take_in(method, NewClass(network, memory, new, prepare, TRAINING, 0))
    assert accuracy(method, taken, data.test.only(classes[:4]), prepare) > 0.9


# The rate that a network survives ----------------------------------------------------------------------


def rates_asked(base, settings, fails):
    """Step through a lesson in which the first trainings fail; return what it asked for, and what came."""
    method = method_of(settings)
    memory = method.remember(base, known(), PREPARE)
    steps = method.take_in(NewClass(base, memory, cloud(3), PREPARE, TRAINING, seed=0))
    asked, request = [], next(steps)
    while True:
        asked.append(request)
        try:
            if len(asked) <= fails:
                request = steps.throw(TrainingError("dead"))
            else:
                request = steps.send(finished(fitting(request)))
        except StopIteration as end:
            return asked, end.value


@pytest.mark.parametrize("start", ["warm", "scratch"])
def test_a_training_that_fails_starts_again_from_the_same_network_at_a_quarter_of_the_rate(base, start):
    asked, taken = rates_asked(base, Gdumb(start=start, epochs=7), fails=2)
    assert [each.settings.optimiser.learning_rate for each in asked] == [0.05, 0.0125, 0.003125]
    once, _ = rates_asked(base, Gdumb(start=start, epochs=7), fails=0)
    assert same(weights(asked[0].trial.network), weights(asked[1].trial.network))
    assert len({id(each.trial.network) for each in asked}) == 3
    assert taken.network is asked[-1].trial.network
    assert taken.report["learning_rate"] == 0.003125
    assert len(once) == 1


def test_a_rate_is_not_lowered_without_end(base):
    with pytest.raises(TrainingError, match="dead"):
        rates_asked(base, Gdumb(epochs=7), fails=9)


def test_the_loss_must_be_under_that_of_guessing_where_cycles_end():
    warm, fresh_start = ceiling_of(24, Gdumb()), ceiling_of(24, Gdumb(start="scratch"))
    assert warm.loss == fresh_start.loss == pytest.approx(0.9 * math.log(24))
    assert (warm.epochs, fresh_start.epochs) == ({7, 15, 31, 63}, {31, 63})


def test_a_rate_that_kills_the_network_is_found_out_and_left(base):
    settings = Gdumb(learning_rate=200.0, lowest_rate=0.01, clip=1e9, epochs=31)
    method = method_of(settings)
    memory = method.remember(base, known(), PREPARE)
    taken = take_in(method, NewClass(base, memory, cloud(3), PREPARE, TRAINING, seed=0))
    assert 0.01 <= taken.report["learning_rate"] < 200.0
    assert taken.report["final_loss"] < 0.9 * math.log(4)
    assert accuracy(method, taken, known(4)) > 0.8
