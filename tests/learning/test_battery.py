"""What every way to learn new classes must do, whatever it keeps and however it trains."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load
from torch import nn

import shels.learner.learner
from shels import config
from shels.config.presets import DEFAULT, with_learner
from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.data.sources import load_named
from shels.data.splits import ClassSplit, split_data
from shels.errors import AccommodationError
from shels.files import to_bytes
from shels.learner.learner import Learner, learn
from shels.learning import gaussian_replay as replay
from shels.learning.protocol import NewClass, take_in, views_of
from shels.learning.registry import LEARNERS, method_of
from shels.model.growth import copied
from shels.model.networks import Views, from_chain
from shels.runtime import finished
from shels.training.data import TrialData
from shels.training.loop import fit, fit_trials, fitting

WIDTH, KNOWN, EACH = 8, 3, 40
PREPARE = Preparation((WIDTH,))
TRAINING = config.TrainingSettings(config.Adam(1e-2), batch_size=16, steps=120, check_every=120)
WAYS = [
    config.Gaussian(),
    config.Gaussian(rectified=64),
    config.Proximal(steps=60, learning_rate=1e-2, grow=8, batch_size=16, replay=32, base_alpha=0.1),
    config.Penalty(epochs=4),
    config.Maha(),
    config.Slda(),
    config.Fecam(),
    config.Ranpac(projections=64),
    config.AgsCl(epochs=4),
    config.Ewc(epochs=4),
    config.Lwf(epochs=4),
    config.Gdumb(share=0.3, epochs=31),
    config.Gdumb(share=0.3, epochs=31, start="scratch"),
    config.ShelsGdumb(share=0.3, epochs=15),
    config.FineTune(epochs=1, rate_divisor=100),
    config.Joint(),
]
LOOSE = {
    "penalty": config.Penalty(beta=0, epochs=12, rate_divisor=1),
    "ags-cl": config.AgsCl(lam=0, mu=0, epochs=12, rate_divisor=1),
    "ewc": config.Ewc(strength=0, epochs=12, rate_divisor=1),
    "lwf": config.Lwf(strength=0, epochs=12, rate_divisor=1),
    "shels-gdumb": config.ShelsGdumb(beta=0, share=0.3, epochs=31, learning_rate=1e-2),
    "fine-tune": config.FineTune(epochs=12),
}
"""Ways that hold so much, or train so little, that a new class may not be learned: settings that do."""


def spoken(way):
    if getattr(way, "rectified", 0):
        return f"{way.kind}-rectified"
    return f"{way.kind}-scratch" if getattr(way, "start", "warm") == "scratch" else way.kind


@pytest.fixture(params=WAYS, ids=spoken, scope="module")
def way(request):
    return request.param


@pytest.fixture(scope="module")
def method(way):
    return method_of(way)


def cloud(position, n=EACH, seed=0):
    """Samples of one class, a Gaussian of its own axis; its label is 0."""
    draws = torch.Generator().manual_seed(100 * seed + position)
    inputs = 1 + 3 * torch.eye(WIDTH)[position] + 0.4 * torch.randn(n, WIDTH, generator=draws)
    return Samples(inputs, torch.zeros(n, dtype=torch.int64), (position,))


def clouds(classes=KNOWN, n=EACH, seed=0):
    inputs = torch.cat([cloud(each, n, seed).inputs for each in range(classes)])
    return Samples(inputs, torch.arange(classes).repeat_interleave(n), tuple(range(classes)))


def beginner(head, seed=0):
    torch.manual_seed(seed)
    widths = pairwise((WIDTH, 24, 32, 24))
    layers = [layer for pair in widths for layer in (nn.Linear(*pair), nn.ReLU())]
    return from_chain(nn.Sequential(*layers), (WIDTH,), head, KNOWN, seed=seed)


@cache
def trained(way, seed=0):
    """Return a network that the way's first training has taught the first classes, which stays as it is."""
    network = beginner("linear" if LEARNERS[way.kind].standard else "cosine", seed)
    first, data = method_of(way).initial(network, TRAINING), TrialData.of(clouds(seed=seed), None, PREPARE)
    fit(network, first.loss, data, first.settings, seed=seed, after_step=first.after_step)
    return network


@cache
def begun(way, seed=0):
    """Return that network and what is remembered of its classes."""
    network = trained(way, seed)
    memory = method_of(way).remember(network, clouds(seed=seed), PREPARE)
    return SimpleNamespace(network=network, memory=memory)


def taught(way, position, before, *, n=EACH, seed=1):
    """Return the network and memory that know the class at this position of the toy, too."""
    samples = cloud(position, n)
    return take_in(method_of(way), NewClass(before.network, before.memory, samples, PREPARE, TRAINING, seed))


