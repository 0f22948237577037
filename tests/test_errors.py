import inspect

import pytest

from shels import errors
from shels.errors import MissingDataError, MissingExtraError, ShelsError, unknown_name

# name -> (parent in the tree, built-in that a caller would expect)
TREE = {
    "SettingsError": ("ShelsError", ValueError),
    "DataError": ("ShelsError", ValueError),
    "MissingDataError": ("DataError", FileNotFoundError),
    "TooLargeError": ("DataError", ValueError),
    "ArchitectureError": ("ShelsError", ValueError),
    "TrainingError": ("ShelsError", RuntimeError),
    "AccommodationError": ("ShelsError", ValueError),
    "ModelFileError": ("ShelsError", ValueError),
    "ExportError": ("ShelsError", RuntimeError),
    "ClusterError": ("ShelsError", ConnectionError),
    "MissingExtraError": ("ShelsError", ImportError),
}


@pytest.mark.parametrize("name", TREE)
def test_each_error_has_its_parent_and_its_built_in(name):
    parent, built_in = TREE[name]
    error = getattr(errors, name)
    assert getattr(errors, parent) in error.__bases__
    assert issubclass(error, built_in)


def test_the_tree_holds_every_error_and_is_drawn_in_the_module():
    defined = {name for name, value in vars(errors).items() if inspect.isclass(value) and "Error" in name}
    assert defined == {"ShelsError", *TREE}
    for name in defined:
        assert f" {name} " in errors.__doc__


def test_a_missing_file_says_its_message_and_nothing_of_an_errno():
    error = MissingDataError("mnist is not in /data")
    assert str(error) == "mnist is not in /data"
    assert isinstance(error, ValueError)


def test_a_missing_extra_says_what_it_is_for_and_how_to_install_it():
    message = "downloading data needs pooch: pip install 'shels[download]'"
    with pytest.raises(ShelsError) as caught:
        raise MissingExtraError("pooch", "download", "downloading data")
    assert str(caught.value) == message


def test_an_unknown_name_is_answered_with_the_nearest():
    assert unknown_name("data set", "mnits", ["mnist", "svhn"]) == (
        "unknown data set 'mnits'; did you mean 'mnist'? (choose from: mnist, svhn)"
    )


def test_a_name_that_is_near_to_none_gets_no_suggestion():
    assert unknown_name("data set", "xyz", ["mnist", "svhn"]) == (
        "unknown data set 'xyz' (choose from: mnist, svhn)"
    )


def test_choices_may_be_an_iterator_and_no_text():
    message = unknown_name("class", 11, iter([1, 2]))
    assert message == "unknown class '11'; did you mean '1'? (choose from: 1, 2)"
