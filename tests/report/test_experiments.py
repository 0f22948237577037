from __future__ import annotations

import csv
import io
import json
import math
import statistics
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from shels.cli.report import report
from shels.errors import DataError
from shels.experiments.catalogue import CATALOGUE
from shels.experiments.methods import METHODS
from shels.experiments.published import published
from shels.experiments.records import Records
from shels.experiments.trials import MEASURES, TrialResult
from shels.report import charts, tables
from shels.report.breakdown import class_tables
from shels.report.charts.detection import overview
from shels.report.drawing import Figure
from shels.report.experiments import write_report
from shels.report.page import Fold, Mark, Page, Section, Table, html, markdown
from shels.report.studies import studies
from shels.report.words import duration, figure, p_value
from tests.report.test_report import Reader, assert_sound


def metrics(base=0.8, seed=0):
    """Figures with a small spread, so that every mean can be worked out again."""
    known, novel = base + 0.01 * (seed % 3), base + 0.05 + 0.02 * (seed % 2)
    return {
        "known_accuracy": known,
        "novel_accuracy": novel,
        "combined_accuracy": (known + novel) / 2,
        "auroc": base + 0.1 + 0.004 * seed,
    }


def details(trial):
    """What a run keeps of a trial, its figures made up from the seed."""
    draws = np.random.default_rng(trial.seed)
    size = len(trial.known)
    matrix = np.full((size, size), 0.9) + 0.01 * trial.seed
    np.fill_diagonal(matrix, 0)
    return {
        "per_class": {str(c): {"samples": 10, "accepted": 0.9, "right": 0.8} for c in trial.known},
        "per_novel_class": {str(c): {"samples": 20, "rejected": float(draws.random())} for c in trial.novel},
        "exclusivity": matrix.tolist(),
        "checks": [
            {
                "step": 10 * epoch,
                "epoch": float(epoch),
                "training_loss": 1 / epoch,
                "validation_loss": 2 / epoch,
                "validation_accuracy": 1 - 0.1 / epoch,
            }
            for epoch in (1, 2, 3)
        ],
        "stages": {"training": 2.0, "measuring": 0.5},
        "stacked": 10,
        "precision": "float32",
    }


def run(name="within/fmnist", method="shels", count=10, base=0.8, *, epochs=None, kept=True):
    trials = CATALOGUE[name].trials(METHODS[method], count, epochs=epochs)
    versions = {"shels": "1", "torch": "2", "python": "3"}
    return [
        TrialResult(trial, metrics(base, trial.seed), 2.5, "a GPU", versions, details(trial) if kept else {})
        for trial in trials
    ]


def written(tmp_path, results):
    files = {str(path.relative_to(tmp_path)): path for path in write_report(results, tmp_path)}
    return files, assert_sound(files["report.html"].read_text("utf-8"))


def rows_of(path):
    return list(csv.DictReader(io.StringIO(path.read_text("utf-8"))))


def rows_with(table, *start):
    """The rows of a table that begin so, as texts."""
    rows = [[cell.text if isinstance(cell, Mark) else cell for cell in row] for row in table.rows]
    return [row for row in rows if row[: len(start)] == list(start)]


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    results = run() + run(method="shels-gaussian", base=0.7) + run("across/mnist-fmnist", count=3)
    folder = tmp_path_factory.mktemp("full")
    return folder, *written(folder, results)


def test_every_file_is_written_and_the_page_is_sound(full):
    _, files, page = full
    assert {"report.html", "report.md", "trials.csv", "summary.csv"} < files.keys()
    charts = [name for name in files if name.endswith(".png")]
    assert len(charts) == len(page.all("svg")) == 8  # bars of two families, three charts of two experiments
    assert "figures/detection-within.png" in charts
    for name in charts:
        assert Image.open(io.BytesIO(files[name].read_bytes())).width >= 700


def test_the_same_results_give_the_same_bytes_in_any_order_of_writing(full, tmp_path):
    _, files, _ = full
    results = run() + run(method="shels-gaussian", base=0.7) + run("across/mnist-fmnist", count=3)
    again = write_report(results[::-1], tmp_path)
    assert len(again) == len(files)
    assert all(path.read_bytes() == files[str(path.relative_to(tmp_path))].read_bytes() for path in again)