@cache
def taken(way, seed=1):
    return taught(way, KNOWN, begun(way), seed=seed)


def scores(way, now, samples):
    return method_of(way).naming(now.network, now.memory)(views_of(now.network, samples.inputs, PREPARE))


def rightly(way, now, samples, position):
    """Return the share of the samples that is named as the class at this position."""
    return float((scores(way, now, samples).argmax(dim=1) == position).float().mean())


def same(one, other):
    return set(one) == set(other) and all(torch.equal(value, other[name]) for name, value in one.items())


def held(memory, rows):
    """Return which rows stand somewhere in a memory, their values side by side: (n, d) -> (n,)."""
    found = torch.zeros(len(rows), dtype=torch.bool)
    for value in memory.values():
        if value.is_floating_point() and value.numel() >= rows.shape[1]:
            windows = value.flatten().unfold(0, rows.shape[1], 1)
            found |= (rows[:, None] == windows.to(rows.dtype)).all(dim=2).any(dim=1)
    return found


def shapes(memory):
    return {name: value.shape for name, value in memory.items()}


def test_the_battery_is_about_every_way_there_is():
    assert {each.kind for each in WAYS} == set(LEARNERS)


# What is kept ------------------------------------------------------------------------------------------


def test_a_memory_is_finite_tensors_that_come_back_from_a_file_and_name_the_same(way):
    for now, classes in ((begun(way), KNOWN), (taken(way), KNOWN + 1)):
        assert all(isinstance(value, torch.Tensor) for value in now.memory.values())
        assert all(value.isfinite().all() and not value.requires_grad for value in now.memory.values())
        read = SimpleNamespace(network=now.network, memory=load(to_bytes(now.memory)))
        assert same(read.memory, now.memory)
        test = clouds(classes, seed=7)
        assert torch.equal(scores(way, read, test), scores(way, now, test))


def test_what_is_kept_is_what_the_method_says(way, method):
    samples, memory = clouds(), begun(way).memory
    if method.stores == "old data":
        kept = memory["samples"]
        assert (kept[:, None] == samples.inputs).all(dim=2).any(dim=1).all()
        assert held(memory, samples.inputs).sum() == len(kept) == len(memory["labels"])
    elif method.stores == "nothing":
        assert memory == {}
    else:
        views = views_of(begun(way).network, samples.inputs, PREPARE)
        for rows in (samples.inputs, *views):
            assert not held(memory, rows[rows.any(dim=1)]).any()
        more = method.remember(begun(way).network, clouds(n=2 * EACH), PREPARE)
        assert shapes(more) == shapes(memory)


def test_samples_kept_after_a_class_was_taken_in_are_old_or_new_ones_under_their_label(way, method):
    memory, samples = taken(way).memory, clouds(KNOWN + 1)
    if method.stores != "old data":
        assert not held(memory, samples.inputs).any()
        return
    known = (memory["samples"][:, None] == samples.inputs).all(dim=2)
    assert known.any(dim=1).all()
    assert torch.equal(samples.labels[known.int().argmax(dim=1)], memory["labels"])
    assert set(memory["labels"].tolist()) == set(range(KNOWN + 1))


def test_taking_a_class_in_leaves_the_network_and_memory_that_were_given_bit_for_bit(way):
    now, samples = begun(way), cloud(KNOWN)
    weights = {name: value.clone() for name, value in now.network.state_dict().items()}
    memory = {name: value.clone() for name, value in now.memory.items()}
    inputs = samples.inputs.clone()
    new = take_in(method_of(way), NewClass(now.network, now.memory, samples, PREPARE, TRAINING, 1))
    assert same(now.network.state_dict(), weights)
    assert same(now.memory, memory)
    assert torch.equal(samples.inputs, inputs)
    assert new.memory is not now.memory or not memory


# What is named -----------------------------------------------------------------------------------------


def test_the_first_training_teaches_the_first_classes(way, method):
    now = begun(way)
    first = method.initial(now.network, TRAINING)
    assert first.settings.steps == TRAINING.steps
    for position in range(KNOWN):
        assert rightly(way, now, cloud(position, seed=7), position) > 0.9
    untrained = beginner("linear" if LEARNERS[way.kind].standard else "cosine")
    assert not same(untrained.state_dict(), now.network.state_dict())


def test_there_is_one_column_more_and_the_new_class_is_named_by_it(way):
    test = clouds(KNOWN + 1, seed=7)
    assert scores(way, begun(way), test).shape == (len(test), KNOWN)
    found = scores(way, taken(way), test)
    assert found.shape == (len(test), KNOWN + 1)
    assert found.isfinite().all()
    assert not found.requires_grad
    able = LOOSE.get(way.kind, way)
    assert rightly(able, taken(able), cloud(KNOWN, seed=7), KNOWN) > 0.8


