"""A trial's path is its own: the same alone, in any stack, beside any neighbour, cut off or not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from shels.config import Adam, Augmentation, Cosine, NetworkSettings, Sgd, TrainingSettings
from shels.data.augmentation import Numbers, drawn
from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.errors import ShelsError, TrainingError
from shels.kernels import trial_axis
from shels.learning.methods.penalty import masked, penalty_loss, transfer_masks
from shels.learning.methods.proximal import proximal_sparsity, replay_loss
from shels.learning.protection import protected
from shels.model import trunk
from shels.model.activations import weight_layers
from shels.model.architectures import six_conv
from shels.model.networks import build, from_chain
from shels.model.normalisation import BatchNorm2d
from shels.runtime import finished, generator
from shels.training import checkpoints, data
from shels.training.checkpoints import Checkpoint
from shels.training.data import Rows, TrialData, TrialTraining
from shels.training.loop import fit, fit_trials, training
from shels.training.losses import PADDING, Objective, average, cross_entropy, shels_loss, sparsity_state
from shels.training.stack import Stack, stacked_params
from shels.training.trial_run import Plan

ADAM = TrainingSettings(Adam(1e-2), batch_size=8, steps=50, check_every=10)
SGD = replace(ADAM, optimiser=Sgd(0.1, momentum=0.9, weight_decay=0.01, decay=2.0, decay_epochs=2))
EPOCHS = TrainingSettings(Adam(1e-2), batch_size=8, epochs=7)


@dataclass(frozen=True)
class Recipe:
    """One trial before it exists, so that the same one can be made as often as it is needed."""

    seed: int = 0
    n: int = 60
    held: int | None = 30
    classes: int = 3
    head: str = "cosine"
    wrong: bool = False
    dropout: float = 0.0
    images: bool = False
    state: Any = None
    scale: float | None = 1.0
    normalised: bool = False

    def network(self):
        if self.normalised:
            return build(NetworkSettings("small-bn"), (1, 8, 8), self.classes, self.seed).double()
        if self.images:
            return build(
                NetworkSettings("small", head=self.head), (1, 8, 8), self.classes, self.seed
            ).double()
        torch.manual_seed(self.seed)
        layers = [nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU()]
        layers += [nn.Dropout(self.dropout)] if self.dropout else []
        return from_chain(
            nn.Sequential(*layers), (4,), self.head, self.classes, self.seed, self.scale
        ).double()

    def samples(self, n, seed):
        draws = torch.Generator().manual_seed(seed)
        labels = torch.arange(n) % self.classes
        if self.images:
            inputs = torch.randint(0, 128, (n, 1, 8, 8), generator=draws, dtype=torch.uint8)
            inputs[torch.arange(n), 0, labels] += 100
        else:
            inputs = torch.randn(n, 4, generator=draws, dtype=torch.float32) + 2 * F.one_hot(labels, 4)
        return Samples(inputs, labels, tuple(range(self.classes)))

    def data(self):
        shape = (1, 8, 8) if self.images else (4,)
        held = None if self.held is None else self.samples(self.held, 100 + self.seed)
        if held is not None and self.wrong:  # the more is learned, the worse
            held = replace(held, labels=(held.labels + 1) % self.classes)
        return TrialData.of(self.samples(self.n, self.seed), held, Preparation(shape))

    def trial(self, checkpoint=None):
        network = self.network()
        state = {} if self.state is None else self.state(network, self.seed)
        return TrialTraining(network, self.data(), self.seed, state, checkpoint)


def train(given, settings, together, *, loss=shels_loss, after_step=None):
    """Return trials after their training, and how it went."""
    trials = [each.trial() for each in given]
    network = trials[0].network
    made = None if after_step is None else after_step(network)
    went = fit_trials(trials, loss(network, settings), settings, after_step=made, together=together)
    return trials, went


def assert_same(mine, theirs, within=1e-9):
    """Compare what two trainings came to: every parameter, and every check."""
    for (trial, fit_), (other, fit_other) in zip(
        zip(*mine, strict=True), zip(*theirs, strict=True), strict=True
    ):
        for (name, value), expected in zip(
            trial.network.state_dict().items(), other.network.state_dict().values(), strict=True
        ):
            torch.testing.assert_close(value, expected, rtol=0, atol=within, msg=name)
        assert_same_checks(fit_, fit_other, within)


def assert_same_checks(mine, theirs, within):
    assert len(mine.checks) == len(theirs.checks)
    assert mine.stopped_early == theirs.stopped_early
    assert str(mine.error) == str(theirs.error)
    assert mine.best.step == theirs.best.step
    for one, two in zip(mine.checks, theirs.checks, strict=True):
        assert (one.step, one.epoch) == (two.step, two.epoch)
        assert (one.validation_loss is None) == (two.validation_loss is None)
        if one.validation_loss is not None:
            assert one.validation_loss == pytest.approx(two.validation_loss, rel=0, abs=within)
            assert one.validation_accuracy == pytest.approx(two.validation_accuracy, rel=0, abs=within)
        assert one.training_loss == pytest.approx(two.training_loss, rel=1e-6)


def check(given, settings, together=None, **options):
    """Train alone and stacked, and return how it went once both are seen to be the same."""
    together = len(given) if together is None else together
    alone = train(given, settings, None, **options)
    stacked = train(given, settings, together, **options)
    assert_same(stacked, alone)
    for trial, each in zip(stacked[0], given, strict=True):
        moved = [
            not torch.equal(value, start)
            for value, start in zip(trial.network.parameters(), each.network().parameters(), strict=True)
        ]
        assert all(moved)
    return stacked


# Alone and stacked -------------------------------------------------------------------------------------


SEEDS = (Recipe(0), Recipe(1), Recipe(2))


@pytest.mark.parametrize("settings", [ADAM, SGD, EPOCHS], ids=["adam", "sgd", "epochs"])
def test_equal_trials_train_alike_alone_and_stacked(settings):
    check((Recipe(3), Recipe(3), Recipe(3)), settings)


@pytest.mark.parametrize("settings", [ADAM, SGD], ids=["adam", "sgd"])
def test_trials_of_other_seeds_train_alike_alone_and_stacked(settings):
    check(SEEDS, settings)


@pytest.mark.parametrize("settings", [EPOCHS, SGD], ids=["epochs", "steps"])
def test_trials_of_other_lengths_train_alike_alone_and_stacked(settings):
    """Last batches are short by other numbers, and epochs have other numbers of steps."""
    _, went = check((Recipe(0, n=57), Recipe(1, n=23), Recipe(2, n=5), Recipe(3, n=64)), settings)
    if settings is EPOCHS:
        assert [each.checks[-1].step for each in went] == [56, 21, 7, 56]


def test_trials_of_other_sparsity_train_in_one_stack_as_each_does_alone():
    kinds = [(0.0, "layer-wise"), (0.02, "layer-wise"), (0.02, "constant"), (0.3, "constant")]
    plans = [replace(ADAM, alpha=alpha, depth_weights=kind) for alpha, kind in kinds]
    alone, networks = [], [Recipe(seed=3).network() for _ in plans]
    for plan in plans:
        network = Recipe(seed=3).network()
        fit(network, shels_loss(network, plan), Recipe(seed=3).data(), plan, seed=3)
        alone.append(network.state_dict())
    data = Recipe(seed=3).data()
    states = [sparsity_state(each, plan) for each, plan in zip(networks, plans, strict=True)]
    trials = [TrialTraining(each, data, 3, state) for each, state in zip(networks, states, strict=True)]
    fit_trials(trials, shels_loss(networks[0], plans[0]), plans[0], together=4)
    for one, expected in zip(networks, alone, strict=True):
        for name, value in one.state_dict().items():
            assert torch.allclose(value, expected[name], rtol=0, atol=1e-9), name
    sizes = [float(one.body[0].weight.detach().norm()) for one in networks]
    assert sizes[3] < sizes[1] < sizes[0]


@pytest.mark.parametrize("head", ["cosine", "linear"])
@pytest.mark.parametrize("depth_weights", ["layer-wise", "constant"])
def test_trials_of_other_class_counts_train_alike_alone_and_stacked(head, depth_weights):
    given = (
        Recipe(0, classes=2, head=head),
        Recipe(1, classes=4, head=head),
        Recipe(2, classes=3, head=head),
    )
    for settings in (ADAM, SGD):
        trials, _ = check(given, replace(settings, depth_weights=depth_weights, alpha=0.01))
        assert [len(trial.network.head.weight) for trial in trials] == [2, 4, 3]


def test_a_linear_head_trains_alike_alone_and_stacked():
    check((Recipe(0, head="linear"), Recipe(1, head="linear", n=41)), SGD)


@pytest.mark.parametrize("settings", [ADAM, SGD], ids=["adam", "sgd"])
def test_convolutions_train_alike_alone_and_stacked(settings):
    given = (Recipe(0, images=True, n=36, held=9), Recipe(1, images=True, n=29, held=12, classes=5))
    check(given, replace(settings, optimiser=replace(settings.optimiser, learning_rate=1e-3)))


@pytest.mark.parametrize("settings", [ADAM, SGD, EPOCHS], ids=["adam", "sgd", "epochs"])
def test_batch_normalisation_trains_alike_alone_and_stacked(settings):
    """Trials of other lengths: their last batches are filled up in a stack, and what fills them is nobody."""
    sizes = (60, 41, 49)  # the last batch of 49 is one sample
    given = [Recipe(seed, n, images=True, normalised=True, classes=3 + seed) for seed, n in enumerate(sizes)]
    trials, went = check(given, settings)
    for trial, recipe in zip(trials, given, strict=True):
        for (name, mine), start in zip(
            trial.network.named_buffers(), recipe.network().buffers(), strict=True
        ):
            assert not torch.isclose(mine, start).all(), name
    assert went[0].best.validation_loss is not None


def test_batch_normalisation_is_that_of_a_plain_loop():
    recipe, settings = (
        Recipe(0, 24, images=True, normalised=True),
        TrainingSettings(Sgd(0.1), batch_size=8, epochs=3),
    )
    (trial,), (went,) = train([recipe], replace(settings, keep="last", alpha=0.0), None)
    net, given = recipe.network(), recipe.data()
    plain = nn.Sequential(
        *(
            nn.BatchNorm2d(each.num_features).double() if isinstance(each, BatchNorm2d) else each
            for each in net.body
        ),
        net.head,
    )
    optimiser = torch.optim.SGD(plain.parameters(), 0.1, momentum=0.9, weight_decay=5e-4)
    for epoch in range(3):
        order = torch.randperm(24, generator=generator(0, "batches", epoch))
        for rows in order.split(8):
            optimiser.zero_grad()
            inputs = given.prepare(given.inputs[rows]).double()
            F.cross_entropy(plain.train()(inputs), given.training.labels[rows]).backward()
            optimiser.step()
    held = given.prepare(given.inputs[given.validation.places]).double()
    expected = plain.eval()(held)
    torch.testing.assert_close(trial.network(held), expected, rtol=0, atol=1e-9)
    loss = F.cross_entropy(expected, given.validation.labels).item()
    assert went.checks[-1].validation_loss == pytest.approx(loss, abs=1e-9)


def test_running_averages_of_the_best_check_are_kept_with_its_weights():
    given = [Recipe(seed, images=True, normalised=True, wrong=True) for seed in range(2)]
    trials, went = check(given, replace(EPOCHS, patience=2))
    for trial, each in zip(trials, went, strict=True):
        assert each.stopped_early
        held = trial.data.batch(trial.data.validation, torch.float64)
        loss = F.cross_entropy(trial.network(held.inputs), held.labels).item()
        assert loss == pytest.approx(each.best.validation_loss, abs=1e-9)


def test_the_papers_six_convolutions_train_alike_alone_and_stacked():
    settings = replace(ADAM, optimiser=Adam(1e-4), batch_size=4, steps=6, check_every=3)

    def trials():
        networks = [build(NetworkSettings("six-conv-256"), (1, 8, 8), 3, seed).double() for seed in (0, 1)]
        data = [Recipe(seed, images=True, n=14, held=6).data() for seed in (0, 1)]
        return [TrialTraining(network, each, 0) for network, each in zip(networks, data, strict=True)]

    both = []
    for together in (None, 2):
        made = trials()
        went = fit_trials(made, shels_loss(made[0].network, settings), settings, together=together)
        both.append((made, went))
    assert_same(both[1], both[0])


def told_by_their_images(prepared):
    """Numbers for an augmentation that an image has wherever it stands: digits of its mean."""
    mean = prepared.double().mean(dim=(1, 2, 3)).to(prepared.dtype)
    return Numbers(*((mean * 10.0 ** (place % 4 + 1)) % 1 for place in range(len(Numbers._fields))))


AUGMENTED = Augmentation(0.125, "reflect", 0.5, 0.2, 0.2, 10, 0.1, 0.1, 0.25)


@pytest.mark.parametrize("settings", [ADAM, EPOCHS], ids=["adam", "epochs"])
def test_the_same_draws_augment_alike_alone_and_stacked(settings, monkeypatch):
    monkeypatch.setattr(data, "drawn", told_by_their_images)
    settings = replace(settings, augmentation=AUGMENTED)
    given = [Recipe(seed, n, images=True) for seed, n in enumerate((60, 41, 53))]
    trials, _ = check(given, settings)
    plain, _ = train(given, replace(settings, augmentation=None), 3)
    assert not torch.equal(trials[0].network.head.weight, plain[0].network.head.weight)


@pytest.mark.parametrize("together", [None, 2])
def test_only_what_is_trained_on_is_augmented(together, monkeypatch):
    seen = []
    monkeypatch.setattr(data, "drawn", lambda images: seen.append(len(images)) or drawn(images))
    settings = replace(EPOCHS, epochs=2, augmentation=AUGMENTED)
    train([Recipe(seed, n=16, images=True) for seed in range(2)], settings, together)
    assert seen == [8] * 8 if together is None else [16] * 4  # two epochs of two batches, and no validation


def test_two_trainings_of_one_seed_augment_alike_and_trials_of_a_stack_do_not():
    settings = replace(EPOCHS, epochs=2, augmentation=AUGMENTED)
    for together in (None, 2):
        one, other = (train([Recipe(0, images=True)] * 2, settings, together)[0] for _ in range(2))
        assert torch.equal(one[1].network.head.weight, other[1].network.head.weight)
        same = torch.equal(one[0].network.head.weight, one[1].network.head.weight)
        assert same == (together is None)


def test_vectors_are_not_augmented():
    with pytest.raises(ShelsError, match="augmentation changes images; leave it out for vectors of 4"):
        train([Recipe()], replace(ADAM, augmentation=AUGMENTED), None)


@pytest.mark.parametrize(
    "optimiser",
    [Adam(1e-2, Cosine(0.2), decoupled_decay=0.1), Sgd(0.1, schedule=Cosine(0.1, 0.01, "epoch"))],
    ids=["adam", "sgd"],
)
def test_schedules_are_the_same_alone_and_stacked_whatever_the_length_of_an_epoch(optimiser):
    given = [Recipe(seed, n) for seed, n in enumerate((60, 23, 41))]
    check(given, replace(EPOCHS, optimiser=optimiser))
    check(given, replace(ADAM, optimiser=optimiser))


@pytest.mark.parametrize("scale", [4.0, None])
def test_a_scale_of_cosines_is_the_same_alone_and_stacked(scale):
    check([Recipe(seed, classes=classes, scale=scale) for seed, classes in enumerate((3, 4, 2))], ADAM)


def test_a_trial_that_stops_early_leaves_the_others_to_go_on():
    settings = replace(ADAM, steps=60, check_every=5, patience=2)
    _, went = check((Recipe(0), Recipe(1, wrong=True), Recipe(2)), settings)
    stopped = [each.checks[-1].step for each in went]
    assert stopped[1] == 15  # the first check is the best, and two more follow
    assert went[1].stopped_early
    assert min(stopped[0], stopped[2]) > 15


def test_the_first_trial_may_stop_before_the_others():
    settings = replace(ADAM, steps=40, check_every=5, patience=2)
    _, went = check((Recipe(1, wrong=True), Recipe(0)), settings)
    assert went[0].stopped_early
    assert went[1].checks[-1].step > went[0].checks[-1].step


def test_trials_with_and_without_validation_data_can_be_stacked():
    _, went = check((Recipe(0, held=None), Recipe(1), Recipe(2, held=None, n=20)), ADAM)
    assert [each.best.validation_loss is None for each in went] == [True, False, True]
    assert went[0].best is went[0].checks[-1]


def test_a_stack_in_which_nothing_is_held_out_keeps_the_last_weights():
    _, went = check((Recipe(0, held=None), Recipe(1, held=None)), SGD)
    assert all(each.best is each.checks[-1] for each in went)


def test_validation_data_of_many_batches_and_of_few_can_be_stacked():
    check((Recipe(0, held=1100), Recipe(1, held=3)), replace(ADAM, steps=20))


def test_batches_larger_than_the_data_train_alike_alone_and_stacked():
    check((Recipe(0, n=10), Recipe(1, n=3)), replace(ADAM, batch_size=16, steps=20))


def test_checks_that_fall_between_epochs_train_alike_alone_and_stacked():
    """A round of seven steps spans epochs, and the last round is short."""
    _, went = check((Recipe(0, n=20), Recipe(1, n=33)), replace(SGD, steps=50, check_every=7))
    assert [each.step for each in went[0].checks] == [7, 14, 21, 28, 35, 42, 49, 50]


def test_a_stack_of_one_is_the_trial_alone():
    check((Recipe(4, n=37),), ADAM)
    check((Recipe(4, n=37),), SGD)


@pytest.mark.parametrize("together", [1, 2, 3, 9])
def test_stacks_of_any_size_come_to_the_same(together):
    given = tuple(Recipe(seed, n=30 + 7 * seed, classes=2 + seed % 3) for seed in range(5))
    check(given, replace(ADAM, steps=20), together=together)


def test_the_training_loss_of_checks_is_the_same_alone_and_stacked():
    alone, stacked = train(SEEDS, ADAM, None)[1], train(SEEDS, ADAM, 3)[1]
    for one, two in zip(alone, stacked, strict=True):
        for mine, other in zip(one.checks, two.checks, strict=True):
            assert mine.training_loss == pytest.approx(other.training_loss, rel=0, abs=1e-9)


def test_trials_on_the_same_inputs_train_as_on_copies_of_them():
    whole = Recipe(0, n=80).samples(80, 0)

    def trials(shared):
        inputs = whole.inputs
        out = []
        for seed in range(3):
            order = torch.randperm(80, generator=torch.Generator().manual_seed(seed))
            parts = [Rows(part, whole.labels[part]) for part in (order[: 50 + seed], order[60:])]
            mine = inputs if shared else inputs.clone()
            data = TrialData(mine, parts[0], parts[1], Preparation((4,)))
            out.append(TrialTraining(Recipe(seed).network(), data, seed))
        return out

    results = []
    for shared, together in ((True, None), (True, 3), (False, 3)):
        made = trials(shared)
        went = fit_trials(made, shels_loss(made[0].network, ADAM), ADAM, together=together)
        results.append((made, went))
    assert_same(results[1], results[0])
    assert_same(results[2], results[1], within=0)


def test_inputs_that_trials_share_are_held_once():
    data, loss = Recipe(0).data(), shels_loss(Recipe(0).network(), ADAM)
    trials = [TrialTraining(Recipe(seed).network(), data, seed) for seed in range(3)]
    stack = Stack([*trials, Recipe(3).trial()], Objective(loss, ADAM), torch.float32)
    assert stack.offsets == [0, 0, 0, len(data.inputs)]
    assert len(stack.inputs) == 2 * len(data.inputs)


# State and what comes after a step ---------------------------------------------------------------------


def mask_of(network, seed):
    draws = torch.Generator().manual_seed(seed)
    return {"mask/body.2.weight": (torch.rand(6, 8, generator=draws) > 0.4).double()}


@pytest.mark.parametrize("settings", [ADAM, SGD], ids=["adam", "sgd"])
def test_each_trial_has_its_own_state_and_mask(settings):
    given = tuple(Recipe(seed, state=mask_of, n=30 + seed) for seed in range(3))
    trials, _ = check(given, settings, after_step=lambda network: masked)
    for trial in trials:
        mask = trial.state["mask/body.2.weight"]
        weight = trial.network.body[2].weight
        assert not weight[mask == 0].any()
        assert weight[mask == 1].all()


@pytest.mark.parametrize("images", [False, True])
def test_proximal_steps_are_the_same_alone_and_stacked(images):
    def steps(network):
        return proximal_sparsity(network, alpha=16.0 if images else 8.0, learning_rate=1e-2)

    size = {"n": 20 if images else 60, "held": None}
    settings = replace(ADAM, alpha=0.0, steps=15 if images else 50, check_every=5)
    given = (Recipe(0, images=images, **size), Recipe(1, images=images, **size))
    trials, _ = check(given, settings, after_step=steps)
    for trial in trials:
        groups = trial.network.body[2].weight.detach().movedim(1, 0).flatten(1)
        assert not groups.any(dim=1).all()  # some reached zero, which gradient steps alone never do


def old_weights(network, seed):
    """The state of the paper's penalty, with importances and free units drawn from the seed."""
    draws = torch.Generator().manual_seed(seed)
    layers, params = weight_layers(network), dict(network.named_parameters())
    sizes = {e.inputs: params[e.weight].shape[1] for e in layers[1:]}
    sizes |= {e.units: len(params[e.weight]) for e in layers}
    importances = {name: torch.rand(size, generator=draws) for name, size in sizes.items()}
    unused = {name: value < 0.3 for name, value in importances.items()}
    masks = transfer_masks(layers, unused, {name: value.shape for name, value in params.items()})
    state = {f"importance/{name}": value for name, value in importances.items()}
    state |= {f"mask/{name}": value for name, value in masks.items()}
    return state | {f"before/{name}": value.detach() + 0.1 for name, value in params.items()}