def test_the_summary_holds_mean_spread_and_the_published_figure(full):
    rows = {(r["experiment"], r["method"], r["measure"]): r for r in rows_of(full[1]["summary.csv"])}
    row = rows["within/fmnist", "shels", "known_accuracy"]
    values = [0.8 + 0.01 * (seed % 3) for seed in range(10)]
    assert float(row["mean"]) == pytest.approx(statistics.mean(values))
    assert float(row["sd"]) == pytest.approx(statistics.stdev(values))
    half = 2.262157 * statistics.stdev(values) / math.sqrt(10)  # t of 97.5 % with 9 degrees of freedom
    assert float(row["ci95_high"]) == pytest.approx(statistics.mean(values) + half, abs=1e-6)
    assert float(row["published_mean"]) == 0.7768
    assert float(row["difference"]) == pytest.approx(statistics.mean(values) - 0.7768)
    assert row["within_interval"] == ("yes" if statistics.mean(values) <= 0.7768 + 0.027 else "no")
    assert rows["within/fmnist", "shels-gaussian", "auroc"]["published_mean"] == ""


def test_the_csv_of_trials_has_a_row_for_each_with_its_classes_and_figures(full):
    rows = rows_of(full[1]["trials.csv"])
    assert len(rows) == 23
    first = next(row for row in rows if row["experiment"] == "within/fmnist" and row["seed"] == "3")
    trial = CATALOGUE["within/fmnist"].trials(METHODS["shels"], 4)[3]
    assert json.loads(first["known"]) == list(trial.known)
    assert float(first["auroc"]) == metrics(seed=3)["auroc"]
    assert (first["device"], first["precision"], first["trained_together"]) == ("a GPU", "float32", "10")
    assert first["key"] == trial.key


def test_our_figures_stand_beside_the_published_ones_with_the_difference_and_a_clear_answer():
    table = tables.against_published(studies(run()), "caption")
    row = rows_with(table, "FMNIST", "novel accuracy")[0]
    assert row[2:] == ["86.00 ± 1.05", "64.81 ± 14.91", "+21.19", "✗ above, 1.4 sd away"]
    assert rows_with(table, "FMNIST", "known accuracy")[0][-1] == "✗ above, 1.2 sd away"
    row = rows_with(table, "FMNIST", "AUROC")[0]
    assert row[2:] == ["0.918 ± 0.012", "0.790 ± 0.063", "+0.128", "✗ above, 2.0 sd away"]


def test_a_mean_that_is_the_published_one_lies_within():
    results = [
        replace(each, metrics={name: published("within/fmnist", "shels", name).mean for name in MEASURES})
        for each in run()
    ]
    table = tables.against_published(studies(results), "caption")
    rows = [row for row in rows_with(table, "FMNIST") if row[1] != "exclusivity"]
    assert [row[-2:] for row in rows] == [["0.00", "✓ yes"]] * 3 + [["0.000", "✓ yes"]]


def test_the_best_is_bold_and_stars_hang_on_the_method_that_differs():
    table = tables.overview(studies(run() + run(method="standard-linear", base=0.7)), "caption")
    first, other = table.rows[0], table.rows[1]
    assert [cell.kind for cell in first[2:6]] == ["best"] * 4
    assert [cell.kind for cell in other[2:6]] == ["plain"] * 4
    assert first[2].after == ""
    assert "paired by seed" in table.note
    shuffled = [replace(each, metrics=metrics(0.7, (7 * each.trial.seed + 3) % 10)) for each in run()]
    moved = [replace(each, trial=replace(each.trial, method="standard-linear")) for each in shuffled]
    table = tables.overview(studies(run() + moved), "caption")
    assert table.rows[1][2].after == "***"


def test_published_rows_are_part_of_the_overview_and_marked_as_such():
    table = tables.overview(studies(run()), "caption")
    rows = {row[1].text: row for row in table.rows if isinstance(row[1], Mark)}
    assert rows["SHELS, published"][3] == Mark("64.81 ± 14.91", "quiet")
    assert rows["scaled cosine, published"][5] == Mark("0.740 ± 0.084", "quiet")


