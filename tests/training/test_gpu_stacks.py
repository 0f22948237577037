"""Stacked trials on a GPU: the kernels against float64, and stacks against single trials; `make test-gpu`."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from shels.config import Adam, Augmentation, Cosine, NetworkSettings, Penalty, Proximal, Sgd, TrainingSettings
from shels.data.preparation import Preparation
from shels.data.sources import load_named
from shels.experiments import engine
from shels.experiments.catalogue import find_experiments
from shels.experiments.methods import find_methods
from shels.experiments.records import Records
from shels.kernels import trial_axis
from shels.learner.learner import learn
from shels.learning.protocol import prefixed
from shels.model import trunk
from shels.model.networks import build, from_chain
from shels.model.normalisation import counting, rectified
from shels.model.sparsity import group_sparsity, scaled_group_sparsity
from shels.training.data import Rows, TrialData, TrialTraining
from shels.training.features import views_of
from shels.training.loop import PRECISIONS, fit_trials
from shels.training.losses import cross_entropy, shels_loss, sparsity_state
from shels.training.optimisers import moments_of, stacked_step, table
from shels.training.stack import stacked_buffers, stacked_params

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]
SETTINGS = TrainingSettings(Adam(1e-3), batch_size=8, steps=50, check_every=25, alpha=1e-3)
SPARSITIES = [(0.0, "layer-wise"), (0.01, "layer-wise"), (0.01, "constant")]


def away(got, expected):
    """Return the distance of a result from what it should be, relative to the latter."""
    return float(((got.double() - expected).norm() / expected.norm()).detach())


def plain(x, weight, bias, pool):
    """Return ReLU of a convolution, pooled or not, by torch, trial by trial."""
    out = []
    for trial in range(len(x)):
        z = F.conv2d(
            x[trial].permute(0, 3, 1, 2), weight[trial].permute(0, 3, 1, 2), bias[trial], padding=1
        ).relu()
        out.append((F.max_pool2d(z, 2) if pool else z).permute(0, 2, 3, 1))
    return torch.stack(out)


@pytest.mark.parametrize(
    ("precision", "near"), [(torch.float32, 2e-3), (torch.bfloat16, 1e-2)], ids=["tf32", "bf16"]
)
@pytest.mark.parametrize(
    ("n", "side", "read", "written", "pool"),
    [
        (5, 20, 1, 32, False),
        (4, 16, 3, 32, True),
        (32, 32, 32, 32, True),
        (7, 14, 32, 64, False),
        (3, 14, 64, 64, True),
        (9, 8, 64, 128, False),
        (32, 8, 128, 128, True),
        (32, 56, 32, 64, True),  # maps so large that sums over pixels are cut into many parts
        (8, 112, 3, 32, False),
        (4, 14, 256, 512, True),
    ],
)
def test_a_convolution_and_its_gradients_are_those_of_float64(precision, near, n, side, read, written, pool):
    from shels.kernels import convolution

    torch.manual_seed(n)
    x = torch.randn(3, n, side, side, read, device="cuda").relu().to(precision)
    weight = (torch.randn(3, written, 3, 3, read, device="cuda") * 0.1).to(precision)
    bias = torch.randn(3, written, device="cuda") * 0.1
    exact = [value.double().requires_grad_() for value in (x, weight, bias)]
    expected = plain(*exact, pool)
    out, won = convolution.forward(x, weight, bias, pool=pool)
    assert away(out, expected) < near
    gradient = torch.randn_like(out)
    down, to_bias = convolution.spread(gradient, out, won)
    same = down.double()  # what reaches the convolution, so that a tie broken otherwise plays no role
    z = torch.stack([
        F.conv2d(exact[0][t].permute(0, 3, 1, 2), exact[1][t].permute(0, 3, 1, 2), exact[2][t], padding=1)
        .permute(0, 2, 3, 1)
        for t in range(3)
    ])  # fmt: skip
    to_x, to_weight, to_bias_expected = torch.autograd.grad(z, exact, same)
    assert away(to_bias, to_bias_expected) < 1e-3
    assert away(convolution.backward_weights(down, x), to_weight) < near
    if read >= 16:
        got, below = convolution.backward_input(down, weight, x, won.new_empty(0))
        assert away(got, to_x * (x > 0)) < near
        assert away(convolution.backward_first(down, weight, x), to_x) < near
        assert away(below, (to_x * (x > 0)).sum(dim=(1, 2, 3))) < 5 * near
        winners = torch.randint(0, 5, x.shape, device="cuda", dtype=torch.uint8)
        got, below = convolution.backward_input(down, weight, x, winners)
        laid = torch.zeros(3, n, side, 2, side, 2, read, device="cuda", dtype=torch.float64)
        for quarter in range(4):
            laid[:, :, :, quarter // 2, :, quarter % 2] = torch.where(winners == quarter, to_x, 0.0)
        assert away(got, laid.reshape(got.shape)) < near
        assert away(below, laid.sum(dim=(1, 2, 3, 4, 5))) < 5 * near


def test_a_convolution_s_gradient_is_the_same_again_and_again():
    from shels.kernels import convolution

    for precision in (torch.float32, torch.bfloat16):
        for read, written in ((32, 32), (32, 64), (64, 64), (64, 128), (128, 128)):
            x = torch.randn(10, 32, 16, 16, read, device="cuda").to(precision)
            gradient = torch.randn(10, 32, 16, 16, written, device="cuda").to(precision)
            first = convolution.backward_weights(gradient, x)
            assert all(torch.equal(first, convolution.backward_weights(gradient, x)) for _ in range(20))


@pytest.mark.parametrize("classes", [5, 43])
def test_cosines_cross_entropy_and_sparsity_are_those_of_float64(classes):
    network = build(NetworkSettings("six-conv-256"), (1, 32, 32), classes, 0).cuda()
    features = torch.randn(3, 37, 256, device="cuda").relu()
    features[0, 0] = 0
    labels = torch.randint(0, classes, (3, 37), device="cuda")
    labels[1, 30:] = -100
    weights = [torch.randn(3, classes, 256, device="cuda"), torch.randn(3, 64, 32, 3, 3, device="cuda")]
    weights[1] = weights[1].permute(0, 1, 3, 4, 2).contiguous().permute(0, 1, 4, 2, 3)

    def loss(features, labels, weights):
        scores = torch.func.functional_call(network.head, {"weight": weights[0]}, (features,))
        return cross_entropy(scores, labels) + 0.3 * group_sparsity(weights, [1.0, 0.25])

    values = [value.requires_grad_() for value in (features, *weights)]
    with trial_axis.stacking(torch.float32):
        got = torch.vmap(loss)(values[0], labels, values[1:])
    grads = torch.autograd.grad((got * torch.tensor([1.0, 2.0, 3.0], device="cuda")).sum(), values)
    exact = [value.detach().double().requires_grad_() for value in values]
    expected = torch.stack([loss(exact[0][t], labels[t], [w[t] for w in exact[1:]]) for t in range(3)])
    wanted = torch.autograd.grad((expected * torch.tensor([1.0, 2.0, 3.0], device="cuda")).sum(), exact)
    assert away(got, expected) < 1e-5
    assert all(away(a, b) < 1e-4 for a, b in zip(grads, wanted, strict=True))


@pytest.mark.parametrize("optimiser", [Adam(0.1), Sgd(0.1, momentum=0.9, weight_decay=0.01)], ids=str)
def test_a_kernel_moves_parameters_as_the_formula_does_and_leaves_a_resting_trial_alone(optimiser):
    shapes = {"conv": (3, 8, 4, 3, 3), "linear": (3, 700, 9)}
    start = {name: torch.randn(shape, device="cuda") for name, shape in shapes.items()}
    start["conv"] = start["conv"].permute(0, 1, 3, 4, 2).contiguous().permute(0, 1, 4, 2, 3)
    results = []
    for kernels in (True, False):
        params = {name: value.clone() for name, value in start.items()}
        moments = moments_of(optimiser, params)
        draws = torch.Generator("cuda").manual_seed(1)
        for taken in range(4):
            grads = [torch.randn(value.shape, device="cuda", generator=draws) for value in params.values()]
            rows = [table(optimiser, taken, [0.1, 0.05][: 1 + trial % 2], 2)[trial % 2] for trial in range(3)]
            now = torch.stack([*rows[:2], torch.zeros(2)]).to("cuda", torch.float32)
            with trial_axis.stacking(torch.float32) if kernels else nullcontext():
                stacked_step(optimiser, params, grads, moments, now)
        results.append(params)
    for name, value in results[0].items():
        assert torch.allclose(value, results[1][name], rtol=0, atol=1e-5), name
        assert torch.equal(value[2], start[name][2])
        assert not torch.allclose(value[0], start[name][0], atol=1e-2)


def trials(count, dtype=torch.float32, architecture="six-conv-256", side=16, channels=1):
    """Return trials on shared inputs that differ in samples, classes and seeds."""
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randint(0, 256, (300, channels, side, side), generator=draw, dtype=torch.uint8)
    out = []
    for seed in range(count):
        classes, n = 3 + seed % 3, 90 + 7 * seed
        network = build(NetworkSettings(architecture), (channels, side, side), classes, seed)
        places = torch.randperm(300, generator=draw)
        labels = torch.randint(0, classes, (300,), generator=draw)
        rows = Rows(places[:n], labels[:n]), Rows(places[n : n + 40 + seed], labels[n : n + 40 + seed])
        data = TrialData(inputs, *rows, Preparation((channels, side, side)))
        out.append(TrialTraining(network.to("cuda", dtype), data, seed))
    return out


def trained(made, settings=SETTINGS, **options):
    fit_trials(made, shels_loss(made[0].network, settings), settings, **options)
    return [{name: value.detach() for name, value in trial.network.named_parameters()} for trial in made]


@pytest.mark.parametrize("optimiser", [Adam(1e-3), Sgd(1e-2)])
def test_alone_and_stacked_agree_in_float64_to_1e_9(optimiser):
    settings = replace(SETTINGS, optimiser=optimiser)
    alone = trained(trials(3, torch.float64), settings, together=1)
    stacked = trained(trials(3, torch.float64), settings, together=3)
    for one, other in zip(alone, stacked, strict=True):
        assert max(float((one[name] - other[name]).abs().max()) for name in one) < 1e-9


def test_a_stack_of_several_sparsities_agrees_with_each_alone_in_float64():
    plans = [replace(SETTINGS, alpha=a, depth_weights=kind) for a, kind in SPARSITIES]
    pairs = zip(trials(3, torch.float64), plans, strict=True)
    alone = [trained([each], plan, together=1)[0] for each, plan in pairs]
    pairs = zip(trials(3, torch.float64), plans, strict=True)
    own = [replace(each, state=sparsity_state(each.network, plan)) for each, plan in pairs]
    for one, other in zip(alone, trained(own, together=3), strict=True):
        assert max(float((one[name] - other[name]).abs().max()) for name in one) < 1e-9


def test_sparsities_of_a_trial_s_own_have_the_gradients_of_float64():
    torch.manual_seed(0)
    weights = [torch.randn(5, 64, 32, 3, 3, device="cuda"), torch.randn(5, 10, 64, device="cuda")]
    weights[0] = weights[0].permute(0, 1, 3, 4, 2).contiguous().permute(0, 1, 4, 2, 3)
    weights = [value.requires_grad_() for value in weights]
    factors, share = torch.rand(5, 2, device="cuda"), torch.arange(1.0, 6.0, device="cuda")

    def one(first, second, factor):
        return scaled_group_sparsity([first, second], factor)

    with trial_axis.stacking(torch.float32):
        got = torch.vmap(one)(*weights, factors)
    grads = torch.autograd.grad((share * got).sum(), weights)
    exact = [value.detach().double().requires_grad_() for value in weights]
    expected = torch.stack([one(*(w[t] for w in exact), factors[t].double()) for t in range(5)])
    wanted = torch.autograd.grad((share * expected).sum(), exact)
    assert away(got, expected) < 1e-5
    for mine, theirs in zip(grads, wanted, strict=True):
        assert max(away(mine[t], theirs[t]) for t in range(5)) < 1e-5


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_stack_trains_the_same_again(precision):
    first, again = (trained(trials(4), precision=precision) for _ in range(2))
    for one, other in zip(first, again, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(("precision", "near"), [("float32", 0.01), ("bfloat16", 0.02)])
def test_a_stack_descends_as_trials_on_the_cpu_do(precision, near):
    made = trials(4)
    on_cpu = [replace(trial, network=trial.network.cpu()) for trial in trials(4)]
    loss = shels_loss(made[0].network, SETTINGS)
    stacked = fit_trials(made, loss, SETTINGS, precision=precision)
    plain = fit_trials(on_cpu, loss, SETTINGS)
    for one, other in zip(stacked, plain, strict=True):
        for mine, theirs in zip(one.checks, other.checks, strict=True):
            assert mine.training_loss == pytest.approx(theirs.training_loss, rel=near)
            assert mine.validation_loss == pytest.approx(theirs.validation_loss, rel=near)


def test_colour_images_of_odd_sides_and_vectors_train_in_stacks():
    for side, channels, architecture in ((16, 3, "six-conv-256"), (20, 3, "small"), (9, 1, "small")):
        for params in trained(trials(2, architecture=architecture, side=side, channels=channels)):
            assert all(torch.isfinite(value).all() for value in params.values())


def test_a_chain_of_one_s_own_with_dropout_and_average_pooling_trains_on_a_gpu():
    convolution = nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Dropout(0.5)
    chain = nn.Sequential(*convolution, nn.Flatten(), nn.Linear(8 * 49, 24), nn.ReLU())
    made = [
        replace(trial, network=from_chain(chain, (1, 16, 16), "cosine", 5, 0).cuda()) for trial in trials(2)
    ]
    first = trained(made, together=2)
    assert not torch.equal(first[0]["head.weight"], first[1]["head.weight"])


@pytest.mark.parametrize(("precision", "near"), [("float32", 8e-3), ("bfloat16", 2e-2)])
def test_convolutions_after_dropout_have_the_gradients_of_float64(precision, near):
    torch.manual_seed(0)
    made = trials(3, architecture="six-conv-512-dropout", side=32, channels=3)
    networks = [trial.network.eval() for trial in made]  # nothing is dropped, and the layers stay apart
    params = stacked_params([network.body for network in networks])
    inputs = torch.rand(3, 6, 3, 32, 32, device="cuda")

    def one(values, batch):
        return torch.func.functional_call(Body(networks[0].body), prefixed("body.", values), (batch,))

    with trial_axis.stacking(PRECISIONS[precision]):
        got = torch.vmap(one)(params, inputs)
    grads = torch.autograd.grad(got.square().sum(), list(params.values()))
    for trial, network in enumerate(networks):
        exact = network.body.double()
        out = exact(inputs[trial].double())
        wanted = torch.autograd.grad(out.square().sum(), list(exact.parameters()))
        assert away(got[trial], out) < near
        assert all(away(a[trial], b) < 5 * near for a, b in zip(grads, wanted, strict=True))


@pytest.mark.parametrize(("precision", "near"), [(torch.float32, 2e-3), (torch.bfloat16, 1e-2)])
def test_a_convolution_without_relu_is_that_of_float64(precision, near):
    from shels.kernels import convolution

    torch.manual_seed(0)
    for read, written in ((1, 64), (3, 64), (64, 128), (128, 128)):
        x = torch.randn(3, 5, 16, 16, read, device="cuda").to(precision)
        weight = (torch.randn(3, written, 3, 3, read, device="cuda") * 0.1).to(precision)
        out, won = convolution.forward(
            x, weight, torch.zeros(3, written, device="cuda"), pool=False, relu=False
        )
        maps, kernels = x.double().permute(0, 1, 4, 2, 3), weight.double().permute(0, 1, 4, 2, 3)
        expected = torch.stack([F.conv2d(*each, padding=1) for each in zip(maps, kernels, strict=True)])
        assert not won.numel()
        assert out.min() < 0
        assert away(out.permute(0, 1, 4, 2, 3), expected) < near


@pytest.mark.parametrize(
    ("precision", "near"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)], ids=["float32", "bf16"]
)
@pytest.mark.parametrize("pool", [True, False])
@pytest.mark.parametrize(("n", "side", "channels"), [(5, 8, 16), (64, 14, 32), (32, 32, 64), (3, 6, 128)])
def test_normalisation_with_relu_and_pooling_is_that_of_float64(precision, near, pool, n, side, channels):
    torch.manual_seed(n)
    x = torch.randn(3, n, side, side, channels, device="cuda").to(precision).permute(0, 1, 4, 2, 3)
    there = torch.rand(3, n, device="cuda") < 0.8
    weight, bias = (torch.randn(3, channels, device="cuda") for _ in range(2))
    averages = torch.zeros(3, channels, device="cuda"), torch.ones(3, channels, device="cuda")
    values = [value.requires_grad_() for value in (x, weight, bias)]
    exact = [value.detach().double().requires_grad_() for value in values]
    got = torch.vmap(lambda x, t, w, b, *a: rectified(x, t, w, b, *a, 0.1, 1e-5, pool))(
        x, there, weight, bias, *averages
    )
    wanted = torch.zeros(got.shape, device="cuda", dtype=torch.float64)
    for trial in range(3):
        maps = F.batch_norm(exact[0][trial][there[trial]], None, None, *(v[trial] for v in exact[1:]), True)
        wanted[trial][there[trial]] = F.max_pool2d(maps.relu(), 2) if pool else maps.relu()
    assert away(got, wanted) < near
    gradient = torch.randn_like(got)
    grads = torch.autograd.grad(got, values, gradient)
    exact_grads = torch.autograd.grad(wanted, exact, gradient.double())
    assert all(away(a, b) < 5 * near for a, b in zip(grads, exact_grads, strict=True))
    again = torch.autograd.grad(
        torch.vmap(lambda x, t, w, b, *a: rectified(x, t, w, b, *a, 0.1, 1e-5, pool))(
            x, there, weight, bias, *averages
        ),
        values,
        gradient,
    )
    assert all(torch.equal(a, b) for a, b in zip(grads, again, strict=True))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("architecture", ["six-conv-256-bn", "vgg32"])
def test_normalised_convolutions_are_as_near_to_float64_as_torchs_own(architecture, precision):
    made = trials(3, architecture=architecture, side=32, channels=3)
    networks = [trial.network.train() for trial in made]
    params = stacked_params([network.body for network in networks])
    buffers = stacked_buffers([network.body for network in networks])
    inputs, there = (
        torch.rand(3, 16, 3, 32, 32, device="cuda"),
        torch.ones(3, 16, dtype=torch.bool, device="cuda"),
    )
    there[1, 9:] = False

    def one(values, batch, present):
        with counting(present):
            return torch.func.functional_call(Body(networks[0].body), prefixed("body.", values), (batch,))

    with trial_axis.stacking(PRECISIONS[precision]):
        got = torch.vmap(one)(params | buffers, inputs, there)
        grads = torch.autograd.grad((got.square() * there[..., None]).sum(), list(params.values()))
    for trial, network in enumerate(networks):
        batch = inputs[trial][there[trial]]
        coarse = values_and_gradients(network.body, batch, PRECISIONS[precision])
        exact = values_and_gradients(network.body.double(), batch.double())
        mine = [got[trial][there[trial]], *(grad[trial] for grad in grads)]
        # Triton cuts operands off to TF32 where cuDNN rounds them: twice the error of a product.
        factor = 3 if precision == "float32" else 2
        for value, theirs, wanted in zip(mine, coarse, exact, strict=True):
            assert away(value, wanted) < factor * away(theirs, wanted) + 1e-3
        near = 5e-3 if precision == "float32" else 0.05
        assert all(away(buffers[name][trial], value) < near for name, value in network.body.named_buffers())


def values_and_gradients(body, inputs, precision=None):
    """What torch makes of inputs, with TF32 or in bfloat16 if asked for, and gradients of its square."""
    kept = [value.clone() for value in body.buffers()]
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = precision is not None
    with torch.autocast("cuda", torch.bfloat16, enabled=precision == torch.bfloat16):
        out = nn.Sequential(*body)(inputs).to(inputs.dtype)
    grads = torch.autograd.grad(out.square().sum(), list(body.parameters()))
    torch.backends.cudnn.allow_tf32 = before
    if precision is not None:
        for value, old in zip(body.buffers(), kept, strict=True):
            value.copy_(old)
    return [out.detach(), *grads]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_normalised_and_augmented_stacks_train_the_same_again(precision):
    augmentation = Augmentation(0.125, "reflect", 0.5, 0.1, 0.1, 5, 0.05, 0.05, 0.25)
    settings = replace(SETTINGS, augmentation=augmentation, optimiser=Adam(1e-3, Cosine(0.1), 0.01))
    results = []
    for _ in range(2):
        made = trials(3, architecture="vgg32", side=32, channels=3)
        went = fit_trials(made, shels_loss(made[0].network, settings), settings, precision=precision)
        assert all(each.error is None for each in went)
        results.append([trial.network.state_dict() for trial in made])
    for one, other in zip(*results, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(("precision", "near"), [("float32", 1e-2), ("bfloat16", 0.05)])
def test_features_of_normalised_networks_are_those_of_the_cpu(precision, near):
    made = trials(2, architecture="vgg32", side=32, channels=3)
    fit_trials(made, shels_loss(made[0].network, SETTINGS), SETTINGS, precision=precision)
    inputs, places = torch.rand(20, 3, 32, 32, device="cuda"), [torch.arange(20), torch.arange(13)]
    networks, prepare = [trial.network for trial in made], Preparation((3, 32, 32))
    views = views_of(networks, inputs, places, prepare, precision=PRECISIONS[precision], shared=True)
    for network, mine, rows in zip(networks, views, places, strict=True):
        expected = network.cpu().double().views(inputs[rows.cuda()].cpu().double())
        assert away(mine.high.cpu(), expected.high) < near
        assert away(mine.shared.cpu(), expected.shared) < near


class Body(nn.Module):
    """A chain as a network runs it, convolutions by the kernels."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, inputs):
        return trunk.run(list(self.body), inputs)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_networks_with_dropout_between_convolutions_learn_in_stacks(precision):
    made = trials(3, architecture="six-conv-512-dropout", side=32, channels=3)
    went = fit_trials(made, shels_loss(made[0].network, SETTINGS), SETTINGS, precision=precision)
    for each in went:
        assert each.error is None
        assert each.checks[-1].training_loss < each.checks[0].training_loss