@pytest.mark.parametrize("images", [False, True])
def test_the_penalty_on_changes_is_the_same_alone_and_stacked(images):
    size = {"n": 19, "held": None, "images": images} if images else {"held": None}
    given = tuple(Recipe(seed, state=old_weights, **size) for seed in range(2))
    settings = replace(ADAM, optimiser=Adam(1e-3), steps=12 if images else 50)

    def loss(network, settings):
        return penalty_loss(network, settings, beta=0.5)

    check(given, settings, loss=loss, after_step=lambda network: masked)


def gaussians(network, seed, spread):
    draws = torch.Generator().manual_seed(seed)
    state = {"gaussian.mean": torch.rand(2, 4, generator=draws)}
    state |= {"gaussian.factor": spread * torch.rand(2, 3, 4, generator=draws)}
    state |= {"gaussian.residual": spread * torch.rand(2, 4, generator=draws)}
    state["gaussian.floor"] = torch.zeros(2)
    for name, value in network.named_parameters():
        state[f"before/{name}"] = value.detach().clone()
        state[f"learns/{name}"] = torch.rand(value.shape, generator=draws) > 0.5
    return state


@pytest.fixture
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def replaying(network, settings):
    return replay_loss(network, each=5, new_share=0.3)


def test_replay_is_the_same_alone_and_stacked_where_its_draws_have_no_spread(float64):
    given = tuple(
        Recipe(seed, held=None, n=20 + seed, state=lambda *a: gaussians(*a, 0.0)) for seed in range(3)
    )
    alone, stacked = (
        train(given, ADAM, together, loss=replaying, after_step=lambda network: protected(0.01))
        for together in (None, 3)
    )
    assert_same(stacked, alone)