def test_fewer_than_ten_trials_are_said_in_words_and_in_the_table(full):
    assert "Fewer than 10 trials, the paper's number, stand behind MNIST known, FMNIST novel (3)" in (
        full[2].text.replace("\N{NO-BREAK SPACE}", " ")
    )
    assert "only 3" in full[2].text


def test_results_with_other_settings_are_never_mixed(tmp_path):
    results = (
        run(base=0.8) + run(count=4, base=0.6, epochs=2) + run(method="shels-gaussian", count=4, epochs=2)
    )
    (study,) = studies(results)
    assert [(group.title, len(group.results)) for group in study.groups] == [
        ("SHELS", 10),
        ("SHELS, epochs 2", 4),
        ("SHELS network, Gaussian score, epochs 2", 4),
    ]
    assert study.reference(study.groups[2]) is study.groups[1]
    assert list(study.compared) == [study.groups[2]]
    files, page = written(tmp_path, results)
    assert "training.epochs 2 (paper: 20)" in page.text
    assert {row["variant"] for row in rows_of(files["summary.csv"])} == {
        "training.epochs=20",
        "training.epochs=2",
    }


def test_only_figures_with_the_papers_settings_count_as_met_or_not(tmp_path):
    _, page = written(tmp_path, run(count=2, epochs=1))
    assert "published means met" not in page.text
    assert "Run with other settings than the paper's" in page.text


def test_vgg16_without_pretrained_weights_is_not_as_in_the_paper():
    (study,) = studies(run("across/cifar10-svhn", count=2))
    assert study.groups[0].departures() == {"network.weights": ("–", "pretrained on ImageNet")}
    trials = CATALOGUE["across/cifar10-svhn"].trials(METHODS["shels"], 1, weights="vgg.safetensors")
    (study,) = studies([TrialResult(trials[0], metrics(), 1.0, "cpu", {})])
    assert study.groups[0].departures() == {}


def test_an_experiment_of_ones_own_gets_its_section_without_any_detail(tmp_path):
    trial = replace(
        run(count=1)[0].trial,
        experiment="mine/<b>cats</b> & $dogs$",
        method="my|method",
        known=("tabby", "*lion*"),
        novel=("beagle",),
    )
    results = [TrialResult(trial, {"known_accuracy": 0.5}, 1.0, "cpu", {}, {})]
    files, page = written(tmp_path, results)
    assert not page.all("b")
    assert "mine/<b>cats</b> & $dogs$" in page.text
    assert "kept no details" in page.text
    assert "my\\|method" in files["report.md"].read_text("utf-8")


def test_missing_or_partial_details_leave_out_their_charts_alone(tmp_path):
    results = run(count=2, kept=False) + run(method="standard-linear", count=2)
    results[2].details["checks"] = [{"epoch": 1.0, "validation_loss": None, "validation_accuracy": None}]
    results[3].details.update({"checks": [], "exclusivity": [[0.0]], "stages": None})
    files, _ = written(tmp_path, results)
    assert "figures/training-within-fmnist.png" not in files
    assert "figures/classes-within-fmnist.png" in files


def test_trials_of_another_device_or_precision_are_told(tmp_path):
    results = run(count=2)
    results[1].details["precision"] = "bfloat16"
    _, page = written(tmp_path, results)
    assert "in more than one precision: FMNIST" in page.text


def test_methods_that_share_their_networks_share_their_training_curve(full):
    labels = [attrs["aria-label"] for attrs in full[2].all("svg")]
    assert sum(label.startswith("Training curves of FMNIST") for label in labels) == 1
    assert full[2].words.count("SHELS · SHELS network, Gaussian score") == 2  # curve and matrix, once each


