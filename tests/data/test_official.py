import gzip
import io
import pickle
import struct
import tarfile
import zipfile

import numpy as np
import pytest
import scipy.io
import torch
from PIL import Image

from shels.data import official
from shels.data.sources import load_named
from shels.errors import DataError, MissingDataError

random = np.random.default_rng(0)


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_idx(folder, train=7, test=3, packed=True):
    folder.mkdir(parents=True)
    arrays = {
        "train-images-idx3-ubyte": random.integers(0, 256, (train, 28, 28), np.uint8),
        "train-labels-idx1-ubyte": np.arange(train, dtype=np.uint8),
        "t10k-images-idx3-ubyte": random.integers(0, 256, (test, 28, 28), np.uint8),
        "t10k-labels-idx1-ubyte": np.arange(test, dtype=np.uint8)[::-1],
    }
    for name, array in arrays.items():
        content = gzip.compress(idx(array)) if packed else idx(array)
        (folder / (name + ".gz" * packed)).write_bytes(content)
    return arrays


@pytest.mark.parametrize("folder", ["mnist", "mnist/raw", "MNIST/raw"])
@pytest.mark.parametrize("packed", [True, False])
def test_idx_files_give_their_very_bytes(tmp_path, folder, packed):
    arrays = write_idx(tmp_path / folder, packed=packed)
    data = load_named("mnist", tmp_path)
    assert data.name == "mnist"
    assert np.array_equal(data.train.inputs[:, 0].numpy(), arrays["train-images-idx3-ubyte"])
    assert data.train.inputs.shape == (7, 1, 28, 28)
    assert data.train.labels.tolist() == list(range(7))
    assert np.array_equal(data.test.inputs[:, 0].numpy(), arrays["t10k-images-idx3-ubyte"])
    assert data.test.labels.tolist() == [2, 1, 0]
    assert data.test.classes == tuple(range(10))


@pytest.mark.parametrize("folder", ["fmnist", "FashionMNIST/raw", "fashion-mnist"])
def test_fashion_files_are_never_taken_for_mnist(tmp_path, folder):
    write_idx(tmp_path / folder)
    assert len(load_named("fmnist", tmp_path).train) == 7
    with pytest.raises(MissingDataError, match="mnist was not found"):
        load_named("mnist", tmp_path)


def test_idx_files_beside_no_named_folder_are_not_guessed(tmp_path):
    write_idx(tmp_path / "data")
    with pytest.raises(MissingDataError, match=r"train-images-idx3-ubyte\.gz.*MNIST/raw"):
        load_named("mnist", tmp_path / "data")


def test_a_missing_idx_file_is_named(tmp_path):
    write_idx(tmp_path / "mnist")
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(MissingDataError, match=r"lacks only mnist/t10k-labels-idx1-ubyte\.gz"):
        load_named("mnist", tmp_path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content[:-1], "header says 208 bytes, it has 207"),
        (lambda content: content + b"x", "header says 208 bytes, it has 209"),
        (lambda content: content[:9], "must start with 00000803"),
        (lambda content: b"\0\0\x08\x01" + content[4:], "must start with 00000803, got 00000801"),
        (lambda content: b"", "must start with"),
    ],
)
def test_a_damaged_idx_file_is_named(tmp_path, damage, message):
    write_idx(tmp_path / "mnist", packed=False)
    path = tmp_path / "mnist" / "train-images-idx3-ubyte"
    path.write_bytes(damage(idx(np.zeros((2, 8, 12), np.uint8))))
    with pytest.raises(DataError, match=f"{path}.*{message}"):
        load_named("mnist", tmp_path)


def test_a_truncated_gzip_file_is_named(tmp_path):
    write_idx(tmp_path / "mnist")
    path = tmp_path / "mnist" / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz cannot be unpacked"):
        load_named("mnist", tmp_path)


def test_more_images_than_labels_are_refused(tmp_path):
    write_idx(tmp_path / "mnist", packed=False)
    (tmp_path / "mnist" / "train-labels-idx1-ubyte").write_bytes(idx(np.zeros(6, np.uint8)))
    with pytest.raises(DataError, match="7 inputs but labels of shape"):
        load_named("mnist", tmp_path)


def cifar_batches(suffix=""):
    """Return six small batches: {file name: (pixels (n, 3072), labels)}."""
    names = [f"data_batch_{i}{suffix}" for i in range(1, 6)] + [f"test_batch{suffix}"]
    return {
        name: (random.integers(0, 256, (4, 3072), np.uint8), random.integers(0, 10, 4, np.uint8))
        for name in names
    }


def binary(pixels, labels):
    return np.concatenate([labels[:, None], pixels], axis=1).tobytes()


