"""The page on the preset best: worked by hand on made-up results, and a short real run of its experiment."""

from __future__ import annotations

import pytest

from shels.data.sources import load_named
from shels.experiments.catalogue import CATALOGUE
from shels.experiments.engine import run
from shels.experiments.methods import METHODS
from shels.experiments.records import Records
from shels.report.reproduction.best import best_page, better_published, table_above, tally
from shels.report.reproduction.remarks import Remarks
from shels.report.reproduction.sections import shown
from shels.report.studies import studies
from tests.report.test_reproduction import learned, made

HIGH = {"known_accuracy": 0.85, "novel_accuracy": 0.70, "combined_accuracy": 0.775, "auroc": 0.7}


def fmnist(method="shels-fused", **changes):
    return made("within/fmnist@best", method, **(HIGH | changes))


def test_the_better_published_method_is_chosen_measure_by_measure():
    assert better_published("within/fmnist@best", "known_accuracy") == 0.8435  # scaled cosine
    assert better_published("within/fmnist@best", "novel_accuracy") == 0.6481  # SHELS
    assert better_published("within/digits@best", "auroc") is None


def test_a_mean_counts_where_it_is_at_or_above_both():
    found = studies(fmnist())
    assert tally(found) == (3, 4)  # AUROC is published as 0.79
    rows = [[getattr(cell, "text", cell) for cell in row] for row in table_above(found).rows]
    assert rows[0][1:] == ["3", "known", "85.00 ± 0.00", "77.68", "84.35", "yes"]
    assert rows[3][1:] == ["", "AUROC", "0.700 ± 0.000", "0.790", "0.740", "no"]
    assert tally(studies(fmnist(known_accuracy=0.8435))) == (3, 4)
    assert tally(studies(fmnist(known_accuracy=0.8434))) == (2, 4)


def test_what_has_no_published_figure_is_shown_and_not_counted():
    found = studies(made("within/digits@best", "shels-fused", **HIGH))
    assert tally(found) == (0, 0)
    assert "| – |" in best_page(found, Remarks())


def test_the_page_has_the_other_score_what_was_learned_and_sentences_by_hand():
    results = [*fmnist(), *fmnist("shels-gaussian"), *learned("incremental/mnist@best", "gaussian")]
    page = best_page(studies(results), Remarks(notes={"best": ["By hand."]}))
    assert "**3 of 4 means lie at or above both published ones.**" in page
    assert "SHELS network, Gaussian score" in page
    assert "## Learning class by class" in page
    assert "By hand." in page
    assert "Not run yet" not in page


def test_without_records_the_page_says_so():
    assert "*Not run yet: there are no records of it.*" in best_page(
        studies(made("within/fmnist")), Remarks()
    )


def test_the_paper_s_page_keeps_to_the_paper():
    both = studies([*made("within/fmnist"), *fmnist()])
    assert [study.name for study in shown(both)] == ["within/fmnist"]


@pytest.mark.parametrize("method", ["shels-fused", "shels-gaussian"])
def test_the_experiment_runs_on_the_embedded_digits(method, tmp_path):
    trials = CATALOGUE["within/digits@best"].trials(METHODS[method], 1)
    records = Records(tmp_path)
    steps = list(run(trials, records, lambda name, size: load_named(name, None, size), device="cpu"))
    assert steps[-1].kind == "finished", steps[-1].message
    found = records.find(trials[0]).metrics
    assert found["auroc"] > 0.95
    assert found["held_out_acceptance"] > 0.8
