from dataclasses import FrozenInstanceError
from fractions import Fraction
from math import comb, nan

import numpy as np
import pytest
from scipy import stats

from shels.agent.alarm import FalseAlarmRate, PresetShare, alarm_count, expected_share, most_by_chance
from shels.errors import DataError, SettingsError

RULE = FalseAlarmRate(probability=0.001, least_effect=0.05)


def exact_chances(size, false_alarms, judged):
    """P(X = count) for 0 to size as fractions: products of (a + i), (b + i) and (a + b + i), no logarithm."""

    def rising(start, length):
        out = Fraction(1)
        for i in range(length):
            out *= start + i
        return out

    a, b = Fraction(2 * false_alarms + 1, 2), Fraction(2 * (judged - false_alarms) + 1, 2)
    return [
        comb(size, count) * rising(a, count) * rising(b, size - count) / rising(a + b, size)
        for count in range(size + 1)
    ]


@pytest.mark.parametrize(
    ("share", "size", "count"),
    [(0.75, 4, 4), (0.75, 5, 4), (0.75, 500, 376), (0.3, 10, 4), (0.3, 500, 151), (0.29, 100, 30), (0, 9, 1)],
)
def test_a_preset_share_must_be_exceeded_as_in_the_paper(share, size, count):
    assert alarm_count(PresetShare(share), size, 0, 0) == count


def test_a_preset_share_near_1_alarms_when_the_whole_batch_is_novel():
    assert alarm_count(PresetShare(0.999), 1, 0, 0) == 1
    assert alarm_count(PresetShare(0.999), 500, 0, 0) == 500


def test_a_preset_share_does_not_look_at_false_alarms():
    assert alarm_count(PresetShare(0.3), 50, 40, 50) == alarm_count(PresetShare(0.3), 50, 0, 0) == 16


@pytest.mark.parametrize(
    ("probability", "size", "count"),
    # No false alarm in 1 sample: the rate is Beta(1/2, 3/2), mean 1/4. One more sample is novel with 1/4. Of
    # two, both are with (1/2 · 3/2) / (2 · 3) = 1/8, at least one with 1 − (3/2 · 5/2) / (2 · 3) = 3/8.
    [(0.3, 1, 1), (0.2, 1, 2), (0.4, 2, 1), (0.3, 2, 2), (0.13, 2, 2), (0.12, 2, 3)],
)
def test_the_count_worked_by_hand(probability, size, count):
    assert alarm_count(FalseAlarmRate(probability, least_effect=0), size, 0, 1) == count


def test_the_least_effect_worked_by_hand():
    # Expected 1/4, so an effect of 1/2 needs 3/4 of two samples: both. One of 0.76 needs more than there are.
    assert expected_share(0, 1) == 0.25
    assert alarm_count(FalseAlarmRate(0.4, least_effect=0.25), 2, 0, 1) == 1
    assert alarm_count(FalseAlarmRate(0.4, least_effect=0.5), 2, 0, 1) == 2
    assert alarm_count(FalseAlarmRate(0.4, least_effect=0.76), 2, 0, 1) == 3


