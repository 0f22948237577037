"""How many trials fit together, from the shapes of a chain, and what happens where the plan was wrong."""

from __future__ import annotations

import weakref
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from shels.config import Adam, NetworkSettings, TrainingSettings
from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.errors import ArchitectureError
from shels.model.architectures import ARCHITECTURES
from shels.model.chains import feature_count, shapes
from shels.model.networks import build, from_chain
from shels.training import loop, memory
from shels.training.checkpoints import Checkpoint
from shels.training.data import TrialData, TrialTraining
from shels.training.loop import fit_trials, planned
from shels.training.losses import shels_loss
from shels.training.memory import bytes_of_trial, most_together, values_of_sample
from shels.training.stack import Stack

SETTINGS = TrainingSettings(Adam(1e-2), batch_size=8, steps=30, check_every=10)


def data(seed=0, n=40):
    draws = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 3
    samples = Samples(torch.randn(n, 4, generator=draws) + 2 * F.one_hot(labels, 4), labels, (0, 1, 2))
    return TrialData.of(samples, samples, Preparation((4,)))


def network(seed=0, width=8):
    torch.manual_seed(seed)
    chain = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 6), nn.ReLU())
    return from_chain(chain, (4,), "cosine", 3, seed)


# The plan ----------------------------------------------------------------------------------------------


def test_values_of_a_sample_are_those_of_all_layers():
    assert values_of_sample(network(), (4,)) == 8 + 8 + 6 + 6
    small = build(NetworkSettings("small"), (1, 8, 8), 3, 0)
    convolutions = 2 * 32 * 64 + 2 * 32 * 64 + 32 * 16 + 2 * 64 * 16 + 64 * 4
    assert values_of_sample(small, (1, 8, 8)) == convolutions + 256 + 2 * 128  # flattened, then linear


def test_a_trial_needs_more_with_larger_batches_networks_and_images():
    trial = data()
    needs = [
        bytes_of_trial(network(), trial, replace(SETTINGS, batch_size=size)) for size in (256, 512, 1024)
    ]
    assert needs[0] < needs[1] < needs[2]
    assert needs[2] - needs[1] == 2 * (needs[1] - needs[0])
    assert bytes_of_trial(network(width=16), trial, SETTINGS) > bytes_of_trial(network(), trial, SETTINGS)
    sizes = [
        bytes_of_trial(
            build(NetworkSettings("six-conv-256"), (1, side, side), 3, 0),
            replace(trial, prepare=Preparation((1, side, side))),
            SETTINGS,
        )
        for side in (8, 16, 32)
    ]
    assert sizes[0] < sizes[1] < sizes[2]


def test_a_trial_needs_room_for_its_parameters_and_for_a_batch():
    wide, trial = network(width=5000), data()
    parameters = sum(value.numel() for value in wide.parameters())
    assert bytes_of_trial(wide, trial, SETTINGS) > 4 * 4 * parameters  # value, gradient, two moments
    large = replace(SETTINGS, batch_size=4096)
    assert bytes_of_trial(network(), trial, large) > 4 * 2 * 4096 * 28  # each layer's output and its gradient


@pytest.mark.parametrize(("free", "least", "most"), [(0, 1, 1), (1, 1, 1), (10**9, 1000, 10**6)])
def test_as_many_trials_are_stacked_as_fit_and_never_none(monkeypatch, free, least, most):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 2 * free))
    assert least <= most_together(network(), data(), SETTINGS) <= most


def test_trials_planned_together_fit_into_the_free_memory(monkeypatch):
    need = bytes_of_trial(network(), data(), SETTINGS)
    found = []
    for trials in (1, 5, 10, 20):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=trials * need: (free, free))
        found.append(most_together(network(), data(), SETTINGS))
        assert found[-1] <= trials
    assert found == sorted(found)
    assert found[-1] > 10


def test_on_a_cpu_trials_are_taken_one_by_one():
    assert planned(network(), data(), SETTINGS) == 1


# Where the plan was wrong ------------------------------------------------------------------------------


@pytest.fixture
def little(monkeypatch):
    """Memory for two trials; return the sizes of the stacks that were tried."""
    tried = []
    honest = Stack.load

    def load(self, plans):
        tried.append(len(self.trials))
        if len(self.trials) > 2:
            raise torch.OutOfMemoryError("out of memory")
        honest(self, plans)

    monkeypatch.setattr(Stack, "load", load)
    return tried


def trials_of(count, folder=None):
    stores = [None if folder is None else Checkpoint(folder / f"{seed}") for seed in range(count)]
    return [
        TrialTraining(network(seed).double(), data(seed, 30 + seed), seed, checkpoint=stores[seed])
        for seed in range(count)
    ]


