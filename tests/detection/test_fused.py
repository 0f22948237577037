"""Several scores as one: p-values by hand, classes that come and go exactly, weights without novel data."""

from __future__ import annotations

import math

import pytest
import torch

from shels.config import AcceptShare
from shels.detection import fusion
from shels.detection.familiarity import (
    COMPONENTS,
    HEAD,
    Familiarity,
    even_places,
    main_directions,
    prototypes_of,
)
from shels.detection.fusion import Fold, References
from shels.detection.protocol import Context, KnownSamples, Labelled, LearnedClass
from shels.detection.registry import score
from shels.detection.score_detector import ScoreDetector
from shels.errors import SettingsError
from shels.model.head import unit
from shels.model.networks import Views


def labelled(toy, classes, n=60, seed=0):
    return Labelled(*toy.samples(classes, n=n, seed=seed))


def nearest_axis(classes):
    return lambda views: views.high[:, :classes]


def detector(toy, name="fused", classes=3, seed=0, n=60):
    head = toy.head(True, classes)
    known = KnownSamples(
        labelled(toy, list(range(classes)), 200), labelled(toy, list(range(classes)), n, 9 + seed)
    )
    context = Context(head, AcceptShare(0.9), range(classes), nearest_axis(classes))
    return ScoreDetector.fit(score(name, head), context, known.training).calibrated(known)


def grown(made, toy, position, n=60):
    of_class = LearnedClass(
        lambda: toy.samples([position], n=n, seed=20)[0],
        toy.samples([position], n=40, seed=21)[0],
        nearest_axis(position + 1),
    )
    return made.with_class(of_class)


# p-values and their sum -------------------------------------------------------------------------------


def test_a_p_value_is_the_rank_among_the_named_class_and_among_all():
    own = [torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[10.0]])]
    references = References.of(own, torch.cat(own))
    asked, named = torch.tensor([[2.5], [0.5], [2.5]]), torch.tensor([0, 0, 1])
    found = references.log_p(asked, named)[..., 0].exp()
    # two of class 0's three are no higher: (2 + 1) / (3 + 1); of class 1's none: 1 / 2; of all two of four
    wanted = torch.tensor([[3 / 4, 3 / 5], [1 / 4, 1 / 5], [1 / 2, 3 / 5]])
    torch.testing.assert_close(found[[0, 2], [0, 1]], wanted[[0, 2], [0, 1]])
    assert bool((found[1] < wanted[1]).all())  # under all of them it is less than the least rank
    # class 0: two gaps, of 2 and 1, from the highest: 1.5 wide (and 0.0001 of the lowest); 0.5 below
    assert float(found[1, 0]) == pytest.approx(0.25 * (1 + 0.5 / (2 * 1.5001)) ** -2, rel=1e-4)


def test_samples_that_are_compared_with_count_once():
    rows = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
    references = References.of([rows], rows)
    found = references.log_p(rows, torch.zeros(4, dtype=torch.long), among=True).exp()
    torch.testing.assert_close(found[1:, 0, 0], torch.tensor([0.5, 0.75, 1.0]))
    # the lowest lies 1 under the next; the widths are of 3, 2 and 1 from the highest
    assert float(found[0, 0, 0]) == pytest.approx(0.25 * (1 + 1 / (2 * 2.0001)) ** -2, rel=1e-4)


def test_p_values_of_many_scores_are_those_of_all_of_them_to_a_step():
    draw = torch.Generator().manual_seed(0)
    rows = torch.randn(5000, 2, generator=draw)
    thin = References.of([rows], rows)
    assert thin.by_class.shape == (1, 2, fusion.MOST)
    asked, named = torch.randn(300, 2, generator=draw), torch.zeros(300, dtype=torch.long)
    exact = ((rows[None] <= asked[:, None]).sum(dim=1) + 1) / 5001
    torch.testing.assert_close(thin.log_p(asked, named)[:, 0].exp(), exact, atol=2 / fusion.MOST, rtol=0)


