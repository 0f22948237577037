import os
import pickle
import stat
import warnings
from pathlib import Path

import pytest
import torch

from shels.errors import ModelFileError
from shels.files import read_metadata, read_tensors, to_bytes, write_together, write_whole


def names_in(directory):
    return sorted(path.name for path in directory.iterdir())


def test_text_and_bytes_are_written_as_they_are_into_directories_that_may_be_new(tmp_path):
    write_whole(tmp_path / "a" / "b" / "text", "α\n")
    write_whole(tmp_path / "a" / "bytes", b"\x00\xff\r\n")
    assert (tmp_path / "a" / "b" / "text").read_bytes() == "α\n".encode()
    assert (tmp_path / "a" / "bytes").read_bytes() == b"\x00\xff\r\n"


def test_a_new_content_replaces_the_old_whole(tmp_path):
    path = tmp_path / "file"
    write_whole(path, "a long first content")
    write_whole(path, "short")
    assert path.read_text() == "short"
    assert names_in(tmp_path) == ["file"]


def test_the_old_file_stands_until_the_new_one_is_safe_on_disk(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_text("old")
    seen = []

    def look_then_sync(descriptor, sync=os.fsync):
        sync(descriptor)
        seen.append((path.read_text(), os.fstat(descriptor).st_size))

    monkeypatch.setattr(os, "fsync", look_then_sync)
    write_whole(path, "newer")
    assert seen == [("old", 5)]
    assert path.read_text() == "newer"


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_write_that_is_cut_off_leaves_the_old_file_and_nothing_beside_it(tmp_path, monkeypatch, error):
    path = tmp_path / "file"
    path.write_text("old")

    def fail(descriptor):
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(type(error)):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert names_in(tmp_path) == ["file"]


def test_a_write_that_fails_after_the_content_leaves_nothing_either(tmp_path, monkeypatch):
    def fail(*arguments):
        raise PermissionError("replace")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(PermissionError):
        write_whole(tmp_path / "file", "new")
    assert names_in(tmp_path) == []


def test_of_files_that_belong_together_none_is_replaced_before_all_are_written(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text("old")

    def contents():
        yield tmp_path / "a", "new"
        raise RuntimeError("the second cannot be made")

    with pytest.raises(RuntimeError, match="second"):
        write_together(contents())
    assert [(tmp_path / name).read_text() for name in "ab"] == ["old", "old"]
    assert names_in(tmp_path) == ["a", "b"]
    write_together((tmp_path / name, f"new {name}") for name in "ab")
    assert [(tmp_path / name).read_text() for name in "ab"] == ["new a", "new b"]
    assert names_in(tmp_path) == ["a", "b"]


def test_a_directory_in_the_way_is_left_as_it_is(tmp_path):
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "kept").write_text("kept")
    with pytest.raises(OSError, match="target"):
        write_whole(tmp_path / "target", "new")
    assert names_in(tmp_path) == ["target"]
    assert (tmp_path / "target" / "kept").read_text() == "kept"


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_a_written_file_has_the_permissions_of_an_ordinary_one(tmp_path):
    mask = os.umask(0o022)
    try:
        write_whole(tmp_path / "file", "x")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644


def test_tensors_come_back_as_they_were(tmp_path):
    tensors = {
        "float": torch.tensor([[1.5, -0.0], [float("inf"), 1e-40]]),
        "double": torch.tensor([0.1], dtype=torch.float64),
        "half": torch.tensor([1.5, 2.5], dtype=torch.bfloat16),
        "long": torch.tensor([2**62, -1]),
        "bytes": torch.tensor([0, 255], dtype=torch.uint8),
        "empty": torch.zeros(0, 3),
        "number": torch.tensor(4.0),
        "transposed": torch.arange(6.0).reshape(2, 3).T,
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }
    path = tmp_path / "tensors.safetensors"
    write_whole(path, to_bytes(tensors))
    again = read_tensors(path)
    assert again.keys() == tensors.keys()
    for name, value in tensors.items():
        assert again[name].dtype == value.dtype
        assert again[name].tolist() == value.tolist()
        assert not again[name].requires_grad


def test_parts_of_one_tensor_can_be_saved_side_by_side(tmp_path):
    whole = torch.arange(6.0)
    write_whole(tmp_path / "parts", to_bytes({"a": whole[:2], "b": whole[2:]}))
    again = read_tensors(tmp_path / "parts")
    assert (again["a"].tolist(), again["b"].tolist()) == ([0, 1], [2, 3, 4, 5])


def test_notes_come_back_and_their_absence_is_empty(tmp_path):
    write_whole(tmp_path / "with", to_bytes({"a": torch.ones(1)}, {"step": "12", "text": "μ"}))
    write_whole(tmp_path / "without", to_bytes({"a": torch.ones(1)}))
    assert read_metadata(tmp_path / "with") == {"step": "12", "text": "μ"}
    assert read_metadata(tmp_path / "without") == {}


def test_equal_tensors_give_equal_bytes():
    first = to_bytes({"a": torch.arange(4.0), "b": torch.ones(2)})
    second = to_bytes({"b": torch.ones(2), "a": torch.arange(4.0)})
    assert first == second


def test_what_was_read_stays_when_the_file_is_replaced(tmp_path):
    path = tmp_path / "file"
    write_whole(path, to_bytes({"a": torch.zeros(1000)}))
    read = read_tensors(path)["a"]
    write_whole(path, to_bytes({"a": torch.ones(1000)}))
    assert read.sum() == 0


@pytest.mark.parametrize("reader", [read_tensors, read_metadata])
def test_a_file_cut_off_anywhere_is_refused_by_name(tmp_path, reader):
    data = to_bytes({"a": torch.ones(100)}, {"note": "x"})
    for length in (0, 4, 8, 20, len(data) - 400, len(data) - 1):
        path = tmp_path / f"cut-{length}.safetensors"
        path.write_bytes(data[:length])
        with pytest.raises(ModelFileError, match=f"cut-{length}.safetensors is damaged or not a safetensors"):
            reader(path)


def test_a_foreign_file_is_refused_and_never_unpickled(tmp_path):
    class Trap:
        def __reduce__(self):
            return warnings.warn, ("the pickle was executed",)

    path = tmp_path / "model.pt"
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ModelFileError, match=r"model\.pt is damaged or not a safetensors file"):
        read_tensors(path)


def test_a_missing_file_is_called_missing(tmp_path):
    with pytest.raises(ModelFileError) as caught:
        read_tensors(tmp_path / "none.safetensors")
    assert str(caught.value) == f"{tmp_path / 'none.safetensors'} does not exist"


def test_a_directory_is_no_file(tmp_path):
    with pytest.raises(ModelFileError, match="is a directory, not a file"):
        read_tensors(tmp_path)
