from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from shels.config import Adam, Cosine, NetworkSettings, Sgd, TrainingSettings, from_dict, to_dict
from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.errors import ModelFileError, TrainingError
from shels.files import read_metadata, read_tensors, to_bytes
from shels.model import sparsity
from shels.model.networks import Network, build, from_chain
from shels.runtime import finished, generator
from shels.training.checkpoints import Checkpoint, RunState
from shels.training.data import Batch, Rows, TrialData, TrialTraining
from shels.training.loop import TrainingRequest, fit, fitting
from shels.training.losses import shels_loss
from shels.training.trial_run import TrialRun, start_params

SETTINGS = TrainingSettings(Adam(1e-2), batch_size=8, steps=20, check_every=5)


def blobs(n=60, seed=0):
    draws = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 3
    inputs = torch.randn(n, 4, generator=draws) + 3 * F.one_hot(labels, 4)
    return Samples(inputs, labels, ("a", "b", "c"))


def trial(n=60):
    return TrialData.of(blobs(n), blobs(30, seed=1), Preparation((4,)))


def network(seed=0, dropout=False):
    torch.manual_seed(3)
    layers = [nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU()]
    chain = nn.Sequential(*layers, nn.Dropout(0.5)) if dropout else nn.Sequential(*layers)
    return from_chain(chain, (4,), "cosine", 3, seed)


def request(net, data=None, settings=SETTINGS, checkpoint=None):
    made = TrialTraining(net, data or trial(), 0, checkpoint=checkpoint)
    return TrainingRequest(made, shels_loss(net, settings), settings)


@pytest.mark.parametrize(
    ("samples", "shape", "factor", "expected"),
    [
        (400, (1, 8, 8), 10.0, 200),
        (401, (1, 8, 8), 10.0, 201),
        (400, (64,), 10.0, 67),
        (90_000, (64,), 10.0, 500),
    ],
)
def test_few_samples_take_steps_by_the_root_of_their_number_and_vectors_a_third(
    samples, shape, factor, expected
):
    rows = Rows(torch.arange(samples), torch.zeros(samples, dtype=torch.int64))
    data = TrialData(torch.zeros(1, *shape), rows, None, Preparation(shape))
    settings = TrainingSettings(steps=500, steps_by_root=factor)
    assert TrialRun(TrialTraining(nn.Linear(1, 1), data, seed=0), settings).steps == expected


def test_steps_by_the_root_are_left_out_of_plain_data_where_nobody_asked_for_them():
    assert "steps_by_root" not in to_dict(SETTINGS)
    asked = replace(SETTINGS, steps_by_root=30.0)
    assert from_dict(to_dict(asked), TrainingSettings) == asked


def train_plainly(net, rate, steps, loss):
    optimiser = torch.optim.Adam(net.parameters(), lr=rate)
    for step in range(steps):
        optimiser.zero_grad()
        loss(step).backward()
        optimiser.step()


def assert_same_weights(ours, theirs, **within):
    for (name, got), expected in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(got, expected, **within, msg=name)


def test_loss_is_cross_entropy_over_cosines_plus_layer_wise_group_sparsity_in_a_float64_loop():
    net = network()
    batch = Batch(blobs().inputs, blobs().labels)
    got = shels_loss(net, replace(SETTINGS, alpha=0.01))(dict(net.named_parameters()), batch, {})

    weights = [net.body[0].weight, net.body[2].weight, net.head.weight]
    norms = 0.0
    for layer, weight in enumerate(weights, start=1):
        mu = (layer - 1) / (3 - 1)
        w = weight.detach().double()
        norms += (1 - mu) * sum(float((w[:, unit] ** 2).sum()) ** 0.5 for unit in range(w.shape[1]))
    features = net.features(batch.inputs).detach().double()
    total = 0.0
    for f, label in zip(features, batch.labels, strict=True):
        rows = weights[2].detach().double()
        cosines = torch.stack([(f @ row) / (f.norm() * row.norm()) for row in rows])
        total += float(-(cosines[label] - cosines.exp().sum().log()))
    assert float(got.detach()) == pytest.approx(total / len(batch.labels) + 0.01 * norms, rel=1e-5)