@pytest.mark.parametrize("able", [each for each in WAYS if each.kind not in LOOSE], ids=spoken)
def test_ways_that_learn_a_class_on_the_toy_keep_the_old_ones(able):
    for position in range(KNOWN):
        assert rightly(able, taken(able), cloud(position, seed=7), position) > 0.8


def test_naming_does_not_depend_on_the_batch_or_its_order(way):
    now, test = taken(way), clouds(KNOWN + 1, n=5, seed=7)
    name = method_of(way).naming(now.network, now.memory)

    def found(places):
        return name(views_of(now.network, test.take(places).inputs, PREPARE))

    order = torch.randperm(len(test), generator=torch.Generator().manual_seed(0))
    whole = found(torch.arange(len(test)))
    within = {"rtol": 1e-5, "atol": 1e-5 * float(whole.abs().max())}
    torch.testing.assert_close(found(order), whole[order], **within)
    torch.testing.assert_close(torch.cat([found(place) for place in order.split(1)]), whole[order], **within)
    nothing = Views(*(rows[:0] for rows in views_of(now.network, test.inputs, PREPARE)))
    assert name(nothing).shape == (0, KNOWN + 1)


# What becomes of the network ---------------------------------------------------------------------------


def test_features_stay_to_the_bit_and_the_head_grows_where_the_method_says_so(way, method):
    before, after, test = begun(way).network, taken(way).network, clouds(seed=7)
    views = [views_of(network, test.inputs, PREPARE) for network in (before, after)]
    if method.frozen_features:
        assert all(torch.equal(*pair) for pair in zip(*views, strict=True))
    if method.grows_head:
        assert len(after.head.weight) == KNOWN + 1
        assert after is not before
    else:
        assert same(after.state_dict(), before.state_dict())


def test_the_same_seed_gives_the_same_to_the_bit_and_another_seed_another_network(way):
    torch.rand(3)  # what else is drawn must not matter
    again, other = taught(way, KNOWN, begun(way)), taken(way, seed=2)
    assert same(again.network.state_dict(), taken(way).network.state_dict())
    assert same(again.memory, taken(way).memory)
    trains = request_of(way) is not None
    assert same(other.network.state_dict(), taken(way).network.state_dict()) != trains
    assert trains or same(other.memory, taken(way).memory)


def test_two_classes_come_in_a_row_in_either_order(way):
    test = clouds(KNOWN + 2, n=5, seed=7)
    ahead = taught(way, KNOWN + 1, taken(way))
    behind = taught(way, KNOWN, taught(way, KNOWN + 1, begun(way)))
    for now in (ahead, behind):
        assert scores(way, now, test).shape == (len(test), KNOWN + 2)
        assert scores(way, now, test).isfinite().all()
    if way.kind not in LOOSE:
        assert rightly(way, ahead, cloud(KNOWN + 1, seed=7), KNOWN + 1) > 0.8
        assert rightly(way, behind, cloud(KNOWN + 1, seed=7), KNOWN) > 0.8


def test_a_class_of_five_samples_can_be_taken_in(way):
    now, test = taught(way, KNOWN, begun(way), n=5), clouds(KNOWN + 1, seed=7)
    assert scores(way, now, test).shape == (len(test), KNOWN + 1)
    assert scores(way, now, test).isfinite().all()
    assert all(value.isfinite().all() for value in now.memory.values())
    if way.kind not in LOOSE:
        assert rightly(way, now, cloud(KNOWN, seed=7), KNOWN) > 0.5


@pytest.mark.parametrize("position", [0, 1, KNOWN])
def test_a_dropped_class_is_never_named_again_or_the_method_says_what_to_do(way, method, position):
    now = taken(way)
    if way.kind not in ("gaussian", "fecam", "proximal"):
        with pytest.raises(
            AccommodationError, match=f'"{way.kind}" cannot unlearn .* roll back to the version'
        ):
            method.drop(now.network, now.memory, position)
        return
    less = method.drop(now.network, now.memory, position)
    assert scores(way, less, cloud(position, seed=7)).shape == (EACH, KNOWN)
    left = [each for each in range(KNOWN + 1) if each != position]
    for place, each in enumerate(left):
        assert rightly(way, less, cloud(each, seed=7), place) > 0.8
    assert scores(way, now, clouds(seed=7)).shape[1] == KNOWN + 1  # what was given stays


# Trials together ---------------------------------------------------------------------------------------


def request_of(way, seed=1, n=EACH):
    now = begun(way, seed % 2)
    few = replace(TRAINING, steps=20, check_every=20)
    new = NewClass(now.network, now.memory, cloud(KNOWN, n, seed), PREPARE, few, seed)
    return next(method_of(way).take_in(new), None)


