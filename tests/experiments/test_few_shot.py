"""Learning from few images, and the open-set protocol: trials on the digits."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from shels.data.sources import load_named
from shels.errors import DataError
from shels.experiments.catalogue import CATALOGUE, ENTRY_SIZES, find_experiments
from shels.experiments.engine import run
from shels.experiments.incremental_trial import IncrementalTrial
from shels.experiments.methods import METHODS
from shels.experiments.open_set import SPLITS
from shels.experiments.published import literature
from shels.experiments.records import Records
from shels.experiments.trials import FEW_SHOT_MEASURES, OPEN_SET_MEASURES, Trial, measures_of
from shels.report.charts import FAMILY, drawn
from shels.report.charts.sweeps import few_shot_of
from shels.report.experiments import report_page
from shels.report.page import html
from shels.report.studies import studies
from shels.report.tables import overview

FEW = CATALOGUE["few-shot/digits"]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The results of one seed of both Gaussian learners and of SLDA at three sizes."""
    brief = replace(FEW, sweep=tuple((("images", size),) for size in (1, 5, 50)))
    methods = [METHODS[name] for name in ("gaussian", "gaussian-rectified", "slda")]
    trials = [trial for method in methods for trial in brief.trials(method, 1)]
    records = Records(tmp_path_factory.mktemp("records"))
    advances = list(run(trials, records, lambda name, size: load_named(name, None, size), device="cpu"))
    assert not [each.message for each in advances if each.kind == "failed"]
    return [records.find(trial) for trial in trials]


def figure(found, method, images, key):
    (value,) = [r.metrics[key] for r in found if (r.trial.method, r.trial.images) == (method, images)]
    return value


def test_a_trial_of_few_images_is_another_trial_and_one_of_all_is_what_it_was():
    few = FEW.trials(METHODS["gaussian"], 1)
    assert [trial.images for trial in few] == list(ENTRY_SIZES) == [1, 2, 5, 10, 20, 50, 100, 500]
    assert len({trial.key for trial in few}) == len(few)
    assert all(Trial.from_identity(trial.identity()) == trial for trial in few)
    plain = CATALOGUE["incremental/digits"].trials(METHODS["gaussian"], 1)[0]
    assert "images" not in plain.identity()


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "5", True])
def test_a_record_of_no_number_of_images_is_refused(wrong):
    data = FEW.trials(METHODS["gaussian"], 1)[0].identity() | {"images": wrong}
    with pytest.raises(DataError, match="images must be a whole number"):
        Trial.from_identity(data)


def test_methods_that_hold_images_out_begin_at_five():
    assert [trial.images for trial in FEW.trials(METHODS["slda"], 1)] == [5, 10, 20, 50, 100, 500]


def test_more_images_are_the_fewer_and_others():
    data = load_named("digits")
    places = []
    for trial in FEW.trials(METHODS["gaussian"], 1):
        learner = torch.zeros(0)  # nothing of it is asked
        places.append(IncrementalTrial(trial, learner, data, data.train.inputs).coming_places())  # type: ignore[arg-type]
    sizes = [len(some) for some in places]
    assert sizes[:7] == [1, 2, 5, 10, 20, 50, 100]
    assert 100 < sizes[7] < 200  # all that there are
    for fewer, more in pairwise(places):
        assert torch.isin(fewer, more).all()
        assert torch.equal(more, more.sort().values)


def test_accuracy_rises_with_the_images_and_one_image_is_learned_from(found):
    for method in ("gaussian", "gaussian-rectified"):
        rising = [figure(found, method, size, "added_accuracy") for size in (1, 5, 50)]
        assert 0.1 < rising[0] < rising[2]  # of ten classes, each as likely
        assert rising[2] > 0.9
        assert figure(found, method, 50, "closed_set_accuracy") > 0.93
    assert 0 <= figure(found, "slda", 5, "added_false_alarm_rate") <= 1


def test_false_alarms_are_what_is_not_accepted(found):
    for result in found:
        assert result.metrics["false_alarm_rate"] == pytest.approx(1 - result.metrics["acceptance"])
        rates = result.details["per_class"]
        added = [1 - rates[str(name)]["accepted"] for name in result.trial.novel]
        assert result.metrics["added_false_alarm_rate"] == pytest.approx(sum(added) / 3)


def test_all_sizes_share_one_training(found):
    assert len({tuple(map(str, result.details["checks"])) for result in found}) == 1


def test_the_chart_has_a_line_for_each_method_and_the_page_says_what_it_is(found):
    (study,) = studies(found)
    assert study.measures == FEW_SHOT_MEASURES
    assert {name: list(points) for name, points in few_shot_of(study).items()} == {
        "gaussian": [1, 5, 50],
        "gaussian-rectified": [1, 5, 50],
        "slda": [5, 50],
    }
    (chart,) = drawn(FAMILY, "few-shot", [study])
    assert "images of a new class" in chart.svg()
    assert "Gaussians, images 5" in [row[1] for row in overview([study], "").rows]
    assert "Methods that hold images out begin at 5" in html(report_page([study]))


# The open-set protocol ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mnist", "svhn", "cifar10", "digits"])
def test_the_protocol_has_five_splits_of_six_known_and_four_novel_classes(name):
    experiment = CATALOGUE[f"osr/{name}"]
    trials = experiment.trials(METHODS["max-logit"], experiment.trial_count)
    assert [trial.known for trial in trials] == list(SPLITS[name])
    for trial in trials:
        assert sorted((*trial.known, *trial.novel)) == list(range(10))
        assert len(trial.known) == 6
    assert measures_of(experiment.name) == OPEN_SET_MEASURES
    later = experiment.classes(5)[0]
    assert len(set(later)) == 6


def test_the_family_is_run_by_the_methods_that_there_are():
    assert [each.name for each in find_experiments(["osr"])] == ["osr/mnist", "osr/svhn", "osr/cifar10"]
    for each in find_experiments(["osr"]):
        assert each.methods[:3] == ("max-logit", "shels", "shels-gaussian")
        assert all(method in METHODS for method in each.methods)


def test_a_trial_on_the_digits_has_both_measures_and_stands_beside_what_others_published(tmp_path):
    trials = [CATALOGUE["osr/digits"].trials(METHODS[name], 1)[0] for name in ("max-logit", "shels-gaussian")]
    records = Records(tmp_path)
    list(run(trials, records, lambda name, size: load_named(name, None, size), device="cpu"))
    results = [records.find(trial) for trial in trials]
    assert all(result.metrics["auroc"] > 0.8 for result in results)
    assert all(result.metrics["closed_set_accuracy"] > 0.93 for result in results)
    renamed = [replace(each, trial=replace(each.trial, experiment="osr/svhn")) for each in results]
    (study,) = studies(renamed)
    table = overview([study], "")
    shown = [str(getattr(row[1], "text", row[1])) for row in table.rows]
    assert [any(name in row for row in shown) for name in ("MLS", "ConOSR", "SpHOR")] == [True] * 3
    assert [each.auroc for each in literature("osr/cifar10")] == [0.936, 0.942, 0.945]
    assert literature("within/mnist") == ()
