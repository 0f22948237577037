"""Parts: whole groups, every class in the shares asked for."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.model_selection import StratifiedGroupKFold

from shels.data.partition import folds_of, merged_groups, stratified
from shels.errors import SettingsError


@pytest.fixture
def grouped():
    """A thousand samples of five classes, the rarest of 2 %, in 150 groups of many sizes."""
    draws = np.random.default_rng(0)
    labels = draws.choice(5, 1000, p=[0.5, 0.3, 0.1, 0.08, 0.02])
    return labels, draws.integers(0, 150, 1000)


def shares_of(labels, parts, part):
    return np.array([np.mean(parts[labels == c] == part) for c in np.unique(labels)])


@pytest.mark.parametrize("seed", range(5))
def test_without_groups_no_class_is_off_by_more_than_one_sample(seed):
    labels = np.random.default_rng(seed).choice(4, 400, p=[0.6, 0.3, 0.07, 0.03])
    parts = stratified(labels, None, [0.7, 0.1, 0.2], seed)
    for position, share in enumerate([0.7, 0.1, 0.2]):
        wanted = share * np.bincount(labels)
        got = np.array([np.sum((labels == c) & (parts == position)) for c in range(4)])
        assert np.abs(got - wanted).max() <= 1


def test_groups_are_never_divided(grouped):
    labels, groups = grouped
    parts = stratified(labels, groups, [0.7, 0.1, 0.2], seed=0)
    assert all(len(set(parts[groups == group])) == 1 for group in np.unique(groups))


def test_classes_are_as_even_over_folds_of_groups_as_scikit_learn_makes_them(grouped):
    labels, groups = grouped
    mine = folds_of(labels, groups, 5, seed=0)
    theirs = np.empty(1000)
    folds = StratifiedGroupKFold(5, shuffle=True, random_state=0).split(labels, labels, groups)
    for number, (_, test) in enumerate(folds):
        theirs[test] = number
    uneven = [
        np.mean([np.abs(shares_of(labels, each, k) - 0.2).mean() for k in range(5)])
        for each in (mine, theirs)
    ]
    assert uneven[0] <= 1.1 * uneven[1]


def test_a_small_class_is_in_every_part_that_it_has_samples_for_and_a_single_sample_is_trained_on():
    labels = np.array([0] * 50 + [1] * 3 + [2] * 2 + [3])
    parts = stratified(labels, None, [0.75, 0.05, 0.2], seed=0)
    assert sorted(parts[50:53].tolist()) == [0, 1, 2]
    assert sorted(parts[53:55].tolist()) == [0, 2]
    assert parts[55] == 0


def test_a_part_of_no_share_gets_nothing(grouped):
    assert set(stratified(*grouped, [0.8, 0.0, 0.2], seed=0)) == {0, 2}


def test_other_seeds_give_other_parts_and_the_same_seed_the_same(grouped):
    one, same, other = (stratified(*grouped, [0.8, 0.2], seed) for seed in (0, 0, 1))
    assert (one == same).all()
    assert (one != other).any()


def test_groups_that_share_a_sample_become_one():
    merged = merged_groups(np.array([0, 0, 1, 2, 3]), np.array([0, 1, 1, 2, 3]))
    assert merged.tolist() == [0, 0, 0, 1, 2]


@pytest.mark.parametrize("shares", [[0.5, 0.4], [0.0, 1.0], [1.2, -0.2], []])
def test_shares_that_do_not_come_to_one_are_refused(shares):
    with pytest.raises(SettingsError, match="come to 1"):
        stratified(np.zeros(4, int), None, shares, seed=0)
