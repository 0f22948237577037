"""Thresholds keep their word: the share of known samples that a rule promises, on few of them too."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch

from shels.config import AcceptShare, Settings, from_dict, to_dict
from shels.config.presets import DEFAULT
from shels.data.splits import divided
from shels.detection.alike import scores_as_of_new
from shels.detection.head import Head
from shels.detection.protocol import Context, KnownSamples, Labelled, LearnedClass
from shels.detection.registry import entry_of
from shels.detection.rules import most_rejected, threshold
from shels.detection.standards import Standards
from shels.learner.learner import learn
from shels.model.networks import Views

SEPARATE = AcceptShare(0.95, calibration="separate")
SIZES = (20, 50, 100, 500)


def drawn(n, seed, kind):
    """Scores of a kind, and how likely a new one is no higher than a value."""
    uniform = torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    if kind == "normal":
        return torch.special.ndtri(uniform), torch.special.ndtr
    if kind == "long tail":
        return uniform.log(), torch.exp
    return uniform, lambda value: value.clamp(0, 1)


@pytest.mark.parametrize("kind", ["uniform", "normal", "long tail"])
@pytest.mark.parametrize("n", SIZES)
def test_new_samples_are_accepted_as_promised_on_average(n, kind):
    rates = []
    for seed in range(400):
        scores, below = drawn(n, seed, kind)
        rates.append(1 - float(below(threshold(SEPARATE, scores, scores))))
    assert sum(rates) / 400 == pytest.approx(0.95, abs=0.01)


@pytest.mark.parametrize("calibration", ["held-out", "separate"])
@pytest.mark.parametrize(("share", "n"), [(0.95, 50), (0.99, 40), (0.99, 150)])
def test_no_more_than_the_bound_falls_to_a_threshold_whatever_the_scores(share, n, calibration):
    rule = AcceptShare(share, calibration=calibration)
    for power in (1, 9, 1 / 9):  # of the 9th power low scores crowd, of the 9th root they thin out
        rates = []
        for seed in range(1000):
            scores = drawn(n, seed, "uniform")[0] ** power
            rates.append(float(threshold(rule, scores, scores).clamp(0, 1)) ** (1 / power))
        assert sum(rates) / 1000 <= most_rejected(rule, n) + 0.002


@pytest.mark.parametrize("n", [5, 20, 50, 98])
def test_of_too_few_scores_the_share_is_kept_where_the_tail_is_exponential(n):
    rule = replace(SEPARATE, share=0.99)
    rates = []
    for seed in range(2000):
        scores, below = drawn(n, seed, "long tail")
        rates.append(1 - float(below(threshold(rule, scores, scores))))
    assert sum(rates) / 2000 == pytest.approx(0.99, abs=0.003)


@pytest.mark.parametrize("kind", ["uniform", "normal"])
@pytest.mark.parametrize("n", [20, 50])
def test_of_too_few_scores_with_a_thinner_tail_no_fewer_are_accepted(n, kind):
    rates = []
    for seed in range(400):
        scores, below = drawn(n, seed, kind)
        rates.append(1 - float(below(threshold(replace(SEPARATE, share=0.99), scores, scores))))
    assert 0.988 <= sum(rates) / 400 <= 1


@pytest.mark.parametrize("n", [19, 99, 499])
def test_the_rate_is_a_beta_variable_whatever_the_scores(n):
    """At a whole rank k of n the share accepted is Beta(n + 1 - k, k): mean 1 - k / (n + 1)."""
    rank = (n + 1) // 20
    rates = torch.tensor(
        [
            1 - float(below(threshold(SEPARATE, scores, scores)))
            for scores, below in (drawn(n, seed, "normal") for seed in range(1000))
        ]
    )
    wanted = torch.distributions.Beta(n + 1.0 - rank, float(rank))
    assert float(rates.mean()) == pytest.approx(float(wanted.mean), abs=0.005)
    assert float(rates.std()) == pytest.approx(float(wanted.stddev), rel=0.1)


def test_between_two_ranks_the_threshold_lies_between_two_scores_and_never_beyond_them():
    scores = torch.tensor([1.0, 5.0, 6.0, 9.0, 9.5, 10.0, 11.0, 12.0, 13.0, 14.0])
    assert float(threshold(AcceptShare(0.8), scores, scores)) == 5.0  # rank 2.2 of 10, as it always was
    assert float(threshold(replace(SEPARATE, share=0.8), scores, scores)) == pytest.approx(5.2)
    # rank 0.55: under the lowest. Two lie under 6, by 5 and by 1; 2 ((3 / 0.55)^(1/2) - 1) times 3 lower
    wanted = 6 - 2 * ((3 / 0.55) ** 0.5 - 1) * 3
    assert float(threshold(SEPARATE, scores, scores)) == pytest.approx(wanted, rel=1e-4)
    assert float(threshold(replace(SEPARATE, share=0.05), scores, scores)) == 14.0


def cloud(n, seed):
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 4
    high = torch.eye(6)[labels] * 4 + torch.randn(n, 6, generator=draw) * (1 + labels[:, None] / 3)
    return Labelled(Views(torch.randn(n, 8, generator=draw) + high[:, :1], high), labels)


def _within(n):
    """0.95 and 0.01 to either side, of few samples 0.015: the Gaussian score accepts 0.96 of them here."""
    slack = 0.01 if n > 50 else 0.015
    return 0.95 - slack, 0.95 + slack


@pytest.mark.parametrize("name", ["max-logit", "mahalanobis", "fused", "gaussian"])
@pytest.mark.parametrize("n", SIZES)
def test_detectors_keep_their_word_on_few_samples_by_class_where_there_are_enough(name, n):
    head, rates = Head(torch.eye(6)[:4], torch.zeros(4), cosine=False), []
    context = Context(head, SEPARATE, range(4), lambda views: head.logits(views.high))
    training = cloud(400, 1)
    fitted = entry_of(name).fit(context, training)
    for seed in range(100):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = fitted.calibrated(KnownSamples(training, cloud(n, 100 + seed)))
        rates.append(float((~made.verdicts(cloud(1000, 1000 + seed).features).novel).float().mean()))
    low, high = _within(n)
    assert low <= sum(rates) / len(rates) <= high


def unseen(axis, n, seed):
    """A class that the network was not trained on: on its shared features alone is it apart from others."""
    draw = torch.Generator().manual_seed(seed)
    shared = torch.randn(n, 8, generator=draw) + torch.eye(8)[axis] * 9
    return Views(shared, torch.randn(n, 6, generator=draw) + 0.5)


def with_later_class(n, seed):
    """`fused` on four classes, calibrated on 100 samples, and a class taken in from n."""
    head = Head(torch.eye(6)[:4], torch.zeros(4), cosine=False)
    known = KnownSamples(cloud(400, 1), cloud(100, 100 + seed))

    def naming(views):
        mine = torch.where(views.shared[:, 6:7] + views.shared[:, 7:8] > 4, 100.0, -100.0)
        return torch.cat([head.logits(views.high), mine], dim=1)

    context = Context(head, replace(SEPARATE, share=0.9), range(4), lambda views: naming(views)[:, :4])
    made = entry_of("fused").fit(context, known.training).calibrated(known)
    return made.with_class(LearnedClass(lambda: unseen(6, n, 500 + seed), naming=naming))


@pytest.mark.parametrize("n", [25, 50, 125])
def test_of_a_class_that_came_later_as_many_are_accepted_as_promised(n):
    rates, rejected = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(12):
            made = with_later_class(n, seed)
            rates.append(float((~made.verdicts(unseen(6, 500, 900 + seed)).novel).float().mean()))
            rejected.append(float(made.verdicts(unseen(7, 500, 900 + seed)).novel.float().mean()))
    assert sum(rates) / len(rates) == pytest.approx(0.9, abs=0.03)
    assert sum(rejected) / len(rejected) > 0.95  # novel ones that are named as it


def test_on_one_kind_of_feature_the_standards_put_samples_where_they_lie():
    """Then nothing but the order of the distances counts, whatever standards say: an exact rank."""
    logs = torch.randn(23, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64).expand(-1, 2)
    given = torch.zeros(23, dtype=torch.long)
    found = Standards.of(logs, given, given, 1)
    mean, deviation = found.scales[0, 0]
    torch.testing.assert_close(found.level(0, given == 0), -(logs[:, 0] - mean) / deviation)
    assert found.scores.min() < found.level(0, given == 0).min()  # judged without itself it is stranger


def test_held_out_samples_come_out_as_new_ones_that_others_find_as_familiar():
    values = torch.tensor([0.0, 1.0, 2.0, 3.0])

    def ranks(given, asked, among):  # (1 + how many are no higher) / (1 + how many there are), each once
        lower = (values[given][None] <= values[asked][:, None]).sum(dim=1)
        return (lower + (0 if among else 1)) / (given.sum() + (0 if among else 1))

    found = scores_as_of_new(ranks, 4, torch.device("cpu"))
    # the lowest: 1/4 by the others, who score themselves 1/3, 2/3, 1 without it and 2/4, 3/4, 1 with it
    assert float(found[0]) == pytest.approx(1 / 4 + (1 / 6 + 1 / 12 + 0) / 3)
    # the highest: 1 by the others, who score themselves 1/3, 2/3, 1 and then 1/4, 2/4, 3/4
    assert float(found[3]) == pytest.approx(1 - (1 / 12 + 1 / 6 + 1 / 4) / 3)


# Samples that chose nothing ------------------------------------------------------------------------------


def settings(**training):
    training = {"keep": "best", **training}
    return replace(DEFAULT, rule=SEPARATE, training=replace(DEFAULT.training, **training))


def test_what_chooses_the_network_sets_no_threshold():
    labels = torch.arange(400) % 4
    parts = divided(labels, None, settings(), seed=3)
    training, selection, calibration = (set(part.tolist()) for part in parts)
    assert not training & selection
    assert not training & calibration
    assert not selection & calibration
    assert training | selection | calibration == set(range(400))
    assert abs(len(selection) - len(calibration)) <= 4
    assert set(labels[parts.calibration].tolist()) == {0, 1, 2, 3}
    same = divided(labels, None, DEFAULT, seed=3)
    assert torch.equal(same.training, parts.training)
    assert torch.equal(same.selection, same.calibration)


def test_groups_stay_together():
    labels, groups = torch.arange(400) % 4, torch.arange(400) // 20
    parts = divided(labels, groups, settings(validation_share=0.4), seed=0)
    seen = [set(zip(labels[part].tolist(), groups[part].tolist(), strict=True)) for part in parts]
    assert not seen[0] & seen[1]
    assert not seen[1] & seen[2]


def test_where_nothing_is_chosen_all_that_is_held_out_sets_thresholds():
    parts = divided(torch.arange(400) % 4, None, settings(keep="last", patience=None), seed=3)
    assert torch.equal(parts.selection, parts.calibration)


def test_a_single_held_out_sample_of_each_class_serves_both():
    parts = divided(torch.arange(8) % 4, None, settings(), seed=0)
    assert len(parts.calibration) == len(parts.selection) == 4


def test_what_was_stored_before_the_setting_reads_as_it_was_meant():
    before = replace(DEFAULT, rule=AcceptShare(0.95))
    plain = to_dict(before)
    assert "calibration" not in plain["rule"]
    assert from_dict(plain) == before
    assert from_dict(to_dict(DEFAULT), Settings).rule == SEPARATE


def test_a_learner_sets_its_thresholds_on_samples_that_chose_nothing(digits, short_settings):
    made = learn(digits[0], replace(short_settings, rule=SEPARATE), seed=0, device="cpu")
    whole = divided(digits[0].labels, None, short_settings, seed=0)
    assert made.report["held_out_samples"] < 0.6 * len(whole.calibration)
    assert made.report["training_samples"] == len(whole.training)


@pytest.mark.parametrize("n", [20, 50, 100])
@pytest.mark.parametrize("name", ["gaussian", "fused"])
def test_the_promise_holds_on_digits(name, n, digits, learner):
    """Test samples chose nothing of this network: some of them set thresholds, the others are judged."""
    training, test, _ = digits
    seen = Labelled(learner.views(training.inputs), training.labels)
    every = Labelled(learner.views(test.inputs), test.labels)
    head = Head.of(learner.network.head)
    context = Context(head, SEPARATE, range(4), lambda views: head.logits(views.high))
    fitted, rates = entry_of(name).fit(context, seen), []
    for seed in range(60):
        order = torch.randperm(len(test), generator=torch.Generator().manual_seed(seed))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = fitted.calibrated(KnownSamples(seen, every.take(order[:n])))
        rates.append(float((~made.verdicts(every.take(order[n:]).features).novel).float().mean()))
    low, high = _within(n)
    assert low <= sum(rates) / len(rates) <= high
