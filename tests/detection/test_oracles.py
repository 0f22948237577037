"""Each rival against numbers worked by hand, and NumPy, SciPy and scikit-learn in double precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import logsumexp, softmax
from scipy.stats import weibull_min
from sklearn.covariance import EmpiricalCovariance
from sklearn.neighbors import NearestNeighbors

from shels.detection.head import Head
from shels.detection.registry import DETECTORS, RIVALS, SCORES, score
from shels.detection.scores.ash import shaped
from shels.detection.scores.fdbd import boundary_distance
from shels.detection.scores.gen import negative_generalised_entropy
from shels.detection.scores.openmax import known_probability, weibull
from shels.detection.scores.react import percentile
from shels.detection.scores.vim import principal_dimension
from shels.errors import ArchitectureError, DataError, SettingsError
from shels.model.head import CosineHead, LinearHead
from shels.model.networks import Views


@pytest.fixture
def both(toy):
    """Training samples with labels, and new samples of known and novel classes."""
    return *toy.samples(toy.known, seed=0), toy.samples([0, 1, 2, 5, 6], n=20, seed=1)[0]


def plain(rows):
    return rows.double().numpy()


def length_one(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def head_of(head):
    """What the linear map of a head works on: a function of features, its weights and its offsets."""
    weight = plain(head.weight)
    if head.cosine:
        return length_one, length_one(weight), np.zeros(len(weight))
    return (lambda rows: rows), weight, plain(head.bias)


def logits_of(head, rows):
    seen, weight, bias = head_of(head)
    return seen(rows) @ weight.T + bias


def agree(scores, wanted):
    np.testing.assert_allclose(scores.numpy(), wanted, rtol=1e-4, atol=1e-4)


# The head ------------------------------------------------------------------------------------------------


def test_head_gives_the_scores_of_the_network_it_was_taken_from(toy):
    high = toy.samples([0, 5])[0].high
    for layer in (CosineHead(toy.width, 3), LinearHead(toy.width, 3)):
        torch.nn.init.normal_(layer.weight, generator=torch.Generator().manual_seed(0))
        head = Head.of(layer)
        torch.testing.assert_close(head.logits(high), layer(high).detach())
        assert head.cosine == isinstance(layer, CosineHead)
        assert not head.weight.requires_grad


def test_a_head_that_is_none_is_refused():
    with pytest.raises(ArchitectureError, match=r"\(classes, d\), got shape \(3,\)"):
        Head(torch.ones(3), None, cosine=True)
    with pytest.raises(ArchitectureError, match=r"None with cosines, got shape \(2,\)"):
        Head(torch.ones(2, 3), torch.ones(2), cosine=True)
    with pytest.raises(ArchitectureError, match=r"bias must be \(2,\), got shape \(3,\)"):
        Head(torch.ones(2, 3), torch.ones(3), cosine=False)


# Logits --------------------------------------------------------------------------------------------------


def test_scores_of_logits_worked_by_hand():
    head = Head(torch.eye(2), torch.zeros(2), cosine=False)
    views = Views(torch.zeros(1, 1), torch.tensor([[np.log(3.0), 0.0]], dtype=torch.float32))  # p = 3/4, 1/4
    found = {name: float(score(name, head).scores(views)) for name in ("msp", "max-logit", "energy", "gen")}
    wanted = {"msp": 0.75, "max-logit": np.log(3), "energy": np.log(4), "gen": -2 * (3 / 16) ** 0.1}
    assert found == pytest.approx(wanted, abs=1e-6)


def test_scores_of_logits_agree_with_scipy(cosine, both, toy):
    head, new = toy.head(cosine), both[2]
    logits = logits_of(head, plain(new.high))
    p = softmax(logits, axis=1)
    agree(score("msp", head).scores(new), p.max(axis=1))
    agree(score("max-logit", head).scores(new), logits.max(axis=1))
    agree(score("energy", head).scores(new), logsumexp(logits, axis=1))
    agree(score("energy", head, temperature=2.0).scores(new), 2 * logsumexp(logits / 2, axis=1))
    agree(score("gen", head).scores(new), -((p * (1 - p)) ** 0.1).sum(axis=1))


def test_generalised_entropy_counts_the_largest_probabilities_alone():
    p = torch.tensor([[0.5, 0.3, 0.1, 0.1]], dtype=torch.float64)
    wanted = -((0.5 * 0.5) ** 0.1 + (0.3 * 0.7) ** 0.1)
    assert float(negative_generalised_entropy(p, 0.1, 2)) == pytest.approx(wanted)


# Shaped features -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.5, 37.0, 90.0, 100.0])
def test_percentile_is_numpys(share):
    values = torch.randn(7, 33, generator=torch.Generator().manual_seed(0))
    assert float(percentile(values, share)) == pytest.approx(np.percentile(values.double().numpy(), share))


def test_react_clips_features_at_a_percentile_of_all_training_features(cosine, both, toy):
    views, labels, new = both
    head = toy.head(cosine)
    fitted = score("react", head).fit(views, labels)
    clip = np.percentile(plain(views.high), 90)
    assert float(fitted.state["clip"]) == pytest.approx(clip)
    agree(fitted.scores(new), logsumexp(logits_of(head, np.minimum(plain(new.high), clip)), axis=1))


def test_react_clips_at_the_percentile_of_firing_features_where_most_are_silent(toy):
    head, (views, labels) = toy.head(True), toy.samples(toy.known)
    sparse = views.high * (views.high > 6.5)  # one feature of eight at most
    clip = score("react", head, share=80.0).fit(Views(views.shared, sparse), labels).state["clip"]
    assert float(clip) == pytest.approx(np.percentile(plain(sparse[sparse > 0]), 80))


def test_ash_prunes_and_scales_up_worked_by_hand():
    found = shaped(torch.tensor([[4.0, 1.0, 3.0, 2.0], [0.0, 0.0, 0.0, 0.0]]), 50.0)
    assert found[0].tolist() == pytest.approx([4 * np.exp(10 / 7), 0, 3 * np.exp(10 / 7), 0])
    assert found[1].tolist() == [0, 0, 0, 0]


def test_ash_agrees_with_a_loop(cosine, both, toy):
    head, new = toy.head(cosine), both[2]
    rows = []
    for row in plain(new.high):
        kept = np.where(row >= np.sort(row)[-3], row, 0.0)  # 8 features, 60 % of them pruned: 3 stay
        rows.append(kept * np.exp(row.sum() / kept.sum()))
    agree(score("ash", head, share=60.0).scores(new), logsumexp(logits_of(head, np.array(rows)), axis=1))


# Features and logits, boundaries ---------------------------------------------------------------------------


def test_principal_dimension_is_the_authors_for_their_widths_and_half_of_less():
    assert [principal_dimension(d) for d in (2048, 4096, 768, 1024)] == [1000, 1000, 512, 512]
    assert [principal_dimension(d) for d in (512, 256, 3, 1)] == [256, 128, 1, 1]


@pytest.mark.parametrize("dimension", [None, 3])
def test_vim_agrees_with_numpy_and_scikit_learn(cosine, both, toy, dimension):
    views, labels, new = both
    head = toy.head(cosine)
    seen, weight, bias = head_of(head)
    origin = -np.linalg.pinv(weight) @ bias
    centred = seen(plain(views.high)) - origin
    covariance = EmpiricalCovariance(assume_centered=True).fit(centred).covariance_
    values, vectors = np.linalg.eigh(covariance)
    residual = vectors[:, np.argsort(-values)[dimension or 4 :]]
    largest = logits_of(head, plain(views.high)).max(axis=1).mean()
    alpha = largest / np.linalg.norm(centred @ residual, axis=1).mean()
    virtual = alpha * np.linalg.norm((seen(plain(new.high)) - origin) @ residual, axis=1)
    wanted = logsumexp(logits_of(head, plain(new.high)), axis=1) - virtual
    agree(score("vim", head, dimension=dimension).fit(views, labels).scores(new), wanted)


def test_vim_counts_the_directions_that_training_uses(toy):
    views, labels = toy.samples(toy.known)
    silent = Views(views.shared, views.high * (torch.arange(toy.width) < 6))
    assert score("vim", toy.head(True)).fit(silent, labels).state["residual"].shape == (8, 5)  # 6 / 2 taken


def test_boundary_distance_worked_by_hand():
    weight = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 2.0]])
    found = boundary_distance(torch.tensor([[1.0, 11.0, 5.0]]), weight)
    assert float(found) == pytest.approx((10 / 5 + 6 / 13**0.5) / 2)


def test_fdbd_agrees_with_a_loop(cosine, both, toy):
    views, labels, new = both
    head = toy.head(cosine)
    seen, weight, bias = head_of(head)
    middle = seen(plain(views.high)).mean(axis=0)
    wanted = []
    for row in seen(plain(new.high)):
        logits = weight @ row + bias
        best = logits.argmax()
        others = [c for c in range(3) if c != best]
        gaps = [(logits[best] - logits[c]) / np.linalg.norm(weight[best] - weight[c]) for c in others]
        wanted.append(np.mean(gaps) / np.linalg.norm(row - middle))
    agree(score("fdbd", head).fit(views, labels).scores(new), wanted)


# Distances -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 7, 50])
def test_nearest_neighbours_agree_with_scikit_learn(both, toy, k):
    views, labels, new = both
    tree = NearestNeighbors(n_neighbors=k).fit(length_one(plain(views.high)))
    wanted = -tree.kneighbors(length_one(plain(new.high)))[0][:, -1]
    agree(score("knn", toy.head(True), k=k).fit(views, labels).scores(new), wanted)


def test_nearest_neighbours_over_several_blocks_agree_with_scikit_learn(toy):
    views, labels = toy.samples(toy.known, n=3000)  # 9000 stored samples, so k is 9
    new = toy.samples([0, 5], n=20, seed=1)[0]
    fitted = score("knn", toy.head(True)).fit(views, labels)
    tree = NearestNeighbors(n_neighbors=9).fit(length_one(plain(views.high)))
    assert fitted.neighbour == 9
    agree(fitted.scores(new), -tree.kneighbors(length_one(plain(new.high)))[0][:, -1])


def test_neighbour_is_one_in_a_thousand_and_at_most_as_many_as_there_are(toy):
    views, labels = toy.samples(toy.known, n=2)
    assert score("knn", toy.head(True)).fit(views, labels).neighbour == 1
    assert score("knn", toy.head(True), k=50).fit(views, labels).neighbour == 6


def tied(rows, labels):
    """Class means and the fitted estimator of the covariance about them."""
    means = np.stack([rows[labels == c].mean(axis=0) for c in range(3)])
    return means, EmpiricalCovariance(assume_centered=True).fit(rows - means[labels])


def nearest(rows, means, covariance):
    return np.min([covariance.mahalanobis(rows - mean) for mean in means], axis=0)


def test_mahalanobis_agrees_with_scikit_learn(both, toy):
    views, labels, new = both
    fitted = score("mahalanobis", toy.head(True)).fit(views, labels)
    agree(fitted.scores(new), -nearest(plain(new.high), *tied(plain(views.high), labels.numpy())))


def test_mahalanobis_of_more_features_than_samples_agrees_with_scikit_learns_pseudo_inverse(toy):
    draws = torch.Generator().manual_seed(0)
    labels, wide = torch.arange(12) % 3, torch.rand(12, 40, generator=draws)
    views, new = Views(wide, wide), torch.rand(5, 40, generator=draws)
    head = Head(torch.rand(3, 40, generator=draws), None, cosine=True)
    fitted = score("mahalanobis", head).fit(views, labels)
    means, covariance = tied(plain(wide), labels.numpy())
    agree(fitted.scores(Views(new, new)), -nearest(plain(new), means, covariance))


def test_mahalanobis_of_layers_adds_up_scores_standardised_on_training_samples(both, toy):
    views, labels, new = both
    wanted = 0.0
    for training, rows in zip(views, new, strict=True):
        found = tied(plain(training), labels.numpy())
        usual = -nearest(plain(training), *found)
        wanted = wanted + (-nearest(plain(rows), *found) - usual.mean()) / usual.std()
    fitted = score("mahalanobis-layers", toy.head(True)).fit(views, labels)
    agree(fitted.scores(new), wanted)
    assert float(fitted.scores(views).mean()) == pytest.approx(0, abs=1e-5)


def test_mahalanobis_of_layers_needs_shared_features(both, toy):
    views, labels, _ = both
    with pytest.raises(
        DataError, match=r"shared features must be floats \(180, one or more\), got \(180, 0\)"
    ):
        score("mahalanobis-layers", toy.head(True)).fit(Views(views.high[:, :0], views.high), labels)


def test_relative_mahalanobis_agrees_with_scikit_learn(both, toy):
    views, labels, new = both
    own = nearest(plain(new.high), *tied(plain(views.high), labels.numpy()))
    of_all = EmpiricalCovariance().fit(plain(views.high)).mahalanobis(plain(new.high))
    fitted = score("relative-mahalanobis", toy.head(True)).fit(views, labels)
    agree(fitted.scores(new), of_all - own)


# Extremes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "scale"), [(0.8, 1.0), (2.0, 30.0), (40.0, 0.01)])
def test_weibull_fit_is_the_likeliest_and_near_the_truth(shape, scale):
    tail = weibull_min.rvs(shape, scale=scale, size=4000, random_state=0)
    found = weibull(torch.from_numpy(tail))
    assert found == pytest.approx((shape, scale), rel=0.05)
    likelihood = weibull_min.logpdf(tail, found[0], scale=found[1]).sum()
    for other in ((0.99, 1), (1.01, 1), (1, 0.999), (1, 1.001)):
        moved = weibull_min.logpdf(tail, found[0] * other[0], scale=found[1] * other[1]).sum()
        assert likelihood > moved


def test_weibull_needs_two_different_distances():
    assert weibull(torch.tensor([0.0, 3.0])) is None
    assert weibull(torch.tensor([2.0, 2.0, 2.0])) is None
    assert weibull(torch.tensor([2.0, 3.0])) is not None


def test_known_probability_worked_by_hand():
    logits, extremeness = torch.tensor([[2.0, 4.0, 1.0]]), torch.tensor([[0.5, 0.25, 1.0]])
    # of α = 2, the largest has weight 1 and the second 1/2: 4 -> 3, 2 -> 1.5, 1 stays, unknown gets 1.5
    wanted = np.exp(3) / (np.exp(3) + 2 * np.exp(1.5) + np.exp(1))
    assert float(known_probability(logits, extremeness, 2)) == pytest.approx(wanted)


def test_openmax_agrees_with_a_loop_over_scipys_distributions(cosine, both, toy):
    views, labels, new = both
    head = toy.head(cosine)
    logits, labels = logits_of(head, plain(views.high)), labels.numpy()
    right = logits.argmax(axis=1) == labels
    means = [logits[right & (labels == c)].mean(axis=0) for c in range(3)]
    tails = []
    for c, mean in enumerate(means):
        gaps = np.linalg.norm(logits[right & (labels == c)] - mean, axis=1)
        shape, _, scale = weibull_min.fit(np.sort(gaps)[-20:], floc=0)
        tails.append(weibull_min(shape, scale=scale))
    wanted = []
    for row in logits_of(head, plain(new.high)):
        weights = dict(zip(np.argsort(-row), (1, 2 / 3, 1 / 3), strict=True))
        far = [tails[c].cdf(np.linalg.norm(row - means[c])) * weights[c] for c in range(3)]
        lowered = row * (1 - np.array(far))
        wanted.append(softmax([(row - lowered).sum(), *lowered])[1:].max())
    agree(score("openmax", head).fit(views, torch.from_numpy(labels)).scores(new), wanted)


# The registry --------------------------------------------------------------------------------------------


def test_registry_tells_of_each_rival_what_it_keeps_and_whether_it_grows():
    assert {name for name, entry in RIVALS.items() if entry.stores == "old data"} == {"knn"}
    assert {name for name in RIVALS if SCORES[name].cannot_grow} == {"react", "vim", "openmax"}
    for name, entry in RIVALS.items():
        assert entry.make.name == name
        assert (entry.stores == "nothing") == (not entry.make.remembers)
        assert 2016 <= int(entry.paper.rsplit(" ", 1)[1]) <= 2024
    assert DETECTORS["energy"].paper == "Liu, Wang, Owens, Li, NeurIPS 2020"
    assert DETECTORS["openmax"].defaults == {"tail": 20, "alpha": 10}


def test_unknown_names_and_settings_are_refused_with_the_nearest(toy):
    with pytest.raises(SettingsError, match="did you mean 'energy'"):
        score("enrgy", toy.head(True))
    with pytest.raises(SettingsError, match="unknown setting of gen 'gama'; did you mean 'gamma'"):
        score("gen", toy.head(True), gama=0.1)


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("energy", "temperature", 0.0),
        ("gen", "gamma", 1.5),
        ("gen", "top", 0),
        ("react", "share", 101),
        ("ash", "share", 100),
        ("vim", "dimension", 0),
        ("knn", "k", 0),
        ("openmax", "tail", 1),
        ("openmax", "alpha", 0),
    ],
)
def test_settings_outside_their_rule_are_refused(toy, name, setting, value):
    with pytest.raises(SettingsError, match=f"{setting} must be .*, got {value}"):
        score(name, toy.head(True), **{setting: value})
