from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from shels.agent.separation import (
    SeparationSettings,
    are_two,
    best_division,
    gap,
    lowest_between,
    main_axes,
    own_members,
    separate,
)
from shels.errors import DataError, SettingsError

CENTRES = torch.zeros(6, 40)
CENTRES[torch.arange(6), torch.arange(6)] = 12.0  # any two 17 apart, as classes of real features are
KNOWN = CENTRES[3:]


def clouds(sizes, seed=0, centres=CENTRES):
    """Samples of unit Gaussians at the first centres, and which centre each belongs to."""
    draws = torch.Generator().manual_seed(seed)
    truth = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return centres[truth] + torch.randn(len(truth), centres.shape[1], generator=draws), truth


def rejected(count, seed=0):
    """Samples of the known classes that lie far from their means, as those falsely called novel do."""
    many, truth = clouds([20 * count] * 3, seed, KNOWN)
    distance = (many - KNOWN[truth]).square().sum(dim=1)
    return many[distance.argsort(descending=True)[:count]]


def majority(groups, truth, position):
    return truth[groups == position].bincount().max().item() / (groups == position).sum().item()


@pytest.fixture(scope="module")
def digits():
    """Scikit-learn's digits, whitened by the within-class covariance of 0-5, their labels and those means."""
    from sklearn.datasets import load_digits

    rows, labels = load_digits(return_X_y=True)
    means = np.stack([rows[labels == digit].mean(axis=0) for digit in range(6)])
    known = labels < 6
    rest = rows[known] - means[labels[known]]
    spread = rest.T @ rest / len(rest)
    values, vectors = np.linalg.eigh(0.9 * spread + 0.1 * spread.trace() / 64 * np.eye(64))
    whiten = vectors / np.sqrt(values)
    return torch.from_numpy(rows @ whiten).float(), torch.from_numpy(labels), torch.from_numpy(means @ whiten)


@pytest.mark.parametrize("size", [10, 25, 80, 400])
@pytest.mark.parametrize("seed", range(5))
def test_one_class_stays_one_group(size, seed):
    features, _ = clouds([size], seed)
    found = separate(features, seed=seed)
    assert len(found.purity) == 1
    assert (found.groups == 0).all()


@pytest.mark.parametrize("shape", ["even", "long", "heavy"])
def test_one_class_that_is_no_gaussian_stays_one_group(shape):
    draws = torch.Generator().manual_seed(1)
    normal = torch.randn(300, 40, generator=draws)
    features = {
        "even": torch.rand(300, 40, generator=draws) * 3,
        "long": normal * torch.cat([torch.tensor([8.0, 4.0]), torch.ones(38)]),
        "heavy": normal / torch.rand(300, 1, generator=draws).clamp(min=0.2),
    }[shape]
    assert len(separate(features).purity) == 1


@pytest.mark.parametrize("sizes", [(50, 50), (200, 40), (300, 200, 100)])
def test_mixed_classes_come_apart_the_largest_first(sizes):
    features, truth = clouds(sizes)
    order = torch.randperm(len(truth), generator=torch.Generator().manual_seed(0))
    found = separate(features[order])
    assert len(found.purity) == len(sizes)
    counts = found.groups.bincount().tolist()
    assert counts == sorted(counts, reverse=True)
    assert all(majority(found.groups, truth[order], position) == 1.0 for position in range(len(found.purity)))


def test_classes_too_close_to_tell_apart_stay_together():
    centres = torch.zeros(2, 40)
    centres[1, 0] = 2.0  # two Gaussians this close have one peak
    assert len(separate(clouds([200, 200], centres=centres)[0]).purity) == 1


def test_rejected_samples_of_known_classes_make_no_class():
    assert len(separate(rejected(60), known_means=KNOWN).purity) == 0
    one_class = KNOWN[:1] + torch.randn(60, 40, generator=torch.Generator().manual_seed(0)) * 1.4
    assert len(separate(one_class, known_means=KNOWN).purity) == 0


def test_rejected_samples_among_a_new_class_are_dropped_and_lower_its_purity():
    features = torch.cat([clouds([80])[0], rejected(8)])
    found = separate(features, known_means=KNOWN)
    assert len(found.purity) == 1
    assert found.groups.tolist() == [0] * 80 + [-1] * 8
    assert found.purity == (80 / 88,)
    strict = separate(features, SeparationSettings(least_purity=0.95), known_means=KNOWN)
    assert (len(strict.purity), strict.groups.unique().tolist()) == (0, [-1])


def test_groups_below_the_least_size_are_dropped():
    features, _ = clouds([60, 60])
    assert (
        len(separate(features, SeparationSettings(least_size=70)).purity) == 1
    )  # not divided: the parts are small
    assert len(separate(features[:9]).purity) == 0
    assert len(separate(features[:9], SeparationSettings(least_size=5)).purity) == 1
    assert separate(features[:0]).groups.shape == (0,)


def test_only_the_largest_classes_are_proposed_when_there_are_too_many():
    features, truth = clouds([60, 80, 100])
    found = separate(features, SeparationSettings(most_classes=2))
    assert len(found.purity) == 2
    assert set(truth[found.groups == -1].tolist()) == {0}