def train(trials, **options):
    return fit_trials(trials, shels_loss(trials[0].network, SETTINGS), SETTINGS, **options)


def assert_same(mine, theirs):
    for trial, other in zip(mine, theirs, strict=True):
        for value, expected in zip(trial.network.parameters(), other.network.parameters(), strict=True):
            torch.testing.assert_close(value, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("count", [3, 5, 7])
def test_a_stack_that_does_not_fit_is_split_and_comes_to_the_same(little, count):
    alone, stacked = trials_of(count), trials_of(count)
    went = train(alone)
    assert little == []
    went_stacked = train(stacked, together=count)
    assert little[0] == count
    assert set(little[-3:]) <= {1, 2}
    assert_same(stacked, alone)
    for one, two in zip(went, went_stacked, strict=True):
        assert [check.step for check in one.checks] == [check.step for check in two.checks] == [10, 20, 30]


def test_a_stack_that_runs_out_of_memory_on_its_way_loses_nothing(monkeypatch, tmp_path):
    """What was checkpointed before is not trained again."""
    honest, rounds = Stack.load, []

    def load(self, plans):
        rounds.append((len(self.trials), [None if plan is None else len(plan.sizes) for plan in plans]))
        if len(rounds) == 3:
            raise torch.OutOfMemoryError("out of memory")
        honest(self, plans)

    monkeypatch.setattr(Stack, "load", load)
    alone, stacked = trials_of(4), trials_of(4, tmp_path)
    train(alone)
    train(stacked, together=4)
    assert [size for size, _ in rounds] == [4, 4, 4, 2, 2]  # the last third of each half alone
    assert_same(stacked, alone)


def test_one_trial_that_does_not_fit_is_an_error(monkeypatch):
    def load(self, plans):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(Stack, "load", load)
    with pytest.raises(torch.OutOfMemoryError):
        train(trials_of(3), together=3)


def test_a_stack_that_did_not_fit_is_gone_before_memory_is_given_back(little, monkeypatch):
    held, alive = [], []

    class Watched(Stack):
        def __init__(self, *given):
            super().__init__(*given)
            held[:] = [weakref.ref(self), *map(weakref.ref, self.states)]

    monkeypatch.setattr(loop, "Stack", Watched)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: alive.append([ref() is None for ref in held]))
    train(trials_of(3), together=3)
    assert alive == [[True] * 4]


# The shapes of a chain ---------------------------------------------------------------------------------

IMAGE, VECTOR = (3, 2, 11, 9), (3, 7)
CHAINS = [
    ([nn.Conv2d(2, 4, 3)], IMAGE),
    ([nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)], IMAGE),
    ([nn.Conv2d(2, 4, (3, 2), stride=(2, 3), padding=(2, 0), dilation=(1, 2))], IMAGE),
    ([nn.Conv2d(2, 4, 3, stride=2), nn.Conv2d(4, 5, 1, stride=3)], IMAGE),
    ([nn.Conv2d(2, 4, 5, dilation=2, padding=4)], IMAGE),
    ([nn.Conv2d(2, 4, 3, padding="same", dilation=2)], IMAGE),
    ([nn.Conv2d(2, 4, 3, padding="valid")], IMAGE),
    ([nn.Conv2d(2, 4, 3, bias=False)], IMAGE),
    ([nn.MaxPool2d(2)], IMAGE),
    ([nn.MaxPool2d(2, ceil_mode=True)], IMAGE),
    ([nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True)], IMAGE),
    ([nn.MaxPool2d((3, 2), stride=(1, 2), padding=(1, 0), dilation=(2, 1))], IMAGE),
    ([nn.MaxPool2d(3, stride=1, padding=1)], IMAGE),
    ([nn.AvgPool2d(3, stride=2, padding=1, ceil_mode=True)], IMAGE),
    ([nn.AvgPool2d((2, 3))], IMAGE),
    ([nn.AdaptiveAvgPool2d(4), nn.Flatten()], IMAGE),
    ([nn.AdaptiveAvgPool2d((None, 3))], IMAGE),
    ([nn.AdaptiveMaxPool2d((5, 2))], IMAGE),
    ([nn.Flatten()], IMAGE),
    ([nn.Flatten(2)], IMAGE),
    ([nn.Flatten(1, 2)], IMAGE),
    ([nn.Flatten(0)], IMAGE),
    ([nn.Flatten(-2)], IMAGE),
    ([nn.Linear(9, 4)], IMAGE),
    ([nn.Dropout(0.5), nn.Dropout2d(0.5), nn.Identity(), nn.ReLU()], IMAGE),
    ([nn.Linear(7, 5, bias=False), nn.ReLU(), nn.Dropout(0.5), nn.Linear(5, 2)], VECTOR),
    ([nn.Flatten(), nn.Linear(7, 5)], VECTOR),
    ([nn.Sequential(nn.Conv2d(2, 4, 3), nn.Sequential(nn.ReLU(), nn.MaxPool2d(2))), nn.Flatten()], IMAGE),
    ([nn.Conv2d(2, 4, (11, 9)), nn.Flatten(), nn.Linear(4, 2)], IMAGE),
]


