from dataclasses import replace

import pytest

from shels.config import Adam, MeanMinusSd, Sgd
from shels.config.presets import BEST
from shels.data.sources import load_named, named_set
from shels.data.splits import AUTHORS_ORDERS
from shels.errors import SettingsError
from shels.experiments.catalogue import CATALOGUE, FAMILIES, find_experiments
from shels.experiments.methods import METHODS, find_methods
from shels.learning.registry import method_of
from shels.model.networks import build

SHELS = METHODS["shels"]
WITHIN = ["within/mnist", "within/fmnist", "within/svhn", "within/cifar10", "within/gtsrb"]
REPORTED = [*WITHIN[:4], "within/cifar10@printed", "within/gtsrb", "within/gtsrb@trained-images"]
TRAINED = {name: (f"{name}@trained-images",) for name in ("across/gtsrb-cifar10", "across/gtsrb-svhn")}
ACROSS = {
    "across/mnist-fmnist": (10, 10),
    "across/fmnist-mnist": (10, 10),
    "across/gtsrb-cifar10": (43, 10),
    "across/gtsrb-svhn": (43, 10),
    "across/svhn-cifar10": (10, 10),
    "across/svhn-gtsrb": (10, 43),
    "across/cifar10-gtsrb": (10, 43),
    "across/cifar10-svhn": (10, 10),
}
INCREMENTAL = {"mnist": (7, 3), "fmnist": (4, 3), "gtsrb": (23, 9), "digits": (7, 3)}
DETECTION = [each for each in METHODS.values() if each.task == "detection"]
LEARNING = [each for each in METHODS.values() if each.task == "learning"]


def names(*asked):
    return [each.name for each in find_experiments(asked)]


def test_the_paper_is_five_sets_eight_pairs_two_studies_three_sets_learned_two_met_and_no_digits():
    learned = [f"incremental/{name}" for name in INCREMENTAL if name != "digits"]
    swept = ["group-sparsity/fmnist", "group-sparsity/cifar10"]
    agents = ["open-world/mnist", "open-world/fmnist"]
    across = [each for name in ACROSS for each in (name, *TRAINED.get(name, ()))]
    assert names("paper") == [*REPORTED, *across, "exclusivity", *swept, *learned, *agents]
    assert names("group-sparsity") == swept
    assert names("within") == REPORTED
    assert names("across") == across
    assert names("incremental") == learned
    assert names("open-world") == [*agents, *names("beyond")]
    digits = {f"{kind}/digits" for kind in ("within", "incremental", "open-world", "few-shot", "osr")}
    assert names("few-shot") == ["few-shot/mnist", "few-shot/fmnist", "few-shot/gtsrb"]
    assert names("osr") == ["osr/mnist", "osr/svhn", "osr/cifar10"]
    plain = {name for name, each in CATALOGUE.items() if each.variant is None}
    beyond = {*names("beyond"), *names("few-shot"), *names("osr"), *names("best"), "within/digits@best"}
    assert plain == {*names("paper"), *beyond, *digits} - {*REPORTED, *across} | {*WITHIN, *ACROSS}


def test_each_experiment_comes_once_in_the_order_asked_for():
    assert names("within/gtsrb", "within", "within/mnist") == [
        "within/gtsrb",
        *WITHIN[:4],
        *REPORTED[4:5],
        *REPORTED[6:],
    ]
    assert names("within/digits", "across/mnist-fmnist") == ["within/digits", "across/mnist-fmnist"]
    assert names() == []


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(SettingsError, match="did you mean 'within/fmnist'"):
        find_experiments(["within/fminst"])
    paper = "within, across, group-sparsity, incremental, open-world, paper"
    families = f"{paper}, beyond, best, few-shot, osr, fidelity"
    with pytest.raises(SettingsError, match=rf"`shels reproduce --list` names all; at once: {families}\)"):
        find_experiments(["within/mnist", "tables"])


