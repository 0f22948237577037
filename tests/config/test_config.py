import json
import math
from dataclasses import FrozenInstanceError, replace
from itertools import pairwise

import numpy as np
import pytest

from shels import config
from shels.config import (
    KINDS,
    AcceptShare,
    Adam,
    Augmentation,
    Cosine,
    Gaussian,
    Gdumb,
    Joint,
    MeanMinusSd,
    NetworkSettings,
    Penalty,
    Settings,
    Sgd,
    TrainingSettings,
    WarmRestarts,
    from_dict,
    overridden,
    to_dict,
)
from shels.config.checks import Checked
from shels.config.presets import PAPER, ordinary
from shels.errors import SettingsError


def training(**settings):
    return TrainingSettings(**{"steps": 10, **settings})


REFUSED = [
    (NetworkSettings, {"image_size": 3}, "image_size must be a whole number, 4 or more, got 3"),
    (NetworkSettings, {"image_size": 32.0}, "image_size must be a whole number, 4 or more, got 32.0"),
    (NetworkSettings, {"image_size": True}, "image_size must be a whole number, 4 or more, got True"),
    (NetworkSettings, {"image_fit": "crop"}, 'image_fit must be "resize" or "pad", got \'crop\''),
    (NetworkSettings, {"pixels": "raw"}, 'pixels must be "unit" or "imagenet", got \'raw\''),
    (NetworkSettings, {"head": "cos"}, 'head must be "cosine" or "linear" or "scaled-cosine", got \'cos\''),
    (Adam, {"learning_rate": 0}, "learning_rate must be a number over 0, got 0"),
    (Adam, {"learning_rate": math.nan}, "learning_rate must be a number over 0, got nan"),
    (Adam, {"learning_rate": "1e-3"}, "learning_rate must be a number over 0, got '1e-3'"),
    (Adam, {"learning_rate": True}, "learning_rate must be a number over 0, got True"),
    (Sgd, {"learning_rate": -1e-3}, "learning_rate must be a number over 0, got -0.001"),
    (Sgd, {"momentum": 1.5}, "momentum must be a number, 0 or more and at most 1, got 1.5"),
    (Sgd, {"weight_decay": -1}, "weight_decay must be a number, 0 or more, got -1"),
    (Sgd, {"decay": 0.5}, "decay must be a number, 1 or more, got 0.5"),
    (Sgd, {"decay_epochs": 0}, "decay_epochs must be a whole number, 1 or more, got 0"),
    (training, {"batch_size": 0}, "batch_size must be a whole number, 1 or more, got 0"),
    (training, {"steps": 0}, "steps must be a whole number, 1 or more, got 0"),
    (training, {"steps": None, "epochs": 2.5}, "epochs must be a whole number, 1 or more, got 2.5"),
    (training, {"patience": 0}, "patience must be a whole number, 1 or more, got 0"),
    (training, {"check_every": 0}, "check_every must be a whole number, 1 or more, got 0"),
    (training, {"alpha": -1}, "alpha must be a number, 0 or more, got -1"),
    (training, {"alpha": math.inf}, "alpha must be a number, 0 or more, got inf"),
    (
        training,
        {"depth_weights": "linear"},
        'depth_weights must be "layer-wise" or "late" or "constant", got \'linear\'',
    ),
    (training, {"validation_share": 0}, "validation_share must be a number over 0 and at most 0.9, got 0"),
    (
        training,
        {"validation_share": 0.91},
        "validation_share must be a number over 0 and at most 0.9, got 0.91",
    ),
    (MeanMinusSd, {"k": -0.1}, "k must be a number, 0 or more, got -0.1"),
    (AcceptShare, {"share": 0}, "share must be a number over 0 and at most 1, got 0"),
    (AcceptShare, {"share": 1.0}, "share must be under 1 (at 1 nothing is ever novel), got 1.0"),
    (Gaussian, {"features": 0}, "features must be a whole number, 1 or more, got 0"),
    (Gaussian, {"features": 2049}, "features must be at most 2048, got 2049"),
    (Penalty, {"beta": -1}, "beta must be a number, 0 or more, got -1"),
    (Penalty, {"importance": "max"}, 'importance must be "mean" or "map-norm", got \'max\''),
    (Gdumb, {"size": 1}, "size must be a whole number, 2 or more, got 1"),
    (Gdumb, {"lowest_rate": 0.06}, "lowest_rate must be a number, 0 or more and at most 0.05, got 0.06"),
    (WarmRestarts, {"lowest_rate": 1}, "lowest_rate must be a number, 0 or more and at most 0.05, got 1.0"),
    (
        training,
        {"optimiser": "adam"},
        "optimiser must be Adam(...), Sgd(...) or WarmRestarts(...), got 'adam'",
    ),
]