def real_shapes(layers, shape):
    """The shape after each layer of a real forward pass, chains in the chain laid flat."""
    out, x = [], torch.zeros(shape)
    for layer in layers:
        if isinstance(layer, nn.Sequential):
            out += real_shapes(layer, x.shape)
        else:
            out.append(tuple(layer(x).shape))
        x = layer(x)
    return out


@pytest.mark.parametrize(("layers", "shape"), CHAINS, ids=lambda value: str(value)[:60])
def test_shapes_are_those_of_a_forward_pass(layers, shape):
    assert shapes(nn.Sequential(*layers), shape) == real_shapes(layers, shape)


@pytest.mark.parametrize("kernel", [1, 2, 3])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_shapes_are_those_of_a_forward_pass_for_every_small_window(kernel, stride):
    for padding in (0, 1, 2):
        for dilation in (1, 2):
            for side in (5, 6, 7):
                shape = (2, 1, side, side + 1)
                layers = [nn.Conv2d(1, 2, kernel, stride, padding, dilation)]
                assert shapes(nn.Sequential(*layers), shape) == real_shapes(layers, shape)
                if padding <= kernel // 2:
                    layers = [nn.MaxPool2d(kernel, stride, padding, dilation)]
                    assert shapes(nn.Sequential(*layers), shape) == real_shapes(layers, shape)


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name != "vgg16"])
def test_shapes_of_the_papers_networks_are_those_of_a_forward_pass(name):
    shape = (2, 20) if name == "vectors" else (2, 3, 17, 25)
    body = ARCHITECTURES[name](shape[1:])
    assert shapes(body, shape) == real_shapes(list(body), shape)


def test_shapes_draw_nothing_and_leave_the_chain_in_its_mode():
    body = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Dropout(0.5), nn.Flatten()
    ).train()
    before = torch.get_rng_state()
    assert shapes(body, IMAGE)[-1] == (3, 4 * 4 * 3)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(layer.training for layer in body)


MISFITS = [
    nn.Conv2d(3, 4, 3),
    nn.Conv2d(2, 4, 12),
    nn.Conv2d(2, 4, 3, dilation=5),
    nn.MaxPool2d(12),
    nn.AvgPool2d(12),
    nn.Linear(8, 3),
    nn.MaxPool2d(2, padding=2),
]
UNCOMPUTABLE = [
    nn.MaxPool2d(2, padding=-1),
    nn.MaxPool2d(2, stride=0),
    nn.MaxPool2d(2, dilation=0),
    nn.Conv2d(2, 4, 3, stride=0),
    nn.Conv2d(2, 4, 3, padding=-1),
    nn.Conv2d(2, 4, 3, dilation=0),
]


@pytest.mark.parametrize("layer", [*MISFITS, *(pytest.param(each) for each in UNCOMPUTABLE)], ids=str)
def test_a_chain_that_does_not_fit_is_refused_as_torch_would(layer):
    with pytest.raises(RuntimeError):
        layer(torch.zeros(IMAGE))
    with pytest.raises((RuntimeError, ValueError)):
        shapes(nn.Sequential(layer), IMAGE)
    chain = nn.Sequential(nn.Conv2d(2, 2, 1), layer, nn.ReLU(), nn.Flatten())
    with pytest.raises(ArchitectureError, match="the chain does not fit inputs of shape"):
        feature_count(chain, IMAGE[1:])


def test_windows_may_be_given_as_lists():
    layers = [nn.MaxPool2d([2, 3]), nn.MaxPool2d(2, stride=[1, 2])]
    assert shapes(nn.Sequential(*layers), IMAGE) == real_shapes(layers, IMAGE)


def test_a_network_that_is_no_chain_is_planned_by_its_parameters_alone():
    plain = nn.Linear(4, 3)
    assert values_of_sample(plain, (4,)) == 0
    assert bytes_of_trial(plain, data(), SETTINGS) == 4 * 15 * memory._COPIES
