"""Optimiser steps against torch's own, of one trial and of a stack in which each has its own time."""

from __future__ import annotations

import pytest
import torch

from shels.config import Adam, Sgd, WarmRestarts
from shels.errors import SettingsError
from shels.training.optimisers import OPTIMISERS, moments_of, stacked_step, step, table, table_width

SHAPES = {"conv": (4, 3, 3, 3), "linear": (5, 6), "bias": (5,)}
RATES = [0.1] * 5 + [0.05] * 5 + [0.2] * 5 + [0.01] * 5
SETTINGS = [
    Adam(0.1),
    Adam(0.1, decoupled_decay=0.05),
    Sgd(0.1, momentum=0.9, weight_decay=0.01),
    Sgd(0.1, momentum=0.0, weight_decay=0.0),
    Sgd(0.1, momentum=0.5, weight_decay=0.0),
]
EVERY = pytest.mark.parametrize("settings", SETTINGS, ids=str)


def drawn(seed, trials=None, dtype=torch.float64):
    """Parameters, or gradients, from a seed; of so many trials where that is said."""
    draws = torch.Generator().manual_seed(seed)
    axis = () if trials is None else (trials,)
    return {
        name: torch.randn(*axis, *shape, generator=draws, dtype=torch.float64).to(dtype)
        for name, shape in SHAPES.items()
    }


def channels_last(params):
    return {
        name: value.clone(memory_format=torch.channels_last) if value.ndim == 4 else value.clone()
        for name, value in params.items()
    }


def torchs(settings, params, grads, rates):
    """Return parameters after steps of torch's own optimiser."""
    values = [value.clone().requires_grad_() for value in params.values()]
    if isinstance(settings, Adam):
        decay = settings.decoupled_decay
        optimiser = torch.optim.AdamW(values, weight_decay=decay, foreach=False)  # Adam itself without decay
    else:
        decay = settings.weight_decay
        optimiser = torch.optim.SGD(values, momentum=settings.momentum, weight_decay=decay, foreach=False)
    for gradient, rate in zip(grads, rates, strict=True):
        optimiser.param_groups[0]["lr"] = rate
        for value, grad in zip(values, gradient.values(), strict=True):
            value.grad = grad.clone()
        optimiser.step()
    return {name: value.detach() for name, value in zip(params, values, strict=True)}


def assert_close(mine, theirs, within=1e-12):
    assert mine.keys() == theirs.keys()
    for name, value in mine.items():
        torch.testing.assert_close(value, theirs[name], rtol=0, atol=within, msg=name)


@EVERY
def test_steps_of_one_trial_are_torchs_also_where_the_rate_changes(settings):
    start, grads = drawn(0), [drawn(1 + number) for number in range(20)]
    params = {name: value.clone() for name, value in start.items()}
    moments = moments_of(settings, params)
    for taken, (gradient, rate) in enumerate(zip(grads, RATES, strict=True)):
        step(settings, params, list(gradient.values()), moments, taken, rate)
    assert_close(params, torchs(settings, start, grads, RATES))
    assert all((params[name] - value).abs().max() > 0.05 for name, value in start.items())


@EVERY
def test_steps_of_a_stack_are_torchs_for_each_trial(settings):
    start, grads = drawn(0, trials=3), [drawn(1 + number, trials=3) for number in range(20)]
    params = {name: value.clone() for name, value in start.items()}
    moments = moments_of(settings, params)
    tables = torch.stack([table(settings, 0, RATES, 20)] * 3)
    for place, gradient in enumerate(grads):
        stacked_step(settings, params, list(gradient.values()), moments, tables[:, place])
    for trial in range(3):
        mine, first = ({name: value[trial] for name, value in each.items()} for each in (params, start))
        own = [{name: value[trial] for name, value in gradient.items()} for gradient in grads]
        assert_close(mine, torchs(settings, first, own, RATES))


@EVERY
def test_trials_of_a_stack_take_their_steps_each_in_its_own_time(settings):
    """Rates and rests differ: a trial that rests in between goes on as if nothing had been."""
    start, grads = drawn(0, trials=3), [drawn(1 + number, trials=3) for number in range(12)]
    turns = [range(12), range(4), [0, 1, 2, 9, 10, 11]]  # when each trial moves
    rates = [RATES[:12], [0.3] * 4, [0.1, 0.2, 0.3, 0.1, 0.1, 0.02]]
    tables = torch.zeros(3, 12, table_width(settings), dtype=torch.float64)
    for trial, (when, rate) in enumerate(zip(turns, rates, strict=True)):
        tables[trial, list(when)] = table(settings, 0, rate, len(rate))
    params = {name: value.clone() for name, value in start.items()}
    moments = moments_of(settings, params)
    for place, gradient in enumerate(grads):
        stacked_step(settings, params, list(gradient.values()), moments, tables[:, place])
    for trial, (when, rate) in enumerate(zip(turns, rates, strict=True)):
        mine, first = ({name: value[trial] for name, value in each.items()} for each in (params, start))
        own = [{name: value[trial] for name, value in grads[place].items()} for place in when]
        assert_close(mine, torchs(settings, first, own, rate))


