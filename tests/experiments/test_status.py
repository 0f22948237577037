"""How a run of experiments stands: what is done, and what it came to."""

import pytest

from shels.experiments.advances import Advance, Tally
from shels.experiments.records import Records
from shels.experiments.status import RunStatus, columns_of, document_of
from shels.experiments.trials import LEARNING_MEASURES, MEASURES
from tests.experiments.pretended import learned, result_of, trials_of


def test_the_share_counts_the_stack_under_way(tmp_path):
    trials = trials_of("within/digits", count=4)
    status = RunStatus(trials, Records(tmp_path))
    status.update(Advance("training", tuple(trials[:2]), 0.5))
    assert status.share == 0.25
    status.update(Advance("finished", tuple(trials[:1]), 1.0, result_of(trials[0])))
    assert status.share == pytest.approx(0.375)


def test_units_under_way_at_once_are_counted_each_and_share_the_time_left(tmp_path):
    first, second, third, fourth = trials_of("within/digits", count=4)
    now = 0.0
    status = RunStatus([first, second, third, fourth], Records(tmp_path), lambda: now)
    for trial, unit in ((first, "a"), (second, "b")):
        status.update(Advance("training", (trial,), 0.0, unit=unit))
    now = 10.0
    status.update(Advance("training", (first,), 0.5, unit="a"))
    status.update(Advance("training", (second,), 0.25, unit="b"))
    assert status.share == pytest.approx(0.75 / 4)
    assert status.left().unknown == 0
    assert status.left().seconds == pytest.approx((10 + 30 + 40 + 40) / 2)  # two at a time
    status.update(Advance("finished", (first,), 1.0, result_of(first, seconds=20.0), unit="a"))
    assert status.share == pytest.approx(1.25 / 4)
    assert status.left().seconds == pytest.approx(30 + 20 + 20)


def test_how_units_stand_is_kept_and_is_no_report_on_trials(tmp_path):
    status, tally = RunStatus(trials_of("within/digits"), Records(tmp_path)), Tally(1, ("a",), 2, 0)
    status.update(Advance("tally", (), tally=tally))
    status.update(Advance("note", (), message="a was lost"))
    assert status.tally == tally
    assert status.share == 0


def test_the_document_gives_each_experiment_its_own_measures(tmp_path):
    learning = trials_of("incremental/digits", "gaussian", count=2)
    status = RunStatus([*trials_of("within/fmnist", count=1), *learning], Records(tmp_path))
    for trial in learning:
        status.update(Advance("finished", (trial,), 1.0, learned(trial)))
    first, second = (row["metrics"] for row in document_of(status)["rows"])
    assert tuple(first) == MEASURES
    assert tuple(second) == LEARNING_MEASURES
    assert second["forgetting"]["mean"] == pytest.approx(0.055)
    assert "published" not in second["known_accuracy"]


def test_columns_are_called_after_the_task():
    assert list(columns_of("within/digits").values()) == ["known", "novel", "combined", "AUROC"]
    names = ["final", "added", "forgetting", "with rejection", "AUROC"]
    assert list(columns_of("incremental/digits").values()) == names


def test_a_failed_trial_is_missing_for_a_reason_and_no_longer_to_come(tmp_path):
    trials = trials_of("within/digits", count=2)
    status = RunStatus(trials, Records(tmp_path))
    status.update(Advance("failed", tuple(trials[:1]), message="the loss became nan"))
    [row] = status.rows.values()
    assert [row.reason(trial) for trial in row.missing] == ["the loss became nan", "not run"]
    assert status.left() == (0, 1)