@pytest.mark.parametrize(("make", "settings", "message"), REFUSED)
def test_a_value_outside_its_rule_is_refused_by_name_rule_and_value(make, settings, message):
    with pytest.raises(SettingsError) as caught:
        make(**settings)
    assert str(caught.value) == message


def test_a_field_without_a_rule_is_refused_when_its_class_is_first_used():
    class Forgotten(Checked):
        width: int = 3

    with pytest.raises(TypeError, match=r"Forgotten\.width has no rule"):
        Forgotten()


@pytest.mark.parametrize("choice", KINDS)
def test_every_kind_of_a_choice_has_a_name_of_its_own_and_defaults_that_keep_its_rules(choice):
    assert all(each().kind == name for name, each in KINDS[choice].items())


def test_every_kind_of_a_choice_is_exported():
    kinds = {each.__name__ for table in KINDS.values() for each in table.values()}
    assert kinds <= set(config.__all__)
    assert all(hasattr(config, name) for name in config.__all__)


def test_settings_that_are_given_replace_those_of_a_preset_and_others_stay():
    made = overridden(SETTINGS[1], {"head": "linear"}, {"epochs": 2, "learning_rate": 0.5, "alpha": None})
    assert made.network == NetworkSettings(head="linear")
    assert made.training == TrainingSettings(Adam(0.5), epochs=2, patience=4)
    assert made.rule == SETTINGS[1].rule


@pytest.mark.parametrize("length", [{"epochs": 2}, {"steps": 2000}])
def test_a_length_that_is_given_holds_however_few_samples_there_are(length):
    by_root = Settings(NetworkSettings(), TrainingSettings(steps=500, steps_by_root=10.0), AcceptShare())
    assert overridden(by_root, {}, {"alpha": 0.5}).training.steps_by_root == 10.0
    assert overridden(by_root, {}, length).training == TrainingSettings(**length)


@pytest.mark.parametrize("given", [{}, {"epochs": 3, "steps": 100}])
def test_a_length_is_given_in_epochs_or_in_steps_never_both_or_neither(given):
    with pytest.raises(SettingsError, match="give either epochs or steps"):
        TrainingSettings(**given)


@pytest.mark.parametrize(
    ("make", "edge"),
    [
        (NetworkSettings, {"image_size": 4}),
        (Sgd, {"momentum": 0, "weight_decay": 0, "decay": 1, "decay_epochs": 1}),
        (Sgd, {"momentum": 1}),
        (training, {"alpha": 0, "validation_share": 0.9, "batch_size": 1, "patience": 1, "check_every": 1}),
        (MeanMinusSd, {"k": 0}),
        (AcceptShare, {"share": 0.999}),
    ],
)
def test_the_edge_of_a_rule_is_inside_it(make, edge):
    made = make(**edge)
    assert {name: getattr(made, name) for name in edge} == edge


def test_settings_cannot_be_changed_after_their_check():
    settings = SETTINGS[0]
    with pytest.raises(FrozenInstanceError):
        settings.training.alpha = -1
    with pytest.raises(FrozenInstanceError):
        settings.rule = MeanMinusSd()


def test_sgd_halves_its_rate_after_every_four_epochs():
    rates = [Sgd(learning_rate=0.001, decay=2, decay_epochs=4).rate(epoch) for epoch in range(12)]
    assert rates == [0.001] * 4 + [0.0005] * 4 + [0.00025] * 4


def test_a_cosine_rises_in_a_line_and_falls_to_its_lowest():
    schedule = Cosine(warm_up=0.2, lowest=0.1)
    rates = [schedule.factor(place, 10) for place in range(11)]
    assert rates[:3] == pytest.approx([1 / 3, 2 / 3, 1.0])
    assert rates[6] == pytest.approx(0.1 + 0.9 / 2)  # half of the way down
    assert rates[10] == pytest.approx(0.1)
    assert all(one > two for one, two in pairwise(rates[2:]))
    assert [Cosine(warm_up=1.0).factor(place, 2) for place in (0, 1)] == pytest.approx([1 / 3, 2 / 3])


@pytest.mark.parametrize("head", ["linear", "scaled-cosine"])
def test_only_cosines_have_a_scale(head):
    with pytest.raises(SettingsError, match="scale must be 1 with head"):
        NetworkSettings(head=head, scale=4.0)
    assert ordinary(replace(PAPER["mnist"], network=NetworkSettings(scale=4.0))).network.scale == 1.0


def test_settings_without_what_came_later_are_plain_data_as_ever():
    data = to_dict(PAPER["svhn"])
    assert sorted(data["network"]) == ["architecture", "head", "image_fit", "image_size", "pixels", "weights"]
    assert data["training"]["optimiser"] == {"kind": "adam", "learning_rate": 1e-4}
    assert "augmentation" not in data["training"]
    assert "schedule" not in to_dict(PAPER["cifar10-across"])["training"]["optimiser"]


def test_adam_keeps_its_rate():
    assert {Adam(0.02).rate(epoch) for epoch in (0, 1, 100)} == {0.02}


