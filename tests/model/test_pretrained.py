import warnings

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from shels.config import NetworkSettings
from shels.errors import ModelFileError
from shels.model import architectures
from shels.model.architectures import ARCHITECTURES
from shels.model.networks import build, load_vgg16

# Where torchvision's vgg16 keeps its layers; the first number of each pair is the chain's own place.
FEATURES = [(i, f"features.{i}") for i in (0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28)]
CLASSIFIER = [(33, "classifier.0"), (36, "classifier.3")]
LAST = "classifier.6"  # ImageNet's thousand classes, of no use here


def own_parameters():
    """Return a VGG16's parameters by the chain's names, each a few numbers, all -1."""
    names = [f"{ours}.{kind}" for ours, _ in FEATURES + CLASSIFIER for kind in ("weight", "bias")]
    return {name: torch.full((2, 3) if "weight" in name else (2,), -1.0) for name in names}


def their_parameters(places=FEATURES + CLASSIFIER):
    """Return tensors under torchvision's names that all differ."""
    out = {}
    for ours, theirs in places:
        out[f"{theirs}.weight"] = torch.arange(6.0).reshape(2, 3) + 100 * ours
        out[f"{theirs}.bias"] = torch.arange(2.0) + 100 * ours + 50
    return out


def saved(tmp_path, tensors):
    path = tmp_path / "vgg16.safetensors"
    save_file(tensors, path)
    return path


def test_every_weight_goes_where_torchvision_has_it(tmp_path):
    own, theirs = own_parameters(), their_parameters()
    load_vgg16(
        own, saved(tmp_path, {**theirs, f"{LAST}.weight": torch.ones(5, 2), f"{LAST}.bias": torch.ones(5)})
    )
    for ours, place in FEATURES + CLASSIFIER:
        for kind in ("weight", "bias"):
            assert torch.equal(own[f"{ours}.{kind}"], theirs[f"{place}.{kind}"])


def test_our_vgg16_has_its_parameters_at_those_places():
    with torch.device("meta"):
        names = [name for name, _ in ARCHITECTURES["vgg16"]((3, 224, 224)).named_parameters()]
    assert names == list(own_parameters())


def test_a_file_without_classifier_leaves_those_layers_fresh_and_says_which(tmp_path):
    own, theirs = own_parameters(), their_parameters(FEATURES)
    with pytest.warns(UserWarning, match="start fresh") as caught:
        load_vgg16(own, saved(tmp_path, theirs))
    (warning,) = caught
    assert str(warning.message) == (
        "vgg16.safetensors has no classifier.0.weight, classifier.0.bias, "
        "classifier.3.weight, classifier.3.bias: these start fresh"
    )
    assert torch.equal(own["28.weight"], theirs["features.28.weight"])
    for name in ("33.weight", "33.bias", "36.weight", "36.bias"):
        assert torch.equal(own[name], torch.full_like(own[name], -1))


@pytest.mark.parametrize("missing", ["features.0.weight", "features.14.bias", "features.28.weight"])
def test_a_missing_convolution_is_an_error(tmp_path, missing):
    theirs = their_parameters()
    del theirs[missing]
    with pytest.raises(ModelFileError, match=f"vgg16.safetensors has no '{missing}': it is not a VGG16"):
        load_vgg16(own_parameters(), saved(tmp_path, theirs))


@pytest.mark.parametrize("name", ["features.5.weight", "classifier.3.weight"])
def test_a_weight_of_another_shape_is_an_error_with_both_shapes(tmp_path, name):
    theirs = {**their_parameters(), name: torch.zeros(2, 7)}
    with pytest.raises(ModelFileError, match=rf"{name} has shape \(2, 7\), expected \(2, 3\)"):
        load_vgg16(own_parameters(), saved(tmp_path, theirs))


def test_weights_of_half_precision_are_taken(tmp_path):
    own = own_parameters()
    load_vgg16(own, saved(tmp_path, {name: value.half() for name, value in their_parameters().items()}))
    assert own["0.bias"].dtype == torch.float32
    assert own["0.bias"].tolist() == [50.0, 51.0]


def test_a_pickled_file_is_refused(tmp_path):
    path = tmp_path / "vgg16.pth"
    torch.save(their_parameters(), path)
    with pytest.raises(ModelFileError, match=r"vgg16\.pth is damaged or not a safetensors file"):
        load_vgg16(own_parameters(), path)


def test_a_missing_file_is_called_missing(tmp_path):
    with pytest.raises(ModelFileError, match="does not exist"):
        load_vgg16(own_parameters(), tmp_path / "vgg16.safetensors")


# Through the builder, with a VGG16 of two channels ------------------------------------------------------


def thin_vgg16(shape):
    layers, channels = [], shape[0]
    for count in (2, 2, 3, 3, 3):
        for _ in range(count):
            layers += [nn.Conv2d(channels, 2, 3, padding=1), nn.ReLU()]
            channels = 2
        layers.append(nn.MaxPool2d(2))
    hidden = [nn.Linear(98, 4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.5)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(7), nn.Flatten(), *hidden)


def test_a_built_vgg16_has_the_files_weights_and_a_fresh_head(tmp_path, monkeypatch):
    monkeypatch.setitem(architectures.ARCHITECTURES, "vgg16", thin_vgg16)
    with pytest.warns(UserWarning, match="VGG16 starts from random weights"):
        fresh = build(NetworkSettings("vgg16"), (3, 32, 32), 3, seed=5)
    places = {str(ours): theirs for ours, theirs in FEATURES + CLASSIFIER}
    theirs = {}
    for name, value in fresh.body.named_parameters():
        place, kind = name.split(".")
        theirs[f"{places[place]}.{kind}"] = torch.full_like(value, float(place) + 1)
    path = saved(tmp_path, theirs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        network = build(NetworkSettings("vgg16", weights=str(path)), (3, 32, 32), 3, seed=5)
    for name, value in network.body.named_parameters():
        assert set(value.flatten().tolist()) == {float(name.split(".")[0]) + 1}
        assert value.requires_grad
    assert torch.equal(network.head.weight, fresh.head.weight)