def test_a_sweep_runs_every_trial_at_each_weight_and_both_kinds_of_sparsity():
    for name in ("fmnist", "cifar10"):
        trials = CATALOGUE[f"group-sparsity/{name}"].trials(SHELS, 3)
        assert len(trials) == 3 * 41 == len({trial.key for trial in trials})
        points = [(t.settings.training.alpha, t.settings.training.depth_weights) for t in trials[:41]]
        assert points[0] == (0.0, "layer-wise")
        assert points[1:] == [(a / 1000, kind) for a in range(1, 21) for kind in ("layer-wise", "constant")]
        assert [trial.seed for trial in trials] == [0] * 41 + [1] * 41 + [2] * 41
        within = CATALOGUE[f"within/{name}"].trials(SHELS, 1)[0]
        assert trials[1].settings == within.settings  # the paper's own weight is one of them
        assert (trials[1].known, trials[1].novel) == (within.known, within.novel)


def test_at_best_an_experiment_has_the_same_classes_and_the_preset_of_its_data():
    for experiment in FAMILIES["best"]:
        assert experiment.name.endswith("@best")
        best = BEST[experiment.known_data]
        detects = experiment.task == "detection"
        assert experiment.settings == (best if detects else replace(best, detector="own"))
        plain = CATALOGUE.get(experiment.name.removesuffix("@best"))
        if plain is not None:
            assert [plain.classes(seed) for seed in range(12)] == [
                experiment.classes(seed) for seed in range(12)
            ]
        assert {METHODS[name].task for name in experiment.methods} == {experiment.task}
    within = {each.known_data for each in FAMILIES["best"] if each.name.startswith("within/")}
    assert within == {"mnist", "fmnist", "svhn", "cifar10", "gtsrb"}


def test_the_preset_best_lets_no_held_out_sample_choose_the_network():
    for settings in BEST.values():
        assert settings.training.keep == "last"
        assert settings.training.patience is None
        assert settings.rule.calibration == "separate"


OPEN_WORLD = {
    "mnist": (7, 3, 5),
    "fmnist": (4, 3, 5),
    "fmnist-all": (4, 6, 5),
    "gtsrb": (23, 20, 3),
    "cifar10": (5, 5, 3),
    "mnist@mixed": (7, 3, 5),
    "fmnist@mixed": (4, 3, 5),
    "digits": (7, 3, 5),
}


@pytest.mark.parametrize("name", OPEN_WORLD)
def test_an_agent_knows_the_first_classes_and_is_to_find_some_of_the_others(name):
    experiment, (known, novel, count) = CATALOGUE[f"open-world/{name}"], OPEN_WORLD[name]
    assert experiment.trial_count == count
    assert {METHODS[each].task for each in experiment.methods} == {"open-world"}
    for trials in zip(*(experiment.trials(METHODS[each], 3) for each in experiment.methods), strict=True):
        assert {(len(trial.known), len(trial.novel)) for trial in trials} == {(known, novel)}
        assert len({(trial.seed, trial.known, trial.novel) for trial in trials}) == 1
    if name != "gtsrb":
        first = experiment.trials(METHODS["gaussian-agent"], 10)
        assert [(*t.known, *t.novel) for t in first] == [order[: known + novel] for order in AUTHORS_ORDERS]


@pytest.mark.parametrize("name", ["within/mnist", "within/fmnist", "within/svhn", "within/cifar10"])
def test_ten_trials_of_ten_classes_follow_the_authors_orders(name):
    trials = CATALOGUE[name].trials(SHELS, 10)
    assert [trial.known for trial in trials] == [order[:5] for order in AUTHORS_ORDERS]
    assert [trial.novel for trial in trials] == [order[5:] for order in AUTHORS_ORDERS]
    assert [trial.seed for trial in trials] == list(range(10))


def test_trials_beyond_the_authors_ten_draw_their_classes():
    trials = CATALOGUE["within/mnist"].trials(SHELS, 30)
    assert trials[:10] == CATALOGUE["within/mnist"].trials(SHELS, 10)
    for trial in trials[10:]:
        assert len(trial.known) == 5
        assert sorted(trial.known + trial.novel) == list(range(10))
    assert len({frozenset(trial.known) for trial in trials[10:]}) > 10