SETTINGS = [
    Settings(
        NetworkSettings("vgg16", 224, "pad", "imagenet", "linear", "weights.safetensors"),
        TrainingSettings(Sgd(0.1, 0.5, 0.25, 4.0, 7), 16, epochs=3, alpha=0.5, depth_weights="constant"),
        MeanMinusSd(2.5),
    ),
    Settings(NetworkSettings(), TrainingSettings(Adam(0.3), steps=5, patience=4), AcceptShare(0.5)),
    Settings(
        NetworkSettings(scale=16.0),
        TrainingSettings(
            Adam(0.3, Cosine(0.1, 0.01, "epoch"), decoupled_decay=0.05),
            epochs=5,
            augmentation=Augmentation(crop=0.125, border="reflect", flip=0.5, zoom=0.1),
        ),
        AcceptShare(0.5),
    ),
    Settings(
        NetworkSettings(scale=None), TrainingSettings(Sgd(schedule=Cosine()), steps=5), AcceptShare(0.5)
    ),
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_settings_survive_json(settings):
    again = from_dict(json.loads(json.dumps(to_dict(settings))))
    assert again == settings
    assert type(again.rule) is type(settings.rule)
    assert type(again.training.optimiser) is type(settings.training.optimiser)


def test_settings_as_plain_data_name_each_choice_by_its_kind():
    data = to_dict(Settings(NetworkSettings(), TrainingSettings(Sgd(), epochs=1), MeanMinusSd(2.0)))
    assert data["rule"] == {"kind": "mean-minus-sd", "k": 2.0}
    assert data["training"]["optimiser"] == {
        "kind": "sgd",
        "learning_rate": 1e-3,
        "momentum": 0.9,
        "weight_decay": 5e-4,
        "decay": 2.0,
        "decay_epochs": 4,
    }
    assert data["network"]["architecture"] == "auto"


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("trainings",), {}, "unknown setting 'trainings'; did you mean 'training'?"),
        (("network", "image_sise"), 32, "unknown setting 'image_sise'; did you mean 'image_size'?"),
        (("rule",), {"kind": "accept", "share": 0.9}, "unknown rule 'accept'; did you mean 'accept-share'?"),
        (("rule",), {"kind": "accept-share", "k": 1.0}, "unknown setting 'k'"),
        (("rule",), {"kind": "accept-share"}, "AcceptShare lacks share"),
        (("rule",), {"kind": []}, 'rule must be a table with a "kind"'),
        (("training", "optimiser"), {"kind": "rmsprop"}, "unknown optimiser 'rmsprop'"),
        (("training", "optimiser"), "adam", 'optimiser must be a table with a "kind"'),
        (("training", "alpha"), -1, "alpha must be a number, 0 or more, got -1"),
        (("training",), 4, "TrainingSettings must be a table of settings, got 4"),
    ],
)
def test_plain_data_that_is_no_settings_is_refused(place, value, message):
    data = to_dict(SETTINGS[0])
    table = data
    for name in place[:-1]:
        table = table[name]
    table[place[-1]] = value
    with pytest.raises(SettingsError) as caught:
        from_dict(data)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("part", ["network", "training", "rule"])
def test_plain_data_that_lacks_a_part_is_refused_not_filled_in(part):
    data = to_dict(SETTINGS[0])
    del data[part]
    with pytest.raises(SettingsError, match=f"Settings lacks {part}"):
        from_dict(data)


def test_numbers_as_numpy_has_them_are_kept_as_plain_ones():
    settings = TrainingSettings(Adam(np.float32(0.5)), steps=np.int64(7))
    assert type(settings.steps) is int
    assert type(settings.optimiser.learning_rate) is float
    assert (settings.steps, settings.optimiser.learning_rate) == (7, 0.5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: TrainingSettings("adam", steps=4),
        lambda: Settings(NetworkSettings(), TrainingSettings(steps=4), 0.9),
        lambda: Settings("auto", TrainingSettings(steps=4), MeanMinusSd()),
        lambda: NetworkSettings(architecture=3),
        lambda: TrainingSettings(steps=1, alpha=10**400),
    ],
)
def test_a_part_of_the_wrong_kind_is_refused(make):
    with pytest.raises(SettingsError, match="must be"):
        make()


def test_settings_that_came_later_are_left_out_of_plain_data_unless_chosen():
    settings = replace(PAPER["mnist"], accommodation=Joint())
    assert to_dict(settings)["accommodation"] == {"kind": "joint"}
    assert "zeroed" not in to_dict(PAPER["mnist"])["accommodation"]
    assert from_dict(to_dict(settings)) == settings
    for way in (Joint(trains="at the last class"), Penalty(zeroed="never"), Penalty(zeroed="once"), Joint()):
        chosen = replace(settings, accommodation=way)
        assert from_dict(json.loads(json.dumps(to_dict(chosen)))) == chosen
