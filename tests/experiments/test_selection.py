"""Which trials a command asks for, and what they need."""

from dataclasses import replace

import pytest

from shels.data import sources
from shels.errors import MissingDataError, SettingsError
from shels.experiments.catalogue import CATALOGUE
from shels.experiments.methods import find_methods
from shels.experiments.selection import check_data, check_weights, named_data, select_trials
from tests.experiments.pretended import trials_of


def keys(selection):
    return [(trial.experiment, trial.method, trial.seed) for trial in selection.trials]


def test_trials_are_those_of_each_experiment_by_each_method_of_its_task():
    chosen = select_trials(["within/digits", "incremental/digits"], ["shels", "slda"], 1, {})
    assert keys(chosen) == [("within/digits", "shels", 0), ("incremental/digits", "slda", 0)]
    assert chosen.notes == []


def test_without_methods_our_own_are_taken():
    chosen = select_trials(["within/digits", "incremental/digits"], None, 1, {})
    ways = [method for _, method, _ in keys(chosen)]
    assert ways == ["shels", "gaussian", "gaussian-rectified", "proximal", "penalty"]


def test_without_methods_an_experiment_takes_those_that_it_is_about_and_its_number_of_trials(monkeypatch):
    digits = replace(CATALOGUE["within/digits"], methods=("trained", "ewc", "msp"), trial_count=2)
    monkeypatch.setitem(CATALOGUE, "within/digits", digits)
    ways = ["standard-linear", "scaled-cosine", "exclusive-sparsity", "msp"]
    found = keys(select_trials(["within/digits"], None, None, {}))
    assert found == [("within/digits", way, seed) for way in ways for seed in (0, 1)]
    assert len(keys(select_trials(["within/digits"], None, 1, {}))) == 4


def test_every_experiment_names_methods_of_its_task():
    for each in CATALOGUE.values():
        methods = find_methods(each.methods)
        assert not methods or any(method.task == each.task for method in methods)
        assert each.trial_count >= 1


def test_an_experiment_named_that_no_method_suits_is_refused():
    with pytest.raises(SettingsError, match="within/digits is about detection, and none of --methods is"):
        select_trials(["within/digits"], ["ewc"], 1, {})


def test_changes_become_part_of_every_trial():
    [trial] = select_trials(["within/digits"], ["shels"], 1, {"epochs": 3}).trials
    assert trial.settings.training.epochs == 3


def test_data_that_are_not_here_are_named_with_how_to_get_them(tmp_path):
    check_data(trials_of("within/digits"), tmp_path)
    with pytest.raises(MissingDataError, match="`shels data download fmnist`"):
        check_data(trials_of("within/fmnist"), tmp_path)


def test_weights_are_for_vgg16_and_their_absence_is_noted(tmp_path):
    assert check_weights(trials_of("within/digits"), None) == []
    [note] = check_weights(trials_of("across/cifar10-svhn"), None)
    assert note.startswith("VGG16 starts fresh in across/cifar10-svhn")
    with pytest.raises(SettingsError, match="none of these does"):
        check_weights(trials_of("within/digits"), tmp_path / "vgg16.safetensors")


def test_data_are_resized_only_where_they_are_stored_in_many_sizes(monkeypatch, tmp_path):
    monkeypatch.setattr(sources, "load_named", lambda *given: given)
    load = named_data(tmp_path)
    assert load("gtsrb", 112) == ("gtsrb", tmp_path, 112)
    assert load("mnist", 32) == ("mnist", tmp_path, None)


def test_a_set_is_read_once_for_the_groups_of_an_experiment(monkeypatch):
    read = []
    monkeypatch.setattr(sources, "load_named", lambda *given: read.append(given) or given)
    load = named_data(None)
    assert load("gtsrb", 112) is load("gtsrb", 112)
    assert load("gtsrb", 32) != load("gtsrb", 112)
    assert read == [("gtsrb", None, 112), ("gtsrb", None, 32)]