def test_constant_depth_weights_press_every_layer_alike():
    net = network()
    batch = Batch(blobs().inputs, blobs().labels)
    params = dict(net.named_parameters())
    losses = {
        kind: float(
            shels_loss(net, replace(SETTINGS, alpha=1.0, depth_weights=kind))(params, batch, {}).detach()
        )
        for kind in ("layer-wise", "constant")
    }
    norms = [value.detach().norm(dim=0).sum() for value in (net.body[2].weight, net.head.weight)]
    assert losses["constant"] - losses["layer-wise"] == pytest.approx(
        float(0.5 * norms[0] + norms[1]), rel=1e-4
    )


def test_without_sparsity_no_norm_is_computed_and_the_loss_is_that_of_zero_times_the_norms(monkeypatch):
    net, batch = network(), Batch(blobs().inputs, blobs().labels)
    params = dict(net.named_parameters())
    plain = shels_loss(net, replace(SETTINGS, alpha=0.0))
    expected = plain(params, batch, {}) + 0.0 * sparsity.group_sparsity(list(params.values())[:1], [0.0])
    grads = torch.autograd.grad(expected, list(params.values()))

    def refuse(weight):
        raise AssertionError("a norm was computed")

    monkeypatch.setattr(sparsity, "outgoing_norms", refuse)
    found = plain(params, batch, {})
    assert torch.equal(found, expected)
    for got, wanted in zip(torch.autograd.grad(found, list(params.values())), grads, strict=True):
        assert torch.equal(got, wanted)
    with pytest.raises(AssertionError, match="a norm was computed"):
        shels_loss(net, replace(SETTINGS, alpha=1e-3))(params, batch, {})


def test_one_step_equals_a_plain_pytorch_loop():
    ours, theirs = network(), network()
    data = trial()
    fit(ours, shels_loss(ours, SETTINGS), data, replace(SETTINGS, steps=16, check_every=16), seed=5)

    def loss(step):
        epoch, place = divmod(step, 8)  # 60 samples, batches of 8: the eighth holds four
        order = torch.randperm(60, generator=generator(5, "batches", epoch))
        index = order[place * 8 : place * 8 + 8]
        value = F.cross_entropy(theirs(data.inputs[index]), data.training.labels[index])
        weights = [theirs.body[0].weight, theirs.body[2].weight]
        return value + 1e-3 * (weights[0].norm(dim=0).sum() + 0.5 * weights[1].norm(dim=0).sum())

    train_plainly(theirs, 1e-2, 16, loss)
    assert_same_weights(ours, theirs, rtol=1e-4, atol=1e-6)


def test_convolutions_train_as_in_a_plain_loop_whatever_their_memory_layout():
    samples = Samples(torch.randint(0, 256, (40, 1, 8, 8), dtype=torch.uint8), torch.arange(40) % 2, (0, 1))
    data = TrialData.of(samples, samples, Preparation((1, 8, 8)))
    settings = TrainingSettings(Adam(1e-3), batch_size=40, steps=5, check_every=5, alpha=0.0)
    ours = build(NetworkSettings("small"), (1, 8, 8), 2, seed=0)
    theirs = build(NetworkSettings("small"), (1, 8, 8), 2, seed=0)
    fit(ours, shels_loss(ours, settings), data, settings, seed=0)

    def loss(step):
        return F.cross_entropy(theirs(samples.inputs / 255), samples.labels)

    train_plainly(theirs, 1e-3, 5, loss)
    assert_same_weights(ours, theirs, rtol=1e-3, atol=1e-5)


def test_the_same_seed_gives_the_same_weights_and_another_seed_others():
    nets = []
    for seed in (1, 1, 2):
        net = network(dropout=True)
        fit(net, shels_loss(net, SETTINGS), trial(), SETTINGS, seed=seed)
        nets.append(net.state_dict())
    assert all(torch.equal(nets[0][name], nets[1][name]) for name in nets[0])
    assert not all(torch.equal(nets[0][name], nets[2][name]) for name in nets[0])


