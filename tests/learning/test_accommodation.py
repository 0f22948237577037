from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import nn

from shels.config import Penalty, Proximal
from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.data.sources import load_named
from shels.errors import AccommodationError, DataError
from shels.learning import gaussian_replay as replay
from shels.learning import protection
from shels.learning.methods import penalty
from shels.learning.methods.penalty import change_penalty, masked, merged, penalty_loss, transfer_masks
from shels.learning.methods.proximal import proximal_sparsity
from shels.learning.protection import free_units, parts
from shels.learning.protocol import NewClass, take_in, train_alone, under
from shels.learning.registry import method_of
from shels.model.activations import WeightLayer, weight_layers
from shels.model.chains import describe, rebuild
from shels.model.networks import from_chain
from shels.training.data import Batch, TrialData
from shels.training.loop import fit
from shels.training.losses import shels_loss
from tests.learning.clouds import PREPARE, TRAINING, cloud, known

METHODS = [
    Penalty(epochs=2, rate_divisor=2),
    Penalty(epochs=2, importance="map-norm", tolerance=0.05, grow=3),
    Proximal(steps=30, learning_rate=1e-2, grow=8, batch_size=16, replay=32),
    Proximal(steps=30, learning_rate=1e-2, grow=8, batch_size=16, replay=32, alpha=0.5),
]


@pytest.fixture(scope="module")
def base():
    torch.manual_seed(0)
    chain = nn.Sequential(
        nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 10), nn.ReLU()
    )
    network = from_chain(chain, (6,), "cosine", 3, seed=0)
    with torch.no_grad():
        network.body[2].bias[:2] = -50  # two silent units
    fit(network, shels_loss(network, TRAINING), TrialData.of(known(), None, PREPARE), TRAINING, seed=0)
    return network


@torch.no_grad()
def raw(network, inputs):
    return network.eval().features(inputs) @ network.head.weight.T


def take(base, settings, samples=None):
    method = method_of(settings)
    memory = method.remember(base, known(), PREPARE)
    samples = cloud(3) if samples is None else samples
    taken = take_in(method, NewClass(base, memory, samples, PREPARE, TRAINING, 1))
    return method, memory, taken


# Every method ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", METHODS, ids=str)
def test_a_method_adds_one_row_and_leaves_what_it_was_given_untouched(base, settings):
    before = {name: value.clone() for name, value in base.state_dict().items()}
    method, memory, taken = take(base, settings)
    kept = {name: value.clone() for name, value in memory.items()}
    take_in(method, NewClass(base, memory, cloud(3), PREPARE, TRAINING, 1))
    assert taken.network.head.weight.shape[0] == 4
    assert all(torch.equal(value, before[name]) for name, value in base.state_dict().items())
    assert all(torch.equal(memory[name], value) for name, value in kept.items())
    body = rebuild(describe(taken.network.body))
    body.load_state_dict(taken.network.body.state_dict())


@pytest.mark.parametrize("settings", METHODS, ids=str)
def test_a_method_reports_plain_data_with_free_units_before_and_after(base, settings):
    _, _, taken = take(base, settings)
    report = json.loads(json.dumps(taken.report))
    assert report["method"] == settings.kind
    assert set(report["free_units"]) == {"before", "after"}
    assert report["steps"] > 0
    assert report["final_loss"] > 0


@pytest.mark.parametrize("settings", METHODS, ids=str)
def test_a_method_gives_the_same_from_the_same_seed_and_takes_in_a_second_class(base, settings):
    method, _, one = take(base, settings)
    torch.rand(3)
    _, _, two = take(base, settings)
    assert all(
        torch.equal(value, two.network.state_dict()[name]) for name, value in one.network.state_dict().items()
    )
    more = take_in(method, NewClass(one.network, one.memory, cloud(4), PREPARE, TRAINING, 1))
    assert more.network.head.weight.shape[0] == 5
    assert all(value.isfinite().all() for value in more.network.state_dict().values())


@pytest.mark.parametrize("settings", METHODS, ids=str)
def test_a_method_keeps_no_sample(base, settings):
    _, _, taken = take(base, settings)
    assert all(40 not in value.shape[:1] for value in taken.memory.values())


@pytest.mark.parametrize("settings", METHODS, ids=str)
def test_a_new_class_without_samples_is_refused(base, settings):
    nothing = cloud(3).take(torch.zeros(0, dtype=torch.int64))
    with pytest.raises(DataError, match="no sample of the new class"):
        take(base, settings, nothing)