def test_the_same_seed_gives_the_same_groups_and_callers_randomness_is_left_alone():
    features, _ = clouds([700, 300])
    state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first, second = separate(features, seed=3), separate(features, seed=3)
    assert torch.equal(first.groups, second.groups)
    assert first.purity == second.purity
    assert torch.equal(torch.get_rng_state(), state[0])
    assert (np.random.get_state()[1] == state[1]).all()  # noqa: NPY002


def test_identical_samples_are_one_group():
    assert len(separate(torch.ones(30, 8)).purity) == 1


def test_digits_of_one_class_stay_one_group_and_of_two_come_apart(digits):
    rows, labels, means = digits
    for digit in (0, 2, 3, 4, 5, 6, 7, 8):  # 1 and 9 are each written in two ways, far apart as pixels
        assert len(separate(rows[labels == digit]).purity) == 1, digit
    for pair in ((6, 7), (7, 8), (6, 9)):
        mixed = (labels == pair[0]) | (labels == pair[1])
        found = separate(rows[mixed], known_means=means)
        assert len(found.purity) == 2, pair
        assert min(majority(found.groups, labels[mixed], position) for position in (0, 1)) > 0.95


def test_digits_known_to_the_means_make_no_class(digits):
    rows, labels, means = digits
    known = labels < 6
    distance = torch.cdist(rows[known].double(), means).amin(dim=1)
    furthest = distance.argsort(descending=True)[:50]
    assert len(separate(rows[known][furthest], known_means=means).purity) == 0


def test_gap_and_density_between_worked_by_hand():
    two = np.array([-4.0, -2.0, 2.0, 4.0])  # means 6 apart, standard deviation 1 in each
    assert gap(two) == pytest.approx(6.0)
    assert gap(np.array([1.0, 2.0])) == 0.0
    place, share = lowest_between(np.concatenate([np.linspace(-5, -4, 50), np.linspace(4, 5, 50)]))
    assert place == pytest.approx(0.0, abs=4.0)
    assert share == pytest.approx(0.0, abs=1e-6)
    assert lowest_between(np.random.default_rng(0).normal(size=2000))[1] > 0.8


def test_gap_between_the_halves_of_a_gaussian_is_as_documented():
    halves = np.random.default_rng(0).normal(size=200_000)
    assert gap(halves) == pytest.approx(2 * math.sqrt(2 / math.pi) / math.sqrt(1 - 2 / math.pi), abs=0.02)


@pytest.mark.parametrize("shape", [(30, 8), (8, 30)])
def test_main_axes_are_scikit_learns_principal_components(shape):
    from sklearn.decomposition import PCA

    rows = np.random.default_rng(0).normal(size=shape) * np.linspace(3, 1, shape[1])
    axes = main_axes(rows - rows.mean(axis=0), 3)
    expected = PCA(3, svd_solver="full").fit(rows).components_
    assert np.abs(np.sum(axes.T * expected, axis=1)) == pytest.approx(np.ones(3), abs=1e-8)


def test_a_division_learned_from_some_samples_separates_others():
    features, truth = clouds([200, 200])
    rows = features.double().numpy()
    side = best_division(rows[::2], 20, seed=0).along(rows[1::2]) > 0
    agreement = (side == truth[1::2].numpy().astype(bool)).mean()
    assert max(agreement, 1 - agreement) == 1.0


def test_two_is_judged_on_samples_that_the_division_was_not_learned_from():
    wide = np.random.default_rng(0).normal(size=(60, 500))  # any half can be cut in two without a gap
    assert gap(best_division(wide[:30], 20, seed=0).along(wide[:30])) > 5.5
    assert not are_two(wide, SeparationSettings(), seed=0)


def test_a_member_cannot_vouch_for_itself():
    rows = np.array([[0.0], [4.0]])  # the mean is 2 from each, but each is 4 from the other
    kept, share = own_members(rows, np.arange(2), np.array([[-3.0]]))
    assert (kept.tolist(), share) == ([], 0.0)
    assert own_members(rows, np.arange(2), np.array([[-5.0]]))[0].tolist() == [0, 1]


def test_what_cannot_be_separated_is_refused():
    with pytest.raises(DataError, match=r"features must be a tensor \(n, d\), got Tensor \(3,\)"):
        separate(torch.zeros(3))
    with pytest.raises(DataError, match="features must be finite"):
        separate(torch.full((20, 3), torch.nan))
    with pytest.raises(DataError, match="known_means must have 3 columns as the features, got 4"):
        separate(torch.zeros(20, 3), known_means=torch.zeros(2, 4))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("least_size", 4),
        ("least_size", 7.5),
        ("least_purity", 1.5),
        ("most_classes", 0),
        ("least_gap", -1),
        ("most_between", math.nan),
        ("trials", True),
    ],
)
def test_settings_outside_their_rule_are_refused(name, value):
    with pytest.raises(SettingsError, match=f"{name} must be"):
        SeparationSettings(**{name: value})
