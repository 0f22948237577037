"""Reports on learning class by class, from results whose every figure can be worked out again."""

from __future__ import annotations

import csv
import io
import math
import re
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure as Canvas
from scipy import stats

from shels import report
from shels.experiments.catalogue import CATALOGUE
from shels.experiments.methods import METHODS
from shels.experiments.trials import LEARNING_MEASURES, TrialResult
from shels.report import tables
from shels.report.breakdown import class_tables, epoch_curve, rates, stage_table, stages
from shels.report.charts import epochs
from shels.report.charts.classes import classes
from shels.report.charts.learning import curves
from shels.report.charts.networks import networks
from shels.report.drawing import KNOWN, PALETTE, colour
from shels.report.experiments import write_report
from shels.report.findings import bounds, learning_in_short
from shels.report.machine import learning_times, times
from shels.report.page import Mark
from shels.report.studies import studies
from shels.report.words import prose
from tests.report.test_experiments import run as detected
from tests.report.test_report import assert_sound

DIGITS, MNIST = "incremental/digits", "incremental/mnist"
WAYS = [name for name, method in METHODS.items() if method.task == "learning"]


def stage(trial, number, base, loss):
    """The figures of one stage; every class taken in costs `loss`, and every seed adds a hundredth."""
    last, found = number == len(trial.novel), base + 0.01 * trial.seed - loss * number
    return {
        "class": trial.novel[number - 1] if number else None,
        "classes": len(trial.known) + number,
        "overall": found,
        "first": found - 0.02 * number,
        "newest": found + 0.03 if number else None,
        "known": found - 0.1,
        "auroc": None if last else 0.9,
        "rejected": None if last else 0.7,
        "seconds": 2.0 * number + trial.seed if number else None,
    }


def result_of(trial, base=0.9, loss=0.1, network="one"):
    found = [stage(trial, number, base, loss) for number in range(len(trial.novel) + 1)]
    final = found[-1]["overall"]
    metrics = {
        "closed_set_accuracy": final,
        "first_accuracy": found[-1]["first"],
        "added_accuracy": final - 0.05,
        "forgetting": loss + 0.004 * (trial.seed % 2),
        "known_accuracy": final - 0.1,
        "acceptance": 0.8,
        "novel_accuracy": 0.7,
        "combined_accuracy": (final + 0.6) / 2,
        "auroc": 0.9 + 0.01 * (trial.seed % 3),
        "fpr95": 0.4,
    }
    per_class = {
        str(name): {"samples": 10, "named": 0.5 + 0.04 * trial.seed, "accepted": 0.8, "right": 0.4}
        for name in (*trial.known, *trial.novel)
    }
    check = {"step": 1, "epoch": 1.0, "validation_loss": 1.0, "validation_accuracy": 0.9, "network": network}
    details = {"course": found, "per_class": per_class, "checks": [check], "stages": {"training": 2.0}}
    return TrialResult(trial, metrics, 3.0, "cpu", {"shels": "1"}, details | {"stacked": 3})


def run(name=DIGITS, method="gaussian", count=3, **figures):
    return [result_of(trial, **figures) for trial in CATALOGUE[name].trials(METHODS[method], count)]


def written(folder, results):
    files = {str(path.relative_to(folder)): path for path in write_report(results, folder)}
    return files, assert_sound(files["report.html"].read_text("utf-8"))


