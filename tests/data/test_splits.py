from dataclasses import replace

import pytest
import torch

from shels.config import TrainingSettings
from shels.data.samples import DataSet, Samples
from shels.data.splits import (
    AUTHORS_ORDERS,
    ClassSplit,
    authors_split,
    divide,
    draw_classes,
    exact_classes,
    hold_out,
    match_class,
    new_class,
    split_data,
    training_split,
    whole_groups,
)
from shels.errors import DataError, SettingsError


def samples_of(counts, groups=None):
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    inputs = torch.arange(len(labels), dtype=torch.float32)[:, None]
    return Samples(inputs, labels, tuple(range(len(counts))), groups)


def test_held_out_and_rest_are_disjoint_sorted_and_cover_all():
    samples = samples_of([40, 25, 7])
    train, held = hold_out(samples, 0.2, seed=3)
    assert sorted(train.tolist() + held.tolist()) == list(range(72))
    assert train.tolist() == sorted(train.tolist())
    assert held.tolist() == sorted(held.tolist())


def test_each_class_gives_the_rounded_share():
    samples = samples_of([40, 35, 7])
    _, held = hold_out(samples, 0.1, seed=0)
    assert torch.bincount(samples.labels[held]).tolist() == [4, round(0.1 * 35), 1]


def test_a_class_of_two_gives_one_and_a_class_of_one_none():
    samples = samples_of([2, 1, 50])
    train, held = hold_out(samples, 0.01, seed=0)
    assert torch.bincount(samples.labels[held], minlength=3).tolist() == [1, 0, 1]
    _, most = hold_out(samples, 0.999, seed=0)
    assert torch.bincount(samples.labels[most], minlength=3).tolist() == [1, 0, 49]
    assert 1 in samples.labels[train]


def test_holding_out_depends_on_the_seed_and_on_nothing_else():
    samples = samples_of([100, 100])
    torch.manual_seed(1)
    first = hold_out(samples, 0.3, seed=5)[1]
    torch.manual_seed(2)
    assert torch.equal(first, hold_out(samples, 0.3, seed=5)[1])
    assert not torch.equal(first, hold_out(samples, 0.3, seed=6)[1])


def test_groups_are_held_out_whole_and_near_the_share():
    groups = torch.arange(30).repeat_interleave(10)
    samples = samples_of([200, 100], groups)
    train, held = hold_out(samples, 0.2, seed=1)
    assert not set(groups[train].tolist()) & set(groups[held].tolist())
    assert torch.bincount(samples.labels[held]).tolist() == [40, 20]


def test_one_group_is_held_out_of_two_however_small_the_share_and_none_of_one():
    groups = torch.tensor([0] * 5 + [1] * 5 + [2] * 6)
    samples = samples_of([10, 6], groups)
    _, held = hold_out(samples, 0.01, seed=0)
    assert torch.bincount(samples.labels[held], minlength=2).tolist() == [5, 0]


@pytest.mark.parametrize("share", [0, 1, -0.1, float("nan")])
def test_a_share_outside_0_to_1_is_refused(share):
    with pytest.raises(SettingsError, match="between 0 and 1"):
        hold_out(samples_of([4, 4]), share, seed=0)
    with pytest.raises(SettingsError, match="between 0 and 1"):
        whole_groups(torch.zeros(4, dtype=torch.int64), None, share, seed=0)


def test_what_is_held_out_is_trained_on_where_settings_say_so():
    samples, settings = samples_of([50, 30]), TrainingSettings(epochs=1, validation_share=0.2)
    plain = training_split(samples.labels, None, settings, seed=3)
    both = training_split(samples.labels, None, replace(settings, validation="trained"), seed=3)
    assert all(map(torch.equal, plain, hold_out(samples, 0.2, seed=3)))
    assert torch.equal(both[1], plain[1])
    assert torch.equal(both[0], torch.arange(80))


def test_whole_groups_are_those_of_one_class_and_as_many_as_come_nearest():
    labels = torch.tensor([0] * 6 + [1] * 6)
    groups = torch.tensor([0, 0, 0, 1, 1, 1] * 2)  # four groups of three: half is two of them
    for seed in range(5):
        drawn = whole_groups(labels, groups, 0.5, seed)
        assert len(drawn) == 6
        chosen = {(int(labels[place]), int(groups[place])) for place in drawn}
        assert len(chosen) == 2
    draws = {tuple(whole_groups(labels, groups, 0.5, seed).tolist()) for seed in range(9)}
    assert len(draws) > 1
    assert len(whole_groups(labels, None, 0.5, seed=0)) == 6


def test_a_split_refuses_one_known_class_an_overlap_and_a_repeat():
    with pytest.raises(SettingsError, match="at least 2 classes must be known"):
        ClassSplit((1,), (2,))
    with pytest.raises(SettingsError, match="class 2 is both known and novel"):
        ClassSplit((1, 2), (2, 3))
    with pytest.raises(SettingsError, match="known class is listed twice"):
        ClassSplit((1, 1), (2,))
    with pytest.raises(SettingsError, match="novel class is listed twice"):
        ClassSplit((1, 2), (3, 3))