@pytest.mark.parametrize("method", [Penalty(epochs=2), Proximal(steps=40, grow=8)])
def test_accommodation_by_training_works_on_a_gpu(digits, short_settings, method):
    learner = learn(digits[0], replace(short_settings, accommodation=method), seed=0, device="cuda")
    new = digits[2].take(digits[2].labels == 0)
    grown = learner.accommodate(new.inputs, "new")
    assert grown.classes[-1] == "new"
    assert torch.isfinite(grown.network.head.weight).all()


def test_an_experiment_of_stacked_trials_gives_the_figures_of_the_cpu(tmp_path):
    experiment, methods = find_experiments(["within/digits"])[0], find_methods(["shels", "shels-gaussian"])
    made = [trial for method in methods for trial in experiment.trials(method, 3)]
    mean = {}
    for device in ("cpu", "cuda"):
        records = Records(tmp_path / device)
        kinds = [
            now.kind for now in engine.run(made, records, lambda name, _: load_named(name), device=device)
        ]
        assert kinds.count("finished") == 6
        mean[device] = sum(result.metrics["auroc"] for result in records.results()) / 6
    assert mean["cuda"] == pytest.approx(mean["cpu"], abs=0.03)


def test_a_stack_of_an_experiment_cut_off_goes_on_to_the_same_records(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "_EVERY", 0.0)
    experiment = find_experiments(["within/digits"])[0]
    made = experiment.trials(find_methods(["shels"])[0], 2, epochs=3)

    def run(name):
        return engine.run(made, Records(tmp_path / name), lambda name, _: load_named(name), device="cuda")

    assert [now.kind for now in run("whole")].count("finished") == 2
    cut, kept = run("cut"), tmp_path / "cut" / "unfinished"
    next(now for now in cut if now.kind == "training" and len(list(kept.glob("*.safetensors"))) == 2)
    cut.close()
    again = list(run("cut"))
    assert next(now.share for now in again if now.kind == "training") >= 1 / 3
    assert not list(kept.iterdir())
    whole, resumed = (Records(tmp_path / name) for name in ("whole", "cut"))
    for trial in made:
        mine, theirs = resumed.find(trial), whole.find(trial)
        assert mine.metrics == theirs.metrics
        assert mine.details["checks"] == theirs.details["checks"]