def test_a_training_stacked_with_another_seeds_comes_to_the_same_as_alone(way, monkeypatch):
    """Two networks, two sets of samples: what is particular to a trial must be in its state."""
    if isinstance(way, config.Proximal):
        way = replace(way, grow=4)  # as many as are free in both: what grows apart cannot be stacked
    if request_of(way) is None:
        assert not method_of(way).grows_head
        return
    monkeypatch.setattr(replay, "draw", _middle)  # draws are others in a stack
    alone, stacked, untouched = ([request_of(way, seed, 33 + seed) for seed in (0, 1)] for _ in range(3))
    for each in alone:
        finished(fitting(each))
    one, trials = stacked[0], [each.trial for each in stacked]
    assert one.settings == stacked[1].settings
    went = fit_trials(trials, one.loss, one.settings, after_step=one.after_step, together=2)
    assert [each.together for each in went] == [2, 2]
    for left, right, start in zip(alone, stacked, untouched, strict=True):
        weights = right.trial.network.state_dict()
        for name, value in left.trial.network.state_dict().items():
            torch.testing.assert_close(weights[name], value, rtol=1e-4, atol=1e-4, msg=name)
        assert not same(weights, start.trial.network.state_dict())


def _middle(statistics, each, source=None):
    """Every draw of a class is its mean."""
    del source
    return statistics["mean"][:, None].expand(-1, each, -1)


# Another device ----------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_a_class_taken_in_on_a_gpu_is_named_as_on_the_cpu(way, method):
    there = copied(begun(way).network).cuda()
    prepare, test = PREPARE.to(torch.device("cuda")), clouds(KNOWN + 1, seed=7)
    memory = method.remember(there, clouds(), prepare)
    new = take_in(method, NewClass(there, memory, cloud(KNOWN), prepare, TRAINING, 1))
    assert new.network.head.weight.is_cuda
    found = method.naming(new.network, new.memory)(views_of(new.network, test.inputs, prepare))
    wanted = scores(way, taken(way), test)
    assert found.is_cuda
    assert (found.argmax(dim=1).cpu() == wanted.argmax(dim=1)).float().mean() > 0.95


# Digits, from the first training to a file -------------------------------------------------------------

SHORT = replace(
    DEFAULT, training=config.TrainingSettings(config.Adam(1e-3), batch_size=32, steps=60, check_every=60)
)
BRIEF = {"samples": 100, "share": 0.2, "projections": 64, "rank": 16}


@pytest.fixture(scope="module")
def pictures():
    """Return digits: seven to begin with, one to learn, and two that stay novel."""
    data = load_named("digits")
    first, _, novel = split_data(data, ClassSplit(known=tuple(range(7)), novel=(8, 9)))
    return SimpleNamespace(
        first=first, test=data.test.only(range(8)), novel=novel, new=data.train.only((7,)).inputs
    )


@pytest.fixture(scope="module")
def sharing():
    """Return a training that is done once for all learners whose first training is the same."""
    done = {}

    def shared(request):
        network = request.trial.network
        key = (tuple(network.state_dict()), str(request.settings), request.after_step is None)
        if key not in done:
            done[key] = finished(fitting(request)), copied(network).state_dict()
        result, weights = done[key]
        network.load_state_dict(weights)
        yield from ()
        return result

    return shared


def numbers(measures):
    for value in measures.values():
        yield from numbers(value) if isinstance(value, dict) else [value]


@pytest.mark.filterwarnings("ignore:.*look like (the )?known class", "ignore:.*held-out")
def test_digits_are_learned_judged_saved_and_loaded(way, pictures, sharing, monkeypatch, tmp_path):
    monkeypatch.setattr(shels.learner.learner, "fitting", sharing)
    short = BRIEF | {"epochs": 31 if way.kind == "gdumb" else 2}
    brief = replace(way, **{name: value for name, value in short.items() if hasattr(way, name)})
    settings = with_learner(SHORT, brief, standard=LEARNERS[way.kind].standard)
    learner = learn(pictures.first, settings, seed=0, device="cpu")
    assert learner.evaluate(pictures.test)["closed_set_accuracy"] > 0.8
    grown = learner.accommodate(pictures.new, 7)
    assert grown.classes == tuple(range(8))
    named = grown.class_scores(pictures.test.inputs).argmax(dim=1)
    assert way.kind in LOOSE or (named[pictures.test.labels == 7] == 7).float().mean() > 0.5
    measures = grown.evaluate(pictures.test, pictures.novel)
    assert all(math.isfinite(value) for value in numbers(measures))
    grown.save(tmp_path / "model")
    mine, theirs = (
        each.judge(pictures.test.inputs) for each in (grown, Learner.load(tmp_path / "model", "cpu"))
    )
    assert all(torch.equal(value, getattr(theirs, name)) for name, value in vars(mine).items())