def test_the_score_is_twice_the_weighted_sum_of_the_logarithms(toy):
    made, views = detector(toy).score, toy.samples([0, 5], n=20, seed=3)[0]
    named = torch.arange(40) % 3
    model = Familiarity.of(made.state)
    held = References(made.state["by_class"], made.state["pooled"])
    found = held.log_p(model.scores(views, named), named)
    torch.testing.assert_close(made.scores_as(views, named), 2 * found.sum(dim=(1, 2)))
    assert made.scores_as(views, named).max() <= 0  # every p-value is 1 at most


def test_of_few_samples_too_what_lies_farther_out_is_less_familiar():
    rows = torch.arange(8.0)[:, None]
    references = References.of([rows], rows)
    asked = torch.tensor([[0.0], [-1.0], [-5.0], [-1e6]])
    found = references.log_p(asked, torch.zeros(4, dtype=torch.long))[:, 0, 0]
    assert bool((found[:-1] > found[1:]).all())
    assert -40 < float(found[-1]) < -20


def test_it_is_the_class_that_others_name_whose_familiarity_counts(toy):
    made, (views, labels) = detector(toy).score, toy.samples([0, 1], seed=3)
    right, wrong = made.scores_as(views, labels), made.scores_as(views, 1 - labels)
    assert bool((right > wrong).all())
    assert torch.equal(made.scores(views), right)  # by itself it takes the head's rows


def test_new_known_samples_are_accepted_at_the_rate_that_was_asked_for(toy):
    rates = []
    for seed in range(12):
        made = detector(toy, seed=seed, n=100)
        rates.append(
            float((~made.verdicts(toy.samples([0, 1, 2], n=300, seed=100 + seed)[0]).novel).float().mean())
        )
    assert sum(rates) / len(rates) == pytest.approx(0.9, abs=0.015)


def test_its_p_values_are_uniform_on_new_known_samples(toy):
    made = detector(toy, n=300)
    found = made.verdicts(toy.samples([0, 1, 2], n=1000, seed=77)[0]).p_value
    for level in (0.1, 0.3, 0.5, 0.8):
        assert float((found <= level).float().mean()) == pytest.approx(level, abs=0.06)


def test_novel_samples_are_told(toy):
    made = detector(toy)
    assert bool(made.verdicts(toy.samples([5, 6], seed=4)[0]).novel.float().mean() > 0.95)


# The scores themselves ----------------------------------------------------------------------------------


