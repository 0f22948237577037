"""Photos: a learner on a backbone, tuned or frozen, its features kept on disk, and what `auto` chooses."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

from shels.config import (
    Adam,
    Augmentation,
    Gaussian,
    NetworkSettings,
    Penalty,
    Settings,
    TrainingSettings,
    to_dict,
)
from shels.config.presets import DEFAULT, FROZEN, PHOTOS, VECTORS, with_backbone
from shels.data.samples import Samples
from shels.errors import ArchitectureError, MissingExtraError, ModelFileError, SettingsError
from shels.estimator import OpenWorldClassifier
from shels.learner import choosing, feature_cache
from shels.learner.choosing import chosen
from shels.learner.learner import Learner, learn
from shels.model.backbone_library import LITE0, is_installed

pytestmark = pytest.mark.filterwarnings("ignore:.*held-out scores cannot mark")


class Corners(nn.Module):
    """A stand-in for a pretrained network: the means of parts of an image, mixed."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Conv2d(3, 8, 1)
        self.norm = nn.BatchNorm2d(8)
        self.more = nn.Conv2d(8, 8, 1)
        self.passes = 0

    def forward(self, inputs):
        self.passes += len(inputs)
        maps = torch.relu(self.more(torch.relu(self.norm(self.mix(inputs)))))
        return nn.functional.adaptive_avg_pool2d(maps, 4).flatten(1)


def backbone() -> Corners:
    torch.manual_seed(0)
    return Corners()


def photos(classes: int = 3, each: int = 40, side: int = 16) -> Samples:
    """Images with a bright quarter in a colour; which, tells the class."""
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(classes).repeat_interleave(each)
    images = torch.randint(0, 60, (len(labels), 3, side, side), generator=draw).to(torch.uint8)
    half = side // 2
    for row, label in enumerate(labels.tolist()):
        top, left = (label % 4) // 2 * half, label % 2 * half
        images[row, label % 3, top : top + half, left : left + half] += 150
    return Samples(images, labels, tuple(f"class {c}" for c in range(classes)), origin="photos")


def settings(**network) -> Settings:
    training = TrainingSettings(
        optimiser=Adam(1e-2), steps=60, check_every=30, augmentation=Augmentation(translation=0.05)
    )
    return replace(
        PHOTOS, network=NetworkSettings(backbone="own", image_size=16, **network), training=training
    )


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(feature_cache.VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def known(samples: Samples, count: int = 3) -> Samples:
    return samples.only(samples.classes[:count])


@pytest.mark.parametrize("frozen", [False, True])
def test_a_learner_on_a_backbone_names_classes_and_takes_one_in(frozen):
    samples = photos(4)
    learner = learn(known(samples), settings(frozen=frozen), seed=0, device="cpu", backbone=backbone())
    right = learner.judge(known(samples).inputs).predicted == known(samples).labels
    assert right.float().mean() > 0.95
    new = samples.inputs[samples.labels == 3]
    grown = learner.accommodate(new[:20], "class 3")
    assert (grown.judge(new[20:]).predicted == 3).float().mean() > 0.9


@pytest.mark.parametrize("frozen", [False, True])
def test_a_learner_on_a_module_of_ones_own_is_saved_and_loaded_with_the_module(frozen, tmp_path):
    samples = known(photos())
    learner = learn(samples, settings(frozen=frozen), seed=0, device="cpu", backbone=backbone())
    learner.save(tmp_path / "m")
    again = Learner.load(tmp_path / "m", "cpu", backbone=Corners())
    assert torch.equal(again.judge(samples.inputs).score, learner.judge(samples.inputs).score)
    with pytest.raises(
        ModelFileError,
        match=r": the model stands on a module of one's own.*load\(directory, backbone=module\)",
    ):
        Learner.load(tmp_path / "m", "cpu")


def test_tuning_changes_the_last_weights_of_the_backbone_alone():
    learner = learn(known(photos()), settings(), seed=0, device="cpu", backbone=backbone())
    before, after = backbone().state_dict(), learner.network.backbone.module.state_dict()
    assert torch.equal(before["mix.weight"], after["mix.weight"])
    assert torch.equal(before["norm.running_mean"], after["norm.running_mean"])
    assert not torch.equal(before["more.weight"], after["more.weight"])


def test_a_frozen_backbone_stays_as_it_is_and_its_features_are_standardised():
    samples = known(photos())
    learner = learn(samples, settings(frozen=True), seed=0, device="cpu", backbone=backbone())
    after = learner.network.backbone.module.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in backbone().state_dict().items())
    shared = learner.views(samples.inputs).shared
    assert shared.shape == (len(samples), 128)