def test_signs_draw_23_of_43_classes_in_every_trial():
    trials = CATALOGUE["within/gtsrb"].trials(SHELS, 10)
    for trial in trials:
        assert (len(trial.known), len(trial.novel)) == (23, 20)
        assert sorted(trial.known + trial.novel) == list(range(43))
    assert len({frozenset(trial.known) for trial in trials}) == 10


@pytest.mark.parametrize("name", ACROSS)
def test_across_data_sets_all_classes_of_one_are_known_and_all_of_the_other_novel(name):
    experiment = CATALOGUE[name]
    for trial in experiment.trials(SHELS, 12):
        assert (trial.known, trial.novel) == tuple(tuple(range(count)) for count in ACROSS[name])
        assert name == f"across/{trial.known_data}-{trial.novel_data}"
    assert not experiment.paired


def test_within_a_data_set_methods_share_their_classes_seed_by_seed():
    for name in [*WITHIN, "within/digits"]:
        assert CATALOGUE[name].paired
        lists = [CATALOGUE[name].trials(method, 12) for method in DETECTION]
        for trials in zip(*lists, strict=True):
            assert len({(trial.seed, trial.known, trial.novel) for trial in trials}) == 1
            assert len({trial.key for trial in trials}) == len(DETECTION)


@pytest.mark.parametrize("name", INCREMENTAL)
def test_learning_goes_on_from_the_first_classes_with_some_of_the_others(name):
    experiment, (known, new) = CATALOGUE[f"incremental/{name}"], INCREMENTAL[name]
    assert experiment.paired
    for trials in zip(*(experiment.trials(method, 12) for method in LEARNING), strict=True):
        classes = {(trial.known, trial.novel) for trial in trials}
        assert [(len(first), len(later)) for first, later in classes] == [(known, new)]
        assert not set(trials[0].known) & set(trials[0].novel)
        assert len({trial.key for trial in trials}) == len(LEARNING)
    if name != "gtsrb":
        first = experiment.trials(LEARNING[0], 10)
        assert [(*t.known, *t.novel) for t in first] == [order[: known + new] for order in AUTHORS_ORDERS]


def test_what_learns_in_an_experiment_takes_the_network_that_it_is_given():
    """No way to learn refuses an experiment's layers, which would cost its training first."""
    asked = {
        (trial.settings.network, trial.settings.accommodation)
        for each in CATALOGUE.values()
        for name in each.methods
        for method in find_methods([name])
        if method.task == each.task != "detection"
        for trial in each.trials(method, 1)
    }
    assert len(asked) > 50
    bodies = {}
    for settings, way in asked:
        side = settings.image_size or 8
        if settings not in bodies and settings.architecture != "auto":
            bodies[settings] = build(settings, (3, side, side), classes=2, seed=0)
        if settings in bodies:
            method_of(way).require_layers(bodies[settings])


def test_a_method_of_another_task_is_refused():
    with pytest.raises(SettingsError, match="ewc is a way of learning, and within/mnist asks for detection"):
        CATALOGUE["within/mnist"].trials(METHODS["ewc"], 1)
    with pytest.raises(SettingsError, match="shels is a way of detection, and incremental/mnist asks for"):
        CATALOGUE["incremental/mnist"].trials(SHELS, 1)


def test_learners_have_the_numbers_that_the_paper_gives_them():
    def way(data, method):
        return CATALOGUE[f"incremental/{data}"].trials(METHODS[method], 1)[0].settings.accommodation

    # beta and what divides the learning rate, by data set
    assert [way(data, "penalty").beta for data in ("mnist", "fmnist", "gtsrb")] == [2000, 3000, 50_000]
    assert [way(data, "penalty").rate_divisor for data in ("mnist", "fmnist", "gtsrb")] == [10, 2, 1]
    assert [way(data, "ags-cl").lam for data in ("mnist", "fmnist", "gtsrb")] == [2000, 3000, 50_000]
    assert [way(data, "ags-cl").rate_divisor for data in ("mnist", "fmnist", "gtsrb")] == [10, 8, 2]
    assert way("mnist", "ags-cl").mu == 1e-3


