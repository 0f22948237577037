import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from shels.data import arrays, datasets, manner, own
from shels.errors import DataError, MissingDataError, SettingsError

random = np.random.default_rng(0)
GREY = random.integers(0, 256, (3, 5, 6), np.uint8)
COLOUR = random.integers(0, 256, (3, 5, 6, 3), np.uint8)


def test_grey_and_colour_images_keep_their_bytes():
    assert np.array_equal(arrays.images_or_vectors(GREY)[:, 0].numpy(), GREY)
    assert np.array_equal(arrays.images_or_vectors(COLOUR).numpy(), COLOUR.transpose(0, 3, 1, 2))
    assert arrays.images_or_vectors(GREY[..., None]).shape == (3, 1, 5, 6)


@pytest.mark.parametrize("dtype", [np.int64, np.int16, np.uint16, np.int32])
def test_other_whole_numbers_from_0_to_255_become_bytes(dtype):
    inputs = arrays.images_or_vectors(GREY.astype(dtype))
    assert inputs.dtype == torch.uint8
    assert np.array_equal(inputs[:, 0].numpy(), GREY)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_real_images_become_float32(dtype):
    inputs = arrays.images_or_vectors((GREY / 256).astype(dtype))
    assert inputs.dtype == torch.float32
    assert np.allclose(inputs[:, 0].numpy(), GREY / 256, atol=1e-3)


def test_true_and_false_pixels_become_white_and_black():
    assert arrays.images_or_vectors(np.array([[[True, False]]])).flatten().tolist() == [255, 0]


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.float64, bool])
def test_vectors_of_any_real_kind_become_float32(dtype):
    inputs = arrays.images_or_vectors(np.array([[0, 1], [1, 0]], dtype))
    assert inputs.dtype == torch.float32
    assert inputs.tolist() == [[0, 1], [1, 0]]


def test_the_tensor_is_a_copy_even_of_a_read_only_array():
    frozen = GREY.copy()
    frozen.flags.writeable = False
    inputs = arrays.images_or_vectors(frozen)
    inputs[:] = 0
    assert frozen.any()


def test_a_torch_tensor_has_its_channels_first_only_where_that_is_plain():
    first = torch.rand(2, 3, 8, 9)
    assert torch.equal(arrays.images_or_vectors(first), first)
    assert arrays.images_or_vectors(torch.rand(2, 8, 9, 3)).shape == (2, 3, 8, 9)
    assert arrays.images_or_vectors(torch.rand(2, 3, 8, 3)).shape == (2, 3, 3, 8)
    assert arrays.images_or_vectors(torch.rand(2, 8, 9).requires_grad_()).shape == (2, 1, 8, 9)
    assert arrays.images_or_vectors(torch.rand(2, 4).to(torch.bfloat16)).dtype == torch.float32


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((2, 3, 8, 9), np.uint8), r"x\.transpose\(0, 2, 3, 1\)"),
        (np.zeros((2, 8, 9, 4), np.uint8), r"x\[\.\.\., :3\]"),
        (np.zeros(5), r"x\[None\]"),
        (np.zeros((1, 2, 3, 4, 5)), "got shape"),
        (np.float64(3), "empty"),
        (np.zeros((0, 8, 8)), "empty"),
        (np.zeros((4, 0)), "empty"),
        ([], "empty"),
        (np.array([[1, np.nan]]), "sample 0 holds NaN"),
        (np.array([[1e300]]), "NaN or infinity"),
        (np.full((1, 4, 4), 2.5), "must lie in 0-1"),
        (np.full((1, 4, 4), 256), "must lie in 0-255, got 256 to 256"),
        (np.full((1, 4, 4), -1), "must lie in 0-255"),
        (np.ones((2, 2), complex), "real numbers, got an array of complex128"),
        (np.array([[1, "a"]], dtype=object), "real numbers, got an array of object"),
        (np.array([["a", "b"]]), "real numbers"),
        ([[1, 2], [3]], "same shape"),
        (torch.ones(2, 2, dtype=torch.complex64), "real numbers"),
    ],
)
def test_inputs_that_cannot_be_used_are_refused_by_name(x, message):
    with pytest.raises(DataError, match=f"(?s)my array.*{message}"):
        arrays.images_or_vectors(x, "my array")


