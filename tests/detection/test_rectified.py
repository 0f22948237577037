"""Classes on random, rectified projections: what is kept of each, and what the discriminant makes of it."""

from __future__ import annotations

import pytest
import torch

from shels.detection.gaussians import Discriminant, Sums
from shels.detection.rectified import (
    RANK,
    FactoredSums,
    directions,
    factored_from,
    factored_tensors,
    rectified,
)


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def scatter(sums):
    return FactoredSums.pooled_scatter([sums])


def test_projections_are_cut_off_at_zero_and_the_same_at_every_call():
    random = directions(5, 7, torch.device("cpu"))
    assert torch.equal(random, directions(5, 7, torch.device("cpu")))
    rows = draw(4, 5)
    found = rectified(rows, random)
    assert torch.equal(found, (rows @ random).clamp(min=0))
    assert (found == 0).any()


def test_a_class_of_few_directions_is_kept_whole():
    rows = draw(40, 12).relu()
    kept, exact = FactoredSums.of(rows), Sums.of(rows)
    assert kept.count == 40
    torch.testing.assert_close(scatter(kept), exact.scatter, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(kept.mean.double(), exact.mean)


def test_of_many_directions_the_variances_are_kept_whole_and_the_main_ones_with_their_covariance():
    strong = torch.cat([10 * draw(600, 3, seed=1) @ draw(3, 300, seed=2), torch.zeros(600, 20)], dim=1)
    rows = strong + draw(600, 320, seed=3)
    kept, exact = FactoredSums.of(rows), Sums.of(rows)
    assert kept.factor.shape == (RANK, 320)
    torch.testing.assert_close(scatter(kept).diagonal(), exact.scatter.diagonal(), rtol=1e-4, atol=1e-2)
    apart = (scatter(kept) - exact.scatter).norm() / exact.scatter.norm()
    assert apart < 0.01
    torch.linalg.cholesky(scatter(kept) + 1e-6 * torch.eye(320))  # no direction is negative


@pytest.mark.parametrize("count", [1, 2])
def test_one_image_has_a_mean_and_no_spread_and_two_have_one_direction(count):
    kept = FactoredSums.of(draw(count, 9).relu())
    assert (kept.factor.norm(dim=1) > 1e-6).sum() == count - 1
    assert kept.factor.shape == (9, 9)
    assert kept.residual.isfinite().all()


def test_the_discriminant_is_that_of_the_exact_sums_where_nothing_is_left_out():
    clouds = [draw(60, 10, seed=place).relu() + place * torch.eye(10)[place] for place in range(3)]
    kept = Discriminant.of([FactoredSums.of(rows) for rows in clouds])
    exact = Discriminant.of([Sums.of(rows) for rows in clouds])
    torch.testing.assert_close(kept.weights, exact.weights, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(kept.offsets, exact.offsets, rtol=1e-3, atol=1e-3)


def test_the_order_of_classes_changes_no_bit_and_one_left_out_was_never_there():
    clouds = [FactoredSums.of(draw(30 + place, 8, seed=place).relu()) for place in range(4)]
    there, back = Discriminant.of(clouds), Discriminant.of(clouds[::-1])
    assert torch.equal(there.weights, back.weights.flip(0))
    assert torch.equal(Discriminant.of(clouds[:3]).weights, Discriminant.of([*clouds[2::-1]]).weights.flip(0))


def test_sums_come_back_from_tensors():
    sums = FactoredSums.of(draw(20, 6))
    read = factored_from(factored_tensors(sums, "of/"), "of/")
    assert read.count == sums.count
    assert all(
        torch.equal(getattr(read, name), getattr(sums, name)) for name in ("mean", "factor", "residual")
    )