@pytest.mark.parametrize("judged", [1, 7, 40, 1000])
@pytest.mark.parametrize("probability", [0.2, 0.01, 0.001, 1e-6, 1e-15])
def test_the_count_is_that_of_exact_fractions_even_for_tiny_chances(judged, probability):
    rule = FalseAlarmRate(probability, least_effect=0)
    for size in (1, 2, 5, 20, 60):
        for false_alarms in {0, judged // 20, judged}:
            chances = exact_chances(size, false_alarms, judged)
            least = Fraction(2 * false_alarms + 1, 2 * judged + 2) * size
            fitting = [m for m in range(1, size + 1) if sum(chances[m:]) <= probability and m >= least]
            wanted = min(fitting, default=size + 1)
            assert alarm_count(rule, size, false_alarms, judged) == wanted


@pytest.mark.parametrize(("false_alarms", "judged"), [(0, 50), (6, 120), (53, 1000), (700, 8400), (300, 400)])
@pytest.mark.parametrize("size", [16, 500])
def test_the_count_is_the_one_a_search_through_scipys_distribution_finds(false_alarms, judged, size):
    later = stats.betabinom(size, false_alarms + 0.5, judged - false_alarms + 0.5)
    count = size + 1
    while count > 1 and later.sf(count - 2) <= 0.001 and (count - 1) / size >= later.mean() / size + 0.05:
        count -= 1
    assert alarm_count(RULE, size, false_alarms, judged) == count


@pytest.mark.parametrize(("false_alarms", "judged"), [(2, 40), (50, 1000)])
def test_clean_batches_alarm_as_rarely_as_promised_when_the_rate_itself_is_uncertain(false_alarms, judged):
    random = np.random.default_rng(0)
    count = alarm_count(FalseAlarmRate(0.01, least_effect=0), 200, false_alarms, judged)
    rates = random.beta(false_alarms + 0.5, judged - false_alarms + 0.5, 400_000)
    novel = random.binomial(200, rates)
    noise = 4 * np.sqrt(0.01 / 400_000)
    assert (novel >= count).mean() <= 0.01 + noise
    assert (novel >= count - 1).mean() > 0.01 - noise  # and one verdict less would have been too few


def test_a_plain_binomial_that_trusts_the_measured_rate_would_alarm_too_often():
    count = alarm_count(FalseAlarmRate(0.001, least_effect=0), 500, 2, 40)
    trusting = int(stats.binom(500, 2 / 40).ppf(0.999)) + 1
    assert trusting < count
    assert stats.betabinom(500, 2.5, 38.5).sf(trusting - 1) > 0.1


def test_with_very_many_judged_samples_the_count_is_that_of_the_binomial():
    binomial = stats.binom(500, 0.05)
    count = alarm_count(FalseAlarmRate(0.001, least_effect=0), 500, 5_000_000, 100_000_000)
    assert binomial.sf(count - 1) <= 0.001 < binomial.sf(count - 2)


def test_in_large_batches_the_least_effect_decides():
    assert alarm_count(RULE, 100_000, 500_000, 10_000_000) / 100_000 == pytest.approx(0.1, abs=2e-5)
    assert alarm_count(FalseAlarmRate(0.001, 0.0), 100_000, 500_000, 10_000_000) / 100_000 < 0.055


def test_the_count_never_falls_with_size_rate_or_a_smaller_probability():
    by_size = [alarm_count(RULE, size, 5, 100) for size in range(1, 300)]
    by_rate = [alarm_count(RULE, 100, false_alarms, 100) for false_alarms in range(101)]
    by_chance = [alarm_count(FalseAlarmRate(p, 0.0), 100, 5, 100) for p in (0.5, 0.1, 0.01, 1e-3, 1e-9)]
    for counts in (by_size, by_rate, by_chance):
        assert counts == sorted(counts)
        assert len(set(counts)) > 4


def test_more_judged_samples_of_the_same_rate_lower_the_count():
    counts = [alarm_count(RULE, 500, judged // 20, judged) for judged in (20, 100, 1000, 10_000)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > 3 * counts[-1]


def test_batches_too_small_to_tell_never_alarm():
    assert alarm_count(RULE, 1, 50, 1000) == 2
    assert alarm_count(RULE, 2, 50, 1000) == 3
    assert alarm_count(RULE, 1, 50, 1000) / 1 > 1


def test_five_images_alarm_only_when_nearly_all_are_novel():
    # 5 · 0.05⁴ ≈ 3e-5 is rare enough, 10 · 0.05³ ≈ 1.2e-3 is not.
    assert alarm_count(RULE, 5, 500, 10_000) == 4


def test_one_image_is_enough_where_false_alarms_are_rarer_than_the_probability():
    assert alarm_count(RULE, 1, 0, 1000) == 1


def test_where_everything_known_is_called_novel_no_batch_alarms():
    assert alarm_count(RULE, 500, 100, 100) == 501


def test_the_share_is_the_count_over_the_size():
    assert alarm_count(PresetShare(0.75), 500, 0, 0) / 500 == 376 / 500
    assert alarm_count(RULE, 5, 500, 10_000) / 5 == 4 / 5


def test_a_rate_without_held_out_samples_is_refused():
    with pytest.raises(
        DataError, match=r"judged must be 1 or more, got 0.*hold some out, or use PresetShare"
    ):
        alarm_count(RULE, 500, 0, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 0, 10), "size must be a whole number, 1 or more, got 0"),
        ((2.0, 0, 10), "size must be a whole number, 1 or more, got 2.0"),
        ((True, 0, 10), "size must be a whole number, 1 or more, got True"),
        ((5, -1, 10), "false_alarms must be a whole number, 0 or more, got -1"),
        ((5, 0, -1), "judged must be a whole number, 0 or more, got -1"),
        ((5, 11, 10), r"false_alarms must be at most judged \(10\), got 11"),
    ],
)
def test_counts_that_cannot_be_are_refused_by_both_rules(arguments, message):
    for rule in (RULE, PresetShare(0.3)):
        with pytest.raises(SettingsError, match=message):
            alarm_count(rule, *arguments)