@pytest.mark.parametrize(
    ("y", "classes", "positions"),
    [
        (["b", "a", "b"], ("a", "b"), [1, 0, 1]),
        (np.array([7, 3, 7], np.uint8), (3, 7), [1, 0, 1]),
        (torch.tensor([7, 3, 7]), (3, 7), [1, 0, 1]),
        ([np.int64(7), torch.tensor(3), 7], (3, 7), [1, 0, 1]),
        (np.array(["b", "a", "b"], dtype=object), ("a", "b"), [1, 0, 1]),
        (["b", 1, "b"], ("b", 1), [0, 1, 0]),
        ([(1, 2), (0, 5), (1, 2)], ((0, 5), (1, 2)), [1, 0, 1]),
    ],
)
def test_labels_of_any_hashable_kind_become_positions_in_sorted_classes(y, classes, positions):
    samples = arrays.from_arrays(GREY, y)
    assert samples.classes == classes
    assert [type(name) for name in samples.classes] == [type(name) for name in classes]
    assert samples.labels.tolist() == positions


def test_given_classes_fix_the_order_and_may_have_no_samples():
    samples = arrays.from_arrays(GREY, [2, 0, 2], classes=[2, 1, 0])
    assert samples.classes == (2, 1, 0)
    assert samples.labels.tolist() == [0, 2, 0]


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([0, 1], "3 inputs but 2 labels"),
        (np.zeros((3, 1)), r"y\.ravel\(\)"),
        (np.eye(3), r"y\.argmax\(1\)"),
        ([0, None, 1], "row 1 is missing"),
        ([0, 1, float("nan")], "row 2 is missing"),
        ([[0], [1], [1]], "row 0 is a list"),
        ([0, torch.tensor([1, 2]), 1], "row 1 is a Tensor"),
        ([([],), 0, 1], "row 0 is a tuple"),
        ("abc", "must be a sequence"),
        (3, "must be a sequence"),
    ],
)
def test_labels_that_cannot_be_used_are_refused(y, message):
    with pytest.raises(DataError, match=f"the arrays.*{message}"):
        arrays.from_arrays(GREY, y)


def test_a_label_outside_the_given_classes_is_refused():
    with pytest.raises(DataError, match="label 5 in row 2 is not one of"):
        arrays.from_arrays(GREY, [0, 1, 5], classes=[0, 1])


def test_an_npz_with_both_parts_has_the_classes_of_both(tmp_path):
    path = tmp_path / "birds.npz"
    np.savez(path, x_train=GREY, y_train=["owl", "jay", "owl"], x_test=GREY[:2], y_test=["emu", "owl"])
    data = own.read_npz(path)
    assert data.name == "birds"
    assert data.train.classes == data.test.classes == ("emu", "jay", "owl")
    assert data.train.labels.tolist() == [2, 1, 2]
    assert data.test.labels.tolist() == [0, 2]


def test_an_npz_without_a_test_part_gets_an_empty_one(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=COLOUR, y=[1, 2, 1])
    data = own.read_npz(str(tmp_path / "a.npz"))
    assert len(data.train) == 3
    assert data.test.inputs.shape == (0, 3, 5, 6)
    assert data.test.classes == (1, 2)


def test_unlabelled_inputs_come_from_x_or_the_only_array(tmp_path):
    np.savez(tmp_path / "a.npz", x=GREY, y=[0, 1, 2])
    np.savez(tmp_path / "b.npz", anything=GREY)
    np.savez(tmp_path / "c.npz", one=GREY, two=GREY)
    assert own.read_npz_inputs(tmp_path / "a.npz").shape == (3, 1, 5, 6)
    assert own.read_npz_inputs(tmp_path / "b.npz").shape == (3, 1, 5, 6)
    with pytest.raises(DataError, match=r"c\.npz has no array 'x' or 'x_test', only \['one', 'two'\]"):
        own.read_npz_inputs(tmp_path / "c.npz")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x_train": GREY}, "no array 'y_train'"),
        ({"x_train": GREY, "y_train": [0, 1, 2], "x_test": GREY}, "no array 'y_test'"),
        ({"images": GREY}, r"no array 'x_train', only \['images'\]; expected x_train"),
        ({"x": GREY, "y": np.array([1, "a", None], object)}, "array of Python objects.*never unpickled"),
        ({"x": GREY, "y": [0, 1]}, "3 inputs but 2 labels"),
    ],
)
def test_an_npz_that_lacks_something_is_named(tmp_path, arrays, message):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError, match=rf"a\.npz.*{message}"):
        own.read_npz(tmp_path / "a.npz")


def test_a_truncated_foreign_bare_or_missing_npz_is_named(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, x=GREY, y=[0, 1, 2])
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], whole[:-30], b"", b"junk"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"a\.npz is not a whole \.npz file"):
            own.read_npz(path)
    np.save(tmp_path / "b.npy", GREY)
    with pytest.raises(DataError, match=r"b\.npy holds one bare array"):
        own.read_npz(tmp_path / "b.npy")
    with pytest.raises(MissingDataError, match="no file"):
        own.read_npz(tmp_path / "none.npz")


