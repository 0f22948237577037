"""The rivals that keep no samples but train: fine-tuning, LwF, EWC and AGS-CL."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from shels.config import AgsCl, Ewc, FineTune, Lwf, NetworkSettings
from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.errors import AccommodationError, DataError
from shels.learning.methods import ewc
from shels.learning.methods.ags_cl import (
    cleared,
    drawn_to,
    proximal_steps,
    shrinking,
    sparse_steps,
    unused_nodes,
)
from shels.learning.methods.ewc import elastic_penalty, fisher, own_labels
from shels.learning.methods.lwf import distillation
from shels.learning.protocol import NewClass, take_in, under
from shels.learning.registry import method_of
from shels.model.activations import WeightLayer, total_sums, weight_layers
from shels.model.networks import Views, build, from_chain
from shels.runtime import finished, generator
from shels.training.data import Batch, TrialData
from shels.training.loop import fit, fit_trials, fitting
from shels.training.losses import PADDING, shels_loss
from tests.learning.clouds import PREPARE, TRAINING, cloud, known

METHODS = [
    FineTune(epochs=2),
    Lwf(epochs=2, rate_divisor=2),
    Ewc(epochs=2, rate_divisor=2, samples=30, strength=10.0),
    AgsCl(epochs=2, rate_divisor=2, mu=0.1, lam=1.0),
]
EVERY = pytest.mark.parametrize("settings", METHODS, ids=lambda each: each.kind)


def trained(head):
    torch.manual_seed(0)
    chain = nn.Sequential(
        nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 10), nn.ReLU()
    )
    network = from_chain(chain, (6,), head, 3, seed=0)
    with torch.no_grad():
        network.body[2].bias[:4] = -50  # silent nodes
        network.body[4].bias[:3] = -50
    plain = replace(TRAINING, alpha=0.0, steps=200)
    fit(network, shels_loss(network, plain), TrialData.of(known(), None, PREPARE), plain, seed=0)
    return network


@pytest.fixture(scope="module")
def bases():
    return {head: trained(head) for head in ("linear", "cosine")}


@pytest.fixture
def base(bases):
    return bases["linear"]


def learn(network, settings, samples=None):
    method = method_of(settings)
    memory = method.remember(network, known(), PREPARE)
    samples = cloud(3) if samples is None else samples
    return method, memory, take_in(method, NewClass(network, memory, samples, PREPARE, TRAINING, 1))


def request_of(network, settings, samples=None, seed=1):
    method = method_of(settings)
    memory = method.remember(network, known(), PREPARE)
    samples = cloud(3) if samples is None else samples
    return next(method.take_in(NewClass(network, memory, samples, PREPARE, TRAINING, seed)))


@torch.no_grad()
def accuracy(network, samples):
    return float((network.eval()(samples.inputs).argmax(dim=1) == samples.labels).float().mean())


def in_float64(request):
    state = {name: value.double() for name, value in request.trial.state.items()}
    return replace(request, trial=replace(request.trial, network=request.trial.network.double(), state=state))


def params_of(network):
    return {name: value.detach().clone() for name, value in network.named_parameters()}


# Every method ------------------------------------------------------------------------------------------


@EVERY
@pytest.mark.parametrize("head", ["linear", "cosine"])
def test_a_method_adds_a_row_and_leaves_what_it_was_given_untouched(bases, settings, head):
    network = bases[head]
    before = params_of(network)
    method = method_of(settings)
    memory = method.remember(network, known(), PREPARE)
    kept = {name: value.clone() for name, value in memory.items()}
    taken = take_in(method, NewClass(network, memory, cloud(3), PREPARE, TRAINING, 1))
    again = take_in(method, NewClass(taken.network, taken.memory, cloud(4), PREPARE, TRAINING, 1))
    assert (len(taken.network.head.weight), len(again.network.head.weight)) == (4, 5)
    assert all(torch.equal(value, before[name]) for name, value in network.named_parameters())
    assert set(memory) == set(kept) == set(taken.memory)
    assert all(torch.equal(memory[name], value) for name, value in kept.items())
    assert all(value.isfinite().all() for value in (*again.network.parameters(), *again.memory.values()))
    assert all(40 not in value.shape[:1] for value in taken.memory.values())
    assert not np.isnan(json.loads(json.dumps(taken.report))["final_loss"])


@EVERY
def test_a_method_gives_the_same_from_the_same_seed_whatever_was_drawn_before(base, settings):
    _, _, one = learn(base, settings)
    torch.rand(3)
    _, _, two = learn(base, settings)
    assert all(
        torch.equal(a, b) for a, b in zip(one.network.parameters(), two.network.parameters(), strict=True)
    )
    assert all(torch.equal(value, two.memory[name]) for name, value in one.memory.items())


@EVERY
def test_classes_are_named_by_the_last_layer_with_its_bias_and_none_can_be_unlearned(base, settings):
    method, memory, taken = learn(base, settings)
    high = taken.network.features(known().inputs).detach()
    expected = high @ taken.network.head.weight.T + taken.network.head.bias
    assert torch.allclose(method.naming(taken.network, memory)(Views(high, high)), expected, atol=1e-6)
    with pytest.raises(AccommodationError, match=f'"{settings.kind}" cannot unlearn'):
        method.drop(taken.network, taken.memory, 3)
    with pytest.raises(DataError, match="no sample of the new class"):
        learn(base, settings, cloud(3).take(torch.zeros(0, dtype=torch.int64)))


def pictures(position, n):
    draws = torch.Generator().manual_seed(position)
    inputs = (torch.rand(n, 1, 8, 8, generator=draws) * 0.5).index_fill(2, torch.tensor([position]), 1.0)
    return Samples(inputs, torch.zeros(n, dtype=torch.int64), (position,))


def picture_request(settings, seed):
    network = build(NetworkSettings("small", head="linear"), (1, 8, 8), 2, seed)
    with torch.no_grad():
        network.body[0].bias[:5] = -50  # silent channels
        network.body[9].bias[:7] = -50
    method, prepare = method_of(settings), Preparation((1, 8, 8))
    memory = method.remember(network, pictures(0, 9), prepare)
    return next(
        method.take_in(NewClass(network, memory, pictures(3, 18 + 3 * seed), prepare, TRAINING, seed))
    )


@EVERY
@pytest.mark.parametrize("images", [False, True])
def test_lessons_are_the_same_alone_and_stacked(base, settings, images):
    """Trials of other samples, other numbers of them and other seeds; last batches are short."""
    results = []
    for together in (None, 2):
        lessons = [
            in_float64(
                picture_request(settings, seed)
                if images
                else request_of(base, settings, cloud(3 + seed, 37 + 6 * seed), seed)
            )
            for seed in (0, 1)
        ]
        one, trials = lessons[0], [each.trial for each in lessons]
        went = fit_trials(trials, one.loss, one.settings, after_step=one.after_step, together=together)
        assert all(each.error is None for each in went)
        results.append([params_of(each.network) for each in trials])
    for alone, stacked in zip(*results, strict=True):
        for name, value in alone.items():
            torch.testing.assert_close(stacked[name], value, rtol=0, atol=1e-9, msg=name)
    assert not torch.equal(results[0][0]["head.weight"], results[0][1]["head.weight"])


@EVERY
def test_samples_that_are_not_there_change_no_loss(base, settings):
    request = in_float64(request_of(base, settings))
    params = {name: value + 0.05 for name, value in params_of(request.trial.network).items()}
    inputs, labels = cloud(3, 7).inputs.double(), torch.full((7,), 3)
    alone = request.loss(params, Batch(inputs, labels), request.trial.state)
    padded = Batch(torch.cat([inputs, inputs[:3] * 9]), torch.cat([labels, torch.full((3,), PADDING)]))
    assert float(request.loss(params, padded, request.trial.state)) == pytest.approx(float(alone), rel=1e-12)


@EVERY
def test_the_sparsity_of_shels_plays_no_role_in_a_lesson(base, settings):
    method = method_of(settings)
    memory = method.remember(base, known(), PREPARE)
    one, two = (
        take_in(method, NewClass(base, memory, cloud(3), PREPARE, replace(TRAINING, alpha=alpha), 1))
        for alpha in (0.0, 5.0)
    )
    assert torch.equal(one.network.head.weight, two.network.head.weight)


# Fine-tuning -------------------------------------------------------------------------------------------


def test_fine_tuning_learns_the_new_class_and_forgets_the_old_ones(base):
    _, _, taken = learn(base, FineTune(epochs=10))
    new = replace(cloud(3), labels=torch.full((40,), 3), classes=(0, 1, 2, 3))
    assert accuracy(base, known()) == 1
    assert accuracy(taken.network, new) == 1
    assert accuracy(taken.network, known()) < 0.5


def test_fine_tuning_descends_cross_entropy_on_the_new_class_alone(base):
    request = in_float64(request_of(base, FineTune()))
    network, inputs = request.trial.network, cloud(3).inputs.double()
    value = request.loss(params_of(network), Batch(inputs, torch.full((40,), 3)), {})
    log_p = torch.log_softmax(network(inputs), dim=1).detach()
    assert float(value) == pytest.approx(-float(log_p[:, 3].mean()), rel=1e-12)
    assert request.trial.data.training.labels.unique().tolist() == [3]


# LwF ---------------------------------------------------------------------------------------------------


def test_distillation_of_hand_worked_values():
    answers = torch.tensor([[2 * np.log(3.0), 0.0]], dtype=torch.float64)  # at 2: three quarters, one quarter
    scores = torch.tensor([[0.0, 0.0]], dtype=torch.float64)
    assert float(distillation(scores, answers, 2.0)) == pytest.approx(np.log(2))
    same = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25))
    assert float(distillation(answers, answers, 2.0)) == pytest.approx(same)


def test_lwf_loss_is_that_of_numpy(base):
    settings = Lwf(strength=0.7, temperature=3.0)
    request = in_float64(request_of(base, settings))
    network, inputs = request.trial.network, cloud(3).inputs.double()
    old = request_of(base, settings).trial.state
    with torch.no_grad():
        for value in network.parameters():
            value.mul_(1.1)
        scores = network(inputs).numpy()
        answers = base(inputs.float()).double().numpy()
    assert set(old) == {f"before/{name}" for name, _ in base.named_parameters()}

    def softmax(values):
        raised = np.exp(values - values.max(axis=1, keepdims=True))
        return raised / raised.sum(axis=1, keepdims=True)

    new_class = -np.log(softmax(scores)[:, 3]).mean()
    kept = -(softmax(answers / 3) * np.log(softmax(scores[:, :3] / 3))).sum(axis=1).mean()
    value = request.loss(params_of(network), Batch(inputs, torch.full((40,), 3)), request.trial.state)
    assert float(value) == pytest.approx(new_class + 0.7 * kept, rel=1e-6)


def test_lwf_asks_its_teacher_without_dropout():
    chain = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Dropout(0.5))
    network = from_chain(chain, (6,), "linear", 3, seed=0)
    request = request_of(network, Lwf(strength=1.0))
    request.trial.network.eval()  # leaves the teacher as the only one that could drop anything
    batch = Batch(cloud(3).inputs, torch.full((40,), 3))
    one, two = (request.loss(params_of(request.trial.network), batch, request.trial.state) for _ in range(2))
    assert torch.equal(one, two)


def test_lwf_forgets_less_than_fine_tuning(base):
    @torch.no_grad()
    def drift(settings):
        with torch.enable_grad():
            _, _, taken = learn(base, settings)
        kept = taken.network(known().inputs)[:, :3].softmax(dim=1)
        return float((kept - base(known().inputs).softmax(dim=1)).abs().mean())

    assert drift(Lwf(epochs=10, rate_divisor=1, strength=10.0)) < 0.8 * drift(FineTune(epochs=10))


# EWC ---------------------------------------------------------------------------------------------------


def test_labels_are_drawn_by_the_networks_own_prediction():
    scores = torch.log(torch.tensor([[0.2, 0.5, 0.3]], dtype=torch.float64)).expand(4, 3)
    draws = torch.tensor([0.1, 0.3, 0.69, 0.9])
    assert own_labels(scores, draws).tolist() == [0, 1, 1, 2]
    many = own_labels(scores[:1].expand(20000, 3), torch.rand(20000, generator=generator(0)))
    assert torch.allclose(torch.bincount(many) / 20000, torch.tensor([0.2, 0.5, 0.3]), atol=0.015)
    assert own_labels(torch.zeros(1, 3), torch.tensor([1.0])).tolist() == [2]


def by_loop(network, inputs, labels):
    """Return the mean squared gradient of log p, one sample after another."""
    total = {name: torch.zeros_like(value) for name, value in network.named_parameters()}
    for x, label in zip(inputs, labels, strict=True):
        network.zero_grad()
        torch.log_softmax(network(x[None]), dim=1)[0, label].backward()
        for name, value in network.named_parameters():
            total[name] += value.grad**2 / len(inputs)
    return total


@pytest.mark.parametrize("images", [False, True])
def test_the_fisher_diagonal_is_that_of_a_loop_over_samples(images, monkeypatch):
    monkeypatch.setattr(ewc, "_VALUES", 7 * 18432 if images else 7)  # several chunks, the last short
    shape = (1, 8, 8) if images else (6,)
    architecture = NetworkSettings("small" if images else "vectors", head="linear")
    network = build(architecture, shape, 3, 0).double()
    drawn = torch.rand(15, *shape, generator=generator(5))
    samples = Samples(drawn, torch.arange(15) % 3, (0, 1, 2))
    labels = []
    monkeypatch.setattr(ewc, "own_labels", lambda *given: labels.append(own_labels(*given)) or labels[-1])
    found = fisher(network, samples, Preparation(shape), most=11)
    used = torch.cat(labels)
    assert len(used) == 11
    order = torch.randperm(15, generator=generator(0, "fisher", 3))[:11]
    expected = by_loop(network, samples.inputs[order].double(), used)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-15, msg=name)
    assert used.unique().numel() > 1  # the labels are drawn, and not one class's


def test_the_fisher_diagonal_passes_dropout_and_pooling_by(recwarn):
    chain = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(16, 8), nn.ReLU(), nn.Dropout(0.5),
    )  # fmt: skip
    network = from_chain(chain, (1, 8, 8), "linear", 2, seed=0).train()
    samples = Samples(torch.rand(9, 1, 8, 8, generator=generator(1)), torch.arange(9) % 2, (0, 1))
    one, two = (fisher(network, samples, Preparation((1, 8, 8)), most=100) for _ in range(2))
    assert all(torch.equal(value, two[name]) for name, value in one.items())
    assert one["body.0.weight"].any()
    assert not recwarn.list


def test_the_elastic_penalty_of_hand_worked_values():
    params = {"w": torch.tensor([[1.0, 2.0]]), "b": torch.tensor([3.0])}
    before = {"w": torch.tensor([[0.0, 4.0]]), "b": torch.tensor([0.0])}
    information = {"w": torch.tensor([[5.0, 0.5]]), "b": torch.tensor([2.0])}
    # (5 · 1 + 0.5 · 4 + 2 · 9) / 2
    assert float(elastic_penalty(params, before, information)) == pytest.approx(12.5)


def test_ewc_loss_is_cross_entropy_and_the_strength_times_the_penalty(base):
    request = in_float64(request_of(base, Ewc(strength=3.0)))
    network, state = request.trial.network, request.trial.state
    params = {name: value + 0.1 for name, value in params_of(network).items()}
    batch = Batch(cloud(3).inputs.double(), torch.full((40,), 3))
    plain = F.cross_entropy(torch.func.functional_call(network, params, (batch.inputs,)), batch.labels)
    information = under("fisher/", state)
    cost = 1.5 * sum(float(value.sum()) * 0.1**2 for value in information.values())
    assert float(request.loss(params, batch, state)) == pytest.approx(float(plain) + cost, rel=1e-9)
    assert not information["head.weight"][3].any()
    assert not information["head.bias"][3].any()
    assert information["head.weight"][:3].any()


def test_ewc_adds_the_fisher_diagonal_of_the_new_class_under_the_new_network(base):
    _, memory, taken = learn(base, Ewc(epochs=2, samples=25))
    new = fisher(taken.network, cloud(3), PREPARE, 25)
    for name, value in under("fisher/", taken.memory).items():
        old = memory[f"fisher/{name}"]
        torch.testing.assert_close(value[: len(old)], old + new[name][: len(old)], rtol=1e-6, atol=0)
        torch.testing.assert_close(value[len(old) :], new[name][len(old) :], rtol=1e-6, atol=0)
    assert taken.memory["fisher/head.weight"].shape == (4, 10)


def test_a_huge_strength_holds_weights_that_matter_nearly_still_while_fine_tuning_moves_them(base):
    def moved(settings):
        _, _, taken = learn(base, settings)
        information = method_of(Ewc()).remember(base, known(), PREPARE)
        start, out = params_of(base), []
        for name, value in under("fisher/", information).items():
            change = (dict(taken.network.named_parameters())[name].detach()[: len(value)] - start[name]).abs()
            out.append(change[value > 1e-6])
        return float(torch.cat(out).max())

    free = moved(FineTune(epochs=10))
    held = moved(Ewc(epochs=10, rate_divisor=1.0, strength=1e12))
    assert free > 0.05
    assert held < free / 20


# AGS-CL ------------------------------------------------------------------------------------------------

LAYER = WeightLayer("w", "b", None, "nodes")


def exact(values):
    return torch.tensor(values, dtype=torch.float64)


def test_a_norm_shrinks_by_a_fixed_amount_to_exactly_zero():
    norms = torch.tensor([5.0, 1.0, 0.5, 0.0], dtype=torch.float64)
    assert shrinking(norms, 1.0).tolist() == [0.8, 0, 0, 0]
    assert shrinking(norms, torch.tensor([0.0, 0.25, 2.0, 0.0])).tolist() == [1, 0.75, 0, 0]


@pytest.mark.parametrize("shape", [(3, 2), (3, 2, 1, 1)])
def test_a_proximal_step_of_hand_worked_values(shape):
    centre = {"w": torch.ones(shape).double(), "b": exact([1.0, 0.0, 0.0])}
    away = exact([[1.0, 2.0], [0.0, 3.0], [0.3, 0.0]])  # with the bias: 3, 5, 0.5 long
    params = {"w": centre["w"] + away.view(shape), "b": exact([3.0, 4.0, 0.4])}
    new = drawn_to(LAYER, params, centre, exact([1.5, 1.0, 0.6]))
    expected = exact([[1.5, 2.0], [1.0, 3.4], [1.0, 1.0]])
    torch.testing.assert_close(new["w"], expected.view(shape), rtol=0, atol=1e-15)
    torch.testing.assert_close(new["b"], exact([2.0, 3.2, 0.0]), rtol=0, atol=1e-15)


def one_layer():
    chain = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2), nn.ReLU())
    return from_chain(chain, (2,), "linear", 2, seed=0).double()


def test_a_lessons_step_of_hand_worked_values():
    """The first node is used, the second not, in both layers; rate 0.5, μ 2, λ 4."""
    given = {
        "body.0.weight": [[3.0, 0.0], [3.0, 0.0]],
        "body.0.bias": [4.0, 4.0],
        "body.2.weight": [[1.0, 7.0], [0.3, 0.0]],
        "body.2.bias": [1.0, 0.4],
        "head.weight": [[5.0, 5.0], [6.0, 7.0]],
        "head.bias": [8.0, 9.0],
    }
    params = {name: exact(value) for name, value in given.items()}
    state = {f"before/{name}": torch.zeros_like(value) for name, value in params.items()}
    state["before/body.2.weight"][0] = torch.tensor([1.0, 0.0])
    state["before/body.2.bias"][:] = 1.0
    state |= {f"importance/body.{place}": exact([0.5, 0.0]) for place in (0, 2)}
    state["mask/body.2.weight"] = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    new = proximal_steps(one_layer(), AgsCl(mu=2.0, lam=4.0), 0.5)(params, state)
    # λ Ω rate = 1, and so is μ rate: (3, 0, 4) shrinks by a fifth, pulled and cleared alike
    torch.testing.assert_close(new["body.0.weight"], exact([[2.4, 0], [2.4, 0]]), rtol=0, atol=1e-15)
    torch.testing.assert_close(new["body.0.bias"], exact([3.2, 3.2]), rtol=0, atol=1e-15)
    # The used node stands where it was but for a weight from an unused one; the unused one is shorter than 1
    assert new["body.2.weight"].tolist() == [[1, 0], [0, 0]]
    assert new["body.2.bias"].tolist() == [1, 0]
    assert new["head.weight"].tolist() == [[0, 0], [6, 7]]
    assert new["head.bias"].tolist() == [0, 9]


def test_the_first_trainings_step_shrinks_every_node_but_no_row_of_the_head():
    network = one_layer()
    params = params_of(network)
    params["body.0.weight"] = exact([[3.0, 0.0], [0.1, 0.1]])
    params["body.0.bias"] = exact([4.0, 0.1])
    new = sparse_steps(network, mu=2.0, rate=0.5)(params, {})
    torch.testing.assert_close(new["body.0.weight"], exact([[2.4, 0], [0, 0]]))
    assert new["body.0.bias"].tolist() == pytest.approx([3.2, 0])
    assert set(new) == {"body.0.weight", "body.0.bias", "body.2.weight", "body.2.bias"}


def test_the_first_training_clears_nodes_exactly_and_the_network_still_learns():
    torch.manual_seed(0)
    chain = nn.Sequential(nn.Linear(6, 40), nn.ReLU(), nn.Linear(40, 30), nn.ReLU())
    network = from_chain(chain, (6,), "linear", 3, seed=0)
    method = method_of(AgsCl(mu=0.5))
    first = method.initial(network, replace(TRAINING, steps=250))
    assert first.settings.alpha == 0
    assert method.about_initial() != method_of(AgsCl(mu=0.2)).about_initial()
    data = TrialData.of(known(), None, PREPARE)
    fit(network, first.loss, data, first.settings, seed=0, after_step=first.after_step)
    rows = torch.cat([network.body[2].weight, network.body[2].bias[:, None]], dim=1)
    empty = ~rows.any(dim=1)
    assert empty.sum() >= 3
    assert unused_nodes(method.remember(network, known(), PREPARE))["body.2"][empty].all()
    assert accuracy(network, known()) == 1


def test_the_importance_of_a_channel_is_its_mean_over_samples_and_space():
    network = build(NetworkSettings("small", head="linear"), (1, 8, 8), 2, 0)
    samples = Samples(torch.rand(6, 1, 8, 8, generator=generator(1)), torch.arange(6) % 2, (0, 1))
    memory = method_of(AgsCl()).remember(network, samples, Preparation((1, 8, 8)))
    maps = F.relu(network.body[0](samples.inputs)).detach()
    torch.testing.assert_close(memory["importance/body.0"], maps.mean(dim=(0, 2, 3)))
    flat = next(layer.inputs for layer in weight_layers(network) if layer.weight == "body.9.weight")
    assert memory[f"importance/{flat}"].shape == network.body[9].weight.shape[1:]


def test_importance_fades_and_the_new_classes_is_added(base):
    _, memory, taken = learn(base, replace(METHODS[3], refresh=0.0, decay=0.8))
    sums = total_sums(taken.network, [cloud(3).inputs])
    for name, value in under("importance/", taken.memory).items():
        torch.testing.assert_close(value, 0.8 * memory[f"importance/{name}"] + sums[name] / 40)
    assert taken.report["free_units"]["before"] == {
        name: int((value == 0).sum()) for name, value in under("importance/", memory).items()
    }


def test_a_huge_pull_keeps_used_nodes_at_exactly_their_old_values(base):
    request = request_of(base, AgsCl(epochs=3, rate_divisor=1, mu=0.0, lam=1e12, refresh=1.0))
    before = params_of(request.trial.network)
    run(request)
    after, state = params_of(request.trial.network), request.trial.state
    for layer in weight_layers(base)[:-1]:
        used = state[f"importance/{layer.units}"] > 0
        assert used.any()
        assert torch.equal(after[layer.weight][used], before[layer.weight][used])
        assert torch.equal(after[layer.bias][used], before[layer.bias][used])
    unused = state["importance/body.4"] == 0
    assert not torch.equal(after["body.4.weight"][unused], before["body.4.weight"][unused])


def run(request):
    return finished(fitting(request))


def test_a_strong_sparsity_brings_unused_nodes_to_exactly_zero(base):
    request = request_of(base, AgsCl(epochs=2, rate_divisor=1, mu=1e6, lam=0.0, refresh=1.0))
    unused = request.trial.state["importance/body.2"] == 0
    assert request.trial.network.body[2].weight[unused].all()  # fresh weights, where training starts
    run(request)
    network = request.trial.network
    assert not network.body[2].weight[unused].any()
    assert not network.body[2].bias[unused].any()
    assert network.body[2].weight[~unused].any(dim=1).all()


def test_masks_and_old_rows_of_the_head_hold_at_every_step(base):
    request = request_of(base, AgsCl(epochs=3, rate_divisor=1, lam=0.1))
    seen = []

    def watch(params, state):
        new = request.after_step(params, state)
        masks = under("mask/", state)
        seen.append(all(not new[name][mask == 0].any() for name, mask in masks.items()))
        seen.append(torch.equal(new["head.weight"][:-1], state["before/head.weight"][:-1]))
        seen.append(torch.equal(new["head.bias"][:-1], state["before/head.bias"][:-1]))
        return new

    assert (request.trial.state["mask/body.4.weight"] == 0).any()
    run(replace(request, after_step=watch))
    assert len(seen) == 3 * 9
    assert all(seen)
    old = base.head.weight.detach().clone()
    old[:, request.trial.state["importance/body.4"] == 0] = 0
    assert torch.equal(request.trial.network.head.weight[:3], old)
    assert torch.equal(request.trial.network.head.bias[:3], base.head.bias)
    assert not torch.equal(request.trial.network.head.bias[3], torch.tensor(0.0))


@pytest.mark.parametrize("images", [False, True])
def test_clearing_changes_no_answer_where_unused_nodes_are_silent(images, base):
    network, samples, shape = base, known(), (6,)
    if images:
        shape = (1, 8, 8)
        network = build(NetworkSettings("small", head="linear"), shape, 3, 0)
        with torch.no_grad():
            network.body[0].bias[:5] = -50  # silent channels
            network.body[9].bias[:7] = -50
        samples = Samples(torch.rand(12, *shape, generator=generator(2)), torch.arange(12) % 3, (0, 1, 2))
    memory = method_of(AgsCl()).remember(network, samples, Preparation(shape))
    unused = unused_nodes(memory)
    before = params_of(network)
    clear = cleared(network, unused, 0.5, generator(3))
    assert torch.allclose(clear(samples.inputs), network(samples.inputs), atol=1e-6)
    assert all(torch.equal(value, before[name]) for name, value in network.named_parameters())
    layer = weight_layers(network)[-1]
    assert not clear.head.weight[:, unused[layer.inputs]].any()
    high = unused[layer.inputs]
    features = clear.features(samples.inputs)[:, high]
    assert features.any()  # fresh nodes fire, and no old class reads them


def test_a_share_of_the_unused_nodes_gets_fresh_weights_and_no_bias(base):
    unused = unused_nodes(method_of(AgsCl()).remember(base, known(), PREPARE))
    count = int(unused["body.2"].sum())
    for share in (0.0, 0.5, 1.0):
        new = cleared(base, unused, share, generator(3)).body[2]
        old = base.body[2].weight.detach().clone()
        old[:, unused["body.0"]] = 0
        fresh = (new.weight != old).any(dim=1)
        assert int(fresh.sum()) == round(share * count)
        assert not new.bias[fresh].any()
        assert not (fresh & ~unused["body.2"]).any()
        assert new.weight.abs().max() <= max(float(old.abs().max()), (6 / (12 + 16)) ** 0.5)


def test_the_network_given_back_is_cleared_and_old_classes_are_answered_as_before_under_a_huge_pull(base):
    _, _, taken = learn(base, AgsCl(epochs=4, rate_divisor=1, mu=1e-3, lam=1e12))
    with torch.no_grad():
        assert torch.allclose(taken.network(known().inputs)[:, :3], base(known().inputs), atol=1e-5)
    left = unused_nodes(taken.memory)
    assert not taken.network.head.weight[:, left["body.4"]].any()
    assert int(taken.memory["lessons"]) == 1
    again = take_in(
        method_of(AgsCl(epochs=1, lam=1e12)),
        NewClass(taken.network, taken.memory, cloud(4), PREPARE, TRAINING, 1),
    )
    with torch.no_grad():
        same = again.network(known().inputs)[:, :4]
        assert torch.allclose(same, taken.network(known().inputs), atol=1e-5)