def test_replay_in_a_stack_leaves_what_is_protected_as_it_was_to_the_bit(float64):
    given = tuple(Recipe(seed, held=None, state=lambda *a: gaussians(*a, 0.5)) for seed in range(2))
    trials, _ = train(given, ADAM, 2, loss=replaying, after_step=lambda network: protected(0.01))
    for trial in trials:
        for name, value in trial.network.named_parameters():
            learns, before = trial.state[f"learns/{name}"], trial.state[f"before/{name}"]
            assert torch.equal(value[~learns], before[~learns])
            assert not torch.equal(value[learns], before[learns])


def test_trials_of_a_stack_do_not_share_their_draws(float64):
    given = (Recipe(0, held=None, state=lambda *a: gaussians(*a, 0.5)),) * 2
    trials, _ = train(given, replace(ADAM, steps=5), 2, loss=replaying)
    assert not torch.equal(trials[0].network.head.weight, trials[1].network.head.weight)


# Neighbours --------------------------------------------------------------------------------------------


def test_neighbours_do_not_matter():
    a = Recipe(0, n=41)
    beside = (Recipe(1), Recipe(2, n=9, classes=4), Recipe(3, wrong=True, held=200), Recipe(4, held=None))
    settings = replace(EPOCHS, patience=2)
    results = [train((a, other), settings, 2) for other in beside]
    for trials, went in results[1:]:
        assert_same((trials[:1], went[:1]), (results[0][0][:1], results[0][1][:1]), within=1e-12)