def counted(monkeypatch) -> list[int]:
    passes: list[int] = []
    forward = Corners.forward

    def counting(self, inputs):
        passes.append(len(inputs))
        return forward(self, inputs)

    monkeypatch.setattr(Corners, "forward", counting)
    return passes


def test_a_second_training_on_the_same_photos_makes_no_features_again(monkeypatch):
    samples, asked = known(photos()), settings(frozen=True)
    first = learn(samples, asked, seed=0, device="cpu", backbone=backbone())
    passes = counted(monkeypatch)
    second = learn(samples, asked, seed=0, device="cpu", backbone=backbone())
    assert sum(passes) == 1  # one image tells how many features there are
    monkeypatch.undo()
    assert torch.equal(first.judge(samples.inputs).score, second.judge(samples.inputs).score)


def test_more_photos_cost_features_of_these_alone(monkeypatch):
    samples, asked = known(photos(each=40)), settings(frozen=True)
    asked = replace(asked, training=replace(asked.training, augmentation=None))
    some = samples.take(torch.arange(len(samples)) % 40 < 30)
    learn(some, asked, seed=0, device="cpu", backbone=backbone())
    passes = counted(monkeypatch)
    learn(samples, asked, seed=0, device="cpu", backbone=backbone())
    assert sum(passes) == 1 + 30


def test_features_are_made_again_where_files_are_damaged_or_the_cache_is_off(cache, monkeypatch):
    samples, asked = known(photos()), settings(frozen=True)
    first = learn(samples, asked, seed=0, device="cpu", backbone=backbone())
    for path in cache.rglob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:50])
    second = learn(samples, asked, seed=0, device="cpu", backbone=backbone())
    monkeypatch.setenv(feature_cache.VARIABLE, "off")
    third = learn(samples, asked, seed=0, device="cpu", backbone=backbone())
    scores = [learner.judge(samples.inputs).score for learner in (first, second, third)]
    assert torch.equal(scores[0], scores[1])
    assert torch.equal(scores[0], scores[2])


def test_features_of_another_preparation_or_other_weights_are_not_taken_for_these(monkeypatch):
    samples, asked = known(photos()), settings(frozen=True)
    learn(samples, asked, seed=0, device="cpu", backbone=backbone())
    passes = counted(monkeypatch)
    smaller = replace(asked, network=replace(asked.network, image_size=8))
    learn(samples, smaller, seed=0, device="cpu", backbone=backbone())
    other = backbone()
    with torch.no_grad():
        other.more.bias += 1
    learn(samples, asked, seed=0, device="cpu", backbone=other)
    assert sum(passes) >= 2 * len(samples)


def test_features_made_before_an_interruption_are_kept(monkeypatch):
    samples, asked = known(photos()), settings(frozen=True)
    from shels.learner.learner import learning

    work = learning(samples, asked, seed=0, device="cpu", backbone=backbone())
    next(work), next(work)
    work.close()
    passes = counted(monkeypatch)
    learn(samples, asked, seed=0, device="cpu", backbone=backbone())
    assert sum(passes) == 1 + 4 * len(samples) - 64


def test_ways_that_train_the_whole_network_are_refused_on_a_backbone():
    asked = replace(settings(), accommodation=Penalty())
    with pytest.raises(ArchitectureError, match="gaussian, slda, fecam, ranpac"):
        learn(known(photos()), asked, seed=0, device="cpu", backbone=backbone())


def test_the_estimator_takes_a_module_of_ones_own(tmp_path):
    samples = photos(4)
    images = samples.inputs.permute(0, 2, 3, 1).numpy()
    labels = samples.labels.numpy()
    model = OpenWorldClassifier(
        backbone=backbone(), frozen=True, image_size=16, max_steps=60, random_state=0, device="cpu"
    )
    model.fit(images[labels < 3], labels[labels < 3])
    assert (clone(model).backbone.mix.weight == model.backbone.mix.weight).all()
    assert np.mean(model.predict(images[labels < 3]) == labels[labels < 3]) > 0.9
    model.save(tmp_path / "m")
    again = OpenWorldClassifier.load(tmp_path / "m", backbone=backbone(), device="cpu")
    assert (again.predict(images) == model.predict(images)).all()


@pytest.mark.parametrize(
    "choice", [{"backbone": 3}, {"backbone": "resnet"}, {"backbone": LITE0, "network": "small"}]
)
def test_the_estimator_refuses_what_is_no_backbone(choice):
    with pytest.raises(SettingsError, match="backbone"):
        OpenWorldClassifier(**choice).fit(np.zeros((4, 8, 8)), [0, 0, 1, 1])