@pytest.mark.parametrize("settings", [METHODS[0], METHODS[2]], ids=str)
@pytest.mark.parametrize("n", [1, 5])
def test_a_new_class_of_few_samples_can_be_taken_in(base, settings, n):
    _, _, taken = take(base, settings, cloud(3).take(torch.arange(n)))
    assert all(value.isfinite().all() for value in taken.network.state_dict().values())
    assert all(value.isfinite().all() for value in taken.memory.values())


def test_progress_is_reported_to_the_last_step(base):
    method = method_of(METHODS[2])
    new = NewClass(base, method.remember(base, known(), PREPARE), cloud(3), PREPARE, TRAINING, 1)
    seen = list(train_alone(method.take_in(new)))
    assert seen[-1].step == seen[-1].steps == 30
    assert seen[-1].check.validation_loss is None


# Penalty -----------------------------------------------------------------------------------------------


def test_change_penalty_of_hand_worked_values():
    layers = [WeightLayer("w", "b", None, "one"), WeightLayer("v", None, "one", "two")]
    before = {"w": torch.zeros(2, 2), "b": torch.zeros(2), "v": torch.ones(1, 2, 1, 1)}
    params = {
        "w": torch.tensor([[1.0, 2.0], [0.0, 3.0]]),
        "b": torch.tensor([2.0, 4.0]),
        "v": torch.tensor([[[[4.0]], [[5.0]]]]),
    }
    importances = {"one": torch.tensor([0.5, 2.0]), "two": torch.tensor([10.0])}
    # 0.5 · |(1, 2, 2)| + 2 · |(0, 3, 4)| + 10 · |(3, 4)|
    assert float(change_penalty(params, before, importances, layers)) == pytest.approx(1.5 + 10 + 50)


def test_penalty_loss_adds_beta_times_the_changes_to_the_first_loss(base):
    params = {name: value.detach() + 0.1 for name, value in base.named_parameters()}
    layers = weight_layers(base)
    shapes = {layer.units: len(params[layer.weight]) for layer in layers}
    state = {f"before/{name}": value.detach() for name, value in base.named_parameters()}
    state |= {f"importance/{name}": torch.ones(n) for name, n in shapes.items()}
    batch = Batch(known().inputs, known().labels)
    first = shels_loss(base, TRAINING)(params, batch, {})
    changed = change_penalty(params, under("before/", state), under("importance/", state), layers)
    assert float(penalty_loss(base, TRAINING, 7.0)(params, batch, state)) == pytest.approx(
        float(first + 7 * changed), rel=1e-6
    )


def test_masks_stand_where_an_unused_unit_feeds_a_used_one():
    layers = [WeightLayer("w", None, None, "one"), WeightLayer("v", None, "one", "two")]
    unused = {"one": torch.tensor([True, False]), "two": torch.tensor([False, True])}
    masks = transfer_masks(layers, unused, {"w": torch.Size([2, 5]), "v": torch.Size([2, 2, 3, 3])})
    assert set(masks) == {"v"}
    assert masks["v"][:, :, 0, 0].tolist() == [[0, 1], [1, 1]]


def test_penalty_masks_hold_at_every_step_and_at_the_end(base, monkeypatch):
    seen = []

    def watch(params, state):
        new = masked(params, state)
        seen.append(all(not (new[n] * (1 - state[f"mask/{n}"])).any() for n in new))
        return new

    monkeypatch.setattr(penalty, "masked", watch)
    method, memory, taken = take(base, Penalty(epochs=3, rate_divisor=1, grow=4))
    unused = method.unused(memory)
    assert len(seen) == 1 + 3 * 3  # where training starts, and after each step
    assert all(seen)
    assert int(unused["body.2"].sum()) >= 2
    silent = unused["body.2"].nonzero()[:, 0]
    used = (~unused["body.4"]).nonzero()[:, 0]
    assert not taken.network.body[4].weight[used][:, silent].any()
    assert not taken.network.head.weight[:3, -4:].any()  # old classes do not read the added units
    assert taken.network.head.weight[3, -4:].all()


def test_merged_importance_is_the_importance_over_the_union_while_the_network_is_unchanged(base):
    for kind in ("mean", "map-norm"):
        method = method_of(Penalty(importance=kind))
        one, two = known(), cloud(3)
        union = Samples(torch.cat([one.inputs, two.inputs]), torch.zeros(160, dtype=torch.int64), ("x",))
        parted = merged(method.remember(base, one, PREPARE), method.remember(base, two, PREPARE))
        whole = method.importances(method.remember(base, union, PREPARE))
        assert set(whole) == {"body.0", "body.2", "body.4"}
        for name, value in method.importances(parted).items():
            assert torch.allclose(value, whole[name], atol=1e-6)


