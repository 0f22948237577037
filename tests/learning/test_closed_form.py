"""Continual learners in closed form, against scikit-learn, NumPy in double precision and numbers by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.covariance import EmpiricalCovariance
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from torch import nn

from shels.config import Adam, Fecam, Maha, Ranpac, Slda, TrainingSettings
from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.errors import AccommodationError, DataError
from shels.files import read_tensors, to_bytes
from shels.learning.methods import fecam, ranpac
from shels.learning.methods.fecam import correlations, whitening
from shels.learning.methods.slda import discriminant
from shels.learning.protocol import NewClass, take_in
from shels.learning.registry import method_of
from shels.model.networks import from_chain

ALL = [Maha(), Slda(), Fecam(), Ranpac(projections=64)]
WIDTH = 8


def toy(classes=4, n=30, seed=0, width=WIDTH):
    """Rows of separated Gaussians of one uneven covariance, folded to be non-negative, and their labels."""
    draws = torch.Generator().manual_seed(seed)
    mix = torch.eye(width) * 0.3 + 0.15 * torch.randn(
        width, width, generator=torch.Generator().manual_seed(99)
    )
    labels = torch.arange(classes).repeat_interleave(n)
    rows = 4 * torch.eye(width)[labels] + 1 + torch.randn(len(labels), width, generator=draws) @ mix
    return rows.abs(), labels


def one_by_one(method, rows, labels, first=2):
    memory = method.fitted(rows[labels < first], labels[labels < first])
    for position in range(first, int(labels.max()) + 1):
        memory = method.grown(memory, rows[labels == position])
    return memory


def plain(rows):
    return rows.double().numpy()


def agree(scores, wanted, within=1e-6):
    np.testing.assert_allclose(scores.double().numpy(), wanted, rtol=within, atol=within)


# Every method ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", ALL, ids=lambda each: each.kind)
def test_classes_taken_in_one_by_one_give_the_same_statistics_as_all_at_once(settings):
    method, (rows, labels) = method_of(settings), toy()
    whole, grown = method.fitted(rows, labels), one_by_one(method, rows, labels)
    if settings.kind == "ranpac":
        grown |= {"ridge": whole["ridge"]}  # chosen on the first classes, whichever these are
    assert set(grown) == set(whole)
    for name, value in whole.items():
        assert torch.allclose(grown[name].double(), value.double(), rtol=1e-6, atol=1e-9)
    new = toy(seed=1)[0]
    assert torch.allclose(method.scorer(grown)(new), method.scorer(whole)(new), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("settings", ALL, ids=lambda each: each.kind)
@pytest.mark.parametrize("classes", [2, 5])
def test_separated_classes_are_named_rightly(settings, classes):
    method, (new, wanted) = method_of(settings), toy(classes, seed=1)
    score = method.scorer(one_by_one(method, *toy(classes)))
    assert score(new).shape == (len(new), classes)
    assert (score(new).argmax(dim=1) == wanted).float().mean() > 0.97


@pytest.mark.parametrize("settings", ALL, ids=lambda each: each.kind)
def test_a_class_of_five_samples_is_taken_in_and_named(settings):
    method = method_of(settings)
    rows, labels = toy(4, n=40)
    memory = method.grown(method.fitted(rows[:120], labels[:120]), rows[120:125])
    new, wanted = toy(4, seed=1)
    named = method.scorer(memory)(new).argmax(dim=1)
    assert (named[wanted == 3] == 3).float().mean() > 0.6
    assert (named[wanted < 3] == wanted[wanted < 3]).float().mean() > 0.9


@pytest.mark.parametrize("settings", ALL, ids=lambda each: each.kind)
def test_constant_columns_and_more_features_than_samples_leave_all_numbers_finite(settings):
    method, (rows, labels) = method_of(settings), toy(3, n=6, width=50)
    rows[:, 7], rows[:, 8], rows[:, 9] = 0, 3, rows[:, 10]
    memory = one_by_one(method, rows, labels)
    scores = method.scorer(memory)(rows)
    assert scores.is_floating_point()
    assert scores.isfinite().all()
    assert all(value.isfinite().all() for value in memory.values())
    if settings.kind != "maha":  # its pseudo-inverse is blind outside the few directions within classes
        assert (scores.argmax(dim=1) == labels).all()


@pytest.mark.parametrize("settings", ALL, ids=lambda each: each.kind)
def test_statistics_come_back_from_a_file_and_score_the_same(settings, tmp_path):
    method, (rows, labels) = method_of(settings), toy()
    memory = one_by_one(method, rows, labels)
    assert all(value.is_contiguous() for value in memory.values())
    (tmp_path / "memory.safetensors").write_bytes(to_bytes(memory))
    read = read_tensors(tmp_path / "memory.safetensors")
    assert torch.equal(method.scorer(read)(rows), method.scorer(memory)(rows))


@pytest.mark.parametrize("settings", ALL, ids=lambda each: each.kind)
def test_many_rows_are_scored_as_few_are_and_none_gives_none(settings):
    method, (rows, labels) = method_of(settings), toy()
    score = method.scorer(method.fitted(rows, labels))
    many = rows.repeat(40, 1)  # more than are scored at once
    assert torch.allclose(score(many)[-len(rows) :], score(rows), rtol=1e-5, atol=1e-5)
    assert score(rows[:0]).shape == (0, 4)


@pytest.mark.parametrize("settings", ALL, ids=lambda each: each.kind)
def test_growing_leaves_the_old_statistics_untouched(settings):
    method, (rows, labels) = method_of(settings), toy()
    memory = method.fitted(rows, labels)
    before = {name: value.clone() for name, value in memory.items()}
    method.grown(memory, rows[:9])
    assert all(torch.equal(memory[name], value) for name, value in before.items())


# In a network ------------------------------------------------------------------------------------------

PREPARE = Preparation((WIDTH,))
TRAINING = TrainingSettings(Adam(1e-2), batch_size=16, steps=1)


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    chain = nn.Sequential(nn.Linear(WIDTH, 20), nn.ReLU(), nn.Linear(20, 12), nn.ReLU())
    return from_chain(chain, (WIDTH,), "cosine", 3, seed=0)


def samples(classes):
    rows, labels = toy(4)
    kept = torch.isin(labels, torch.tensor(classes))
    _, numbered = labels[kept].unique(return_inverse=True)
    return Samples(rows[kept], numbered, tuple(classes))


@pytest.mark.parametrize("features", ["shared", "high"])
@pytest.mark.parametrize("settings", ALL, ids=lambda each: each.kind)
def test_a_network_that_stays_as_it_is_names_old_and_new_classes(network, settings, features):
    method = method_of(replace(settings, features=features))
    memory = method.remember(network, samples([0, 1, 2]), PREPARE)
    taken = take_in(method, NewClass(network, memory, samples([3]), PREPARE, TRAINING, 0))
    assert taken.network is network
    new, wanted = toy(4, seed=1)
    with torch.no_grad():
        views = network.views(PREPARE(new))
    named = method.naming(taken.network, taken.memory)(views).argmax(dim=1)
    assert (named == wanted).float().mean() > 0.9


@pytest.mark.parametrize("settings", ALL, ids=lambda each: each.kind)
def test_a_class_without_samples_is_refused(network, settings):
    method = method_of(settings)
    memory = method.remember(network, samples([0, 1]), PREPARE)
    nothing = samples([3]).take(torch.zeros(0, dtype=torch.int64))
    with pytest.raises(DataError, match="no sample of the new class"):
        take_in(method, NewClass(network, memory, nothing, PREPARE, TRAINING, 0))


@pytest.mark.parametrize("settings", [Maha(), Slda(), Ranpac(projections=16)], ids=lambda each: each.kind)
def test_a_class_that_joined_a_common_sum_cannot_be_unlearned(network, settings):
    method = method_of(settings)
    memory = method.remember(network, samples([0, 1, 2]), PREPARE)
    with pytest.raises(AccommodationError, match=f'"{settings.kind}" cannot unlearn a class'):
        method.drop(network, memory, 1)


def test_fecam_without_a_class_is_as_if_it_had_never_been_there(network):
    method = method_of(Fecam())
    dropped = method.drop(network, method.remember(network, samples([0, 1, 2]), PREPARE), 1)
    never = method.remember(network, samples([0, 2]), PREPARE)
    assert dropped.network is network
    assert set(dropped.memory) == set(never)
    assert all(torch.equal(dropped.memory[name], value) for name, value in never.items())


# MAHA and SLDA -----------------------------------------------------------------------------------------


def test_maha_scores_are_those_of_the_empirical_covariance_within_classes():
    method, (rows, labels), new = method_of(Maha()), toy(), toy(seed=1)[0]
    means = np.stack([plain(rows[labels == c]).mean(axis=0) for c in range(4)])
    oracle = EmpiricalCovariance(assume_centered=True).fit(plain(rows) - means[labels])
    wanted = np.stack([-oracle.mahalanobis(plain(new) - mean) for mean in means], axis=1)
    agree(method.scorer(one_by_one(method, rows, labels))(new), wanted)


def test_a_class_weighs_in_the_covariance_by_its_samples():
    method = method_of(Maha())
    one = torch.tensor([[1.0], [3.0], [1.0], [3.0], [1.0], [3.0]])  # variance 1
    memory = method.grown(method.fitted(one, torch.zeros(6, dtype=torch.int64)), torch.tensor([[5.0], [9.0]]))
    variance = (6 * 1 + 2 * 4) / 8
    agree(method.scorer(memory)(torch.tensor([[4.0]])), [[-4 / variance, -9 / variance]])


def welford(rows, labels):
    """Means and covariance of a stream, sample by sample, each class by its own count."""
    classes, width = labels.max() + 1, rows.shape[1]
    means, counts, scatter = np.zeros((classes, width)), np.zeros(classes), np.zeros((width, width))
    for row, label in zip(rows, labels, strict=True):
        apart = row - means[label]
        scatter += np.outer(apart, apart) * counts[label] / (counts[label] + 1)
        means[label] += apart / (counts[label] + 1)
        counts[label] += 1
    return means, scatter / len(rows)


def test_slda_is_the_stream_sample_by_sample_in_any_order():
    method, (rows, labels), new = method_of(Slda()), toy(), toy(seed=1)[0]
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(3))
    means, covariance = welford(plain(rows[order]), labels[order].numpy())
    usual = np.trace(covariance) / WIDTH
    precision = np.linalg.inv((1 - 1e-4) * covariance + 1e-4 * usual * np.eye(WIDTH))
    wanted = plain(new) @ precision @ means.T - np.einsum("cd,de,ce->c", means, precision, means) / 2
    agree(method.scorer(one_by_one(method, rows, labels))(new), wanted)


@pytest.mark.parametrize("shrinkage", [1e-4, 0.3])
def test_slda_scores_are_those_of_scikit_learns_discriminant_analysis(shrinkage):
    (rows, labels), new = toy(), toy(seed=1)[0]
    oracle = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage, priors=np.full(4, 0.25))
    oracle.fit(plain(rows), labels.numpy())
    method = method_of(Slda(shrinkage=shrinkage))
    scores = method.scorer(one_by_one(method, rows, labels))(new)
    agree(scores, oracle.decision_function(plain(new)) - np.log(0.25), within=1e-5)
    assert scores.argmax(dim=1).tolist() == oracle.predict(plain(new)).tolist()


def test_slda_weights_by_hand():
    means = torch.tensor([[1.0, 0.0], [0.0, 2.0]]).double()
    covariance = torch.diag(torch.tensor([2.0, 0.0])).double()  # the second feature never varies
    weights, offsets = discriminant(means, covariance, 0.5)  # Λ = diag(1 + 1/2, 1/2)⁻¹, mean variance 1
    agree(weights, [[2 / 3, 0], [0, 4]])
    agree(offsets, [-1 / 3, -4])


# FeCAM -------------------------------------------------------------------------------------------------


def test_correlations_by_hand():
    # V1 = (1 + 3) / 2 = 2, V2 = 1: shrunk [[3, 2], [2, 5]]
    found = correlations(torch.tensor([[1.0, 1.0], [1.0, 3.0]]), 1.0)
    agree(found, [[1, 2 / 15**0.5], [2 / 15**0.5, 1]])
    agree(correlations(torch.zeros(3, 3), 1.0), np.eye(3))


def fecam_distance(own, new, power, share):
    """The squared distance of new rows to the class of own rows, in NumPy: two rounds of loops."""
    shaped = own**power
    covariance = np.cov(shaped.T)
    width = len(covariance)
    off = covariance[~np.eye(width, dtype=bool)].mean()
    shrunk = np.empty_like(covariance)
    for i in range(width):
        for j in range(width):
            shrunk[i, j] = covariance[i, j] + share * (np.diag(covariance).mean() if i == j else off)
    deviation = np.sqrt(np.diag(shrunk))
    inverse = np.linalg.inv(shrunk / np.outer(deviation, deviation))
    middle = own.mean(axis=0) ** power
    middle /= np.linalg.norm(middle)
    apart = new**power / np.linalg.norm(new**power, axis=1, keepdims=True) - middle
    return np.array([row @ inverse @ row for row in apart])


@pytest.mark.parametrize(("power", "share"), [(0.5, 1.0), (1.0, 0.2)])
def test_fecam_scores_are_those_of_a_plain_loop(power, share):
    method, (rows, labels) = method_of(Fecam(power=power, shrinkage=share)), toy()
    new = toy(seed=1)[0]
    wanted = [-fecam_distance(plain(rows[labels == c]), plain(new), power, share) for c in range(4)]
    scores = method.scorer(one_by_one(method, rows, labels))(new)
    np.testing.assert_allclose(scores.numpy(), np.stack(wanted, axis=1), rtol=5e-4)


def test_fecam_whitens_each_class_once_and_by_its_own_shrinkage(monkeypatch):
    calls = []
    monkeypatch.setattr(fecam, "whitening", lambda *given: calls.append(given[1]) or whitening(*given))
    method, (rows, labels) = method_of(Fecam()), toy()
    memory = one_by_one(method, rows, labels)
    scores = [method.scorer(memory)(rows) for _ in range(2)]
    assert calls == [3.0] * 4
    whole = method.scorer(method.fitted(rows, labels))(rows)
    torch.testing.assert_close(scores[0], whole)
    assert torch.equal(*scores)
    other = method_of(Fecam(shrinkage=1.0))
    torch.testing.assert_close(other.scorer(memory)(rows), other.scorer(other.fitted(rows, labels))(rows))


def test_fecam_takes_negative_features_as_zero_and_no_length_into_account():
    method, (rows, labels) = method_of(Fecam()), toy()
    score = method.scorer(method.fitted(rows, labels))
    new = toy(seed=1)[0]
    below = new.clone()
    below[:, 0] = -2
    assert torch.equal(score(below), score(below.clamp(min=0)))
    assert torch.allclose(score(5 * new), score(new), atol=1e-4)
    signed = torch.where(rows < 0.8, -rows, rows)
    one, other = method.fitted(signed, labels), method.fitted(signed.clamp(min=0), labels)
    assert all(torch.equal(one[name], value) for name, value in other.items())


def test_fecam_keeps_means_and_covariances_in_single_precision():
    memory = method_of(Fecam()).fitted(*toy(3))
    assert {name: (value.dtype, tuple(value.shape)) for name, value in memory.items()} == {
        "mean": (torch.float32, (3, WIDTH)),
        "covariance": (torch.float32, (3, WIDTH, WIDTH)),
    }


def test_fecam_takes_in_a_class_of_one_sample_and_features_that_go_together():
    method, (rows, labels) = method_of(Fecam()), toy(2)
    memory = method.grown(method.fitted(rows, labels), rows[:1])
    assert method.scorer(memory)(rows).isfinite().all()
    twins = rows[:, :1].repeat(1, 2)  # the one covariance that shrinking leaves singular
    assert method.scorer(method.fitted(twins, labels))(twins).isfinite().all()


# RanPAC ------------------------------------------------------------------------------------------------


def projected(rows, projections):
    return np.maximum(plain(rows) @ plain(ranpac.directions(rows.shape[1], projections)), 0)


@pytest.mark.parametrize("projections", [16, 300])
def test_ranpac_scores_are_those_of_scikit_learns_ridge(projections):
    method, (rows, labels), new = method_of(Ranpac(projections=projections)), toy(), toy(seed=1)[0]
    memory = one_by_one(method, rows, labels) | {"ridge": torch.tensor(3.0).double()}
    oracle = Ridge(alpha=3.0, fit_intercept=False).fit(projected(rows, projections), np.eye(4)[labels])
    agree(method.scorer(memory)(new), oracle.predict(projected(new, projections)), within=1e-5)


@pytest.mark.parametrize("projections", [16, 300])
def test_ranpac_chooses_the_ridge_of_least_error_on_a_fifth(projections):
    rows, labels = toy(3, n=50)
    rows = rows + 2 * torch.rand(rows.shape, generator=torch.Generator().manual_seed(5))  # worth a ridge
    chosen = method_of(Ranpac(projections=projections)).fitted(rows, labels)["ridge"]
    order = torch.randperm(150, generator=ranpac.generator(0, "ranpac", "split")).numpy()
    seen, targets = projected(rows, projections)[order], np.eye(3)[labels][order]
    errors = {}
    for ridge in 10.0 ** np.arange(-8, 9):
        gram = seen[:120].T @ seen[:120] + ridge * np.eye(projections)
        if np.linalg.cond(gram) < 1e12:
            answers = seen[120:] @ np.linalg.solve(gram, seen[:120].T @ targets[:120])
            errors[ridge] = ((answers - targets[120:]) ** 2).mean()
    assert len(errors) > 8
    assert float(chosen) == min(errors, key=errors.__getitem__)
    assert 1e-4 < float(chosen) < 1e6  # within the range, so that the test can fail


def test_ranpac_draws_the_same_directions_again_and_none_go_to_memory():
    assert torch.equal(ranpac.directions(5, 40), ranpac.directions(5, 40))
    assert abs(float(ranpac.directions(100, 100).std()) - 1) < 0.02
    memory = method_of(Ranpac(projections=40)).fitted(*toy(3))
    assert {name: tuple(value.shape) for name, value in memory.items()} == {
        "gram": (40, 40),
        "sums": (40, 3),
        "ridge": (),
        "width": (),
    }
    assert memory["gram"].dtype == memory["sums"].dtype == torch.float64


def test_ranpac_answers_with_a_ridge_that_double_precision_cannot_tell_from_zero():
    method, (rows, labels) = method_of(Ranpac(projections=200)), toy(3, n=10)
    memory = method.fitted(rows, labels) | {"ridge": torch.tensor(1e-30).double()}
    scores = method.scorer(memory)(rows)  # 30 samples, 200 weights: it answers all rightly
    assert torch.allclose(scores, torch.eye(3).double()[labels], atol=1e-3)
