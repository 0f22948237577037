import math

import pytest
import torch
from torch import nn

from shels.config import NetworkSettings
from shels.errors import ArchitectureError, SettingsError
from shels.model.architectures import ARCHITECTURES, automatic
from shels.model.chains import Shared, describe, rebuild
from shels.model.head import CosineHead, LinearHead
from shels.model.networks import attach_head, build, from_chain
from shels.model.normalisation import BatchNorm2d


def on_paper(name, shape):
    """Return an architecture without memory for its weights."""
    with torch.device("meta"):
        return ARCHITECTURES[name](shape)


def walk(body, shape):
    """Return (kind of layer, shape it gives) for each layer but ReLU and Dropout."""
    out, seen = torch.zeros(1, *shape, device="meta"), []
    for layer in body.eval():
        out = layer(out)
        if not isinstance(layer, nn.ReLU | nn.Dropout):
            seen.append((type(layer).__name__, tuple(out.shape[1:])))
    return seen


def convolutions_at(size):
    """Return the appendix's table of convolutions at an input size, with the shape after each layer."""
    half, quarter, eighth = size // 2, size // 4, size // 8
    return [
        ("Conv2d", (32, size, size)),
        ("Conv2d", (32, size, size)),
        ("MaxPool2d", (32, half, half)),
        ("Conv2d", (64, half, half)),
        ("Conv2d", (64, half, half)),
        ("MaxPool2d", (64, quarter, quarter)),
        ("Conv2d", (128, quarter, quarter)),
        ("Conv2d", (128, quarter, quarter)),
        ("MaxPool2d", (128, eighth, eighth)),
    ]


# name, input at the size of the appendix, what follows the convolutions
SIX_CONV = [
    ("six-conv-256", (1, 32, 32), [("Flatten", (2048,)), ("Linear", (256,))]),  # MNIST, FMNIST
    ("six-conv-1024-512", (3, 32, 32), [("Flatten", (2048,)), ("Linear", (1024,)), ("Linear", (512,))]),
    ("six-conv-2048-512", (3, 112, 112), [("Flatten", (25088,)), ("Linear", (2048,)), ("Linear", (512,))]),
    ("six-conv-512", (3, 32, 32), [("Flatten", (2048,)), ("Linear", (512,))]),  # the authors' for CIFAR10
    ("six-conv-512-dropout", (3, 32, 32), [("Flatten", (2048,)), ("Linear", (512,))]),
    ("six-conv-256", (1, 28, 28), [("Flatten", (1152,)), ("Linear", (256,))]),  # the authors' for MNIST
]


@pytest.mark.parametrize(("name", "shape", "end"), SIX_CONV)
def test_six_convolutions_give_the_shapes_of_the_appendix(name, shape, end):
    assert walk(on_paper(name, shape), shape) == convolutions_at(shape[1]) + end


def test_dropout_follows_the_first_two_poolings_and_no_other():
    body = list(on_paper("six-conv-512-dropout", (3, 32, 32)))
    places = [place for place, layer in enumerate(body) if isinstance(layer, nn.Dropout)]
    pools = [place for place, layer in enumerate(body) if isinstance(layer, nn.MaxPool2d)]
    assert places == [pools[0] + 1, pools[1] + 1]
    assert [body[place].p for place in places] == [0.25, 0.25]


@pytest.mark.parametrize(("name", "shape", "end"), SIX_CONV)
def test_six_convolutions_have_the_channels_kernels_strides_and_padding_of_the_appendix(name, shape, end):
    body = on_paper(name, shape)
    convolutions = [layer for layer in body if isinstance(layer, nn.Conv2d)]
    channels = [(layer.in_channels, layer.out_channels) for layer in convolutions]
    assert channels == [(shape[0], 32), (32, 32), (32, 64), (64, 64), (64, 128), (128, 128)]
    for layer in convolutions:
        assert (layer.kernel_size, layer.stride, layer.padding) == ((3, 3), (1, 1), (1, 1))
    for layer in body:
        if isinstance(layer, nn.MaxPool2d):
            assert (layer.kernel_size, layer.stride, layer.padding) == (2, 2, 0)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_layer_with_weights_is_followed_by_a_relu(name):
    body = on_paper(name, (64,) if name == "vectors" else (3, 32, 32))
    layers = [layer for layer in body if not isinstance(layer, BatchNorm2d)]
    for layer, following in zip(layers, [*layers[1:], None], strict=True):
        if isinstance(layer, nn.Conv2d | nn.Linear):
            assert isinstance(following, nn.ReLU)