def test_importance_that_is_added_up_is_the_sum_of_the_means(base):
    for kind in ("mean", "map-norm"):
        method = method_of(Penalty(importance=kind, merging="sum"))
        old, new = (method.remember(base, samples, PREPARE) for samples in (known(), cloud(3)))
        means = [method.importances(memory) for memory in (old, new)]
        once = method.importances(merged(old, new, "sum"))
        twice = method.importances(merged(merged(old, new, "sum"), new, "sum"))
        for name, value in once.items():
            torch.testing.assert_close(value, means[0][name] + means[1][name])
            torch.testing.assert_close(twice[name], means[0][name] + 2 * means[1][name])


def test_weights_that_are_zeroed_once_begin_at_zero_and_are_then_free(base):
    taken = {}
    for zeroed in ("held", "once"):
        method, memory, taken[zeroed] = take(base, Penalty(epochs=3, rate_divisor=1, zeroed=zeroed))
    silent = method.unused(memory)["body.2"].nonzero()[:, 0]
    used = (~method.unused(memory)["body.4"]).nonzero()[:, 0]
    assert not taken["held"].network.body[4].weight[used][:, silent].any()
    objective, state = method.protected(deepcopy(base), memory, TRAINING)
    assert objective.after_step is None
    assert not state["before/body.4.weight"][used][:, silent].any()


def test_tolerance_frees_units_of_little_importance(base):
    strict, loose = (method_of(Penalty(tolerance=share)) for share in (0.0, 0.5))
    memory = strict.remember(base, known(), PREPARE)
    assert loose.unused(memory)["body.4"].sum() > strict.unused(memory)["body.4"].sum()


def test_penalty_says_why_it_cannot_unlearn(base):
    method, _, taken = take(base, METHODS[0])
    with pytest.raises(AccommodationError, match="cannot unlearn a class"):
        method.drop(taken.network, taken.memory, 3)


def test_penalty_cannot_grow_a_network_without_linear_layers():
    chain = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    network = from_chain(chain, (1, 4, 4), "cosine", 2, seed=0)
    samples = Samples(torch.rand(4, 1, 4, 4), torch.tensor([0, 1, 0, 1]), ("a", "b"))
    method = method_of(Penalty(grow=2))
    memory = method.remember(network, samples, Preparation((1, 4, 4)))
    with pytest.raises(AccommodationError, match="no linear layer"):
        take_in(method, NewClass(network, memory, samples.only(("a",)), Preparation((1, 4, 4)), TRAINING, 0))


# Proximal ----------------------------------------------------------------------------------------------


def test_protected_weights_are_bit_identical_and_old_scores_the_same(base):
    method, memory, taken = take(base, METHODS[2])
    free = free_units(parts(base).tail, under("activation.", memory))
    used = {f"body.{int(name.split('.')[1]) + 2}": ~mark for name, mark in free.items()}
    for name in ("body.2", "body.4"):
        old, new = base.get_submodule(name), taken.network.get_submodule(name)
        reads = old.weight.clone()
        if name == "body.4":
            reads[:, ~used["body.2"]] = 0  # compared after zeroing
        wide = old.weight.shape[1]
        mark = used[name].nonzero()[:, 0]
        assert torch.equal(new.weight[mark][:, :wide], reads[mark])
        assert not new.weight[mark][:, wide:].any()
        assert torch.equal(new.bias[mark], old.bias[mark])
    assert torch.equal(taken.network.body[0].weight, base.body[0].weight)
    inputs = torch.cat([known().inputs, cloud(3).inputs])
    assert torch.allclose(raw(taken.network, inputs)[:, :3], raw(base, inputs), atol=1e-6)
    again = take_in(method, NewClass(taken.network, taken.memory, cloud(4), PREPARE, TRAINING, 2))
    assert torch.allclose(raw(again.network, inputs)[:, :4], raw(taken.network, inputs), atol=1e-6)


def test_protection_holds_at_every_step(base, monkeypatch):
    seen = []
    real = protection.protected

    def watch(by):
        step = real(by)

        def after_step(params, state):
            new = step(params, state)
            seen.append(
                all(
                    torch.equal(new[n][~state[f"learns/{n}"]], state[f"before/{n}"][~state[f"learns/{n}"]])
                    for n in new
                )
            )
            return new

        return after_step

    monkeypatch.setattr(protection, "protected", watch)
    take(base, METHODS[3])
    assert len(seen) == 30
    assert all(seen)


def test_a_new_classes_row_reads_units_that_no_other_row_reads(base):
    _, _, taken = take(base, METHODS[2])
    rows = taken.network.head.weight != 0
    assert rows[3].any()
    assert not (rows[3] & rows[:3].any(dim=0)).any()


