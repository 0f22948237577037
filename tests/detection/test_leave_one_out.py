"""Each sample beside its class as it would be without it: in closed form, against fitting anew."""

from __future__ import annotations

import pytest
import torch
from scipy.spatial.distance import mahalanobis

from shels.detection.gaussians import Sums, pooled_covariance
from shels.detection.leave_one_out import left_out_distances, left_out_fits


@pytest.fixture
def rows():
    """Three classes of 20, 12 and 3 samples in six directions, each with a spread of its own."""
    draws = torch.Generator().manual_seed(0)
    counts = (20, 12, 3)
    parts = [
        torch.randn(n, 6, generator=draws) @ torch.randn(6, 6, generator=draws) + 3 * place
        for place, n in enumerate(counts)
    ]
    return torch.cat(parts), torch.repeat_interleave(torch.arange(3), torch.tensor(counts))


def test_distances_are_those_to_the_class_fitted_anew_without_the_sample(rows):
    features, labels = rows
    sums = [Sums.of(features[labels == c]) for c in range(3)]
    prior = pooled_covariance(sums)
    found = left_out_distances(features, labels, sums, prior)
    for place in range(len(features)):
        for c in range(3):
            others = features[(labels == c) & (torch.arange(len(labels)) != place)].double()
            centred = others - others.mean(dim=0)
            covariance = (24 * prior + centred.T @ centred) / (
                24 + len(others) - 1
            )  # the prior weighs 4 r rows
            distance = mahalanobis(
                features[place].double().numpy(), others.mean(dim=0).numpy(), covariance.inverse().numpy()
            )
            assert float(found[place, c]) == pytest.approx(distance**2, rel=2e-4)


def test_p_values_count_the_other_samples_of_a_class_that_lie_farther_out(rows):
    features, labels = rows
    fits = left_out_fits(features, labels, 3)
    for place in range(len(labels)):
        for c in range(3):
            others = fits.scores[(labels == c) & (torch.arange(len(labels)) != place), c]
            expected = (1 + int((others < fits.scores[place, c]).sum())) / (1 + len(others))
            assert float(fits.p_values[place, c]) == pytest.approx(expected)


def test_own_p_values_of_a_class_are_spread_evenly(rows):
    features, labels = rows
    own = left_out_fits(features, labels, 3).own_p[labels == 0].sort().values
    assert torch.allclose(own, torch.arange(1, 21) / 20)


def test_a_sample_under_a_wrong_label_is_the_first_suspect_and_its_true_class_is_named(rows):
    features, labels = rows
    wrong = labels.clone()
    wrong[5] = 1
    fits = left_out_fits(features, wrong, 3)
    assert int(fits.suspects(0.1)[0]) == 5
    assert int(fits.other[5]) == 0
    assert float(fits.gain[5]) == pytest.approx(float(fits.scores[5, 0] - fits.scores[5, 1]))


def test_samples_that_fit_their_class_are_no_suspects():
    draws = torch.Generator().manual_seed(1)
    features = torch.randn(60, 8, generator=draws) + 8 * torch.eye(8)[:2].repeat_interleave(30, dim=0)
    assert len(left_out_fits(features, torch.arange(2).repeat_interleave(30), 2).suspects()) == 0