def test_products_cosines_and_residuals_are_what_they_say(toy):
    views, labels = toy.samples([0, 1, 2], n=100)
    weights = toy.head(True).weight
    model = Familiarity.fit(views, labels, weights)
    new, named = toy.samples([0, 5], n=10, seed=2)[0], torch.arange(20) % 3
    found = dict(zip(COMPONENTS, model.scores(new, named).T, strict=True))
    torch.testing.assert_close(found["product"], (new.high * weights[named]).sum(dim=1))
    torch.testing.assert_close(found["cosine"], (unit(new.high) * unit(weights[named])).sum(dim=1))
    projection = main_directions(views.high, 128)
    main = projection.directions[:, : projection.directions.shape[1] // 4]
    centred = unit(new.high) - projection.centre
    left = centred - centred @ main @ main.T
    torch.testing.assert_close(found["residual/high"], -left.norm(dim=1), rtol=1e-3, atol=1e-5)


def test_what_is_left_of_features_in_few_directions_is_nothing_and_not_rounding():
    draw = torch.Generator().manual_seed(3)
    features = torch.randn(300, 2, generator=draw) @ torch.randn(2, 24, generator=draw)
    features += 1e-4 * torch.randn(300, 24, generator=draw)
    views, labels = Views(features, features), torch.arange(300) % 3
    model = Familiarity.fit(views, labels, torch.eye(3, 24), 12, 20)
    residuals = [COMPONENTS.index(f"residual/{layer}") for layer in ("shared", "high")]
    assert (model.scores(views, labels)[:, residuals] == 0).all()


def test_neighbours_are_the_prototypes_of_the_named_class(toy):
    views, labels = toy.samples([0, 1, 2], n=50)
    model = Familiarity.fit(views, labels, toy.head(True).weight, prototypes=50)
    new, named = toy.samples([0], n=5, seed=2)[0], torch.full((5,), 1)
    projection = main_directions(views.high, 128)
    mine = projection(views.high[labels == 1])
    wanted = torch.cdist(projection(new.high), mine).topk(3, largest=False).values.mean(dim=1)
    found = model.scores(new, named)[:, COMPONENTS.index("neighbours/high")]
    torch.testing.assert_close(found, -wanted, rtol=1e-3, atol=1e-4)


def test_prototypes_do_not_depend_on_the_order_and_few_samples_stand_for_themselves():
    rows = torch.randn(300, 4, generator=torch.Generator().manual_seed(0))
    order = torch.randperm(300, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(prototypes_of(rows, 20), prototypes_of(rows[order], 20))
    assert torch.equal(prototypes_of(rows[:3], 7), rows[[0, 1, 2, 0, 1, 2, 0]])
    within = torch.cdist(rows, prototypes_of(rows, 20)).amin(dim=1).mean()
    assert float(within) < 0.9 * float(torch.cdist(rows, rows[:20]).amin(dim=1).mean())


def test_directions_are_the_same_whichever_product_they_come_from():
    rows = torch.rand(30, 40, generator=torch.Generator().manual_seed(0))
    few, many = main_directions(rows, 5), main_directions(rows.repeat(2, 1), 5)
    overlap = (few.directions.T @ many.directions).abs()
    torch.testing.assert_close(overlap, torch.eye(5), atol=1e-4, rtol=0)


def test_places_are_spread_evenly_over_each_class():
    places = even_places(torch.tensor([0] * 10 + [1] * 3), 4)
    assert places.tolist() == [0, 3, 6, 9, 10, 11, 12]


@pytest.mark.parametrize("name", ["fused", "fused-learned"])
def test_a_sample_alone_is_judged_as_among_others(toy, name):
    made = grown(detector(toy, name), toy, 3)
    views = toy.samples([0, 1, 2, 3, 5], n=8, seed=6)[0]
    odd = torch.tensor([0.0, 1e20, -1e30, torch.inf, torch.nan])[:, None]
    views = Views(*(torch.cat([rows, odd.expand(-1, rows.shape[1])]) for rows in views))
    together, every = made.verdicts(views), range(len(views.high))
    alone = [made.verdicts(Views(*(rows[i : i + 1] for rows in views))) for i in every]
    scores = torch.cat([each.score for each in alone])
    torch.testing.assert_close(scores, together.score, rtol=1e-4, atol=2e-3)
    for each in ("predicted", "novel", "threshold"):
        assert torch.equal(torch.cat([getattr(one, each) for one in alone]), getattr(together, each)), each


# Classes that come and go ---------------------------------------------------------------------------------


def test_a_class_taken_in_leaves_scores_and_thresholds_of_the_others_as_they_were(toy):
    first = detector(toy)
    larger = grown(first, toy, 3)
    views, labels = toy.samples([0, 1, 2], seed=5)
    assert torch.equal(larger.score.scores_as(views, labels), first.score.scores_as(views, labels))
    assert torch.equal(larger.thresholds[:3], first.thresholds)
    found = larger.verdicts(toy.samples([3], n=200, seed=30)[0])
    assert float((~found.novel & (found.predicted == 3)).float().mean()) > 0.75
    assert bool(larger.verdicts(toy.samples([6], seed=30)[0]).novel.float().mean() > 0.95)


@pytest.mark.parametrize("n", [1, 2, 5, 29])
def test_a_class_of_few_samples_is_taken_in(toy, n):
    made = grown(detector(toy), toy, 3, n=n)
    found = made.verdicts(toy.samples([3], n=100, seed=30)[0])
    assert bool(found.score.isfinite().all())
    assert float((~found.novel).float().mean()) > 0.5


def test_a_class_taken_in_and_taken_out_again_leaves_no_trace(toy):
    first = detector(toy)
    back = grown(first, toy, 3).without_class(3, naming=nearest_axis(3))
    assert back.tensors().detector.keys() == first.tensors().detector.keys()
    for name, value in first.tensors().detector.items():
        if name != "calibration":  # it may be filled up further
            assert torch.equal(back.tensors().detector[name], value), name
    views = toy.samples([0, 1, 2, 5], seed=5)[0]
    for each in ("predicted", "score", "threshold", "p_value"):
        assert torch.equal(getattr(back.verdicts(views), each), getattr(first.verdicts(views), each))


def test_a_first_class_can_be_forgotten_and_the_others_stay_as_they_were(toy):
    first = detector(toy)
    fewer = first.without_class(0, naming=lambda views: views.high[:, 1:3])
    views, labels = toy.samples([1, 2], seed=5)
    assert torch.equal(fewer.score.scores_as(views, labels - 1), first.score.scores_as(views, labels))
    assert torch.equal(fewer.thresholds, first.thresholds[1:])
    assert fewer.verdicts(toy.samples([0], seed=5)[0]).novel.float().mean() > 0.9


# Weights without novel data -------------------------------------------------------------------------------


def fold(informative, n=200, seed=0):
    """-log p of scores of which one alone tells novel samples; the head's two tell them perfectly."""
    draw = torch.Generator().manual_seed(seed)
    known, novel = (-torch.rand(n, 2, 6, generator=draw).log() for _ in range(2))
    novel[:, :, informative] += 3
    novel[:, :, :HEAD] += 50
    return Fold(known, novel)


def test_learned_weights_favour_what_tells_classes_left_out_and_none_is_negative():
    found = fusion.learned_weights([fold(3, seed=seed) for seed in range(3)])
    assert found.shape == (2, 6)
    assert bool((found >= 0).all())
    others = [i for i in range(HEAD, 6) if i != 3]
    assert float(found[:, 3].min()) > 1.2 * float(found[:, others].max())
    assert float(found[:, HEAD:].sum()) == pytest.approx(8.0, rel=1e-4)


def test_the_rows_of_the_head_keep_fisher_s_weight_since_the_network_saw_the_class_left_out():
    assert fusion.learned_weights([fold(3)])[:, :HEAD].tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_a_class_left_out_is_nowhere_in_what_judges_it(toy):
    known = KnownSamples(labelled(toy, [0, 1, 2], 80), labelled(toy, [0, 1, 2], 40, 9))
    weights = toy.head(True).weight
    found = list(fusion.folds(known, weights, 8, 20))
    assert [(len(each.known), len(each.novel)) for each in found] == [(80, 40)] * 3
    changed = known.training.labels == 1  # what class 1 was trained on must not matter where it is left out
    moved = Views(*(torch.where(changed[:, None], 7.0, rows) for rows in known.training.features))
    training = Labelled(moved, known.training.labels)
    rows = weights.clone()
    rows[1] = 99.0
    again = list(fusion.folds(known._replace(training=training), rows, 8, 20))
    for mine, other in zip(found[1], again[1], strict=True):
        assert torch.equal(mine, other)
    assert not torch.equal(found[0].known, again[0].known)


def test_the_learned_detector_judges_and_fisher_s_weights_are_equal(toy):
    learned, fisher = detector(toy, "fused-learned"), detector(toy)
    assert learned.name == "fused-learned"
    assert torch.equal(fisher.score.state["weights"], torch.ones(3, 2, len(COMPONENTS)))
    assert float(learned.score.state["weights"][0].std()) > 0
    assert bool(learned.verdicts(toy.samples([5, 6], seed=4)[0]).novel.float().mean() > 0.9)


def test_settings_out_of_range_are_refused(toy):
    for settings in ({"weighting": "best"}, {"prototypes": 0}, {"directions": 0}):
        with pytest.raises(SettingsError, match=next(iter(settings))):
            score("fused", toy.head(True), **settings)


def test_few_held_out_samples_borrow_from_all_classes(toy):
    held = labelled(toy, [0, 1, 2], 40, 9)
    few = held.take((held.labels != 2) | (torch.arange(120) % 20 == 0))
    head = toy.head(True)
    context = Context(head, AcceptShare(0.9), range(3), nearest_axis(3))
    known = KnownSamples(labelled(toy, [0, 1, 2], 200), few)
    made = ScoreDetector.fit(score("fused", head), context, known.training).calibrated(known)
    counts = (made.score.state["by_class"] < fusion.FILL).sum(dim=2)[:, 0].tolist()
    assert counts == [40, 40, 82]  # two of its own and eighty borrowed
    accepted = ~made.verdicts(toy.samples([2], n=300, seed=31)[0]).novel
    assert float(accepted.float().mean()) == pytest.approx(0.9, abs=0.08)
    assert math.isfinite(float(made.thresholds[2]))