@pytest.mark.parametrize("value", [-0.1, 1, 1.5, nan, "0.3", None, True, 10**400])
def test_a_share_outside_its_rule_is_refused_with_its_name(value):
    rule = "must be a number, 0 or more and under 1, got "
    with pytest.raises(SettingsError, match=f"^share {rule}"):
        PresetShare(value)
    with pytest.raises(SettingsError, match=f"^least_effect {rule}"):
        FalseAlarmRate(least_effect=value)
    with pytest.raises(SettingsError, match=r"^probability must be a number over 0 and under 1, got "):
        FalseAlarmRate(probability=value)


def test_a_probability_of_0_is_refused_and_a_share_of_0_is_not():
    with pytest.raises(SettingsError, match="probability must be a number over 0 and under 1, got 0"):
        FalseAlarmRate(probability=0)
    assert PresetShare(0).share == FalseAlarmRate(least_effect=0).least_effect == 0


def test_rules_are_frozen_plain_values_with_a_kind():
    rule = FalseAlarmRate(np.float64(0.01))
    assert type(rule.probability) is float
    assert rule == FalseAlarmRate(0.01, 0.05)
    assert (PresetShare.kind, FalseAlarmRate.kind) == ("preset-share", "false-alarm-rate")
    assert (FalseAlarmRate().probability, FalseAlarmRate().least_effect) == (0.001, 0.05)
    with pytest.raises(FrozenInstanceError):
        rule.probability = 0.5


def test_a_rule_that_is_none_is_an_error_and_not_a_default():
    with pytest.raises(SettingsError, match="an alarm rule must be PresetShare"):
        alarm_count("often", 100, 5, 100)


@pytest.mark.parametrize(("false_alarms", "judged"), [(0, 50), (6, 120), (53, 1000), (8000, 8400)])
@pytest.mark.parametrize("size", [1, 16, 500])
def test_the_most_by_chance_is_what_scipys_distribution_exceeds_just_so_rarely(false_alarms, judged, size):
    most = most_by_chance(size, false_alarms, judged, probability=0.01)
    novel = stats.betabinom(size, false_alarms + 0.5, judged - false_alarms + 0.5)
    assert novel.sf(most) <= 0.01 < novel.sf(most - 1)


def test_the_most_by_chance_of_no_sample_judged_is_everything():
    assert most_by_chance(20, 0, 0) == 20
    assert most_by_chance(20, 3, 3, probability=1e-9) == 20
