import numpy as np
import pytest
import torch

from shels import runtime
from shels.errors import SettingsError


@pytest.mark.parametrize(("usable", "chosen"), [(True, "cuda"), (False, "cpu")])
def test_auto_takes_a_gpu_where_there_is_one(monkeypatch, usable, chosen):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: usable)
    assert runtime.device("auto") == torch.device(chosen)
    assert runtime.device() == torch.device(chosen)


def test_a_named_device_is_taken_as_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert runtime.device("cpu") == torch.device("cpu")
    assert runtime.device("cuda:1") == torch.device("cuda", 1)
    assert runtime.device(torch.device("meta")) == torch.device("meta")
    with pytest.raises(SettingsError, match="there are 2 GPUs here"):
        runtime.device("cuda:2")


@pytest.mark.parametrize("name", ["cuda", "cuda:0"])
def test_a_gpu_that_is_not_there_is_refused_with_what_to_use(monkeypatch, name):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SettingsError, match=f'\'{name}\' was asked for, .* use "auto" or "cpu"'):
        runtime.device(name)


@pytest.mark.parametrize("name", ["gpu", "", "cuda:x"])
def test_a_name_that_is_no_device_is_refused(name):
    with pytest.raises(SettingsError) as caught:
        runtime.device(name)
    assert str(caught.value) == f'device must be "auto", "cpu" or "cuda", got {name!r}'


def test_derived_seeds_stay_what_they_were_so_that_results_can_be_repeated():
    assert runtime.derived_seed(0) == 2631537505891389924
    assert runtime.derived_seed(7, "batches", 3) == 8644916651810342296


def test_each_purpose_and_seed_gives_a_seed_of_its_own():
    asked = [(0,), (1,), (0, "body"), (0, "head"), (0, "ab"), (0, "a", "b"), (0, "batches", 1)]
    asked += [(0, "batches", epoch) for epoch in range(2, 1000)]
    asked += [(1, "23"), (12, "3"), (123,)]
    assert len({runtime.derived_seed(*each) for each in asked}) == len(asked)


def test_a_derived_seed_fits_a_generator():
    seeds = [runtime.derived_seed(seed) for seed in range(2000)]
    assert min(seeds) >= 0
    assert 2**61 < max(seeds) < 2**63


def test_a_numpy_seed_counts_as_the_same_number():
    assert runtime.derived_seed(np.int64(5), "x") == runtime.derived_seed(5, "x")


def test_generators_of_one_purpose_agree_and_leave_the_global_one_alone():
    before = torch.get_rng_state()
    first = torch.rand(5, generator=runtime.generator(7, "split"))
    second = torch.rand(5, generator=runtime.generator(7, "split"))
    other = torch.rand(5, generator=runtime.generator(7, "body"))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("given", [0, 42, np.int32(42), np.int64(2**40)])
def test_a_whole_number_is_its_own_seed(given):
    seed = runtime.seed_from(given)
    assert seed == given
    assert type(seed) is int


def test_a_random_state_gives_a_new_seed_at_each_call_and_the_same_ones_again():
    state, twin = np.random.RandomState(3), np.random.RandomState(3)
    seeds = [runtime.seed_from(state) for _ in range(3)]
    assert seeds == [runtime.seed_from(twin) for _ in range(3)]
    assert len(set(seeds)) == 3
    assert all(type(seed) is int and 0 <= seed < 2**31 for seed in seeds)


def test_no_random_state_draws_a_seed_that_the_global_one_does_not_decide():
    seeds = set()
    for _ in range(3):
        np.random.seed(0)  # noqa: NPY002
        seeds.add(runtime.seed_from(None))
    assert len(seeds) > 1


@pytest.mark.parametrize("given", [-1, 2**63, 1.0, "1", np.random.default_rng(0)])
def test_what_is_no_random_state_is_refused(given):
    with pytest.raises(
        SettingsError, match="random_state must be None, a RandomState or an int of 0 or more"
    ):
        runtime.seed_from(given)


def counting(most, log=None):
    try:
        yield from range(most)
    finally:
        if log is not None:
            log.append("left")
    return f"{most} in all"


def test_a_generator_is_run_to_its_end_and_each_report_is_heard():
    heard = []
    assert runtime.finished(counting(3), each=heard.append) == "3 in all"
    assert heard == [0, 1, 2]
    assert runtime.to_end(counting)(2) == "2 in all"
    assert runtime.to_end(counting).__name__ == "counting"


def test_a_mapped_generator_yields_a_function_of_its_reports_and_returns_its_value():
    heard = []
    assert runtime.finished(runtime.mapped(counting(3), lambda n: n * n), each=heard.append) == "3 in all"
    assert heard == [0, 1, 4]


def test_leaving_a_mapped_generator_ends_what_it_follows():
    log = []
    work = runtime.mapped(counting(3, log), lambda number: number)
    assert next(work) == 0
    assert log == []
    work.close()
    assert log == ["left"]


def test_what_a_generator_or_its_listener_raises_comes_through():
    def failing():
        yield 1
        raise ValueError("spoiled")

    with pytest.raises(ValueError, match="spoiled"):
        runtime.finished(failing())
    with pytest.raises(ZeroDivisionError):
        runtime.finished(counting(3), each=lambda number: 1 / number)