def test_training_leaves_the_global_random_state_alone():
    torch.manual_seed(11)
    before = torch.get_rng_state()
    net = network()
    torch.set_rng_state(before)
    fit(net, shels_loss(net, SETTINGS), trial(), SETTINGS, seed=0)
    assert torch.equal(torch.get_rng_state(), before)


def test_weights_of_the_best_validation_are_kept_not_the_last():
    wrong = replace(
        blobs(30, seed=1), labels=(blobs(30, seed=1).labels + 1) % 3
    )  # the more learned, the worse
    data = TrialData.of(blobs(), wrong, Preparation((4,)))
    net, checks = network(), []
    watch = lambda p: checks.append(p.check) if p.check else None  # noqa: E731
    went = finished(fitting(request(net, data)), each=watch)
    assert list(went.checks) == checks
    assert went.best is went.checks[0]
    assert went.checks[-1].validation_loss > went.best.validation_loss
    with torch.no_grad():
        scores = net(wrong.inputs)
    loss = F.cross_entropy(scores, wrong.labels)
    accuracy = (scores.argmax(dim=1) == wrong.labels).float().mean()
    assert float(loss) == pytest.approx(went.best.validation_loss, abs=1e-6)
    assert float(accuracy) == pytest.approx(went.best.validation_accuracy)


def test_the_last_weights_are_kept_where_that_is_asked_for_and_patience_goes_by_the_lowest_loss():
    wrong = replace(blobs(30, seed=1), labels=(blobs(30, seed=1).labels + 1) % 3)
    data = TrialData.of(blobs(), wrong, Preparation((4,)))
    last, best = network(), network()
    went = fit(last, shels_loss(last, SETTINGS), data, replace(SETTINGS, keep="last"), seed=0)
    plain = fit(best, shels_loss(best, SETTINGS), data, SETTINGS, seed=0)
    assert went.checks == plain.checks
    assert went.best is went.checks[-1]
    loss = F.cross_entropy(last(wrong.inputs), wrong.labels)
    assert float(loss.detach()) == pytest.approx(went.checks[-1].validation_loss, abs=1e-6)
    short = replace(SETTINGS, keep="last", patience=2)
    stopped = fit(network(), shels_loss(last, short), data, short, seed=0)
    assert stopped.stopped_early
    assert len(stopped.checks) == 3


def test_validation_samples_are_never_trained_on():
    data, net, batches = trial(), network(), []
    rows = {tuple(row.tolist()) for row in data.inputs[data.validation.places]}

    def loss(params, batch, state):
        batches.append(batch)
        assert not any(tuple(row.tolist()) in rows for row in batch.inputs)
        return shels_loss(net, SETTINGS)(params, batch, state)

    fit(net, loss, data, SETTINGS, seed=0)
    assert len(batches) == 20


def test_every_sample_is_seen_once_an_epoch():
    seen = []
    net = network()

    def loss(params, batch, state):
        seen.append(batch.inputs)
        return shels_loss(net, SETTINGS)(params, batch, state)

    data = trial(n=21)
    went = fit(net, loss, data, TrainingSettings(Adam(1e-3), batch_size=8, epochs=2), seed=0)
    assert [len(part) for part in seen] == [8, 8, 5, 8, 8, 5]
    for epoch in (seen[:3], seen[3:]):
        shown = torch.cat(epoch)
        assert sorted(map(tuple, shown.tolist())) == sorted(
            map(tuple, data.inputs[data.training.places].tolist())
        )
    assert not torch.equal(torch.cat(seen[:3]), torch.cat(seen[3:]))
    assert [check.epoch for check in went.checks] == [1.0, 2.0]


def test_early_stopping_waits_for_patience_checks_without_improvement():
    net = network()
    settings = replace(SETTINGS, optimiser=Adam(0.5), steps=1000, patience=3)
    went = fit(net, shels_loss(net, settings), trial(), settings, seed=0)
    assert went.stopped_early
    assert len(went.checks) - 1 - went.checks.index(went.best) == 3
    assert went.checks[-1].step < 1000


