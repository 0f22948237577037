"""What every rival must do, whatever its score."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from safetensors.torch import load, save
from sklearn.metrics import roc_auc_score

from shels.detection.head import Head
from shels.detection.registry import DETECTORS, RIVALS, SCORES, score
from shels.errors import AccommodationError, DataError, ModelFileError
from shels.model.networks import Views

NAMES = [*RIVALS, "fused"]
GROWS_EXACTLY = ["msp", "max-logit", "energy", "gen", "ash", "fdbd", "knn"]


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


@pytest.fixture
def fitted(name, cosine, toy):
    return score(name, toy.head(cosine)).fit(*toy.samples(toy.known, n=200))


def taken(views, index):
    return Views(views.shared[index], views.high[index])


def close(got, wanted):
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


def auroc(known, novel):
    return roc_auc_score(
        torch.cat([torch.ones_like(known), torch.zeros_like(novel)]), torch.cat([known, novel])
    )


def test_known_samples_are_more_familiar_than_novel_ones(fitted, toy):
    known, novel = (fitted.scores(toy.samples(classes, seed=1)[0]) for classes in (toy.known, [5, 6]))
    assert auroc(known, novel) > 0.9


def test_scores_are_one_finite_single_precision_number_for_each_sample(fitted, toy):
    scores = fitted.scores(toy.samples([0, 6], n=7)[0])
    assert scores.shape == (14,)
    assert scores.dtype == torch.float32
    assert scores.isfinite().all()


def test_one_that_is_not_needed_any_more_goes_without_waiting_for_the_garbage_collector(name, cosine, toy):
    gc.disable()
    try:
        one = score(name, toy.head(cosine)).fit(*toy.samples(toy.known, n=50))
        one.scores(toy.samples([0], n=7)[0])
        left = weakref.ref(one)
        del one
        assert left() is None
    finally:
        gc.enable()


def test_no_sample_gives_no_score(fitted, toy):
    assert fitted.scores(taken(toy.samples([0])[0], slice(0, 0))).shape == (0,)


def test_scores_follow_their_samples_whatever_the_order(fitted, toy):
    views = toy.samples([0, 1, 5], seed=3)[0]
    order = torch.randperm(len(views.high), generator=torch.Generator().manual_seed(0))
    close(fitted.scores(taken(views, order)), fitted.scores(views)[order])


def test_a_sample_alone_scores_as_among_others(fitted, toy):
    views = toy.samples([0, 5], n=5, seed=3)[0]
    alone = torch.cat([fitted.scores(taken(views, slice(i, i + 1))) for i in range(10)])
    close(alone, fitted.scores(views))


def test_many_samples_score_as_in_parts(fitted, toy):
    views = toy.samples([0, 5], n=2500, seed=3)[0]
    parts = [fitted.scores(taken(views, index)) for index in torch.arange(5000).split(999)]
    close(torch.cat(parts), fitted.scores(views))


def test_fitting_and_scoring_twice_gives_the_same_numbers(name, cosine, fitted, toy):
    views = toy.samples([0, 5], seed=3)[0]
    again = score(name, toy.head(cosine)).fit(*toy.samples(toy.known, n=200))
    assert torch.equal(again.scores(views), fitted.scores(views))
    assert torch.equal(fitted.scores(views), fitted.scores(views))


def test_the_order_of_training_samples_does_not_count(name, cosine, fitted, toy):
    views, labels = toy.samples(toy.known, n=200)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    again = score(name, toy.head(cosine)).fit(taken(views, order), labels[order])
    new = toy.samples([0, 5], seed=3)[0]
    torch.testing.assert_close(again.scores(new), fitted.scores(new), rtol=1e-4, atol=1e-4)


def test_inputs_and_head_stay_as_they_are_and_no_gradient_flows(name, cosine, toy):
    views, labels = toy.samples(toy.known)
    kept = [rows.clone() for rows in views]
    head = toy.head(cosine)
    weight = head.weight.clone()
    views = Views(*(rows.requires_grad_() for rows in views))
    head.weight.requires_grad_()
    fitted = score(name, head).fit(views, labels)
    assert not fitted.scores(views).requires_grad
    assert not any(value.requires_grad for value in fitted.tensors().values())
    assert all(torch.equal(*pair) for pair in zip(kept, views, strict=True))
    assert torch.equal(head.weight, weight)


def test_saving_and_loading_gives_the_same_scores(name, fitted, toy):
    views = toy.samples([0, 5], seed=3)[0]
    loaded = SCORES[name].from_tensors(fitted.head, load(save(fitted.tensors())))
    assert torch.equal(loaded.scores(views), fitted.scores(views))


def test_tensors_that_are_not_its_own_are_refused(name, fitted):
    make = SCORES[name]
    with pytest.raises(ModelFileError, match=r"the tensors must be .*; got .*foreign"):
        make.from_tensors(fitted.head, fitted.tensors() | {"foreign": torch.zeros(1)})
    if make.remembers:
        damaged = {key: value.double() * torch.nan for key, value in fitted.tensors().items()}
        with pytest.raises(ModelFileError, match="no number"):
            make.from_tensors(fitted.head, damaged)


def test_what_has_seen_no_sample_says_to_fit_first_unless_it_needs_none(name, cosine, toy):
    fresh, views = score(name, toy.head(cosine)), toy.samples([0])[0]
    if DETECTORS[name].stores == "nothing":
        assert fresh.scores(views).shape == (60,)
        return
    with pytest.raises(DataError, match="call fit first"):
        fresh.scores(views)
    fresh.fit(*toy.samples(toy.known))
    assert not fresh.state  # a value: fit gives a new one


def test_features_of_a_wrong_shape_are_refused_with_what_was_asked_and_what_came(name, fitted, toy):
    views = toy.samples([0], n=4)[0]
    with pytest.raises(DataError, match=r"\(n, 8\), got \(4, 7\)"):
        fitted.scores(Views(views.shared, views.high[:, 1:]))
    with pytest.raises(DataError, match=r"\(n, 8\), got \(8,\)"):
        fitted.scores(Views(views.shared, views.high[0]))
    with pytest.raises(DataError, match="floats"):
        fitted.scores(Views(views.shared, views.high.long()))
    with pytest.raises(DataError, match="Views"):
        fitted.scores(views.high)
    if fitted.reads_shared:
        with pytest.raises(DataError, match=r"shared features must be floats \(4, 10\), got \(4, 9\)"):
            fitted.scores(Views(views.shared[:, 1:], views.high))
        with pytest.raises(DataError, match=r"\(4, 10\), got \(3, 10\)"):
            fitted.scores(Views(views.shared[1:], views.high))


def test_shared_features_may_be_left_out_where_they_do_not_count(name, fitted, toy):
    views = toy.samples([0, 5])[0]
    without = Views(views.high[:, :0], views.high)
    if fitted.reads_shared:
        with pytest.raises(DataError, match=r"shared features must be .*got \(120, 0\)"):
            fitted.scores(without)
    else:
        assert torch.equal(fitted.scores(without), fitted.scores(views))


def test_training_samples_that_cannot_be_used_are_refused(name, cosine, toy):
    views, labels = toy.samples(toy.known)
    fresh = score(name, toy.head(cosine))
    with pytest.raises(DataError, match=r"\(180,\).*got \(179,\)"):
        fresh.fit(views, labels[1:])
    with pytest.raises(DataError, match="whole numbers"):
        fresh.fit(views, labels.float())
    with pytest.raises(DataError, match="got -1 to 1"):
        fresh.fit(views, labels - 1)
    with pytest.raises(DataError, match="none of class 1"):
        fresh.fit(views, torch.where(labels == 1, 0, labels))
    with pytest.raises(DataError, match="got 0"):
        fresh.fit(taken(views, slice(0, 0)), labels[:0])
    with pytest.raises(DataError, match="no number"):
        fresh.fit(Views(views.shared, views.high * torch.nan), labels)


def test_a_sample_whose_features_overflowed_is_like_none_and_leaves_the_others_alone(fitted, toy):
    views = toy.samples([0], n=4)[0]
    broken = views.high.clone()
    broken[1, 2], broken[3, 0] = torch.inf, torch.nan
    scores = fitted.scores(Views(views.shared, broken))
    assert scores[[1, 3]].tolist() == [-torch.inf, -torch.inf]
    close(scores[[0, 2]], fitted.scores(views)[[0, 2]])


def test_a_class_is_taken_in_without_old_samples_or_refused_with_the_reason(name, cosine, fitted, toy):
    new, grown = toy.samples([3])[0], toy.head(cosine, 4)
    before = {key: value.clone() for key, value in fitted.tensors().items()}
    if fitted.cannot_grow:
        with pytest.raises(AccommodationError, match=f"{name} cannot take a class in: "):
            fitted.add_class(new, grown)
        return
    larger = fitted.add_class(new, grown)
    unseen = toy.samples([3], seed=5)[0]
    if fitted.reads_head:
        with pytest.raises(AccommodationError, match=r"pass head= with a weight \(4, 8\)"):
            fitted.add_class(new)
        with pytest.raises(AccommodationError, match=r"\(4, 8\), got \(3, 8\)"):
            fitted.add_class(new, fitted.head)
    else:
        assert torch.equal(fitted.add_class(new).scores(unseen), larger.scores(unseen))
    assert auroc(larger.scores(unseen), larger.scores(toy.samples([6], seed=6)[0])) > 0.9
    assert all(torch.equal(value, fitted.state[key]) for key, value in before.items())


@pytest.mark.parametrize("name", GROWS_EXACTLY, scope="function")
def test_taking_a_class_in_gives_what_fitting_all_at_once_gives(name, cosine, toy):
    grown = toy.head(cosine, 4)
    stepwise = score(name, toy.head(cosine)).fit(*toy.samples(toy.known))
    stepwise = stepwise.add_class(toy.samples([3], seed=4)[0], grown)
    first, new = toy.samples(toy.known), toy.samples([3], seed=4)
    both = Views(*(torch.cat(pair) for pair in zip(first[0], new[0], strict=True)))
    at_once = score(name, grown).fit(both, torch.cat([first[1], new[1]]))
    views = toy.samples([0, 3, 6], seed=5)[0]
    close(stepwise.scores(views), at_once.scores(views))


@pytest.mark.parametrize("name", ["mahalanobis", "mahalanobis-layers", "relative-mahalanobis"])
def test_a_class_taken_in_leaves_the_distances_of_old_classes_as_they_were(name, toy):
    first = score(name, toy.head(cosine=False)).fit(*toy.samples(toy.known))
    larger = first.add_class(toy.samples([3], seed=4)[0]).add_class(toy.samples([4], seed=4)[0])
    old = toy.samples(toy.known, seed=5)[0]
    assert torch.equal(first.scores(old), larger.scores(old))  # so their thresholds keep their meaning
    new = toy.samples([3], seed=6)[0]
    assert bool((larger.scores(new) > first.scores(new)).all())


# Degenerate samples ------------------------------------------------------------------------------------


def finite_everywhere(fitted, toy):
    near = toy.samples([0, 5], n=3)[0]
    for scale in (0.0, 1e-30, 1.0, 1e6, 1e30):
        assert fitted.scores(Views(near.shared * scale, near.high * scale)).isfinite().all()
    assert fitted.scores(Views(-near.shared, -near.high)).isfinite().all()


def test_scores_are_finite_for_silent_huge_and_negative_features(fitted, toy):
    finite_everywhere(fitted, toy)


@pytest.mark.parametrize("training", ["zero", "constant", "single", "few", "one unit", "huge"])
def test_scores_are_finite_whatever_the_training_samples(name, cosine, toy, training):
    views, labels = toy.samples(toy.known, n=1 if training == "single" else 2 if training == "few" else 30)
    if training in ("zero", "constant", "huge"):
        views = Views(*(rows * {"zero": 0.0, "constant": 0.0, "huge": 1e30}[training] for rows in views))
    if training == "constant":
        views = Views(*(rows + 1.5 for rows in views))
    if training == "one unit":
        views = Views(*(rows * (torch.arange(rows.shape[1]) == 0) for rows in views))
    finite_everywhere(score(name, toy.head(cosine)).fit(views, labels), toy)


def test_a_class_with_a_single_sample_beside_larger_ones_is_no_trouble(name, cosine, toy):
    views, labels = toy.samples(toy.known)
    index = torch.cat([torch.arange(120), torch.tensor([130])])
    fitted = score(name, toy.head(cosine)).fit(taken(views, index), labels[index])
    finite_everywhere(fitted, toy)


def test_a_single_known_class_is_no_trouble(name, cosine, toy):
    fitted = score(name, toy.head(cosine, 1)).fit(*toy.samples([0]))
    finite_everywhere(fitted, toy)


# Real features, and another device ------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES, scope="function")
def test_novel_digits_are_less_familiar_to_a_trained_network(name, digits, learner):
    training, known, novel = digits
    fitted = score(name, Head.of(learner.network.head)).fit(learner.views(training.inputs), training.labels)
    scores = [fitted.scores(learner.views(part.inputs)) for part in (known, novel)]
    assert auroc(*scores) > 0.85


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_scores_on_a_gpu_are_those_on_the_cpu(name, cosine, fitted, toy):
    def there(views):
        return Views(*(rows.cuda() for rows in views))

    views, labels = toy.samples(toy.known, n=200)
    head = toy.head(cosine)
    moved = Head(head.weight.cuda(), None if head.bias is None else head.bias.cuda(), cosine)
    new = toy.samples([0, 5], seed=3)[0]
    found = score(name, moved).fit(there(views), labels.cuda()).scores(there(new))
    assert found.is_cuda
    torch.testing.assert_close(found.cpu(), fitted.scores(new), rtol=1e-4, atol=1e-4)
    loaded = SCORES[name].from_tensors(moved, load(save(fitted.tensors())))
    torch.testing.assert_close(loaded.scores(there(new)).cpu(), fitted.scores(new), rtol=1e-4, atol=1e-4)
