"""What other people's code may lean on: the names that packages export, and no others by accident."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

import pytest

import shels
from shels.detection.registry import SCORES
from shels.learner import detector_tables, memory_tables
from shels.learning.registry import LEARNERS

PACKAGES = [module.name for module in pkgutil.walk_packages(shels.__path__, "shels.") if module.ispkg]
EXPORTING = {"shels.config", "shels.training", "shels.cli", "shels.report.charts"}


def test_the_package_offers_three_names_and_its_version():
    assert shels.__all__ == ["Learner", "OpenWorldAgent", "OpenWorldClassifier", "__version__"]
    assert all(getattr(shels, name) is not None for name in shels.__all__)
    with pytest.raises(AttributeError, match="no attribute 'learner_'"):
        shels.learner_  # noqa: B018


@pytest.mark.parametrize("name", ["shels.config", "shels.training"])
def test_settings_and_training_offer_what_they_list(name):
    package = importlib.import_module(name)
    assert len(set(package.__all__)) == len(package.__all__)
    assert set(package.__all__) == set(_names(package))


@pytest.mark.parametrize("name", sorted(set(PACKAGES) - EXPORTING))
def test_other_packages_offer_their_modules_alone(name):
    assert _names(importlib.import_module(name)) == []


def _names(package):
    """Return the public names of a package that are not modules of its own."""
    shown = {name: value for name, value in vars(package).items() if not name.startswith("_")}
    return [n for n, v in shown.items() if not isinstance(v, ModuleType) and n != "annotations"]


def test_the_table_of_a_score_names_what_it_remembers():
    for name, score in SCORES.items():
        assert set(detector_tables.SCORES.get(name, {})) == set(score.remembers), name


def test_every_learner_has_its_table():
    assert set(memory_tables.MEMORIES) == set(LEARNERS)
