from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shels.data import sources
from shels.errors import DataError, MissingDataError, SettingsError

random = np.random.default_rng(0)


def write_set(path, side=28, classes=10, **more):
    x = random.integers(0, 256, (20, side, side), np.uint8)
    np.savez(path, x_train=x, y_train=np.arange(20) % classes, x_test=x[:5], y_test=np.arange(5), **more)
    return x


def test_the_data_directory_is_the_one_given_then_the_variable_then_the_home(monkeypatch, tmp_path):
    monkeypatch.setenv("SHELS_DATA", "~/from-variable")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert sources.data_directory(Path("given")) == Path("given")
    assert sources.data_directory(None) == tmp_path / "from-variable"
    monkeypatch.setenv("SHELS_DATA", "")
    assert sources.data_directory() == tmp_path / ".shels" / "data"


def test_a_named_npz_is_found_by_the_variable(monkeypatch, tmp_path):
    x = write_set(tmp_path / "mnist.npz")
    monkeypatch.setenv("SHELS_DATA", str(tmp_path))
    data = sources.load_named("mnist")
    assert data.name == "mnist"
    assert np.array_equal(data.train.inputs[:, 0].numpy(), x)
    assert len(data.test) == 5


def test_the_digits_need_no_directory_and_can_be_resized(tmp_path):
    data = sources.load_named("digits", tmp_path, size=16)
    assert data.train.inputs.shape == (1257, 1, 16, 16)
    assert data.test.inputs.shape == (540, 1, 16, 16)


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(SettingsError, match="unknown data set 'cifar-10'; did you mean 'cifar10'"):
        sources.load_named("cifar-10")


@pytest.mark.parametrize("name", ["mnist", "fmnist", "cifar10", "svhn", "gtsrb"])
def test_a_missing_set_says_what_where_and_how(tmp_path, name):
    with pytest.raises(MissingDataError) as caught:
        sources.load_named(name, tmp_path)
    message = str(caught.value)
    first = sources.NAMED[name].files[0].name
    for part in (first, str(tmp_path / name), f"{name}.npz", f"shels data download {name}", "x_train"):
        assert part in message
    assert sources.NAMED[name].homepage in message


def test_the_listing_says_what_is_here_and_how_much(tmp_path):
    write_set(tmp_path / "mnist.npz")
    (tmp_path / "svhn").mkdir()
    for part in ("train", "test"):
        (tmp_path / "svhn" / f"{part}_32x32.mat").write_bytes(b"")
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10" / "cifar-10-binary.tar.gz").write_bytes(b"")
    (tmp_path / "gtsrb.npz").write_bytes(b"junk")
    np.savez(tmp_path / "fmnist.npz", x=[1])
    lines = {line.name: line for line in sources.listing(tmp_path)}
    assert list(lines) == list(sources.NAMED)
    assert lines["digits"].present
    assert (lines["mnist"].where, lines["mnist"].train, lines["mnist"].test) == (
        str(tmp_path / "mnist.npz"),
        20,
        5,
    )
    assert (lines["svhn"].where, lines["svhn"].train) == (str(tmp_path / "svhn"), 73257)
    assert lines["cifar10"].where == str(tmp_path / "cifar10" / "cifar-10-binary.tar.gz")
    assert "not a whole .npz" in lines["gtsrb"].problem
    assert "no array 'y_train'" in lines["fmnist"].problem
    assert not any(line.present for line in sources.listing(tmp_path / "none") if line.name != "digits")


def test_load_takes_a_name_an_npz_or_a_folder(tmp_path):
    x = write_set(tmp_path / "mnist.npz")
    assert sources.load("mnist", tmp_path).name == "mnist"
    np.savez(tmp_path / "own.npz", x=x, y=["a", "b"] * 10)
    data = sources.load(tmp_path / "own.npz", size=7, channels="rgb")
    assert data.train.inputs.shape == (20, 3, 7, 7)
    assert data.test.inputs.shape == (0, 3, 7, 7)
    assert data.train.classes == data.test.classes == ("a", "b")
    (tmp_path / "pets" / "cat").mkdir(parents=True)
    Image.new("RGB", (9, 9), (50, 50, 50)).save(tmp_path / "pets" / "cat" / "1.png")
    grey = sources.load(str(tmp_path / "pets"), size=4, channels="grey")
    assert grey.train.inputs.shape == (1, 1, 4, 4)
    assert grey.train.inputs.unique().tolist() == [50]


def test_a_path_is_never_taken_for_a_name(tmp_path, monkeypatch):
    (tmp_path / "digits" / "cat").mkdir(parents=True)
    Image.new("L", (9, 9)).save(tmp_path / "digits" / "cat" / "1.png")
    monkeypatch.chdir(tmp_path)
    assert sources.load(Path("digits")).train.classes == ("cat",)
    assert len(sources.load("digits").train) == 1257


def test_colour_turns_grey_as_pillow_does(tmp_path):
    x = random.integers(0, 256, (2, 5, 5, 3), np.uint8)
    np.savez(tmp_path / "a.npz", x=x, y=[0, 1])
    grey = sources.load(tmp_path / "a.npz", channels="grey").train.inputs[:, 0].numpy().astype(int)
    pillow = np.stack([np.asarray(Image.fromarray(image).convert("L")) for image in x]).astype(int)
    assert abs(grey - pillow).max() <= 1


def test_neither_a_name_nor_a_path_says_both(tmp_path):
    with pytest.raises(MissingDataError, match=r"did you mean 'mnist'.*no file or folder 'mnits' either"):
        sources.load("mnits")
    with pytest.raises(MissingDataError, match="no file or folder"):
        sources.load(tmp_path / "none.npz")


def test_a_file_of_another_kind_and_a_form_for_vectors_are_refused(tmp_path):
    (tmp_path / "a.txt").write_text("1,2")
    with pytest.raises(DataError, match=r"a\.txt is neither a folder nor a \.zip, \.csv or \.npz file"):
        sources.load(tmp_path / "a.txt")
    np.savez(tmp_path / "v.npz", x=np.zeros((2, 3)), y=[0, 1])
    with pytest.raises(SettingsError, match="these are vectors"):
        sources.load(tmp_path / "v.npz", size=8)
    with pytest.raises(SettingsError, match="size must be a whole number"):
        sources.load("digits", size=-1)