def write_image(path, mode="RGB", size=(10, 12), value=7, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value if mode in ("1", "L", "I", "F", "P", "I;16") else (value,) * len(mode)).save(
        path, **options
    )


@pytest.fixture
def pets(tmp_path):
    write_image(tmp_path / "dog" / "1.png", value=10)
    write_image(tmp_path / "cat" / "b.PNG", value=21)
    write_image(tmp_path / "cat" / "deep" / "er" / "a.ppm", value=22)
    write_image(tmp_path / "cat" / ".hidden.png")
    write_image(tmp_path / "cat" / ".deep" / "x.png")
    write_image(tmp_path / ".cache" / "x.png")
    (tmp_path / "cat" / "notes.txt").write_text("no image")
    (tmp_path / "README.txt").write_text("no class")
    return tmp_path


def test_a_folder_of_class_folders_gives_classes_by_name(pets):
    data = own.read_image_files(pets)
    assert data.train.classes == ("cat", "dog")
    assert data.train.inputs.shape == (3, 3, 12, 10)
    assert sorted(zip(data.train.labels.tolist(), data.train.inputs[:, 0, 0, 0].tolist(), strict=True)) == [
        (0, 21),
        (0, 22),
        (1, 10),
    ]
    assert data.test.inputs.shape == (0, 3, 12, 10)
    assert data.test.classes == ("cat", "dog")


def test_folders_train_and_test_are_parts_with_the_classes_of_both(tmp_path):
    write_image(tmp_path / "train" / "b" / "1.png", value=1)
    write_image(tmp_path / "train" / "c" / "1.png", value=2)
    write_image(tmp_path / "test" / "a" / "1.png", value=3)
    write_image(tmp_path / "val" / "zzz" / "1.png", value=4)
    data = own.read_image_files(tmp_path)
    assert data.train.classes == data.test.classes == ("a", "b", "c")
    assert data.train.inputs[:, 0, 0, 0].tolist() == [1, 2]
    assert data.train.labels.tolist() == [1, 2]
    assert data.test.inputs[:, 0, 0, 0].tolist() == [3]


def test_classes_called_train_and_boat_are_classes(tmp_path):
    write_image(tmp_path / "train" / "1.png")
    write_image(tmp_path / "boat" / "1.png")
    assert own.read_image_files(tmp_path).train.classes == ("boat", "train")


@pytest.mark.parametrize(
    ("sizes", "size", "expected"),
    [
        ([(64, 20), (64, 20)], None, (20, 64)),
        ([(65, 20), (65, 20)], None, (64, 64)),
        ([(8, 8), (9, 9)], None, (64, 64)),
        ([(8, 8), (9, 9)], 5, (5, 5)),
        ([(8, 8), (8, 8)], 16, (16, 16)),
    ],
)
def test_images_keep_one_small_size_or_are_resized(tmp_path, sizes, size, expected):
    for number, each in enumerate(sizes):
        write_image(tmp_path / "a" / f"{number}.png", size=each)
    assert own.read_image_files(tmp_path, size=size).train.inputs.shape[2:] == expected


def test_shrinking_averages_instead_of_skipping_pixels(tmp_path):
    stripes = np.zeros((100, 100), np.uint8)
    stripes[:, ::2] = 200
    (tmp_path / "a").mkdir()
    Image.fromarray(stripes).save(tmp_path / "a" / "1.png")
    pixels = own.read_image_files(tmp_path, size=10).train.inputs
    assert pixels.float().sub(100).abs().max() < 15


@pytest.mark.parametrize(
    ("mode", "name", "value", "channels", "pixel"),
    [
        ("1", "a.png", 1, 1, 255),
        ("L", "a.png", 9, 1, 9),
        ("LA", "a.png", 9, 1, 246),  # nearly transparent, and so nearly white
        ("I;16", "a.png", 257 * 40, 1, 40),
        ("I;16", "a.tif", 257 * 40, 1, 40),
        ("I", "a.pgm", 257 * 40, 1, 40),
        ("F", "a.tif", 0.2, 1, 51),
        ("RGB", "a.bmp", 9, 3, 9),
        ("RGBA", "a.webp", 255, 3, 255),
        ("CMYK", "a.tif", 0, 3, 255),
        ("P", "a.gif", 0, 3, 0),
    ],
)
def test_every_kind_of_pixel_becomes_grey_or_rgb_of_8_bits(tmp_path, mode, name, value, channels, pixel):
    write_image(tmp_path / "x" / name, mode, value=value)
    inputs, _ = own.read_images([tmp_path / "x"])
    assert inputs.shape == (1, channels, 12, 10)
    assert inputs.unique().tolist() == [pixel]


