from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.covariance import oas
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from shels.detection import gaussians
from shels.detection.gaussians import (
    Discriminant,
    Distances,
    Projection,
    Spread,
    Sums,
    balanced,
    pooled_covariance,
    shrunk,
)

DRAWS = torch.Generator().manual_seed(0)


def rows(n, d=6, shift=0.0):
    mixing = torch.randn(d, d, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return torch.randn(n, d, generator=DRAWS, dtype=torch.float64) @ mixing + shift


def distances(spread, x):
    return Distances.of([spread])(x.float(), torch.zeros(len(x), dtype=torch.int64))


def test_sums_are_count_mean_and_scatter():
    sums = Sums.of(torch.tensor([[1.0, 0.0], [3.0, 2.0]]))
    assert sums.count == 2
    assert sums.mean.tolist() == [2.0, 1.0]
    assert sums.scatter.tolist() == [[2.0, 2.0], [2.0, 2.0]]


@pytest.mark.parametrize("n", [8, 50, 5000])
def test_shrinkage_is_scikit_learns_oracle_approximation(n):
    x = rows(n)
    x = x - x.mean(dim=0)
    expected, weight = oas(x.numpy(), assume_centered=True)
    if weight > 1e-3:
        np.testing.assert_allclose(shrunk(x.T @ x / n, n).numpy(), expected, rtol=1e-10, atol=1e-12)
    else:
        assert shrunk(x.T @ x / n, n).diagonal().mean() == pytest.approx(float((x**2).mean()))


def test_a_covariance_of_nothing_is_still_invertible():
    assert torch.linalg.cholesky(shrunk(torch.zeros(3, 3, dtype=torch.float64), 1)).isfinite().all()


def test_the_pooled_covariance_does_not_depend_on_the_order_of_classes_to_the_bit():
    classes = [Sums.of(rows(n, shift=n / 10)) for n in (20, 30, 40, 50)]
    expected = pooled_covariance(classes)
    for order in ((3, 2, 1, 0), (1, 3, 0, 2)):
        assert torch.equal(pooled_covariance([classes[i] for i in order]), expected)


def test_how_a_small_class_spreads_may_count_as_in_the_largest_for_four_times_its_rows_at_most():
    """Scatter 18 of ten rows, 8 of five, 2 of two: (18 + 2 · 8 + 4 · 2) / (9 + 2 · 4 + 4 · 1) = 2."""
    one = torch.ones(1, 1, dtype=torch.float64)
    classes = [Sums(n, 0 * one[0], scatter * one) for n, scatter in ((10, 18), (5, 8), (2, 2))]
    found = balanced(classes)
    assert sum(float(each.scatter) for each in found) / (9 + 4 + 1) == pytest.approx(2)
    assert [each.count for each in found] == [10, 5, 2]
    assert pooled_covariance(balanced(classes[::-1])) == pooled_covariance(found)
    alike = [Sums.of(rows(30)) for _ in range(3)]
    assert all(torch.equal(a.scatter, b.scatter) for a, b in zip(alike, balanced(alike), strict=True))
    assert balanced([Sums(1, one[0], 0 * one)])[0].scatter.item() == 0


def test_the_projection_is_principal_components_of_rows_of_length_one():
    x = rows(300, d=10) + 3
    projection = Projection.fit(x.float(), 4)
    lengths = (x / x.norm(dim=1, keepdim=True)).numpy()
    expected = PCA(4).fit(lengths).transform(lengths)
    found = projection(x.float()).numpy()
    signs = np.sign((found * expected).sum(axis=0))
    np.testing.assert_allclose(found, expected * signs, atol=1e-5)


def test_the_projection_keeps_no_direction_in_which_nothing_varies():
    x = torch.randn(200, 3, generator=DRAWS) @ torch.randn(3, 40, generator=DRAWS)
    assert Projection.fit(x, 20).directions.shape == (40, 3)
    assert Projection.fit(x[:2], 20).directions.shape == (40, 1)


def test_a_row_of_zeros_stays_finite_in_the_projection():
    assert Projection.fit(rows(50).float(), 3)(torch.zeros(2, 6)).isfinite().all()


def test_the_discriminant_predicts_as_scikit_learns_linear_discriminant_analysis():
    parts = [rows(2000, shift=shift) for shift in (0.0, 1.0, 2.0)]
    new = torch.cat([rows(300, shift=shift) for shift in (0.0, 1.0, 2.0)])
    x, y = torch.cat(parts).numpy(), np.repeat([0, 1, 2], 2000)
    theirs = LinearDiscriminantAnalysis(solver="lsqr", priors=[1 / 3] * 3).fit(x, y).predict(new.numpy())
    ours = Discriminant.of([Sums.of(part) for part in parts])(new.float()).argmax(dim=1).numpy()
    assert (ours == theirs).mean() > 0.99  # ours shrinks a little where theirs does not


def test_the_discriminant_is_fair_to_a_class_of_few_rows():
    """Without the correction a class of five rows in forty directions would win next to nothing."""
    d, shift = 40, 0.4
    many, few = torch.randn(4000, d, generator=DRAWS), torch.randn(5, d, generator=DRAWS) + shift
    new = torch.randn(2000, d, generator=DRAWS) + shift
    sums = [Sums.of(many), Sums.of(few)]
    corrected = Discriminant.of(sums)
    means = torch.stack([each.mean for each in sums]).float()
    plain = Discriminant(corrected.weights, -(corrected.weights * means).sum(dim=1) / 2)
    won = [float((each(new).argmax(dim=1) == 1).float().mean()) for each in (corrected, plain)]
    assert won[0] > won[1] + 0.02


def test_distances_are_squared_mahalanobis_under_own_and_common_covariance():
    x, prior = rows(40), torch.eye(6, dtype=torch.float64) * 2
    sums = Sums.of(x)
    covariance = (24 * prior + sums.scatter) / (24 + 39)
    gaps = x - sums.mean
    expected = (gaps @ torch.linalg.inv(covariance) * gaps).sum(dim=1)
    torch.testing.assert_close(distances(Spread.of(sums, prior), x).double(), expected, rtol=1e-4, atol=1e-4)


def test_leaving_a_row_out_is_exact():
    x, prior = rows(12), torch.eye(6, dtype=torch.float64) * 3
    fast = Spread.of(Sums.of(x), prior).left_out(x)
    for i in range(12):
        rest = torch.cat([x[:i], x[i + 1 :]])
        slow = distances(Spread.of(Sums.of(rest), prior), x[i : i + 1])
        assert float(fast[i]) == pytest.approx(float(slow[0]), rel=1e-4)


def test_left_out_distances_are_larger_than_in_sample_ones():
    x, prior = rows(6), torch.eye(6, dtype=torch.float64)
    spread = Spread.of(Sums.of(x), prior)
    assert (spread.left_out(x) > distances(spread, x).double()).all()


@pytest.mark.parametrize("room", [1, 300, 2**24])
def test_each_row_is_measured_from_its_own_class_however_many_fit_in_memory(room, monkeypatch):
    prior = torch.eye(6, dtype=torch.float64)
    spreads = [Spread.of(Sums.of(rows(20, shift=shift)), prior) for shift in range(5)]
    x, position = rows(30), torch.arange(30) % 5
    monkeypatch.setattr(gaussians, "_ROOM", room)
    found = Distances.of(spreads).from_all(x.float()).gather(0, position[None])[0]
    for place, spread in enumerate(spreads):
        mine = position == place
        torch.testing.assert_close(found[mine], distances(spread, x[mine]))


def test_rows_are_measured_from_their_own_class_as_from_all_of_them():
    spreads = [Spread.of(Sums.of(rows(n)), torch.eye(6).double()) for n in (20, 30, 40, 50)]
    every = Distances.of(spreads)
    x, position = rows(30).float(), torch.tensor([2, 0, 3] * 10)  # none of class 1
    expected = every.from_all(x).gather(0, position[None])[0]
    torch.testing.assert_close(every(x, position), expected)
    assert every(x[:0], position[:0]).shape == (0,)


def test_a_class_more_leaves_the_distances_of_the_others_to_the_bit():
    spreads = [Spread.of(Sums.of(rows(n)), torch.eye(6).double()) for n in (20, 30, 40)]
    whole, grown = Distances.of(spreads), Distances.of(spreads[:2]).with_class(spreads[2])
    assert torch.equal(grown.means, whole.means)
    assert torch.equal(grown.whitening, whole.whitening)
