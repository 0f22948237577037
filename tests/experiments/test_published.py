import math

import pytest

from shels.experiments.catalogue import CATALOGUE, FAMILIES
from shels.experiments.published import published
from shels.experiments.trials import MEASURES

NAMES = [each.name for family in ("within", "across") for each in FAMILIES[family]]
METHODS = ("shels", "scaled-cosine")


@pytest.mark.parametrize("name", NAMES)
def test_the_paper_has_all_four_measures_of_both_methods_as_fractions(name):
    for method in METHODS:
        for measure in MEASURES:
            found = published(name, method, measure)
            assert 0.4 < found.mean <= 1
            assert 0 < found.sd < 0.2
            assert found.trials == 10


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("method", METHODS)
def test_combined_accuracy_is_the_mean_of_the_two_wherever_no_note_says_otherwise(name, method):
    known, novel, combined = (published(name, method, measure) for measure in MEASURES[:3])
    agrees = abs((known.mean + novel.mean) / 2 - combined.mean) < 1.01e-3
    assert agrees == ("by its own two accuracies" not in combined.note)


def test_figures_stand_where_the_tables_print_them():
    # Read off the tables by eye, one of each table.
    table_1 = published("across/gtsrb-svhn", "shels", "auroc")
    assert (table_1.mean, table_1.sd, table_1.source) == (0.98, 0.005, "Table 1")
    table_2 = published("within/fmnist", "scaled-cosine", "auroc")
    assert (table_2.mean, table_2.sd, table_2.source) == (0.74, 0.084, "Table 2")
    table_9 = published("across/cifar10-svhn", "scaled-cosine", "novel_accuracy")
    assert (table_9.mean, table_9.sd, table_9.source) == (0.9484, 0.0197, "Table 9")
    table_10 = published("within/gtsrb", "shels", "known_accuracy")
    assert (table_10.mean, table_10.sd, table_10.source) == (0.8394, 0.0126, "Table 10")


@pytest.mark.parametrize(
    ("name", "method", "printed"),
    [
        ("within/mnist", "shels", 0.02),
        ("within/fmnist", "scaled-cosine", 0.09),
        ("within/fmnist", "shels", 0.07),
    ],
)
def test_deviations_of_table_2_are_those_of_table_10_with_another_ddof(name, method, printed):
    found = published(name, method, "auroc")
    assert found.ddof == 0
    assert round(found.sd * math.sqrt(10 / 9), 2) == printed


def test_every_conflict_of_the_paper_is_a_note():
    assert "0.9672" in published("within/mnist", "shels", "novel_accuracy").note
    assert "63.99" in published("within/fmnist", "scaled-cosine", "combined_accuracy").note
    assert "0.9076" in published("across/gtsrb-svhn", "shels", "combined_accuracy").note
    assert "column" in published("across/mnist-fmnist", "shels", "auroc").note
    assert published("within/svhn", "shels", "known_accuracy").note == ""


def test_exclusivity_is_published_with_its_standard_error():
    linear = published("within/fmnist", "standard-linear", "exclusivity")
    assert linear.mean == 0.69
    assert linear.sd / math.sqrt(linear.trials) == pytest.approx(0.017)
    assert published("within/fmnist", "shels", "exclusivity").mean == 1.0
    assert published("within/mnist", "shels", "exclusivity") is None


def test_what_the_paper_does_not_have_is_none():
    assert "within/digits" in CATALOGUE
    assert published("within/digits", "shels", "auroc") is None
    assert published("within/mnist", "shels-gaussian", "auroc") is None
    assert published("within/mnist", "shels", "fpr95") is None
    assert published("within/fmnist", "shels-gaussian", "exclusivity") is None


def test_the_published_interval_is_the_mean_give_or_take_a_deviation_ends_included():
    found = published("across/fmnist-mnist", "scaled-cosine", "auroc")  # 0.77 +- 0.064
    assert found.interval == pytest.approx((0.706, 0.834))
    assert all(found.contains(value) for value in (0.706, 0.77, 0.834))
    assert not any(found.contains(value) for value in (0.7059, 0.8341, float("nan")))
