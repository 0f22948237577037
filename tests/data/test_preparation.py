import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.preprocessing import StandardScaler

from shels.config import NetworkSettings
from shels.data.preparation import Preparation, prepare_for
from shels.errors import DataError


def noise(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def bytes_of(*shape, seed=0):
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


# Scale and frame ----------------------------------------------------------------------------------------


def test_bytes_are_brought_to_0_to_1():
    images = torch.tensor([[[[0, 51], [204, 255]]]], dtype=torch.uint8)
    prepared = Preparation((1, 2, 2))(images)
    assert prepared.dtype == torch.float32
    assert prepared.flatten().tolist() == pytest.approx([0.0, 0.2, 0.8, 1.0])


def test_floats_are_left_as_they_are_and_their_owner_keeps_them():
    images = noise(2, 3, 5, 7)
    before = images.clone()
    prepared = Preparation((3, 5, 7))(images)
    assert torch.equal(prepared, before)
    assert torch.equal(images, before)


def test_bytes_and_their_floats_are_prepared_alike():
    images = bytes_of(3, 1, 9, 9)
    preparation = Preparation((1, 6, 6))
    torch.testing.assert_close(preparation(images), preparation(images.float() / 255))


def test_a_frame_is_black_and_the_image_stands_in_its_middle():
    images = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]) / 4
    prepared = Preparation((1, 4, 6), "pad")(images)
    assert (4 * prepared[0, 0]).tolist() == [
        [0, 0, 0, 0, 0, 0],
        [0, 0, 1, 2, 0, 0],
        [0, 0, 3, 4, 0, 0],
        [0, 0, 0, 0, 0, 0],
    ]


def test_an_odd_rest_goes_to_the_right_and_below():
    prepared = Preparation((1, 4, 3), "pad")(torch.ones(1, 1, 1, 2))
    assert prepared[0, 0].tolist() == [[0, 0, 0], [1, 1, 0], [0, 0, 0], [0, 0, 0]]


def test_the_frame_of_imagenet_pixels_is_black_before_it_is_normalised():
    preparation = prepare_for(torch.ones(1, 3, 4, 4), NetworkSettings("vgg16", 8, "pad", "imagenet"))
    corner = preparation(torch.ones(1, 3, 4, 4))[0, :, 0, 0]
    assert corner.tolist() == pytest.approx([-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225])


@pytest.mark.parametrize("size", [(6, 6), (6, 12)])
def test_an_image_larger_than_the_frame_is_resized_whole(size):
    images = noise(1, 1, 12, 8)
    framed, resized = (Preparation((1, *size), how)(images) for how in ("pad", "resize"))
    assert torch.equal(framed, resized)
    assert framed.shape == (1, 1, *size)


# Resizing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(32, 32), (13, 40), (112, 112), (7, 7)])
def test_resizing_agrees_with_pil_in_float(size):
    image = noise(28, 35)
    expected = np.asarray(Image.fromarray(image.numpy()).resize(size[::-1], Image.Resampling.BILINEAR))
    prepared = Preparation((1, *size))(image[None, None])[0, 0]
    np.testing.assert_allclose(prepared.numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("size", [(32, 32), (112, 112), (10, 24)])
def test_resizing_of_colours_agrees_with_pil_to_the_rounding_of_a_byte(size):
    images = bytes_of(1, 3, 48, 30)
    picture = Image.fromarray(images[0].permute(1, 2, 0).numpy())
    expected = np.asarray(picture.resize(size[::-1], Image.Resampling.BILINEAR)) / 255
    prepared = Preparation((3, *size))(images)[0].permute(1, 2, 0)
    np.testing.assert_allclose(prepared.numpy(), expected, atol=1.5 / 255)


def test_resizing_stays_in_0_to_1_and_keeps_an_even_image_even():
    images = torch.cat([torch.zeros(1, 1, 9, 9), torch.ones(1, 1, 9, 9), (noise(1, 1, 9, 9) > 0.5).float()])
    prepared = Preparation((1, 23, 4))(images)
    assert prepared.min() >= 0
    assert prepared.max() <= 1
    torch.testing.assert_close(prepared[0], torch.zeros(1, 23, 4))
    torch.testing.assert_close(prepared[1], torch.ones(1, 23, 4))


@pytest.mark.parametrize("fit", ["resize", "pad"])
def test_a_batch_is_prepared_as_its_images_alone(fit):
    images = bytes_of(5, 3, 20, 24)
    preparation = prepare_for(images, NetworkSettings("vgg16", 28, fit, "imagenet"))
    alone = torch.cat([preparation(image[None]) for image in images])
    torch.testing.assert_close(preparation(images), alone)


def test_no_images_give_no_images_of_the_right_shape():
    assert Preparation((1, 8, 8))(torch.zeros(0, 1, 5, 5, dtype=torch.uint8)).shape == (0, 1, 8, 8)


# What is prepared for -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "size", "shape"),
    [
        ((1, 28, 28), None, (1, 28, 28)),
        ((1, 28, 28), 32, (1, 32, 32)),
        ((3, 64, 64), None, (3, 64, 64)),
        ((3, 65, 40), None, (3, 64, 40)),
        ((3, 100, 300), None, (3, 64, 64)),
        ((3, 100, 300), 112, (3, 112, 112)),
    ],
)
def test_images_keep_their_size_up_to_64_unless_one_is_asked_for(given, size, shape):
    preparation = prepare_for(torch.zeros(2, *given, dtype=torch.uint8), NetworkSettings(image_size=size))
    assert preparation.shape == shape
    assert preparation(torch.zeros(2, *given, dtype=torch.uint8)).shape == (2, *shape)