def python2_pickle(pixels, labels):
    """Return a batch as Python 2 pickled the official ones: byte strings, and numpy's old names."""
    n = len(pixels)
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K" + bytes([n]) + b"M\x00\x0c\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T"
        + struct.pack("<i", pixels.size)
        + pixels.tobytes()
        + b"tb"
    )
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(U\x06labels" + numbers + b"U\x04data" + array + b"u."


def write_archive(path, folder, contents):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def write_cifar(directory, kind, archive):
    suffix, encode = (".bin", binary) if kind == "binary" else ("", python2_pickle)
    folder = f"cifar-10-batches-{'bin' if kind == 'binary' else 'py'}"
    batches = cifar_batches(suffix)
    contents = {name: encode(*batch) for name, batch in batches.items()}
    if archive:
        write_archive(directory / f"cifar-10-{kind}.tar.gz", folder, contents)
    else:
        (directory / folder).mkdir()
        for name, content in contents.items():
            (directory / folder / name).write_bytes(content)
    return list(batches.values())


@pytest.mark.parametrize("kind", ["binary", "python"])
@pytest.mark.parametrize("archive", [True, False])
def test_cifar_batches_give_their_very_bytes(tmp_path, kind, archive):
    batches = write_cifar(tmp_path, kind, archive)
    before = sorted(tmp_path.rglob("*"))
    data = load_named("cifar10", tmp_path)
    assert data.train.inputs.shape == (20, 3, 32, 32)
    assert np.array_equal(data.train.inputs[4:8].flatten(1).numpy(), batches[1][0])
    assert data.train.labels.tolist() == [label for _, labels in batches[:5] for label in labels.tolist()]
    assert np.array_equal(data.test.inputs.flatten(1).numpy(), batches[5][0])
    assert sorted(tmp_path.rglob("*")) == before


def test_binary_batches_are_preferred_to_pickled_ones(tmp_path):
    write_cifar(tmp_path, "python", archive=False)
    batches = write_cifar(tmp_path, "binary", archive=True)
    assert np.array_equal(load_named("cifar10", tmp_path).test.inputs.flatten(1).numpy(), batches[5][0])


class Payload:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def payloads(mark):
    import builtins
    import os

    return [
        pickle.dumps(Payload(os.system, f"touch {mark}")),
        pickle.dumps({"data": Payload(builtins.eval, f"open({str(mark)!r}, 'w')"), "labels": []}, protocol=2),
        b"cos\nsystem\n(S'touch " + str(mark).encode() + b"'\ntR.",
        pickle.dumps({"data": np.load, "labels": [0]}),
    ]


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("archive", [True, False])
def test_a_pickle_that_would_run_something_is_refused_and_runs_nothing(tmp_path, number, archive):
    mark = tmp_path / "executed"
    write_cifar(tmp_path, "python", archive)
    content = payloads(mark)[number]
    if archive:
        contents = dict.fromkeys([f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"], content)
        write_archive(tmp_path / "cifar-10-python.tar.gz", "cifar-10-batches-py", contents)
    else:
        (tmp_path / "cifar-10-batches-py" / "data_batch_1").write_bytes(content)
    with pytest.raises(DataError, match="data_batch_1 was refused: a batch may hold arrays and nothing else"):
        load_named("cifar10", tmp_path)
    assert not mark.exists()


def test_the_payloads_above_do_run_under_a_plain_unpickler(tmp_path):
    pickle.loads(payloads(tmp_path / "executed")[0])
    assert (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"junk",
        pickle.dumps([1, 2]),
        pickle.dumps({"data": [1], "labels": [1]}),
        python2_pickle(np.zeros((2, 3072), np.uint8), [1, 2, 3]),
        python2_pickle(np.zeros((2, 3072), np.uint8), [1, 12]),
        python2_pickle(np.zeros((2, 3072), np.uint8), [1, 2])[:-100],
    ],
)
def test_a_python_batch_with_other_content_is_named(tmp_path, content):
    write_cifar(tmp_path, "python", archive=False)
    (tmp_path / "cifar-10-batches-py" / "data_batch_3").write_bytes(content)
    with pytest.raises(DataError, match="data_batch_3 "):
        load_named("cifar10", tmp_path)


def test_damaged_cifar_files_are_named(tmp_path):
    write_cifar(tmp_path, "binary", archive=True)
    path = tmp_path / "cifar-10-binary.tar.gz"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"cifar-10-binary\.tar\.gz is not a whole archive"):
        load_named("cifar10", tmp_path)
    write_archive(path, "x", {"data_batch_1.bin": b"0" * 3073})
    with pytest.raises(DataError, match=r"lacks data_batch_2\.bin"):
        load_named("cifar10", tmp_path)
    path.unlink()
    write_cifar(tmp_path, "binary", archive=False)
    (tmp_path / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(b"0" * 3072)
    with pytest.raises(DataError, match=r"test_batch\.bin is damaged.*3073, got 3072"):
        load_named("cifar10", tmp_path)


def write_svhn(folder):
    folder.mkdir(exist_ok=True)
    pixels = random.integers(0, 256, (32, 32, 3, 4), np.uint8)
    for part in ("train", "test"):
        arrays = {"X": pixels, "y": np.array([[10], [1], [9], [2]], np.uint8)}
        scipy.io.savemat(folder / f"{part}_32x32.mat", arrays, do_compression=True)
    return pixels


@pytest.mark.parametrize("folder", ["svhn", "SVHN", "."])
def test_svhn_label_ten_is_the_digit_zero_and_pixels_keep_their_place(tmp_path, folder):
    pixels = write_svhn(tmp_path / folder)
    data = load_named("svhn", tmp_path)
    assert data.train.labels.tolist() == [0, 1, 9, 2]
    assert data.train.classes == tuple(range(10))
    assert data.test.inputs[2, 1, 5, 7] == pixels[5, 7, 1, 2]
    assert data.test.inputs.is_contiguous()


def test_a_damaged_or_foreign_svhn_file_is_named(tmp_path):
    write_svhn(tmp_path)
    path = tmp_path / "train_32x32.mat"
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(DataError, match=r"train_32x32\.mat is not a whole MATLAB file"):
        load_named("svhn", tmp_path)
    scipy.io.savemat(path, {"X": np.zeros((2, 2))})
    with pytest.raises(DataError, match=r"train_32x32\.mat must hold X"):
        load_named("svhn", tmp_path)


def ppm(width, height, value):
    stream = io.BytesIO()
    Image.new("RGB", (width, height), (value, 0, 255 - value)).save(stream, "PPM")
    return stream.getvalue()


def gtsrb_files(training="GTSRB/Final_Training/Images", tables=True):
    """Return {path: content} with two tracks of two frames in classes 0 and 42, and two test images."""
    files = {}
    for number in (0, 42):
        lines = ["Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId"]
        for track, frame in ((0, 0), (0, 1), (12, 0), (12, 1)):
            name = f"{track:05d}_{frame:05d}.ppm"
            files[f"{training}/{number:05d}/{name}"] = ppm(20 + track, 30 + frame, number * 5 + track + frame)
            lines.append(f"{name};20;30;5;5;15;25;{number}")
        if tables:
            files[f"{training}/{number:05d}/GT-{number:05d}.csv"] = "\r\n".join(lines).encode()
    for name, value in (("00000.ppm", 9), ("00001.ppm", 99)):
        files[f"GTSRB/Final_Test/Images/{name}"] = ppm(50, 51, value)
    return files


TEST_TABLE = b"""Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId
00000.ppm;5;5;0;0;4;4;16
00001.ppm;5;5;0;0;4;4;1
"""


def write_files(directory, files):
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def check_gtsrb(data, size=48):
    assert data.train.inputs.shape == (8, 3, size, size)
    assert data.train.labels.tolist() == [0] * 4 + [42] * 4
    assert data.train.inputs[:, 0, 3, 3].tolist() == [0, 1, 12, 13, 210, 211, 222, 223]
    groups = data.train.groups.tolist()
    assert [groups[0::2], groups[1::2]] == [groups[0::2]] * 2
    assert len(set(groups)) == 4
    assert data.test.labels.tolist() == [16, 1]
    assert data.test.inputs[:, 0, 3, 3].tolist() == [9, 99]
    assert data.test.groups is None
    assert data.train.classes == tuple(range(43))


@pytest.mark.parametrize("base", [".", "gtsrb"])
@pytest.mark.parametrize("table", ["GT-final_test.csv", "GTSRB/Final_Test/Images/GT-final_test.csv"])
def test_traffic_signs_are_read_from_the_official_layout(tmp_path, base, table):
    write_files(tmp_path / base, {**gtsrb_files(), table: TEST_TABLE})
    check_gtsrb(load_named("gtsrb", tmp_path))


@pytest.mark.parametrize("tables", [True, False])
def test_traffic_signs_are_read_from_torchvisions_layout(tmp_path, tables):
    files = gtsrb_files("GTSRB/Training", tables)
    write_files(tmp_path / "gtsrb", {**files, "GT-final_test.csv": TEST_TABLE})
    check_gtsrb(load_named("gtsrb", tmp_path, size=32), size=32)


def test_traffic_signs_are_read_from_the_archives(tmp_path):
    files = gtsrb_files()
    parts = {
        "GTSRB_Final_Training_Images.zip": {k: v for k, v in files.items() if "Training" in k},
        "GTSRB_Final_Test_Images.zip": {k: v for k, v in files.items() if "Test" in k},
        "GTSRB_Final_Test_GT.zip": {"GT-final_test.csv": TEST_TABLE},
    }
    for name, contents in parts.items():
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            for inner, content in contents.items():
                archive.writestr(inner, content)
    check_gtsrb(load_named("gtsrb", tmp_path))
    (tmp_path / "GTSRB_Final_Test_GT.zip").write_bytes(b"junk")
    with pytest.raises(DataError, match=r"GTSRB_Final_Test_GT\.zip is not a whole zip"):
        load_named("gtsrb", tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "GTSRB/Final_Training/Images/00042/00012_00001.ppm",
            None,
            "00012_00001.ppm is listed but cannot be read",
        ),
        (
            "GTSRB/Final_Training/Images/00042/00012_00001.ppm",
            b"P6 9 9 255 x",
            "00012_00001.ppm is not an image",
        ),
        ("GT-final_test.csv", b"Filename;Width\n00000.ppm;3\n", "needs a Filename and a ClassId"),
        ("GT-final_test.csv", None, r"gtsrb \(test labels\) was not found"),
    ],
)
def test_missing_or_damaged_traffic_signs_are_named(tmp_path, name, content, message):
    write_files(tmp_path, {**gtsrb_files(), "GT-final_test.csv": TEST_TABLE})
    (tmp_path / name).unlink() if content is None else (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_named("gtsrb", tmp_path)


def test_traffic_sign_folders_without_images_are_refused(tmp_path):
    files = {name: content for name, content in gtsrb_files().items() if "Training" not in name}
    write_files(tmp_path, {**files, "GT-final_test.csv": TEST_TABLE})
    (tmp_path / "GTSRB" / "Final_Training" / "Images").mkdir(parents=True)
    with pytest.raises(DataError, match="holds no training images"):
        load_named("gtsrb", tmp_path)


def test_the_embedded_digits_are_the_same_every_time_and_scaled_to_bytes():
    from sklearn.datasets import load_digits

    data, again = load_named("digits"), load_named("digits")
    assert (len(data.train), len(data.test)) == (1257, 540)
    assert torch.equal(data.train.inputs, again.train.inputs)
    assert data.train.inputs.shape[1:] == (1, 8, 8)
    seen = {tuple(image.flatten().tolist()) for image in torch.cat([data.train.inputs, data.test.inputs])}
    assert seen == {tuple(round(v * 255 / 16) for v in row) for row in load_digits().data}
    every = torch.bincount(data.train.labels) + torch.bincount(data.test.labels)
    share = torch.bincount(data.test.labels) / every
    assert every.tolist() == np.bincount(load_digits().target).tolist()
    assert torch.allclose(share, torch.full((10,), 0.3), atol=0.01)


def test_a_named_npz_gives_groups_unique_over_class_and_track(tmp_path):
    path = tmp_path / "gtsrb.npz"
    x = random.integers(0, 256, (4, 8, 8, 3), np.uint8)
    np.savez(path, x_train=x, y_train=[5, 5, 7, 7], x_test=x, y_test=[0, 1, 2, 3], track_train=[0, 1, 0, 0])
    data = official.read_named_npz(path, "gtsrb", 43)
    assert data.train.labels.tolist() == [5, 5, 7, 7]
    assert data.train.groups.tolist() == [0, 1, 2, 2]
    assert np.array_equal(data.train.inputs.numpy(), x.transpose(0, 3, 1, 2))
    assert data.test.classes == tuple(range(43))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y_train": [5, 5, 7, 43]}, "label 43 in row 3 is not one of"),
        ({"track_train": [1, 2]}, "track_train must hold one whole number"),
        ({"x_test": np.zeros((4, 9, 9, 3), np.uint8)}, "bring both to one shape"),
    ],
)
def test_a_named_npz_with_other_content_is_refused(tmp_path, change, message):
    x = np.zeros((4, 8, 8, 3), np.uint8)
    np.savez(
        tmp_path / "a.npz", **{"x_train": x, "y_train": [0] * 4, "x_test": x, "y_test": [0] * 4, **change}
    )
    with pytest.raises(DataError, match=message):
        official.read_named_npz(tmp_path / "a.npz", "gtsrb", 43)


def test_a_named_npz_of_vectors_or_without_a_test_part_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", x_train=np.zeros((2, 3)), y_train=[0, 1])
    with pytest.raises(DataError, match="no test part"):
        official.read_named_npz(tmp_path / "a.npz", "mnist", 10)
    np.savez(
        tmp_path / "a.npz", x_train=np.zeros((2, 3)), y_train=[0, 1], x_test=np.ones((2, 3)), y_test=[0, 1]
    )
    with pytest.raises(DataError, match="must be images"):
        official.read_named_npz(tmp_path / "a.npz", "mnist", 10)