def test_a_palette_image_with_transparency_is_read_without_a_warning(tmp_path):
    image = Image.new("RGBA", (4, 4), (10, 20, 30, 0)).convert("P")
    image.save(tmp_path / "a.png", transparency=bytes([0, 255]))
    assert own.read_images([tmp_path / "a.png"])[0].shape == (1, 3, 4, 4)


def test_an_image_stored_on_its_side_is_turned_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    half = np.zeros((10, 20), np.uint8)
    half[:, :10] = 255
    Image.fromarray(half).save(tmp_path / "a.jpg", exif=exif, quality=100)
    inputs, _ = own.read_images([tmp_path / "a.jpg"])
    assert inputs.shape == (1, 1, 20, 10)
    assert inputs[0, 0, :8].min() > 240
    assert inputs[0, 0, 12:].max() < 15


@pytest.mark.parametrize(("first", "second"), [("RGB", "L"), ("L", "RGB")])
def test_grey_images_among_colour_ones_become_rgb_whichever_comes_first(tmp_path, first, second):
    write_image(tmp_path / "x" / "1.png", first)
    write_image(tmp_path / "x" / "2.png", second)
    with manner.file_reading() as report:
        mixed = own.read_image_files(tmp_path).train.inputs
    alike = own.read_image_files(tmp_path, channels="rgb").train.inputs
    assert mixed.shape == (2, 3, 12, 10)
    assert torch.equal(mixed, alike)
    assert report.plain()["grey_among_colour"] == 1
    assert report.told_by_colour() == []
    assert own.read_image_files(tmp_path, channels="grey").train.inputs.shape == (2, 1, 12, 10)


def test_a_class_that_is_grey_alone_is_named_and_grey_images_alone_are_not(tmp_path):
    for place in range(2):
        write_image(tmp_path / "photo" / f"{place}.png", "RGB")
        write_image(tmp_path / "scan" / f"{place}.png", "L")
    with manner.file_reading() as report:
        own.read_image_files(tmp_path)
    assert report.told_by_colour() == ["scan"]
    with manner.file_reading() as report:
        own.read_images([tmp_path / "scan"])
    assert report.grey.total() == 0


@pytest.mark.parametrize("keep", [0, 20, 60, 0.7])
@pytest.mark.parametrize("suffix", ["png", "jpg", "gif", "bmp", "ppm", "webp", "tif"])
def test_a_broken_image_is_named(tmp_path, suffix, keep):
    path = tmp_path / "x" / f"bad.{suffix}"
    path.parent.mkdir()
    Image.fromarray(random.integers(0, 256, (40, 40, 3), np.uint8)).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: keep if isinstance(keep, int) else int(len(whole) * keep)])
    with pytest.raises(DataError, match=rf"bad\.{suffix} is not an image that can be used"):
        own.read_image_files(tmp_path)


def test_float_pixels_outside_0_to_1_are_refused(tmp_path):
    write_image(tmp_path / "a.tif", "F", value=200.0)
    with pytest.raises(DataError, match=r"a\.tif.*mode F must lie in 0 to 1, got 200"):
        own.read_images([tmp_path / "a.tif"])


def test_folders_without_images_or_classes_are_named(pets, tmp_path):
    (pets / "empty").mkdir()
    with pytest.raises(DataError, match=r"class folder .*empty holds no image"):
        own.read_image_files(pets)
    with pytest.raises(DataError, match="holds no class folders"):
        own.read_image_files(pets / "dog")
    with pytest.raises(MissingDataError, match=r"no folder .*nowhere"):
        own.read_image_files(tmp_path / "nowhere")


@pytest.mark.parametrize("options", [{"size": 0}, {"size": 2.5}, {"size": True}, {"channels": "gray"}])
def test_a_form_that_images_cannot_take_is_refused(pets, options):
    with pytest.raises(SettingsError, match=r"got|did you mean 'grey'"):
        own.read_image_files(pets, **options)


def test_unlabelled_images_come_with_their_names(pets):
    inputs, names = own.read_images([pets / "dog" / "1.png", pets / "cat"], size=4)
    assert inputs.shape == (3, 3, 4, 4)
    assert names == [
        str(pets / "dog" / "1.png"),
        str(pets / "cat" / "b.PNG"),
        str(pets / "cat/deep/er/a.ppm"),
    ]


