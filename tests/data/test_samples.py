import math

import pytest
import torch

from shels.data.samples import Samples, check_inputs
from shels.errors import DataError


def vectors(labels, classes=("a", "b", "c"), groups=None):
    """Return samples whose only value is their row."""
    labels = torch.tensor(labels, dtype=torch.int64)
    rows = torch.arange(len(labels), dtype=torch.float32)[:, None]
    return Samples(rows, labels, classes, groups, "my.npz")


def rows_of(samples):
    return samples.inputs[:, 0].int().tolist()


def test_the_length_is_the_number_of_inputs():
    assert len(vectors([0, 1, 1, 2])) == 4
    assert len(vectors([])) == 0


# Choosing -----------------------------------------------------------------------------------------------


def test_only_keeps_some_classes_relabelled_to_the_order_asked_for():
    kept = vectors([0, 1, 2, 1, 0, 2]).only(["c", "a"])
    assert kept.classes == ("c", "a")
    assert rows_of(kept) == [0, 2, 4, 5]
    assert kept.labels.tolist() == [1, 0, 1, 0]
    assert kept.origin == "my.npz"


def test_only_with_all_classes_in_order_changes_nothing():
    samples = vectors([2, 0, 1])
    kept = samples.only(samples.classes)
    assert torch.equal(kept.inputs, samples.inputs)
    assert torch.equal(kept.labels, samples.labels)


def test_only_keeps_each_sample_under_its_own_name():
    samples = vectors([0, 1, 2, 1, 0, 2], classes=(3, "x", None))
    for order in ([None, 3, "x"], ["x"], [3, None]):
        kept = samples.only(order)
        for row, label in zip(rows_of(kept), kept.labels.tolist(), strict=True):
            assert order[label] == samples.classes[samples.labels[row]]


def test_only_keeps_a_class_that_has_no_sample():
    kept = vectors([0, 0]).only(["b", "a"])
    assert kept.classes == ("b", "a")
    assert kept.labels.tolist() == [1, 1]


def test_only_refuses_a_class_that_is_not_there_and_names_those_that_are():
    with pytest.raises(DataError) as caught:
        vectors([0, 1]).only(["a", "z"])
    assert str(caught.value) == "my.npz has no class 'z'; its classes: ['a', 'b', 'c']"


def test_only_refuses_a_class_twice():
    with pytest.raises(DataError, match=r"a class is listed twice in \['a', 'a'\]"):
        vectors([0, 1]).only(["a", "a"])


@pytest.mark.parametrize("index", [torch.tensor([3, 0]), torch.tensor([True, False, False, True, False])])
def test_take_gives_the_samples_at_positions_or_under_a_mask(index):
    groups = torch.tensor([10, 11, 12, 13, 14])
    taken = vectors([0, 1, 2, 1, 0], groups=groups).take(index)
    expected = [3, 0] if index.dtype == torch.int64 else [0, 3]
    assert rows_of(taken) == expected
    assert taken.labels.tolist() == [[0, 1, 2, 1, 0][row] for row in expected]
    assert taken.groups.tolist() == [10 + row for row in expected]
    assert taken.classes == ("a", "b", "c")
    assert taken.origin == "my.npz"


def test_only_keeps_the_groups_of_what_it_keeps():
    kept = vectors([0, 1, 0, 2], groups=torch.tensor([5, 6, 7, 8])).only(["a", "c"])
    assert kept.groups.tolist() == [5, 7, 8]


def test_on_the_device_asked_for_are_inputs_and_labels():
    moved = Samples(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64), ("a",)).to(torch.device("meta"))
    assert moved.inputs.device.type == "meta"
    assert moved.labels.device.type == "meta"


def test_a_class_without_samples_is_refused_by_name():
    vectors([0, 1, 2, 2]).require_every_class()
    with pytest.raises(DataError, match=r"my\.npz: class 'b' has no sample; add some or leave the class out"):
        vectors([0, 2, 2]).require_every_class()


# Refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1], r"3 inputs but labels of shape \(2,\)"),
        ([[0], [1], [2]], r"3 inputs but labels of shape \(3, 1\)"),
        ([0, 1, 3], "labels must be positions in the 3 classes"),
        ([0, -1, 2], "labels must be positions in the 3 classes"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels, message):
    with pytest.raises(DataError, match=f"my.npz: {message}"):
        Samples(torch.zeros(3, 2), torch.tensor(labels), ("a", "b", "c"), origin="my.npz")


def test_a_class_listed_twice_is_refused():
    with pytest.raises(DataError, match=r"a class is listed twice in \['a', 'b', 'a'\]"):
        Samples(torch.zeros(1, 2), torch.tensor([0]), ("a", "b", "a"))


@pytest.mark.parametrize(
    "inputs",
    [
        torch.zeros(2, 1, 4, 4, dtype=torch.uint8),
        torch.full((2, 3, 4, 4), 255, dtype=torch.uint8),
        torch.tensor([0.0, 1.0]).view(2, 1, 1, 1),
        torch.tensor([[-1e30, 1e30]]),
        torch.zeros(0, 5),
        torch.zeros(0, 1, 4, 4),
    ],
)
def test_images_in_range_and_any_finite_vectors_are_taken(inputs):
    samples = Samples(inputs, torch.zeros(len(inputs), dtype=torch.int64), ("a",))
    assert samples.inputs is inputs


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (torch.zeros(5), r"inputs must be images .* or vectors \(n, d\), got shape \(5,\)"),
        (torch.zeros(2, 28, 28), r"got shape \(2, 28, 28\)"),
        (torch.zeros(2, 28, 28, 3), r"images must have 1 channel \(grey\) or 3 \(RGB\), got 28"),
        (torch.zeros(2, 4, 8, 8, dtype=torch.uint8), "got 4"),
        (torch.zeros(2, 3, dtype=torch.float64), "inputs must be float32 .*, got torch.float64"),
        (torch.zeros(2, 3, dtype=torch.uint8), "got torch.uint8"),
        (torch.zeros(2, 1, 4, 4, dtype=torch.int64), "got torch.int64"),
        (
            torch.full((1, 1, 2, 2), 255.0),
            "float images must lie in 0-1, got 255 to 255; scale them, or pass uint8",
        ),
        (torch.tensor([-0.5, 0.5]).view(1, 1, 1, 2), "must lie in 0-1, got -0.5 to 0.5"),
    ],
)
def test_inputs_that_cannot_be_used_are_refused_with_the_reason(inputs, message):
    with pytest.raises(DataError, match=f"^my.npz: .*{message}"):
        check_inputs(inputs, "my.npz")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("shape", [(4, 3), (4, 1, 2, 2)])
def test_a_value_that_is_no_number_is_refused_with_its_sample(bad, shape):
    inputs = torch.zeros(shape)
    inputs[2].view(-1)[1] = bad
    with pytest.raises(DataError, match=r"my\.npz: sample 2 holds NaN or infinity; drop or repair it"):
        check_inputs(inputs, "my.npz")


def test_groups_that_do_not_fit_are_refused():
    with pytest.raises(DataError, match=r"2 inputs but groups of shape \(3,\)"):
        vectors([0, 1], groups=torch.arange(3))


def test_labels_that_are_no_whole_numbers_are_refused():
    with pytest.raises(DataError, match="labels must be int64"):
        Samples(torch.zeros(2, 2), torch.tensor([0.0, 1.0]), ("a", "b"))


def test_samples_without_any_value_are_refused():
    with pytest.raises(DataError, match="no values"):
        Samples(torch.zeros(2, 0), torch.tensor([0, 1]), ("a", "b"))