def rows_of(path):
    return list(csv.DictReader(io.StringIO(path.read_text("utf-8"))))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A report on learning alone: SLDA forgets less than our Gaussians, joint training least."""
    results = run() + run(method="slda", loss=0.05) + run(method="joint", loss=0.01, network="two")
    return written(tmp_path_factory.mktemp("alone"), results)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return written(tmp_path_factory.mktemp("both"), run() + detected("within/digits", count=3, kept=False))


def test_a_report_on_learning_alone_speaks_of_nothing_else(alone):
    files, page = alone
    text = page.text.replace("\N{NO-BREAK SPACE}", " ")
    assert text.count("Learning class by class with SHELS") == 2  # as title and as heading
    assert "Novelty detection" not in text
    assert "Novel accuracy (the paper's OOD)" not in text
    assert (
        "bounds aside: digits with SLDA 76.00 ± 1.00 %, the best of 2 methods (Gaussians 61.00 ± 1.00 %)."
        in text
    )
    assert "ewer than 10 trials" not in text  # the paper names no number of trials for it
    assert "only 3" not in text
    assert "The paper prints curves of this, without numbers" in text
    charts = {name for name in files if name.endswith(".png")}
    assert charts == {
        f"figures/{name}.png"
        for name in ("learning-incremental", "training-incremental-digits", "classes-incremental-digits")
    }
    titles = ("All statistical tests", "Further measures", "Stage by stage", "Class by class")
    assert all(title in text for title in titles)


def test_a_report_on_both_kinds_has_a_part_for_each(both):
    text = both[1].text
    assert "Novelty detection and learning class by class with SHELS" in text
    assert "Novel accuracy (the paper's OOD)" in text
    assert "Final accuracy is the share" in text
    assert "Fewer than 10 trials, the paper's number, stand behind digits (3)." in text


def test_tables_as_csv_hold_the_measures_of_each_kind(both):
    trials = {row["experiment"]: row for row in rows_of(both[0]["trials.csv"])}
    learned, detected_ = trials[DIGITS], trials["within/digits"]
    assert float(learned["forgetting"]) == pytest.approx(0.1)
    assert float(learned["fpr95"]) == 0.4
    assert (detected_["forgetting"], detected_["fpr95"]) == ("", "")
    assert float(detected_["novel_accuracy"]) > 0
    means = {(row["experiment"], row["measure"]): row for row in rows_of(both[0]["summary.csv"])}
    values = [0.1, 0.104, 0.1]
    assert float(means[DIGITS, "forgetting"]["mean"]) == pytest.approx(statistics.mean(values))
    assert float(means[DIGITS, "forgetting"]["sd"]) == pytest.approx(statistics.stdev(values))
    assert [name for where, name in means if where == DIGITS][:5] == list(LEARNING_MEASURES)
    assert ("within/digits", "forgetting") not in means


def test_the_best_is_bold_for_forgetting_the_lowest_and_a_bound_never_is():
    results = run() + run(method="slda", loss=0.05) + run(method="joint", loss=0.01)
    table = tables.overview(studies(results), "caption")
    assert table.columns[2:] == (
        "final, %",
        "added, %",
        "forgetting, %",
        "with rejection, %",
        "AUROC",
        "Trials",
    )
    kinds = {row[1]: [cell.kind for cell in row[2:6]] for row in table.rows}
    assert kinds == {"Gaussians": ["plain"] * 4, "SLDA": ["best"] * 4, "joint training": ["plain"] * 4}
    assert table.rows[1][4].text == "5.13 ± 0.23"
    assert "over the five measures" in table.note
    assert "is bold, bounds aside." in table.note
    alone = tables.overview(studies(run(method="joint", loss=0.01) + run(method="fine-tune")), "")
    assert [cell.kind for cell in alone.rows[1][2:5]] == ["best"] * 3  # where nothing but bounds was run


def test_each_of_the_five_measures_is_tested_against_the_first_method():
    ours = run(count=6)
    theirs = [
        replace(each, metrics=each.metrics | {"forgetting": each.metrics["forgetting"] + 0.02 * seed**0.5})
        for seed, each in enumerate(run(method="slda", count=6))
    ]
    (study,) = studies(ours + theirs)
    tests = study.compared[study.groups[1]]
    assert tuple(tests) == LEARNING_MEASURES
    sides = [[each.metrics["forgetting"] for each in side] for side in (theirs, ours)]
    oracle = stats.ttest_rel(*sides)
    assert tests["forgetting"].t == pytest.approx(oracle.statistic)
    assert tests["forgetting"].p == pytest.approx(oracle.pvalue)
    assert tests["forgetting"].p_holm == pytest.approx(5 * oracle.pvalue)  # the four others do not differ
    table = tables.statistics([study])
    assert [row[1].replace("\N{NO-BREAK SPACE}", " ") for row in table.rows] == [
        "final accuracy",
        "accuracy of added classes",
        "forgetting",
        "accuracy with rejection",
        "AUROC",
    ]
    assert "over the five measures of an experiment. Wilcoxon" in table.note


def test_a_stage_is_the_mean_over_the_trials():
    (study,) = studies(run(count=2))
    found = stages(study.groups[0])
    assert [each.classes for each in found] == [7, 8, 9, 10]
    assert found[1].overall.mean == pytest.approx(0.805)  # 0.9 and 0.91, a tenth less
    assert found[1].overall.sd == pytest.approx(0.01 / math.sqrt(2))
    assert found[0].newest is None
    table = stage_table(study)
    assert table.columns == ("Method", "Of", "7 known", "8", "9", "10")
    assert [row[1:] for row in table.rows] == [
        ["all classes", "90.50", "80.50", "70.50", "60.50"],
        ["the first", "90.50", "78.50", "66.50", "54.50"],
        ["the newest", None, "83.50", "73.50", "63.50"],
    ]


def test_a_stage_that_was_not_measured_is_left_out_of_its_mean():
    results = run(count=2)
    results[1].details["course"][1].update(overall=math.nan, newest=None)
    found = stages(studies(results)[0].groups[0])
    assert found[1].overall.mean == pytest.approx(0.8)
    assert (found[1].overall.n, found[2].overall.n) == (1, 2)


def test_the_time_for_a_class_is_the_mean_over_classes_and_trials():
    table = learning_times(studies(run(count=2) + run(MNIST, count=1) + run(MNIST, method="slda", count=1)))
    assert table.columns == ("Method", "MNIST", "digits")
    assert table.rows == [["Gaussians", "4.0 s", "4.5 s"], ["SLDA", "4.0 s", None]]  # 2, 4, 6 s; one more


def test_few_methods_share_a_panel_and_many_have_one_each():
    few = [each for method in WAYS[: len(PALETTE)] for each in run(method=method, count=1)]
    (figure,) = curves(studies(few + run(MNIST, count=1)))
    drawn = figure.svg().lower()
    assert all(shade.lower() in drawn for shade in PALETTE)
    assert all(f">{name}<" in drawn for name in ("mnist", "digits"))
    more = few + run(method=WAYS[len(PALETTE)], count=1)
    (many,) = curves(studies(more))
    drawn = many.svg()
    assert all(f">{METHODS[method].title} 60.0<" in drawn for method in WAYS[: len(PALETTE) + 1])
    others = [shade for shade in PALETTE[1:6] if shade.lower() in drawn.lower()]
    assert KNOWN.lower() in drawn.lower()
    assert others == []  # no colour has to be told from another


def test_networks_of_many_methods_never_share_a_colour():
    results = [
        each
        for place, method in enumerate(WAYS[: len(PALETTE) + 1])
        for each in run(method=method, count=1, network="last" if place == len(PALETTE) else "first")
    ]
    (study,) = studies(results)
    assert [shade for _, shade, _ in networks(study, "checks")] == [colour(0), colour(1)]


def test_a_class_is_counted_once_where_it_was_first_and_once_where_it_was_taken_in():
    results = run(count=3)
    (study,) = studies(results)
    for order in ("known", "novel"):
        found = rates(study.groups[0], "per_class", "named", order)
        for name in range(10):
            shares = [0.5 + 0.04 * each.trial.seed for each in results if name in getattr(each.trial, order)]
            assert (str(name) in found) == bool(shares)
            if shares:
                assert found[str(name)].mean == pytest.approx(statistics.mean(shares))
                assert found[str(name)].trials == len(shares)
    first, added = class_tables(study)
    assert (first.columns[0], added.columns[0]) == ("First class", "Class taken in")
    zero = [each.trial.seed for each in results if 0 in each.trial.known]
    named = 0.5 + 0.04 * statistics.mean(zero)
    assert first.rows[0] == ["0", len(zero), 10, *(pytest.approx(share) for share in (named, 0.8, 0.4))]


def test_of_many_methods_classes_are_shown_in_tables_alone():
    (study,) = studies([each for method in WAYS[:9] for each in run(method=method, count=1)])
    assert classes(study) == []
    assert len(class_tables(study)) == 18


def test_results_without_details_still_make_a_report(tmp_path):
    results = [replace(each, details={}) for each in run(count=2)]
    files, page = written(tmp_path, results)
    assert not any(name.endswith(".png") for name in files)
    assert "kept no details" in page.text
    assert "digits with Gaussians 60.50 ± 0.71" in page.text.replace("\N{NO-BREAK SPACE}", " ")


def test_words_name_bounds_only_where_they_were_run():
    assert bounds(studies(run(count=1))) == []
    both = run(method="fine-tune", count=1) + run(method="joint", count=1)
    words = prose("introduction", family="incremental", bounds=bounds(studies(both)))
    assert "Bounds, not rivals: fine-tuning, which does nothing" in words
    assert len(list(learning_in_short(studies(run(count=10))))) == 1


def test_a_single_trial_has_no_spread_and_no_star():
    table = tables.overview(studies(run(count=1) + run(method="slda", count=1)), "")
    assert table.rows[1][2] == Mark("60.00")


def test_the_table_of_times_says_that_methods_with_one_network_share_its_time():
    assert "Methods that share a network share its training time." in times(studies(run(count=1))).note


def test_every_text_that_the_pages_ask_for_stands_in_the_template_and_no_other():
    source = "".join(path.read_text() for path in Path(report.__file__).parent.rglob("*.py"))
    used = {*re.findall(r'prose\(\s*"(\w+)"', source), *re.findall(r'"(decision_by_\w+)"', source)}
    used |= {f"{kind}_measures" for kind in ("detection", "exclusivity", "learning", "open_world")}
    written = (Path(report.__file__).parent / "templates/prose.txt").read_text()
    assert {*re.findall(r"{% macro (\w+)", written)} == used | {"listed", "pairing", "weakest"}


# Epoch by epoch ----------------------------------------------------------------------------------------


def with_curves(results, lift=0.0):
    """Two classes of two epochs each; every seed is a tenth better."""

    def curve(seed):
        up = 0.1 * seed + lift
        first = [[1, 0, 0.4 + up, 0.0], [1, 1.0, 0.45 + up, 0.5], [1, 2.0, 0.5 + up, 0.6]]
        return [[0, 0, 0.6 + up, None], *first, [2, 0, 0.3 + up, 0.0], [2, 4.0, 0.35 + up, 0.7]]

    return [replace(each, details=each.details | {"curve": curve(each.trial.seed)}) for each in results]


def test_a_curve_is_averaged_point_by_point_over_trials():
    (study,) = studies(with_curves(run(count=3)))
    found = epoch_curve(study.groups[0])
    assert [point.classes for point in found] == [0, 0, 0.5, 1, 1, 2]
    assert [point.overall.mean for point in found] == pytest.approx([0.7, 0.5, 0.55, 0.6, 0.4, 0.45])
    assert all(point.overall.sd == pytest.approx(0.1) for point in found)
    assert found[0].newest is None
    assert [point.newest.mean for point in found[1:]] == pytest.approx([0.0, 0.5, 0.6, 0.0, 0.7])


def test_records_without_curves_have_none_and_no_figure():
    (study,) = studies(run())
    assert epoch_curve(study.groups[0]) == []
    assert epochs.curves([study]) == []


def test_trials_that_learned_a_class_in_more_or_fewer_epochs_meet_at_its_ends():
    short, long = (
        [[1, 0, 0.4, 0.0], [1, 1, 0.6, 0.5]],
        [[1, 0, 0.4, 0.0], [1, 1, 0.8, 0.2], [1, 2, 0.8, 0.3], [1, 4, 1.0, 0.7]],
    )
    results = [
        replace(each, details={"curve": curve})
        for each, curve in zip(run(count=2), (short, long), strict=True)
    ]
    (study,) = studies(results)
    found = epoch_curve(study.groups[0])
    assert [point.classes for point in found] == [0, 0.25, 0.5, 1]
    assert [point.overall.mean for point in found] == pytest.approx([0.4, 0.625, 0.65, 0.8])  # 0.45, 0.5
    assert [point.newest.mean for point in found] == pytest.approx([0.0, 0.1625, 0.275, 0.6])


def test_every_epoch_is_drawn_once_records_have_it_of_eight_methods_at_most():
    groups = (with_curves(run(method=name), 0.01 * place) for place, name in enumerate(WAYS))
    found = studies([result for group in groups for result in group])
    (figure,) = epochs.curves(found)
    canvas = Canvas()
    figure.draw(canvas)
    drawn = [text.get_text() for text in canvas.legends[0].get_texts()]
    paper = ["penalty", "shels-no-sparsity", "shels-no-penalty", "ags-cl", "gdumb", "shels-gdumb"]
    assert drawn == [METHODS[name].title for name in (*paper, "gaussian", "proximal")]
    assert [len(axes.get_lines()) for axes in canvas.axes] == [8, 8]
    others = [METHODS[name].title for name in WAYS if METHODS[name].title not in drawn]
    assert figure.caption.endswith(f"room for eight methods: {', '.join(others)}.")
    (figure,) = epochs.curves(studies(with_curves(run(method="ewc"))))
    assert "Left out" not in figure.caption


def test_a_method_that_learns_in_one_pass_is_drawn_level():
    curve = [[0, 0, 0.9, None], [1, 0, 0.8, 0.0], [1, 1, 0.85, 0.5]]
    results = [replace(each, details={"curve": curve}) for each in run(method="slda")]
    canvas = Canvas()
    epochs.curves(studies(results))[0].draw(canvas)
    assert [axes.get_lines()[0].get_drawstyle() for axes in canvas.axes] == ["steps-pre"] * 2