def test_drawn_classes_cover_all_and_follow_the_seed():
    drawn = draw_classes("abcdefgh", 5, seed=0)
    assert len(drawn.known) == 5
    assert sorted(drawn.known + drawn.novel) == list("abcdefgh")
    assert drawn == draw_classes("abcdefgh", 5, seed=0)
    assert len({draw_classes("abcdefgh", 5, seed=seed).known for seed in range(5)}) > 1


@pytest.mark.parametrize("count", [0, 1, 4, 9])
def test_a_draw_that_leaves_no_known_pair_or_no_novel_class_is_refused(count):
    with pytest.raises(SettingsError, match=f"2 to 3 of the 4.*got {count}"):
        draw_classes((0, 1, 2, 3), count, seed=0)


def test_exact_classes_give_the_rest_to_the_other_part():
    assert exact_classes(range(5), known=[3, 1]) == ClassSplit((3, 1), (0, 2, 4))
    assert exact_classes(range(5), novel=[3, 1]) == ClassSplit((0, 2, 4), (3, 1))
    assert exact_classes(range(5), known=[0, 1], novel=[4]) == ClassSplit((0, 1), (4,))


def test_text_from_a_command_line_finds_number_classes():
    assert exact_classes(range(4), known=["3", "1"]) == ClassSplit((3, 1), (0, 2))
    assert exact_classes((3, "3", 4), known=["3", "4"]) == ClassSplit(("3", 4), (3,))


def test_an_unknown_class_is_refused_with_the_nearest():
    with pytest.raises(SettingsError, match="unknown class 'catt'; did you mean 'cat'"):
        exact_classes(("cat", "dog", "emu"), known=["catt", "dog"])
    with pytest.raises(SettingsError, match="name the known classes"):
        exact_classes(("cat", "dog"))


def test_the_authors_orders_are_ten_permutations_and_the_first_five_are_known():
    assert len(AUTHORS_ORDERS) == 10
    assert all(sorted(order) == list(range(10)) for order in AUTHORS_ORDERS)
    assert authors_split(0) == ClassSplit((9, 5, 2, 4, 7), (1, 0, 8, 6, 3))
    assert authors_split(9, known_count=8).novel == (2, 3)


@pytest.mark.parametrize(("trial", "count"), [(-1, 5), (10, 5), (0, 1), (0, 10)])
def test_an_authors_trial_or_count_that_does_not_exist_is_refused(trial, count):
    with pytest.raises(SettingsError, match="got"):
        authors_split(trial, count)


def test_split_data_relabels_to_the_order_of_the_split():
    samples = samples_of([2, 3, 4])
    train, known, novel = split_data(DataSet("toy", samples, samples), ClassSplit((2, 0), (1,)))
    assert train.classes == (2, 0)
    assert train.labels.tolist() == [1, 1, 0, 0, 0, 0]
    assert torch.equal(known.inputs, train.inputs)
    assert novel.classes == (1,)
    assert novel.inputs[:, 0].tolist() == [2, 3, 4]


def test_a_known_class_without_training_samples_is_refused():
    train, test = samples_of([2, 0, 4]), samples_of([1, 1, 1])
    with pytest.raises(DataError, match="class 1 has no sample"):
        split_data(DataSet("toy", train, test), ClassSplit((1, 0), (2,)))
    with pytest.raises(DataError, match="no class 7"):
        split_data(DataSet("toy", train, test), ClassSplit((0, 2), (7,)))


@pytest.mark.parametrize(
    ("name", "classes", "place"), [(3, [4, 3], 1), ("3", [3, 4], 0), ("5", [3, 4], None), (3, ["x", "3"], 1)]
)
def test_a_class_is_matched_by_name_and_else_by_how_it_is_written(name, classes, place):
    assert match_class(name, classes) == place


def test_samples_are_divided_under_the_labels_of_the_model():
    samples = Samples(torch.rand(5, 2), torch.tensor([0, 1, 2, 1, 0]), ("4", "x", "3"))
    known, novel = divide(samples, (3, 9, 4))
    assert known.classes == (3, 9, 4)
    assert known.labels.tolist() == [2, 0, 2]
    assert novel.classes == ("x",)
    assert torch.equal(novel.inputs, samples.inputs[[1, 3]])


def test_of_two_classes_written_alike_only_the_same_one_is_known():
    samples = Samples(torch.rand(2, 2), torch.tensor([0, 1]), (3, "3"))
    known, novel = divide(samples, (3, 4))
    assert known.labels.tolist() == [0]
    assert novel.classes == ("3",)


@pytest.mark.parametrize(
    ("text", "classes", "name"),
    [
        ("7", (0, 1), 7),
        ("7", ("a", "b"), "7"),
        ("7", (0, "novel-1"), 7),
        ("07", (0, 1), "07"),
        ("1", (0, 1), 1),
    ],
)
def test_a_new_class_is_a_number_where_the_classes_are(text, classes, name):
    found = new_class(text, classes)
    assert (found, type(found)) == (name, type(name))
