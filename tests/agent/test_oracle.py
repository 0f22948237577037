from __future__ import annotations

import pytest
import torch

from shels.agent.agent import Request
from shels.agent.oracle import Oracle, Truth, Truths
from shels.data.samples import Samples
from shels.errors import DataError


def image(value):
    return torch.full((1, 2, 2), value, dtype=torch.uint8)


@pytest.fixture
def samples():
    """Five images, each of its own grey: 10, 11 and 12 are cows, 20 and 21 dogs."""
    inputs = torch.stack([image(value) for value in (10, 20, 11, 21, 12)])
    return Samples(inputs, torch.tensor([0, 1, 0, 1, 0]), ("cow", "dog"))


def asked(*values):
    return Request("1", "novel-1", torch.stack([image(value) for value in values]), 1.0)


def test_the_truth_of_some_images_is_the_class_of_most_with_its_share(samples):
    assert Truths(samples).of(asked(20, 10, 21).inputs) == Truth("dog", 2 / 3)
    assert Truths(samples).of(asked(12).inputs) == Truth("cow", 1.0)


def test_an_image_seen_twice_counts_twice(samples):
    assert Truths(samples).of(asked(20, 20, 20, 10, 11).inputs) == Truth("dog", 3 / 5)


def test_strangers_are_refused_with_their_count(samples):
    with pytest.raises(DataError, match="2 of 3 images are not among those whose truth is known"):
        Truths(samples).of(asked(10, 99, 98).inputs)


def test_the_oracle_gives_all_training_images_of_the_class_with_its_name(samples):
    train = Samples(torch.stack([image(v) for v in (1, 2, 3)]), torch.tensor([1, 0, 1]), ("cow", "dog"))
    supply = Oracle(Truths(samples), train, lambda: ["bird"])(asked(20, 21, 10))
    assert supply.name == "dog"
    assert supply.by == "oracle"
    assert supply.inputs[:, 0, 0, 0].tolist() == [1, 3]


def test_the_oracle_gives_the_same_again(samples):
    oracle = Oracle(Truths(samples), samples, list)
    first, second = oracle(asked(10)), oracle(asked(10))
    assert first.name == second.name == "cow"
    assert torch.equal(first.inputs, second.inputs)


def test_of_a_known_class_the_oracle_gives_nothing(samples):
    known = ["cow"]
    oracle = Oracle(Truths(samples), samples, lambda: known)
    assert oracle(asked(10, 11)) is None
    assert oracle(asked(20)) is not None
    known.append("dog")  # it asks anew each time what is known by now
    assert oracle(asked(20)) is None


def test_a_known_class_is_found_by_how_it_is_written(samples):
    numbers = Samples(samples.inputs, samples.labels, (3, 4))
    assert Oracle(Truths(numbers), numbers, lambda: ["3"])(asked(10)) is None
    assert Oracle(Truths(numbers), numbers, lambda: ["3"])(asked(20)).name == 4
