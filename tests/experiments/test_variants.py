"""Variants of experiments: one choice made otherwise, the same classes and seeds, networks shared."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
import torch

from shels.config import from_dict, to_dict
from shels.data.samples import DataSet, Samples
from shels.data.sources import load_named
from shels.detection.measures import MEASURES
from shels.errors import DataError, SettingsError
from shels.experiments import engine, measuring, preparing
from shels.experiments.catalogue import CATALOGUE, FAMILIES, find_experiments
from shels.experiments.methods import METHODS
from shels.experiments.preparing import groups, training_key
from shels.experiments.published import published
from shels.experiments.records import Records
from shels.experiments.selection import select_trials
from shels.experiments.trials import Trial, measures_of
from shels.experiments.variants import VARIANTS
from shels.training import loop

RUN = [each for each in CATALOGUE.values() if each.variant]
DIGITS = {"detection": CATALOGUE["within/digits"], "learning": CATALOGUE["incremental/digits"]}

# Keys of trials (experiment, method, seed 1) and of their trainings, from before there were variants.
BEFORE = """
within/digits shels ae900ed1ba8be3c3daee87b1 a7dcbcbbc539ec4160112c85
within/digits scaled-cosine 87b847d1b44a17c0e0bff871 cc4ddaa2d500dbaf416ccf55
within/mnist shels 80ee6b481eb4b1ba74a7dafc 80cdd695ba05ba43ccb52c48
within/gtsrb shels 9c52a36feb5c94e18b99db9c 252607fb9b7a0bae62fca8c5
incremental/digits penalty 92e46a98c6c8f20425866754 b8070c33f93de5aec9d65012
incremental/mnist proximal 3c18a05b254d01e37a450c16 8c9f9fc7550cf2cf7d4baeb3
across/svhn-cifar10 shels cf4e7f4961546b6f4fc82ddd 225903bed76b1c89ce8d375b
"""


@pytest.mark.parametrize("line", BEFORE.split("\n")[1:-1])
def test_trials_recorded_before_there_were_variants_are_still_found(line):
    experiment, method, key, training = line.split()
    trial = CATALOGUE[experiment].trials(METHODS[method], 2)[1]
    assert (trial.key, training_key(trial)) == (key, training)


# The table ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VARIANTS)
def test_a_choice_says_what_text_and_code_have_and_how_ours_is_switched_or_why_not(name):
    each = VARIANTS[name]
    assert each.name == name
    assert all((each.label, each.text, each.code, each.ours))
    assert all(part in each.sentence for part in (each.text, each.code, each.ours))
    if each.experiments or each.measures:
        assert each.setting
        assert not each.effect
    else:
        assert not each.setting
        assert each.effect.startswith("not measured, because ")


def test_a_variant_names_experiments_methods_and_measures_that_there_are():
    for each in VARIANTS.values():
        assert all(name in CATALOGUE and "@" not in name for name in each.experiments), each.name
        assert all(name in METHODS for name in (*each.methods, *filter(None, [each.against]))), each.name
        assert all(name in MEASURES for name in each.measures or ()), each.name


def test_only_detection_is_measured_on_other_images():
    for each in VARIANTS.values():
        if each.measured_on != "test":
            assert {CATALOGUE[name].task for name in each.experiments} == {"detection"}


def test_all_that_can_be_run_is_in_the_catalogue_under_its_experiment():
    wanted = {f"{name}@{each.name}" for each in VARIANTS.values() for name in each.experiments}
    assert {each.name for each in RUN} == wanted
    names = list(CATALOGUE)
    for each in RUN:
        others = [name for name in names if name.startswith(f"{each.base}@") and CATALOGUE[name].variant]
        start = names.index(each.base) + 1
        assert names[start : start + len(others)] == others


@pytest.mark.parametrize("experiment", RUN, ids=lambda each: each.name)
def test_a_variant_is_its_experiment_but_for_the_change_that_it_names(experiment):
    base = CATALOGUE[experiment.base]
    method = METHODS[(experiment.methods or ("shels",))[0]]
    plain = METHODS[experiment.variant.against] if experiment.variant.against else method
    for mine, theirs in zip(experiment.trials(method, 3), base.trials(plain, 3), strict=True):
        assert (mine.seed, mine.known, mine.novel) == (theirs.seed, theirs.known, theirs.novel)
        assert mine.key != theirs.key
        assert changed(to_dict(mine.settings), to_dict(theirs.settings)) == dict(experiment.variant.changes)
        assert mine.measured_on == experiment.variant.measured_on
        assert Trial.from_identity(json.loads(json.dumps(mine.identity()))) == mine
    assert experiment.paired == base.paired
    assert measures_of(experiment.name) == measures_of(base.name)
    assert experiment.title.partition(":")[0] != base.title.partition(":")[0]


def changed(mine, theirs, prefix=""):
    """Give the settings that are other than theirs, by their whole names."""
    out = {}
    for name, value in mine.items():
        if isinstance(value, dict):
            out |= changed(value, theirs[name], f"{name}.")
        elif value != theirs.get(name):
            out[prefix + name] = value
    return out


def test_settings_that_came_with_variants_survive_json_and_are_left_out_where_nothing_was_chosen():
    for each in VARIANTS.values():
        for name in each.experiments:
            settings = CATALOGUE[f"{name}@{each.name}"].settings
            assert from_dict(json.loads(json.dumps(to_dict(settings)))) == settings
    plain = json.dumps(to_dict(CATALOGUE["incremental/mnist"].settings))
    assert not [
        word for word in ("keep", '"validation"', "calibrated_on", "merging", "zeroed") if word in plain
    ]
    assert "measured_on" not in CATALOGUE["within/mnist"].trials(METHODS["shels"], 1)[0].identity()


def test_a_record_measured_on_something_unknown_is_refused():
    plain = CATALOGUE["within/mnist"].trials(METHODS["shels"], 1)[0].identity()
    with pytest.raises(DataError, match="part to measure on 'validation'"):
        Trial.from_identity(plain | {"measured_on": "validation"})


def test_a_variant_has_the_published_figures_of_its_experiment():
    for measure in ("known_accuracy", "auroc"):
        theirs = published("within/gtsrb", "shels", measure)
        assert published("within/gtsrb@trained-images", "shels", measure) == theirs
    assert published("within/fmnist@mu-late", "shels", "exclusivity").source == "Figure 9"


# What is run -------------------------------------------------------------------------------------------


def test_fidelity_is_every_cheap_variant_by_the_methods_that_it_concerns():
    chosen = select_trials(["fidelity"], None, 1, {})
    pairs = {trial.experiment: trial.method for trial in chosen.trials}
    assert len(pairs) == len(chosen.trials) == len(FAMILIES["fidelity"])
    assert pairs["within/fmnist@softmax-twice"] == "scaled-cosine-authors"
    assert pairs["within/fmnist@mu-late"] == "shels"
    assert pairs["incremental/mnist@not-held"] == "penalty"
    assert {name.partition("@")[0] for name in pairs} <= {
        "within/mnist",
        "within/fmnist",
        "incremental/mnist",
    }


def test_fidelity_trains_a_network_once_where_variants_differ_in_nothing_that_is_trained():
    trials = select_trials(["fidelity"], None, 5, {}).trials
    together = groups(trials)
    # Five seeds, one network each; other values of μ go into the same stack.
    assert sorted(len(group) for group in together) == [5, 5, 5, 5, 5, 15]
    shared = [{trial.experiment for trial in network} for group in together for network in group]
    assert {"within/fmnist@novel-train-images", "within/fmnist@held-out-thresholds"} in shared
    learned = {trial.experiment for trial in trials if trial.experiment.startswith("incremental")}
    assert learned in shared


def test_a_variant_is_refused_methods_that_it_is_not_about():
    with pytest.raises(SettingsError, match="within/fmnist@mu-late is about shels, not about scaled-cosine"):
        CATALOGUE["within/fmnist@mu-late"].trials(METHODS["scaled-cosine"], 1)
    with pytest.raises(SettingsError, match="is about shels, and none of --methods is; choose from: shels"):
        select_trials(["within/fmnist@mu-late"], ["scaled-cosine"], 1, {})
    chosen = select_trials(["fidelity"], ["shels"], 1, {})
    assert any("incremental/mnist@not-held" in note for note in chosen.notes)
    assert any("about other methods" in note and "softmax-twice" in note for note in chosen.notes)


def test_reported_variants_take_any_method_of_detection():
    chosen = select_trials(["within"], ["shels", "scaled-cosine"], 1, {})
    assert Counter(trial.experiment for trial in chosen.trials)["within/gtsrb@trained-images"] == 2


# Networks that are shared ------------------------------------------------------------------------------


def test_signs_measured_on_trained_images_share_their_network_with_the_official_test_set():
    trials = select_trials(["within/gtsrb", "within/gtsrb@trained-images"], ["shels"], 3, {}).trials
    (group,) = groups(trials)
    assert [len(training) for training in group] == [2, 2, 2]
    assert len({training_key(trial) for trial in trials}) == 3
    assert len({trial.key for trial in trials}) == 6


def test_novel_images_of_another_data_set_are_its_test_images_also_where_known_ones_were_trained_on():
    across = CATALOGUE["across/gtsrb-svhn@trained-images"].trials(METHODS["shels"], 1)[0]
    assert across.measured_on == "trained-images"
    assert measuring._novel_wanted(across)[::2] == ("svhn", "test")
    within = CATALOGUE["within/gtsrb@trained-images"].trials(METHODS["shels"], 1)[0]
    assert measuring._novel_wanted(within)[::2] == ("gtsrb", "trained-images")


@pytest.mark.parametrize("known", ["svhn", "gtsrb", "cifar10"])
def test_pairs_that_share_their_known_data_train_once(known):
    names = [name for name in CATALOGUE if name.startswith(f"across/{known}-") and "@" not in name]
    assert len(names) == 2
    asked = ["shels", "shels-gaussian", "scaled-cosine"]
    trials = select_trials(names, asked, 2, {}).trials
    together = groups(trials)
    methods = [{trial.method for trial in group[0]} for group in together]
    assert methods == [{"shels", "shels-gaussian"}, {"scaled-cosine"}]
    assert [[len(training) for training in group] for group in together] == [[4, 4], [2, 2]]


@pytest.fixture
def counted(monkeypatch):
    """Count trainings, passes through networks, and detectors made."""
    counts = Counter()
    for room, name in ((loop, "training"), (measuring, "views_of"), (measuring, "with_detector")):
        monkeypatch.setattr(room, name, counting(getattr(room, name), name, counts))
    return counts


def counting(real, name, counts):
    def count(*args, **options):
        counts[name] += 1
        return real(*args, **options)

    return count


def source(name, size):
    return replace(load_named("digits"), name=name)


def finished(trials, tmp_path, load=source):
    advances = list(engine.run(trials, Records(tmp_path / "results"), load, device="cpu"))
    assert [each.message for each in advances if each.kind == "failed"] == []
    return {(r.trial.experiment, r.trial.method): r for r in (each.result for each in advances) if r}


def short(trial, **changes):
    training = replace(DIGITS["detection"].settings.training, steps=60, check_every=20)
    return replace(trial, settings=replace(DIGITS["detection"].settings, training=training), **changes)


def test_two_rows_on_one_network_pass_every_sample_once_and_make_each_detector_once(counted, tmp_path):
    names = ("across/svhn-cifar10", "across/svhn-gtsrb")
    trials = [
        short(CATALOGUE[name].trials(METHODS[method], 1)[0], novel=tuple(range(10)))
        for name in names
        for method in ("shels", "shels-gaussian")
    ]
    found = finished(trials, tmp_path)
    assert len(found) == 4
    # known: training, held-out and test samples; novel: those of each of the two sets
    assert counted == {"training": 1, "views_of": 5, "with_detector": 2}
    assert {result.metrics["known_accuracy"] for (_, method), result in found.items() if method == "shels"}
    for method in ("shels", "shels-gaussian"):  # the same digits under both names
        assert found[names[0], method].metrics == found[names[1], method].metrics


def test_what_shares_a_network_comes_to_the_figures_that_it_comes_to_alone(tmp_path):
    base = short(DIGITS["detection"].trials(METHODS["shels"], 1)[0])
    other = replace(base, experiment="within/digits@x", measured_on="novel-training")
    both = finished([base, other], tmp_path / "both")
    for trial in (base, other):
        (alone,) = finished([trial], tmp_path / trial.measured_on).values()
        assert both[trial.experiment, "shels"].metrics == alone.metrics


# What is measured on -----------------------------------------------------------------------------------


def tracks(sizes, classes=3):
    """Return training samples of classes whose tracks have these sizes, numbered anew in each class."""
    labels = torch.cat([torch.full((sum(sizes),), place) for place in range(classes)])
    groups = torch.cat([torch.full((size,), number) for number, size in enumerate(sizes)]).repeat(classes)
    return Samples(torch.rand(len(labels), 4), labels, tuple("abcdef"[:classes]), groups=groups)


def test_trained_images_are_whole_tracks_as_near_to_the_online_test_set_as_tracks_allow():
    sizes = [30] * 20 + [29, 15, 31]
    train = tracks(sizes, classes=6)
    drawn = measuring.trained_images(train)
    pairs = torch.stack([train.labels, train.groups])
    inside, outside = (
        {tuple(pair) for pair in pairs[:, index].T.tolist()}
        for index in (drawn, torch.tensor(sorted({*range(len(train))} - {*drawn.tolist()})))
    )
    assert not inside & outside
    wanted = len(train) * 12_569 / 39_209
    assert abs(len(drawn) - wanted) <= 31 / 2 + 1  # nearer than half of the longest track
    assert {label for label, _ in inside} == set(range(6))
    assert torch.equal(drawn, measuring.trained_images(train))


def test_of_signs_the_trained_images_number_12569_give_or_take_a_track():
    sizes = [30] * 29 + [29]  # 899 a class, 38,657 in all: 43 classes of about thirty tracks
    labels = torch.arange(43).repeat_interleave(sum(sizes))
    groups = torch.arange(30).repeat_interleave(torch.tensor(sizes)).repeat(43)
    train = Samples(torch.zeros(len(labels), 1), labels, tuple(range(43)), groups=groups)
    share = 12_569 / 39_209
    assert abs(len(measuring.trained_images(train)) - share * len(train)) <= 30


def signs(name, size):
    """Return the digits as a data set whose training images come in tracks of five."""
    data = load_named("digits")
    groups = torch.arange(len(data.train)) // 5
    return DataSet(name, replace(data.train, groups=groups), data.test)


def test_trials_say_what_they_were_measured_on(tmp_path):
    base = short(DIGITS["detection"].trials(METHODS["shels"], 1)[0])
    kinds = ("test", "novel-training", "trained-images")
    asked = [replace(base, experiment=f"within/{kind}", measured_on=kind) for kind in kinds]
    found = {name.partition("/")[2]: result for (name, _), result in finished(asked, tmp_path, signs).items()}
    data = signs("digits", None)

    def counts(samples, classes):
        return {str(name): int((samples.labels == name).sum()) for name in classes}

    def seen(kind, table):
        return {name: rates["samples"] for name, rates in found[kind].details[table].items()}

    assert seen("test", "per_class") == counts(data.test, base.known)
    assert seen("test", "per_novel_class") == counts(data.test, base.novel)
    assert seen("novel-training", "per_class") == counts(data.test, base.known)
    assert seen("novel-training", "per_novel_class") == counts(data.train, base.novel)
    drawn = data.train.take(measuring.trained_images(data.train))
    assert seen("trained-images", "per_class") == counts(drawn, base.known)
    assert seen("trained-images", "per_novel_class") == counts(drawn, base.novel)
    assert "measured_on" not in found["test"].details
    about = found["trained-images"].details["measured_on"]
    assert about["drawn"] == len(drawn)
    assert about["of"] == len(data.train)
    assert found["test"].metrics["exclusivity"] == found["trained-images"].metrics["exclusivity"]


def test_every_detection_trial_records_the_other_readings_of_novel_accuracy_and_exclusivity(tmp_path):
    (result,) = finished([short(DIGITS["detection"].trials(METHODS["shels"], 1)[0])], tmp_path).values()
    rates = [rates["rejected"] for rates in result.details["per_novel_class"].values()]
    assert result.metrics["novel_accuracy_by_class"] == pytest.approx(sum(rates) / 5)
    assert 0 <= result.metrics["exclusivity_by_firing"] < result.metrics["exclusivity"]


# Every variant, on the digits --------------------------------------------------------------------------


PLAIN = ("shels", "penalty", "scaled-cosine")
TRIED = [each for each in VARIANTS.values() if each.experiments and each.name not in ("printed", "28px")]


@pytest.fixture(scope="module")
def tried(tmp_path_factory):
    """Run the digits plain and by every variant, briefly: results by variant, "" for plain ones."""
    out = {}
    asked = [DIGITS[METHODS[name].task].trials(METHODS[name], 1)[0] for name in PLAIN]
    for each in TRIED:
        method = METHODS[(each.methods or ("shels",))[0]]
        base = DIGITS[method.task]
        if method.task == "learning":  # the paper's accommodation, of which these are settings
            base = replace(base, settings=method.settings(base.settings, "digits"))
        asked.append(base.varied(each).trials(method, 1)[0])
    asked = [brief(trial) for trial in asked]
    for (name, method), result in finished(asked, tmp_path_factory.mktemp("tried")).items():
        out[name.partition("@")[2], method] = result
    return out


def brief(trial):
    settings = trial.settings
    training = replace(settings.training, steps=100, check_every=20)
    settings = replace(settings, training=training)
    if trial.method == "penalty":
        free = {"epochs": 4, "beta": 3.0, "rate_divisor": 0.5}  # so that something is learned in a moment
        settings = replace(settings, accommodation=replace(settings.accommodation, **free))
    return replace(trial, settings=settings)


def test_every_variant_runs_on_the_digits(tried):
    assert len(tried) == len(PLAIN) + len(TRIED)
    for result in tried.values():
        assert 0 < result.metrics["known_accuracy"] <= 1


@pytest.mark.parametrize("name", ["mu-late", "constant-mu", "validation-trained", "dropout"])
def test_another_training_comes_to_other_weights(tried, name):
    mine, plain = tried[name, "shels"].details["checks"], tried["", "shels"].details["checks"]
    assert mine[-1]["training_loss"] != plain[-1]["training_loss"]


def test_last_weights_are_those_of_the_last_check_of_the_same_training(tried):
    last, plain = tried["last-weights", "shels"], tried["", "shels"]
    assert last.details["checks"] == plain.details["checks"]
    assert last.details["best_epoch"] == last.details["checks"][-1]["epoch"]


def test_thresholds_on_held_out_data_change_verdicts_and_nothing_else(tried):
    other, plain = tried["held-out-thresholds", "shels"].metrics, tried["", "shels"].metrics
    assert other["auroc"] == plain["auroc"]
    assert other["closed_set_accuracy"] == plain["closed_set_accuracy"]
    assert other["acceptance"] > plain["acceptance"]  # samples that were not trained on score lower


def test_the_rival_of_the_authors_code_is_ranked_by_the_raw_product_of_its_own_network(tried):
    authors, plain = tried["softmax-twice", "scaled-cosine-authors"], tried["", "scaled-cosine"]
    assert authors.details["checks"][-1]["training_loss"] > plain.details["checks"][-1]["training_loss"]
    assert authors.metrics["auroc"] != plain.metrics["auroc"]


@pytest.mark.parametrize("name", ["map-norm", "importance-added", "not-held"])
def test_a_variant_of_the_accommodation_begins_with_the_same_network_and_learns_otherwise(tried, name):
    other, plain = (tried[key, "penalty"].details["course"] for key in (name, ""))
    assert other[0]["overall"] == plain[0]["overall"]
    assert [stage["known"] for stage in other] != [stage["known"] for stage in plain]


def test_a_threshold_over_all_scores_changes_nothing_but_what_is_accepted(tried):
    other, plain = (tried[key, "penalty"] for key in ("mean-vector-threshold", ""))
    assert other.metrics["closed_set_accuracy"] == plain.metrics["closed_set_accuracy"]
    assert other.metrics["acceptance"] > plain.metrics["acceptance"]  # the new classes reject next to nothing


def test_find_experiments_knows_variants_by_their_whole_name_alone():
    assert [each.name for each in find_experiments(["within/fmnist@mu-late"])] == ["within/fmnist@mu-late"]
    with pytest.raises(SettingsError, match="did you mean 'within/fmnist@mu-late'"):
        find_experiments(["within/fmnist@mulate"])


def test_the_module_that_prepares_trainings_splits_as_settings_say():
    digits = load_named("digits")
    base = DIGITS["detection"].varied(VARIANTS["validation-trained"]).trials(METHODS["shels"], 1)[0]
    made = preparing.prepared([base], digits, digits.train.inputs, torch.device("cpu"))
    everything = digits.train.places(base.known)[0]
    assert torch.equal(made.data.training.places.sort().values, everything)
    assert set(made.data.validation.places.tolist()) < set(everything.tolist())
