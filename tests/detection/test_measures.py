from __future__ import annotations

import numpy as np

from shels.detection.measures import MEASURES
from shels.detection.metrics import open_set_measures


def test_the_table_of_measures_names_all_that_is_measured_and_the_columns_of_both_overviews():
    found = open_set_measures(
        labels=np.array([0, 1]),
        predicted=np.array([0, 1]),
        novel=np.array([False, False]),
        scores=np.array([2.0, 3.0]),
        novel_judged=np.array([True]),
        novel_scores=np.array([1.0]),
    )
    assert found.keys() <= MEASURES.keys()
    assert [key for key, each in MEASURES.items() if each.in_detection] == [
        *("known_accuracy", "novel_accuracy", "combined_accuracy", "auroc")
    ]
    learning = [each.heading_in(learning=True) for each in MEASURES.values() if each.in_learning]
    assert learning == ["final", "added", "forgetting", "with rejection", "AUROC"]
    assert MEASURES["known_accuracy"].title_in(learning=False) == "known accuracy"
    agents = ["batches_to_detection", "false_alarms_per_1000", "false_alarm_share"]
    lower = [key for key, each in MEASURES.items() if not each.higher_is_better]
    assert lower == ["forgetting", "fpr95", *agents, "false_alarm_rate", "added_false_alarm_rate"]
