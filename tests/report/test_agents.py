"""Reports on agents without boundaries, from results whose every figure can be worked out again."""

from __future__ import annotations

import pytest

from shels.experiments.catalogue import CATALOGUE
from shels.experiments.methods import METHODS
from shels.experiments.statistics import differences
from shels.experiments.trials import OPEN_WORLD_MEASURES, TrialResult
from shels.report.charts.open_world import agents
from shels.report.experiments import write_report
from shels.report.findings import against_joint
from shels.report.studies import studies

EPOCHS = {
    "new": [0, 0, 0, 1, 0],
    "share": [0.1, 0.1, 0.2, 0.9, 0.1],
    "threshold": [0.3, 0.3, 0.3, 1.02, 0.3],
    "alarm": [0, 0, 0, 1, 0],
    "overall": [1.0, 1.0, 1.0, 0.8, 0.9],
    "newest": [None, None, None, 0.0, 0.7],
}


def result_of(trial, accuracy):
    metrics = dict.fromkeys(OPEN_WORLD_MEASURES, 0.5) | {"closed_set_accuracy": accuracy + trial.seed / 100}
    details = {"detection": EPOCHS, "accommodation": [{"batch": 4}]} if METHODS[trial.method].agent else {}
    if trial.method == "joint-bound":
        metrics = {name: metrics[name] for name in ("closed_set_accuracy", "known_accuracy")}
    return TrialResult(trial, metrics, 1.0, "cpu", {}, details)


def results(accuracies, name="open-world/mnist", count=2):
    return [
        result_of(trial, accuracy)
        for method, accuracy in accuracies.items()
        for trial in CATALOGUE[name].trials(METHODS[method], count)
    ]


CLASSES = "MNIST 7 + 3".replace(" ", "\N{NO-BREAK SPACE}")
FOUND = {"shels-agent": 0.7, "gaussian-agent": 0.95, "joint-bound": 0.98}


def test_an_experiment_has_one_figure_with_a_panel_for_each_agent():
    [figure] = agents(studies(results(FOUND)))
    assert figure.name == "agents-open-world-mnist"
    drawn = figure.svg()
    assert "MNIST 7 + 3: SHELS agent" in drawn
    assert "MNIST 7 + 3: Gaussian agent" in drawn
    assert "joint training" not in drawn
    assert agents(studies(results({"joint-bound": 0.98}))) == []


def test_what_agents_lack_to_joint_training_is_told_trial_by_trial():
    [told] = against_joint(studies(results(FOUND)))
    assert told.endswith(f"points of per cent: {CLASSES}: SHELS agent −28.00, Gaussian agent −3.00.")
    assert list(against_joint(studies(results({"shels-agent": 0.7})))) == []
    ours, theirs = results({"shels-agent": 0.7}, count=3), results({"joint-bound": 0.98}, count=2)
    assert differences(ours, theirs) == pytest.approx([-0.28, -0.28])  # the third has no partner


def test_a_report_has_a_table_of_the_agents_measures(tmp_path):
    write_report([*results(FOUND), *results(FOUND, "open-world/fmnist-all")], tmp_path)
    page = (tmp_path / "report.md").read_text()
    assert "## Without class boundaries" in page
    assert "| Data | Method | closed set, % | known, % | found, % | batches | alarms per 1,000 |" in page
    assert "| FMNIST 4 + 6 | SHELS agent |" in page
    assert (tmp_path / "figures/agents-open-world-fmnist-all.png").is_file()