def test_vgg16_gives_the_shapes_of_vgg16():
    expected, side = [], 224
    for channels, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        expected += [("Conv2d", (channels, side, side))] * depth
        side //= 2
        expected.append(("MaxPool2d", (channels, side, side)))
    expected += [("AdaptiveAvgPool2d", (512, 7, 7)), ("Flatten", (25088,))]
    expected += [("Linear", (4096,))] * 2
    assert walk(on_paper("vgg16", (3, 224, 224)), (3, 224, 224)) == expected


def test_vgg16_has_the_parameters_of_vgg16_without_its_last_layer():
    body = on_paper("vgg16", (3, 224, 224))
    assert sum(value.numel() for value in body.parameters()) == 138_357_544 - 4_097_000
    assert [layer.p for layer in body if isinstance(layer, nn.Dropout)] == [0.5, 0.5]


def test_small_and_vectors_give_shapes_worked_by_hand():
    assert walk(on_paper("small", (1, 8, 8)), (1, 8, 8)) == [
        ("Conv2d", (32, 8, 8)),
        ("Conv2d", (32, 8, 8)),
        ("MaxPool2d", (32, 4, 4)),
        ("Conv2d", (64, 4, 4)),
        ("MaxPool2d", (64, 2, 2)),
        ("Flatten", (256,)),
        ("Linear", (128,)),
    ]
    assert walk(on_paper("vectors", (30,)), (30,)) == [("Linear", (256,)), ("Linear", (128,))]


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 17, 40), (1, 9, 30)])
def test_sides_that_two_does_not_divide_are_rounded_down(shape):
    flattened = dict(walk(on_paper("six-conv-256", shape), shape))["Flatten"]
    assert flattened == (128 * (shape[1] // 8) * (shape[2] // 8),)


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        ((7,), "vectors"),
        ((1, 8, 8), "small"),
        ((3, 15, 64), "small"),
        ((3, 16, 16), "six-conv-256"),
        ((1, 64, 64), "six-conv-256"),
    ],
)
def test_automatic_chooses_by_the_inputs(shape, name):
    assert automatic(shape) == name


# Building -----------------------------------------------------------------------------------------------

SMALL = NetworkSettings("small")


def weights_of(network):
    return {name: value.detach() for name, value in network.named_parameters()}


def test_a_built_network_gives_features_none_negative_and_cosines():
    network = build(NetworkSettings(), (1, 8, 8), 5, seed=0).eval()
    inputs = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    features, scores = network.features(inputs), network(inputs)
    assert features.shape == (6, 128)
    assert (features >= 0).all()
    assert (features > 0).any()
    assert scores.shape == (6, 5)
    torch.testing.assert_close(scores, network.head(features))
    assert (scores.abs() <= 1 + 1e-6).all()


def test_weights_lie_in_xaviers_bounds_and_fill_them_and_biases_are_zero():
    network = build(SMALL, (1, 8, 8), 10, seed=0)
    fans = {  # incoming plus outgoing connections of a unit
        "body.0.weight": 9 * 1 + 9 * 32,
        "body.2.weight": 9 * 32 + 9 * 32,
        "body.5.weight": 9 * 32 + 9 * 64,
        "body.9.weight": 256 + 128,
        "head.weight": 128 + 10,
    }
    seen = weights_of(network)
    for name, fan in fans.items():
        bound, value = math.sqrt(6 / fan), seen.pop(name)
        assert value.abs().max() <= bound
        assert value.max() > 0.97 * bound
        assert value.min() < -0.97 * bound
        assert value.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)
    assert sorted(seen) == ["body.0.bias", "body.2.bias", "body.5.bias", "body.9.bias"]
    for bias in seen.values():
        assert torch.equal(bias, torch.zeros_like(bias))


def test_the_linear_head_starts_with_a_bias_of_zero():
    network = build(NetworkSettings("vectors", head="linear"), (4,), 3, seed=0)
    assert isinstance(network.head, LinearHead)
    assert torch.equal(network.head.bias, torch.zeros(3))
    assert isinstance(build(NetworkSettings("vectors"), (4,), 3, seed=0).head, CosineHead)


def test_the_same_seed_gives_the_same_weights_and_another_seed_others():
    first, second = (weights_of(build(SMALL, (1, 8, 8), 4, seed=3)) for _ in range(2))
    other = weights_of(build(SMALL, (1, 8, 8), 4, seed=4))
    for name, value in first.items():
        assert torch.equal(value, second[name])
        if value.ndim > 1:
            assert not torch.equal(value, other[name])


def test_building_draws_nothing_from_the_global_generator_and_follows_nothing_from_it():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = weights_of(build(SMALL, (1, 8, 8), 4, seed=3))
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(1)
    second = weights_of(build(SMALL, (1, 8, 8), 4, seed=3))
    assert all(torch.equal(value, second[name]) for name, value in first.items())