def test_sgd_halves_its_rate_every_four_epochs():
    sgd = Sgd(learning_rate=0.001, decay=2.0, decay_epochs=4)
    assert [sgd.rate(epoch) for epoch in (0, 3, 4, 7, 8, 12)] == [
        0.001,
        0.001,
        0.0005,
        0.0005,
        0.00025,
        0.000125,
    ]


@pytest.mark.parametrize(
    ("per", "rates"),
    [
        ("step", [0.5, 1.0, 0.5 * (1 + math.cos(math.pi / 5)), 0.5 * (1 + math.cos(2 * math.pi / 5))]),
        ("epoch", [1.0, 1.0, 1.0, 0.5]),
    ],
)
def test_a_schedule_gives_every_step_its_rate(per, rates):
    settings = TrainingSettings(
        Adam(1.0, schedule=Cosine(warm_up=1 / 6, per=per)), batch_size=20, steps=6, check_every=4
    )
    run = TrialRun(TrialTraining(network(), trial(60), seed=0), settings)  # three steps an epoch
    run.begin(RunState({}, {}))
    assert run.plan().rates == pytest.approx(rates)
    run.state.step = 4
    assert len(run.plan().rates) == 2


def test_sgd_steps_equal_pytorchs_with_momentum_decay_and_schedule():
    settings = TrainingSettings(Sgd(0.1, 0.9, 0.01, 2.0, 1), batch_size=60, epochs=3, alpha=0.0)
    ours, theirs = network(), network()
    data = trial()
    fit(ours, shels_loss(ours, settings), data, settings, seed=0)
    optimiser = torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, 1, 0.5)
    states = []
    for _ in range(3):
        value = F.cross_entropy(theirs(data.inputs[data.training.places]), data.training.labels)
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        schedule.step()
        loss = float(
            F.cross_entropy(theirs(data.inputs[data.validation.places]), data.validation.labels).detach()
        )
        states.append((loss, {name: value.detach().clone() for name, value in theirs.named_parameters()}))
    best = min(states, key=lambda state: state[0])[1]
    for name, got in ours.named_parameters():
        torch.testing.assert_close(got, best[name], rtol=1e-4, atol=1e-6, msg=name)


def test_after_step_has_the_last_word_on_the_weights_at_every_step():
    net = network()
    mask = torch.ones(8, 4)
    mask[:, 1] = 0
    masks = []

    def after_step(params, state):
        masks.append(state["mask"])
        return {"body.0.weight": params["body.0.weight"] * state["mask"]}

    settings = replace(SETTINGS, steps=5)
    fit(
        net, shels_loss(net, settings), trial(), settings, seed=0, state={"mask": mask}, after_step=after_step
    )
    assert len(masks) == 5
    assert bool((net.body[0].weight[:, 1] == 0).all())
    assert bool((net.body[0].weight[:, 0] != 0).all())


def test_a_loss_that_is_not_finite_is_an_error_with_advice():
    net = network()

    def loss(params, batch, state):
        return params["head.weight"].sum() * float("nan")

    with pytest.raises(TrainingError, match="lower the learning rate"):
        fit(net, loss, trial(), SETTINGS, seed=0)


@pytest.mark.parametrize("optimiser", [Adam(1e-2), Sgd(1e-2)])
def test_a_training_cut_off_goes_on_to_the_same_weights(tmp_path, optimiser):
    settings = replace(SETTINGS, optimiser=optimiser, steps=40)
    whole = network(dropout=True)
    expected = fit(whole, shels_loss(whole, settings), trial(), settings, seed=0)

    def work(net):
        return fitting(request(net, settings=settings, checkpoint=Checkpoint(tmp_path / "checkpoint")))

    cut = work(network(dropout=True))
    next(now for now in cut if now.step == 20 and now.check is None)
    cut.close()
    steps, again = [], network(dropout=True)
    went = finished(work(again), each=lambda now: steps.append(now.step))
    assert min(steps) == 15  # from its last check, not from the start
    assert went.checks == expected.checks
    assert all(torch.equal(value, whole.state_dict()[name]) for name, value in again.state_dict().items())