def test_trials_in_another_order_come_to_the_same_in_that_order():
    given = (Recipe(0, n=41), Recipe(1, classes=2), Recipe(2, wrong=True), Recipe(3, held=None))
    settings = replace(ADAM, patience=2)
    trials, went = train(given, settings, 4)
    order = (2, 0, 3, 1)
    again = train([given[place] for place in order], settings, 4)
    assert_same(again, ([trials[place] for place in order], [went[place] for place in order]), within=1e-12)


def test_a_neighbour_of_extreme_values_does_no_harm():
    wild = Recipe(1, n=20).trial()
    wild.data.inputs.mul_(1e12)
    calm, beside = Recipe(0).trial(), Recipe(0).trial()
    settings = replace(ADAM, steps=20)
    fit_trials([calm, Recipe(1).trial()], shels_loss(calm.network, settings), settings, together=2)
    fit_trials([beside, wild], shels_loss(beside.network, settings), settings, together=2)
    for value, expected in zip(beside.network.parameters(), calm.network.parameters(), strict=True):
        torch.testing.assert_close(value, expected, rtol=0, atol=1e-12)


def test_a_trial_beside_others_drops_out_as_it_does_by_itself():
    given = (Recipe(0, dropout=0.5), Recipe(1, dropout=0.5))
    beside = train(given, ADAM, None)
    for place in range(2):
        part = slice(place, place + 1)
        assert_same((beside[0][part], beside[1][part]), train(given[part], ADAM, None), within=0)