def test_a_class_is_averaged_over_the_trials_in_which_it_had_the_role(tmp_path):
    results = run(count=3)
    text = Reader(html(Page("t", "l", [Section("s", class_tables(studies(results)[0]))]))).text
    known = [c for each in results for c in each.trial.known]
    novel = {
        c: [r.details["per_novel_class"][str(c)]["rejected"] for r in results if c in r.trial.novel]
        for c in range(10)
    }
    for name in range(10):
        if name in known:
            assert f"{name} {known.count(name)} 10 90.0 % 80.0 %" in text
        if novel[name]:
            assert f"{name} {len(novel[name])} 20 {100 * statistics.mean(novel[name]):.1f} %" in text


def test_bars_of_the_paper_stand_beside_ours_and_the_picture_is_said_in_one_sentence():
    (figure,) = overview(studies(run()))
    words = Reader(figure.svg()).text
    assert all(name in words for name in ("FMNIST", "SHELS, published", "scaled cosine, published"))
    assert all(name in words for name in ("known", "novel", "combined", "AUROC"))
    assert figure.alt.count(".") == 1
    assert len(figure.alt) < 120
    assert figure.png().startswith(b"\x89PNG")


def test_a_chart_entered_in_the_table_is_on_the_page_in_the_markdown_and_a_file(tmp_path, monkeypatch):
    def mine(study):
        return [Figure("mine", lambda canvas: canvas.text(0, 0, "drawn"), (100, 80), "My own.", study.name)]

    monkeypatch.setitem(charts.STUDY, "networks", (*charts.STUDY["networks"], mine))
    files, page = written(tmp_path, run(count=1, kept=False))
    assert [attrs["aria-label"] for attrs in page.all("svg")][-1] == "My own."
    assert "drawn within/fmnist" in page.text
    assert "![My own.](figures/mine.png)\n\nwithin/fmnist\n" in files["report.md"].read_text("utf-8")
    assert Image.open(io.BytesIO(files["figures/mine.png"].read_bytes())).size == (200, 160)


def test_the_settings_stand_whole_in_the_page_and_once_for_all_that_share_them(full):
    text = full[2].text
    assert text.count("training.optimiser.learning_rate") == 2  # MNIST's and FMNIST's
    assert "within/fmnist (SHELS); within/fmnist (SHELS network, Gaussian score)" in text


def test_of_a_trial_with_two_results_the_last_counts():
    results = run(count=1, base=0.5) + run(count=1, base=0.8)
    (study,) = studies(results)
    assert study.groups[0].values("known_accuracy") == [0.8]


def test_results_that_cannot_be_paired_get_no_test_but_a_reason():
    ours, theirs = run(count=2), run(method="standard-linear", count=2)
    swapped = [replace(each, trial=replace(each.trial, known=each.trial.novel)) for each in theirs]
    table = tables.statistics(studies(ours + swapped))
    assert "Where there is no test: within/fmnist, seed 0" in table.note
    assert rows_with(table)[0][3] is None


def test_no_results_are_refused(tmp_path):
    with pytest.raises(DataError, match="no result"):
        write_report([], tmp_path)


@pytest.mark.parametrize(
    ("measure", "value", "sign", "shown"),
    [
        ("known_accuracy", 0.85074, False, "85.07"),
        ("auroc", 0.9604, False, "0.960"),
        ("known_accuracy", -0.01234, True, "−1.23"),
        ("known_accuracy", 0.01234, True, "+1.23"),
        ("auroc", -0.0001, True, "0.000"),
        ("auroc", 0.0001, True, "0.000"),
        ("auroc", None, True, "–"),
        ("auroc", math.nan, False, "–"),
    ],
)
def test_a_figure_is_shown_in_the_papers_units(measure, value, sign, shown):
    assert figure(measure, value, sign=sign) == shown


def test_times_and_probabilities_are_shown_as_people_say_them():
    assert [duration(s) for s in (0.25, 12.34, 250, 1500, 3599.9, 7500)] == [
        "0.25 s",
        "12.3 s",
        "4 min 10 s",
        "25 min",
        "1 h 0 min",
        "2 h 5 min",
    ]
    assert [p_value(p) for p in (0.0004, 0.0471, None)] == ["< 0.001", "0.047", "–"]