def test_the_number_of_classes_does_not_change_the_body():
    few, many = (weights_of(build(SMALL, (1, 8, 8), classes, seed=0)) for classes in (2, 9))
    assert few.pop("head.weight").shape == (2, 128)
    assert many.pop("head.weight").shape == (9, 128)
    assert all(torch.equal(value, many[name]) for name, value in few.items())


@pytest.mark.parametrize("head", ["cosine", "linear"])
def test_weights_are_named_in_order_of_depth_with_the_head_last_and_no_bias(head):
    network = build(NetworkSettings("small", head=head), (1, 8, 8), 4, seed=0)
    assert network.weight_names() == [
        "body.0.weight",
        "body.2.weight",
        "body.5.weight",
        "body.9.weight",
        "head.weight",
    ]


def test_weights_of_a_long_chain_are_named_by_depth_not_by_the_alphabet():
    layers = [layer for _ in range(6) for layer in (nn.Linear(4, 4), nn.ReLU())]
    network = from_chain(nn.Sequential(*layers), (4,), "cosine", 2, seed=0)
    assert network.weight_names() == [*(f"body.{i}.weight" for i in (0, 2, 4, 6, 8, 10)), "head.weight"]


def test_attaching_a_head_keeps_the_body():
    body = nn.Sequential(nn.Linear(4, 6), nn.ReLU())
    network = attach_head(body, (4,), "cosine", 3, seed=0)
    assert network.body is body
    assert network.head.weight.shape == (3, 6)


# Refusals -----------------------------------------------------------------------------------------------


def test_an_unknown_architecture_is_answered_with_the_nearest():
    with pytest.raises(SettingsError, match="unknown architecture 'vgg-16'; did you mean 'vgg16'"):
        build(NetworkSettings("vgg-16"), (3, 32, 32), 2, seed=0)


def test_pretrained_weights_for_another_architecture_are_refused():
    with pytest.raises(SettingsError, match="fit the architecture \"vgg16\", not 'small'"):
        build(NetworkSettings("small", weights="vgg16.safetensors"), (1, 8, 8), 2, seed=0)


@pytest.mark.parametrize(
    ("name", "shape", "least"),
    [("six-conv-256", (1, 7, 32), 8), ("small", (1, 32, 3), 4), ("vgg16", (3, 31, 31), 32)],
)
def test_images_too_small_are_refused_with_the_least_size(name, shape, least):
    message = f"needs images of {least} pixels or more a side, got {shape[1]}x{shape[2]}; set image_size"
    with pytest.raises(ArchitectureError, match=message):
        build(NetworkSettings(name), shape, 2, seed=0)


@pytest.mark.parametrize("name", ["six-conv-256", "small", "vgg16"])
def test_a_convolutional_network_refuses_vectors(name):
    with pytest.raises(ArchitectureError, match=r"needs images, got inputs of shape \(64,\)"):
        build(NetworkSettings(name), (64,), 2, seed=0)


def test_the_network_for_vectors_refuses_images():
    with pytest.raises(ArchitectureError, match=r'"vectors" needs vectors .* shape \(1, 8, 8\)'):
        build(NetworkSettings("vectors"), (1, 8, 8), 2, seed=0)


def test_an_embedding_is_itself_what_classes_share_and_a_table_is_not():
    embedding = build(NetworkSettings("vectors"), (128,), classes=3, seed=0)
    inputs = torch.randn(5, 128)
    assert torch.equal(embedding.views(inputs).shared, inputs)
    assert torch.equal(embedding.views(inputs).high, embedding.features(inputs))
    table = build(NetworkSettings("vectors"), (127,), classes=3, seed=0)
    assert torch.equal(table.views(inputs[:, 1:]).shared, table.body[:2](inputs[:, 1:]))


def test_a_mark_in_a_chain_says_what_classes_share_and_is_kept_in_its_description():
    layers = [nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU()]
    after = [nn.Linear(6, 5), nn.ReLU()]
    chain = nn.Sequential(*layers, Shared(), *after)
    assert describe(rebuild(describe(chain))) == describe(chain)
    marked = from_chain(chain, (4,), "cosine", 3, seed=0)
    plain = from_chain(nn.Sequential(*layers, *after), (4,), "cosine", 3, seed=0)
    inputs = torch.randn(7, 4)
    assert torch.equal(marked.features(inputs), plain.features(inputs))
    assert torch.equal(marked.views(inputs).shared, plain.body[:4](inputs))
    assert torch.equal(plain.views(inputs).shared, plain.body[:2](inputs))
    assert marked.general_depth == plain.general_depth == 2