APPENDIX = """
within/mnist six-conv-256 32 10
within/fmnist six-conv-256 32 20
within/svhn six-conv-1024-512 32 20
within/cifar10@printed six-conv-2048-512 112 30
within/gtsrb six-conv-2048-512 112 10
across/svhn-gtsrb six-conv-1024-512 32 20
across/gtsrb-svhn six-conv-2048-512 112 10
across/cifar10-gtsrb vgg16 224 30
across/cifar10-svhn vgg16 224 30
"""


@pytest.mark.parametrize("line", APPENDIX.split("\n")[1:-1])
def test_settings_are_those_of_the_appendix(line):
    name, architecture, size, epochs = line.split()
    settings = CATALOGUE[name].trials(SHELS, 1)[0].settings
    assert (settings.network.architecture, settings.network.image_size) == (architecture, int(size))
    assert (settings.training.epochs, settings.training.batch_size) == (int(epochs), 32)
    assert settings.training.alpha == 1e-3
    assert settings.rule == MeanMinusSd(1.0)
    assert isinstance(settings.training.optimiser, Sgd if architecture == "vgg16" else Adam)


def test_cifar10_within_has_the_network_of_the_authors_code():
    network = CATALOGUE["within/cifar10"].settings.network
    assert (network.architecture, network.image_size) == ("six-conv-512", 32)
    dropped = CATALOGUE["within/cifar10@dropout"].settings.network
    assert (dropped.architecture, dropped.image_size) == ("six-conv-512-dropout", 32)


def test_a_method_changes_the_settings_that_it_needs_to():
    trial = CATALOGUE["within/mnist"].trials(METHODS["standard-linear"], 1)[0]
    assert (trial.method, trial.settings.network.head) == ("standard-linear", "linear")


@pytest.mark.parametrize("name", ["within/mnist", "within/digits"])
def test_another_length_of_training_makes_other_trials(name):
    short = CATALOGUE[name].trials(SHELS, 2, epochs=1)
    assert [trial.settings.training.epochs for trial in short] == [1, 1]
    assert short[0].settings.training.steps is None
    assert not {trial.key for trial in short} & {trial.key for trial in CATALOGUE[name].trials(SHELS, 2)}
    assert short == CATALOGUE[name].trials(SHELS, 2, epochs=1)


def test_pretrained_weights_go_to_vgg16_alone():
    vgg = CATALOGUE["across/cifar10-svhn"].trials(SHELS, 1, weights="vgg16.safetensors")[0]
    assert vgg.settings.network.weights == "vgg16.safetensors"
    plain = CATALOGUE["within/cifar10"]
    assert plain.trials(SHELS, 1, weights="vgg16.safetensors") == plain.trials(SHELS, 1)


@pytest.mark.parametrize("count", [0, -1, 2.5, True])
def test_a_number_of_trials_that_is_none_is_refused(count):
    with pytest.raises(SettingsError, match="whole number, 1 or more"):
        CATALOGUE["within/mnist"].trials(SHELS, count)


def test_no_epochs_at_all_are_refused():
    with pytest.raises(SettingsError, match="epochs"):
        CATALOGUE["within/mnist"].trials(SHELS, 1, epochs=0)


def test_classes_are_those_that_the_data_have():
    experiment = CATALOGUE["within/digits"]
    data = load_named("digits")
    for trial in experiment.trials(SHELS, 11):
        assert set(trial.known + trial.novel) == set(data.train.classes)
        assert all(type(name) is type(data.train.classes[0]) for name in trial.known)
    assert "not in the paper" in experiment.title


def test_every_data_set_of_the_paper_is_one_that_can_be_loaded_by_name():
    for experiment in FAMILIES["paper"]:
        assert named_set(experiment.known_data).class_count in (10, 43)
        assert experiment.title