@EVERY
@pytest.mark.parametrize("gradient", [torch.nan, torch.inf, 1.0])
def test_rows_of_zeros_are_rest_to_the_bit_whatever_the_gradient(settings, gradient):
    params = drawn(0, trials=2, dtype=torch.float32)
    moments = {
        kind: drawn(7 + place, 2, torch.float32) for place, kind in enumerate(moments_of(settings, params))
    }
    kept = [{name: value.abs() for name, value in each.items()} for each in moments.values()]
    moments = dict(zip(moments, kept, strict=True))
    before = {name: value.clone() for name, value in params.items()}
    moments_before = [{name: value.clone() for name, value in each.items()} for each in moments.values()]
    now = torch.stack(
        [torch.zeros(table_width(settings), dtype=torch.float64), table(settings, 3, [0.1], 1)[0]]
    )
    grads = drawn(1, trials=2, dtype=torch.float32)
    for value in grads.values():
        value[0] *= gradient
    stacked_step(settings, params, list(grads.values()), moments, now)
    for name, value in params.items():
        assert torch.equal(value[0], before[name][0])
        assert not torch.equal(value[1], before[name][1])
        assert value[1].isfinite().all()
    for mine, old in zip(moments.values(), moments_before, strict=True):
        for name, value in mine.items():
            assert torch.equal(value[0], old[name][0])
            assert not torch.equal(value[1], old[name][1])


def test_a_table_of_adam_holds_both_bias_corrections_and_rest():
    got = table(Adam(), 2, [0.5, 0.25], 4)
    expected = [[0.5 / (1 - 0.9**3), (1 - 0.999**3) ** 0.5], [0.25 / (1 - 0.9**4), (1 - 0.999**4) ** 0.5]]
    torch.testing.assert_close(got, torch.tensor([*expected, [0.0, 0.0], [0.0, 0.0]], dtype=torch.float64))


def test_a_table_of_sgd_holds_its_rates_and_rest():
    assert table(Sgd(), 7, [0.5, 0.25], 3).tolist() == [[0.5, 1.0], [0.25, 1.0], [0.0, 0.0]]


def test_what_an_optimiser_remembers_is_laid_out_like_the_parameters():
    params = channels_last(drawn(0))
    params = {name: value.requires_grad_() for name, value in params.items()}
    for settings, kinds in ((Adam(), ["exp_avg", "exp_avg_sq"]), (Sgd(), ["momentum_buffer"])):
        moments = moments_of(settings, params)
        assert list(moments) == kinds
        for kept in moments.values():
            assert {name: value.stride() for name, value in kept.items()} == {
                name: value.stride() for name, value in params.items()
            }
            assert not any(value.any() or value.requires_grad for value in kept.values())


@EVERY
def test_a_stack_takes_gradients_of_any_layout(settings):
    start, gradient = drawn(0, trials=2), drawn(1, trials=2)
    laid_out = start["conv"].permute(0, 1, 3, 4, 2).contiguous().permute(0, 1, 4, 2, 3)
    now = table(settings, 0, [0.1], 1).expand(2, -1)
    results = []
    for conv in (start["conv"].clone(), laid_out):
        params = {**{name: value.clone() for name, value in start.items()}, "conv": conv}
        moments = moments_of(settings, params)
        for _ in range(3):
            stacked_step(settings, params, list(gradient.values()), moments, now)
        results.append(params)
    assert_close(results[1], results[0], within=0)


@EVERY
def test_one_trial_takes_gradients_of_any_layout(settings):
    start, grads = drawn(0), [drawn(1 + number) for number in range(3)]
    params = channels_last(start)
    moments = moments_of(settings, params)
    for taken, gradient in enumerate(grads):
        step(settings, params, list(gradient.values()), moments, taken, 0.1)
    assert_close(params, torchs(settings, start, grads, [0.1] * 3))


@EVERY
def test_gradients_are_left_as_they_were(settings):
    gradient = drawn(1)
    kept = {name: value.clone() for name, value in gradient.items()}
    params = drawn(0)
    step(settings, params, list(gradient.values()), moments_of(settings, params), 0, 0.1)
    assert_close(gradient, kept, within=0)
    both, many = drawn(0, trials=2), drawn(1, trials=2)
    kept = {name: value.clone() for name, value in many.items()}
    now = table(settings, 0, [0.1], 1).expand(2, -1)
    stacked_step(settings, both, list(many.values()), moments_of(settings, both), now)
    assert_close(many, kept, within=0)


def test_an_optimiser_that_has_no_rule_is_an_error_and_every_kind_of_settings_has_one():
    assert {each.kind for each in (Adam, Sgd, WarmRestarts)} == set(OPTIMISERS)

    class Unknown(Sgd):
        kind = "unheard-of"

    for use in (lambda s: moments_of(s, drawn(0)), lambda s: table(s, 0, [0.1], 1)):
        with pytest.raises(SettingsError, match=r"unheard-of.*adam"):
            use(Unknown())


def test_a_long_gradient_is_clipped_in_each_trial_by_itself():
    """One trial's gradient is (3, 4), of length 5, the other's (0.3, 0.4): clipped at 1, that stays."""
    settings = WarmRestarts(1.0, 0.1, momentum=0.0, weight_decay=0.0, clip=1.0)
    params = {"a": torch.zeros(2, 1, dtype=torch.float64), "b": torch.zeros(2, 1, dtype=torch.float64)}
    grads = [torch.tensor([[3.0], [0.3]]).double(), torch.tensor([[4.0], [0.4]]).double()]
    now = table(settings, 0, [1.0], 1).expand(2, -1)
    stacked_step(settings, params, grads, moments_of(settings, params), now)
    for name, wanted in (("a", [[-0.6], [-0.3]]), ("b", [[-0.8], [-0.4]])):
        torch.testing.assert_close(params[name], torch.tensor(wanted).double(), rtol=0, atol=1e-6)
    one = {name: torch.zeros(1, dtype=torch.float64) for name in params}
    step(settings, one, [grad[0] for grad in grads], moments_of(settings, one), 0, 1.0)
    assert_close(one, {name: value[0] for name, value in params.items()})
