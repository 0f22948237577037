import json
from dataclasses import replace

import pytest

from shels.config import from_dict, to_dict
from shels.config.presets import DEFAULT, PAPER
from shels.errors import DataError, SettingsError
from shels.experiments.trials import MEASURES, Trial, TrialResult

TRIAL = Trial("within/fmnist", "shels", 3, "fmnist", "fmnist", (6, 9, 3), (5, 7), PAPER["fmnist"])
RESULT = TrialResult(
    TRIAL,
    dict.fromkeys(MEASURES, 0.5),
    12.5,
    "cpu",
    {"shels": "0.1", "torch": "2.6", "python": "3.11"},
    {"exclusivity": [[0.0, 1.0], [1.0, 0.0]], "stacked": 10},
)


def through_json(value):
    return json.loads(json.dumps(value))


def changed(value):
    """Return another value of the same kind that the settings accept."""
    choices = {"pad": "resize", "resize": "pad", "unit": "imagenet", "imagenet": "unit", "cosine": "linear"}
    choices |= {"layer-wise": "constant", "mean": "map-norm", "six-conv-256": "vgg16", None: 7}
    return choices[value] if value in choices else value * 2 or 1


def leaves(data, path=()):
    """Give the path to every single setting."""
    for name, value in data.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, name))
        elif name not in ("kind", "epochs", "steps", "weights"):
            yield (*path, name)


def with_leaf(data, path):
    first, *rest = path
    return data | {first: with_leaf(data[first], rest) if rest else changed(data[first])}


SETTINGS = to_dict(PAPER["fmnist"])


def test_a_trial_comes_back_from_its_identity_through_json():
    again = Trial.from_identity(through_json(TRIAL.identity()))
    assert again == TRIAL
    assert again.key == TRIAL.key


@pytest.mark.parametrize("settings", [DEFAULT, *PAPER.values()])
def test_every_preset_survives_the_round_trip(settings):
    trial = replace(TRIAL, settings=settings)
    assert Trial.from_identity(through_json(trial.identity())) == trial


@pytest.mark.parametrize("path", list(leaves(SETTINGS)), ids=".".join)
def test_any_other_setting_makes_another_key(path):
    other = replace(TRIAL, settings=from_dict(with_leaf(SETTINGS, path)))
    assert other.settings != TRIAL.settings
    assert other.key != TRIAL.key


@pytest.mark.parametrize(
    "change",
    [
        {"experiment": "within/mnist"},
        {"method": "standard-linear"},
        {"seed": 4},
        {"known_data": "mnist"},
        {"novel_data": "mnist"},
        {"known": (9, 6, 3)},
        {"novel": (5,)},
        {"settings": PAPER["mnist"]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_any_other_part_makes_another_key(change):
    assert replace(TRIAL, **change).key != TRIAL.key


def test_a_class_as_text_is_not_the_same_class_as_a_number():
    assert replace(TRIAL, known=("6", "9", "3")).key != TRIAL.key


def test_the_key_is_the_same_in_every_process():
    assert TRIAL.key == replace(TRIAL).key
    assert len(TRIAL.key) == 24


def test_a_result_comes_back_from_its_record_through_json():
    assert TrialResult.from_record(through_json(RESULT.record())) == RESULT


def test_a_record_holds_what_the_contract_names():
    names = "experiment method seed known novel settings metrics seconds device versions"
    assert set(names.split()) <= set(RESULT.record())


@pytest.mark.parametrize("name", ["experiment", "known", "settings"])
def test_a_record_without_a_part_of_its_trial_says_which(name):
    record = {key: value for key, value in RESULT.record().items() if key != name}
    with pytest.raises(DataError, match=f"lacks '{name}'"):
        TrialResult.from_record(record)


@pytest.mark.parametrize("change", [{"metrics": 3}, {"seconds": "soon"}])
def test_a_record_that_cannot_be_read_says_of_which_experiment(change):
    with pytest.raises(DataError, match="within/fmnist cannot be read"):
        TrialResult.from_record(RESULT.record() | change)


def test_settings_of_another_version_are_refused_by_name():
    record = through_json(RESULT.record())
    record["settings"]["training"]["warmth"] = 1
    with pytest.raises(SettingsError, match="warmth"):
        TrialResult.from_record(record)
