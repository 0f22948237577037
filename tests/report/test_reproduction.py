"""The pages on reproduction and fidelity: worked by hand on made-up results, and the committed ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shels.config import AcceptShare
from shels.errors import DataError, MissingDataError
from shels.experiments.catalogue import CATALOGUE
from shels.experiments.estimate import TABLE, Kind
from shels.experiments.methods import METHODS
from shels.experiments.packing import pack
from shels.experiments.published import AS_PUBLISHED, published
from shels.experiments.records import Records
from shels.experiments.trials import LEARNING_MEASURES, MEASURES, OPEN_WORLD_MEASURES, TrialResult
from shels.experiments.variants import VARIANTS
from shels.report.charts.epochs import curves as epoch_curves
from shels.report.charts.sweeps import curves as sweep_curves
from shels.report.charts.sweeps import sweep_of
from shels.report.page import Mark
from shels.report.reproduction.fidelity import effects_of, with_error
from shels.report.reproduction.figures import as_published, beside_published, explained, table_beside
from shels.report.reproduction.pages import BEGIN, END, make_pages
from shels.report.reproduction.remarks import Difference, Remarks, read_remarks
from shels.report.reproduction.sections import parts, times
from shels.report.studies import studies
from shels.report.tables import overview, statistics
from tests.cli.commands import fails, shels

ROOT = Path(__file__).parents[2]
MARKS = {name: (BEGIN.format(name), END.format(name)) for name in ("reproduction", "best")}
README = "# Title\n\nBefore.\n\n" + "\n\n".join(f"{a}\nold\n{b}" for a, b in MARKS.values()) + "\n\nAfter.\n"
VERSIONS = {"shels": "1", "torch": "2", "python": "3"}


def made(name, method="shels", count=3, details=None, **metrics):
    """Made-up results: the published means where there are any, but for what is given.

    A value given is a number for all trials, or a function of the seed.
    """
    trials = CATALOGUE[name].trials(METHODS[method], count)
    return [result(trial, details, metrics) for trial in trials]


def result(trial, details, metrics):
    keys = LEARNING_MEASURES if trial.experiment.startswith("incremental/") else MEASURES
    if trial.experiment == "exclusivity":
        keys = ("exclusivity",)
    if trial.experiment.startswith("open-world/"):
        keys = OPEN_WORLD_MEASURES
    theirs = {key: published(trial.experiment, trial.method, key) for key in keys}
    figures = {key: each.mean if each else 0.5 for key, each in theirs.items()}
    figures |= {key: value(trial.seed) if callable(value) else value for key, value in metrics.items()}
    found = {"stages": {"training": 1.0, "features": 0.5}, "precision": "TF32"} | (details or {})
    return TrialResult(trial, figures, 1.5, "a GPU", VERSIONS, found)


def learned(name, method, **metrics):
    course = [{"classes": 7 + n, "overall": 0.9 - n / 10, "first": 0.9, "newest": 0.8} for n in range(4)]
    curve = [[0, 0, 0.9, None], [1, 0, 0.8, 0.0], [1, 4, 0.85, 0.5], [1, 8, 0.9, 1.0]]
    return made(name, method, details={"course": course, "curve": curve}, **metrics)


def swept():
    trials = CATALOGUE["group-sparsity/fmnist"].trials(METHODS["shels"], 2)
    kept = [trial for trial in trials if trial.settings.training.alpha in (0.0, 0.001, 0.02)]
    return [result(t, {}, {"auroc": 0.8 - t.settings.training.alpha - t.seed / 100}) for t in kept]


def everything():
    matrix = np.full((5, 5), 0.99).tolist()
    return [
        *made("within/fmnist"),
        *made("within/fmnist", "scaled-cosine"),
        *made("within/fmnist", "shels-gaussian", auroc=lambda seed: 0.85 + seed / 100),
        *made("within/gtsrb", known_accuracy=0.776),
        *made("within/gtsrb@trained-images"),
        *made("within/fmnist@last-weights", auroc=lambda seed: 0.79 + (0.01, 0.03, 0.02)[seed]),
        *made("across/mnist-fmnist", count=2),
        *made("exclusivity", details={"exclusivity": matrix}),
        *swept(),
        *learned("incremental/mnist", "penalty"),
        *learned("incremental/mnist", "gaussian"),
        *made("open-world/mnist", "gaussian-agent"),
    ]


SENTENCE = "The official test set was not trained on."
REMARKS = Remarks(
    [Difference("within/gtsrb", SENTENCE, ["shels"], ["known_accuracy"])],
    {"within": ["A paragraph by hand."]},
)


@pytest.fixture(scope="module")
def pages():
    return make_pages(everything(), REMARKS, README, drawn=False)


def test_the_pages_are_the_same_whatever_the_order_of_the_results(pages):
    assert make_pages(everything()[::-1], REMARKS, README, drawn=False) == pages


def test_the_answer_counts_the_setting_that_made_the_published_figures(pages):
    page = pages.files["docs/reproduction.md"]
    assert "**Of 12 published means of SHELS's novelty detection, 12 of ours lie within" in page
    assert "8 of 8 within data sets, 4 of 4 across" in page
    assert "**Scaled cosine**, the paper's rival: 4 of 4 means lie within: 4 of 4 within data sets" in page
    assert "published figures in brackets: SHELS 1.000 (1.000)." in page


def test_without_the_variant_the_experiment_itself_counts():
    found = beside_published(studies(made("within/gtsrb", known_accuracy=0.776)))
    assert [each.inside for each in as_published(found)] == [False, True, True, True]
    assert AS_PUBLISHED["within/gtsrb"] in CATALOGUE


def test_each_figure_stands_beside_the_published_one():
    rows = table_beside(beside_published(studies(made("within/gtsrb", known_accuracy=0.776)))).rows
    cells = [[cell.text if isinstance(cell, Mark) else cell for cell in row] for row in rows]
    assert cells[0] == [
        *("GTSRB", "SHELS", "3", "known", "77.60 ± 0.00", "83.94 ± 1.26"),  # 0.8394, 0.0126 in Table 10
        *("−6.34", "no"),
    ]
    assert cells[3] == ["GTSRB", "", "", "AUROC", "0.880 ± 0.000", "0.880 ± 0.055", "0.000", "yes"]


def test_a_figure_outside_the_interval_has_its_sentence(pages):
    page = pages.files["docs/reproduction.md"]
    assert f"- **GTSRB, SHELS: known.** {SENTENCE}" in page
    assert "A paragraph by hand." in page
    assert "Not explained yet" not in page
    assert pages.problems == []


def test_a_figure_without_a_sentence_is_a_problem_by_its_name():
    found = make_pages(made("within/gtsrb", known_accuracy=0.776), Remarks(), README, drawn=False)
    assert "**GTSRB, SHELS: known.** *Not explained yet.*" in found.files["docs/reproduction.md"]
    [problem] = found.problems
    assert problem.startswith("no sentence in remarks.toml says why within/gtsrb, shels, known_accuracy lies")


def test_a_sentence_on_a_figure_that_agrees_is_a_problem_unless_nothing_was_run():
    stale = Remarks([Difference("within/fm*", "Why?"), Difference("across/*", "Why?")])
    found = make_pages(made("within/fmnist"), stale, README, drawn=False)
    assert found.problems == [
        "a sentence in remarks.toml on within/fm* explains no figure outside the published interval"
    ]


def test_figures_of_one_sentence_are_named_together_and_the_first_sentence_counts():
    low = made("within/fmnist", known_accuracy=0.1, auroc=0.1)
    found = beside_published(studies(low))
    differences = [Difference("within/*", "First."), Difference("within/fmnist", "Second.")]
    [each] = explained(found, differences)
    assert (each.places, each.sentence) == ("FMNIST, SHELS: known, AUROC", "First.")


def other_trials(**settings):
    trials = CATALOGUE["within/fmnist"].trials(METHODS["shels"], 2, epochs=1)
    changed = [replace(each, settings=replace(each.settings, **settings)) for each in trials]
    return [result(trial, {}, dict.fromkeys(MEASURES, 0.1)) for trial in changed]


def test_results_of_another_length_than_the_papers_stand_beside_it_by_that_name_and_in_no_count():
    found = studies(other_trials())
    assert beside_published(found) == []
    beside = beside_published(found, shortened=True)
    assert len(beside) == len(MEASURES)
    assert table_beside(beside).rows[0][1] == "SHELS, 1 of 20 epochs"
    remarks = Remarks([Difference("within/fmnist", "Too short.")])
    made = make_pages(other_trials(), remarks, README, drawn=False)
    page = made.files["docs/reproduction.md"]
    assert made.problems == []
    assert "SHELS, 1 of 20 epochs" in page
    assert "Too short." in page
    assert "of ours lie within" not in page
    assert "**Not counted**" in page
    assert "FMNIST (1 of 20 epochs). There 0 of 4 means of SHELS lie within." in page
    assert "epochs" not in made.files["README.md"]


def test_results_with_other_settings_than_the_papers_are_not_set_beside_it():
    other = studies(other_trials(rule=AcceptShare(0.5)))
    assert beside_published(other, shortened=True) == []


def test_a_family_without_records_says_so(pages):
    empty = make_pages(made("within/fmnist"), Remarks(), README, drawn=False).files["docs/reproduction.md"]
    assert empty.count("*Not run yet") == 5
    assert "*Not run yet" not in pages.files["docs/reproduction.md"]


def test_few_trials_are_told(pages):
    assert (
        "stand behind `within/fmnist` (3 trials); `within/gtsrb` (3 trials)"
        in pages.files["docs/reproduction.md"]
    )


def test_experiments_that_are_not_the_papers_are_left_out():
    page = make_pages([*made("within/digits"), *made("within/fmnist")], Remarks(), README, drawn=False)
    assert "| digits" not in page.files["docs/reproduction.md"]
    assert "| digits" not in page.files["README.md"]


def test_the_readme_gets_the_table_between_its_marks_and_nothing_else(pages):
    text = pages.files["README.md"]
    assert text.startswith(f"# Title\n\nBefore.\n\n{MARKS['reproduction'][0]}\n| Data |")
    assert text.endswith(
        f"{MARKS['best'][0]}\n\n*Not run yet: there are no records of it.*\n\n{MARKS['best'][1]}\n\nAfter.\n"
    )
    assert "old" not in text
    [row] = [line for line in text.splitlines() if line.startswith("| FMNIST |")]
    cells = [cell.replace("\N{NO-BREAK SPACE}", " ").strip() for cell in row.split("|")[1:-1]]
    assert cells[1:3] == ["77.68 ± 0.00", "77.68 ± 2.70"]
    assert cells[5:] == ["0.790 ± 0.000", "0.790 ± 0.063", "3"]
    with pytest.raises(DataError, match="reproduction: begin"):
        make_pages(everything(), REMARKS, "# no marks", drawn=False)
    with pytest.raises(DataError, match="best: begin"):
        make_pages(everything(), REMARKS, README.replace(MARKS["best"][0], ""), drawn=False)


def test_the_readme_has_the_preset_best_beside_the_better_published_means():
    figures = {"known_accuracy": 0.85, "novel_accuracy": 0.7, "combined_accuracy": 0.775, "auroc": 0.7}
    results = [
        *made("within/fmnist@best", "shels-fused", **figures),
        *made("incremental/mnist@best", "joint"),
    ]
    text = make_pages(results, Remarks(), README, drawn=False).files["README.md"]
    table = text[text.index(MARKS["best"][0]) :]
    [row] = [line for line in table.splitlines() if line.startswith("| FMNIST |")]
    cells = [cell.strip() for cell in row.split("|")[2:-1]]
    assert cells == ["85.00", "84.35", "70.00", "64.81", "77.50", "71.25", "0.700", "0.790", "3"]


def test_expected_times_are_those_of_the_results(pages):
    rows = json.loads(pages.files[f"src/shels/experiments/{TABLE}"])
    costs = {Kind(*row[:-1]): row[-1] for row in rows}
    assert costs[Kind("a GPU", "float32", "within/fmnist", "shels", "20 epochs")] == 1.5


def test_the_time_of_an_entry_is_that_of_its_trials_added_up():
    table = times(studies([*made("within/fmnist"), *made("within/fmnist", "shels-gaussian")]))
    assert table.rows == [["within/fmnist", 2, 6, "6.0 s", "9.0 s"], ["all", 2, 6, "6.0 s", "9.0 s"]]


# The weight of group sparsity ---------------------------------------------------------------------------


def test_a_sweep_is_ordered_by_weight_and_both_kinds_share_the_point_without_any():
    [study] = studies(swept())
    found = sweep_of(study)
    assert {kind: list(points) for kind, points in found.items()} == {
        "layer-wise": [0.0, 0.001, 0.02],
        "constant": [0.0, 0.001, 0.02],
    }
    assert found["constant"][0.0] is found["layer-wise"][0.0]
    assert found["constant"][0.02].summary("auroc").mean == pytest.approx(0.775)


def test_the_table_of_the_sweep_compares_its_ends_on_the_same_seeds():
    part = parts(studies(swept()), Remarks())["group-sparsity"]
    row = next(row for row in part.tables[0].rows if row[2] == "AUROC")
    assert row == [
        "FMNIST",
        "",
        "AUROC",
        "0.795",
        "0.794",
        "–",
        "–",
        "0.775",
        "−0.020",
        "–",
    ]  # no spread, no p


# Learning epoch by epoch --------------------------------------------------------------------------------


def test_curves_by_epoch_and_by_weight_are_drawn_where_there_are_any():
    [figure] = epoch_curves(studies(learned("incremental/mnist", "penalty")))
    assert figure.png().startswith(b"\x89PNG")
    assert epoch_curves(studies(made("incremental/mnist", "penalty"))) == []
    [figure] = sweep_curves(studies(swept()))
    assert figure.png().startswith(b"\x89PNG")


# Fidelity -----------------------------------------------------------------------------------------------


def test_an_effect_is_variant_less_base_on_the_same_seeds_with_its_standard_error():
    results = [*made("within/fmnist", count=5), *made("within/fmnist@last-weights")]
    for place, shift in enumerate((0.01, 0.03, 0.02), start=5):
        results[place] = replace(results[place], metrics=results[place].metrics | {"auroc": 0.79 + shift})
    [effect] = effects_of(VARIANTS["last-weights"], studies(results))
    found = effect.found["auroc"]
    assert (found.mean, found.n) == (pytest.approx(0.02), 3)
    assert with_error("auroc", found) == "+0.020 ± 0.006"  # 0.01 / √3
    assert effect.found["known_accuracy"].mean == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("choice", "stacked", "networks"),
    [
        ("held-out-thresholds", (8, 8), "same networks"),
        ("held-out-thresholds", (8, 3), "networks trained again"),
        ("last-weights", (8, 8), "networks of its own"),
    ],
)
def test_an_effect_says_whether_both_were_judged_on_the_same_networks(choice, stacked, networks):
    names = ("within/fmnist", f"within/fmnist@{choice}")
    results = [
        replace(each, details=each.details | {"stacked": count, "best_epoch": 4.0})
        for name, count in zip(names, stacked, strict=True)
        for each in made(name)
    ]
    [effect] = effects_of(VARIANTS[choice], studies(results))
    assert effect.networks == networks
    assert effect.sentence.endswith(f"(3 trials, {networks})")


def test_a_variant_that_is_a_method_is_compared_with_the_one_it_stands_for():
    base = made("within/fmnist", "scaled-cosine", auroc=0.7)
    varied = made("within/fmnist@softmax-twice", "scaled-cosine-authors", auroc=0.6)
    [effect] = effects_of(VARIANTS["softmax-twice"], studies([*base, *varied]))
    assert effect.found["auroc"].mean == pytest.approx(-0.1)
    assert list(effects_of(VARIANTS["softmax-twice"], studies(varied))) == []


def test_a_choice_that_is_a_measure_is_compared_within_each_trial():
    results = made("within/fmnist", novel_accuracy=0.6, novel_accuracy_by_class=lambda seed: 0.7 + seed / 10)
    [effect] = effects_of(VARIANTS["novel-by-class"], studies(results))
    assert effect.found["novel_accuracy_by_class"].mean == pytest.approx(0.2)


def test_every_choice_is_on_the_page_with_its_effect_or_the_reason(pages):
    page = pages.files["docs/fidelity.md"]
    for variant in VARIANTS.values():
        assert f"\n### {variant.name}: {variant.label}\n" in page
    assert "AUROC +0.020 ± 0.006 (3 trials, networks of its own)" in page
    assert page.count("\n- Effect: ") >= len(VARIANTS)


# Sentences by hand --------------------------------------------------------------------------------------


def test_sentences_are_read_with_their_patterns(tmp_path):
    assert read_remarks(tmp_path) == Remarks()
    text = '[[difference]]\nexperiment = "a/*"\nmeasures = ["auroc"]\nsentence = "Why."\n'
    (tmp_path / "remarks.toml").write_text(text + '[notes]\nwithin = "One."\n')
    found = read_remarks(tmp_path)
    assert found.differences == [Difference("a/*", "Why.", ("*",), ["auroc"])]
    assert found.notes == {"within": ["One."]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[difference]]\nexperiment = 'a'\n", "has experiment and sentence"),
        ("[[difference]]\nexperiment = 'a'\nsentence = ' '\n", "is empty"),
        ("[[difference]]\nexperiment = 'a'\nsentence = 'b'\nmethod = 'c'\n", "may have methods and measures"),
        ("[remark]\n", "'remark'"),
        ("[", "cannot be read"),
    ],
)
def test_a_file_of_sentences_that_is_wrong_is_refused(tmp_path, text, said):
    (tmp_path / "remarks.toml").write_text(text)
    with pytest.raises(DataError, match=said):
        read_remarks(tmp_path)


# The commands -------------------------------------------------------------------------------------------


def test_results_of_runs_are_packed_and_become_pages(tmp_path):
    for place, results in enumerate((made("within/fmnist"), made("within/gtsrb", known_accuracy=0.776))):
        for each in results:
            Records(tmp_path / f"run-{place}").append(each)
    target = tmp_path / "root/results"
    packed = shels("report", tmp_path / "run-0", tmp_path / "run-1", "--pack", target)
    assert packed.exit_code == 0, packed.output
    assert packed.stdout.startswith(f"6 trials of 2 experiments packed in {target}, which holds 0.01 MB:\n")
    assert len(Records(target).packed()) == 6
    (tmp_path / "root/README.md").write_text(README)
    command = ["report", target, "--reproduction", tmp_path / "root"]
    unexplained = shels(*command)
    assert unexplained.exit_code == 1
    assert "error: no sentence in remarks.toml says why within/gtsrb, shels" in unexplained.stderr
    sentence = f'[[difference]]\nexperiment = "within/gtsrb"\nsentence = "{SENTENCE}"\n'
    (target / "remarks.toml").write_text(sentence)
    assert shels(*command, "--json").exit_code == 0
    assert SENTENCE in (tmp_path / "root/docs/reproduction.md").read_text("utf-8")
    assert (tmp_path / "root/docs/images/reproduction/detection-within.png").exists()


@pytest.mark.parametrize("option", ["--pack", "--out"])
def test_a_file_in_place_of_the_folder_is_called_so(tmp_path, option):
    (tmp_path / "file").write_text("mine")
    pack(made("exclusivity"), tmp_path / "results")
    assert "it is a file, not a folder" in fails(1, "report", tmp_path / "results", option, tmp_path / "file")
    assert "is a file; name the directory" in fails(1, "report", tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_figures_that_no_page_shows_any_more_are_removed(tmp_path):
    (tmp_path / "README.md").write_text(README)
    folder = tmp_path / "docs/images/reproduction"
    folder.mkdir(parents=True)
    (folder / "of-before.png").write_bytes(b"")
    (folder / "notes.txt").write_text("kept")
    pack(made("exclusivity", details={"exclusivity": np.full((5, 5), 0.99).tolist()}), tmp_path / "results")
    first = shels("report", tmp_path / "results", "--reproduction", tmp_path)
    assert first.exit_code == 0, first.output
    assert sorted(path.name for path in folder.iterdir()) == ["exclusivity-exclusivity.png", "notes.txt"]
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert shels("report", tmp_path / "results", "--reproduction", tmp_path).exit_code == 0
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files


def test_one_measure_is_adjusted_over_none():
    found = studies([*made("exclusivity"), *made("exclusivity", "scaled-cosine")])
    for note in (overview(found, "").note, statistics(found).note):
        assert "one measures" not in note
        assert "Holm's adjustment" not in note
    assert "Holm p: the same, as there is one measure to adjust over." in statistics(found).note


def test_the_points_of_a_sweep_stand_in_order_without_stars():
    table = overview(studies(swept()), "")
    assert [row[1] for row in table.rows] == [
        "SHELS",
        "SHELS, alpha 0.0, depth_weights layer-wise",
        "SHELS, alpha 0.001, depth_weights constant",
        "SHELS, alpha 0.02, depth_weights constant",
        "SHELS, alpha 0.02, depth_weights layer-wise",
    ]
    assert "Stars" not in table.note


def test_pages_are_made_of_packed_results_alone_and_into_a_repository(tmp_path):
    for each in made("within/fmnist"):
        Records(tmp_path).append(each)
    assert "holds no packed results" in fails(1, "report", tmp_path, "--reproduction", tmp_path)
    pack(made("within/fmnist"), tmp_path)
    assert "has no README.md" in fails(1, "report", tmp_path, "--reproduction", tmp_path)
    assert "contradict" in fails(2, "report", tmp_path, "--pack", tmp_path, "--reproduction", tmp_path)


# The committed records ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def committed():
    try:
        return Records(ROOT / "results").packed()
    except MissingDataError as missing:
        pytest.skip(str(missing))


def test_the_committed_pages_are_those_of_the_committed_records(committed):
    readme = (ROOT / "README.md").read_text("utf-8")
    found = make_pages(committed, read_remarks(ROOT / "results"), readme, drawn=False)
    assert found.problems == []
    for name, content in found.files.items():
        assert (ROOT / name).read_text("utf-8") == content, f"{name}: run make reproduction"


def test_the_committed_figures_are_there(committed):
    page = (ROOT / "docs/reproduction.md").read_text("utf-8")
    shown = [line.rpartition("](")[2].rstrip(")") for line in page.splitlines() if line.startswith("![")]
    assert shown
    assert all((ROOT / "docs" / name).is_file() for name in shown)


def test_the_committed_records_are_small(committed):
    assert sum(path.stat().st_size for path in (ROOT / "results").glob("*.jsonl")) < 5_000_000