def test_a_checkpoint_of_other_settings_data_or_seed_is_refused(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    net = network()
    fit(net, shels_loss(net, SETTINGS), trial(), SETTINGS, seed=0, checkpoint=Checkpoint(path))
    other = replace(SETTINGS, alpha=0.5)
    for settings, data, seed in ((other, trial(), 0), (SETTINGS, trial(59), 0), (SETTINGS, trial(), 1)):
        net = network()
        with pytest.raises(ModelFileError, match="delete it to start afresh"):
            fit(net, shels_loss(net, settings), data, settings, seed=seed, checkpoint=Checkpoint(path))


def test_a_checkpoint_of_another_network_or_preparation_is_refused(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    net = network()
    fit(net, shels_loss(net, SETTINGS), trial(), SETTINGS, seed=0, checkpoint=Checkpoint(path, "size 8"))
    with pytest.raises(ModelFileError, match="belongs to a training with other"):
        fit(
            network(),
            shels_loss(net, SETTINGS),
            trial(),
            SETTINGS,
            seed=0,
            checkpoint=Checkpoint(path, "size 11"),
        )


def test_state_may_hold_single_numbers(tmp_path):
    net = network()
    store = Checkpoint(tmp_path / "checkpoint.safetensors")
    state = {"beta": torch.tensor(3.0)}
    went = fit(net, shels_loss(net, SETTINGS), trial(), SETTINGS, seed=0, state=state, checkpoint=store)
    assert went.checks[-1].step == 20


def test_a_resumed_training_says_so_first(tmp_path):
    store = Checkpoint(tmp_path / "checkpoint.safetensors")
    for expected in ([], [20]):
        net, seen = network(), []
        finished(fitting(request(net, checkpoint=store)), each=seen.append)
        assert [now.step for now in seen if now.resumed] == expected


def test_a_validation_loss_that_is_not_finite_is_an_error():
    data = trial()
    data.inputs[data.validation.places[0]] = 3e38  # overflows in the network
    net = network()
    with torch.no_grad():
        net.body[0].weight.mul_(100)
    with pytest.raises(TrainingError, match="the loss became"):
        fit(net, shels_loss(net, SETTINGS), data, SETTINGS, seed=0)


def drop(tensors, facts):
    tensors.pop("best/" + next(iter(sorted(tensors))).split("/", 1)[1])


def edit_first(change):
    def edit(tensors, facts):
        name = min(name for name in tensors if name.startswith("params/"))
        tensors[name] = change(tensors[name])

    return edit


def negative_squares(tensors, facts):
    name = min(name for name in tensors if name.startswith("optimiser/exp_avg_sq/"))
    tensors[name] = tensors[name] - 1


EDITS = {
    "a tensor less": drop,
    "a tensor more": lambda tensors, facts: tensors.update(more=torch.zeros(1)),
    "another shape": edit_first(lambda value: value[:1]),
    "another precision": edit_first(lambda value: value.double()),
    "NaN": edit_first(lambda value: value * torch.nan),
    "infinity": edit_first(lambda value: value + torch.inf),
    "negative squares": negative_squares,
    "no facts": lambda tensors, facts: facts.clear(),
    "a negative step": lambda tensors, facts: facts.update(step=-3),
    "a step as text": lambda tensors, facts: facts.update(step="3"),
    "another step": lambda tensors, facts: facts.update(step=10**12),
    "no check": lambda tensors, facts: facts.update(checks=[]),
    "a check without its step": lambda tensors, facts: facts["checks"][0].pop("step"),
    "a check of NaN": lambda tensors, facts: facts["checks"][0].update(training_loss=float("nan")),
    "time that ran backwards": lambda tensors, facts: facts.update(seconds=-1.0),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_edited_checkpoint_with_the_right_identity_is_refused(tmp_path, edit):
    store, net = Checkpoint(tmp_path / "checkpoint.safetensors"), network()
    fit(net, shels_loss(net, SETTINGS), trial(), SETTINGS, seed=0, checkpoint=store)
    identity = read_metadata(store.path)["identity"]
    tensors, facts = read_tensors(store.path), json.loads(read_metadata(store.path)["facts"])
    edit(tensors, facts)
    store.write(identity, tensors, facts)
    with pytest.raises(ModelFileError, match=r"checkpoint\.safetensors.*delete it to start afresh"):
        fit(network(), shels_loss(net, SETTINGS), trial(), SETTINGS, seed=0, checkpoint=store)


def test_facts_of_a_checkpoint_that_are_nested_too_deep_are_refused(tmp_path):
    store, net = Checkpoint(tmp_path / "checkpoint.safetensors"), network()
    fit(net, shels_loss(net, SETTINGS), trial(), SETTINGS, seed=0, checkpoint=store)
    identity = read_metadata(store.path)["identity"]
    tensors = read_tensors(store.path)
    store.path.write_bytes(to_bytes(tensors, {"identity": identity, "facts": "[" * 100_000}))
    with pytest.raises(ModelFileError, match="delete it to start afresh"):
        fit(network(), shels_loss(net, SETTINGS), trial(), SETTINGS, seed=0, checkpoint=store)


def test_a_named_pipe_in_place_of_a_checkpoint_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "checkpoint.safetensors")
    store, net = Checkpoint(tmp_path / "checkpoint.safetensors"), network()
    with pytest.raises(ModelFileError, match=r"is a named pipe, not a file.*delete it to start afresh"):
        fit(net, shels_loss(net, SETTINGS), trial(), SETTINGS, seed=0, checkpoint=store)


def test_a_truncated_checkpoint_is_a_clear_error(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    net = network()
    fit(net, shels_loss(net, SETTINGS), trial(), SETTINGS, seed=0, checkpoint=Checkpoint(path))
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(ModelFileError, match="damaged"):
        fit(network(), shels_loss(net, SETTINGS), trial(), SETTINGS, seed=0, checkpoint=Checkpoint(path))


KILL_SCRIPT = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
import torch
from shels.config import Adam, TrainingSettings
from shels.data.sources import load_named
from shels.learner.learner import learning
from shels.runtime import finished
from shels.config.presets import DEFAULT

def kill(progress):
    if progress.step == 30:
        os.kill(os.getpid(), signal.SIGKILL)

torch.set_num_threads(1)
settings = replace(DEFAULT, training=TrainingSettings(Adam(1e-3), steps=60, check_every=20))
samples = load_named("digits").train.only([0, 1, 2])
watch = kill if sys.argv[1] == "kill" else None
work = learning(samples, settings, seed=0, device="cpu", checkpoint=Path(sys.argv[2]))
learner = finished(work, each=watch)
learner.save(sys.argv[3])
"""


def test_after_kill_9_the_same_training_ends_in_the_same_model(tmp_path):
    def run(mode, name):
        arguments = [mode, str(tmp_path / f"{name}.safetensors"), str(tmp_path / name)]
        return subprocess.run(
            [sys.executable, "-c", KILL_SCRIPT, *arguments], check=False, env=os.environ
        ).returncode

    assert run("kill", "cut") == -signal.SIGKILL
    assert not (tmp_path / "cut").exists()
    assert run("go", "cut") == 0
    assert run("go", "whole") == 0
    names = [sorted(path.name for path in (tmp_path / name).iterdir()) for name in ("cut", "whole")]
    assert names[0] == names[1]  # the names carry a digest of every weight


def test_parameters_start_as_copies_with_convolutions_channels_last():
    net = Network(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten()), network().head)
    params = start_params(net)
    assert params["body.0.weight"].is_contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        params["body.0.weight"].zero_()
    assert bool((net.body[0].weight != 0).any())


def test_without_validation_data_the_last_weights_are_kept():
    net, data = network(), TrialData.of(blobs(), None, Preparation((4,)))
    last = []

    def keep(params, state):
        last[:] = [{name: value.detach().clone() for name, value in params.items()}]
        return {}

    went = fit(net, shels_loss(net, SETTINGS), data, SETTINGS, seed=0, after_step=keep)
    assert went.best is went.checks[-1]
    assert went.best.validation_loss is None
    assert all(torch.equal(value, last[0][name]) for name, value in net.named_parameters())