def test_a_new_classes_mean_score_lies_between_that_of_old_classes_and_four_times_it(base):
    _, _, taken = take(base, replace(METHODS[2], steps=100))
    scores = raw(taken.network, known().inputs)
    usual = torch.stack([scores[known().labels == c, c].mean() for c in range(3)]).mean()
    own = raw(taken.network, cloud(3).inputs)
    assert 0.9 * usual < own[:, 3].mean() < 4.4 * usual
    assert (own.argmax(dim=1) == 3).float().mean() >= 0.9


def test_added_units_top_free_ones_up_to_what_was_asked_for(base):
    _, memory, taken = take(base, Proximal(steps=2, grow=8))
    free = free_units(parts(base).tail, under("activation.", memory))
    assert int(free["body.0"].sum()) >= 2
    for name, mark in free.items():
        layer = taken.network.body[int(name.split(".")[1]) + 2]
        assert layer.out_features == len(mark) + max(0, 8 - int(mark.sum()))


def test_a_new_class_takes_no_more_free_units_than_asked_for():
    free = {"body.0": torch.tensor([True, False, True, True])}
    assert protection.first_of(free, 2)["body.0"].tolist() == [True, False, True, False]
    assert protection.first_of(free, 0)["body.0"].tolist() == [True, False, True, True]


def test_without_growth_the_units_that_are_free_do(base):
    _, memory, taken = take(base, replace(METHODS[2], grow=0))
    free = free_units(parts(base).tail, under("activation.", memory))
    assert taken.report["grown_units"] == 0
    assert taken.network.body[4].out_features == 10
    read = taken.network.head.weight[3] != 0
    assert free["body.2"][read].all() or not free["body.2"].any()


def test_dropping_a_class_brings_back_the_old_scores_and_frees_its_units(base):
    method, _, taken = take(base, METHODS[2])
    dropped = method.drop(taken.network, taken.memory, 3)
    assert torch.allclose(raw(dropped.network, known().inputs), raw(base, known().inputs), atol=1e-6)
    assert dropped.memory["gaussian.mean"].shape[0] == 3
    assert dropped.report["free_units"]["after"]["body.4"] >= 8
    again = take_in(method, NewClass(dropped.network, dropped.memory, cloud(4), PREPARE, TRAINING, 2))
    assert again.report["grown_units"] <= 8  # the freed units are used again


def test_the_last_two_classes_cannot_be_unlearned(base):
    method, _, taken = take(base, METHODS[2])
    two = method.drop(method.drop(taken.network, taken.memory, 3).network, taken.memory, 0)
    with pytest.raises(AccommodationError, match="2 classes or more"):
        method.drop(two.network, two.memory, 0)


def test_a_network_of_convolutions_alone_learns_a_row_on_its_features():
    chain = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    torch.manual_seed(0)
    network = from_chain(chain, (1, 4, 4), "cosine", 2, seed=0)
    with torch.no_grad():
        network.head.weight.abs_()
    samples = Samples(torch.rand(8, 1, 4, 4), torch.arange(8) % 2, ("a", "b"))
    method = method_of(Proximal(steps=5))
    memory = method.remember(network, samples, Preparation((1, 4, 4)))
    taken = take_in(
        method, NewClass(network, memory, samples.only(("a",)), Preparation((1, 4, 4)), TRAINING, 0)
    )
    assert taken.report["grown_units"] == 0
    assert torch.equal(taken.network.head.weight[:2], network.head.weight)


def test_a_network_of_one_hidden_layer_draws_its_inputs_which_may_be_negative():
    torch.manual_seed(0)
    network = from_chain(nn.Sequential(nn.Linear(6, 8), nn.ReLU()), (6,), "linear", 3, seed=0)
    prepare = Preparation((6,), mean=torch.full((6,), 0.5), sd=torch.full((6,), 0.3))
    fit(network, shels_loss(network, TRAINING), TrialData.of(known(), None, prepare), TRAINING, seed=0)
    method = method_of(METHODS[2])
    memory = method.remember(network, known(), prepare)
    assert replay.draw(under("gaussian.", memory), 50).min() < -0.5
    taken = take_in(method, NewClass(network, memory, cloud(3), prepare, TRAINING, 0))
    assert taken.report["free_units"]["before"].keys() == {"body.0"}
    inputs = prepare(known().inputs)
    assert torch.allclose(raw(taken.network, inputs)[:, :3], raw(network, inputs), atol=1e-6)


