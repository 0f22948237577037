"""Data sets of other libraries, by stand-ins with their interfaces."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, Subset

from shels import OpenWorldClassifier
from shels.data import datasets
from shels.errors import DataError, SettingsError

random = np.random.default_rng(0)


def picture(value, size=(20, 16), mode="RGB"):
    return Image.new(mode, size, value if mode == "L" else (value,) * 3)


@pytest.fixture
def paths(tmp_path):
    """Twelve images of several sizes; each has its number times ten as its value."""
    for number in range(12):
        picture(10 * number, (20 + number, 16)).save(tmp_path / f"{number:02d}.png")
    return sorted(tmp_path.iterdir())


# torchvision, whose data sets are torch's -----------------------------------------------------------------


class ImageFolder(Dataset):
    """As torchvision.datasets.ImageFolder: samples of (path, class index), loaded as RGB, transformed."""

    def __init__(self, root, transform=None):
        self.classes = sorted(folder.name for folder in root.iterdir())
        self.class_to_idx = {name: place for place, name in enumerate(self.classes)}
        found = [(path, self.class_to_idx[name]) for name in self.classes for path in (root / name).iterdir()]
        self.samples = self.imgs = sorted(found)
        self.targets = [label for _, label in self.samples]
        self.transform = transform

    def __getitem__(self, row):
        path, label = self.samples[row]
        with path.open("rb") as file:
            image = Image.open(file).convert("RGB")
        return (image if self.transform is None else self.transform(image)), label

    def __len__(self):
        return len(self.samples)


class CIFAR10(Dataset):
    """As torchvision.datasets.CIFAR10: an array of images, a list of labels, PIL images as items."""

    def __init__(self, count=20):
        self.data = random.integers(0, 256, (count, 32, 32, 3), np.uint8)
        self.targets = [row % 4 for row in range(count)]
        self.classes = ["airplane", "automobile", "bird", "cat"]

    def __getitem__(self, row):
        return Image.fromarray(self.data[row]), self.targets[row]

    def __len__(self):
        return len(self.data)


def test_an_image_folder_of_several_sizes_is_brought_to_one(tmp_path):
    for name, value in (("a", 10), ("b", 20)):
        for number in range(3):
            (tmp_path / name).mkdir(exist_ok=True)
            picture(value, (20 + number, 16)).save(tmp_path / name / f"{number}.png")
    samples = datasets.from_torch_dataset(ImageFolder(tmp_path), side=8)
    assert samples.inputs.shape == (6, 3, 8, 8)
    assert samples.inputs[:, 0, 0, 0].tolist() == [10, 10, 10, 20, 20, 20]
    assert samples.labels.tolist() == [0, 0, 0, 1, 1, 1]
    floats = ImageFolder(tmp_path, lambda image: torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255)
    assert datasets.from_torch_dataset(floats, side=8).inputs.dtype == torch.float32


def test_cifar10_keeps_its_pixels_and_labels():
    data = CIFAR10()
    samples = datasets.samples_of(data, None)
    assert np.array_equal(samples.inputs.numpy().transpose(0, 2, 3, 1), data.data)
    assert samples.classes == (0, 1, 2, 3)
    assert samples.labels.tolist() == data.targets
    some = datasets.samples_of(Subset(data, [3, 5]), None)
    assert [some.classes[place] for place in some.labels.tolist()] == [3, 1]


class Large(Dataset):
    def __init__(self, sizes):
        self.sizes = sizes

    def __getitem__(self, row):
        return picture(row, self.sizes[row]), row % 2

    def __len__(self):
        return len(self.sizes)


@pytest.mark.parametrize(
    ("sizes", "side", "shape"),
    [
        ([(100, 80)] * 3, None, (80, 100)),
        ([(300, 200)] * 3, None, (64, 64)),  # such photos never lie in memory at full size
        ([(300, 200)] * 3, 128, (200, 300)),
        ([(100, 80), (100, 80), (300, 200)], None, (64, 64)),
    ],
)
def test_items_are_kept_or_brought_to_one_size_as_they_come(sizes, side, shape):
    samples = datasets.from_torch_dataset(Large(sizes), side=side)
    assert samples.inputs.shape[2:] == shape
    assert samples.inputs[:, 0, 0, 0].tolist() == list(range(len(sizes)))


def test_a_photo_of_a_data_set_is_turned_as_its_exif_data_say(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    picture(9).save(tmp_path / "a.jpg", exif=exif)
    with Image.open(tmp_path / "a.jpg") as image:
        assert datasets.from_torch_dataset([(image, 0)]).inputs.shape[2:] == (20, 16)


# Hugging Face ---------------------------------------------------------------------------------------------


class ClassLabel:
    """Stands in for datasets.ClassLabel."""

    def __init__(self, names):
        self.names = names


class HFImage:
    """Stands in for datasets.Image, under whose name it goes."""


HFImage.__name__ = "Image"


class HFDataset:
    """Stands in for datasets.Dataset: rows are dictionaries, columns have features; no torch Dataset."""

    def __init__(self, columns, features=None):
        self.columns = columns
        self.features = features or dict.fromkeys(columns)
        self.column_names = list(columns)

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, row):
        return {name: values[row] for name, values in self.columns.items()}


def hugging_face(how):
    """Return ten rows of (image, label), images as they come out under different settings."""
    pictures = [picture(20 * row) for row in range(10)]
    if how != "decoded":
        contents = [io.BytesIO() for _ in pictures]
        for image, content in zip(pictures, contents, strict=True):
            image.save(content, "PNG")
        pictures = [{"bytes": content.getvalue(), "path": None} for content in contents]
    columns = {"id": list(range(10)), "photo_data": pictures, "coarse": [row % 2 for row in range(10)]}
    return HFDataset(columns, {"id": int, "photo_data": HFImage(), "coarse": ClassLabel(["a", "b"])})


@pytest.mark.parametrize("how", ["decoded", "bytes"])
def test_a_hugging_face_data_set_is_read_by_its_features(how):
    samples = datasets.samples_of(hugging_face(how), None)
    assert samples.inputs.shape == (10, 3, 16, 20)
    assert samples.inputs[:, 0, 0, 0].tolist() == [20 * row for row in range(10)]
    assert samples.labels.tolist() == [0, 1] * 5


def test_columns_of_a_hugging_face_data_set_may_go_by_their_names(paths):
    data = HFDataset({"image": [str(path) for path in paths], "label": ["a", "b"] * 6})
    samples = datasets.samples_of(data, None, side=8)
    assert samples.inputs[:, 0, 0, 0].tolist() == [10 * number for number in range(12)]
    assert samples.classes == ("a", "b")
    unlabelled = HFDataset({"image": [str(path) for path in paths]})
    assert torch.equal(datasets.inputs_of(unlabelled, 8, "rgb", side=8), samples.inputs)


class DatasetDict(dict):
    """Stands in for datasets.DatasetDict, which has the columns of every part and no features."""

    column_names = property(dict)


def test_a_hugging_face_data_set_that_cannot_be_read_says_what_to_do(paths):
    with pytest.raises(
        DataError, match=r"has the parts \['train', 'test'\]; choose one, such as data\['train'\]"
    ):
        datasets.samples_of(DatasetDict(train=1, test=2), None)
    with pytest.raises(DataError, match=r"no column of images, only \['text', 'label'\]"):
        datasets.samples_of(HFDataset({"text": ["a"], "label": [0]}), None)
    with pytest.raises(DataError, match=r"no column of labels, only \['image'\]"):
        datasets.samples_of(HFDataset({"image": [str(paths[0])]}), None)
    with pytest.raises(SettingsError, match="brings its own labels"):
        datasets.samples_of(hugging_face("decoded"), [0] * 10)


# pandas and lists -----------------------------------------------------------------------------------------


def test_a_frame_of_paths_and_labels_needs_no_y(paths):
    frame = pd.DataFrame(
        {"id": range(12), "path": map(str, paths), "label": ["a", "b"] * 6}, index=range(5, 17)
    )
    samples = datasets.samples_of(frame, None, side=8)
    assert samples.inputs[:, 0, 0, 0].tolist() == [10 * number for number in range(12)]
    assert samples.classes == ("a", "b")
    columns = datasets.samples_of(frame["path"], frame["label"], side=8)
    assert torch.equal(columns.inputs, samples.inputs)
    assert torch.equal(datasets.samples_of(frame[["path"]], frame["label"], side=8).inputs, samples.inputs)
    assert torch.equal(datasets.inputs_of(frame, 8, "rgb"), samples.inputs)
    assert torch.equal(datasets.inputs_of(frame["path"], 8, "rgb"), samples.inputs)


@pytest.mark.parametrize("kind", ["arrays", "pictures"])
def test_a_column_of_arrays_or_pictures_of_any_size_is_taken(kind):
    pictures = [picture(row, (20 + row, 16)) for row in range(4)]
    images = pd.Series([np.asarray(each) for each in pictures] if kind == "arrays" else pictures)
    frame = pd.DataFrame({"image": images, "class": [0, 1, 0, 1]})
    assert datasets.samples_of(frame, None, side=8).inputs[:, 0, 0, 0].tolist() == [0, 1, 2, 3]
    assert datasets.samples_of(list(images), [0, 1, 0, 1], side=8).inputs.shape == (4, 3, 8, 8)


@pytest.mark.parametrize("modes", [("RGB", "L"), ("L", "RGB")])
def test_grey_pictures_among_colour_ones_become_rgb(modes):
    pictures = [Image.new(mode, (6, 5), 40 if mode == "L" else (90, 0, 7)) for mode in modes]
    inputs = datasets.from_torch_dataset([(picture, 0) for picture in pictures]).inputs
    assert [sorted(set(row.flatten(1).unbind(1)[0].tolist())) for row in inputs] == [
        [40] if mode == "L" else [0, 7, 90] for mode in modes
    ]
    assert datasets.inputs_of(pictures, None, "grey").shape == (2, 1, 5, 6)
    assert datasets.inputs_of([pictures[modes.index("L")]], None, "rgb").shape == (1, 3, 5, 6)


def test_numbers_are_left_to_the_reader_of_arrays():
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})
    for x in (
        frame,
        frame.to_numpy(),
        [[1, 2], [3, 4]],
        [1, 2],
        frame["a"],
        torch.zeros(3),
        np.zeros((2, 4, 4)),
    ):
        assert datasets.samples_of(x, [0, 1]) is None
        assert datasets.inputs_of(x, None, None) is None


def test_a_file_that_cannot_be_read_is_left_out_of_training_and_an_error_in_prediction(paths):
    paths[3].write_bytes(b"junk")
    labels = [Path(path).stem[-1] in "02468" for path in paths]
    with pytest.warns(UserWarning, match=r"1 of 12 files were left out: .*03\.png"):
        samples = datasets.samples_of(paths, labels, side=8)
    assert len(samples) == 11
    assert [samples.classes[place] for place in samples.labels.tolist()] == labels[:3] + labels[4:]
    with pytest.raises(DataError, match=r"03\.png is not an image"):
        datasets.inputs_of(paths, 8, "rgb")


def test_columns_that_do_not_go_together_are_refused(paths):
    with pytest.raises(SettingsError, match=r"need labels: fit\(frame\['path'\], frame\['label'\]\)"):
        datasets.samples_of(paths, None)
    with pytest.raises(DataError, match="12 inputs but 2 labels"):
        datasets.samples_of(paths, [0, 1])
    with pytest.raises(DataError, match="row 12 holds 7"):
        datasets.samples_of([*paths, 7], range(13))


def test_the_classifier_learns_from_a_folder_a_table_and_a_frame_and_judges_paths(tmp_path):
    for number in range(40):
        path = tmp_path / "photos" / ("dark" if number % 2 else "light") / f"{number:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        noise = random.integers(0, 40, (10, 10, 3), np.uint8) + (20 if number % 2 else 180)
        Image.fromarray(noise.astype(np.uint8)).save(path)
    paths = sorted((tmp_path / "photos").rglob("*.png"))
    frame = pd.DataFrame({"path": paths, "label": [path.parent.name for path in paths]})
    frame.to_csv(tmp_path / "labels.csv", index=False)
    for data in (tmp_path / "photos", str(tmp_path / "labels.csv"), frame):
        model = OpenWorldClassifier(max_steps=30, accept=0.75, random_state=0, device="cpu").fit(data)
        answers = model.predict(frame["path"])
        assert set(model.classes_) == {"dark", "light"}
        accepted = answers != "novel"  # how many, four held-out samples decide
        assert accepted.mean() > 0.3
        assert (answers == frame["label"])[accepted].all()
        assert np.array_equal(model.predict(frame), answers)
        assert np.array_equal(model.predict(tmp_path / "labels.csv"), answers)
        assert np.array_equal(model.predict(str(tmp_path / "photos" / "dark")), answers[:20])
        for alone in (paths[0], str(paths[0]), Image.open(paths[0])):
            assert np.array_equal(model.predict(alone), answers[:1])
    with pytest.raises(DataError, match=r"X: there is no file or folder .*nothing"):
        model.predict(tmp_path / "nothing")
    with pytest.raises(DataError, match=r"trained on RGB images .*one image alone is x\[None\]"):
        model.predict(np.asarray(Image.open(paths[0])))