def test_a_second_stack_drops_out_as_the_first_does():
    """Its losses are those of training with dropout, not those of a network that only evaluates."""
    given = (Recipe(0, n=64, dropout=0.5),) * 2
    settings = replace(ADAM, optimiser=Adam(1e-9), steps=40, check_every=40, alpha=0.0)  # nothing moves
    trials, went = train(given, settings, 1)
    network, data = trials[1].network.eval(), trials[1].data
    with torch.no_grad():
        scores = network(data.inputs[data.training.places].double())
    evaluated = float(F.cross_entropy(scores, data.training.labels))
    assert abs(went[0].best.training_loss - evaluated) > 1e-3  # so the loss tells the two apart
    assert abs(went[1].best.training_loss - evaluated) > 1e-3


def test_a_stack_trains_with_dropout_and_validates_without():
    trials, went = train((Recipe(0, dropout=0.5), Recipe(1, dropout=0.5)), ADAM, 2)
    for trial, each in zip(trials, went, strict=True):
        network, rows = trial.network.eval(), trial.data.validation
        with torch.no_grad():
            scores = network(trial.data.inputs[rows.places].double())
        expected = float(F.cross_entropy(scores, rows.labels))
        assert each.best.validation_loss == pytest.approx(expected, abs=1e-9)
    plain = train((Recipe(0), Recipe(1)), ADAM, 2)
    assert went[0].checks[0].training_loss != pytest.approx(plain[1][0].checks[0].training_loss, rel=1e-3)


def test_each_trial_keeps_its_own_preparation():
    def trials():
        out = [Recipe(0).trial(), Recipe(1).trial()]
        scaled = Preparation((4,), mean=torch.ones(4), sd=torch.full((4,), 2.0))
        return [out[0], replace(out[1], data=replace(out[1].data, prepare=scaled))]

    assert_same_or_refused(trials)


def test_inputs_of_bytes_beside_inputs_of_fractions_keep_their_scale():
    def trials():
        given = (Recipe(0, images=True, n=20, held=6), Recipe(1, images=True, n=20, held=6))
        out = [each.trial() for each in given]
        fractions = replace(out[1].data, inputs=out[1].data.inputs / 255)
        return [out[0], replace(out[1], data=fractions)]

    assert_same_or_refused(trials)


def assert_same_or_refused(make):
    """Stacked, trials must come to what they come to alone, or be refused as what cannot be stacked."""
    settings = replace(ADAM, steps=6, check_every=3)
    results = []
    for together in (None, 2):
        trials = make()
        loss = shels_loss(trials[0].network, settings)
        try:
            results.append((trials, fit_trials(trials, loss, settings, together=together)))
        except ShelsError:
            assert together == 2
            return
    assert_same(results[1], results[0])


@pytest.mark.parametrize("first", [0, 1])
def test_trials_of_which_only_some_have_a_state_are_not_stacked_unseen(first):
    given = [Recipe(0), Recipe(1, state=lambda *a: {"scale": torch.tensor(0.0)})]
    given = given if first == 0 else given[::-1]

    def loss(network, settings):
        plain = shels_loss(network, settings)
        return lambda params, batch, state: plain(params, batch, state) * state.get("scale", 1.0)

    try:
        stacked = train(given, replace(ADAM, steps=4), 2, loss=loss)
    except ShelsError:
        return
    assert_same(stacked, train(given, replace(ADAM, steps=4), None, loss=loss))


# Rest --------------------------------------------------------------------------------------------------


def plan(steps, samples, seed=0):
    draws = torch.Generator().manual_seed(seed)
    rows = torch.stack([torch.randperm(samples, generator=draws)[:8] for _ in range(steps)])
    return Plan(rows, [8] * steps, [1e-2] * steps, seed)


def stack_of(optimiser, given, after_step=None):
    trials, settings = [each.trial() for each in given], replace(ADAM, optimiser=optimiser)
    objective = Objective(shels_loss(trials[0].network, settings), settings, after_step)
    return Stack(trials, objective, torch.float32)


def train_on(stack, plans):
    """Take all steps of these plans, up to a validation."""
    stack.load(plans)
    stack.take(max(len(each.sizes) for each in plans if each is not None))
    stack.validate()


def everything(run):
    moments = {f"{kind}/{name}": v for kind, values in run.moments.items() for name, v in values.items()}
    return {name: value.detach().clone() for name, value in {**run.values, **moments}.items()}


def halved(params, state):
    return {name: value * 0.5 for name, value in params.items()}


OPTIMISERS = pytest.mark.parametrize("optimiser", [Adam(1e-2), Sgd(1e-2)], ids=["adam", "sgd"])


@OPTIMISERS
@pytest.mark.parametrize("after_step", [None, halved], ids=["plain", "halved"])
def test_a_trial_without_a_plan_does_not_change_to_the_bit(optimiser, after_step):
    stack = stack_of(optimiser, SEEDS, after_step)
    train_on(stack, [plan(3, 60), plan(2, 60), plan(3, 60)])
    before = [everything(run) for run in stack.states]
    train_on(stack, [plan(4, 60), None, plan(1, 60)])
    after = [everything(run) for run in stack.states]
    assert all(torch.equal(after[1][name], value) for name, value in before[1].items())
    for trial in (0, 2):
        assert not any(torch.equal(after[trial][name], value) for name, value in before[trial].items())
    assert [run.step for run in stack.states] == [7, 2, 4]


@OPTIMISERS
@pytest.mark.parametrize("after_step", [None, halved], ids=["plain", "halved"])
def test_a_trial_that_has_no_step_left_rests_to_the_bit_until_the_others_are_there(optimiser, after_step):
    long, short = (stack_of(optimiser, SEEDS[:2], after_step) for _ in range(2))
    train_on(long, [plan(2, 60), plan(9, 60, 1)])
    train_on(short, [plan(2, 60), plan(2, 60, 1)])
    mine, expected = everything(long.states[0]), everything(short.states[0])
    assert all(torch.equal(mine[name], value) for name, value in expected.items())
    assert [run.step for run in long.states] == [2, 9]