def test_auto_takes_a_backbone_for_photos_and_says_so(monkeypatch):
    monkeypatch.setattr(choosing, "is_installed", lambda: True)
    small, large, of_a_size = chosen("default", 47), chosen("default", 48), chosen("default", None)
    assert small.settings.network.backbone is None
    assert "the paper's network" in small.words
    assert large.settings == with_backbone(LITE0) == PHOTOS
    assert "pretrained backbone efficientnet-lite0" in large.words
    assert "--frozen" in large.faster
    assert of_a_size.settings == DEFAULT
    assert chosen("default", None, vectors=True).settings == VECTORS
    assert (
        VECTORS.accommodation
        == PHOTOS.accommodation
        == FROZEN.accommodation
        == Gaussian(near=512, distance="sum", deviation="common", within="classes")
    )
    monkeypatch.setattr(choosing, "is_installed", lambda: False)
    without = chosen("default", 200)
    assert without.settings == small.settings
    assert "pip install 'shels[photos]'" in without.faster


def test_images_are_shown_changed_but_never_mirrored_and_vectors_as_they_are():
    for settings in (chosen("default", 28).settings, chosen("default", 28, architecture="auto").settings):
        assert settings.training.augmentation.rotation
        assert settings.training.augmentation.flip == 0
        assert replace(settings, training=replace(settings.training, augmentation=None)) == DEFAULT
    assert chosen("default", None, vectors=True).settings.training.augmentation is None


def test_cosines_of_small_images_are_scaled_by_the_number_of_classes(monkeypatch):
    monkeypatch.setattr(choosing, "is_installed", lambda: False)
    for choice in (partial(chosen, "default", 28), partial(chosen, "default", 112)):
        assert [choice(classes=n).settings.network.scale for n in (2, 5, 6, 43)] == [1, 1, 1.2, 3.4]
    for settings in (
        chosen("default", None, vectors=True, classes=43).settings,  # where it does not help
        chosen("paper", 28, classes=43).settings,
        chosen("best", 28, data="mnist", classes=10).settings,
    ):
        assert settings.network.scale == 1
    images = torch.rand(90, 8, 8)
    fitted = OpenWorldClassifier(max_steps=2, random_state=0).fit(images, torch.arange(90) % 9)
    assert fitted.learner_.settings.network.scale == 1.7  # ln 2 more


def test_what_was_asked_for_is_not_chosen(monkeypatch):
    monkeypatch.setattr(choosing, "is_installed", lambda: True)
    assert chosen("paper", 112).settings.network.backbone is None
    assert chosen("default", 112, architecture="six-conv-256").settings.network.backbone is None
    assert chosen("default", None, architecture="vectors").settings == DEFAULT
    with pytest.raises(SettingsError, match="give one of them"):
        chosen("default", 112, backbone=LITE0, architecture="small")
    with pytest.raises(SettingsError, match='presets "default" and "photos"'):
        chosen("paper", 112, backbone=LITE0)
    with pytest.raises((SettingsError, MissingExtraError)):
        chosen("default", 112, backbone="timm/resnet18")


def test_an_onnx_file_is_always_frozen(tmp_path):
    pytest.importorskip("onnxruntime")
    path = tmp_path / "model.onnx"
    path.touch()
    assert chosen("default", 100, backbone=str(path)).settings.network.frozen


def test_settings_without_a_backbone_are_stored_as_they_always_were():
    assert "backbone" not in to_dict(NetworkSettings())
    assert "frozen" not in to_dict(NetworkSettings())
    assert to_dict(FROZEN.network)["frozen"] is True
    with pytest.raises(SettingsError, match="without a backbone"):
        NetworkSettings(frozen=True)


@pytest.mark.skipif(not is_installed(), reason="shels[photos] is not installed")
def test_a_model_whose_package_is_not_there_says_what_to_install(tmp_path, monkeypatch):
    from shels.model import backbone_library

    asked = replace(settings(), network=NetworkSettings(backbone=LITE0, image_size=32))
    asked = replace(asked, training=replace(asked.training, steps=2, check_every=2))
    samples = photos(2, each=20)
    learner = learn(samples, asked, seed=0, device="cpu")
    learner.save(tmp_path / "m")
    again = Learner.load(tmp_path / "m", "cpu")
    assert torch.equal(again.judge(samples.inputs).score, learner.judge(samples.inputs).score)
    monkeypatch.setattr(backbone_library.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'shels\[photos\]'"):
        Learner.load(tmp_path / "m", "cpu")
