"""Packed results: what is lost and what stays, and that they are found again."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from shels.errors import DataError, MissingDataError
from shels.experiments.catalogue import CATALOGUE
from shels.experiments.estimate import Kind, costs_of, estimated, kind_of, shipped_costs, table_of
from shels.experiments.methods import METHODS
from shels.experiments.packing import file_of, pack, packed
from shels.experiments.records import Records
from shels.experiments.trials import TrialResult
from tests.experiments.pretended import result_of, trials_of

DETAILS = {
    "checks": [{"step": 1}],
    "per_class": {"0": {"right": 0.5}},
    "per_novel_class": {"5": {"rejected": 0.5}},
    "exclusivity": [[0.0, 0.123456789], [0.123456789, 0.0]],
    "stages": {"training": 1.23456789},
    "course": [{"classes": 7, "overall": 0.987654321, "newest": None}],
    "stacked": 10,
    "precision": "TF32",
}


def measured(trial, details=DETAILS):
    return TrialResult(trial, {"auroc": 2 / 3}, 1 / 3, "a GPU", {"shels": "0"}, details)


def test_a_packed_result_keeps_its_trial_and_what_pages_draw():
    [trial] = trials_of("within/fmnist", count=1)
    found = packed(measured(trial))
    assert found.trial == trial
    assert found.metrics == {"auroc": 0.66667}
    assert found.seconds == 0.33333
    assert found.details == {
        "stages": {"training": 1.23457},
        "course": [{"classes": 7, "overall": 0.98765, "newest": None}],
        "stacked": 10,
        "precision": "TF32",
    }


def test_the_matrix_stays_where_the_experiment_is_about_it():
    [trial] = trials_of("within/fmnist", count=1)
    found = packed(measured(replace(trial, experiment="exclusivity")))
    assert found.details["exclusivity"] == [[0.0, 0.12346], [0.12346, 0.0]]


def test_every_family_has_a_file_and_variants_have_one_together():
    names = ["within/mnist", "across/svhn-gtsrb", "exclusivity", "group-sparsity/fmnist", "open-world/mnist"]
    found = [file_of(name) for name in (*names, "within/gtsrb@trained-images")]
    stems = ["within", "across", "exclusivity", "group-sparsity", "open-world", "fidelity"]
    assert found == [f"{stem}.jsonl" for stem in stems]


def test_packed_results_are_read_with_those_of_runs_and_found_by_their_trials(tmp_path):
    digits, fmnist = trials_of("within/digits"), trials_of("within/fmnist", count=2)
    files = pack([measured(trial) for trial in fmnist], tmp_path)
    assert files == [tmp_path / "within.jsonl"]
    records = Records(tmp_path)
    assert records.find(fmnist[1]) == packed(measured(fmnist[1]))
    assert records.find(digits[0]) is None
    records.append(result_of(digits[0]))
    assert [each.trial for each in records.results()] == [*fmnist, digits[0]]
    assert Records(tmp_path).results() == records.results()
    assert [each.trial for each in records.packed()] == fmnist
    assert json.loads((tmp_path / "trials.jsonl").read_text()) == result_of(digits[0]).record()


def test_a_result_of_a_run_counts_before_a_packed_one_of_the_same_trial(tmp_path):
    [trial] = trials_of("within/digits", count=1)
    records = Records(tmp_path)
    records.append(result_of(trial, seconds=7.0))
    pack([result_of(trial, seconds=3.0)], tmp_path)
    assert [each.seconds for each in records.results()] == [7.0]
    assert [each.seconds for each in records.packed()] == [3.0]


def test_packing_again_adds_and_replaces_and_the_order_does_not_matter(tmp_path):
    first, second = (
        [measured(trial) for trial in trials_of(name)] for name in ("within/fmnist", "within/mnist")
    )
    pack(first, tmp_path / "a")
    pack(second[::-1], tmp_path / "a")
    pack([*second, *first], tmp_path / "b")
    assert (tmp_path / "a/within.jsonl").read_bytes() == (tmp_path / "b/within.jsonl").read_bytes()
    pack([replace(first[0], seconds=99.0)], tmp_path / "a")
    seconds = [each.seconds for each in Records(tmp_path / "a").packed()]
    assert sorted(seconds) == [0.33333] * 5 + [99.0]


def test_a_file_of_weights_is_kept_by_its_name_and_found_wherever_it_lies(tmp_path):
    where = CATALOGUE["across/cifar10-svhn"]
    [trial] = where.trials(METHODS["shels"], 1, weights="/somewhere/vgg16.safetensors")
    pack([measured(trial)], tmp_path)
    [kept] = Records(tmp_path).results()
    assert kept.trial.settings.network.weights == "vgg16.safetensors"
    [elsewhere] = where.trials(METHODS["shels"], 1, weights="../other/vgg16.safetensors")
    assert Records(tmp_path).find(elsewhere) == kept
    assert Records(tmp_path).find(where.trials(METHODS["shels"], 1)[0]) is None
    assert Records(tmp_path).find(where.trials(METHODS["shels"], 1, weights="other.safetensors")[0]) is None


def test_a_directory_without_packed_results_says_how_they_are_made(tmp_path):
    Records(tmp_path).append(result_of(trials_of("within/digits", count=1)[0]))
    with pytest.raises(MissingDataError, match="shels report DIR --pack"):
        Records(tmp_path).packed()


@pytest.mark.parametrize("change", [lambda text: text[:-200], lambda text: b'{"broken\n' + text])
def test_packing_beside_a_damaged_line_is_refused_as_the_line_would_be_lost(tmp_path, change):
    pack([measured(trial) for trial in trials_of("within/fmnist")], tmp_path)
    path = tmp_path / "within.jsonl"
    damaged = change(path.read_bytes())
    path.write_bytes(damaged)
    with pytest.raises(
        DataError, match=r"within\.jsonl, line (1|the last): it is no record of a trial .*mend the"
    ):
        pack([measured(trial) for trial in trials_of("within/mnist")], tmp_path)
    assert path.read_bytes() == damaged


# Estimates ----------------------------------------------------------------------------------------------


def test_a_trial_is_expected_to_cost_the_mean_of_its_kind_and_nothing_else():
    fmnist, mnist = trials_of("within/fmnist"), trials_of("within/mnist")
    costs = costs_of([result_of(fmnist[0], 2.0), result_of(fmnist[1], 4.0)])
    assert costs == {Kind("cpu", "float32", "within/fmnist", "shels", "20 epochs"): 3.0}
    assert estimated([*fmnist, *mnist], "cpu", costs) == (9.0, 3)
    assert estimated(fmnist, "another device", costs) == (0.0, 3)
    shorter = CATALOGUE["within/fmnist"].trials(METHODS["shels"], 1, epochs=1)
    assert estimated(shorter, "cpu", costs) == (0.0, 1)
    assert kind_of(trials_of("within/digits")[0], "cpu").length == "300 steps"


def test_the_table_of_costs_reads_back():
    costs = costs_of([result_of(trials_of("within/fmnist")[0], 2.004)])
    assert {Kind(*row[:-1]): row[-1] for row in json.loads(table_of(costs))} == {next(iter(costs)): 2.0}
    assert json.loads(table_of({})) == []
    assert all(seconds > 0 for seconds in shipped_costs().values())