def test_running_averages_of_a_trial_that_rests_stay_to_the_bit():
    stack = stack_of(Adam(1e-2), [Recipe(seed, images=True, normalised=True) for seed in range(2)])
    train_on(stack, [plan(2, 60), plan(2, 60)])
    before = [everything(run) for run in stack.states]
    train_on(stack, [plan(3, 60), None])
    after = [everything(run) for run in stack.states]
    assert all(torch.equal(after[1][name], value) for name, value in before[1].items())
    assert not any(torch.equal(after[0][name], value) for name, value in before[0].items())
    assert "body.1.running_mean" in before[0]


def test_surplus_rows_of_a_padded_head_stay_zero():
    for optimiser in (Adam(1e-2), Sgd(1e-2)):
        stack = stack_of(optimiser, (Recipe(0, classes=2), Recipe(1, classes=4)))
        train_on(stack, [plan(5, 60), plan(5, 60)])
        assert stack.params["head.weight"].shape[:2] == (2, 4)
        assert not stack.params["head.weight"][0, 2:].any()
        assert stack.states[0].params["head.weight"].shape[0] == 2
        assert all(value.isfinite().all() for value in stack.params.values())


# Cut off -----------------------------------------------------------------------------------------------


class CutError(Exception):
    pass


def resumable(given, folder, together, settings, *, cut_at=None, after_step=None, every=0.0, then=int):
    """Train with a checkpoint each; cut it off where the watcher hears of the check at a step.

    then: what happens at each check of the first trial.
    """
    paths = [folder / f"{place}.safetensors" for place in range(len(given))]
    pairs = zip(given, paths, strict=True)
    trials = [each.trial(Checkpoint(path, every=every)) for each, path in pairs]
    heard = []

    def watch(now):
        heard.append(now)
        if now.check is not None and [one.step for one in heard if one.check].count(now.step) == 1:
            then()
        if cut_at is not None and now.check is not None and now.step == cut_at:
            raise CutError

    loss = shels_loss(trials[0].network, settings)
    made = None if after_step is None else after_step(trials[0].network)
    work = training(trials, loss, settings, together=together, after_step=made)
    return trials, finished(work, each=watch), heard


