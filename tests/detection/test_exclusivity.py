from __future__ import annotations

import numpy as np
import pytest

from shels.detection.exclusivity import (
    active_features,
    exclusive,
    exclusive_collection,
    exclusivity,
    mean_exclusivity,
)


def test_exclusivity_is_features_of_one_over_features_of_either():
    active = np.array([[1, 1, 0, 0], [0, 1, 1, 1], [0, 0, 1, 1]], dtype=bool)
    expected = [[0, 3 / 4, 1], [3 / 4, 0, 1 / 3], [1, 1 / 3, 0]]
    assert np.allclose(exclusivity(active), expected)
    assert mean_exclusivity(exclusivity(active)) == pytest.approx((3 / 4 + 1 + 1 / 3) / 3)


def test_exclusivity_of_classes_without_features_is_zero_not_nan():
    assert exclusivity(np.zeros((2, 3), dtype=bool)).tolist() == [[0, 0], [0, 0]]


def test_a_feature_is_active_where_its_mean_times_the_class_weight_is_positive():
    signatures = np.array([[1.0, 2.0, 0.0], [0.0, 3.0, 1.0]])
    weights = np.array([[0.5, -1.0, 4.0], [2.0, 0.1, -0.1]])
    assert active_features(signatures, weights).tolist() == [[True, False, False], [False, True, False]]


def test_two_sets_are_exclusive_when_each_has_what_the_other_lacks():
    assert exclusive({1, 2}, {2, 3})
    assert not exclusive({1}, {1, 2})
    assert not exclusive(set(), {1})
    assert not exclusive({1}, {1})


def test_a_collection_is_exclusive_when_every_two_different_sets_are():
    assert exclusive_collection([{1, 2}, {2, 3}, {1, 3}])
    assert not exclusive_collection([{1, 2}, {2, 3}, {2}])
    assert exclusive_collection([{1}, {1}])  # the same set twice is one set of the collection