def test_rows_that_begin_alike_share_their_first_cell():
    table = Table(("a", "b"), [("x", 1), ("x", 2), ("y", 3)], merged=True, note="a note")
    page = html(Page("t", "l", [Section("s", [Fold("more", [table])])], contents=True))
    assert "rowspan='2'>x</th>" in page
    assert page.count("<tbody>") == 2
    assert Reader(page).text.endswith("s more a b x 1 2 y 3 a note")
    assert "<a href='#part-0'>s</a>" in page
    assert "| x | 1 |\n|  | 2 |\n| y | 3 |" in markdown(Page("t", "l", [Section("s", [table])]), "figures")


def test_markdown_takes_nothing_for_markup():
    evil = "<i>*a*</i> | _b_ $c$ [d](e) &amp;"
    text = markdown(
        Page(evil, evil, [Section(evil, [evil, Table((evil,), [(Mark(evil, "best"),)])])]), "figures"
    )
    assert "<i>" not in text
    assert "*a*" not in text.replace("\\*", "")
    assert "&amp;amp;" in text


def test_the_command_writes_beside_the_results_or_elsewhere_and_lists_its_files(tmp_path):
    import typer

    app = typer.Typer()
    app.command()(report)
    records = Records(tmp_path / "results")
    for result in run(count=2):
        records.append(result)
    said = CliRunner().invoke(app, [str(tmp_path / "results"), "--json"])
    assert said.exit_code == 0
    outcome = json.loads(said.stdout)
    assert (outcome["trials"], outcome["experiments"]) == (2, ["within/fmnist"])
    assert str(tmp_path / "results" / "report.html") in outcome["files"]
    said = CliRunner().invoke(app, [str(tmp_path / "results"), "--out", str(tmp_path / "elsewhere")])
    assert "2 trials of 1 experiment: open" in said.stdout
    assert (tmp_path / "elsewhere" / "summary.csv").exists()


def test_many_methods_are_drawn_as_dots_few_as_bars(tmp_path):
    methods = ["shels", "shels-gaussian", "standard-linear", "msp", "energy", "knn", "vim", "openmax"]
    results = [
        each
        for place, name in enumerate(methods)
        for each in run(method=name, count=2, base=0.5 + place / 20)
    ]
    write_report(results, tmp_path / "many")
    write_report(run(count=2), tmp_path / "few")
    page = (tmp_path / "many" / "report.html").read_text()
    assert "Hollow: what the paper published" in page
    assert all(title in page for title in ("k-NN", "ViM", "OpenMax", "scaled cosine, published"))
    assert "Hollow" not in (tmp_path / "few" / "report.html").read_text()


def test_methods_that_share_networks_are_compared_seed_by_seed_also_across_data_sets():
    across = "across/mnist-fmnist"
    made = [run(across, method=name, base=base) for name, base in (("shels", 0.8), ("shels-gaussian", 0.7))]
    made.append(run(across, method="standard-linear", base=0.6))
    (study,) = studies([each for results in made for each in results])
    _, gaussian, linear = study.groups
    assert not study.paired
    assert study.pairs(gaussian)
    assert not study.pairs(linear)
    assert study.compared[gaussian]["auroc"].n == 10  # pairs
    assert study.compared[linear]["auroc"].n == 20  # values
    table = tables.overview([study], "caption")
    assert "share their classes or their network" in table.note


def test_a_short_name_leaves_out_remarks_of_the_catalogue_and_nothing_of_ones_own():
    assert studies(run("within/digits", count=1))[0].short == "digits"
    own = [replace(run(count=1)[0], trial=replace(run(count=1)[0].trial, experiment="mine (again)"))]
    assert studies(own)[0].short == "mine (again)"


def test_what_was_measured_beyond_the_four_stands_apart_under_its_own_names():
    results = [
        replace(each, metrics=each.metrics | {"closed_set_accuracy": 0.9, "fpr95": 0.25})
        for each in run(count=2)
    ]
    table = tables.further(studies(results))
    assert table.columns[2:] == (
        "closed-set accuracy",
        "novel accepted where 95 % of known are",
        "exclusivity",
    )
    assert table.rows[0][2:] == ["90.00 ± 0.00", "25.00 ± 0.00", "0.905 ± 0.007"]
    assert table.note == "Accuracies and shares in per cent."