def test_proximal_steps_shrink_groups_by_their_share_and_to_exactly_zero():
    chain = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    network = from_chain(chain, (2,), "cosine", 2, seed=0)
    params = {"body.0.weight": torch.tensor([[3.0, 0.03], [4.0, 0.04]]), "head.weight": torch.ones(2, 2)}
    new = proximal_sparsity(network, alpha=10.0, learning_rate=0.1)(params, {})
    assert set(new) == {"body.0.weight"}  # μ of the last layer is 1: nothing is shrunk there
    assert torch.allclose(new["body.0.weight"][:, 0], torch.tensor([2.4, 3.2]))  # norm 5 less 1
    assert new["body.0.weight"][:, 1].tolist() == [0, 0]


def test_sparsity_frees_units_of_the_new_class(base):
    left = []
    for alpha in (0.0, 0.3):
        _, _, taken = take(base, replace(METHODS[2], steps=60, alpha=alpha))
        left.append(int((taken.network.head.weight[3] != 0).sum()))
    assert left[1] < left[0]


# Replay ------------------------------------------------------------------------------------------------


def test_draws_have_the_mean_and_covariance_of_the_class():
    draws = torch.Generator().manual_seed(0)
    features = 9 + torch.randn(4000, 3, generator=draws) @ torch.randn(3, 5, generator=draws)
    statistics = replay.describe_class(features, rank=2, seed=0)
    drawn = replay.draw(statistics, 20000, torch.Generator().manual_seed(1))[0]
    assert torch.allclose(drawn.mean(dim=0), features.mean(dim=0), atol=0.06)
    assert torch.allclose(drawn.var(dim=0), features.var(dim=0), rtol=0.06)
    full = replay.draw(
        replay.describe_class(features, rank=5, seed=0), 20000, torch.Generator().manual_seed(1)
    )
    assert torch.allclose(full[0].T.cov(), features.T.cov(), atol=0.15)


def test_draws_are_never_negative_and_the_rank_is_bounded_by_what_a_class_may_cost():
    statistics = replay.describe_class(torch.rand(10, 6), rank=100, seed=0)
    assert statistics["factor"].shape == (1, 6, 6)
    assert replay.draw(statistics, 500).min() >= 0
    wide = replay.describe_class(torch.rand(3, 2**15), rank=100, seed=0)
    assert wide["factor"].shape[1] == 16


def test_a_class_of_one_sample_has_the_spread_of_the_others():
    old = replay.describe_class(torch.rand(200, 4), rank=2, seed=0)
    one = replay.describe_class(torch.rand(1, 4), rank=2, seed=0, old=old)
    assert (one["residual"] > 0.2).all()


def test_few_features_are_made_up_about_their_mean_as_old_classes_spread():
    old = replay.describe_class(5 + torch.rand(200, 4), rank=4, seed=0)
    few = 20 + torch.rand(3, 4)
    full = replay.filled(few, old, 50, torch.Generator().manual_seed(0))
    assert full.shape == (50, 4)
    assert torch.equal(full[:3], few)
    assert (full[3:].mean(dim=0) - few.mean(dim=0)).abs().max() < 0.2
    assert replay.filled(full, old, 50, torch.Generator()) is full


# Digits ------------------------------------------------------------------------------------------------


def test_a_novel_digit_is_learned_and_old_digits_are_kept(digits, learner):
    train, test, _ = digits
    new = load_named("digits")
    method = method_of(Proximal())
    memory = method.remember(learner.network, train, learner.preparation)
    taken = take_in(
        method, NewClass(learner.network, memory, new.train.only((6,)), learner.preparation, TRAINING, 0)
    )
    old_inputs, new_inputs = (learner.preparation(s.inputs) for s in (test, new.test.only((6,))))
    before = raw(learner.network, old_inputs)
    after = raw(taken.network, old_inputs)
    kept = float((after.argmax(dim=1) == test.labels).float().mean())
    had = float((before.argmax(dim=1) == test.labels).float().mean())
    assert kept >= had - 0.02
    assert float((raw(taken.network, new_inputs).argmax(dim=1) == 4).float().mean()) >= 0.9
    assert torch.allclose(after[:, :4], before, atol=1e-6)


def test_penalty_runs_on_the_digits(digits, learner):
    method = method_of(Penalty(epochs=1, grow=8))
    memory = method.remember(learner.network, digits[0], learner.preparation)
    new = load_named("digits").train.only((6,))
    taken = take_in(
        method, NewClass(learner.network, memory, new, learner.preparation, learner.settings.training, 0)
    )
    assert taken.network.head.weight.shape == (5, 136)
    assert taken.report["grown_units"] == 8
    assert int(taken.memory["importance.count"]) == len(digits[0]) + len(new)