@pytest.mark.parametrize("settings", [ADAM, SGD], ids=["adam", "sgd"])
def test_a_stack_cut_off_goes_on_to_the_same_weights(tmp_path, settings):
    given = (Recipe(0, n=41), Recipe(1, classes=4), Recipe(2, held=None))
    expected = train(given, settings, 3)
    with pytest.raises(CutError):
        resumable(given, tmp_path, 3, settings, cut_at=30)
    trials, went, heard = resumable(given, tmp_path, 3, settings)
    assert [now.step for now in heard if now.resumed] == [30, 30, 30]  # all were written, then it was cut
    assert min(now.step for now in heard if not now.resumed) > 30
    assert_same((trials, went), expected, within=0)


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still; return how to move it."""
    now = [0.0]
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: now[0])

    def move(seconds):
        now[0] += seconds

    return move


def test_a_stack_that_is_seldom_written_goes_on_from_the_last_time_to_the_same_weights(tmp_path, clock):
    """What a step draws, for dropout and for images, is drawn again too."""
    settings = replace(ADAM, augmentation=Augmentation(crop=0.25, flip=0.5, rotation=10))
    given = tuple(Recipe(seed, n=41 + seed, images=True, normalised=True) for seed in range(3))
    expected = train(given, settings, 3)
    with pytest.raises(CutError):
        resumable(given, tmp_path, 3, settings, cut_at=40, every=60, then=lambda: clock(40))
    trials, went, heard = resumable(given, tmp_path, 3, settings, every=60)
    assert [now.step for now in heard if now.resumed] == [30, 30, 30]  # after 80 seconds, before 140
    assert_same((trials, went), expected, within=0)


def test_a_training_shorter_than_the_time_between_two_writes_leaves_no_file(tmp_path, clock):
    resumable((Recipe(0), Recipe(1)), tmp_path, 2, ADAM, every=60, then=lambda: clock(5))
    assert list(tmp_path.iterdir()) == []


def test_a_long_training_is_written_at_its_end_so_that_what_follows_may_be_cut_off(tmp_path, clock):
    given = Recipe(0), Recipe(1)
    resumable(given, tmp_path, 2, ADAM, every=60, then=lambda: clock(25))
    _, _, heard = resumable(given, tmp_path, 2, ADAM, every=60)
    assert [now.step for now in heard] == [50, 50]


def test_what_takes_long_to_write_is_written_less_often(clock):
    pace = checkpoints.Pace(60)
    clock(60)
    assert pace.due(last=False)
    with pace.writing():
        clock(20)
    clock(199)
    assert not pace.due(last=False)
    assert pace.due(last=True)
    clock(1)
    assert pace.due(last=False)


def test_trials_whose_checkpoints_stand_at_other_epochs_go_on_together(tmp_path):
    given = (Recipe(0, n=41), Recipe(1, n=23), Recipe(2, n=60))
    expected = train(given, EPOCHS, 3)
    for place, cut in ((0, 6), (1, 12)):  # after an epoch, after four; the third has no checkpoint
        folder = tmp_path / str(place)
        with pytest.raises(CutError):
            resumable(given[place : place + 1], folder, None, EPOCHS, cut_at=cut)
        (folder / "0.safetensors").rename(tmp_path / f"{place}.safetensors")
    trials, went, heard = resumable(given, tmp_path, 3, EPOCHS)
    assert [now.step for now in heard if now.resumed] == [6, 12]
    assert_same((trials, went), expected)


def test_a_trial_that_had_ended_keeps_its_weights_while_others_go_on(tmp_path):
    given = (Recipe(0, wrong=True), Recipe(1))
    settings = replace(ADAM, patience=2)
    expected = train(given, settings, 2)
    with pytest.raises(CutError):
        resumable(given, tmp_path, 2, settings, cut_at=40)
    trials, went, _ = resumable(given, tmp_path, 2, settings)
    assert went[0].stopped_early
    assert_same((trials, went), expected, within=0)


def test_a_stack_that_had_ended_is_not_trained_again(tmp_path):
    given = (Recipe(0), Recipe(1))
    trials, went, _ = resumable(given, tmp_path, 2, ADAM)
    again, went_again, heard = resumable(given, tmp_path, 2, ADAM)
    assert [(now.step, now.resumed) for now in heard] == [(50, True), (50, True)]
    assert_same((again, went_again), (trials, went), within=0)


def test_what_was_cut_off_in_a_stack_goes_on_alone_and_the_other_way_round(tmp_path):
    given = (Recipe(0, n=41), Recipe(1))
    expected = train(given, ADAM, None)
    for first, second in ((2, None), (None, 2)):
        folder = tmp_path / str(first)
        with pytest.raises(CutError):
            resumable(given, folder, first, ADAM, cut_at=20)
        trials, went, heard = resumable(given, folder, second, ADAM)
        assert any(now.resumed for now in heard)
        assert_same((trials, went), expected)


def test_batch_normalisation_cut_off_goes_on_to_the_same_averages(tmp_path):
    given = [Recipe(seed, 41, images=True, normalised=True) for seed in range(2)]
    settings = replace(EPOCHS, epochs=4)
    whole = train(given, settings, 2)
    with pytest.raises(CutError):
        resumable(given, tmp_path, 2, settings, cut_at=12)
    trials, went, heard = resumable(given, tmp_path, None, settings)
    assert any(now.resumed for now in heard)
    assert_same((trials, went), whole)


def test_convolutions_of_a_stack_cut_off_go_on_to_the_same_weights(tmp_path):
    given = (Recipe(0, images=True, n=20, held=6), Recipe(1, images=True, n=14, held=6, classes=2))
    settings = replace(ADAM, steps=9, check_every=3)
    expected = train(given, settings, 2)
    with pytest.raises(CutError):
        resumable(given, tmp_path, 2, settings, cut_at=6)
    trials, went, _ = resumable(given, tmp_path, 2, settings)
    assert_same((trials, went), expected, within=0)


# What goes wrong ---------------------------------------------------------------------------------------


def scaled(network, settings):
    plain = shels_loss(network, settings)
    return lambda params, batch, state: plain(params, batch, state) * state["scale"]


def scale(value):
    return lambda *given: {"scale": torch.tensor(value)}


@pytest.mark.parametrize("together", [None, 3])
def test_a_trial_whose_loss_is_not_finite_ends_with_advice_and_the_others_go_on(together):
    given = [Recipe(0, state=scale(1.0)), Recipe(1, state=scale(torch.nan)), Recipe(2, state=scale(1.0))]
    trials, went = train(given, ADAM, together, loss=scaled)
    assert isinstance(went[1].error, TrainingError)
    assert "the loss became nan by step 10; lower the learning rate (now 0.01)" in str(went[1].error)
    assert went[1].checks == ()
    start = given[1].network()
    assert all(
        torch.equal(a, b) for a, b in zip(trials[1].network.parameters(), start.parameters(), strict=True)
    )
    assert went[0].error is None
    expected = train((Recipe(0), Recipe(2)), ADAM, None)
    assert_same((trials[::2], went[::2]), expected)


def test_a_trial_that_diverges_on_its_way_keeps_the_best_weights_that_it_had():
    def after_step(params, state):  # the steps of the first trial count up to what is not finite
        bias = params["body.0.bias"]
        count = torch.where(state["wild"], bias * 2 + 1, bias)
        return {"body.0.bias": torch.where(count > 2.0**25, torch.inf, count)}

    given = [Recipe(0, state=lambda *a: {"wild": torch.tensor(True)})]
    given += [Recipe(1, state=lambda *a: {"wild": torch.tensor(False)})]
    results = [train(given, ADAM, each, after_step=lambda network: after_step) for each in (None, 2)]
    assert_same(results[1], results[0])
    for trials, went in results:
        assert went[0].error is not None
        assert [check.step for check in went[0].checks] == [10, 20]
        assert all(value.isfinite().all() for value in trials[0].network.parameters())
        assert went[1].error is None
        assert len(went[1].checks) == 5


def test_one_trial_whose_loss_is_not_finite_is_an_error():
    trial = Recipe(0, state=scale(torch.nan)).trial()
    with pytest.raises(TrainingError, match="lower the learning rate"):
        fit(trial.network, scaled(trial.network, ADAM), trial.data, ADAM, seed=0, state=trial.state)


def test_states_of_other_shapes_are_refused_by_name():
    given = [
        Recipe(0, state=lambda *a: {"mean": torch.zeros(2)}),
        Recipe(1, state=lambda *a: {"mean": torch.zeros(3)}),
    ]
    with pytest.raises(ShelsError, match="'mean'"):
        train(given, ADAM, 2)


def test_low_precision_is_refused_where_nothing_can_multiply_in_it():
    trial = Recipe(0).trial()
    with pytest.raises(ShelsError, match="needs a GPU"):
        fit_trials([trial], shels_loss(trial.network, ADAM), ADAM, precision="bfloat16")


def test_after_training_every_network_evaluates():
    for together in (None, 2):
        trials, _ = train((Recipe(0, dropout=0.5), Recipe(1, dropout=0.5, held=None)), ADAM, together)
        assert not any(module.training for trial in trials for module in trial.network.modules())


def test_training_a_stack_leaves_the_global_random_state_alone():
    trials = [Recipe(0, dropout=0.5).trial(), Recipe(1, dropout=0.5).trial()]
    loss = shels_loss(trials[0].network, ADAM)
    before = torch.get_rng_state()
    fit_trials(trials, loss, ADAM, together=2)
    assert torch.equal(torch.get_rng_state(), before)


def test_progress_is_every_check_of_every_trial_and_every_tenth_step():
    heard = []
    trials = [Recipe(0).trial(), Recipe(1).trial()]
    loss = shels_loss(trials[0].network, ADAM)
    went = finished(training(trials, loss, ADAM, together=2), each=heard.append)
    checks = [now.check for now in heard if now.check is not None]
    assert checks == [each.checks[place] for place in range(5) for each in went]
    assert [now.step for now in heard if now.check is None] == [10, 20, 30, 40, 50]


def both_ways():
    """Two trials that drop out, to be trained alone and stacked."""
    recipes = Recipe(0, dropout=0.5), Recipe(1, dropout=0.5)
    return [(together, [recipe.trial() for recipe in recipes]) for together in (None, 2)]


def work_on(trials, together):
    return training(trials, shels_loss(trials[0].network, ADAM), ADAM, together=together)


def test_what_a_consumer_draws_or_sets_between_two_reports_does_not_reach_the_training():
    for (together, mine), (_, plain) in zip(both_ways(), both_ways(), strict=True):
        finished(work_on(plain, together))
        finished(work_on(mine, together), each=lambda now: torch.manual_seed(now.step) and torch.rand(3))
        for trial, other in zip(mine, plain, strict=True):
            assert_equal(trial.network, other.network)


def assert_equal(one, other):
    for value, expected in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(value, expected)


def test_between_two_reports_everything_is_as_the_consumer_had_it():
    made = both_ways()
    before = torch.get_rng_state()
    for together, trials in made:
        for _ in work_on(trials, together):
            assert torch.equal(torch.get_rng_state(), before)
            assert torch.is_grad_enabled()
            assert trial_axis.precision() is None


def test_a_training_that_is_left_leaves_the_networks_as_they_were_and_in_evaluation():
    for together, trials in both_ways():
        work = work_on(trials, together)
        next(now for now in work if now.step == 20)
        work.close()
        for trial, recipe in zip(trials, (Recipe(0, dropout=0.5), Recipe(1, dropout=0.5)), strict=True):
            assert_equal(trial.network, recipe.network())
            assert not any(module.training for module in trial.network.modules())


def test_two_trainings_advance_in_turn_without_a_trace_of_each_other():
    (together, one), (_, other) = both_ways()[1], both_ways()[1]
    expected = both_ways()[1][1]
    finished(work_on(expected, together))
    for _ in zip(work_on(one, together), work_on(other, together), strict=True):
        pass
    for trials in (one, other):
        for trial, like in zip(trials, expected, strict=True):
            assert_equal(trial.network, like.network)


def test_an_unknown_precision_is_refused_with_those_there_are():
    trial = Recipe(0).trial()
    with pytest.raises(ShelsError, match=r"float16.*float32.*bfloat16"):
        fit_trials([trial], shels_loss(trial.network, ADAM), ADAM, precision="float16")


# The parts ---------------------------------------------------------------------------------------------


def test_samples_that_are_not_there_count_in_no_loss():
    draws = torch.Generator().manual_seed(0)
    scores, labels = torch.randn(5, 3, generator=draws), torch.tensor([0, 2, 1, 1, 0])
    padded, there = torch.cat([scores, torch.randn(3, 3)]), torch.cat([labels, torch.full((3,), PADDING)])
    assert float(cross_entropy(padded, there)) == pytest.approx(float(F.cross_entropy(scores, labels)))
    values = torch.tensor([1.0, 2.0, 6.0, torch.nan, torch.inf])
    assert float(average(values, torch.tensor([0, 1, 2, PADDING, PADDING]))) == 3.0


def test_parameters_of_a_stack_are_those_of_its_networks_filled_up_with_zeros():
    networks = [Recipe(0, images=True, classes=2).network(), Recipe(1, images=True, classes=5).network()]
    params = stacked_params(networks)
    assert params["head.weight"].shape == (2, 5, 128)
    for trial, network in enumerate(networks):
        for name, value in network.named_parameters():
            assert torch.equal(params[name][trial, : len(value)], value)
    assert not params["head.weight"][0, 2:].any()
    assert params["body.0.weight"][0].is_contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        params["body.0.weight"].zero_()
    assert networks[0].body[0].weight.any()


def test_an_operation_over_trials_serves_one_trial_under_vmap_with_its_gradient():
    draws = torch.Generator().manual_seed(0)
    x, w = (torch.randn(*s, generator=draws, dtype=torch.float64) for s in ((3, 5, 4), (3, 2, 4)))
    w.requires_grad_()

    def slices(rows, weights, shared, factor):
        assert rows.shape[0] == weights.shape[0] == shared.shape[0] == 3
        return factor * rows @ weights.mT + shared[:, None]

    operation, bias = trial_axis.over_trials(slices), torch.ones(2, dtype=torch.float64)
    got = torch.vmap(lambda rows, weights: operation(rows, weights, bias, 2.0))(x, w)
    expected = torch.stack([2.0 * x[i] @ w[i].T + bias for i in range(3)])
    torch.testing.assert_close(got, expected)
    (gradient,) = torch.autograd.grad(got.square().sum(), w)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected.square().sum(), w)[0])
    with pytest.raises(NotImplementedError, match=r"under torch\.vmap alone"):
        operation(x[0], w[0], bias, 2.0)


def test_a_linear_layer_over_trials_is_the_linear_layer_of_each():
    draws = torch.Generator().manual_seed(0)
    shapes = ((3, 5, 4), (3, 2, 4), (3, 2))
    given = [torch.randn(*s, generator=draws, dtype=torch.float64, requires_grad=True) for s in shapes]
    got, expected = (torch.vmap(layer)(*given) for layer in (trunk._linear, F.linear))
    torch.testing.assert_close(got, expected)
    weights = torch.randn(got.shape, generator=draws, dtype=torch.float64)
    for mine, other in zip(
        torch.autograd.grad((got * weights).sum(), given),
        torch.autograd.grad((expected * weights).sum(), given),
        strict=True,
    ):
        torch.testing.assert_close(mine, other)


def test_stacking_ends_where_it_began_also_after_an_error():
    before = torch.get_float32_matmul_precision()
    during = []

    def fail():
        with trial_axis.stacking(torch.bfloat16):
            during.append((trial_axis.precision(), torch.get_float32_matmul_precision()))
            raise CutError

    with pytest.raises(CutError):
        fail()
    assert during == [(torch.bfloat16, "high")]
    assert trial_axis.precision() is None
    assert torch.get_float32_matmul_precision() == before


def test_the_trunk_is_as_much_of_a_chain_as_the_kernels_know():
    chain = six_conv((3, 32, 32), (256,))
    found = trunk.leading(chain, (32, 40))
    assert len(found.convolutions) == 6
    assert found.pools == (False, True, False, True, False, True)
    assert found.layers == 15
    for sides, layers in (((32, 36), 14), ((28, 28), 14), ((14, 28), 9), ((15, 16), 4)):
        assert trunk.leading(chain, sides).layers == layers  # a pool of odd sides comes after it


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(16, 32, 3, padding=1, stride=2),
        nn.Conv2d(16, 32, 5, padding=2),
        nn.Conv2d(16, 32, 3, padding=2, dilation=2),
        nn.Conv2d(16, 32, 3),
        nn.Conv2d(16, 32, 3, padding="same"),
        nn.Conv2d(16, 32, 3, padding=1, bias=False),
        nn.Conv2d(16, 24, 3, padding=1),
        nn.Conv2d(16, 8, 3, padding=1),
    ],
    ids=str,
)
def test_the_trunk_ends_before_a_convolution_that_the_kernels_do_not_know(layer):
    first = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU()]
    found = trunk.leading(nn.Sequential(*first, layer, nn.ReLU(), nn.Flatten()), (8, 8))
    assert (len(found.convolutions), found.layers) == (1, 2)


@pytest.mark.parametrize(
    "pool", [nn.MaxPool2d(3), nn.MaxPool2d(2, 1), nn.MaxPool2d(2, ceil_mode=True), nn.AvgPool2d(2)], ids=str
)
def test_the_trunk_leaves_other_pools_to_torch(pool):
    chain = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), pool, nn.Flatten())
    assert trunk.leading(chain, (8, 8)).layers == 2
    assert trunk.leading(chain, (8, 8)).pools == (False,)