def test_unlabelled_images_that_are_not_there_are_named(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(MissingDataError, match=r"none\.png"):
        own.read_images([tmp_path / "none.png"])
    with pytest.raises(DataError, match=r"no image in the folder .*empty"):
        own.read_images([tmp_path / "empty"])
    with pytest.raises(DataError, match="no image was given"):
        own.read_images([])


class Items(Dataset):
    classes = ("zero", "one")

    def __init__(self, *items):
        self.items = items

    def __getitem__(self, row):
        return self.items[row]

    def __len__(self):
        return len(self.items)


PICTURE = Image.new("RGB", (6, 5), (1, 2, 3))


@pytest.mark.parametrize(
    ("image", "shape", "dtype"),
    [
        (PICTURE, (3, 5, 6), torch.uint8),
        (PICTURE.convert("L"), (1, 5, 6), torch.uint8),
        (torch.rand(3, 5, 6), (3, 5, 6), torch.float32),
        (torch.rand(1, 5, 3), (1, 5, 3), torch.float32),
        (torch.rand(5, 6), (1, 5, 6), torch.float32),
        (COLOUR[0], (3, 5, 6), torch.uint8),
        (GREY[0], (1, 5, 6), torch.uint8),
        (torch.rand(7).double(), (7,), torch.float32),
    ],
)
def test_items_of_a_torch_data_set_become_samples(image, shape, dtype):
    samples = datasets.from_torch_dataset(Items((image, 1), (image, torch.tensor(0)), [image, np.int64(1)]))
    assert samples.inputs.shape == (3, *shape)
    assert samples.inputs.dtype == dtype
    assert samples.classes == (0, 1)
    assert samples.labels.tolist() == [1, 0, 1]


def test_pixels_of_a_torch_data_set_keep_their_place():
    tensor = torch.arange(30, dtype=torch.uint8).reshape(1, 5, 6)
    assert torch.equal(
        datasets.from_torch_dataset(TensorDataset(tensor[None], torch.tensor([4]))).inputs[0], tensor
    )
    assert datasets.from_torch_dataset(Items((PICTURE, "a"))).inputs[0, :, 2, 2].tolist() == [1, 2, 3]


def test_items_of_one_size_keep_it_whatever_side_others_would_get():
    samples = datasets.from_torch_dataset(Items((PICTURE, 0), (PICTURE, 1)), side=9)
    assert samples.inputs.shape == (2, 3, *PICTURE.size[::-1])


@pytest.mark.parametrize(("asked", "side"), [(None, 64), (9, 9)])
@pytest.mark.parametrize("kind", ["picture", "floats"])
def test_items_of_differing_sizes_are_resized(asked, side, kind):
    small, large = PICTURE, PICTURE.resize((20, 30))
    if kind == "floats":
        small, large = torch.full((3, 5, 6), 0.5), torch.full((3, 30, 20), 0.5)
    samples = datasets.from_torch_dataset(Items((small, 0), (large, 1)), side=asked)
    assert samples.inputs.shape == (2, 3, side, side)
    assert len(samples.inputs[:, 0].unique()) == 1


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (PICTURE, r"item 1 must be a pair \(image, label\)"),
        ((PICTURE, 0, 0), "item 1 must be a pair"),
        (("text", 0), "item 1: the image must be a PIL image.*got str"),
        ((torch.zeros(1, 3, 5, 6), 0), r"item 1: .* of shape \(1, 3, 5, 6\)"),
        ((torch.full((3, 5, 6), -2.0), 0), "item 1: .*leave Normalize out"),
        ((torch.rand(3, 5, 6), 0), "item 1 has shape .* but item 0"),
        ((PICTURE, None), "row 1 is missing"),
    ],
)
def test_a_wrong_item_is_named_by_its_index(item, message):
    with pytest.raises(DataError, match=f"toys.*{message}"):
        datasets.from_torch_dataset(Items((PICTURE, 1), item), origin="toys")


def test_vectors_of_differing_lengths_are_refused():
    with pytest.raises(DataError, match="item 1 has shape"):
        datasets.from_torch_dataset(Items((torch.zeros(3), 1), (torch.zeros(4), 1)))


def test_an_iterable_or_empty_data_set_is_refused_with_the_reason():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(())

    with pytest.raises(DataError, match="can only be iterated"):
        datasets.from_torch_dataset(Stream())
    with pytest.raises(DataError, match="empty"):
        datasets.from_torch_dataset(Items())