def test_later_images_of_another_size_are_brought_to_the_networks():
    preparation = prepare_for(bytes_of(2, 1, 28, 28), NetworkSettings())
    assert preparation(bytes_of(3, 1, 50, 20)).shape == (3, 1, 28, 28)


def test_imagenet_pixels_are_normalised_by_the_known_numbers():
    images = torch.full((1, 3, 4, 4), 255, dtype=torch.uint8)
    prepared = prepare_for(images, NetworkSettings(pixels="imagenet"))(images)
    expected = [(1 - 0.485) / 0.229, (1 - 0.456) / 0.224, (1 - 0.406) / 0.225]
    assert prepared[0, :, 2, 3].tolist() == pytest.approx(expected)


def test_imagenet_pixels_need_colours():
    with pytest.raises(DataError, match=r"ImageNet normalisation needs RGB images, got 1 channel"):
        prepare_for(torch.zeros(2, 1, 8, 8), NetworkSettings(pixels="imagenet"))


def test_vectors_are_standardised_worked_by_hand():
    vectors = torch.tensor([[1.0, 10.0], [3.0, 30.0]])
    preparation = prepare_for(vectors, NetworkSettings())
    assert preparation(vectors).tolist() == [[-1.0, -1.0], [1.0, 1.0]]
    assert preparation(torch.tensor([[5.0, 20.0]])).tolist() == [[3.0, 0.0]]


def test_vectors_are_standardised_as_scikit_learn_does():
    scale = torch.tensor([1.0, 1e-3, 50.0, 0.0, 1e4])
    vectors = (noise(200, 5) - 0.3) * scale + torch.tensor([0.0, 1.0, -20.0, 3.0, 1e3])
    later = (noise(50, 5, seed=1) - 0.3) * torch.tensor([1.0, 1e-3, 50.0, 1.0, 1e4])
    oracle = StandardScaler().fit(vectors.double().numpy())
    preparation = prepare_for(vectors, NetworkSettings())
    for x in (vectors, later):
        expected = oracle.transform(x.double().numpy())
        np.testing.assert_allclose(preparation(x).numpy(), expected, rtol=1e-3, atol=1e-3)


def test_the_values_of_an_embedding_are_centred_and_all_divided_by_one_number():
    vectors = noise(200, 128) * torch.linspace(0.1, 2.0, 128) + 3
    prepared = prepare_for(vectors, NetworkSettings())(vectors).double()
    assert prepared.mean(dim=0).abs().max() < 1e-5
    assert prepared.square().mean().sqrt().item() == pytest.approx(1)
    centred = vectors.double() - vectors.double().mean(dim=0)
    np.testing.assert_allclose(prepared / prepared.norm(), centred / centred.norm(), atol=1e-6)


@pytest.mark.parametrize(("values", "factor"), [(127, 1.0), (128, 1e3)])
def test_a_table_and_values_of_different_units_are_each_divided_by_their_own_spread(values, factor):
    vectors = noise(200, values) * torch.linspace(0.1, 2.0, values)
    vectors[:, -1] *= factor
    expected = StandardScaler().fit_transform(vectors.double().numpy())
    np.testing.assert_allclose(prepare_for(vectors, NetworkSettings())(vectors).numpy(), expected, atol=1e-3)


def test_a_constant_value_is_only_centred():
    preparation = prepare_for(torch.tensor([[4.0, 1.0], [4.0, 2.0]]), NetworkSettings())
    assert preparation(torch.tensor([[4.0, 1.0], [6.5, 2.0]])).tolist() == [[0.0, -1.0], [2.5, 1.0]]


def test_vectors_of_the_training_data_decide_not_those_of_the_batch():
    training = noise(100, 3)
    preparation = prepare_for(training, NetworkSettings())
    torch.testing.assert_close(preparation(training[:1]), preparation(training)[:1])


# Refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "inputs", "expected", "got"),
    [
        ((1, 28, 28), (2, 3, 28, 28), "grey images of 28x28 pixels", "RGB images of 28x28 pixels"),
        ((3, 8, 9), (2, 1, 8, 9), "RGB images of 8x9 pixels", "grey images of 8x9 pixels"),
        ((1, 28, 28), (2, 784), "grey images of 28x28 pixels", "vectors of 784 values"),
        ((30,), (2, 1, 5, 6), "vectors of 30 values", "grey images of 5x6 pixels"),
        ((30,), (2, 31), "vectors of 30 values", "vectors of 31 values"),
    ],
)
def test_inputs_of_another_kind_are_refused_with_both_kinds(shape, inputs, expected, got):
    preparation = Preparation(shape)
    for refuse in (preparation, preparation.check):
        with pytest.raises(DataError, match=f"the model was trained on {expected}, got .*{got}"):
            refuse(torch.zeros(inputs))


def test_wrong_colours_are_answered_with_what_to_do():
    with pytest.raises(DataError, match="convert them to grey"):
        Preparation((1, 8, 8)).check(torch.zeros(1, 3, 8, 8))


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((1, 28, 20), "grey images of 28x20 pixels"),
        ((3, 32, 32), "RGB images of 32x32 pixels"),
        ((4, 32, 32), "4-channel images of 32x32 pixels"),
        ((512,), "vectors of 512 values"),
    ],
)
def test_expected_inputs_are_told_in_words(shape, words):
    assert Preparation(shape).describe() == words


@pytest.mark.parametrize("value", [0.1, 123456.7])
def test_a_constant_column_is_only_centred_whatever_rounding_says(value):
    inputs = torch.full((777, 1), value)
    prepare = prepare_for(inputs, NetworkSettings())
    assert float(prepare.sd) == 1.0
    assert float(prepare(inputs[:1] + 1)) == pytest.approx(1.0, abs=0.02)
