"""Data from the disk in the form that a model takes."""

from pathlib import Path

import numpy as np
import pytest

from shels.config import NetworkSettings
from shels.data.inputs import choose_part, form, load_in_form, load_known, read_class, read_inputs
from shels.data.preparation import Preparation
from shels.data.splits import ClassChoice
from shels.errors import DataError, SettingsError


def test_images_are_read_at_the_size_of_the_model_unless_it_pads():
    assert form(Preparation((3, 32, 32))) == (32, "rgb")
    assert form(Preparation((1, 32, 32), "pad")) == (None, "grey")
    assert form(Preparation((1, 20, 30))) == (None, "grey")
    assert form(Preparation((7,))) == (None, None)


def test_what_to_learn_comes_with_the_classes_that_are_left_out():
    choice = ClassChoice(known=["4", "7"])
    samples, novel = load_known("digits", None, NetworkSettings(), choice)
    assert samples.classes == (4, 7)
    assert novel == (0, 1, 2, 3, 5, 6, 8, 9)
    assert set(samples.labels.tolist()) == {0, 1}


def test_a_part_is_the_test_part_unless_there_is_none_or_another_is_named():
    digits = load_in_form("digits", None, Preparation((1, 8, 8)))
    assert choose_part(digits, None).name == "test"
    assert len(choose_part(digits, "all").samples) == len(digits.train) + len(digits.test)
    with pytest.raises(SettingsError, match="unknown part 'tests'; did you mean 'test'"):
        choose_part(digits, "tests")


def test_samples_of_a_file_are_named_after_it_and_their_row(tmp_path):
    np.savez(tmp_path / "two.npz", x=np.zeros((2, 8, 8), dtype=np.uint8))
    [(inputs, names)] = read_inputs(tmp_path / "two.npz", Preparation((1, 8, 8)))
    assert inputs.shape == (2, 1, 8, 8)
    assert names == [f"{tmp_path / 'two.npz'}#0", f"{tmp_path / 'two.npz'}#1"]


def test_a_named_set_in_the_place_of_a_file_is_explained():
    with pytest.raises(DataError, match="named sets are for `shels evaluate`"):
        read_inputs(Path("mnist"), Preparation((1, 8, 8)))


def test_a_class_from_files_of_several_sizes_is_brought_to_the_size_of_the_model(tmp_path):
    for name, side in (("small", 8), ("large", 12)):
        np.savez(tmp_path / f"{name}.npz", x=np.zeros((3, side, side), dtype=np.uint8))
    paths = [tmp_path / "small.npz", tmp_path / "large.npz"]
    with pytest.warns(UserWarning, match="holds arrays of shape"):
        assert read_class(paths, Preparation((1, 8, 8))).shape == (6, 1, 8, 8)
